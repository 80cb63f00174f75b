//! The source of a change set: kept once, encrypted, under its digest.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;

use drivers::snapshot::{self, ExtraFiles, Snapshot};
use model::base::ids::StackName;
use model::project::Project;
use store::KeyScope;

use super::PrepareError;
use crate::Control;
use crate::home::make_private;
use crate::project::open::OpenProject;

/// Takes the lock on snapshots: shared to add a source. Removing some takes it exclusively.
pub(super) fn hold_snapshots(control: &Control) -> Result<File, PrepareError> {
    let path = control.home.snapshots_lock();
    let keep = |source| PrepareError::Keep {
        path: path.clone(),
        source,
    };
    if let Some(dir) = path.parent() {
        make_private(dir).map_err(keep)?;
    }
    let file = File::options()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&path)
        .map_err(keep)?;
    file.lock_shared().map_err(keep)?;
    Ok(file)
}

/// Stores the source once, encrypted, under its digest.
pub(super) async fn keep_source(
    control: &Control,
    open: &OpenProject,
    project: &Project,
) -> Result<Snapshot, PrepareError> {
    let (source, packed) = look(open, project)?;
    let path = control.home.snapshot(&source.digest);
    if !path.exists() {
        let keep = |source| PrepareError::Keep {
            path: path.clone(),
            source,
        };
        let packed = packed.map_or_else(|| source.pack(&open.root), Ok)?;
        let small = zstd::encode_all(packed.as_slice(), 1).map_err(keep)?;
        let purpose = format!("snapshot {}", source.digest);
        let sealed = control.store.seal(KeyScope::Project, &purpose, small).await;
        let sealed = sealed.map_err(PrepareError::Seal)?;
        if let Some(dir) = path.parent() {
            make_private(dir).map_err(keep)?;
        }
        let temporary = path.with_extension(format!("{}", std::process::id()));
        std::fs::write(&temporary, sealed).map_err(keep)?;
        std::fs::rename(&temporary, &path).map_err(keep)?;
    }
    Ok(source)
}

/// The source as it is now, or of the commit that the project was read from. A commit's source comes with its
/// bytes.
pub(super) fn look(
    open: &OpenProject,
    project: &Project,
) -> Result<(Snapshot, Option<Vec<u8>>), PrepareError> {
    let git = open.git.as_ref();
    if let (Some(git), Some(commit)) = (git, &open.commit) {
        let committed = snapshot::collect_commit(git, &commit.id)?;
        return Ok((committed.snapshot, Some(committed.pack)));
    }
    let snapshot = snapshot::collect(&open.root, git, &ExtraFiles::of(project))?;
    Ok((snapshot, None))
}

/// The digest of a change set's source, and of each stack's own source.
#[derive(Default)]
pub(super) struct ChangeSetSource {
    pub(super) digest: String,
    pub(super) own: BTreeMap<StackName, String>,
    /// The tree that each stack works in.
    pub(super) slots: BTreeMap<StackName, String>,
}
