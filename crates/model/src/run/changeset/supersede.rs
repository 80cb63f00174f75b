//! Which change sets a newer push replaces. Change sets that a person requested are never replaced.

use super::{ChangeSet, Status, Trigger};
use crate::base::ids::ChangeSetId;

/// The open change sets that were triggered by a push to the same branch, affect only stacks that the new one affects
/// too, and have changed nothing yet.
pub fn superseded(new: &ChangeSet, open: &[ChangeSet]) -> Vec<ChangeSetId> {
    let Trigger::Push { branch } = &new.request.origin else {
        return Vec::new();
    };
    let is_older = |set: &&ChangeSet| {
        set.id < new.id
            && set.request.project == new.request.project
            && set.request.action == new.request.action
            && matches!(&set.request.origin, Trigger::Push { branch: other } if other == branch)
            && matches!(
                set.status,
                Status::Planning | Status::AwaitingConfirm | Status::Waiting
            )
            && set
                .request
                .stacks
                .iter()
                .all(|stack| new.request.stacks.contains(stack))
    };
    open.iter().filter(is_older).map(|set| set.id).collect()
}
