//! File trees for `model` to read: a directory, or a Git commit.
//!
//! Not here: which files belong to a snapshot (`snapshot`).

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use model::base::tree::{ReadFailure, Tree, TreeEntry};
use rustix::fs::OFlags;

use crate::git::{BlobReader, GitError, Repository};

/// The maximum number of bytes read from one file.
const LIMIT: u64 = 5 * 1024 * 1024;

/// Below this number of files, starting threads takes longer than reading.
const WORTH_THREADS: usize = 64;

/// A directory. Symbolic links are followed only inside it; other links count as missing.
#[derive(Debug)]
pub struct DirTree {
    /// The path with links resolved.
    root: PathBuf,
    /// Resolved paths of directories inside the root: a thousand stacks read few directories often.
    dirs: Mutex<HashMap<String, Option<PathBuf>>>,
    /// The repository that contains it, for the list of ignored directories.
    repository: Option<Repository>,
    ignored: OnceLock<BTreeSet<String>>,
}

impl DirTree {
    pub fn new(root: &Path) -> io::Result<Self> {
        Self::in_repository(root, None)
    }

    /// A tree without the directories that Git ignores.
    pub fn in_repository(root: &Path, repository: Option<&Repository>) -> io::Result<Self> {
        Ok(Self {
            root: root.canonicalize()?,
            dirs: Mutex::default(),
            repository: repository.cloned(),
            ignored: OnceLock::new(),
        })
    }

    /// Read at most once. If Git fails, nothing is ignored; the snapshot then reports the error.
    fn ignored(&self) -> &BTreeSet<String> {
        self.ignored.get_or_init(|| {
            let known = self.repository.as_ref().map(Repository::ignored_dirs);
            known.and_then(Result::ok).unwrap_or_default()
        })
    }

    fn dir(&self, dir: &str) -> Option<PathBuf> {
        let dirs = self.dirs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = dirs.get(dir) {
            return known.clone();
        }
        drop(dirs);
        let real = self.find_dir(dir);
        let mut dirs = self.dirs.lock().unwrap_or_else(PoisonError::into_inner);
        dirs.insert(dir.to_owned(), real.clone());
        real
    }

    /// Starts from the cached parent: one system call per step, unless there is a link.
    fn find_dir(&self, dir: &str) -> Option<PathBuf> {
        if dir.is_empty() {
            return Some(self.root.clone());
        }
        let (parent, name) = dir.rsplit_once('/').unwrap_or(("", dir));
        if !is_plain(name) {
            return None;
        }
        let place = self.dir(parent)?.join(name);
        let found = fs::symlink_metadata(&place).ok()?;
        if found.is_symlink() {
            return self.inside(&place);
        }
        found.is_dir().then_some(place)
    }

    /// The resolved path, if it is inside the root.
    fn inside(&self, path: &Path) -> Option<PathBuf> {
        let real = path.canonicalize().ok()?;
        real.starts_with(&self.root).then_some(real)
    }

    fn open(&self, path: &str) -> io::Result<File> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let dir = self.dir(dir).ok_or(io::ErrorKind::NotFound)?;
        if !is_plain(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        match open_itself(&dir.join(name)) {
            // It is a link.
            Err(err) if err.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
                let real = self
                    .inside(&dir.join(name))
                    .ok_or(io::ErrorKind::NotFound)?;
                open_itself(&real)
            }
            opened => opened,
        }
    }
}

/// Opens the file itself: not through a link, and without waiting for the writer of a pipe.
pub(crate) fn open_itself(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

impl Tree for DirTree {
    fn read(&self, path: &str) -> Result<Vec<u8>, ReadFailure> {
        let failed = |err: io::Error| match err.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ReadFailure::Missing,
            _ => ReadFailure::Other(err.to_string()),
        };
        let file = self.open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(ReadFailure::Other("it is not a file".to_owned()));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len().min(LIMIT)).unwrap_or(0));
        file.take(LIMIT + 1)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        if bytes.len() as u64 > LIMIT {
            return Err(ReadFailure::TooLarge { limit: LIMIT });
        }
        Ok(bytes)
    }

    fn is_source(&self, dir: &str) -> bool {
        let mut above = std::iter::successors(Some(dir), |dir| Some(dir.rsplit_once('/')?.0));
        !above.any(|dir| self.ignored().contains(dir))
    }

    fn list(&self, dir: &str) -> Option<Vec<TreeEntry>> {
        let real = self.dir(dir)?;
        let mut entries: Vec<TreeEntry> = fs::read_dir(&real)
            .ok()?
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let kind = entry.file_type().ok()?;
                let is_dir = if kind.is_symlink() {
                    self.inside(&entry.path())?.is_dir()
                } else {
                    kind.is_dir()
                };
                // A name that is not UTF-8 cannot be referenced in any file that we read.
                let name = entry.file_name().into_string().ok()?;
                Some(TreeEntry { name, is_dir })
            })
            .collect();
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Some(entries)
    }

    fn leads_out(&self, path: &str) -> bool {
        let parts: Vec<&str> = path.split('/').collect();
        let upto = (1..=parts.len()).map(|end| parts[..end].join("/"));
        let mut steps = upto.map(|step| self.root.join(step));
        let is_plain = parts.iter().all(|part| is_plain(part));
        is_plain && steps.any(|step| step.exists() && self.inside(&step).is_none())
    }

    fn share_out(&self, count: usize, action: &(dyn Fn(usize) + Sync)) {
        let processors = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let next = AtomicUsize::new(0);
        let work = || {
            while let at = next.fetch_add(1, Ordering::Relaxed)
                && at < count
            {
                action(at);
            }
        };
        thread::scope(|scope| {
            if count >= WORTH_THREADS {
                (1..processors).for_each(|_| drop(scope.spawn(work)));
            }
            work();
        });
    }
}

/// A commit, below the project's root. Submodules are not included.
#[derive(Debug)]
pub struct CommitTree {
    files: BTreeMap<String, CommittedFile>,
    blobs: Mutex<BlobReader>,
}

#[derive(Debug)]
struct CommittedFile {
    id: String,
    is_link: bool,
}

impl CommitTree {
    pub fn new(repository: &Repository, commit: &str) -> Result<Self, GitError> {
        let files = repository.blobs_at(commit)?.into_iter();
        let files = files.map(|(path, (mode, id))| {
            let is_link = mode == "120000";
            (path, CommittedFile { id, is_link })
        });
        Ok(Self {
            files: files.collect(),
            blobs: Mutex::new(repository.blobs()?),
        })
    }

    fn blob(&self, id: &str) -> Result<Vec<u8>, ReadFailure> {
        let mut blobs = self.blobs.lock().unwrap_or_else(PoisonError::into_inner);
        blobs.read(id, LIMIT)
    }

    /// The path with links resolved; `None` if it leads outside or in a circle.
    fn resolved(&self, path: &str) -> Option<String> {
        let mut path = path.to_owned();
        for _ in 0..16 {
            let ends = path
                .match_indices('/')
                .map(|(at, _)| at)
                .chain([path.len()]);
            let mut heads = ends.map(|at| &path[..at]);
            let Some(link) = heads.find(|head| self.files.get(*head).is_some_and(|f| f.is_link))
            else {
                return Some(path);
            };
            let target = String::from_utf8(self.blob(&self.files[link].id).ok()?).ok()?;
            let dir = link.rsplit_once('/').map_or("", |(dir, _)| dir);
            path = normalised(dir, &format!("{target}{}", &path[link.len()..]))?;
        }
        None
    }
}

impl Tree for CommitTree {
    fn read(&self, path: &str) -> Result<Vec<u8>, ReadFailure> {
        let path = self.resolved(path).ok_or(ReadFailure::Missing)?;
        let file = self.files.get(&path).ok_or(ReadFailure::Missing)?;
        self.blob(&file.id)
    }

    fn list(&self, dir: &str) -> Option<Vec<TreeEntry>> {
        let dir = self.resolved(dir)?;
        let prefix = if dir.is_empty() {
            dir
        } else {
            format!("{dir}/")
        };
        let below = self.files.range(prefix.clone()..);
        let below = below.map_while(|(path, file)| Some((path.strip_prefix(&prefix)?, file)));
        let mut entries: BTreeMap<String, bool> = BTreeMap::new();
        for (rest, file) in below {
            let (name, mut is_dir) = match rest.split_once('/') {
                Some((name, _)) => (name, true),
                None => (rest, false),
            };
            if file.is_link && !is_dir {
                let Some(target) = self.resolved(&format!("{prefix}{name}")) else {
                    continue;
                };
                is_dir = !self.files.contains_key(&target);
            }
            entries.insert(name.to_owned(), is_dir);
        }
        let found = !entries.is_empty() || prefix.is_empty();
        let entries = entries
            .into_iter()
            .map(|(name, is_dir)| TreeEntry { name, is_dir });
        found.then(|| entries.collect())
    }
}

/// `path` relative to `dir`, without `.` and `..`; `None` if it leaves the root.
pub fn normalised(dir: &str, path: &str) -> Option<String> {
    if path.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = dir.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Whether a path has only normal components.
fn is_plain(path: &str) -> bool {
    path.is_empty()
        || path
            .split('/')
            .all(|part| !matches!(part, "" | "." | "..") && !part.contains('\0'))
}
