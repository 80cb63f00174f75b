//! A crash between any two steps is repaired by looking, never by guessing: runs whose lock is free have
//! no process any more, and are ended by what can be seen of them.

use std::fs;

use model::changeset::{ChangeSet, Status};
use model::ids::RunId;
use model::run::{Run, RunEvent, RunState, Stage};
use store::{Brief, ChangeSetError, Store};

use crate::Control;
use crate::home::Home;
use crate::kept_aside::{self, Leftovers};
use crate::left_behind;
use crate::locks::RunLock;

/// Why a change set stops that somebody said yes to and nobody carries out any more.
pub const GONE: &str = "its processes are gone";

/// What was found and done about a run that nobody carries out any more.
#[derive(Clone, Debug)]
pub struct Found {
    pub run: Run,
    pub was: &'static str,
    pub kept: Option<String>,
}

/// Ends the runs of a change set whose processes are gone. Doing it twice is doing it once: the run's
/// lock is held meanwhile.
pub async fn recover(control: &Control, set: &ChangeSet) -> Result<Vec<Found>, ChangeSetError> {
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
        // Somebody may have ended it between the list and the lock.
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
                        let left = Leftovers::of(run.id, &spec, &dir, plan);
                        kept_aside::take_in(control, left).await
                    }
                    Err(_) => None,
                };
                // A lock that cannot be released now is found again by the next look.
                drop(control.store.lock_release_run(run.id).await);
                let events = crate::runner::lost_events(&control.home, run.id, Stage::Applying);
                left = left_behind::look(control, run.id, &spec, &events, true).await;
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
        remove_scratch(control, run.id);
        if let Ok(spec) = control.store.run_spec(run.id).await {
            crate::runner::sweep_lost(control, &spec).await;
        }
        found.push(Found { run, was, kept });
        drop(lock);
    }
    Ok(found)
}

/// Ends change sets that hold lanes although nothing of them is alive: their lanes must not wait for ever.
pub async fn release_abandoned(control: &Control) -> Result<Vec<ChangeSet>, ChangeSetError> {
    let mut stopped = Vec::new();
    kept_aside::take_in_forgotten(control).await?;
    crate::bundle::forget_abandoned(control).await?;
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
            && let Some(_unwatched) = crate::changesets::unwatched(control, &set)
        {
            let why = match set.status {
                Status::Confirmed | Status::Interrupting => GONE,
                Status::Planning => "nobody waits for it any more",
                Status::AwaitingConfirm if is_stale(control, &set) => {
                    "nobody decided within 30 days"
                }
                // It waits for a person, or somebody said yes and it goes on when its lanes are free
                // (`worker::go_on_with_waiters`).
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
            tidy_after(control, &set, &control.store.run_list(set.id).await?).await;
            stopped.push(set);
        }
    }
    Ok(stopped)
}

/// Ends a change set that nobody can go on with; false if somebody is still at work.
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

/// Whether somebody said yes to it, and nobody is left who carries it out, or waits for it.
pub(crate) fn is_gone(control: &Control, set: &ChangeSet, runs: &[Run]) -> bool {
    matches!(set.status, Status::Confirmed | Status::Interrupting)
        && !is_elsewhere(control, set)
        && !is_at_work(control, runs)
        && crate::changesets::unwatched(control, set).is_some()
}

/// Whether a run may still have a process: its lock is held, or only another machine could tell.
pub(crate) async fn may_be_alive(store: &Store, home: &Home, run: RunId) -> bool {
    let Ok(Brief { set, .. }) = store.run_brief(run).await else {
        return RunLock::is_held(home, run);
    };
    let is_here = set.request.machine == home.machine();
    let is_held = || RunLock::is_held(&home.seen_by(&set.request.project), run);
    judge_alive(is_here, set.status.is_over(), is_held)
}

/// A lock on this disk tells of this machine only; of another one, only that its change set is over.
fn judge_alive(is_here: bool, is_over: bool, is_held: impl FnOnce() -> bool) -> bool {
    if is_here { is_held() } else { !is_over }
}

/// Plans and sources are not kept for ever.
fn is_stale(control: &Control, set: &ChangeSet) -> bool {
    control.now().duration_since(set.created_at).as_hours() >= 30 * 24
}

/// Whether its processes belong to another machine: a lock on this disk says nothing of them.
pub fn is_elsewhere(control: &Control, set: &ChangeSet) -> bool {
    set.request.machine != control.home.machine()
}

/// Whether any process carries out one of these runs. A lock tells, not what it says: a runner that has
/// not signed yet is alive, and so is an engine whose runner is gone.
pub(crate) fn is_at_work(control: &Control, runs: &[Run]) -> bool {
    runs.iter()
        .any(|run| RunLock::is_held(&control.home, run.id))
}

/// After the last run of a change set: its source and plan files go; what people may look at stays.
pub async fn tidy_after(control: &Control, set: &ChangeSet, runs: &[Run]) {
    // Whoever writes the bundle forgets them (`bundle::forget_kept`).
    if !set.request.keeps_plans {
        remove_plans(control, set, runs).await;
    }
}

/// Removes the plan files of runs that are over, and the source if the whole is.
pub(crate) async fn remove_plans(control: &Control, set: &ChangeSet, runs: &[Run]) {
    for run in runs.iter().filter(|run| run.state.is_finished()) {
        remove_scratch(control, run.id);
        drop(fs::remove_file(crate::runner::plan_file(
            &control.home.run_dir(run.id),
        )));
    }
    if set.status.is_over() {
        for run in control.store.run_list(set.id).await.unwrap_or_default() {
            let outputs = crate::runner::planned_outputs(&control.home.run_dir(run.id));
            drop(fs::remove_file(outputs));
        }
        crate::runner::forget_places(&control.home, set.id);
        // What cannot be removed now is removed after the next change set with the same source.
        drop(remove_source(control, &set.request.source).await);
    }
}

async fn remove_source(control: &Control, source: &str) -> std::io::Result<()> {
    let lock = fs::File::options()
        .append(true)
        .open(control.home.snapshots_lock())?;
    if lock.try_lock().is_err() {
        return Ok(()); // somebody adds one
    }
    let open = control
        .store
        .change_set_list_open(control.home.project())
        .await
        .map_err(std::io::Error::other)?;
    if open.iter().any(|set| set.request.source == source) {
        return Ok(());
    }
    fs::remove_file(control.home.snapshot(source))
}

fn remove_scratch(control: &Control, run: RunId) {
    drop(fs::remove_dir_all(control.home.scratch(run)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_another_machine_is_no_orphan() {
        let (here, over) = (true, true);
        assert!(judge_alive(here, !over, || true));
        assert!(!judge_alive(here, !over, || false));
        // Nobody holds its lock on this disk, whether it lives or not.
        assert!(judge_alive(!here, !over, || false));
        assert!(!judge_alive(!here, over, || false));
    }
}
