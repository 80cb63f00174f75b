//! Artifacts of a stack in its place in a tree: put there when the place is taken, stored after an engine has applied,
//! and gone from the disk when the place is left.
//!
//! Nothing that an engine wrote is lost, whoever is killed, by this order:
//!
//! 1. Before an engine may write, a note beside the tree says that what it leaves is *owed*. It is durable.
//! 2. What is owed is stored; only then the note says so, and only then files are taken away.
//! 3. Whoever takes the place, or lays out a source in the tree, first stores what a note owes.
//!
//! Notes are read under the tree's lock, which engines inherit: nobody writes there meanwhile. What was owed to a set that
//! is not the newest any more (another machine has applied since) is not stored over it; its run is told.
//!
//! Not here: files themselves (`drivers::artifacts`), where they are stored (`store::artifacts`).

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use drivers::artifacts::{Gathered, Grounds};
use drivers::snapshot::Slot;
use model::artifact::{ArtifactGlobs, ArtifactSet};
use model::ids::{RunId, StackName};
use serde::{Deserialize, Serialize};
use store::{KeepArtifactsError, StoreError};

use super::Workspace;
use super::mounted::{note_path as mounted_note, noted_below};
use crate::Control;
use crate::home::retry::retry_unavailable;
use crate::home::write_private;
use crate::runner::{Failure, Job, warn};
use crate::state::artifacts;

/// What lies in a stack's place, and what is to become of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Note {
    run: RunId,
    stack: StackName,
    state: String,
    /// The stack's directory in the tree.
    dir: String,
    globs: Vec<String>,
    /// The set that was put there.
    seen: Option<String>,
    /// Whether an engine may have written since.
    owed: bool,
}

/// Artifacts on loan from the store. Dropped, they are gone, unless they are owed.
pub(super) struct Lent {
    path: PathBuf,
    note: Note,
    grounds: Grounds,
    owed: AtomicBool,
}

impl Lent {
    /// Puts a stack's artifacts into its place, which whoever calls this has for himself.
    pub(super) async fn put(job: &Job<'_>, slot: &Slot, number: usize) -> io::Result<Option<Self>> {
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
                // What the engine writes takes its place; no plan could be made else.
                Err(err @ StoreError::Unseal { .. }) => {
                    job.warn(&format!("its artifacts are damaged, and not there: {err}"));
                    ArtifactSet::default()
                }
                set => set.map_err(io::Error::other)?,
            },
        };
        let note = Note {
            run: job.run,
            stack: stack.name.clone(),
            state: stack.state.clone(),
            dir: stack.path.clone(),
            globs: stack.artifacts.clone(),
            seen: kept.map(|kept| kept.kept),
            owed: false,
        };
        let lent = Self {
            path: note_path(slot, number, &stack.name),
            grounds: note.grounds(slot, number)?,
            note,
            owed: AtomicBool::new(false),
        };
        lent.note.write(&lent.path)?;
        lent.grounds.restore(&set)?;
        Ok(Some(lent))
    }

    fn say(&self, owed: bool) -> io::Result<()> {
        let mut note = self.note.clone();
        note.owed = owed;
        note.write(&self.path)?;
        self.owed.store(owed, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if !self.owed.load(Ordering::Relaxed) && self.grounds.clear().is_ok() {
            drop(fs::remove_file(&self.path));
        }
    }
}

impl Workspace {
    /// From here on what lies here is owed. Durable when this returns.
    pub(in crate::runner) fn owe_artifacts(&self) -> Result<(), Failure> {
        let Some(lent) = &self.lent else {
            return Ok(());
        };
        let failed =
            |err| Failure::because("could not note that its artifacts are to be kept", &err);
        lent.say(true).map_err(failed)
    }

    /// Stores what an engine or a hook left. What must not or cannot be kept is the failure.
    pub(in crate::runner) async fn keep_artifacts(&self, job: &Job<'_>) -> Result<(), Failure> {
        let Some(lent) = &self.lent else {
            return Ok(());
        };
        let failed = |err: &dyn std::error::Error| {
            Failure::because("applied, but its artifacts could not be kept", err)
                .hint("the next run of the stack tries again before anything else")
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
                .hint("name only plain files in `artifacts`, few and small ones")),
        }
    }
}

/// Stores what a note owes, takes away what lies there in clear, and the note. Whoever calls this holds the tree's
/// lock, alone or with the lock of that stack's place.
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
    let note: Note = serde_json::from_slice(&bytes)?;
    let grounds = note.grounds(slot, number)?;
    if note.owed {
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

/// The same for every stack that has been at work in a tree.
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

/// Where the note about a stack's artifacts in a tree lies.
pub(super) fn note_path(slot: &Slot, number: usize, stack: &StackName) -> PathBuf {
    slot.tree()
        .with_file_name(format!("{number}.{stack}{SUFFIX}"))
}

impl Note {
    /// Durable when this returns, whole or as it was.
    fn write(&self, path: &Path) -> io::Result<()> {
        let new = path.with_extension("artifacts-new");
        write_private(&new, &serde_json::to_vec(self)?)?;
        File::open(&new)?.sync_all()?;
        fs::rename(&new, path)?;
        File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
    }

    fn grounds(&self, slot: &Slot, number: usize) -> io::Result<Grounds> {
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
        Ok(Grounds { dir, globs, others })
    }

    async fn keep(&self, control: &Control, set: &ArtifactSet) -> Result<(), KeepArtifactsError> {
        let state = control.state_name(&self.state);
        artifacts::keep(control, &state, self.seen.as_deref(), set, Some(self.run)).await
    }
}

/// What was meant and is not kept, in words.
fn refused(gathered: &Gathered) -> Option<String> {
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
