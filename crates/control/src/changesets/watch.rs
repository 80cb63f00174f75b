//! Who waits for a change set: a file lock that lasts as long as its terminal.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use model::changeset::ChangeSet;
use model::ids::ChangeSetId;

use crate::Control;
use crate::home::make_private;

/// Says, as long as the file is open, that somebody waits for this change set.
pub fn watch(control: &Control, set: ChangeSetId) -> io::Result<File> {
    let file = open(control, set)?;
    // Whoever ends it as abandoned is waited for.
    file.lock_shared()?;
    Ok(file)
}

/// Held while a change set is ended because nobody waits for it: nobody begins to wait for it meanwhile.
/// Nothing if somebody does, or may be about to because it was stored a moment ago.
pub(crate) fn unwatched(control: &Control, set: &ChangeSet) -> Option<File> {
    let age = control.now().duration_since(set.created_at);
    if age.as_secs() < 60 && !watch_path(control, set.id).exists() {
        return None;
    }
    let file = open(control, set.id).ok()?;
    file.try_lock().is_ok().then_some(file)
}

fn open(control: &Control, set: ChangeSetId) -> io::Result<File> {
    let path = watch_path(control, set);
    if let Some(dir) = path.parent() {
        make_private(dir)?;
    }
    let mut options = File::options();
    options.create(true).append(true).mode(0o600).open(path)
}

pub(super) fn watch_path(control: &Control, set: ChangeSetId) -> PathBuf {
    control
        .home
        .work()
        .join("changesets")
        .join(format!("{set}.lock"))
}
