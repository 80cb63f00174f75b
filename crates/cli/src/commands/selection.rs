//! From words on the command line to stacks.

use std::collections::BTreeSet;

use control::projects::OpenProject;
use model::graph::Graph;
use model::ids::StackName;
use model::project::Project;
use model::selector;

use crate::{CommandError, ExitStatus, Process};

/// The stacks that are meant. No words: those of the current directory, or all at the project's root.
pub(crate) fn resolve(
    words: &[String],
    open: &OpenProject,
    project: &Project,
    process: &Process,
) -> Result<BTreeSet<StackName>, CommandError> {
    let wrong = |err: &dyn std::error::Error| CommandError::from_error(err).status(ExitStatus::Usage);
    if words.is_empty() {
        let here = process.cwd.canonicalize().unwrap_or_else(|_| process.cwd.clone());
        let inside = here.strip_prefix(&open.root).ok().and_then(|path| path.to_str()).unwrap_or("");
        return selector::of_directory(project, inside).map_err(|err| wrong(&err));
    }
    let selection = selector::parse(words).map_err(|err| wrong(&err))?;
    let mut changed = std::collections::BTreeMap::new();
    for reference in selection.refs() {
        let touched = control::changed::since(open, project, &reference, &process.env)
            .map_err(|err| {
                let hint = err.hint();
                let shown = CommandError::from_error(&err);
                hint.into_iter().fold(shown, CommandError::hint)
            })?;
        changed.insert(reference.clone(), touched);
    }
    let graph = Graph::new(project);
    selection
        .resolve(&graph, project, &|reference| changed.get(reference).cloned().unwrap_or_default())
        .map_err(|err| {
            let hint = err.hint();
            hint.into_iter().fold(wrong(&err), CommandError::hint)
        })
}

/// Exactly one stack, by name.
pub(crate) fn one<'a>(name: &str, project: &'a Project) -> Result<&'a StackName, CommandError> {
    project.stacks.keys().find(|stack| stack.as_str() == name).ok_or_else(|| {
        let near = model::config::suggest::nearest(name, project.stacks.keys().map(StackName::as_str));
        let shown = CommandError::new(format!("there is no stack `{name}`")).status(ExitStatus::Usage);
        match near {
            Some(near) => shown.hint(format!("did you mean `{near}`?")),
            None => shown.hint("`terrane graph` shows all stacks"),
        }
    })
}
