//! Nothing is destroyed that something else stands on: said when a destroy is asked for, and again before each of its
//! runs begins to apply, since a dependent may have been applied meanwhile. And nothing is applied on what is being
//! destroyed.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Action, ChangeSet, Status, Step};
use crate::ids::{ChangeSetId, StackName};
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
    runs.iter()
        .filter(|run| is_open(run))
        .filter_map(needed)
        .collect()
}

/// Runs that may not apply any more. `destroyed`: the stacks that stand on one that is being destroyed, which one, and
/// by which change set.
pub fn undermined(
    set: &ChangeSet,
    runs: &[Run],
    destroyed: &BTreeMap<StackName, (StackName, ChangeSetId)>,
) -> Vec<Step> {
    if !can_be_undermined(set, runs) {
        return Vec::new();
    }
    let lost = |run: &Run| {
        let (on, by) = destroyed.get(&run.stack)?;
        let because = Skip::Undermined {
            on: on.clone(),
            by: *by,
        };
        Some(Step::Record(
            run.id,
            Box::new(RunEvent::Skipped { because }),
        ))
    };
    runs.iter()
        .filter(|run| is_open(run))
        .filter_map(lost)
        .collect()
}

/// Whether anything of it is still to be applied: only then is it worth a look at what others destroy.
pub fn can_be_undermined(set: &ChangeSet, runs: &[Run]) -> bool {
    let applies = set.request.action == Action::Apply && set.status == Status::Confirmed;
    applies && runs.iter().any(is_open)
}

fn is_open(run: &Run) -> bool {
    match run.state {
        RunState::Queued | RunState::Deferred { .. } | RunState::Planned { .. } => true,
        RunState::Planning { .. }
        | RunState::Applying { .. }
        | RunState::Applied { .. }
        | RunState::Completing { .. }
        | RunState::Finished { .. } => false,
    }
}
