//! Which runs are opened again by a retry or a resume.

use std::collections::BTreeSet;

use super::{ChangeSet, Status};
use crate::ids::{ChangeSetId, RunId, StackName};
use crate::run::{Outcome, Run, RunState, Skip};

/// How much of a stopped change set is wanted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reopen {
    /// One run that did not end well, and those that it poisoned: exactly these.
    Run(RunId),
    /// Everything that did not end well.
    Rest,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReopenError {
    #[error("change set `{set}` is {status}: only one that stopped is resumed")]
    NotStopped {
        set: ChangeSetId,
        status: &'static str,
    },
    #[error("change set `{0}` has nothing left to do")]
    NothingLeft(ChangeSetId),
    #[error("run `{run}` is {word}: only one that did not end well is tried again")]
    EndedWell { run: RunId, word: &'static str },
    #[error("run `{run}` was skipped because of `{by}`: try that one again")]
    Poisoned { run: RunId, by: StackName },
}

/// The runs to open again.
pub fn reopen(set: &ChangeSet, runs: &[Run], what: Reopen) -> Result<Vec<RunId>, ReopenError> {
    if !matches!(set.status, Status::Stopped { .. }) {
        return Err(ReopenError::NotStopped {
            set: set.id,
            status: set.status.word(),
        });
    }
    let ended_badly = |run: &&Run| match &run.state {
        RunState::Finished { outcome, .. } => !outcome.is_good(),
        RunState::Queued
        | RunState::Planning { .. }
        | RunState::Deferred { .. }
        | RunState::Planned { .. }
        | RunState::Applying { .. }
        | RunState::Applied { .. }
        | RunState::Completing { .. } => false,
    };
    let chosen: Vec<RunId> = match what {
        Reopen::Rest => runs.iter().filter(ended_badly).map(|run| run.id).collect(),
        Reopen::Run(id) => {
            let Some(run) = runs.iter().find(|run| run.id == id) else {
                return Err(ReopenError::NothingLeft(set.id));
            };
            if !ended_badly(&run) {
                return Err(ReopenError::EndedWell {
                    run: id,
                    word: run.state.word(),
                });
            }
            if let Some(by) = poisoned_by(run) {
                return Err(ReopenError::Poisoned {
                    run: id,
                    by: by.clone(),
                });
            }
            let with: BTreeSet<RunId> = runs
                .iter()
                .filter(|other| poisoned_by(other) == Some(&run.stack))
                .map(|other| other.id)
                .chain([id])
                .collect();
            with.into_iter().collect()
        }
    };
    if chosen.is_empty() {
        return Err(ReopenError::NothingLeft(set.id));
    }
    Ok(chosen)
}

fn poisoned_by(run: &Run) -> Option<&StackName> {
    match &run.state {
        RunState::Finished {
            outcome:
                Outcome::Skipped {
                    because: Skip::Poisoned { by, .. },
                },
            ..
        } => Some(by),
        RunState::Finished { .. }
        | RunState::Queued
        | RunState::Planning { .. }
        | RunState::Deferred { .. }
        | RunState::Planned { .. }
        | RunState::Applying { .. }
        | RunState::Applied { .. }
        | RunState::Completing { .. } => None,
    }
}
