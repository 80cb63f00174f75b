//! Stacks and modules that Git ignores: they exist, but would not run, or would run without the ignored
//! files.

use drivers::snapshot::{self, ExtraFiles, SnapshotError};
use model::base::diagnostic::Finding;
use model::project::ignored_files::{IgnoredFile, SourceListing, WorkingTree};
use model::project::{Project, Stack};

use crate::project::open::OpenProject;

/// The findings for `validate`.
pub fn findings(open: &OpenProject, project: &Project) -> Result<Vec<Finding>, SnapshotError> {
    let Some(repository) = &open.git else {
        return Ok(Vec::new());
    };
    let listed = snapshot::list(&open.root, Some(repository), &ExtraFiles::of(project))?;
    let listed: SourceListing = listed.iter().map(String::as_str).collect();
    let ignored = project
        .stacks
        .values()
        .filter_map(|stack| Some(of(open, stack, &listed)?.finding(stack)));
    Ok(ignored.collect())
}

pub(crate) fn of(open: &OpenProject, stack: &Stack, listed: &SourceListing) -> Option<IgnoredFile> {
    // The files of an older commit are not in the working tree.
    let is_here = open.commit.is_none();
    let real = |dir: &str| is_here.then(|| snapshot::real_dir(&open.root, dir))?;
    let is_file = |path: &str| is_here && open.root.join(path).is_file();
    let here = WorkingTree {
        real: &real,
        is_file: &is_file,
    };
    IgnoredFile::of(
        &stack.path,
        &stack.var_files,
        &open.loaded.modules,
        listed,
        &here,
    )
}
