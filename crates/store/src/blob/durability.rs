//! Observes file operations step by step. In a release nothing happens here. A test sees the order of the steps, can
//! stop the machine before any of them, and then discards what was not synced.
//!
//! Not here: the operations themselves (`disk`, `segments`). SQLite syncs its own files.

use std::io;
use std::path::Path;

/// Shared by all writers of one home.
#[derive(Clone, Debug, Default)]
pub(crate) struct SyncWatch {
    #[cfg(test)]
    machine: std::sync::Arc<std::sync::Mutex<testing::Machine>>,
}

#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "only tests look at the paths"))]
pub(crate) enum SyncStep<'a> {
    /// Bytes are appended to a file.
    Append(&'a Path),
    SyncFile(&'a Path),
    /// A name appears in a directory.
    Name(&'a Path),
    SyncDirectory(&'a Path),
    /// The transaction that moves heads commits.
    Commit,
}

#[cfg(not(test))]
impl SyncWatch {
    #[expect(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "a test may refuse the step"
    )]
    pub(crate) fn before(&self, _step: SyncStep<'_>) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs::{self, File};
    use std::path::PathBuf;

    use super::*;

    #[derive(Debug, Default)]
    pub(super) struct Machine {
        steps: Vec<String>,
        /// Steps until the machine stops.
        left: Option<usize>,
        /// How many bytes of a file are synced, for files that hold more.
        synced: BTreeMap<PathBuf, u64>,
        /// Names that are not synced in their directory.
        names: BTreeSet<PathBuf>,
    }

    impl SyncWatch {
        pub(crate) fn before(&self, step: SyncStep<'_>) -> io::Result<()> {
            let mut machine = self.machine.lock().unwrap();
            if machine.left == Some(0) {
                return Err(io::Error::other("the machine is off"));
            }
            machine.left = machine.left.map(|left| left - 1);
            let word = match step {
                SyncStep::Append(path) => {
                    let length = fs::metadata(path)?.len();
                    machine.synced.entry(path.to_owned()).or_insert(length);
                    "append"
                }
                SyncStep::SyncFile(path) => {
                    machine.synced.remove(path);
                    "sync file"
                }
                SyncStep::Name(path) => {
                    if !path.exists() {
                        machine.names.insert(path.to_owned());
                    }
                    "name"
                }
                SyncStep::SyncDirectory(dir) => {
                    machine.names.retain(|path| path.parent() != Some(dir));
                    "sync directory"
                }
                SyncStep::Commit => "commit",
            };
            machine.steps.push(word.to_owned());
            Ok(())
        }

        /// The steps since the last call.
        pub(crate) fn steps(&self) -> Vec<String> {
            std::mem::take(&mut self.machine.lock().unwrap().steps)
        }

        pub(crate) fn die_after(&self, steps: usize) {
            self.machine.lock().unwrap().left = Some(steps);
        }

        /// Simulates a power failure: `dice` decides how much of the unsynced data stays, and that may be
        /// zeros.
        pub(crate) fn lose_unsynced(&self, mut dice: impl FnMut(u64) -> u64) {
            let mut machine = self.machine.lock().unwrap();
            machine.left = Some(0);
            for path in std::mem::take(&mut machine.names) {
                if dice(2) == 0 {
                    let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
                }
            }
            for (path, safe) in std::mem::take(&mut machine.synced) {
                let Ok(file) = File::options().write(true).open(&path) else {
                    continue;
                };
                let length = file.metadata().unwrap().len();
                let kept = safe + dice(length - safe + 1);
                file.set_len(safe + dice(kept - safe + 1)).unwrap();
                file.set_len(kept).unwrap();
            }
        }
    }
}
