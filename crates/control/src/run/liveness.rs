//! Whether the processes of runs are alive, based on their locks and on the machine that they were started
//! on.
//!
//! Not here: the locks themselves (`run::lock`, `run::client_presence`), ending runs whose processes are gone
//! (`schedule::recovery`).

use model::base::ids::RunId;
use model::run::Run;
use model::run::changeset::{ChangeSet, Status};
use store::{RunSummary, Store};

use crate::Control;
use crate::home::Home;
use crate::run::client_presence;
use crate::run::lock::RunLock;

/// Whether a confirmed change set has neither a runner nor a client any more.
pub(crate) fn is_gone(control: &Control, set: &ChangeSet, runs: &[Run]) -> bool {
    matches!(set.status, Status::Confirmed | Status::Interrupting)
        && !is_elsewhere(control, set)
        && !is_at_work(control, runs)
        && client_presence::unattended(control, set).is_some()
}

/// Whether a run may still have a process: its lock is held, or it runs on another machine and is not over.
pub(crate) async fn may_be_alive(store: &Store, home: &Home, run: RunId) -> bool {
    let Ok(RunSummary { set, .. }) = store.run_summary(run).await else {
        return RunLock::is_held(home, run);
    };
    let is_here = set.request.machine == home.machine();
    let is_held = || RunLock::is_held(&home.seen_by(&set.request.project), run);
    judge_alive(is_here, set.status.is_over(), is_held)
}

/// A lock on this disk only covers this machine. For another machine, only the end of the change set is
/// known.
fn judge_alive(is_here: bool, is_over: bool, is_held: impl FnOnce() -> bool) -> bool {
    if is_here { is_held() } else { !is_over }
}

/// Whether the processes run on another machine, so that locks on this disk do not cover them.
pub fn is_elsewhere(control: &Control, set: &ChangeSet) -> bool {
    set.request.machine != control.home.machine()
}

/// Whether any process carries out one of these runs. The lock decides, not the PIDs in it. A runner that has
/// not written its PID yet is alive, and so is an engine whose runner is gone.
pub(crate) fn is_at_work(control: &Control, runs: &[Run]) -> bool {
    runs.iter()
        .any(|run| RunLock::is_held(&control.home, run.id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_another_machine_is_no_orphan() {
        let (here, over) = (true, true);
        assert!(judge_alive(here, !over, || true));
        assert!(!judge_alive(here, !over, || false));
        // No process holds its lock on this disk, whether it is alive or not.
        assert!(judge_alive(!here, !over, || false));
        assert!(!judge_alive(!here, over, || false));
    }
}
