//! The source files of a project as the engine sees them: which files, their contents, and one digest.
//!
//! In a Git repository these are the files that Git tracks or would add, as they are in the working tree,
//! submodules included; without Git, all files. Each stack's automatic variable files and its `include` files are
//! added, ignored or not. Files that an engine leaves behind, and secrets they may hold, are never included.
//!
//! Not here: storing packs (`store`), where slots are (`control`).

mod commit;
mod listing;
mod pack;
mod slot;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{Context, SHA256, digest};
use model::base::error::Explain;
use model::project::Project;
use serde::{Deserialize, Serialize};

use crate::git::{GitError, Repository};
use crate::tree::normalised;

pub use commit::{CommitSnapshot, collect_commit};
pub use pack::{PackedFile, UnpackError, unpack};
pub use slot::{LayOutError, LayoutStats, Slot};

/// Files to add to those that Git lists. Paths are relative to the project's root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraFiles {
    /// Root modules, whose `terraform.tfvars` and `*.auto.tfvars` are added.
    pub stack_dirs: Vec<String>,
    /// Alternatives of files, directories or globs: of each list, the first pattern that matches something is
    /// used.
    pub include: Vec<Vec<String>>,
}

impl ExtraFiles {
    /// The files that a project's stacks and policies need. A stack's `include` is relative to its own directory
    /// or, if nothing is there, to the project's root.
    pub fn of(project: &Project) -> Self {
        let mut extras = Self::default();
        for stack in project.stacks.values() {
            extras.stack_dirs.push(stack.path.clone());
            for glob in &stack.include {
                let places = [&*stack.path, ""].map(|dir| normalised(dir, glob));
                extras.include.push(places.into_iter().flatten().collect());
            }
        }
        let policies = project.policies.values().flat_map(|it| &it.sources);
        let policies = policies.map(|it| vec![it.path.clone()]);
        extras.include.extend(policies);
        extras
    }
}

/// The files of a project at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// SHA-256 in hex over all paths, kinds and contents.
    pub digest: String,
    /// By path.
    pub files: Vec<SnapshotFile>,
    /// Symbolic links that lead out of the project, which are left out.
    pub left_out: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotFile {
    /// Relative to the project's root, with `/`.
    pub path: String,
    pub kind: FileKind,
    /// SHA-256 in hex of the content; for a link, of its target.
    pub digest: String,
    pub len: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    Plain,
    Executable,
    /// The content is the link's target.
    Link,
}

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("could not list the files of the project")]
    Git { source: GitError },
    #[error("could not read `{path}` for the snapshot")]
    Read { path: String, source: io::Error },
    #[error("`{path}` is not UTF-8, so it cannot be part of a snapshot")]
    NotUtf8 { path: String },
    #[error("`{glob}` in `include` is not a glob")]
    Glob {
        glob: String,
        source: globset::Error,
    },
    #[error("`{path}` changed while the snapshot was made")]
    Moved { path: String },
}

impl Explain for SnapshotError {}

/// Takes the snapshot of the project at `root`; `repository` is the one that contains it, if any.
pub fn collect(
    root: &Path,
    repository: Option<&Repository>,
    extras: &ExtraFiles,
) -> Result<Snapshot, SnapshotError> {
    let root = root.canonicalize().map_err(read_error(""))?;
    let mut files = Vec::new();
    let mut left_out = Vec::new();
    for path in listing::paths(&root, repository, extras)? {
        match PathContent::read(&root, &path)? {
            PathContent::Nothing => {}
            PathContent::LeadsOut => left_out.push(path),
            PathContent::File { kind, content } => files.push(SnapshotFile {
                digest: sha256(&content),
                len: content.len() as u64,
                kind,
                path,
            }),
        }
    }
    Ok(Snapshot {
        digest: digest_of(
            files
                .iter()
                .map(|f| (f.path.as_str(), f.kind, f.digest.as_str())),
        ),
        files,
        left_out,
    })
}

/// The existing paths that a snapshot of the project at `root` would hold.
pub fn list(
    root: &Path,
    repository: Option<&Repository>,
    extras: &ExtraFiles,
) -> Result<BTreeSet<String>, SnapshotError> {
    let root = root.canonicalize().map_err(read_error(""))?;
    listing::paths(&root, repository, extras)
}

/// The path of a directory with links resolved, if it exists inside the project.
pub fn real_dir(root: &Path, dir: &str) -> Option<String> {
    listing::real_dir(&root.canonicalize().ok()?, dir)
}

/// The targets of those paths that are links, if they stay inside the project.
pub fn links<'p>(root: &Path, paths: impl Iterator<Item = &'p str>) -> BTreeMap<String, String> {
    let leads = |path: &'p str| {
        let target = fs::read_link(root.join(path)).ok()?;
        let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
        Some((path.to_owned(), normalised(dir, target.to_str()?)?))
    };
    paths.filter_map(leads).collect()
}

impl Snapshot {
    /// The snapshot as one sequence of bytes, which is the same for the same digest. The files are read again and
    /// must not have changed.
    pub fn pack(&self, root: &Path) -> Result<Vec<u8>, SnapshotError> {
        let root = root.canonicalize().map_err(read_error(""))?;
        let mut pack = pack::Writer::new();
        for file in &self.files {
            match PathContent::read(&root, &file.path)? {
                PathContent::File { kind, content }
                    if kind == file.kind && sha256(&content) == file.digest =>
                {
                    pack.add(&file.path, kind, &content);
                }
                PathContent::File { .. } | PathContent::Nothing | PathContent::LeadsOut => {
                    return Err(SnapshotError::Moved {
                        path: file.path.clone(),
                    });
                }
            }
        }
        Ok(pack.finish())
    }
}

/// What is at a path.
enum PathContent {
    File {
        kind: FileKind,
        content: Vec<u8>,
    },
    /// Deleted, or neither file nor link, or a plan file.
    Nothing,
    LeadsOut,
}

impl PathContent {
    /// `root` is a real path.
    fn read(root: &Path, path: &str) -> Result<Self, SnapshotError> {
        let place = root.join(path);
        let metadata = match fs::symlink_metadata(&place) {
            Ok(metadata) => metadata,
            // Git tracks the file, but it was deleted.
            Err(err) if is_absent(&err) => return Ok(Self::Nothing),
            Err(err) => return Err(read_error(path)(err)),
        };
        if metadata.is_symlink() {
            return Self::link(root, path, &place);
        }
        if !metadata.is_file() {
            return Ok(Self::Nothing);
        }
        let content = fs::read(&place).map_err(read_error(path))?;
        if is_plan(&content) {
            return Ok(Self::Nothing);
        }
        let executable = metadata.permissions().mode() & 0o100 != 0;
        let kind = if executable {
            FileKind::Executable
        } else {
            FileKind::Plain
        };
        Ok(Self::File { kind, content })
    }

    /// A link is included if it stays inside the project, both as text and on disk.
    fn link(root: &Path, path: &str, place: &Path) -> Result<Self, SnapshotError> {
        let target = fs::read_link(place).map_err(read_error(path))?;
        let target = target
            .into_os_string()
            .into_string()
            .map_err(|_| SnapshotError::NotUtf8 {
                path: path.to_owned(),
            })?;
        let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
        let real = place.canonicalize();
        let inside = real.map_or(true, |real| real.starts_with(root));
        if !inside || normalised(dir, &target).is_none() {
            return Ok(Self::LeadsOut);
        }
        Ok(Self::File {
            kind: FileKind::Link,
            content: target.into_bytes(),
        })
    }
}

/// Whether this is a plan file under any name: a zip archive that begins with the entry `tfplan`, or a bundle of
/// plans.
fn is_plan(content: &[u8]) -> bool {
    let is_engines = content.starts_with(b"PK\x03\x04") && content.get(30..36) == Some(b"tfplan");
    is_engines || content.starts_with(br#"{"terrane":"bundle","#)
}

/// One digest over sorted files. Paths contain no NUL and digests have a fixed length, so the input is
/// unambiguous.
fn digest_of<'a>(files: impl Iterator<Item = (&'a str, FileKind, &'a str)>) -> String {
    let mut context = Context::new(&SHA256);
    context.update(b"terrane snapshot 1\n");
    for (path, kind, digest) in files {
        context.update(path.as_bytes());
        context.update(&[0, kind.letter()]);
        context.update(digest.as_bytes());
    }
    hex(context.finish().as_ref())
}

/// SHA-256 in hex.
pub fn sha256(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

impl FileKind {
    fn letter(self) -> u8 {
        match self {
            Self::Plain => b'f',
            Self::Executable => b'x',
            Self::Link => b'l',
        }
    }

    fn from_letter(letter: u8) -> Option<Self> {
        [Self::Plain, Self::Executable, Self::Link]
            .into_iter()
            .find(|kind| kind.letter() == letter)
    }
}

fn is_absent(err: &io::Error) -> bool {
    matches!(
        err.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

fn read_error(path: &str) -> impl FnOnce(io::Error) -> SnapshotError {
    let path = if path.is_empty() { "." } else { path }.to_owned();
    move |source| SnapshotError::Read { path, source }
}

fn text(path: PathBuf) -> Result<String, SnapshotError> {
    path.into_os_string()
        .into_string()
        .map_err(|path| SnapshotError::NotUtf8 {
            path: path.to_string_lossy().into_owned(),
        })
}
