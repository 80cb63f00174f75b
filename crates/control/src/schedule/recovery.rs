//! Repairs a crash between any two steps by checking, never by guessing. A run whose lock is free has no
//! process any more, and is ended by what is found of it.

use model::run::changeset::{ChangeSet, Status};
use model::run::{Run, RunEvent, RunState, Stage};
use store::ChangeSetError;

use crate::Control;
use crate::run::liveness::{is_at_work, is_elsewhere};
use crate::run::lock::RunLock;
use crate::run::{cleanup, client_presence};
use crate::state::quarantine::{self, AdoptionContext};
use crate::state::unrecorded;

/// Why a confirmed change set that no process carries out any more is stopped.
pub const GONE: &str = "its processes are gone";

/// A run that no process carries out any more, and what was done about it.
#[derive(Clone, Debug)]
pub struct RecoveredRun {
    pub run: Run,
    pub was: &'static str,
    pub kept: Option<String>,
}

/// Ends the runs of a change set whose processes are gone. It is safe to repeat, because the run's lock is
/// held meanwhile.
pub async fn recover(
    control: &Control,
    set: &ChangeSet,
) -> Result<Vec<RecoveredRun>, ChangeSetError> {
    let mut found = Vec::new();
    if is_elsewhere(control, set) {
        return Ok(found);
    }
    for run in control.store.run_list(set.id).await? {
        if !run.state.is_running() {
            continue;
        }
        let Ok(Some(lock)) = RunLock::try_take(&control.home, run.id) else {
            continue;
        };
        // Another process may have ended the run between the list and the lock.
        let Some(run) = control.store.run_get(run.id).await? else {
            continue;
        };
        crate::runner::finish_lost_logs(&control.home, run.id);
        let mut left = None;
        let kept = match &run.state {
            RunState::Applying { plan, .. } => {
                let spec = control.store.run_spec(run.id).await?;
                let kept = match control.home.slot(&spec.slot, 0) {
                    Ok(slot) => {
                        let dir = slot.tree().join(&spec.stack.path);
                        let left = AdoptionContext::of(run.id, &spec, &dir, plan);
                        quarantine::take_in(control, left).await
                    }
                    Err(_) => None,
                };
                // A lock that cannot be released now is found by the next check.
                drop(control.store.lock_release_run(run.id).await);
                let events = crate::runner::lost_events(&control.home, run.id, Stage::Applying);
                left = unrecorded::look(control, run.id, &spec, &events, true).await;
                kept
            }
            RunState::Planning { .. } | RunState::Completing { .. } => None,
            RunState::Queued
            | RunState::Deferred { .. }
            | RunState::Planned { .. }
            | RunState::Applied { .. }
            | RunState::Finished { .. } => continue,
        };
        let was = run.state.word();
        let event = RunEvent::RunnerLost {
            kept: kept.clone(),
            left,
        };
        let run = control
            .store
            .run_record(run.id, event, control.now())
            .await?;
        cleanup::remove_scratch(control, run.id);
        if let Ok(spec) = control.store.run_spec(run.id).await {
            crate::runner::clean_up_lost(control, &spec).await;
        }
        found.push(RecoveredRun { run, was, kept });
        drop(lock);
    }
    Ok(found)
}

/// Ends change sets that hold lanes although none of their processes is alive, so that the lanes are not
/// blocked forever.
pub async fn release_abandoned(control: &Control) -> Result<Vec<ChangeSet>, ChangeSetError> {
    let mut stopped = Vec::new();
    quarantine::adopt_or_quarantine_all(control).await?;
    crate::changeset::bundle::forget_abandoned(control).await?;
    for set in control
        .store
        .change_set_list_open(control.home.project())
        .await?
    {
        if is_elsewhere(control, &set) {
            continue;
        }
        recover(control, &set).await?;
        let runs = control.store.run_list(set.id).await?;
        if !is_at_work(control, &runs)
            && let Some(_unwatched) = client_presence::unattended(control, &set)
        {
            let why = match set.status {
                Status::Confirmed | Status::Interrupting => GONE,
                Status::Planning => "no client is attached any more",
                Status::AwaitingConfirm if is_stale(control, &set) => {
                    "there was no decision within 30 days"
                }
                // It waits for a person, or it is confirmed and continues when its lanes are free
                // (`scheduler::resume_unattended`).
                Status::AwaitingConfirm
                | Status::Waiting
                | Status::Finished
                | Status::Stopped { .. }
                | Status::Superseded { .. } => continue,
            };
            control
                .store
                .change_set_stop(&set, why, control.now())
                .await?;
            let set = control.store.change_set_get(set.id).await?;
            cleanup::remove_leftovers(control, &set, &control.store.run_list(set.id).await?).await;
            stopped.push(set);
        }
    }
    Ok(stopped)
}

/// Ends a change set that no process carries out. Returns false if one is still at work.
pub async fn stop_if_gone(
    control: &Control,
    set: &ChangeSet,
    runs: &[Run],
) -> Result<bool, ChangeSetError> {
    if is_elsewhere(control, set) || is_at_work(control, runs) {
        return Ok(false);
    }
    let why = GONE;
    control
        .store
        .change_set_stop(set, why, control.now())
        .await?;
    Ok(true)
}

/// Whether the change set is too old: plans and sources are not kept forever.
fn is_stale(control: &Control, set: &ChangeSet) -> bool {
    control.now().duration_since(set.created_at).as_hours() >= 30 * 24
}
