//! Checks that stacks use only the providers that their targets list, as far as the source shows it. The
//! runner checks the providers of remote modules, before it starts any provider.

use model::base::diagnostic::Finding;
use model::base::ids::StackName;
use model::project::providers::{self, UnlistedProvider};
use model::project::{Project, Stack};

use crate::project::open::OpenProject;

/// The findings for `validate`, for all stacks.
pub fn findings(open: &OpenProject, project: &Project) -> Vec<Finding> {
    let of_one = |(name, stack): (&StackName, &Stack)| {
        let found = unlisted(open, project, name).into_iter();
        found
            .map(|one| one.finding(stack, &project.targets[&stack.target]))
            .collect::<Vec<_>>()
    };
    project.stacks.iter().flat_map(of_one).collect()
}

/// The providers that a stack needs and its target does not list.
pub(crate) fn unlisted(
    open: &OpenProject,
    project: &Project,
    name: &StackName,
) -> Vec<UnlistedProvider> {
    let stack = &project.stacks[name];
    // In a project with errors the target may be missing; that is reported elsewhere.
    let Some(target) = project.targets.get(&stack.target) else {
        return Vec::new();
    };
    if !target.limits_providers() {
        return Vec::new();
    }
    let lock_file = open.root.join(providers::lock_file(&stack.path));
    let lock_file = std::fs::read_to_string(lock_file).ok();
    providers::unlisted(
        target,
        &open.loaded.modules,
        &stack.path,
        lock_file.as_deref(),
    )
}
