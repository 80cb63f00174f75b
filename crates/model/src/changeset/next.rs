//! What a change set does next: a decision over what is stored, taken the same way by whoever looks.

use std::collections::BTreeMap;

use super::{Action, ChangeSet, Status};
use crate::ids::{RunId, StackName};
use crate::run::{Awaited, Outcome, Run, RunEvent, RunState, Skip};

/// One thing to commit. A `Start` is also a claim: whoever commits it starts the runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    StartPlan(RunId),
    /// A plan to look at: these values do not exist yet.
    StartPreview(RunId, Vec<Awaited>),
    StartApply(RunId),
    Record(RunId, RunEvent),
    Become(Status),
}

/// Everything that can happen now without anybody's word. The caller commits the steps and asks again
/// until there are none.
pub fn next(set: &ChangeSet, runs: &[Run]) -> Vec<Step> {
    let board = Board {
        set,
        runs,
        by_stack: runs.iter().map(|run| (&run.stack, run)).collect(),
    };
    match set.status {
        Status::Planning | Status::Confirmed => board.steps(),
        Status::Interrupting => board.wind_down(),
        Status::AwaitingConfirm | Status::Waiting | Status::Finished | Status::Stopped { .. } => {
            Vec::new()
        }
    }
}

struct Board<'a> {
    set: &'a ChangeSet,
    runs: &'a [Run],
    by_stack: BTreeMap<&'a StackName, &'a Run>,
}

/// What stands between a run and its start.
enum Way {
    Open,
    Waits,
    Poisoned(Skip),
    Deferred(Vec<Awaited>),
}

impl Board<'_> {
    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let running = self
            .runs
            .iter()
            .filter(|run| run.state.is_running())
            .count();
        let mut places = self.set.request.parallelism.saturating_sub(running);
        // Applies first: a place used for them frees dependents sooner than another plan does.
        for run in self.runs {
            if let RunState::Planned { confirmed, .. } = run.state {
                match self.way_to_apply(run) {
                    Way::Poisoned(because) => {
                        steps.push(Step::Record(run.id, RunEvent::Skipped { because }));
                    }
                    Way::Open if confirmed && self.is_confirmed() && places > 0 => {
                        places -= 1;
                        steps.push(Step::StartApply(run.id));
                    }
                    Way::Open | Way::Waits | Way::Deferred(_) => {}
                }
            }
        }
        for run in self.runs.iter().filter(|run| is_unplanned(run)) {
            match self.way_to_plan(run) {
                Way::Poisoned(because) => {
                    steps.push(Step::Record(run.id, RunEvent::Skipped { because }));
                }
                Way::Deferred(on) if run.state == RunState::Queued && places > 0 => {
                    places -= 1;
                    steps.push(Step::StartPreview(run.id, on));
                }
                Way::Open if places > 0 => {
                    places -= 1;
                    steps.push(Step::StartPlan(run.id));
                }
                Way::Open | Way::Waits | Way::Deferred(_) => {}
            }
        }
        if steps.is_empty() && running == 0 {
            steps.push(Step::Become(self.rest()));
        }
        steps
    }

    /// After an interrupt: what has not begun does not begin; the end comes when the last engine ended.
    fn wind_down(&self) -> Vec<Step> {
        let skip = |run: &Run| {
            let because = Skip::Interrupted;
            Step::Record(run.id, RunEvent::Skipped { because })
        };
        let mut steps: Vec<Step> = self
            .runs
            .iter()
            .filter(|run| !run.state.is_running() && !run.state.is_finished())
            .map(skip)
            .collect();
        if steps.is_empty() && !self.runs.iter().any(|run| run.state.is_running()) {
            steps.push(Step::Become(Status::Stopped {
                why: "interrupted".to_owned(),
            }));
        }
        steps
    }

    /// Where the change set comes to rest when nothing runs and nothing can start.
    fn rest(&self) -> Status {
        if self.runs.iter().all(|run| run.state.is_finished()) {
            Status::Finished
        } else {
            Status::AwaitingConfirm
        }
    }

    fn is_confirmed(&self) -> bool {
        self.set.status == Status::Confirmed
    }

    fn way_to_apply(&self, run: &Run) -> Way {
        for upstream in self.upstreams(run) {
            match &upstream.state {
                RunState::Finished { outcome, .. } if outcome.is_good() => {}
                RunState::Finished { outcome, .. } => return poisoned(&upstream.stack, outcome),
                RunState::Queued
                | RunState::Planning { .. }
                | RunState::Deferred { .. }
                | RunState::Planned { .. }
                | RunState::Applying { .. } => return Way::Waits,
            }
        }
        Way::Open
    }

    fn way_to_plan(&self, run: &Run) -> Way {
        // A destroy goes backwards: whom it waits for takes nothing from its plan.
        if self.set.request.action == Action::Destroy {
            return Way::Open;
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
            match &upstream.state {
                RunState::Finished { outcome, .. } => match outcome {
                    Outcome::Unchanged | Outcome::Applied { .. } => {}
                    Outcome::Planned { plan } => {
                        let outputs: Vec<String> =
                            need.outputs.intersection(&plan.outputs).cloned().collect();
                        if !outputs.is_empty() {
                            awaited.push(Awaited {
                                stack: need.stack.clone(),
                                outputs,
                            });
                        }
                    }
                    Outcome::Deferred { preview, .. } => {
                        let outputs = preview.changing(&need.outputs);
                        if !outputs.is_empty() {
                            awaited.push(Awaited {
                                stack: need.stack.clone(),
                                outputs: outputs.into_iter().cloned().collect(),
                            });
                        }
                    }
                    Outcome::Failed { .. } | Outcome::Skipped { .. } | Outcome::Unknown { .. } => {
                        return poisoned(&upstream.stack, outcome);
                    }
                },
                // An `order` upstream gives no value: a review need not wait for what it will do.
                RunState::Queued
                | RunState::Planning { .. }
                | RunState::Deferred { .. }
                | RunState::Planned { .. }
                    if review && need.outputs.is_empty() => {}
                RunState::Queued | RunState::Planning { .. } | RunState::Applying { .. } => {
                    waits = true;
                }
                RunState::Deferred { preview, .. } => awaited.push(Awaited {
                    stack: need.stack.clone(),
                    outputs: preview
                        .changing(&need.outputs)
                        .into_iter()
                        .cloned()
                        .collect(),
                }),
                RunState::Planned { plan, .. } => awaited.push(Awaited {
                    stack: need.stack.clone(),
                    outputs: need.outputs.intersection(&plan.outputs).cloned().collect(),
                }),
            }
        }
        // A preview wants to know all that can be known.
        match (waits, awaited.is_empty()) {
            (true, _) => Way::Waits,
            (false, true) => Way::Open,
            (false, false) => Way::Deferred(awaited),
        }
    }

    fn upstreams(&self, run: &Run) -> impl Iterator<Item = &Run> {
        run.upstreams
            .iter()
            .filter_map(|need| self.by_stack.get(&need.stack).copied())
    }
}

/// Whether it has no plan that could be applied, and nobody is making one.
fn is_unplanned(run: &Run) -> bool {
    match run.state {
        RunState::Queued | RunState::Deferred { .. } => true,
        RunState::Planning { .. }
        | RunState::Planned { .. }
        | RunState::Applying { .. }
        | RunState::Finished { .. } => false,
    }
}

fn poisoned(nearest: &StackName, outcome: &Outcome) -> Way {
    let (by, through) = match outcome {
        Outcome::Skipped {
            because: Skip::Poisoned { by, .. },
        } => (by.clone(), Some(nearest.clone())),
        Outcome::Skipped { .. }
        | Outcome::Failed { .. }
        | Outcome::Unknown { .. }
        | Outcome::Planned { .. }
        | Outcome::Deferred { .. }
        | Outcome::Unchanged
        | Outcome::Applied { .. } => (nearest.clone(), None),
    };
    Way::Poisoned(Skip::Poisoned { by, through })
}

#[cfg(test)]
mod tests;
