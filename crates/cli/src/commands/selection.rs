//! From words on the command line to stacks.

use std::collections::BTreeSet;

use control::projects::OpenProject;
use model::graph::Graph;
use model::ids::StackName;
use model::project::Project;
use model::selector::{self, Selection, SelectorError};

use crate::{CommandError, ExitStatus, Process};

/// The stacks that are meant. No words: those of the current directory, or all at the project's root.
pub(crate) fn resolve(
    words: &[String],
    open: &OpenProject,
    project: &Project,
    process: &Process,
) -> Result<BTreeSet<StackName>, CommandError> {
    let wrong = |err: &SelectorError| {
        let shown = CommandError::from_error(err).status(ExitStatus::Usage);
        err.hint().into_iter().fold(shown, CommandError::hint)
    };
    if words.is_empty() {
        let here = process
            .cwd
            .canonicalize()
            .unwrap_or_else(|_| process.cwd.clone());
        let inside = here
            .strip_prefix(&open.root)
            .ok()
            .and_then(|path| path.to_str())
            .unwrap_or("");
        let graph = Graph::new(project);
        return Selection::here(inside)
            .resolve(&graph, project, &|_| BTreeSet::new())
            .map_err(|err| wrong(&err));
    }
    let selection = selector::parse(words).map_err(|err| wrong(&err))?;
    let mut changed = std::collections::BTreeMap::new();
    for reference in selection.refs() {
        let touched =
            control::changed::since(open, project, &reference, &process.env).map_err(|err| {
                let hint = err.hint();
                let shown = CommandError::from_error(&err);
                hint.into_iter().fold(shown, CommandError::hint)
            })?;
        changed.insert(reference.clone(), touched);
    }
    let graph = Graph::new(project);
    selection
        .resolve(&graph, project, &|reference| {
            changed.get(reference).cloned().unwrap_or_default()
        })
        .map_err(|err| wrong(&err))
}

/// Exactly one stack, by name.
pub(crate) fn one<'a>(name: &str, project: &'a Project) -> Result<&'a StackName, CommandError> {
    if let Some(stack) = project.stacks.keys().find(|stack| stack.as_str() == name) {
        return Ok(stack);
    }
    let graph = Graph::new(project);
    let parsed = selector::parse(&[name.to_owned()]);
    match parsed.and_then(|words| words.resolve(&graph, project, &|_| BTreeSet::new())) {
        Err(err) => {
            let shown = CommandError::from_error(&err).status(ExitStatus::Usage);
            Err(err.hint().into_iter().fold(shown, CommandError::hint))
        }
        Ok(_) => Err(
            CommandError::new(format!("`{name}` is not the name of one stack"))
                .hint("`terrane graph` shows all stacks")
                .status(ExitStatus::Usage),
        ),
    }
}
