//! Liveness is a file lock, not a timeout. The runner and its engine inherit the descriptor that holds a
//! run's lock, so the lock is free only when both are gone.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use model::base::ids::RunId;
use model::run::Stage;

use crate::home::{Home, make_private};

#[derive(Debug)]
pub struct RunLock(File);

/// The processes recorded in a run's lock file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunPids {
    /// `None` if the runner has not written its PID yet.
    pub runner: Option<u32>,
    /// `None` while no engine is running.
    pub engine: Option<u32>,
}

/// A run that was claimed, with its lock.
#[derive(Debug)]
pub struct ClaimedRun {
    pub run: RunId,
    pub stage: Stage,
    pub lock: RunLock,
}

/// Length of the line for one PID, fixed so that one PID can overwrite another.
const LINE: usize = 11;

impl RunLock {
    /// Takes the lock if no process holds it.
    pub fn try_take(home: &Home, run: RunId) -> io::Result<Option<Self>> {
        make_private(&home.run_dir(run))?;
        let _gate = gate(home)?;
        let Some(file) = try_lock(&Self::path(home, run))? else {
            return Ok(None);
        };
        // The PID of an earlier runner may belong to another process by now.
        file.set_len(0)?;
        Ok(Some(Self(file)))
    }

    pub(crate) fn path(home: &Home, run: RunId) -> PathBuf {
        home.run_dir(run).join("run.lock")
    }

    /// A lock that the parent process took and passed on.
    pub(crate) fn inherited(file: File) -> Self {
        Self(file)
    }

    /// The descriptor that a runner inherits.
    pub fn file(&self) -> &File {
        &self.0
    }

    /// Records the runner's PID, so that other processes can send it signals.
    pub fn sign(&self, pid: u32) -> io::Result<()> {
        self.0
            .write_all_at(&[line(Some(pid)), line(None)].concat(), 0)
    }

    /// Records the PID of the running engine.
    pub(crate) fn note_engine(&self, pid: Option<u32>) -> io::Result<()> {
        self.0.write_all_at(&line(pid), LINE as u64)
    }

    /// Whether a runner or an engine is alive, even if the runner has not written its PID yet or is gone.
    pub fn is_held(home: &Home, run: RunId) -> bool {
        probe(home, run).is_some()
    }

    /// The recorded processes, if the lock is held.
    pub fn signed(home: &Home, run: RunId) -> Option<RunPids> {
        let mut text = String::new();
        probe(home, run)?.read_to_string(&mut text).ok()?;
        let mut lines = text.lines().map(|line| line.trim().parse().ok());
        Some(RunPids {
            runner: lines.next().flatten(),
            engine: lines.next().flatten(),
        })
    }
}

/// Takes the lock for waiting for the processes that a run's engine left behind. `None` if another process
/// already waits.
pub(crate) fn waiter(home: &Home, run: RunId) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    let options = options.create(true).append(true).mode(0o600);
    let file = options.open(home.run_dir(run).join("waiter.lock"))?;
    Ok(file.try_lock().is_ok().then_some(file))
}

fn line(pid: Option<u32>) -> [u8; LINE] {
    let mut line = [b' '; LINE];
    let pid = pid.map(|pid| pid.to_string()).unwrap_or_default();
    line[..pid.len()].copy_from_slice(pid.as_bytes());
    line[LINE - 1] = b'\n';
    line
}

/// Returns the lock file if a process holds the lock. Probing takes the lock briefly; the gate keeps a claim
/// from mistaking that for a runner.
fn probe(home: &Home, run: RunId) -> Option<File> {
    let file = File::open(RunLock::path(home, run)).ok()?;
    let gate = gate(home).ok()?;
    if file.try_lock_shared().is_err() {
        return Some(file);
    }
    drop(file); // releases the lock before the gate
    drop(gate);
    None
}

/// Serialises probes and claims of all runs. It is held for one probe or claim only, and no child inherits
/// it.
fn gate(home: &Home) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.create(true).append(true).mode(0o600);
    let file = file.open(home.run_gate())?;
    file.lock()?;
    Ok(file)
}

/// Opens a file and takes its lock, unless another process holds it.
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
    use crate::home::HomeLocation;
    use crate::home::master_keys::KeySource;

    fn home(dir: &Path) -> Home {
        let place = HomeLocation::Directory(dir.to_owned());
        let key = KeySource::File(dir.join("key"));
        Home::at(place, dir.to_owned(), key, "p".to_owned())
    }

    #[test]
    fn who_is_at_work_is_told_while_somebody_is() {
        let dir = tempfile::tempdir().unwrap();
        let (home, run) = (home(dir.path()), RunId(1));
        assert_eq!(RunLock::signed(&home, run), None);
        let lock = RunLock::try_take(&home, run).unwrap().unwrap();
        let told = |runner, engine| {
            assert_eq!(
                RunLock::signed(&home, run),
                Some(RunPids { runner, engine })
            );
        };
        told(None, None);
        lock.sign(u32::MAX).unwrap();
        told(Some(u32::MAX), None);
        lock.note_engine(Some(123_456)).unwrap();
        lock.note_engine(Some(78)).unwrap();
        told(Some(u32::MAX), Some(78));
        lock.note_engine(None).unwrap();
        told(Some(u32::MAX), None);
        lock.sign(9).unwrap();
        told(Some(9), None);
        drop(lock);
        assert_eq!(RunLock::signed(&home, run), None);
    }

    #[test]
    fn a_look_never_swallows_a_claim() {
        let dir = tempfile::tempdir().unwrap();
        let (home, run) = (home(dir.path()), RunId(1));
        drop(RunLock::try_take(&home, run).unwrap());
        let done = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    RunLock::is_held(&home, run);
                    RunLock::signed(&home, run);
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
