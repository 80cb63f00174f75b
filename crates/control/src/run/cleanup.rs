//! Removes the files of runs and change sets that are over.
//!
//! Not here: deciding that they are over (`schedule`), old state versions (`state::queries::retention_job`).

use std::fs;

use model::base::ids::{ChangeSetId, RunId};
use model::run::Run;
use model::run::changeset::ChangeSet;

use crate::Control;
use crate::home::Home;

/// Removes plan files and the source once nothing needs them. Logs and plan views stay.
pub async fn remove_leftovers(control: &Control, set: &ChangeSet, runs: &[Run]) {
    // The process that writes the bundle removes them (`bundle::forget_kept`).
    if !set.request.keeps_plans {
        remove_plans(control, set, runs).await;
    }
}

/// Removes the plan files of finished runs, and the source if the change set is over.
pub(crate) async fn remove_plans(control: &Control, set: &ChangeSet, runs: &[Run]) {
    for run in runs.iter().filter(|run| run.state.is_finished()) {
        remove_scratch(control, run.id);
        drop(fs::remove_file(control.home.plan_file(run.id)));
    }
    if set.status.is_over() {
        for run in control.store.run_list(set.id).await.unwrap_or_default() {
            let outputs = control.home.planned_outputs(run.id);
            drop(fs::remove_file(outputs));
        }
        remove_places(&control.home, set.id);
        // A source that cannot be removed now is removed after the next change set with the same source.
        drop(remove_source(control, &set.request.source).await);
    }
}

async fn remove_source(control: &Control, source: &str) -> std::io::Result<()> {
    let lock = fs::File::options()
        .append(true)
        .open(control.home.snapshots_lock())?;
    if lock.try_lock().is_err() {
        return Ok(()); // another process is adding a source
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

/// Removes a run's plain-text data.
pub(crate) fn remove_scratch(control: &Control, run: RunId) {
    drop(fs::remove_dir_all(control.home.scratch(run)));
}

/// Removes the engine permits of a change set that is over.
pub(crate) fn remove_places(home: &Home, set: ChangeSetId) {
    let name = |name: &std::ffi::OsStr| {
        let name = name.to_str()?.split_once('.')?.0;
        Some(name == set.to_string())
    };
    let Ok(entries) = fs::read_dir(home.places()) else {
        return;
    };
    for entry in entries.flatten() {
        if name(&entry.file_name()) == Some(true) {
            drop(fs::remove_file(entry.path()));
        }
    }
}
