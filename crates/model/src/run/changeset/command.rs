//! How a person's command changes a change set: the resulting steps, or why the command is not allowed now.

use super::next::{is_held, stage_held};
use super::{ChangeSet, DecisionContext, SetEvent, Status, Transition, advance};
use crate::base::actor::Actor;
use crate::base::error::{ErrorKind, Explain, NextStep, command};
use crate::base::ids::ChangeSetId;
use crate::run::approval::{self, MissingApproval, missing_approvals};
use crate::run::hold::Hold;
use crate::run::{Run, RunEvent, RunState, SkipReason};

/// A person's command for a change set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserCommand {
    /// Apply the plans.
    Confirm { by: Actor },
    /// Discard the plans. Only possible while nothing has been applied.
    Discard { by: Actor, reason: Option<String> },
    /// Forbid it.
    Reject { by: Actor, reason: String },
    /// Start no further run.
    Interrupt { by: Actor },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserCommandError {
    #[error("change set `{set}` may not be confirmed yet")]
    Owes {
        set: ChangeSetId,
        missing: Vec<MissingApproval>,
    },
    #[error("change set `{set}` may not be confirmed now: {}", hold.words())]
    Held { set: ChangeSetId, hold: Box<Hold> },
    #[error("nothing was changed: change set `{set}` is {} and cannot be {}", refusal.status, refusal.event)]
    Refused {
        set: ChangeSetId,
        refusal: super::InvalidSetEvent,
    },
}

impl Explain for UserCommandError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Refused
    }

    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::Owes { .. } => Vec::new(),
            Self::Held { hold, .. } => vec![hold.release_step()],
            Self::Refused { set, .. } => {
                vec![command(format!("run show {set}"), "shows its history")]
            }
        }
    }
}

pub fn apply_command(
    set: &ChangeSet,
    runs: &[Run],
    around: &DecisionContext<'_>,
    say: UserCommand,
) -> Result<Vec<Transition>, UserCommandError> {
    let mut steps = Vec::new();
    let event = match say {
        UserCommand::Confirm { by } => {
            steps = confirm(set, runs, around)?;
            SetEvent::Confirmed { by: Some(by) }
        }
        UserCommand::Discard { by, reason } => {
            steps.extend(skip_open(runs, &SkipReason::NotConfirmed));
            SetEvent::Discarded {
                by: Some(by),
                reason,
            }
        }
        UserCommand::Reject { by, reason } => {
            steps.extend(skip_open(runs, &SkipReason::NotConfirmed));
            SetEvent::Rejected { by, reason }
        }
        // Interrupting a change set that is over has no effect.
        UserCommand::Interrupt { .. } if set.status.is_over() => return Ok(Vec::new()),
        UserCommand::Interrupt { by } => SetEvent::Interrupted { by: Some(by) },
    };
    let refused = |refusal| UserCommandError::Refused {
        set: set.id,
        refusal,
    };
    advance(&set.status, &event).map_err(refused)?;
    steps.push(Transition::Move(event));
    Ok(steps)
}

/// Confirms everything that can continue. Runs that need an approval of their own stay.
fn confirm(
    set: &ChangeSet,
    runs: &[Run],
    around: &DecisionContext<'_>,
) -> Result<Vec<Transition>, UserCommandError> {
    if set.status != Status::AwaitingConfirm {
        return Ok(Vec::new()); // `advance` reports the reason
    }
    let missing = missing_approvals(set, runs, around.approvals, around.now);
    let ready: Vec<&Run> = runs
        .iter()
        .filter(|run| matches!(run.state, RunState::Planned { .. }))
        .collect();
    let free: Vec<&Run> = ready
        .iter()
        .copied()
        .filter(|run| approval::is_free(&missing, run))
        .collect();
    // An applied run whose stages are held waits for the hold, not for a confirmation.
    let goes_on = |run: &&Run| matches!(run.state, RunState::Applied { .. });
    let held = runs
        .iter()
        .filter(goes_on)
        .map(|run| stage_held(around, run));
    if ready.is_empty()
        && let Some(held) = held.collect::<Option<Vec<_>>>()
        && let Some(hold) = held.first()
    {
        return Err(UserCommandError::Held {
            set: set.id,
            hold: Box::new((*hold).clone()),
        });
    }
    let may_start = free.iter().any(|run| is_held(around, &run.stack).is_none());
    if !ready.is_empty() && !may_start {
        let hold = free.iter().find_map(|run| is_held(around, &run.stack));
        return Err(match hold {
            Some(hold) => UserCommandError::Held {
                set: set.id,
                hold: Box::new(hold.clone()),
            },
            None => UserCommandError::Owes {
                set: set.id,
                missing,
            },
        });
    }
    Ok(free
        .iter()
        .map(|run| Transition::Record(run.id, Box::new(RunEvent::Confirmed)))
        .collect())
}

/// Skips the runs that have not started.
pub(super) fn skip_open<'a>(
    runs: &'a [Run],
    because: &'a SkipReason,
) -> impl Iterator<Item = Transition> + use<'a> {
    runs.iter()
        .filter(|run| !run.state.is_finished() && !run.state.is_running())
        .map(|run| {
            let because = because.clone();
            Transition::Record(run.id, Box::new(RunEvent::Skipped { because }))
        })
}
