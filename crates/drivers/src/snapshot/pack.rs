//! A snapshot as one sequence of bytes: a header, then for each file, by path, its kind, the two lengths, its path
//! and its content. The same files always give the same bytes.
//!
//! Not here: compression and encryption (`store`).

use super::{FileKind, digest_of, sha256};
use crate::tree::normalised;

const HEAD: &[u8] = b"terrane pack 1\n";

/// A file in a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedFile<'a> {
    pub path: &'a str,
    pub kind: FileKind,
    pub content: &'a [u8],
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnpackError {
    #[error("the data is not a packed snapshot, or it is truncated")]
    Malformed,
    #[error("the pack contains the path `{path}`, which is not allowed in a snapshot")]
    Path { path: String },
    #[error("the link `{path}` in the pack points outside it")]
    Link { path: String },
}

pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn new() -> Self {
        Self(HEAD.to_vec())
    }

    pub(super) fn add(&mut self, path: &str, kind: FileKind, content: &[u8]) {
        self.0.push(kind.letter());
        for length in [path.len(), content.len()] {
            self.0.extend_from_slice(&(length as u64).to_le_bytes());
        }
        self.0.extend_from_slice(path.as_bytes());
        self.0.extend_from_slice(content);
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// The files of a pack, by path. For any input, no path leaves the directory in which the pack is laid out,
/// neither directly nor through a link.
pub fn unpack(bytes: &[u8]) -> Result<Vec<PackedFile<'_>>, UnpackError> {
    let mut rest = bytes.strip_prefix(HEAD).ok_or(UnpackError::Malformed)?;
    let mut files: Vec<PackedFile<'_>> = Vec::new();
    while !rest.is_empty() {
        let file = next(&mut rest).ok_or(UnpackError::Malformed)?;
        if files.last().is_some_and(|last| last.path >= file.path) {
            return Err(UnpackError::Malformed);
        }
        check(&file)?;
        files.push(file);
    }
    let ancestor_is_file = |file: &PackedFile<'_>| {
        let dirs = file.path.match_indices('/').map(|(at, _)| &file.path[..at]);
        dirs.into_iter()
            .any(|dir| files.binary_search_by_key(&dir, |other| other.path).is_ok())
    };
    if let Some(file) = files.iter().find(|file| ancestor_is_file(file)) {
        return Err(UnpackError::Path {
            path: file.path.to_owned(),
        });
    }
    Ok(files)
}

/// The digest of the snapshot with these files, and the digest of each file.
pub(super) fn digests(files: &[PackedFile<'_>]) -> (String, Vec<String>) {
    let digests: Vec<String> = files.iter().map(|file| sha256(file.content)).collect();
    let parts = files.iter().zip(&digests);
    let whole = digest_of(parts.map(|(file, digest)| (file.path, file.kind, digest.as_str())));
    (whole, digests)
}

fn next<'a>(rest: &mut &'a [u8]) -> Option<PackedFile<'a>> {
    let kind = FileKind::from_letter(take(rest, 1)?[0])?;
    let mut length = || {
        let bytes = take(rest, 8)?.try_into().ok()?;
        usize::try_from(u64::from_le_bytes(bytes)).ok()
    };
    let (path, content) = (length()?, length()?);
    Some(PackedFile {
        kind,
        path: std::str::from_utf8(take(rest, path)?).ok()?,
        content: take(rest, content)?,
    })
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    Some(taken)
}

fn check(file: &PackedFile<'_>) -> Result<(), UnpackError> {
    let path = || file.path.to_owned();
    let forbidden = |part: &str| matches!(part, "" | "." | ".." | ".git" | ".terraform");
    if file.path.contains('\0') || file.path.split('/').any(forbidden) {
        return Err(UnpackError::Path { path: path() });
    }
    if file.kind == FileKind::Link {
        let dir = file.path.rsplit_once('/').map_or("", |(dir, _)| dir);
        let target = std::str::from_utf8(file.content).ok();
        let inside = target.and_then(|target| normalised(dir, target));
        inside.ok_or_else(|| UnpackError::Link { path: path() })?;
    }
    Ok(())
}
