//! How an event changes a run. Pure: the caller stores the new state first, then acts.

use jiff::Timestamp;

use super::{AwaitedOutputs, Outcome, PlanRecord, Preview, RunEvent, RunProblem, RunState, Stage};
use crate::policy::{PolicyPhase, Remark};
use crate::run::import_proposal::UnrecordedResources;

/// The event is not possible in the current state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a run that is {state} cannot process the event `{event}`")]
pub struct InvalidRunEvent {
    state: &'static str,
    event: &'static str,
}

/// A stage that lost this many runners is not started again automatically.
const MOST_LOST: u8 = 3;

/// The state after an event. Combinations that the functions below do not list are impossible.
pub fn advance(
    state: &RunState,
    event: RunEvent,
    now: Timestamp,
) -> Result<RunState, InvalidRunEvent> {
    let refusal = InvalidRunEvent {
        state: state.word(),
        event: event.word(),
    };
    let next = match event {
        RunEvent::CancelAsked { .. } if !state.is_finished() => Some(state.clone()),
        RunEvent::Reopened { moved: true } if state.is_reached() => Some(RunState::Queued),
        event => match state {
            RunState::Queued => from_queued(event, now),
            RunState::Deferred { .. } => from_deferred(event, now),
            RunState::Planning { awaits, .. } => from_planning(awaits, event, now),
            RunState::Planned { plan, confirmed } => from_planned(plan, *confirmed, event, now),
            RunState::Applying { plan, since } => from_applying(plan, *since, event, now),
            RunState::Applied { .. } => from_applied(state, event, now),
            RunState::Completing { .. } => from_completing(state, event, now),
            RunState::Finished { outcome, .. } => from_finished(state, outcome, event),
        },
    };
    next.ok_or(refusal)
}

fn from_queued(event: RunEvent, now: Timestamp) -> Option<RunState> {
    Some(match event {
        RunEvent::PreviewStarted { on } => RunState::Planning {
            since: now,
            awaits: on,
        },
        RunEvent::Deferred { on } => {
            let preview = Preview::None;
            finished(Outcome::Deferred { on, preview }, now)
        }
        event => return from_deferred(event, now),
    })
}

/// A previewed run is planned like one that was not previewed.
fn from_deferred(event: RunEvent, now: Timestamp) -> Option<RunState> {
    Some(match event {
        RunEvent::PlanStarted => RunState::Planning {
            since: now,
            awaits: Vec::new(),
        },
        RunEvent::NothingConsumed { then } => reached(Outcome::Untouched, then, now, None),
        RunEvent::Skipped { because } => finished(Outcome::Skipped { because }, now),
        _ => return None,
    })
}

fn from_planning(awaits: &[AwaitedOutputs], event: RunEvent, now: Timestamp) -> Option<RunState> {
    Some(match event {
        // Without a readable state, missing values are discovered only here.
        RunEvent::Previewed {
            on,
            preview,
            review,
            ..
        } if !awaits.is_empty() || (review && !on.is_empty()) => {
            if review {
                finished(Outcome::Deferred { on, preview }, now)
            } else {
                RunState::Deferred { on, preview }
            }
        }
        RunEvent::NothingToChange { then, .. } if awaits.is_empty() => {
            reached(Outcome::Unchanged, then, now, None)
        }
        RunEvent::PlanFinished {
            plan,
            confirmed,
            review,
            ..
        } if awaits.is_empty() => {
            if review {
                finished(Outcome::Planned { plan }, now)
            } else {
                RunState::Planned { plan, confirmed }
            }
        }
        RunEvent::RunnerLost { .. } => RunState::Queued, // planning holds nothing, so it starts again
        RunEvent::Failed { problem } => finished(Outcome::Failed { problem }, now),
        _ => return None,
    })
}

fn from_planned(
    plan: &PlanRecord,
    confirmed: bool,
    event: RunEvent,
    now: Timestamp,
) -> Option<RunState> {
    Some(match event {
        RunEvent::PolicyAsked { at, said, .. } => RunState::Planned {
            plan: plan.heard(at, said),
            confirmed,
        },
        RunEvent::Confirmed => RunState::Planned {
            plan: plan.clone(),
            confirmed: true,
        },
        RunEvent::ApplyStarted if confirmed => RunState::Applying {
            plan: plan.clone(),
            since: now,
        },
        RunEvent::Skipped { because } => finished(Outcome::Skipped { because }, now),
        _ => return None,
    })
}

fn from_applying(
    plan: &PlanRecord,
    since: Timestamp,
    event: RunEvent,
    now: Timestamp,
) -> Option<RunState> {
    Some(match event {
        RunEvent::PolicyAsked { at, said, .. } => RunState::Applying {
            plan: plan.heard(at, said),
            since,
        },
        RunEvent::ApplyPutOff { said } => RunState::Planned {
            plan: plan.heard(PolicyPhase::Approval, said),
            confirmed: true,
        },
        // The seal is checked before anything changes, so a voided plan is simply made again.
        RunEvent::PlanVoided { .. } => RunState::Queued,
        RunEvent::ApplyFinished {
            counts,
            serial,
            then,
            ..
        } => {
            let outcome = Outcome::Applied {
                counts,
                serial,
                outputs: plan.outputs.clone(),
                warnings: plan.warnings(),
            };
            reached(outcome, then, now, None)
        }
        // Never repeated automatically: the next step is a new plan.
        RunEvent::RunnerLost { kept, left } => finished(Outcome::Unknown { kept, left }, now),
        RunEvent::Failed { mut problem } => {
            let new = plan.warnings().into_iter();
            let new = new.filter(|it| !problem.policy.warnings.contains(it));
            let new: Vec<Remark> = new.collect();
            problem.policy.warnings.extend(new);
            finished(Outcome::Failed { problem }, now)
        }
        _ => return None,
    })
}

fn from_applied(state: &RunState, event: RunEvent, now: Timestamp) -> Option<RunState> {
    let RunState::Applied {
        outcome,
        next,
        lost,
        published,
    } = state
    else {
        return None;
    };
    Some(match event {
        RunEvent::StageStarted { part } if *next == part => RunState::Completing {
            part,
            outcome: outcome.clone(),
            since: now,
            lost: *lost,
            published: *published,
        },
        RunEvent::Skipped { because } => RunState::Finished {
            outcome: if let Outcome::Applied { .. } = **outcome {
                not_done(outcome, RunProblem::new(*next, because.words()))
            } else {
                Outcome::Skipped { because }
            },
            at: now,
            published: *published,
        },
        _ => return None,
    })
}

fn from_completing(state: &RunState, event: RunEvent, now: Timestamp) -> Option<RunState> {
    let RunState::Completing {
        part,
        outcome,
        lost,
        published,
        ..
    } = state
    else {
        return None;
    };
    let stopped = |problem| RunState::Finished {
        outcome: not_done(outcome, problem),
        at: now,
        published: *published,
    };
    Some(match event {
        RunEvent::StageFinished {
            part: ended,
            then,
            changed,
            ..
        } if *part == ended => {
            let published = match part {
                // A lost runner may have pushed the facts already.
                Stage::Publishing if *lost > 0 => changed.filter(|changed| *changed),
                Stage::Publishing => changed,
                _ => *published,
            };
            reached((**outcome).clone(), then, now, published)
        }
        RunEvent::Failed { problem } => stopped(RunProblem {
            stage: *part,
            ..problem
        }),
        RunEvent::RunnerLost { .. } if *lost + 1 >= MOST_LOST => stopped(RunProblem::new(
            *part,
            "its runner was lost again and again",
        )),
        // These stages are idempotent.
        RunEvent::RunnerLost { .. } => RunState::Applied {
            outcome: outcome.clone(),
            next: *part,
            lost: lost + 1,
            published: *published,
        },
        _ => return None,
    })
}

fn from_finished(state: &RunState, outcome: &Outcome, event: RunEvent) -> Option<RunState> {
    match (outcome, event) {
        (Outcome::NotDone { done, problem }, RunEvent::Reopened { moved: false }) => {
            Some(RunState::Applied {
                outcome: done.clone(),
                next: problem.stage,
                lost: 0,
                published: state.published(),
            })
        }
        (
            Outcome::Failed { .. } | Outcome::Skipped { .. } | Outcome::Unknown { .. },
            RunEvent::Reopened { .. },
        ) => Some(RunState::Queued),
        _ => None,
    }
}

/// Ends a run that published nothing.
fn finished(outcome: Outcome, at: Timestamp) -> RunState {
    RunState::Finished {
        outcome,
        at,
        published: None,
    }
}

fn not_done(done: &Outcome, problem: RunProblem) -> Outcome {
    Outcome::NotDone {
        done: Box::new(done.clone()),
        problem,
    }
}

/// Ends the run, unless another stage follows.
fn reached(
    outcome: Outcome,
    then: Option<Stage>,
    at: Timestamp,
    published: Option<bool>,
) -> RunState {
    match then {
        Some(next) => RunState::Applied {
            outcome: Box::new(outcome),
            next,
            lost: 0,
            published,
        },
        None => RunState::Finished {
            outcome,
            at,
            published,
        },
    }
}

impl RunEvent {
    /// The plan or preview that the event carries.
    pub fn plan_mut(&mut self) -> Option<&mut PlanRecord> {
        match self {
            Self::PlanFinished { plan, .. } => Some(plan),
            Self::Previewed {
                preview: Preview::Planned { plan },
                ..
            } => Some(plan),
            _ => None,
        }
    }

    /// What an engine changed that no state records.
    pub fn left(&self) -> Option<&UnrecordedResources> {
        match self {
            Self::Failed { problem } => problem.left.as_deref(),
            Self::RunnerLost { left, .. } => left.as_deref(),
            _ => None,
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::PlanStarted => "plan started",
            Self::PreviewStarted { .. } => "preview started",
            Self::Previewed { .. } => "previewed",
            Self::NothingToChange { .. } => "nothing to change",
            Self::NothingConsumed { .. } => "nothing consumed",
            Self::PlanFinished { .. } => "plan finished",
            Self::Deferred { .. } => "deferred",
            Self::PolicyAsked { .. } => "policy asked",
            Self::Confirmed => "confirmed",
            Self::ApplyStarted => "apply started",
            Self::PlanVoided { .. } => "plan voided",
            Self::ApplyPutOff { .. } => "apply put off",
            Self::ApplyFinished { .. } => "apply finished",
            Self::StageStarted { .. } => "stage started",
            Self::StageFinished { .. } => "stage finished",
            Self::Failed { .. } => "failed",
            Self::Skipped { .. } => "skipped",
            Self::RunnerLost { .. } => "runner lost",
            Self::CancelAsked { .. } => "cancel asked",
            Self::Reopened { moved: false } => "reopened",
            Self::Reopened { moved: true } => "reopened, moved",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(state: RunState, events: Vec<RunEvent>) -> RunState {
        let step = |state: RunState, event| advance(&state, event, Timestamp::UNIX_EPOCH).unwrap();
        events.into_iter().fold(state, step)
    }

    fn published(changed: bool) -> RunEvent {
        RunEvent::StageFinished {
            part: Stage::Publishing,
            report: serde_json::Value::Null,
            changed: Some(changed),
            then: None,
        }
    }

    /// A lost runner may have pushed facts, so the next attempt does not report them as unchanged.
    #[test]
    fn facts_are_unchanged_only_if_nobody_can_have_changed_them() {
        let started = || RunEvent::StageStarted {
            part: Stage::Publishing,
        };
        let lost = RunEvent::RunnerLost {
            kept: None,
            left: None,
        };
        let applied = || {
            reached(
                Outcome::Unchanged,
                Some(Stage::Publishing),
                Timestamp::UNIX_EPOCH,
                None,
            )
        };
        let said = |events| after(applied(), events).published();
        assert_eq!(said(vec![started(), published(false)]), Some(false));
        assert_eq!(said(vec![started(), published(true)]), Some(true));
        let again = vec![started(), lost, started(), published(false)];
        assert_eq!(said(again), None);
    }
}
