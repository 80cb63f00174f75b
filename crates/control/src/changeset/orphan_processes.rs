//! Processes that an engine left behind and that keep its locks: a provisioner started them and did not wait
//! for them. They may still change something, so the run does not continue before they end. The user is told
//! which processes these are.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use drivers::process::{self, FileHolder};
use model::base::ids::RunId;
use model::run::Run;
use model::run::changeset::ChangeSet;

use crate::Control;
use crate::home::Home;
use crate::run::liveness;
use crate::run::lock::RunLock;
use crate::state::pending_write::PendingWrite;

/// What blocks each unfinished run of a change set, if it is a process on this machine.
pub fn in_the_way(control: &Control, set: &ChangeSet, runs: &[Run]) -> BTreeMap<RunId, String> {
    if liveness::is_elsewhere(control, set) {
        return BTreeMap::new();
    }
    let open = runs.iter().filter(|run| !run.state.is_finished());
    let why = |run: &Run| {
        let noted = run
            .state
            .is_running()
            .then(|| control.home.run_waits(run.id));
        let noted = noted.and_then(|path| fs::read_to_string(path).ok());
        // A file that is being written is still empty.
        let noted = noted.filter(|words| !words.is_empty());
        noted
            .or_else(|| {
                PendingWrite::waits(&control.home, run.id).filter(|_| run.state.is_running())
            })
            .or_else(|| of_run(&control.home, run.id))
    };
    open.filter_map(|run| Some((run.id, why(run)?))).collect()
}

/// An engine that is still running without its runner.
pub(crate) fn engine_alone(home: &Home, run: RunId) -> Option<String> {
    let signed = RunLock::signed(home, run)?;
    let lock = RunLock::path(home, run);
    let engine = signed.engine.filter(|pid| process::has_open(*pid, &lock))?;
    let is_alone = !process::has_open(signed.runner?, &lock);
    is_alone.then(|| {
        format!(
            "has lost its runner; its engine (process {engine}) is still running; its result is checked when it ends"
        )
    })
}

/// Processes that hold a run's lock although neither its runner nor its engine does any more.
pub fn of_run(home: &Home, run: RunId) -> Option<String> {
    // A runner that has only just started has not signed yet.
    let signed = RunLock::signed(home, run)?;
    let lock = RunLock::path(home, run);
    let mut own = [Some(signed.runner?), signed.engine].into_iter().flatten();
    if own.any(|pid| process::has_open(pid, &lock)) {
        return None;
    }
    let holders = process::holders(&lock);
    if holders.iter().any(|holder| holder.is_runner) {
        return None; // the next runner has started meanwhile
    }
    words(&holders)
}

/// Processes that hold another lock of an engine.
pub(crate) fn of_lock(path: &Path) -> Option<String> {
    let mut holders = process::holders(path);
    holders.retain(|holder| !holder.is_runner);
    words(&holders)
}

fn words(holders: &[FileHolder]) -> Option<String> {
    let first = holders.first()?;
    let program = first.program.as_ref();
    let program = program.map_or_else(String::new, |name| format!(" (`{name}`)"));
    let pids: Vec<String> = holders.iter().map(|one| one.pid.to_string()).collect();
    let more = match holders.len() {
        1 => String::new(),
        many => format!(" and {} more", many - 1),
    };
    Some(format!(
        "waits for process {}{program}{more}, which an ended runner or engine left behind; it may still be running; \
         `kill {}` ends it",
        first.pid,
        pids.join(" ")
    ))
}
