//! The files of a rendering on disk: finds templates, reads and writes generated files. No write leaves the
//! project through a link.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use drivers::snapshot::sha256;
use model::render::decide::FileFacts;
use model::render::join;

#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    #[error("could not read `{path}`")]
    Read { path: String, source: io::Error },
    #[error("could not write `{path}`")]
    Write { path: String, source: io::Error },
    #[error("could not remove `{path}`")]
    Remove { path: String, source: io::Error },
    #[error("`{path}` is a symbolic link, which terrane does not follow here")]
    Link { path: String },
    #[error("`{path}` points outside the project")]
    Outside { path: String },
    #[error("`{path}` is not a file")]
    NotAFile { path: String },
    #[error("`{path}` is not a directory")]
    NotADirectory { path: String },
    #[error("the name of a file in `{dir}` is not UTF-8")]
    Name { dir: String },
}

/// A file below a template directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TemplateFile {
    /// The path below that directory, by which other templates refer to it.
    pub(crate) path: String,
    /// The path from the project's root.
    pub(crate) file: String,
    /// The index of its template directory.
    pub(crate) layer: usize,
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_executable: bool,
}

/// Prefix of a temporary file that is not renamed yet.
const ASIDE: &str = ".terrane-new-";

pub(crate) struct ProjectFiles {
    root: PathBuf,
}

impl ProjectFiles {
    /// `root` has no links in its path.
    pub(crate) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The content of a file; `None` if it does not exist. A link must stay inside the project.
    pub(crate) fn read(&self, path: &str) -> Result<Option<Vec<u8>>, DiskError> {
        let failed = |source| DiskError::Read {
            path: path.to_owned(),
            source,
        };
        let Some(real) = self.inside(path)? else {
            return Ok(None);
        };
        if !real.is_file() {
            return Err(DiskError::NotAFile {
                path: path.to_owned(),
            });
        }
        fs::read(&real).map(Some).map_err(failed)
    }

    /// The path with links resolved; `None` if it does not exist.
    fn inside(&self, path: &str) -> Result<Option<PathBuf>, DiskError> {
        let path = path.to_owned();
        match self.root.join(&path).canonicalize() {
            Ok(real) if real.starts_with(&self.root) => Ok(Some(real)),
            Ok(_) => Err(DiskError::Outside { path }),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(DiskError::Read { path, source }),
        }
    }

    /// All files below the directories, sorted within each. If several directories have the same path, the first
    /// wins. Linked directories are left out.
    pub(crate) fn templates(&self, dirs: &[String]) -> Result<Vec<TemplateFile>, DiskError> {
        let mut all: Vec<TemplateFile> = Vec::new();
        let mut known: BTreeSet<String> = BTreeSet::new();
        for (layer, dir) in dirs.iter().enumerate() {
            if !self.inside(dir)?.is_some_and(|real| real.is_dir()) {
                return Err(DiskError::NotADirectory { path: dir.clone() });
            }
            let mut found = Vec::new();
            self.collect(dir, "", &mut found)?;
            found.sort_by(|one, other| one.path.cmp(&other.path));
            found.retain(|file| known.insert(file.path.clone()));
            all.extend(found.into_iter().map(|file| TemplateFile { layer, ..file }));
        }
        Ok(all)
    }

    fn collect(
        &self,
        dir: &str,
        below: &str,
        found: &mut Vec<TemplateFile>,
    ) -> Result<(), DiskError> {
        let here = join(dir, below);
        let here = here.trim_end_matches('/');
        let failed = |source| DiskError::Read {
            path: here.to_owned(),
            source,
        };
        for entry in fs::read_dir(self.root.join(here)).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let name = name.to_str().ok_or_else(|| DiskError::Name {
                dir: here.to_owned(),
            })?;
            let path = join(below, name);
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() {
                self.collect(dir, &path, found)?;
                continue;
            }
            let full = join(here, name);
            let place = self.root.join(&full);
            if kind.is_symlink() && place.is_dir() {
                continue;
            }
            // Only a link can lead elsewhere: the directories above the file are no links.
            let bytes = if kind.is_file() {
                Some(fs::read(&place).map_err(failed)?)
            } else {
                self.read(&full)?
            };
            let bytes = bytes.ok_or_else(|| DiskError::Link { path: full.clone() })?;
            let mode = fs::metadata(&place).map_err(failed)?;
            found.push(TemplateFile {
                path,
                file: full,
                layer: 0,
                bytes,
                is_executable: mode.permissions().mode() & 0o100 != 0,
            });
        }
        Ok(())
    }

    /// An existing generated file, with its content.
    pub(crate) fn look(&self, path: &str) -> Result<Option<(FileFacts, Vec<u8>)>, DiskError> {
        if !self.is_reachable(path)? {
            return Ok(None);
        }
        let full = self.root.join(path);
        let failed = |source| DiskError::Read {
            path: path.to_owned(),
            source,
        };
        let known = match fs::symlink_metadata(&full) {
            Ok(known) => known,
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(err) => return Err(failed(err)),
        };
        if known.is_symlink() {
            return Err(DiskError::Link {
                path: path.to_owned(),
            });
        }
        if !known.is_file() {
            return Err(DiskError::NotAFile {
                path: path.to_owned(),
            });
        }
        let bytes = fs::read(&full).map_err(failed)?;
        let facts = FileFacts {
            digest: digest(&bytes),
            is_executable: known.permissions().mode() & 0o100 != 0,
        };
        Ok(Some((facts, bytes)))
    }

    /// Whether every directory above a file exists; a link among them is an error.
    fn is_reachable(&self, path: &str) -> Result<bool, DiskError> {
        let mut here = String::new();
        let parts: Vec<&str> = path.split('/').collect();
        for part in &parts[..parts.len() - 1] {
            here = join(&here, part);
            match fs::symlink_metadata(self.root.join(&here)) {
                Ok(known) if known.is_dir() => {}
                Ok(known) if known.is_symlink() => return Err(DiskError::Link { path: here }),
                Ok(_) => return Err(DiskError::NotADirectory { path: here }),
                Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(false),
                Err(source) => return Err(DiskError::Read { path: here, source }),
            }
        }
        Ok(true)
    }

    /// Writes a file atomically.
    pub(crate) fn write(
        &self,
        path: &str,
        bytes: &[u8],
        is_executable: bool,
    ) -> Result<(), DiskError> {
        self.is_reachable(path)?;
        let full = self.root.join(path);
        let dir = full.parent().unwrap_or(&self.root);
        let write = || -> io::Result<()> {
            fs::create_dir_all(dir)?;
            let mut file = tempfile::Builder::new().prefix(ASIDE).tempfile_in(dir)?;
            // The lock shows that the writer is alive; `sweep` removes unlocked files.
            file.as_file().lock()?;
            file.write_all(bytes)?;
            let mode = if is_executable { 0o755 } else { 0o644 };
            file.as_file()
                .set_permissions(Permissions::from_mode(mode))?;
            file.persist(&full)?;
            Ok(())
        };
        write().map_err(|source| DiskError::Write {
            path: path.to_owned(),
            source,
        })
    }

    /// Like [`Self::write`], and synced to disk.
    pub(crate) fn write_durably(&self, path: &str, bytes: &[u8]) -> Result<(), DiskError> {
        self.write(path, bytes, false)?;
        let full = self.root.join(path);
        let sync = || -> io::Result<()> {
            File::open(&full)?.sync_all()?;
            File::open(full.parent().unwrap_or(&self.root))?.sync_all()
        };
        sync().map_err(|source| DiskError::Write {
            path: path.to_owned(),
            source,
        })
    }

    /// Removes temporary files that killed processes left in the directories of these files.
    pub(crate) fn sweep<'a>(&self, paths: impl Iterator<Item = &'a str>) -> Result<(), DiskError> {
        let dir_of = |path: &'a str| path.rsplit_once('/').map_or("", |(dir, _)| dir);
        let dirs: BTreeSet<&str> = paths.map(dir_of).collect();
        for dir in dirs {
            let Ok(entries) = fs::read_dir(self.root.join(dir)) else {
                continue; // the directory does not exist
            };
            for entry in entries.flatten() {
                let is_aside = entry.file_name().to_string_lossy().starts_with(ASIDE);
                let is_left = || {
                    let file = File::options().write(true).open(entry.path());
                    file.is_ok_and(|file| file.try_lock().is_ok())
                };
                if is_aside && is_left() {
                    fs::remove_file(entry.path()).map_err(|source| DiskError::Remove {
                        path: entry.path().display().to_string(),
                        source,
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Removes a file, and its parent directories that become empty, up to `stop`.
    pub(crate) fn remove(&self, path: &str, stop: &str) -> Result<(), DiskError> {
        self.is_reachable(path)?;
        fs::remove_file(self.root.join(path)).map_err(|source| DiskError::Remove {
            path: path.to_owned(),
            source,
        })?;
        let mut here = path;
        while let Some((dir, _)) = here.rsplit_once('/') {
            // A directory that is not empty stays.
            if dir == stop || fs::remove_dir(self.root.join(dir)).is_err() {
                break;
            }
            here = dir;
        }
        Ok(())
    }
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", sha256(bytes))
}
