//! What an engine wrote stays for people to read, so no secret may stay in it: a provisioner says what
//! it likes.

use std::fs;
use std::path::Path;

use model::masking::Mask;
use model::run::Stage;

use super::Job;
use super::workspace::write_private;

/// Masks the logs of a run, after its engine has ended. A log that cannot be masked is removed.
pub(super) fn mask(job: &Job<'_>, mask: &Mask) {
    if mask.is_empty() {
        return;
    }
    for stage in [Stage::Preparing, Stage::Planning, Stage::Applying] {
        mask_file(&job.control.home.engine_events(job.run, stage), mask);
    }
    mask_file(&job.control.home.engine_complaints(job.run), mask);
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
