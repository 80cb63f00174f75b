//! Keeps destroys and applies of dependent stacks apart. A stack is not destroyed while another one depends on it. This
//! is checked at the request and again before each run applies, since a dependent may have been applied meanwhile. A
//! stack is not applied while a dependency of it is being destroyed.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Action, ChangeSet, Status, Transition};
use crate::base::ids::{ChangeSetId, StackName};
use crate::run::{Run, RunEvent, RunState, SkipReason};

/// A stack outside a destroy that depends on one of its stacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependent {
    pub stack: StackName,
    /// The stack that it depends on.
    pub on: StackName,
    /// The name of its state.
    pub state: String,
}

/// Runs that may no longer destroy. `standing`: the dependents that have resources now or are being applied.
pub fn still_needed(
    set: &ChangeSet,
    runs: &[Run],
    standing: &BTreeSet<StackName>,
) -> Vec<Transition> {
    if set.request.action != Action::Destroy || set.status != Status::Confirmed {
        return Vec::new();
    }
    let needed = |run: &Run| {
        let mut dependents = set.request.dependents.iter();
        let by = dependents.find(|one| one.on == run.stack && standing.contains(&one.stack))?;
        let because = SkipReason::StillNeeded {
            by: by.stack.clone(),
        };
        Some(Transition::Record(
            run.id,
            Box::new(RunEvent::Skipped { because }),
        ))
    };
    runs.iter()
        .filter(|run| is_open(run))
        .filter_map(needed)
        .collect()
}

/// Runs that may no longer apply. `destroyed` maps stacks to a dependency that is being destroyed, and the change set
/// that does it.
pub fn undermined(
    set: &ChangeSet,
    runs: &[Run],
    destroyed: &BTreeMap<StackName, (StackName, ChangeSetId)>,
) -> Vec<Transition> {
    if !can_be_undermined(set, runs) {
        return Vec::new();
    }
    let lost = |run: &Run| {
        let (on, by) = destroyed.get(&run.stack)?;
        let because = SkipReason::Undermined {
            on: on.clone(),
            by: *by,
        };
        Some(Transition::Record(
            run.id,
            Box::new(RunEvent::Skipped { because }),
        ))
    };
    runs.iter()
        .filter(|run| is_open(run))
        .filter_map(lost)
        .collect()
}

/// Whether anything is still to be applied. Only then do the destroys of others matter.
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
