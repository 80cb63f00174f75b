//! Selects stacks by the arguments of the command line.

use std::collections::BTreeSet;

use control::project::changed::ChangedError;
use control::project::open::OpenProject;
use model::base::ids::StackName;
use model::graph::Graph;
use model::graph::selector::{self, ChangedRef, Selection, SelectorError};
use model::project::Project;

use crate::{CommandError, ExitStatus, Process};

/// Whether a selector requires the stacks that differ from what was last applied: only the home records that.
pub(crate) fn compares_with_applied(words: &[String]) -> bool {
    selector::parse(words).is_ok_and(|selection| selection.refs().contains(&ChangedRef::Applied))
}

/// The selected stacks. `applied`: those that differ from what was last applied, if that was determined.
/// Without arguments: those of the current directory, or all at the project's root.
pub(crate) fn resolve(
    words: &[String],
    open: &OpenProject,
    project: &Project,
    process: &Process,
    applied: Option<&BTreeSet<StackName>>,
) -> Result<BTreeSet<StackName>, CommandError> {
    let wrong = |err: &SelectorError| CommandError::from_error(err);
    let here = process
        .cwd
        .canonicalize()
        .unwrap_or_else(|_| process.cwd.clone());
    let inside = here
        .strip_prefix(&open.root)
        .ok()
        .and_then(|path| path.to_str())
        .unwrap_or("");
    if words.is_empty() {
        let graph = Graph::new(project);
        return Selection::here(inside)
            .resolve(&graph, project, &|_| BTreeSet::new())
            .map_err(|err| wrong(&err));
    }
    let selection = selector::parse(words).map_err(|err| wrong(&err))?;
    let mut changed = std::collections::BTreeMap::new();
    for reference in selection.refs() {
        let touched = match (&reference, applied) {
            (ChangedRef::Git(base), _) => {
                control::project::changed::since(open, project, base, &process.env)
                    .map_err(|err| changed_error(&err))?
            }
            (ChangedRef::Applied, Some(applied)) => applied.clone(),
            (ChangedRef::Applied, None) => {
                return Err(CommandError::new("cannot use `changed:applied` here")
                    .hint("`terrane plan changed:applied` reads the home")
                    .status(ExitStatus::Usage));
            }
        };
        changed.insert(reference, touched);
    }
    let graph = Graph::new(project);
    selection
        .resolve(&graph, project, &|reference| {
            changed.get(reference).cloned().unwrap_or_default()
        })
        .map_err(|err| match &err {
            // A path is relative to the current directory.
            SelectorError::Unknown {
                noun: "stack",
                name,
                ..
            } => {
                let path = selector::at_path(project, inside, name);
                wrong(&path.unwrap_or(err))
            }
            _ => wrong(&err),
        })
}

pub(crate) fn changed_error(err: &ChangedError) -> CommandError {
    CommandError::from_error(err)
}

/// Exactly one stack, by name.
pub(crate) fn one<'a>(name: &str, project: &'a Project) -> Result<&'a StackName, CommandError> {
    if let Some(stack) = project.stacks.keys().find(|stack| stack.as_str() == name) {
        return Ok(stack);
    }
    let graph = Graph::new(project);
    let parsed = selector::parse(&[name.to_owned()]);
    match parsed.and_then(|words| words.resolve(&graph, project, &|_| BTreeSet::new())) {
        Err(err) => Err(CommandError::from_error(&err)),
        Ok(_) => Err(
            CommandError::new(format!("`{name}` is not the name of one stack"))
                .hint("`terrane graph` shows all stacks")
                .status(ExitStatus::Usage),
        ),
    }
}
