//! One step of a change set: everything that can happen now, in one transaction.

use std::collections::BTreeSet;

use jiff::Timestamp;
use model::base::ids::{ChangeSetId, RunId};
use model::run::approval::Approval;
use model::run::changeset::{
    ChangeSet, DecisionContext, LaneBlocker, SetEvent, Status, Transition, UserCommand,
    apply_command, can_be_undermined, next, still_needed, undermined,
};
use model::run::hold::Hold;
use model::run::{Run, RunEvent, RunState, SkipReason, Stage};

use super::reopen::planned_with;
use super::{ChangeSetStep, ReportedEvent, dependents, get, record, row};
use crate::Store;
use crate::db::Tx;
use crate::run::approvals;
use crate::run::holds;
use crate::run::lanes::{self, Fence};
use crate::run::records::ChangeSetError;
use crate::run::runs;

impl Store {
    /// Commits everything that can happen now, together with a new event of a run or a command of a person. A
    /// run is claimed only if `claim` returns true (it takes the run's lock); two callers never start the
    /// same run.
    pub async fn change_set_advance(
        &self,
        id: ChangeSetId,
        say: Option<UserCommand>,
        happened: Option<(RunId, RunEvent)>,
        now: Timestamp,
        claim: &mut (dyn FnMut(RunId) -> bool + Send),
    ) -> Result<ChangeSetStep, ChangeSetError> {
        let happened = happened.map(|(run, event)| ReportedEvent {
            run,
            event,
            brought: None,
        });
        self.change_set_advance_fenced(id, None, say, happened, now, claim)
            .await
    }

    /// The same for a caller that acts under the epochs of its lanes: fails if the lanes were lost.
    pub async fn change_set_advance_fenced(
        &self,
        id: ChangeSetId,
        fence: Option<&Fence>,
        say: Option<UserCommand>,
        happened: Option<ReportedEvent>,
        now: Timestamp,
        claim: &mut (dyn FnMut(RunId) -> bool + Send),
    ) -> Result<ChangeSetStep, ChangeSetError> {
        let mut tx = self.db.begin_write().await?;
        if let Some(fence) = fence {
            lanes::check(&mut tx, fence).await?;
        }
        let mut set = self.known_request.read(&row(&mut tx, id).await?)?;
        if let Some(ReportedEvent {
            run,
            brought: Some(brought),
            ..
        }) = &happened
        {
            planned_with(&mut tx, &mut set, *run, brought).await?;
        }
        let holds = holds::active(&mut tx, &set.request.project, now).await?;
        let mut runs = self.run_list_in(&mut tx, id).await?;
        if let Some(ReportedEvent { run, event, .. }) = happened {
            let event = after_what_was_said(&mut tx, &set, &runs, run, event).await?;
            runs::record(&mut tx, &mut runs, run, event, now).await?;
        }
        // The event may be a plan that requires approvals.
        let approvals = approvals::list(&mut tx, &set, &runs).await?;
        let mut table = StepState {
            runs,
            set,
            holds,
            approvals,
            now,
            starts: Vec::new(),
            refused: BTreeSet::new(),
            released: false,
        };
        if let Some(say) = say {
            let steps = apply_command(&table.set, &table.runs, &table.around(), say)?;
            table.carry_out(&mut tx, steps, claim).await?;
        }
        let mut front;
        // Read once: no other process writes during this transaction.
        let mut destroyed = None;
        loop {
            front = None;
            if table.set.status == Status::Waiting {
                front = lanes::take(&mut tx, &table.set, &table.holds, now).await?;
                if front.is_none() {
                    record(&mut tx, &mut table.set, SetEvent::LanesTaken, now).await?;
                    runs::recheck_settled(&mut tx, &table.set, &mut table.runs).await?;
                }
            }
            let standing = dependents::standing(&mut tx, &table.set).await?;
            let needed = still_needed(&table.set, &table.runs, &standing);
            table.carry_out(&mut tx, needed, claim).await?;
            if can_be_undermined(&table.set, &table.runs) {
                let going = match &destroyed {
                    Some(going) => going,
                    None => destroyed.insert(
                        dependents::being_destroyed(&mut tx, &table.set, &table.runs).await?,
                    ),
                };
                let lost = undermined(&table.set, &table.runs, going);
                table.carry_out(&mut tx, lost, claim).await?;
            }
            let steps = next(&table.set, &table.runs, &table.around());
            if !table.carry_out(&mut tx, steps, claim).await? {
                break;
            }
        }
        tx.commit().await?;
        Ok(ChangeSetStep {
            set: table.set,
            runs: table.runs,
            starts: table.starts,
            front,
            released: table.released,
        })
    }

    /// Ends a change set that no process advances any more and releases its lanes, unless its status has
    /// changed since `seen`.
    pub async fn change_set_stop(
        &self,
        seen: &ChangeSet,
        why: &str,
        now: Timestamp,
    ) -> Result<(), ChangeSetError> {
        let id = seen.id;
        let mut tx = self.db.begin_write().await?;
        let mut set = get(&mut tx, id).await?;
        if !set.status.is_over() && set.status == seen.status {
            let mut members = runs::list(&mut tx, id).await?;
            skip_open(&mut tx, &mut members, now).await?;
            let why = why.to_owned();
            record(&mut tx, &mut set, SetEvent::Abandoned { why }, now).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    /// Moves a waiting change set to the end of the queue, so that those behind it can pass.
    pub async fn change_set_queue_again(
        &self,
        id: ChangeSetId,
        now: Timestamp,
    ) -> Result<(), ChangeSetError> {
        let mut tx = self.db.begin_write().await?;
        if get(&mut tx, id).await?.status == Status::Waiting {
            lanes::release(&mut tx, id).await?;
            lanes::queue(&mut tx, id, now).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    /// What blocks a change set from its lanes; `None` if it does not wait for them.
    pub async fn change_set_lane_blocker(
        &self,
        id: ChangeSetId,
        now: Timestamp,
    ) -> Result<Option<LaneBlocker>, ChangeSetError> {
        let mut tx = self.db.begin_write().await?;
        let set = get(&mut tx, id).await?;
        if set.status != Status::Waiting {
            return Ok(None);
        }
        let holds = holds::active(&mut tx, &set.request.project, now).await?;
        lanes::front(&mut tx, &set, &holds).await
    }
}

/// Moves the `since` of a new plan past the last approval: an approval given while the plan was made is about
/// another plan.
async fn after_what_was_said(
    tx: &mut Tx,
    set: &ChangeSet,
    runs: &[Run],
    run: RunId,
    mut event: RunEvent,
) -> Result<RunEvent, ChangeSetError> {
    let begun = runs.iter().find_map(|one| match one.state {
        RunState::Planning { since, .. } if one.id == run => Some(since),
        _ => None,
    });
    let (Some(plan), Some(begun)) = (event.plan_mut(), begun) else {
        return Ok(event);
    };
    // An earlier `since` is carried over from an older plan.
    let Some(since) = plan.since.filter(|since| *since >= begun) else {
        return Ok(event);
    };
    if !set.request.approvals.is_empty() || plan.wanted().next().is_some() {
        let last = approvals::last_at(tx, set.id).await?;
        plan.since = Some(since.max(last));
    }
    Ok(event)
}

/// A change set with everything that its next step depends on.
struct StepState {
    set: ChangeSet,
    runs: Vec<Run>,
    holds: Vec<Hold>,
    approvals: Vec<Approval>,
    now: Timestamp,
    starts: Vec<(RunId, Stage)>,
    /// Runs that could not be claimed, because another process holds their lock.
    refused: BTreeSet<RunId>,
    released: bool,
}

impl StepState {
    fn around(&self) -> DecisionContext<'_> {
        DecisionContext {
            holds: &self.holds,
            approvals: &self.approvals,
            now: self.now,
        }
    }

    /// Returns whether anything changed.
    async fn carry_out(
        &mut self,
        tx: &mut Tx,
        steps: Vec<Transition>,
        claim: &mut (dyn FnMut(RunId) -> bool + Send),
    ) -> Result<bool, ChangeSetError> {
        let mut moved = false;
        for step in steps {
            let (run, event, start) = match step {
                Transition::Move(event) => {
                    self.released |= record(tx, &mut self.set, event, self.now).await?;
                    moved = true;
                    continue;
                }
                Transition::Record(run, event) => (run, *event, None),
                Transition::StartPlan(run) => (run, RunEvent::PlanStarted, Some(Stage::Planning)),
                Transition::StartPreview(run, on) => {
                    (run, RunEvent::PreviewStarted { on }, Some(Stage::Planning))
                }
                Transition::StartApply(run) => (run, RunEvent::ApplyStarted, Some(Stage::Applying)),
                Transition::StartStage(run, part) => {
                    (run, RunEvent::StageStarted { part }, Some(part))
                }
            };
            if let Some(stage) = start {
                if self.refused.contains(&run) || !claim(run) {
                    self.refused.insert(run);
                    continue;
                }
                self.starts.push((run, stage));
            }
            runs::record(tx, &mut self.runs, run, event, self.now).await?;
            moved = true;
        }
        Ok(moved)
    }
}

/// Skips all runs that have not started.
pub(super) async fn skip_open(
    tx: &mut Tx,
    members: &mut [Run],
    now: Timestamp,
) -> Result<(), ChangeSetError> {
    let open: Vec<RunId> = members
        .iter()
        .filter(|run| !run.state.is_finished() && !run.state.is_running())
        .map(|run| run.id)
        .collect();
    for run in open {
        let because = SkipReason::Abandoned;
        runs::record(tx, members, run, RunEvent::Skipped { because }, now).await?;
    }
    Ok(())
}
