//! Whether a client is attached to a change set: a file lock that the client holds until it exits.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use model::base::ids::ChangeSetId;
use model::run::changeset::ChangeSet;

use crate::Control;
use crate::home::make_private;

/// Attaches to a change set until the file is closed.
pub fn attach(control: &Control, set: ChangeSetId) -> io::Result<File> {
    let file = open(control, set)?;
    // Wait for a process that is ending the change set as abandoned.
    file.lock_shared()?;
    Ok(file)
}

/// Keeps clients from attaching while an unattended change set is ended. `None` if a client is attached, or
/// may be about to attach to a new change set.
pub(crate) fn unattended(control: &Control, set: &ChangeSet) -> Option<File> {
    let age = control.now().duration_since(set.created_at);
    if age.as_secs() < 60 && !path(control, set.id).exists() {
        return None;
    }
    let file = open(control, set.id).ok()?;
    file.try_lock().is_ok().then_some(file)
}

fn open(control: &Control, set: ChangeSetId) -> io::Result<File> {
    let path = path(control, set);
    if let Some(dir) = path.parent() {
        make_private(dir)?;
    }
    let mut options = File::options();
    options.create(true).append(true).mode(0o600).open(path)
}

pub(crate) fn path(control: &Control, set: ChangeSetId) -> PathBuf {
    control
        .home
        .work()
        .join("changesets")
        .join(format!("{set}.lock"))
}
