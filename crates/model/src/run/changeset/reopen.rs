//! Which runs a retry or a resume reopens.

use std::collections::BTreeSet;

use super::{ChangeSet, Status};
use crate::base::error::{Explain, NextStep, command};
use crate::base::ids::{ChangeSetId, RunId, StackName};
use crate::run::{Outcome, Run, RunState, SkipReason};

/// How much of a stopped change set is reopened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reopen {
    /// One failed run and exactly those that were skipped because of it. Also the runs that were left out because of
    /// its plan, which was not applied.
    Run(RunId),
    /// Everything that failed. Also applied stacks whose source or state changed since, with their dependents: these
    /// are planned again.
    Rest { moved: BTreeSet<StackName> },
}

impl Reopen {
    /// Everything that failed, assuming that nothing has changed.
    pub fn rest() -> Self {
        Self::Rest {
            moved: BTreeSet::new(),
        }
    }
}

/// A run to open again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReopenedRun {
    pub run: RunId,
    /// It is planned again from the start.
    pub moved: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReopenError {
    #[error("cannot resume change set `{set}`: it is {}, not stopped", status.word())]
    NotStopped { set: ChangeSetId, status: Status },
    #[error("change set `{0}` has nothing left to do")]
    NothingLeft(ChangeSetId),
    #[error("cannot retry run `{run}`: it is {word}, and only unsuccessful runs are retried")]
    EndedWell { run: RunId, word: &'static str },
    #[error(
        "cannot retry run `{run}`: it was skipped because of stack `{by}`; retry that stack's run"
    )]
    UpstreamFailed { run: RunId, by: StackName },
}

impl Explain for ReopenError {
    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::NotStopped {
                set,
                status: Status::AwaitingConfirm,
            } => vec![
                command(format!("run confirm {set}"), "applies it"),
                command(format!("run discard {set} --reason \"…\""), "drops it"),
            ],
            Self::NotStopped { .. }
            | Self::NothingLeft(_)
            | Self::EndedWell { .. }
            | Self::UpstreamFailed { .. } => {
                vec![command("run list --all", "lists all change sets")]
            }
        }
    }
}

/// The runs to open again.
pub fn reopen(
    set: &ChangeSet,
    runs: &[Run],
    what: &Reopen,
) -> Result<Vec<ReopenedRun>, ReopenError> {
    if !matches!(set.status, Status::Stopped { .. }) {
        return Err(ReopenError::NotStopped {
            set: set.id,
            status: set.status.clone(),
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
    let chosen: Vec<ReopenedRun> = match what {
        Reopen::Rest { moved } => {
            let moved = with_those_on_them(runs, moved);
            let again = |run: &Run| ReopenedRun {
                run: run.id,
                moved: moved.contains(&run.stack),
            };
            let is_wanted = |run: &&Run| {
                ended_badly(run) || run.state.is_reached() && moved.contains(&run.stack)
            };
            runs.iter().filter(is_wanted).map(again).collect()
        }
        Reopen::Run(id) => {
            let id = *id;
            let Some(run) = runs.iter().find(|run| run.id == id) else {
                return Err(ReopenError::NothingLeft(set.id));
            };
            if !ended_badly(&run) {
                return Err(ReopenError::EndedWell {
                    run: id,
                    word: run.state.word(),
                });
            }
            if let Some(by) = skipped_because_of(run) {
                return Err(ReopenError::UpstreamFailed {
                    run: id,
                    by: by.clone(),
                });
            }
            // A bundle's plans are fixed, so nothing is planned again.
            let is_bundle = set.request.bundle.is_some();
            let with: BTreeSet<RunId> = runs
                .iter()
                .filter(|other| !is_bundle && skipped_because_of(other) == Some(&run.stack))
                .map(|other| other.id)
                .chain([id])
                .collect();
            let as_it_is = |run| ReopenedRun { run, moved: false };
            with.into_iter().map(as_it_is).collect()
        }
    };
    if chosen.is_empty() {
        return Err(ReopenError::NothingLeft(set.id));
    }
    Ok(with_premature(set, runs, chosen))
}

/// Adds the runs that were left out because of a plan that was never applied. The new plan may change what they
/// consume. (A bundle's plans are fixed.)
fn with_premature(set: &ChangeSet, runs: &[Run], mut chosen: Vec<ReopenedRun>) -> Vec<ReopenedRun> {
    if set.request.bundle.is_some() {
        return chosen;
    }
    let is_chosen = |run: &Run| chosen.iter().any(|it| it.run == run.id);
    let again = runs
        .iter()
        .filter(|run| is_chosen(run) && !run.state.is_not_done());
    let again: BTreeSet<StackName> = again.map(|run| run.stack.clone()).collect();
    let on_them = with_those_on_them(runs, &again);
    let left =
        |run: &&Run| run.state.is_untouched() && on_them.contains(&run.stack) && !is_chosen(run);
    let left: Vec<RunId> = runs.iter().filter(left).map(|run| run.id).collect();
    chosen.extend(left.into_iter().map(|run| ReopenedRun { run, moved: true }));
    chosen.sort_by_key(|it| it.run);
    chosen
}

/// Stacks with all their dependents in this change set.
fn with_those_on_them(runs: &[Run], stacks: &BTreeSet<StackName>) -> BTreeSet<StackName> {
    let mut all = stacks.clone();
    loop {
        let stands_on = |run: &&Run| {
            let mut upstreams = run.upstreams.iter();
            upstreams.any(|upstream| all.contains(&upstream.stack))
        };
        let next = runs.iter().filter(|run| !all.contains(&run.stack));
        let found: Vec<StackName> = next
            .filter(stands_on)
            .map(|run| run.stack.clone())
            .collect();
        if found.is_empty() {
            return all;
        }
        all.extend(found);
    }
}

fn skipped_because_of(run: &Run) -> Option<&StackName> {
    match &run.state {
        RunState::Finished {
            outcome:
                Outcome::Skipped {
                    because: SkipReason::UpstreamFailed { by, .. },
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
