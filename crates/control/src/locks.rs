//! Liveness is a file lock, not a clock: a run's lock is held by a descriptor that its runner and its
//! engine inherit, so it is free only when both are gone.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

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
        let _gate = gate(&dir)?;
        let Some(file) = try_lock(&dir.join("run.lock"))? else {
            return Ok(None);
        };
        // The number of an earlier runner may belong to anybody by now.
        file.set_len(0)?;
        Ok(Some(Self(file)))
    }

    pub(crate) fn path(home: &Home, run: RunId) -> PathBuf {
        home.run_dir(run).join("run.lock")
    }

    /// One that was taken by whoever started this process, and came with it.
    pub(crate) fn inherited(file: File) -> Self {
        Self(file)
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
        probe(&home.run_dir(run)).is_some()
    }

    /// The runner that holds it, if one is alive.
    pub fn holder(home: &Home, run: RunId) -> Option<u32> {
        let mut file = probe(&home.run_dir(run))?;
        let mut text = String::new();
        file.read_to_string(&mut text).ok()?;
        text.trim().parse().ok()
    }
}

/// The lock's file, if somebody holds it. To look is to hold it for a moment, which a claim must not take
/// for a runner: both pass the same gate.
fn probe(dir: &Path) -> Option<File> {
    let file = File::open(dir.join("run.lock")).ok()?;
    let gate = gate(dir).ok()?;
    if file.try_lock_shared().is_err() {
        return Some(file);
    }
    drop(file); // and with it the lock, before the gate opens
    drop(gate);
    None
}

/// Held for as long as one look or one claim takes, and by no child.
fn gate(dir: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.create(true).append(true).mode(0o600);
    let file = file.open(dir.join("run.gate"))?;
    file.lock()?;
    Ok(file)
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::home::StorePlace;
    use crate::keys::KeySource;

    #[test]
    fn a_look_never_swallows_a_claim() {
        let dir = tempfile::tempdir().unwrap();
        let place = StorePlace::Directory(dir.path().to_owned());
        let key = KeySource::File(dir.path().join("key"));
        let home = Home::at(place, dir.path().to_owned(), key, "p".to_owned());
        let run = RunId(1);
        drop(RunLock::try_take(&home, run).unwrap());
        let done = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    RunLock::is_held(&home, run);
                    RunLock::holder(&home, run);
                }
            });
            let swallowed = (0..2000)
                .filter(|_| RunLock::try_take(&home, run).unwrap().is_none())
                .count();
            done.store(true, Ordering::Relaxed);
            assert_eq!(swallowed, 0);
        });
    }
}
