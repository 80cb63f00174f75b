//! Finds the processes that have a file open, and with it its lock: an inherited descriptor keeps a lock after the
//! process that took it is gone. The kernel's own list of locks names only the processes that took them.

use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::{fs, io};

/// A process that has a file open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileHolder {
    pub pid: u32,
    /// The file name of its program. The command line is not shown: it may hold a secret that an engine passed to
    /// it.
    pub program: Option<String>,
    pub is_runner: bool,
}

/// Other processes of our user that have this file open; empty where the system does not provide this. Reads
/// the descriptors of every process and is slow.
pub fn holders(path: &Path) -> Vec<FileHolder> {
    FileId::of(path).map_or_else(|_| Vec::new(), holders_of)
}

/// Identifies the file behind a descriptor, which may be a pipe.
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

    /// The file of an open descriptor; `None` where the system does not provide this.
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

/// Whether a process has a file open, which also shows that the PID was not reused. A runner's descriptors cannot
/// be read (`keep_to_ourselves`), so for a runner its command line is checked instead.
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
    // The kernel adds this suffix if the file has been deleted.
    let name = name.strip_suffix(" (deleted)").unwrap_or(&name);
    Some(name.replace(char::is_control, "?"))
}
