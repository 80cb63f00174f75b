//! The snapshot of a commit, independent of the working tree. Ignored files and submodules are not part of a
//! commit, so they are not included.

use std::io;

use super::listing::belongs;
use super::{
    FileKind, Snapshot, SnapshotError, SnapshotFile, digest_of, is_plan, pack, read_error, sha256,
};
use crate::git::Repository;
use crate::tree::normalised;

/// A snapshot with its bytes, since there is no directory to read them from later.
#[derive(Clone, Debug)]
pub struct CommitSnapshot {
    pub snapshot: Snapshot,
    pub pack: Vec<u8>,
}

const LINK: &str = "120000";
const EXECUTABLE: &str = "100755";

/// Takes the snapshot of the project at a commit.
pub fn collect_commit(
    repository: &Repository,
    commit: &str,
) -> Result<CommitSnapshot, SnapshotError> {
    let git = |source| SnapshotError::Git { source };
    let listed = repository.blobs_at(commit).map_err(git)?;
    let mut blobs = repository.blobs().map_err(git)?;
    let mut files = Vec::new();
    let mut left_out = Vec::new();
    let mut writer = pack::Writer::new();
    for (path, (mode, id)) in listed {
        if !belongs(&path) {
            continue;
        }
        let content = blobs.read(&id, u64::MAX >> 1);
        let content =
            content.map_err(|err| read_error(&path)(io::Error::other(err.to_string())))?;
        let kind = match mode.as_str() {
            LINK => FileKind::Link,
            EXECUTABLE => FileKind::Executable,
            _ => FileKind::Plain,
        };
        if kind == FileKind::Link && leads_out(&path, &content) {
            left_out.push(path);
            continue;
        }
        if is_plan(&content) {
            continue;
        }
        writer.add(&path, kind, &content);
        files.push(SnapshotFile {
            digest: sha256(&content),
            len: content.len() as u64,
            kind,
            path,
        });
    }
    let parts = files.iter();
    let digest = digest_of(parts.map(|f| (f.path.as_str(), f.kind, f.digest.as_str())));
    Ok(CommitSnapshot {
        snapshot: Snapshot {
            digest,
            files,
            left_out,
        },
        pack: writer.finish(),
    })
}

fn leads_out(path: &str, target: &[u8]) -> bool {
    let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
    let target = std::str::from_utf8(target).ok();
    target.and_then(|target| normalised(dir, target)).is_none()
}
