//! Files that are durable when the call returns: written aside, synced, put in place, and the
//! directory synced.
//!
//! Not here: what is in them (`sealing`), and which of them count (`state_versions`).

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::state::StateName;

use crate::StoreError;
use crate::sealing::{hex, sha256};

/// A home's files. Every path is relative to it.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    home: Arc<Path>,
    #[cfg(test)]
    pub(crate) steps: Arc<std::sync::Mutex<Vec<Step>>>,
}

/// What happened to a write, in order: a test asserts that the head moves last.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    FileSynced,
    FilePlaced,
    DirectorySynced,
    HeadMoved,
}

/// What to do with a file of that name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Present {
    Replace,
    Keep,
}

impl Disk {
    pub(crate) fn new(home: &Path) -> Self {
        Self {
            home: Arc::from(home),
            #[cfg(test)]
            steps: Arc::default(),
        }
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.home.join(relative)
    }

    pub(crate) fn make_home(&self) -> io::Result<()> {
        make_dir(&self.home)
    }

    /// Puts `bytes` there, over what may be there.
    pub(crate) fn write(&self, relative: &str, bytes: &[u8]) -> Result<(), StoreError> {
        self.place(relative, bytes, Present::Replace).map(drop)
    }

    /// Puts `bytes` there unless something is there already; says whether it did.
    pub(crate) fn write_new(&self, relative: &str, bytes: &[u8]) -> Result<bool, StoreError> {
        self.place(relative, bytes, Present::Keep)
    }

    pub(crate) fn read(&self, relative: &str) -> Result<Vec<u8>, StoreError> {
        let path = self.path(relative);
        fs::read(&path).map_err(|source| StoreError::File {
            deed: "read",
            path,
            source,
        })
    }

    pub(crate) fn read_optional(&self, relative: &str) -> Result<Option<Vec<u8>>, StoreError> {
        match self.read(relative) {
            Err(StoreError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Whether a directory holds something besides `this`.
    pub(crate) fn holds_another(&self, relative: &str, this: &str) -> bool {
        let other = |entry: io::Result<fs::DirEntry>| entry.is_ok_and(|e| e.file_name() != this);
        fs::read_dir(self.path(relative)).is_ok_and(|mut entries| entries.any(other))
    }

    /// Removes what no row will ever name. If that fails, it merely takes up room.
    pub(crate) fn forget(&self, relative: &str) {
        let _ = fs::remove_file(self.path(relative));
    }

    #[cfg(test)]
    pub(crate) fn note(&self, step: Step) {
        self.steps.lock().unwrap().push(step);
    }

    fn place(&self, relative: &str, bytes: &[u8], present: Present) -> Result<bool, StoreError> {
        let path = self.path(relative);
        self.try_place(&path, bytes, present)
            .map_err(|source| StoreError::File {
                deed: "write",
                path,
                source,
            })
    }

    fn try_place(&self, path: &Path, bytes: &[u8], present: Present) -> io::Result<bool> {
        let dir = path.parent().unwrap_or(&self.home);
        make_dir(dir)?;
        let aside = Aside(dir.join(format!(".new-{}", uuid::Uuid::new_v4().simple())));
        let mut file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&aside.0)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        #[cfg(test)]
        self.note(Step::FileSynced);
        let placed = match present {
            Present::Replace => fs::rename(&aside.0, path).map(|()| true)?,
            Present::Keep => match fs::hard_link(&aside.0, path) {
                Ok(()) => true,
                Err(err) if err.kind() == io::ErrorKind::AlreadyExists => false,
                Err(err) => return Err(err),
            },
        };
        #[cfg(test)]
        self.note(Step::FilePlaced);
        // Even if another process placed it: it may not have come as far as this line.
        File::open(dir)?.sync_all()?;
        #[cfg(test)]
        self.note(Step::DirectorySynced);
        Ok(placed)
    }
}

/// A file that is not in its place yet; what is left of it goes away.
struct Aside(PathBuf);

impl Drop for Aside {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Makes a directory and its parents, for us alone, each of them durable.
pub(crate) fn make_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent {
        make_dir(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(err) if err.kind() != io::ErrorKind::AlreadyExists => return Err(err),
        _ => {}
    }
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// A state's directory: safe for any name, on file systems that ignore case too, and never the
/// same for two states.
pub(crate) fn state_dir(state: &StateName) -> String {
    let name = encode(&state.name);
    if state.project.is_empty() {
        name
    } else {
        format!("{}~{name}", encode(&state.project))
    }
}

/// Longer ones get a digest for their end: a file name has at most 255 bytes.
const LONGEST_ENCODED: usize = 120;

fn encode(raw: &str) -> String {
    let mut encoded = String::with_capacity(raw.len());
    for byte in raw.bytes() {
        if byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_') {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            encoded.push_str(&hex(&[byte]));
        }
    }
    if encoded.is_empty() {
        return "%".to_owned();
    }
    if encoded.len() <= LONGEST_ENCODED {
        return encoded;
    }
    let digest = hex(&sha256(raw.as_bytes()));
    let start = LONGEST_ENCODED - 36;
    format!("{}%%{}", &encoded[..start], &digest[..32])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(project: &str, name: &str, expected: &str) {
        assert_eq!(state_dir(&StateName::new(project, name)), expected);
    }

    #[test]
    fn directories_of_states() {
        check("", "network", "network");
        check("p-1", "network", "p-1~network");
        check("", "../etc/passwd", "%2e%2e%2fetc%2fpasswd");
        check("", "Prod", "%50rod");
        check("a~b", "c", "a%7eb~c");
        check("", "ü", "%c3%bc");
        check("", "", "%");
        check(
            "",
            &"x".repeat(300),
            &format!("{}%%0d4e2ca9e9cbced7a7a5380eb29e1a37", "x".repeat(84)),
        );
    }

    #[test]
    fn a_file_that_is_there_is_kept() {
        let home = tempfile::tempdir().unwrap();
        let disk = Disk::new(home.path());
        assert!(disk.write_new("keys/a/1", b"first").unwrap());
        assert!(!disk.write_new("keys/a/1", b"second").unwrap());
        assert_eq!(disk.read("keys/a/1").unwrap(), b"first");
        let left: Vec<_> = fs::read_dir(disk.path("keys/a")).unwrap().collect();
        assert_eq!(left.len(), 1);
    }
}
