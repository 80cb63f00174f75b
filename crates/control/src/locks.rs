//! Liveness is a file lock, not a clock: a run's lock is held by a descriptor that its runner and its
//! engine inherit, so it is free only when both are gone.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use model::ids::RunId;

use crate::home::{Home, make_private};

pub mod held;

#[derive(Debug)]
pub struct RunLock(File);

impl RunLock {
    /// Takes the lock if nobody has it.
    pub fn try_take(home: &Home, run: RunId) -> io::Result<Option<Self>> {
        let dir = home.run_dir(run);
        make_private(&dir)?;
        let Some(file) = try_lock(&dir.join("run.lock"))? else {
            return Ok(None);
        };
        // The number of an earlier runner may belong to anybody by now.
        file.set_len(0)?;
        Ok(Some(Self(file)))
    }

    /// The descriptor a runner is started with.
    pub fn file(&self) -> &File {
        &self.0
    }

    /// Says whose it is now, for those who want to send a signal.
    pub fn sign(mut file: &File, pid: u32) -> io::Result<()> {
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(pid.to_string().as_bytes())
    }

    /// Whether a runner or an engine is at work, even if its runner has not signed yet or is gone.
    pub fn is_held(home: &Home, run: RunId) -> bool {
        let path = home.run_dir(run).join("run.lock");
        File::open(path).is_ok_and(|file| file.try_lock_shared().is_err())
    }

    /// The runner that holds it, if one is alive.
    pub fn holder(home: &Home, run: RunId) -> Option<u32> {
        let path = home.run_dir(run).join("run.lock");
        let mut file = OpenOptions::new().read(true).open(path).ok()?;
        if file.try_lock_shared().is_ok() {
            return None;
        }
        let mut text = String::new();
        file.read_to_string(&mut text).ok()?;
        text.trim().parse().ok()
    }
}

/// Opens a file and takes its lock, unless somebody else has it.
pub(crate) fn try_lock(path: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(source)) => Err(source),
    }
}
