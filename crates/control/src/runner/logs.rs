//! What an engine wrote stays for people to read, so no secret may stay in it: a provisioner says what
//! it likes.

use std::fs;
use std::path::Path;

use model::ids::RunId;
use model::masking::Mask;
use model::run::Stage;
use model::secret::Secret;

use super::Job;
use super::workspace::{hidden_path, write_private};
use crate::home::Home;

/// Masks the logs of a run, after its engine has ended. A log that cannot be masked is removed.
pub(super) fn mask(job: &Job<'_>, mask: &Mask) {
    mask_all(&job.control.home, job.run, mask);
}

/// Does it for a runner that was lost. What it had to hide lies beside its inputs; without that nobody
/// knows what to look for, and the logs go.
pub(crate) fn mask_lost(home: &Home, run: RunId) {
    let hidden = fs::read(hidden_path(home, run))
        .ok()
        .and_then(|bytes| serde_json::from_slice::<Vec<String>>(&bytes).ok());
    match hidden {
        Some(values) => {
            let secrets: Vec<Secret> = values.iter().map(Secret::new).collect();
            mask_all(home, run, &Mask::new(&secrets));
        }
        None => logs(home, run).for_each(|log| drop(fs::remove_file(log))),
    }
}

fn mask_all(home: &Home, run: RunId, mask: &Mask) {
    if !mask.is_empty() {
        logs(home, run).for_each(|log| mask_file(&log, mask));
    }
}

fn logs(home: &Home, run: RunId) -> impl Iterator<Item = std::path::PathBuf> {
    [Stage::Preparing, Stage::Planning, Stage::Applying]
        .into_iter()
        .map(move |stage| home.engine_events(run, stage))
        .chain([home.engine_complaints(run)])
}

fn mask_file(path: &Path, mask: &Mask) {
    let Ok(bytes) = fs::read(path) else {
        return;
    };
    let text = String::from_utf8_lossy(&bytes);
    if !mask.finds_in(&text) {
        return;
    }
    // Whoever reads along sees the old file or the new one, never half of one.
    let aside = path.with_extension("masked");
    let masked = mask.mask_text(&text);
    let replaced = write_private(&aside, masked.as_bytes()).and_then(|()| fs::rename(&aside, path));
    if replaced.is_err() {
        drop(fs::remove_file(path));
    }
}
