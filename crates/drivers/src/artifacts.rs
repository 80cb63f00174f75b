//! Finds, restores and removes artifacts in a directory. Nothing is read or written through a symbolic link.
//!
//! Not here: which files are artifacts and how much is kept (`model::stage::artifact`), when (`control::runner`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, FileType, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use model::stage::artifact::{Artifact, ArtifactGlobs, ArtifactRefusal, ArtifactSet};
use rustix::fs::OFlags;

use crate::tree::open_itself;

#[cfg(test)]
mod tests;

/// A stack's directory and the globs of its artifacts.
#[derive(Clone, Debug)]
pub struct ArtifactDir {
    pub dir: PathBuf,
    pub globs: ArtifactGlobs,
    /// Files that a glob matches but that are not artifacts: source files and files of contexts.
    pub others: BTreeSet<String>,
}

#[derive(Debug, Default)]
pub struct CollectedArtifacts {
    pub set: ArtifactSet,
    /// Files that match but were not taken, with the reason.
    pub refused: BTreeMap<String, ArtifactRefusal>,
}

impl ArtifactDir {
    /// Reads every matching file, by path, up to the size limit.
    pub fn gather(&self) -> io::Result<CollectedArtifacts> {
        let mut gathered = CollectedArtifacts::default();
        for (path, kind) in self.walk()? {
            let taken = match path.to_str() {
                None => Err(ArtifactRefusal::Name),
                Some(_) if kind.is_symlink() => Err(ArtifactRefusal::Link),
                Some(_) if !kind.is_file() => Err(ArtifactRefusal::NoFile),
                Some(text) => read(&self.dir.join(&path), gathered.set.room())
                    .and_then(|file| gathered.set.add(text, file)),
            };
            if let Err(refusal) = taken {
                let path = path.to_string_lossy().into_owned();
                gathered.refused.insert(path, refusal);
            }
        }
        Ok(gathered)
    }

    /// Writes a set of artifacts. Files listed in `others` are left alone.
    pub fn restore(&self, set: &ArtifactSet) -> io::Result<()> {
        for (path, file) in set.iter().filter(|(path, _)| !self.others.contains(*path)) {
            let placed = self.put(path, file);
            placed.map_err(|err| io::Error::new(err.kind(), format!("`{path}`: {err}")))?;
        }
        Ok(())
    }

    /// Removes matching files, and directories that become empty.
    pub fn clear(&self) -> io::Result<()> {
        for (path, _) in self.walk()? {
            remove(&self.dir.join(&path))?;
            let mut parents = path.ancestors().skip(1);
            while let Some(parent) = parents.next().filter(|path| !path.as_os_str().is_empty()) {
                if fs::remove_dir(self.dir.join(parent)).is_err() {
                    break; // the directory is not empty
                }
            }
        }
        Ok(())
    }

    fn put(&self, path: &str, file: &Artifact) -> io::Result<()> {
        for (at, _) in path.match_indices('/') {
            let parent = self.dir.join(&path[..at]);
            let made = DirBuilder::new().mode(0o700).create(&parent);
            match made {
                Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {
                    if !fs::symlink_metadata(&parent)?.is_dir() {
                        let parent = &path[..at];
                        return Err(io::Error::other(format!("`{parent}` is not a directory")));
                    }
                }
                made => made?,
            }
        }
        let place = self.dir.join(path);
        remove(&place)?;
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o600);
        let flags = OFlags::NOFOLLOW.bits().cast_signed();
        let mut made = options.custom_flags(flags).open(place)?;
        made.write_all(file.expose())?;
        made.set_permissions(fs::Permissions::from_mode(file.mode()))
    }

    /// All matching entries below the directory, by path. Links are listed, not followed.
    fn walk(&self) -> io::Result<BTreeMap<PathBuf, FileType>> {
        let mut found = BTreeMap::new();
        self.walk_below(Path::new(""), &mut found)?;
        Ok(found)
    }

    fn walk_below(&self, dir: &Path, found: &mut BTreeMap<PathBuf, FileType>) -> io::Result<()> {
        let entries = match fs::read_dir(self.dir.join(dir)) {
            Err(err) if is_absent(&err) => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let (path, kind) = (dir.join(entry.file_name()), entry.file_type()?);
            // Provider directories are large and hold no artifacts.
            if kind.is_dir() && entry.file_name() != ".terraform" {
                self.walk_below(&path, found)?;
            } else if !kind.is_dir() && self.is_meant(&path, kind) {
                found.insert(path, kind);
            }
        }
        Ok(())
    }

    fn is_meant(&self, path: &Path, kind: FileType) -> bool {
        let text = path.to_string_lossy();
        let hides = kind.is_symlink() && self.globs.lead_through(&text);
        (hides || self.globs.fit(&text)) && !self.others.contains(&*text)
    }
}

/// Writes one artifact for a person, atomically and readable by its owner only.
pub fn write_out(place: &Path, file: &Artifact) -> io::Result<()> {
    let dir = place.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let mut aside = tempfile::NamedTempFile::new_in(dir)?;
    aside.write_all(file.expose())?;
    let mode = 0o600 | file.mode() & 0o100;
    aside
        .as_file()
        .set_permissions(fs::Permissions::from_mode(mode))?;
    aside.as_file().sync_all()?;
    aside.persist(place).map_err(|err| err.error)?;
    Ok(())
}

fn read(path: &Path, room: u64) -> Result<Artifact, ArtifactRefusal> {
    let unreadable = |err: io::Error| ArtifactRefusal::Unreadable {
        why: err.to_string(),
    };
    let file: File = open_itself(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(ArtifactRefusal::NoFile);
    }
    let mut content = Vec::new();
    // Read one byte more than allowed, to detect files that are too large.
    let bounded = file.take(room + 1).read_to_end(&mut content);
    bounded.map_err(unreadable)?;
    Ok(Artifact::new(metadata.permissions().mode(), content))
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(err) if !is_absent(&err) => Err(err),
        _ => Ok(()),
    }
}

fn is_absent(err: &io::Error) -> bool {
    matches!(
        err.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}
