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
    let path = watch_path(control, set);
    if let Some(dir) = path.parent() {
        make_private(dir)?;
    }
    let mut options = File::options();
    let file = options.create(true).append(true).mode(0o600).open(path)?;
    file.lock_shared()?;
    Ok(file)
}

/// Whether somebody waits for a change set. One that was stored a moment ago has nobody yet.
pub(crate) fn is_watched(control: &Control, set: &ChangeSet) -> bool {
    match File::options()
        .append(true)
        .open(watch_path(control, set.id))
    {
        Ok(file) => file.try_lock().is_err(),
        Err(_) => control.now().duration_since(set.created_at).as_secs() < 60,
    }
}

pub(super) fn watch_path(control: &Control, set: ChangeSetId) -> PathBuf {
    control
        .home
        .work()
        .join("changesets")
        .join(format!("{set}.lock"))
}
