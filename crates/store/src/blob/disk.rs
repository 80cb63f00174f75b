//! A home's files: small ones that are durable when the call returns (written under another name, synced, renamed, and
//! the directory synced), and segments.
//!
//! Not here: what the files mean (`key`, `state`).

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::StoreError;
use crate::blob::durability::{SyncStep, SyncWatch};
use crate::blob::files::begin_dir;
use crate::blob::segments::shared::AppendQueue;
use crate::blob::segments::{FrameLocation, Segments, read_at};

/// A home's files. Every path is relative to it.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    home: Arc<Path>,
    pub(crate) watch: SyncWatch,
    pub(crate) segments: Arc<Segments>,
    /// Only in a server, whose writers share their syncs; created by the first of them.
    shared: Option<Arc<OnceLock<AppendQueue>>>,
}

/// What to do if the file exists.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IfPresent {
    Replace,
    Keep,
}

impl Disk {
    pub(crate) fn new(home: &Path) -> Self {
        let watch = SyncWatch::default();
        Self {
            home: Arc::from(home),
            segments: Arc::new(Segments::new(home, watch.clone())),
            watch,
            shared: None,
        }
    }

    /// From now on writers share their syncs.
    pub(crate) fn serve(&mut self) {
        self.shared = Some(Arc::default());
    }

    pub(crate) fn appends(&self) -> Option<&AppendQueue> {
        let begin = || AppendQueue::new(Arc::clone(&self.segments));
        Some(self.shared.as_ref()?.get_or_init(begin))
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.home.join(relative)
    }

    /// Writes a file, replacing an existing one.
    pub(crate) fn write(&self, relative: &str, bytes: &[u8]) -> Result<(), StoreError> {
        self.place(relative, bytes, IfPresent::Replace).map(drop)
    }

    /// Writes a file unless it exists; returns whether it did.
    pub(crate) fn write_new(&self, relative: &str, bytes: &[u8]) -> Result<bool, StoreError> {
        self.place(relative, bytes, IfPresent::Keep)
    }

    pub(crate) fn read(&self, relative: &str) -> Result<Vec<u8>, StoreError> {
        let path = self.path(relative);
        fs::read(&path).map_err(|source| StoreError::File {
            action: "read",
            path,
            source,
        })
    }

    /// The names of the files in a directory; none if it does not exist.
    pub(crate) fn list(&self, relative: &str) -> Result<Vec<String>, StoreError> {
        let path = self.path(relative);
        let list = || -> io::Result<Vec<String>> {
            let entries = match fs::read_dir(&path) {
                Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                entries => entries?,
            };
            let name = |entry: io::Result<fs::DirEntry>| {
                entry.map(|entry| entry.file_name().to_string_lossy().into_owned())
            };
            let names: io::Result<Vec<String>> = entries.map(name).collect();
            let mut names = names?;
            names.retain(|name| !name.starts_with(ASIDE));
            names.sort();
            Ok(names)
        };
        list().map_err(|source| StoreError::File {
            action: "list",
            path: path.clone(),
            source,
        })
    }

    /// Checks that bytes can be written; their content means nothing.
    pub(crate) fn check_room(&self) -> Result<(), StoreError> {
        const SOME: [u8; 4096] = [0; 4096];
        let path = self.path(".ready");
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600);
        let written = options
            .open(&path)
            .and_then(|mut file| file.write_all(&SOME));
        written.map_err(|source| StoreError::File {
            action: "write",
            path,
            source,
        })
    }

    pub(crate) fn remove(&self, relative: &str) -> Result<(), StoreError> {
        let path = self.path(relative);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(StoreError::File {
                action: "remove",
                path,
                source,
            }),
            _ => Ok(()),
        }
    }

    pub(crate) fn read_frame(&self, place: &FrameLocation) -> Result<Vec<u8>, StoreError> {
        let path = self.path(&format!("{}.seg", place.object));
        read_at(&path, place).map_err(|source| StoreError::File {
            action: "read",
            path,
            source,
        })
    }

    fn place(&self, relative: &str, bytes: &[u8], present: IfPresent) -> Result<bool, StoreError> {
        let path = self.path(relative);
        self.try_place(&path, bytes, present)
            .map_err(|source| StoreError::File {
                action: "write",
                path,
                source,
            })
    }

    fn try_place(&self, path: &Path, bytes: &[u8], present: IfPresent) -> io::Result<bool> {
        let dir = path.parent().unwrap_or(&self.home);
        let mut parents = begin_dir(dir, &mut |dir| self.watch.before(SyncStep::Name(dir)))?;
        let aside = TempFile(dir.join(format!("{ASIDE}{}", uuid::Uuid::new_v4().simple())));
        let mut options = File::options();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&aside.0)?;
        file.write_all(bytes)?;
        self.watch.before(SyncStep::SyncFile(&aside.0))?;
        file.sync_all()?;
        self.watch.before(SyncStep::Name(path))?;
        let placed = match present {
            IfPresent::Replace => fs::rename(&aside.0, path).map(|()| true)?,
            IfPresent::Keep => match fs::hard_link(&aside.0, path) {
                Ok(()) => true,
                Err(err) if err.kind() == io::ErrorKind::AlreadyExists => false,
                Err(err) => return Err(err),
            },
        };
        // Even if another process created it: that process may not have synced it yet, nor its directory.
        self.sync_dir(dir)?;
        if !placed {
            parents.extend(dir.parent().map(Path::to_owned));
        }
        // Last: on most file systems the file's own sync has already written it.
        for parent in &parents {
            self.sync_dir(parent)?;
        }
        Ok(placed)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.watch.before(SyncStep::SyncDirectory(dir))?;
        File::open(dir)?.sync_all()
    }
}

const ASIDE: &str = ".new-";

/// A file under its temporary name; removed when dropped.
struct TempFile(PathBuf);

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_there_is_kept() {
        let home = tempfile::tempdir().unwrap();
        let disk = Disk::new(home.path());
        assert!(disk.write_new("keys/a/1", b"first").unwrap());
        assert!(!disk.write_new("keys/a/1", b"second").unwrap());
        assert_eq!(disk.read("keys/a/1").unwrap(), b"first");
        assert_eq!(disk.list("keys/a").unwrap(), ["1"]);
        assert!(disk.list("keys/b").unwrap().is_empty());
        disk.remove("keys/a/1").unwrap();
        disk.remove("keys/a/1").unwrap();
    }
}
