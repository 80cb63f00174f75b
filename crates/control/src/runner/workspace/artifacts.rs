//! A stack's artifacts in its directory of a tree. They are written there when the directory is taken, stored
//! after an engine has applied, and removed from the disk when the directory is released.
//!
//! No file that an engine wrote is lost, whichever process is killed, because of this order:
//!
//! 1. Before an engine may write, a durable note beside the tree records that its artifacts are pending
//!    (`pending_hooks`).
//! 2. Pending artifacts are stored. Only then the note is updated, and only then files are removed.
//! 3. A process that takes the directory, or unpacks a source in the tree, first stores what is pending.
//!
//! Notes are read under the tree's lock, which engines inherit, so no engine writes there meanwhile. If
//! another machine has applied since, pending artifacts do not replace the newer set; the run gets a warning.
//!
//! Not here: files themselves (`drivers::artifacts`), where they are stored (`store::artifacts`).

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use drivers::artifacts::{ArtifactDir, CollectedArtifacts};
use drivers::snapshot::Slot;
use model::base::ids::{RunId, StackName};
use model::stage::artifact::{ArtifactGlobs, ArtifactSet};
use serde::{Deserialize, Serialize};
use store::{KeepArtifactsError, StoreError};

use super::Workspace;
use super::context_files::{note_path as mounted_note, noted_below};
use crate::Control;
use crate::home::retry::retry_unavailable;
use crate::home::write_private;
use crate::runner::{Failure, StageJob, warn};
use crate::state::artifacts;

/// Which artifacts are in a stack's directory, and whether they must be stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct ArtifactNote {
    run: RunId,
    stack: StackName,
    state: String,
    /// The stack's directory in the tree.
    dir: String,
    globs: Vec<String>,
    /// The artifact set that was written there.
    seen: Option<String>,
    /// Whether an engine may have written there since.
    #[serde(rename = "owed")]
    pending: bool,
}

/// Artifacts from the store in a stack's directory. They are removed when this is dropped, unless they are
/// pending.
pub(super) struct ArtifactLoan {
    path: PathBuf,
    note: ArtifactNote,
    grounds: ArtifactDir,
    pending: AtomicBool,
}

impl ArtifactLoan {
    /// Writes a stack's artifacts to its directory, which the caller holds exclusively.
    pub(super) async fn put(
        job: &StageJob<'_>,
        slot: &Slot,
        number: usize,
    ) -> io::Result<Option<Self>> {
        let stack = &job.spec.stack;
        if stack.artifacts.is_empty() {
            return Ok(None);
        }
        let state = job.control.state_name(&stack.state);
        let kept = job.control.store.artifacts_get(&state).await;
        let kept = kept.map_err(io::Error::other)?;
        let set = match &kept {
            None => ArtifactSet::default(),
            Some(kept) => match job.control.store.artifacts_read(kept).await {
                // The engine writes new artifacts. Otherwise no plan could be made.
                Err(err @ StoreError::Unseal { .. }) => {
                    job.warn(&format!(
                        "its artifacts are damaged, and this run does not have them: {err}"
                    ));
                    ArtifactSet::default()
                }
                set => set.map_err(io::Error::other)?,
            },
        };
        let note = ArtifactNote {
            run: job.run,
            stack: stack.name.clone(),
            state: stack.state.clone(),
            dir: stack.path.clone(),
            globs: stack.artifacts.clone(),
            seen: kept.map(|kept| kept.kept),
            pending: false,
        };
        let lent = Self {
            path: note_path(slot, number, &stack.name),
            grounds: note.grounds(slot, number)?,
            note,
            pending: AtomicBool::new(false),
        };
        lent.note.write(&lent.path)?;
        lent.grounds.restore(&set)?;
        Ok(Some(lent))
    }

    fn say(&self, pending: bool) -> io::Result<()> {
        let mut note = self.note.clone();
        note.pending = pending;
        note.write(&self.path)?;
        self.pending.store(pending, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for ArtifactLoan {
    fn drop(&mut self) {
        if !self.pending.load(Ordering::Relaxed) && self.grounds.clear().is_ok() {
            drop(fs::remove_file(&self.path));
        }
    }
}

impl Workspace {
    /// Marks the artifacts as pending. The mark is durable when this returns.
    pub(in crate::runner) fn owe_artifacts(&self) -> Result<(), Failure> {
        let Some(lent) = &self.lent else {
            return Ok(());
        };
        let failed =
            |err| Failure::because("could not record that its artifacts must be kept", &err);
        lent.say(true).map_err(failed)
    }

    /// Stores what an engine or a hook left. Fails if an artifact must not or cannot be stored.
    pub(in crate::runner) async fn keep_artifacts(
        &self,
        job: &StageJob<'_>,
    ) -> Result<(), Failure> {
        let Some(lent) = &self.lent else {
            return Ok(());
        };
        let failed = |err: &dyn std::error::Error| {
            Failure::because("applied, but its artifacts could not be kept", err)
                .hint("the next run of the stack first tries again")
        };
        let mut grounds = lent.grounds.clone();
        let mounted = noted_below(&self.note, &grounds.dir);
        grounds.others.extend(mounted.map_err(|err| failed(&err))?);
        let gathered = grounds.gather().map_err(|err| failed(&err))?;
        let keep = async || lent.note.keep(job.control, &gathered.set).await;
        let kept = retry_unavailable(keep).await;
        if let Err(err @ KeepArtifactsError::Store(_)) = &kept {
            return Err(failed(err));
        }
        lent.say(false).map_err(|err| failed(&err))?;
        kept.map_err(|err| Failure::because("applied, but its artifacts are not kept", &err))?;
        match refused(&gathered) {
            None => Ok(()),
            Some(words) => Err(Failure::new(format!("applied, but {words}"))
                .hint("list only plain files in `artifacts`, few and small")),
        }
    }
}

/// Stores the pending artifacts of a note, then removes the unencrypted files and the note. The caller holds
/// the tree's lock, exclusively or together with the lock of the stack's directory.
pub(super) async fn settle(
    control: &Control,
    slot: &Slot,
    number: usize,
    path: &Path,
) -> io::Result<()> {
    let bytes = match fs::read(path) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(()),
        bytes => bytes?,
    };
    let note: ArtifactNote = serde_json::from_slice(&bytes)?;
    let grounds = note.grounds(slot, number)?;
    if note.pending {
        let gathered = grounds.gather()?;
        match note.keep(control, &gathered.set).await {
            Err(err @ KeepArtifactsError::Moved { .. }) => {
                warn(
                    &control.home,
                    note.run,
                    &format!("its artifacts are not kept: {err}"),
                );
            }
            kept => kept.map_err(io::Error::other)?,
        }
        if let Some(words) = refused(&gathered) {
            warn(&control.home, note.run, &words);
        }
    }
    grounds.clear()?;
    fs::remove_file(path)
}

/// The same for every stack that has a note beside the tree.
pub(super) async fn settle_all(control: &Control, slot: &Slot, number: usize) -> io::Result<()> {
    let slots = slot.tree().parent().unwrap_or(Path::new("."));
    for entry in fs::read_dir(slots)? {
        let name = entry?.file_name();
        let Some(name) = name.to_str() else { continue };
        if name.starts_with(&format!("{number}.")) && name.ends_with(SUFFIX) {
            settle(control, slot, number, &slots.join(name)).await?;
        }
    }
    Ok(())
}

const SUFFIX: &str = ".artifacts";

/// The path of the note about a stack's artifacts in a tree.
pub(super) fn note_path(slot: &Slot, number: usize, stack: &StackName) -> PathBuf {
    slot.tree()
        .with_file_name(format!("{number}.{stack}{SUFFIX}"))
}

impl ArtifactNote {
    /// Replaces the note as a whole. It is durable when this returns.
    fn write(&self, path: &Path) -> io::Result<()> {
        let new = path.with_extension("artifacts-new");
        write_private(&new, &serde_json::to_vec(self)?)?;
        File::open(&new)?.sync_all()?;
        fs::rename(&new, path)?;
        File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
    }

    fn grounds(&self, slot: &Slot, number: usize) -> io::Result<ArtifactDir> {
        let dir = slot.tree().join(&self.dir);
        let slots = slot.tree().parent().unwrap_or(Path::new("."));
        let mut others = noted_below(&mounted_note(slots, number, &self.stack), &dir)?;
        let prefix = match self.dir.as_str() {
            "" => String::new(),
            dir => format!("{dir}/"),
        };
        let source = slot.source().into_iter();
        others.extend(source.filter_map(|path| path.strip_prefix(&prefix).map(str::to_owned)));
        let globs = ArtifactGlobs::new(&self.globs).map_err(io::Error::other)?;
        Ok(ArtifactDir { dir, globs, others })
    }

    async fn keep(&self, control: &Control, set: &ArtifactSet) -> Result<(), KeepArtifactsError> {
        let state = control.state_name(&self.state);
        artifacts::keep(control, &state, self.seen.as_deref(), set, Some(self.run)).await
    }
}

/// Describes the artifacts that are named but not stored.
fn refused(gathered: &CollectedArtifacts) -> Option<String> {
    const SHOWN: usize = 5;
    let refused = &gathered.refused;
    let mut words: Vec<String> = refused
        .iter()
        .take(SHOWN)
        .map(|(path, why)| format!("artifact `{path}` is not kept: {why}"))
        .collect();
    if refused.len() > SHOWN {
        words.push(format!("{} more are not", refused.len() - SHOWN));
    }
    (!words.is_empty()).then(|| words.join("; "))
}
