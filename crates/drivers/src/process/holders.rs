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
    /// The file's name of what it runs. How it was started is nobody's to show: what an engine hands to a program may be
    /// a secret that only the engine knows.
    pub program: Option<String>,
    pub is_runner: bool,
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
            found.push(FileHolder {
                pid,
                program: program(&entry.path()),
                is_runner: is_runner(&entry.path()),
            });
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
        Err(err) if err.kind() == io::ErrorKind::PermissionDenied => is_runner(Path::new(&process)),
        seen => seen.unwrap_or(false),
    }
}

fn opens(pid: u32, file: FileId) -> io::Result<bool> {
    let is_it = |open: &Path| FileId::of(open).is_ok_and(|seen| seen == file);
    let mut open = fs::read_dir(format!("/proc/{pid}/fd"))?.flatten();
    Ok(open.any(|open| is_it(&open.path())))
}

fn is_runner(process: &Path) -> bool {
    let bytes = fs::read(process.join("cmdline")).unwrap_or_default();
    bytes.split(|byte| *byte == 0).nth(1) == Some(b"runner")
}

fn program(process: &Path) -> Option<String> {
    let file = fs::read_link(process.join("exe")).ok()?;
    let name = file.file_name()?.to_string_lossy();
    // The system's own words, if the file is gone meanwhile.
    let name = name.strip_suffix(" (deleted)").unwrap_or(&name);
    Some(name.replace(char::is_control, "?"))
}
