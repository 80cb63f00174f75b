//! Decides what a change set does next, from stored data only. The result does not depend on the process that computes
//! it.

use std::collections::BTreeMap;

use super::command::skip_open;
use super::{Action, ChangeSet, DecisionContext, SetEvent, Status};
use crate::base::ids::{RunId, StackName};
use crate::run::approval::{self, MissingApproval, missing_approvals};
use crate::run::hold::{Hold, HoldOn};
use crate::run::{AwaitedOutputs, Outcome, Run, RunEvent, RunState, SkipReason, Stage, Upstream};

/// One thing to commit. A `Start` is also a claim: the process that commits it starts the runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transition {
    StartPlan(RunId),
    /// Starts a preview: these values do not exist yet.
    StartPreview(RunId, Vec<AwaitedOutputs>),
    StartApply(RunId),
    /// A stage after the apply.
    StartStage(RunId, Stage),
    Record(RunId, Box<RunEvent>),
    Move(SetEvent),
}

/// Every step that is possible now without a person. The caller commits the steps and calls this again until it returns
/// none. The store assigns lanes, since all change sets share them.
pub fn next(set: &ChangeSet, runs: &[Run], around: &DecisionContext<'_>) -> Vec<Transition> {
    let board = DecisionState {
        set,
        runs,
        by_stack: runs.iter().map(|run| (&run.stack, run)).collect(),
        missing: missing_approvals(set, runs, around.approvals, around.now),
        around,
    };
    match set.status {
        Status::Planning | Status::Confirmed => board.steps(),
        Status::AwaitingConfirm => board.confirm_itself(),
        Status::Interrupting => board.wind_down(),
        Status::Waiting | Status::Finished | Status::Stopped { .. } | Status::Superseded { .. } => {
            Vec::new()
        }
    }
}

/// Whether no confirmation is missing. Every plan is confirmed, and runs that could not be planned yet are confirmed in
/// advance, by the requester or by the project.
pub fn is_said(set: &ChangeSet, runs: &[Run]) -> bool {
    let request = &set.request;
    runs.iter().all(|run| match run.state {
        RunState::Planned { confirmed, .. } => confirmed,
        RunState::Deferred { .. } => request.auto_approve || request.unasked.contains(&run.stack),
        RunState::Queued
        | RunState::Planning { .. }
        | RunState::Applying { .. }
        | RunState::Applied { .. }
        | RunState::Completing { .. }
        | RunState::Finished { .. } => true,
    })
}

/// The hold that prevents a stack from being applied.
pub(super) fn is_held<'a>(around: &DecisionContext<'a>, stack: &StackName) -> Option<&'a Hold> {
    around.holds.iter().find(|hold| {
        hold.is_active(around.now) && matches!(&hold.on, HoldOn::Stack(held) if held == stack)
    })
}

/// The hold that prevents a post-apply stage from starting.
pub fn stage_held<'a>(around: &DecisionContext<'a>, run: &Run) -> Option<&'a Hold> {
    match run.state {
        RunState::Applied {
            next: Stage::Publishing | Stage::Bootstrapping,
            ..
        } => is_held(around, &run.stack),
        RunState::Applied { .. }
        | RunState::Queued
        | RunState::Planning { .. }
        | RunState::Deferred { .. }
        | RunState::Planned { .. }
        | RunState::Applying { .. }
        | RunState::Completing { .. }
        | RunState::Finished { .. } => None,
    }
}

struct DecisionState<'a> {
    set: &'a ChangeSet,
    runs: &'a [Run],
    by_stack: BTreeMap<&'a StackName, &'a Run>,
    missing: Vec<MissingApproval>,
    around: &'a DecisionContext<'a>,
}

/// Whether and why a run cannot start.
enum Readiness {
    Open,
    Waits,
    UpstreamFailed(SkipReason),
    Deferred(Vec<AwaitedOutputs>),
    /// Nothing that it consumes has changed, so there is nothing to plan.
    Untouched,
}

impl DecisionState<'_> {
    fn steps(&self) -> Vec<Transition> {
        let mut steps = Vec::new();
        let running = self
            .runs
            .iter()
            .filter(|run| run.state.is_running())
            .count();
        let engines = self.runs.iter().filter(|run| run.state.uses_engine());
        let runs = self.set.request.runs_at_once();
        let mut places = runs.saturating_sub(engines.count());
        for run in self.runs {
            if let RunState::Applied { next, .. } = run.state
                && self.is_confirmed()
                && self.may_go_on(run)
            {
                steps.push(Transition::StartStage(run.id, next));
            }
        }
        // Applies first: they unblock dependents sooner than another plan does.
        for run in self.runs {
            if matches!(run.state, RunState::Planned { .. }) {
                match self.way_to_apply(run) {
                    Readiness::UpstreamFailed(because) => {
                        steps.push(Transition::Record(
                            run.id,
                            Box::new(RunEvent::Skipped { because }),
                        ));
                    }
                    Readiness::Open if self.is_confirmed() && self.may_start(run) && places > 0 => {
                        places -= 1;
                        steps.push(Transition::StartApply(run.id));
                    }
                    Readiness::Open
                    | Readiness::Waits
                    | Readiness::Deferred(_)
                    | Readiness::Untouched => {}
                }
            }
        }
        for run in self.runs.iter().filter(|run| is_unplanned(run)) {
            match self.way_to_plan(run) {
                Readiness::UpstreamFailed(because) => {
                    steps.push(Transition::Record(
                        run.id,
                        Box::new(RunEvent::Skipped { because }),
                    ));
                }
                Readiness::Deferred(on) if run.state == RunState::Queued && places > 0 => {
                    places -= 1;
                    steps.push(Transition::StartPreview(run.id, on));
                }
                Readiness::Untouched => {
                    let then = run.stages.first().copied();
                    let event = RunEvent::NothingConsumed { then };
                    steps.push(Transition::Record(run.id, Box::new(event)));
                }
                Readiness::Open if places > 0 => {
                    places -= 1;
                    steps.push(Transition::StartPlan(run.id));
                }
                Readiness::Open | Readiness::Waits | Readiness::Deferred(_) => {}
            }
        }
        if steps.is_empty() && running == 0 {
            steps.push(Transition::Move(self.rest()));
        }
        steps
    }

    /// After an interrupt: skips the runs that have not started, and ends when the last engine has ended.
    fn wind_down(&self) -> Vec<Transition> {
        let mut steps: Vec<Transition> = skip_open(self.runs, &SkipReason::Interrupted).collect();
        if steps.is_empty() && !self.runs.iter().any(|run| run.state.is_running()) {
            steps.push(Transition::Move(SetEvent::WoundDown));
        }
        steps
    }

    /// The event with which the change set comes to rest when nothing runs and nothing can start.
    fn rest(&self) -> SetEvent {
        if !self.runs.iter().all(|run| run.state.is_finished()) {
            return SetEvent::CameToRest;
        }
        let (mut failed, mut not_done, mut unknown, mut skipped) = (0, 0, 0, 0);
        for run in self.runs {
            match &run.state {
                RunState::Finished { outcome, .. } => match outcome {
                    Outcome::Failed { .. } => failed += 1,
                    Outcome::NotDone { .. } => not_done += 1,
                    Outcome::Unknown { .. } => unknown += 1,
                    Outcome::Skipped { .. } => skipped += 1,
                    Outcome::Planned { .. }
                    | Outcome::Deferred { .. }
                    | Outcome::Unchanged
                    | Outcome::Untouched
                    | Outcome::Applied { .. } => {}
                },
                RunState::Queued
                | RunState::Planning { .. }
                | RunState::Deferred { .. }
                | RunState::Planned { .. }
                | RunState::Applying { .. }
                | RunState::Applied { .. }
                | RunState::Completing { .. } => {}
            }
        }
        let counts = [
            (failed, "failed"),
            (not_done, self.set.request.action.not_done()),
            (unknown, "unknown"),
            (skipped, "skipped"),
        ];
        let words: Vec<String> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{count} {word}"))
            .collect();
        if words.is_empty() {
            SetEvent::Completed
        } else {
            SetEvent::Failed {
                why: words.join(", "),
            }
        }
    }

    /// Continues without a person if every plan is confirmed and at least one may start.
    fn confirm_itself(&self) -> Vec<Transition> {
        let mut ready = self
            .runs
            .iter()
            .filter(|run| matches!(run.state, RunState::Planned { .. }))
            .peekable();
        // Facts and gates of unchanged stacks need no confirmation.
        let is_applied =
            |run: &Run| matches!(run.state, RunState::Applied { .. }) && self.may_go_on(run);
        let only_stages = ready.peek().is_none() && self.runs.iter().any(is_applied);
        let may_start = ready
            .any(|run| self.may_start(run) && matches!(self.way_to_apply(run), Readiness::Open));
        let may_go_on = is_said(self.set, self.runs) && (only_stages || may_start);
        if may_go_on {
            vec![Transition::Move(SetEvent::Confirmed { by: None })]
        } else {
            Vec::new()
        }
    }

    /// Whether the plan is confirmed and approved, and its stack is not held.
    fn may_start(&self, run: &Run) -> bool {
        let is_said = matches!(
            run.state,
            RunState::Planned {
                confirmed: true,
                ..
            }
        );
        is_said
            && approval::is_free(&self.missing, run)
            && is_held(self.around, &run.stack).is_none()
    }

    /// Whether the next stage may start: a hold blocks stages that write, but not gates.
    fn may_go_on(&self, run: &Run) -> bool {
        stage_held(self.around, run).is_none()
    }

    fn is_confirmed(&self) -> bool {
        self.set.status == Status::Confirmed
    }

    fn way_to_apply(&self, run: &Run) -> Readiness {
        for (need, upstream) in self.upstreams(run) {
            match upstream.state.outcome_for(need.wait) {
                Some(outcome) if outcome.is_good() => {}
                Some(outcome) => return skipped_because_of(&upstream.stack, outcome),
                None => return Readiness::Waits,
            }
        }
        Readiness::Open
    }

    fn way_to_plan(&self, run: &Run) -> Readiness {
        // A destroy runs in reverse order, and its plan takes no values from the runs that it waits for.
        if self.set.request.action == Action::Destroy {
            return Readiness::Open;
        }
        if self.is_untouched(run) {
            return Readiness::Untouched;
        }
        if self.is_confirmed() {
            return self.way_to_apply(run);
        }
        let mut awaited = Vec::new();
        let mut waits = false;
        for need in &run.upstreams {
            let Some(upstream) = self.by_stack.get(&need.stack) else {
                continue;
            };
            let review = self.set.request.action == Action::Plan;
            if let Some(outcome) = upstream.state.outcome_for(need.wait) {
                match outcome {
                    Outcome::Unchanged | Outcome::Untouched | Outcome::Applied { .. } => {}
                    Outcome::Planned { plan } => {
                        let outputs: Vec<String> =
                            need.outputs.intersection(&plan.outputs).cloned().collect();
                        if !outputs.is_empty() {
                            awaited.push(AwaitedOutputs {
                                stack: need.stack.clone(),
                                outputs,
                            });
                        }
                    }
                    Outcome::Deferred { preview, .. } => {
                        let outputs = preview.changing(&need.outputs);
                        if !outputs.is_empty() {
                            awaited.push(AwaitedOutputs {
                                stack: need.stack.clone(),
                                outputs: outputs.into_iter().cloned().collect(),
                            });
                        }
                    }
                    Outcome::Failed { .. }
                    | Outcome::NotDone { .. }
                    | Outcome::Skipped { .. }
                    | Outcome::Unknown { .. } => {
                        return skipped_because_of(&upstream.stack, outcome);
                    }
                }
                continue;
            }
            match &upstream.state {
                // An `order` upstream provides no value, so a review does not wait for it.
                RunState::Queued
                | RunState::Planning { .. }
                | RunState::Deferred { .. }
                | RunState::Planned { .. }
                    if review && need.outputs.is_empty() && !run.is_settled => {}
                RunState::Queued
                | RunState::Planning { .. }
                | RunState::Applying { .. }
                | RunState::Completing { .. }
                | RunState::Finished { .. } => waits = true,
                // It changes nothing any more and only waits for its turn.
                RunState::Applied { .. } => {}
                RunState::Deferred { preview, .. } => awaited.push(AwaitedOutputs {
                    stack: need.stack.clone(),
                    outputs: preview
                        .changing(&need.outputs)
                        .into_iter()
                        .cloned()
                        .collect(),
                }),
                RunState::Planned { plan, .. } => awaited.push(AwaitedOutputs {
                    stack: need.stack.clone(),
                    outputs: need.outputs.intersection(&plan.outputs).cloned().collect(),
                }),
            }
        }
        // A preview uses every value that can be known.
        match (waits, awaited.is_empty()) {
            (true, _) => Readiness::Waits,
            (false, true) => Readiness::Open,
            (false, false) => Readiness::Deferred(awaited),
        }
    }

    /// Whether the stack is unchanged since its last successful run, and no upstream in this change set changed
    /// anything that it consumes. A stack without an upstream here was requested directly and always runs.
    fn is_untouched(&self, run: &Run) -> bool {
        let mut upstreams = 0;
        for need in &run.upstreams {
            let Some(upstream) = self.by_stack.get(&need.stack) else {
                continue;
            };
            upstreams += 1;
            let changed = match &upstream.state {
                RunState::Finished { outcome, .. } => match outcome {
                    Outcome::Unchanged | Outcome::Untouched => continue,
                    Outcome::Applied { outputs, .. } => outputs,
                    Outcome::Planned { plan } => &plan.outputs,
                    Outcome::Deferred { .. }
                    | Outcome::Failed { .. }
                    | Outcome::NotDone { .. }
                    | Outcome::Skipped { .. }
                    | Outcome::Unknown { .. } => return false,
                },
                RunState::Applied { outcome, .. } => match &**outcome {
                    Outcome::Unchanged | Outcome::Untouched => continue,
                    _ => return false,
                },
                RunState::Planned { plan, .. } => &plan.outputs,
                // A deferred run may turn out differently from its preview.
                RunState::Queued
                | RunState::Planning { .. }
                | RunState::Deferred { .. }
                | RunState::Applying { .. }
                | RunState::Completing { .. } => return false,
            };
            if need.outputs.is_empty() || !need.outputs.is_disjoint(changed) {
                return false;
            }
        }
        run.is_settled && upstreams > 0
    }

    fn upstreams<'r>(&self, run: &'r Run) -> impl Iterator<Item = (&'r Upstream, &Run)> {
        run.upstreams
            .iter()
            .filter_map(|need| Some((need, self.by_stack.get(&need.stack).copied()?)))
    }
}

/// Whether it has no plan that can be applied, and none is being made.
fn is_unplanned(run: &Run) -> bool {
    match run.state {
        RunState::Queued | RunState::Deferred { .. } => true,
        RunState::Planning { .. }
        | RunState::Planned { .. }
        | RunState::Applying { .. }
        | RunState::Applied { .. }
        | RunState::Completing { .. }
        | RunState::Finished { .. } => false,
    }
}

fn skipped_because_of(nearest: &StackName, outcome: &Outcome) -> Readiness {
    let (by, through) = match outcome {
        Outcome::Skipped {
            because: SkipReason::UpstreamFailed { by, .. },
        } => (by.clone(), Some(nearest.clone())),
        Outcome::Skipped { .. }
        | Outcome::Failed { .. }
        | Outcome::NotDone { .. }
        | Outcome::Unknown { .. }
        | Outcome::Planned { .. }
        | Outcome::Deferred { .. }
        | Outcome::Unchanged
        | Outcome::Untouched
        | Outcome::Applied { .. } => (nearest.clone(), None),
    };
    Readiness::UpstreamFailed(SkipReason::UpstreamFailed { by, through })
}

#[cfg(test)]
mod tests;
