//! A slot: a directory that is made identical to a snapshot with as few writes as possible. Files that the engine
//! keeps there stay.
//!
//! A manifest beside the directory records each written file and its `stat` data. A file whose `stat` data is
//! unchanged is not read again. The manifest is removed while a slot is being changed, so a crash costs at most a
//! full write.
//!
//! Not here: which run may use a slot, and when (`control`).

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs::{self, DirBuilder, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use globset::{Glob, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};

use super::{FileKind, PackedFile, UnpackError, is_absent, pack, unpack};

#[derive(Clone, Debug)]
pub struct Slot {
    tree: PathBuf,
    manifest: PathBuf,
    keep: GlobSet,
}

/// Statistics of laying out a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayoutStats {
    pub written: usize,
    pub removed: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum LayOutError {
    #[error("could not write `{}` in the slot", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot inspect `{}` in the slot", path.display())]
    Look { path: PathBuf, source: io::Error },
    #[error("could not load the snapshot")]
    Load {
        source: Box<dyn Error + Send + Sync>,
    },
    #[error("could not unpack the snapshot")]
    Unpack { source: UnpackError },
    #[error("the loaded snapshot is a different one: expected {wanted}, got {got}")]
    OtherSnapshot { wanted: String, got: String },
}

#[derive(Serialize, Deserialize)]
struct SlotManifest {
    version: u32,
    digest: String,
    files: BTreeMap<String, SlotFile>,
}

const MANIFEST_VERSION: u32 = 1;

/// A file as it was written.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SlotFile {
    kind: FileKind,
    digest: String,
    look: FileStat,
}

/// The `stat` data of a file; a change of content changes at least one field.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct FileStat {
    mode: u32,
    len: u64,
    inode: u64,
    mtime: (i64, i64),
    ctime: (i64, i64),
}

impl From<&Metadata> for FileStat {
    fn from(metadata: &Metadata) -> Self {
        Self {
            mode: metadata.mode(),
            len: metadata.size(),
            inode: metadata.ino(),
            mtime: (metadata.mtime(), metadata.mtime_nsec()),
            ctime: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// The contents of a slot, without the engine's own files.
#[derive(Default)]
struct SlotContents {
    files: BTreeMap<String, FileStat>,
    /// Parents before children.
    dirs: BTreeSet<String>,
}

impl Slot {
    /// `keep` are globs of paths that stay in the tree although no snapshot has them.
    pub fn new(tree: PathBuf, manifest: PathBuf, keep: &[String]) -> Result<Self, globset::Error> {
        let mut globs = GlobSetBuilder::new();
        for glob in keep {
            globs.add(Glob::new(glob)?);
        }
        Ok(Self {
            tree,
            manifest,
            keep: globs.build()?,
        })
    }

    /// The directory that the engine sees.
    pub fn tree(&self) -> &Path {
        &self.tree
    }

    /// The paths of the snapshot in the slot; none while the slot is being changed.
    pub fn source(&self) -> BTreeSet<String> {
        let manifest = self.manifest().map(|manifest| manifest.files);
        manifest.unwrap_or_default().into_keys().collect()
    }

    /// Makes the tree identical to the snapshot. `load` returns the pack, and is called only if something differs.
    pub fn lay_out<E: Into<Box<dyn Error + Send + Sync>>>(
        &self,
        digest: &str,
        load: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<LayoutStats, LayOutError> {
        let before = self.manifest();
        let mut seen = SlotContents::default();
        self.look("", &mut seen)?;
        if before
            .as_ref()
            .is_some_and(|b| b.digest == digest && self.is_intact(b, &seen))
        {
            return Ok(LayoutStats::default());
        }
        let bytes = load().map_err(|err| LayOutError::Load { source: err.into() })?;
        let files = unpack(&bytes).map_err(|source| LayOutError::Unpack { source })?;
        let (got, digests) = pack::digests(&files);
        if got != digest {
            let wanted = digest.to_owned();
            return Err(LayOutError::OtherSnapshot { wanted, got });
        }
        self.forget()?;
        let before = before.map(|b| b.files).unwrap_or_default();
        let mut manifest = SlotManifest {
            version: MANIFEST_VERSION,
            digest: got,
            files: BTreeMap::new(),
        };
        let files: Vec<_> = files.into_iter().zip(digests).collect();
        let laid_out = self.change(&files, &before, &seen, &mut manifest)?;
        self.remember(&manifest)?;
        Ok(laid_out)
    }

    fn change(
        &self,
        files: &[(PackedFile<'_>, String)],
        before: &BTreeMap<String, SlotFile>,
        seen: &SlotContents,
        manifest: &mut SlotManifest,
    ) -> Result<LayoutStats, LayOutError> {
        let mut laid_out = LayoutStats::default();
        let wanted: BTreeSet<&str> = files.iter().map(|(file, _)| file.path).collect();
        for path in seen.files.keys() {
            let stays = wanted.contains(path.as_str())
                || (!before.contains_key(path) && self.is_kept(path));
            if !stays {
                self.write(path, |place| fs::remove_file(place))?;
                laid_out.removed += 1;
            }
        }
        let dirs = parents(&wanted);
        self.make_room(&wanted, &dirs, seen)?;
        for dir in &dirs {
            self.write(dir, make_dir)?;
        }
        for (file, digest) in files {
            let old = before.get(file.path).filter(|old| {
                let untouched = seen.files.get(file.path) == Some(&old.look);
                untouched && old.kind == file.kind && old.digest == *digest
            });
            let written = if let Some(old) = old {
                old.clone()
            } else {
                laid_out.written += 1;
                let is_there = seen.files.contains_key(file.path);
                SlotFile {
                    kind: file.kind,
                    digest: digest.clone(),
                    look: self.write(file.path, |place| put(place, file, is_there))?,
                }
            };
            manifest.files.insert(file.path.to_owned(), written);
        }
        Ok(laid_out)
    }

    /// Removes directories where the snapshot has a file, and directories that became empty.
    fn make_room(
        &self,
        wanted: &BTreeSet<&str>,
        dirs: &BTreeSet<String>,
        seen: &SlotContents,
    ) -> Result<(), LayOutError> {
        for dir in seen.dirs.iter().rev().filter(|dir| !dirs.contains(*dir)) {
            if wanted.contains(dir.as_str()) {
                self.write(dir, |place| fs::remove_dir_all(place))?;
                continue;
            }
            // A directory that holds files of the engine or of `keep` stays.
            self.write(dir, |place| match fs::remove_dir(place) {
                Err(err) if err.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
                done => done,
            })?;
        }
        Ok(())
    }

    /// Whether the tree still matches the manifest and holds nothing else.
    fn is_intact(&self, manifest: &SlotManifest, seen: &SlotContents) -> bool {
        let same =
            |(path, written): (&String, &SlotFile)| seen.files.get(path) == Some(&written.look);
        let known = |path: &String| manifest.files.contains_key(path) || self.is_kept(path);
        manifest.files.iter().all(same) && seen.files.keys().all(known)
    }

    /// A lock file that is not part of a snapshot was written by the engine.
    fn is_kept(&self, path: &str) -> bool {
        let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
        name == ".terraform.lock.hcl" || self.keep.is_match(path)
    }

    fn look(&self, dir: &str, seen: &mut SlotContents) -> Result<(), LayOutError> {
        let place = self.tree.join(dir);
        let failed = |source| LayOutError::Look {
            path: place.clone(),
            source,
        };
        let entries = match fs::read_dir(&place) {
            Ok(entries) => entries,
            Err(err) if is_absent(&err) && dir.is_empty() => return Ok(()),
            Err(err) => return Err(failed(err)),
        };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            // Only the engine can have created a name that is not UTF-8.
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            if name == ".terraform" {
                continue;
            }
            let path = if dir.is_empty() {
                name
            } else {
                format!("{dir}/{name}")
            };
            let metadata = entry.metadata().map_err(failed)?; // of the entry, not of a link's target
            if metadata.is_dir() {
                self.look(&path, seen)?;
                seen.dirs.insert(path);
            } else {
                seen.files.insert(path, FileStat::from(&metadata));
            }
        }
        Ok(())
    }

    fn write<T>(
        &self,
        path: &str,
        action: impl FnOnce(&Path) -> io::Result<T>,
    ) -> Result<T, LayOutError> {
        let place = self.tree.join(path);
        action(&place).map_err(|source| LayOutError::Write {
            path: place.clone(),
            source,
        })
    }

    /// The manifest of the last layout; a damaged one counts as missing.
    fn manifest(&self) -> Option<SlotManifest> {
        let bytes = fs::read(&self.manifest).ok()?;
        let manifest: SlotManifest = serde_json::from_slice(&bytes).ok()?;
        (manifest.version == MANIFEST_VERSION).then_some(manifest)
    }

    fn forget(&self) -> Result<(), LayOutError> {
        match fs::remove_file(&self.manifest) {
            Err(err) if !is_absent(&err) => Err(self.manifest_error(err)),
            _ => Ok(()),
        }
    }

    fn remember(&self, manifest: &SlotManifest) -> Result<(), LayOutError> {
        let new = self.manifest.with_extension("new");
        let written = serde_json::to_vec(manifest)
            .map_err(io::Error::from)
            .and_then(|bytes| fs::write(&new, bytes))
            .and_then(|()| fs::rename(&new, &self.manifest));
        written.map_err(|err| self.manifest_error(err))
    }

    fn manifest_error(&self, source: io::Error) -> LayOutError {
        LayOutError::Write {
            path: self.manifest.clone(),
            source,
        }
    }
}

/// Directories of these paths, and the root as `""`; parents first.
fn parents(paths: &BTreeSet<&str>) -> BTreeSet<String> {
    let mut dirs = BTreeSet::from([String::new()]);
    for path in paths {
        dirs.extend(path.match_indices('/').map(|(at, _)| path[..at].to_owned()));
    }
    dirs
}

fn make_dir(place: &Path) -> io::Result<()> {
    // Not recursive: parents come first, and `is_dir` would follow a link.
    let recursive = !place.parent().is_some_and(Path::is_dir);
    match DirBuilder::new()
        .mode(0o700)
        .recursive(recursive)
        .create(place)
    {
        Err(err) if err.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        done => done,
    }
}

/// Replaces a file: removes an existing one first, so that nothing is written through a link.
fn put(place: &Path, file: &PackedFile<'_>, is_there: bool) -> io::Result<FileStat> {
    if is_there {
        fs::remove_file(place)?;
    }
    let mode = match file.kind {
        FileKind::Plain => 0o600,
        FileKind::Executable => 0o700,
        FileKind::Link => {
            let target = std::str::from_utf8(file.content).map_err(io::Error::other)?;
            std::os::unix::fs::symlink(target, place)?;
            return Ok(FileStat::from(&fs::symlink_metadata(place)?));
        }
    };
    let mut new = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(place)?;
    new.write_all(file.content)?;
    Ok(FileStat::from(&new.metadata()?))
}
