//! What `validate` says of stacks and modules that Git ignores: they are there, and would not run.

use drivers::snapshot::{self, Extras, SnapshotError};
use model::diagnostic::Finding;
use model::ignored::{Ignored, Listed};
use model::project::Project;

use crate::projects::OpenProject;

pub fn findings(open: &OpenProject, project: &Project) -> Result<Vec<Finding>, SnapshotError> {
    let Some(repository) = &open.git else {
        return Ok(Vec::new());
    };
    let listed = snapshot::list(&open.root, Some(repository), &Extras::of(project))?;
    let listed: Listed = listed.iter().map(String::as_str).collect();
    let ignored = project.stacks.values().filter_map(|stack| {
        let ignored = Ignored::of(&stack.path, &open.loaded.modules, &listed)?;
        Some(ignored.finding(stack))
    });
    Ok(ignored.collect())
}
