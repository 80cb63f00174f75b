//! Which processes have a file open, and with it the lock on it: a descriptor that was inherited keeps a lock long after
//! whoever took it is gone. The kernel's own list of locks names only who took them.

use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::{fs, io};

/// A process that has a file open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileHolder {
    pub pid: u32,
    /// Its words, as it was started; may hold a secret.
    pub command: Vec<String>,
}

/// Those of our user's processes, but ourselves, that have this file open; none where the system does not tell. Every
/// process is looked at, which takes its time.
pub fn holders(path: &Path) -> Vec<FileHolder> {
    FileId::of(path).map_or_else(|_| Vec::new(), holders_of)
}

/// What makes two descriptors one file: a pipe, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(path: &Path) -> io::Result<Self> {
        let seen = fs::metadata(path)?;
        Ok(Self {
            device: seen.dev(),
            inode: seen.ino(),
        })
    }

    /// Of an open descriptor; nothing where the system does not tell.
    pub(super) fn of_open(open: &impl AsRawFd) -> Option<Self> {
        let path = format!("/proc/self/fd/{}", open.as_raw_fd());
        Self::of(Path::new(&path)).ok()
    }
}

pub(super) fn holders_of(file: FileId) -> Vec<FileHolder> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        if pid != std::process::id() && opens(pid, file).unwrap_or(false) {
            let command = command(&entry.path());
            found.push(FileHolder { pid, command });
        }
    }
    found.sort_by_key(|holder| holder.pid);
    found
}

/// Whether one process has a file open: also whether it is still the one that was meant by this number. A runner does not
/// let itself be looked into (`keep_to_ourselves`): that it is one must do.
pub fn has_open(pid: u32, path: &Path) -> bool {
    let process = format!("/proc/{pid}");
    match FileId::of(path).and_then(|file| opens(pid, file)) {
        Err(err) if err.kind() == io::ErrorKind::PermissionDenied => {
            let words = command(Path::new(&process));
            words.get(1).is_some_and(|word| word == "runner")
        }
        seen => seen.unwrap_or(false),
    }
}

fn opens(pid: u32, file: FileId) -> io::Result<bool> {
    let is_it = |open: &Path| FileId::of(open).is_ok_and(|seen| seen == file);
    let mut open = fs::read_dir(format!("/proc/{pid}/fd"))?.flatten();
    Ok(open.any(|open| is_it(&open.path())))
}

fn command(process: &Path) -> Vec<String> {
    let bytes = fs::read(process.join("cmdline")).unwrap_or_default();
    let words = bytes.split(|byte| *byte == 0);
    words
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect()
}
