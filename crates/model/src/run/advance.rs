//! What one event does to a run. Touches nothing: the caller stores the new state first and acts after.

use jiff::Timestamp;

use super::{Outcome, PlanRecord, Preview, Problem, RunEvent, RunState, Stage};
use crate::import_proposal::Left;
use crate::policy::{Point, Remark};

/// An event that cannot happen in the state the run is in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a run that is {state} takes no `{event}`")]
pub struct Refusal {
    state: &'static str,
    event: &'static str,
}

/// A stage that took this many runners with it is not begun again by itself.
const MOST_LOST: u8 = 3;

pub fn advance(state: &RunState, event: RunEvent, now: Timestamp) -> Result<RunState, Refusal> {
    use {RunEvent as E, RunState as S};
    let published = state.published();
    let finish = |outcome| S::Finished {
        outcome,
        at: now,
        published,
    };
    Ok(match (state, event) {
        (S::Queued | S::Deferred { .. }, E::PlanStarted) => S::Planning {
            since: now,
            awaits: Vec::new(),
        },
        (S::Queued, E::PreviewStarted { on }) => S::Planning {
            since: now,
            awaits: on,
        },
        (S::Queued | S::Deferred { .. }, E::NothingConsumed { then }) => {
            reached(Outcome::Untouched, then, now, None)
        }
        (
            S::Planning { awaits, .. },
            E::Previewed {
                on,
                preview,
                review,
                ..
            },
            // Where no state is read, it turns out that values are missing.
        ) if !awaits.is_empty() || (review && !on.is_empty()) => {
            if review {
                finish(Outcome::Deferred { on, preview })
            } else {
                S::Deferred { on, preview }
            }
        }
        (S::Queued, E::Deferred { on }) => finish(Outcome::Deferred {
            on,
            preview: Preview::None,
        }),
        (S::Planning { awaits, .. }, E::NothingToChange { then, .. }) if awaits.is_empty() => {
            reached(Outcome::Unchanged, then, now, None)
        }
        (
            S::Planning { awaits, .. },
            E::PlanFinished {
                plan,
                confirmed,
                review,
                ..
            },
        ) if awaits.is_empty() => {
            if review {
                finish(Outcome::Planned { plan })
            } else {
                S::Planned { plan, confirmed }
            }
        }
        (S::Planning { .. }, E::RunnerLost { .. }) => S::Queued, // a plan holds nothing: it starts again
        (S::Planned { plan, confirmed }, E::PolicyAsked { at, said, .. }) => S::Planned {
            plan: plan.heard(at, said),
            confirmed: *confirmed,
        },
        (S::Applying { plan, since }, E::PolicyAsked { at, said, .. }) => S::Applying {
            plan: plan.heard(at, said),
            since: *since,
        },
        (S::Planned { plan, .. }, E::Confirmed) => S::Planned {
            plan: plan.clone(),
            confirmed: true,
        },
        (
            S::Planned {
                plan,
                confirmed: true,
            },
            E::ApplyStarted,
        ) => S::Applying {
            plan: plan.clone(),
            since: now,
        },
        (S::Applying { plan, .. }, E::ApplyPutOff { said }) => S::Planned {
            plan: plan.heard(Point::Approval, said),
            confirmed: true,
        },
        // The seal is checked before anything is changed, so a voided plan is simply made again.
        (S::Applying { .. }, E::PlanVoided { .. }) => S::Queued,
        (
            S::Applying { plan, .. },
            E::ApplyFinished {
                counts,
                serial,
                then,
                ..
            },
        ) => {
            let outcome = Outcome::Applied {
                counts,
                serial,
                outputs: plan.outputs.clone(),
                warnings: plan.warnings(),
            };
            reached(outcome, then, now, None)
        }
        (
            S::Applied {
                outcome,
                next,
                lost,
                ..
            },
            E::StageStarted { part },
        ) if *next == part => S::Completing {
            part,
            outcome: outcome.clone(),
            since: now,
            lost: *lost,
            published,
        },
        (
            S::Completing {
                part,
                outcome,
                lost,
                ..
            },
            E::StageFinished {
                part: ended,
                then,
                changed,
                ..
            },
        ) if *part == ended => {
            let published = match part {
                // A runner that was lost may have pushed them.
                Stage::Publishing if *lost > 0 => changed.filter(|changed| *changed),
                Stage::Publishing => changed,
                _ => published,
            };
            reached((**outcome).clone(), then, now, published)
        }
        (S::Completing { part, outcome, .. }, E::Failed { problem }) => finish(Outcome::NotDone {
            done: outcome.clone(),
            problem: Problem {
                stage: *part,
                ..problem
            },
        }),
        (
            S::Completing {
                part,
                outcome,
                lost,
                ..
            },
            E::RunnerLost { .. },
        ) if *lost + 1 >= MOST_LOST => finish(Outcome::NotDone {
            done: outcome.clone(),
            problem: Problem::new(*part, "its runner was lost again and again"),
        }),
        // What these stages do, they do once however often they are carried out.
        (
            S::Completing {
                part,
                outcome,
                lost,
                ..
            },
            E::RunnerLost { .. },
        ) => S::Applied {
            outcome: outcome.clone(),
            next: *part,
            lost: lost + 1,
            published,
        },
        (S::Applied { outcome, next, .. }, E::Skipped { because }) => {
            if let Outcome::Applied { .. } = **outcome {
                finish(Outcome::NotDone {
                    done: outcome.clone(),
                    problem: Problem::new(*next, because.words()),
                })
            } else {
                finish(Outcome::Skipped { because })
            }
        }
        (
            S::Finished {
                outcome: Outcome::NotDone { done, problem },
                ..
            },
            E::Reopened { moved: false },
        ) => S::Applied {
            outcome: done.clone(),
            next: problem.stage,
            lost: 0,
            published,
        },
        // Never repeated by itself: the way on is a fresh plan.
        (S::Applying { .. }, E::RunnerLost { kept, left }) => {
            finish(Outcome::Unknown { kept, left })
        }
        (state, E::CancelAsked { .. }) if !state.is_finished() => state.clone(),
        (S::Applying { plan, .. }, E::Failed { mut problem }) => {
            let new = plan.warnings().into_iter();
            let new = new.filter(|it| !problem.policy.warnings.contains(it));
            let new: Vec<Remark> = new.collect();
            problem.policy.warnings.extend(new);
            finish(Outcome::Failed { problem })
        }
        (S::Planning { .. }, E::Failed { problem }) => finish(Outcome::Failed { problem }),
        (S::Queued | S::Deferred { .. } | S::Planned { .. }, E::Skipped { because }) => {
            finish(Outcome::Skipped { because })
        }
        (
            S::Finished {
                outcome: Outcome::Failed { .. } | Outcome::Skipped { .. } | Outcome::Unknown { .. },
                ..
            },
            E::Reopened { .. },
        ) => S::Queued,
        (state, E::Reopened { moved: true }) if state.is_reached() => S::Queued,
        (state, event) => {
            return Err(Refusal {
                state: state.word(),
                event: event.word(),
            });
        }
    })
}

/// The end, unless a stage comes first.
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
    /// The plan that it brings, or the preview of one.
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

    /// What an engine left that no state knows.
    pub fn left(&self) -> Option<&Left> {
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

    /// What a runner pushed that was lost then is not called unchanged by the next.
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
