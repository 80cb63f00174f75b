//! Where an engine runs: a slot with the unpacked snapshot, and a scratch directory for data that must not be
//! on a disk.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use drivers::snapshot::Slot;
use model::base::exact_number;
use model::base::ids::RunId;
use model::base::secret::Secret;
use model::run::RunSpec;
use serde_json::{Value, json};
use store::KeyScope;

use super::inputs::Inputs;
use super::{Failure, StageJob};
use crate::Control;
use crate::changeset::orphan_processes;
use crate::home::{HIDDEN_VALUES, make_private, write_private};
use crate::run::lock::try_lock;
use crate::values::write_override;

mod artifacts;
mod cleanup;
mod context_files;
mod isolated;

use artifacts::ArtifactLoan;
use context_files::{MountedFiles, note_path, sweep};

pub(crate) use cleanup::clean_up_lost;

/// A stack's directory in a tree, held exclusively. No other engine runs in this directory, and no process
/// unpacks another source in the tree. This lasts until the value is dropped and the engine has exited.
pub(super) struct Workspace {
    /// The root module inside the unpacked snapshot.
    pub(super) dir: PathBuf,
    tree: PathBuf,
    /// The note that lists the files of contexts in this directory.
    note: PathBuf,
    /// Dropped before the locks.
    mounted: Option<MountedFiles>,
    /// Dropped before the locks.
    lent: Option<ArtifactLoan>,
    /// The engine holds these too.
    pub(super) locks: TreeLocks,
    /// What `init` depends on, according to the modules.
    pub(super) requirements: String,
    /// Whether this is tree 0, where applies run. A plan from another tree is only for review.
    pub(super) is_first: bool,
}

/// The lock of a tree, shared by all engines in it, and the exclusive lock of a stack's directory in it.
pub(super) struct TreeLocks {
    pub(super) tree: File,
    pub(super) stack: File,
}

impl Workspace {
    /// Takes the stack's directory in tree 0, with the run's source unpacked. If it is taken, a run that
    /// holds its lanes waits, and so does a plan for a bundle. Only plans that may be applied can occupy it
    /// then. All other runs take the next tree, and read-only runs and reviews start there.
    pub(super) async fn prepare(job: &StageJob<'_>) -> Result<Self, Failure> {
        let taking = WorkspaceRequest::of(job)?;
        let work = tokio::task::spawn_blocking(move || taking.take());
        let (number, slot, locks) = settled(job, work).await?;
        Self::at(job, &slot, number, locks, number == 0).await
    }

    /// Sets up a directory that was taken.
    async fn at(
        job: &StageJob<'_>,
        slot: &Slot,
        number: usize,
        locks: TreeLocks,
        is_first: bool,
    ) -> Result<Self, Failure> {
        let tree = slot.tree().to_owned();
        let dir = tree.join(&job.spec.stack.path);
        write_override(&dir, job.spec)
            .map_err(|err| Failure::because("could not point the stack at its state", &err))?;
        let slots = tree.parent().unwrap_or(&tree);
        let note = note_path(slots, number, &job.spec.stack.name);
        let lent = ArtifactLoan::put(job, slot, number).await;
        let failed = |err| Failure::because("could not put the stack's artifacts in place", &err);
        Ok(Self {
            dir,
            note,
            mounted: None,
            lent: lent.map_err(failed)?,
            locks,
            requirements: job.spec.init_inputs.clone(),
            is_first,
            tree,
        })
    }

    /// Where the project's root is unpacked.
    pub(super) fn tree(&self) -> &Path {
        &self.tree
    }

    /// Reads a source file, by its path from the project's root.
    pub(super) fn read(&self, path: &str) -> io::Result<String> {
        fs::read_to_string(self.tree.join(path))
    }

    /// The stack's own variable files, then the generated one, which overrides them.
    pub(super) fn var_files(&self, job: &StageJob<'_>, scratch: &ScratchDir) -> Vec<PathBuf> {
        let own = job.spec.stack.var_files.iter();
        let mut files: Vec<PathBuf> = own.map(|file| self.tree.join(file)).collect();
        files.push(scratch.variables());
        files
    }
}

/// Waits for the search for a directory, unless Ctrl-C comes first.
async fn settled<T>(
    job: &StageJob<'_>,
    work: tokio::task::JoinHandle<io::Result<T>>,
) -> Result<T, Failure> {
    let mut interrupts = job.interrupts.lock().await;
    let taken = tokio::select! {
        () = interrupts.next() => return Err(Failure::interrupted()),
        taken = work => taken,
    };
    let failed =
        |err: &dyn std::error::Error| Failure::because("could not write out the source", err);
    taken
        .map_err(|err| failed(&err))?
        .map_err(|err| failed(&err))
}

/// What the search for a directory needs. The search does not block the runtime's thread.
struct WorkspaceRequest {
    control: Control,
    run: RunId,
    spec: RunSpec,
    /// Whether the plan must be made where it is applied: the run holds its lanes, or plans for a bundle.
    waits: bool,
    runtime: tokio::runtime::Handle,
}

impl WorkspaceRequest {
    fn of(job: &StageJob<'_>) -> Result<Self, Failure> {
        make_private(&job.control.home.slots(&job.spec.slot))
            .map_err(|err| Failure::because("could not create a slot", &err))?;
        Ok(Self {
            control: job.control.clone(),
            run: job.run,
            spec: job.spec.clone(),
            waits: job.holds_lanes || job.keeps_plan(),
            runtime: tokio::runtime::Handle::current(),
        })
    }

    /// The maximum number of trees in a slot.
    const MOST: usize = 64;

    fn take(&self) -> io::Result<(usize, Slot, TreeLocks)> {
        let most = if self.waits { 1 } else { Self::MOST };
        // A read-only run or a review may take days, and applies must not wait for tree 0. A plan that would
        // differ in another tree is made in tree 0 anyway.
        let is_review = self.spec.review && !self.waits && !self.spec.has_unstable_paths;
        let first = usize::from(self.spec.only_reads() || is_review);
        for number in first..most {
            let slot = self
                .control
                .home
                .slot(&self.spec.slot, number)
                .map_err(io::Error::other)?;
            if let Some(locks) = self.try_tree(&slot, number)? {
                drop(fs::remove_file(self.control.home.run_waits(self.run)));
                return Ok((number, slot, locks));
            }
        }
        let most = Self::MOST;
        Err(io::Error::other(format!(
            "the limit of {most} engines in this stack is reached"
        )))
    }

    /// Takes the stack's directory in one tree. None if it is taken, or if the tree contains another source.
    /// With `waits`, waits for it instead.
    fn try_tree(&self, slot: &Slot, number: usize) -> io::Result<Option<TreeLocks>> {
        let slots = self.control.home.slots(&self.spec.slot);
        let stack = slots.join(format!("{number}.{}.lock", self.spec.stack.name));
        let stack = if self.waits {
            let file = open_lock(&stack)?;
            if file.try_lock().is_err() {
                self.say_for_whom(&stack);
                file.lock()?;
            }
            file
        } else {
            let Some(file) = try_lock(&stack)? else {
                return Ok(None);
            };
            file
        };
        sweep(&note_path(&slots, number, &self.spec.stack.name))?;
        let tree_lock = slots.join(format!("{number}.lock"));
        let tree = open_lock(&tree_lock)?;
        loop {
            if tree.try_lock().is_ok() {
                // No engine is at work in this tree: check it, and update it if needed.
                write_all(&tree, "")?;
                self.runtime
                    .block_on(artifacts::settle_all(&self.control, slot, number))?;
                self.lay_out(slot)?;
                write_all(&tree, &self.spec.source)?;
            }
            // Waits at most for a process that unpacks a source.
            tree.lock_shared()?;
            if read_all(&tree)? == self.spec.source {
                let note = artifacts::note_path(slot, number, &self.spec.stack.name);
                self.runtime
                    .block_on(artifacts::settle(&self.control, slot, number, &note))?;
                return Ok(Some(TreeLocks { tree, stack }));
            }
            if !self.waits {
                return Ok(None);
            }
            self.say_for_whom(&tree_lock);
            tree.lock()?; // when the last engine of the other source is gone
        }
    }

    /// Notes for attached clients which runs block this one: runs of this stack or of another source. If they
    /// are not known, the run waits anyway.
    fn say_for_whom(&self, lock: &Path) {
        let others = self.runtime.block_on(self.others_at_work());
        let words = match others.unwrap_or_default().as_slice() {
            [] => orphan_processes::of_lock(lock),
            others => Some(format!("waits for {}", others.join(", "))),
        };
        if let Some(words) = words {
            drop(fs::write(self.control.home.run_waits(self.run), words));
        }
    }

    async fn others_at_work(&self) -> Result<Vec<String>, store::ChangeSetError> {
        let store = &self.control.store;
        let mut others = Vec::new();
        let project = self.control.home.project();
        for set in store.change_set_list_open(project).await? {
            let is_other = set.request.source != self.spec.source;
            for run in store.run_list(set.id).await? {
                let in_the_way = run.id != self.run
                    && run.state.is_running()
                    && (is_other || run.stack == self.spec.stack.name);
                if in_the_way && store.run_spec(run.id).await?.slot == self.spec.slot {
                    others.push(format!("run {} of change set {}", run.id, set.id));
                }
            }
        }
        Ok(others)
    }

    /// Unpacks the run's source in the tree. The snapshot is decrypted only if something differs.
    fn lay_out(&self, slot: &Slot) -> io::Result<()> {
        let digest = &self.spec.source;
        let sealed = self.control.home.snapshot(digest);
        let load = || {
            let purpose = format!("snapshot {digest}");
            let unsealed =
                self.control
                    .store
                    .unseal(KeyScope::Project, &purpose, fs::read(&sealed)?);
            let packed = self.runtime.block_on(unsealed).map_err(io::Error::other)?;
            zstd::decode_all(packed.as_slice())
        };
        slot.lay_out(digest, load).map_err(io::Error::other)?;
        Ok(())
    }
}

fn open_lock(path: &Path) -> io::Result<File> {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
}

fn write_all(mut file: &File, text: &str) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(text.as_bytes())
}

fn read_all(mut file: &File) -> io::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// A directory for unencrypted input values and plan files, in memory if possible.
pub(super) struct ScratchDir {
    dir: PathBuf,
}

impl ScratchDir {
    pub(super) fn open(job: &StageJob<'_>) -> Result<Self, Failure> {
        let dir = job.control.home.scratch(job.run);
        own_directory(&dir)
            .map_err(|err| Failure::because("could not create a scratch directory", &err))?;
        Ok(Self { dir })
    }

    pub(super) fn variables(&self) -> PathBuf {
        self.dir.join("inputs.tfvars.json")
    }

    pub(super) fn plan(&self) -> PathBuf {
        self.dir.join("plan.bin")
    }

    pub(super) fn shown(&self) -> PathBuf {
        self.dir.join("show.json")
    }

    /// Writes the values of the variables for the engine. Also writes the secrets that must not be in a log,
    /// for recovery of a lost runner.
    pub(super) fn hand_over(&self, job: &StageJob<'_>, inputs: &Inputs) -> Result<(), Failure> {
        let variables = exact_number::write(&Value::Object(inputs.variables.clone()));
        write_private(&self.variables(), variables.as_bytes())
            .map_err(|err| Failure::because("could not pass the inputs", &err))?;
        self.hide(job, inputs)
    }

    /// Writes the secrets to hide in the rest of the logs, in case this process is lost.
    pub(super) fn hide(&self, job: &StageJob<'_>, inputs: &Inputs) -> Result<(), Failure> {
        let hidden = inputs.hidden.iter().chain(&inputs.own_outputs);
        self.write_hidden(hidden.chain([&job.token]))
    }

    pub(super) fn write_hidden<'s>(
        &self,
        hidden: impl Iterator<Item = &'s Secret>,
    ) -> Result<(), Failure> {
        let values: Vec<&str> = hidden.map(Secret::expose).collect();
        let bytes = json!(values).to_string();
        write_private(&self.dir.join(HIDDEN_VALUES), bytes.as_bytes())
            .map_err(|err| Failure::because("could not store the values to mask", &err))
    }

    pub(super) fn remove(self) {
        // What is left after a failure here is removed with the run.
        drop(fs::remove_dir_all(&self.dir));
    }
}

/// Creates a directory for this user only. An existing one must belong to this user; otherwise another user
/// could read the secrets.
fn own_directory(dir: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(dir)?;
            let ours = found.uid() == rustix::process::getuid().as_raw();
            if found.is_dir() && ours && found.mode() & 0o777 == 0o700 {
                return Ok(());
            }
            Err(io::Error::other(format!(
                "`{}` belongs to another user",
                dir.display()
            )))
        }
        made => made,
    }
}
