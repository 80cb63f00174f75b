//! Nothing is destroyed that something else stands on: said when a destroy is asked for, and again before each of its
//! runs begins to apply, since a dependent may have been applied meanwhile.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Action, ChangeSet, Status, Step};
use crate::ids::StackName;
use crate::run::{Run, RunEvent, RunState, Skip};

/// A stack outside a destroy that stands on one of its stacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependent {
    pub stack: StackName,
    /// What it stands on.
    pub on: StackName,
    /// The name of its state.
    pub state: String,
}

/// Runs that may not destroy any more. `standing`: the dependents that have resources now, or are being applied.
pub fn still_needed(set: &ChangeSet, runs: &[Run], standing: &BTreeSet<StackName>) -> Vec<Step> {
    if set.request.action != Action::Destroy || set.status != Status::Confirmed {
        return Vec::new();
    }
    let is_open = |run: &&Run| match run.state {
        RunState::Queued | RunState::Deferred { .. } | RunState::Planned { .. } => true,
        RunState::Planning { .. }
        | RunState::Applying { .. }
        | RunState::Applied { .. }
        | RunState::Completing { .. }
        | RunState::Finished { .. } => false,
    };
    let needed = |run: &Run| {
        let mut dependents = set.request.dependents.iter();
        let by = dependents.find(|one| one.on == run.stack && standing.contains(&one.stack))?;
        let because = Skip::StillNeeded {
            by: by.stack.clone(),
        };
        Some(Step::Record(
            run.id,
            Box::new(RunEvent::Skipped { because }),
        ))
    };
    runs.iter().filter(is_open).filter_map(needed).collect()
}
