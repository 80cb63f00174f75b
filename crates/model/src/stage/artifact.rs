//! Artifacts: files that a stack writes beside its module, such as a kubeconfig, and that are stored with its state.
//! Which files are selected, the size limits, and the storage format of a set.
//!
//! Not here: reading and writing them (`drivers::artifacts`), when that happens (`control::runner`).

use std::collections::BTreeMap;
use std::fmt;

use globset::GlobMatcher;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::hcl::paths;
use crate::hcl::paths::compile_glob;

#[cfg(test)]
mod tests;

/// The maximum number of files per stack.
pub const MOST_FILES: usize = 256;

/// The maximum total size per stack. Larger files belong in a registry or a bucket.
pub const MOST_BYTES: u64 = 16 * 1024 * 1024;

/// All artifacts of a stack, by path relative to its directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArtifactSet(BTreeMap<String, Artifact>);

#[derive(Clone, PartialEq, Eq)]
pub struct Artifact {
    /// The owner's permissions. Group and others have none.
    mode: u32,
    content: Zeroizing<Vec<u8>>,
}

/// Why a selected file is not stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArtifactRefusal {
    #[error("it is a symbolic link")]
    Link,
    #[error("it is not a regular file")]
    NoFile,
    #[error("its name is not UTF-8")]
    Name,
    #[error("its path leaves the stack's directory")]
    Outside,
    #[error("the limit of {MOST_FILES} files is reached")]
    Number,
    #[error("the artifacts would exceed {} MB in total", MOST_BYTES / 1024 / 1024)]
    Size,
    #[error("it cannot be read: {why}")]
    Unreadable { why: String },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadArtifactsError {
    #[error("the stored artifacts are malformed or truncated")]
    Malformed,
    #[error("the artifacts have format {found}, but this terrane reads format {FORMAT}")]
    Format { found: u32 },
    #[error("an artifact has the path `{path}`, which leaves its directory")]
    Path { path: String },
}

impl Artifact {
    pub fn new(mode: u32, content: Vec<u8>) -> Self {
        Self {
            mode: mode & 0o700,
            content: Zeroizing::new(content),
        }
    }

    pub fn mode(&self) -> u32 {
        self.mode
    }

    pub fn size(&self) -> u64 {
        self.content.len() as u64
    }

    /// The only access to the content, as for a `Secret`.
    pub fn expose(&self) -> &[u8] {
        &self.content
    }
}

impl fmt::Debug for Artifact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} secret bytes, mode {:o}]", self.size(), self.mode)
    }
}

const FORMAT: u32 = 1;

/// The first line of a stored set. The contents follow it, one after another.
#[derive(Serialize, Deserialize)]
struct Head {
    artifacts: u32,
    files: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    path: String,
    mode: u32,
    size: u64,
}

impl ArtifactSet {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn get(&self, path: &str) -> Option<&Artifact> {
        self.0.get(path)
    }

    /// By path.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Artifact)> {
        self.0.iter().map(|(path, file)| (path.as_str(), file))
    }

    /// How many bytes are left for another file.
    pub fn room(&self) -> u64 {
        let taken: u64 = self.0.values().map(Artifact::size).sum();
        MOST_BYTES.saturating_sub(taken)
    }

    pub fn add(&mut self, path: &str, file: Artifact) -> Result<(), ArtifactRefusal> {
        if !stays_inside(path) {
            return Err(ArtifactRefusal::Outside);
        }
        if self.0.len() >= MOST_FILES {
            return Err(ArtifactRefusal::Number);
        }
        if file.size() > self.room() {
            return Err(ArtifactRefusal::Size);
        }
        self.0.insert(path.to_owned(), file);
        Ok(())
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let entry = |(path, file): (&str, &Artifact)| Entry {
            path: path.to_owned(),
            mode: file.mode,
            size: file.size(),
        };
        let head = Head {
            artifacts: FORMAT,
            files: self.iter().map(entry).collect(),
        };
        let mut bytes = serde_json::to_vec(&head).unwrap_or_default();
        bytes.push(b'\n');
        for file in self.0.values() {
            bytes.extend_from_slice(&file.content);
        }
        bytes
    }

    /// Whatever the bytes contain, no path leaves the target directory.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ReadArtifactsError> {
        let malformed = ReadArtifactsError::Malformed;
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (head, mut rest) = bytes.split_at(end.ok_or(malformed.clone())? + 1);
        let head: Head = serde_json::from_slice(head).map_err(|_| malformed.clone())?;
        if head.artifacts != FORMAT {
            let found = head.artifacts;
            return Err(ReadArtifactsError::Format { found });
        }
        let mut files = BTreeMap::new();
        for Entry { path, mode, size } in head.files {
            let size = usize::try_from(size).map_err(|_| malformed.clone())?;
            let taken = rest.split_at_checked(size).ok_or(malformed.clone())?;
            rest = taken.1;
            if !stays_inside(&path) {
                return Err(ReadArtifactsError::Path { path });
            }
            files.insert(path, Artifact::new(mode, taken.0.to_vec()));
        }
        if rest.is_empty() {
            Ok(Self(files))
        } else {
            Err(malformed)
        }
    }
}

fn stays_inside(path: &str) -> bool {
    let part = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    path.split('/').all(part)
}

/// A stack's globs, relative to its directory.
#[derive(Clone, Debug, Default)]
pub struct ArtifactGlobs(Vec<(String, GlobMatcher)>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{glob}` is not a valid artifact glob: {why}")]
pub struct InvalidArtifactGlob {
    glob: String,
    why: String,
}

impl ArtifactGlobs {
    pub fn new(globs: &[String]) -> Result<Self, InvalidArtifactGlob> {
        let compiled = globs.iter().map(|glob| {
            let invalid = |why| InvalidArtifactGlob {
                glob: glob.clone(),
                why,
            };
            let plain = paths::normalize(glob).map_err(|err| invalid(err.to_string()))?;
            let matcher = compile_glob(&plain).map_err(invalid)?;
            Ok((plain, matcher))
        });
        compiled.collect::<Result<_, _>>().map(Self)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a file with this path is selected. Internal files of engines and of terrane never are.
    pub fn fit(&self, path: &str) -> bool {
        !is_of_the_engine(path) && self.0.iter().any(|(_, glob)| glob.is_match(path))
    }

    /// Whether a glob selects files below this directory.
    pub fn lead_through(&self, dir: &str) -> bool {
        let below = format!("{dir}/");
        self.0.iter().any(|(plain, _)| plain.starts_with(&below))
    }
}

fn is_of_the_engine(path: &str) -> bool {
    let of_directory = |part: &str| part.starts_with(".terraform") || part == ".terrane";
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    let is_state = name.ends_with(".tfstate") || name.contains(".tfstate.");
    is_state || name.starts_with("~~terrane") || path.split('/').any(of_directory)
}
