//! File locks of a change set: one that an attached client holds until it exits, and the lease of the process that works on
//! it at the moment.

use std::fs::{File, TryLockError};
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

/// The lease to work on a change set, for one step. `None` if another process has it.
pub(crate) fn supervise(control: &Control, set: ChangeSetId) -> io::Result<Option<File>> {
    let file = open_at(path(control, set).with_extension("lease"))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(err)) => Err(err),
    }
}

fn open(control: &Control, set: ChangeSetId) -> io::Result<File> {
    open_at(path(control, set))
}

fn open_at(path: PathBuf) -> io::Result<File> {
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
