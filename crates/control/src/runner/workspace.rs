//! Where an engine runs: a slot with the snapshot laid out in it, and a scratch directory for what must
//! not lie on a disk.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use drivers::snapshot::Slot;
use model::project::Backend;
use model::run::RunSpec;
use serde_json::{Map, Value, json};
use store::Scope;

use super::{Failure, Job};
use crate::home::make_private;
use crate::locks::try_lock;

/// A held slot: nobody else's engine runs in it until this is dropped and the engine is gone.
pub(super) struct Workspace {
    /// The root module inside the laid-out snapshot.
    pub(super) dir: PathBuf,
    tree: PathBuf,
    pub(super) lock: File,
    /// Slot 0 is where applies happen; a plan made elsewhere is only to be looked at.
    pub(super) is_first: bool,
}

impl Workspace {
    /// Takes slot 0 and lays the run's snapshot out in it. If it is taken, whoever holds its lanes waits
    /// for it (only a plan can be at work there), and everybody else takes the next free one.
    pub(super) async fn prepare(job: &Job<'_>) -> Result<Self, Failure> {
        let (number, lock) = take_slot(job).await?;
        let slot = job
            .control
            .home
            .slot(&job.spec.stack.name, number)
            .map_err(|err| Failure::because("could not use the slot", &err))?;
        let tree = slot.tree().to_owned();
        lay_out(job, slot).await?;
        let dir = tree.join(&job.spec.stack.path);
        write_override(&dir, job.spec)
            .map_err(|err| Failure::because("could not point the stack at its state", &err))?;
        Ok(Self {
            dir,
            tree,
            lock,
            is_first: number == 0,
        })
    }

    /// The stack's own variable files, then ours, which wins.
    pub(super) fn var_files(&self, job: &Job<'_>, scratch: &Scratch) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = job
            .spec
            .stack
            .var_files
            .iter()
            .map(|file| self.tree.join(file))
            .collect();
        files.push(scratch.variables());
        files
    }
}

/// Makes the slot's tree the run's source; it is decrypted only if something differs.
async fn lay_out(job: &Job<'_>, slot: Slot) -> Result<(), Failure> {
    let digest = job.spec.source.clone();
    let sealed = job.control.home.snapshot(&digest);
    let store = job.control.store.clone();
    let handle = tokio::runtime::Handle::current();
    let work = tokio::task::spawn_blocking(move || {
        slot.lay_out(&digest, || {
            let purpose = format!("snapshot {digest}");
            let unsealed = store.unseal(Scope::Project, &purpose, fs::read(&sealed)?);
            let packed = handle.block_on(unsealed).map_err(io::Error::other)?;
            zstd::decode_all(packed.as_slice())
        })
    });
    let failed =
        |err: &dyn std::error::Error| Failure::because("could not lay out the source", err);
    work.await
        .map_err(|err| failed(&err))?
        .map_err(|err| failed(&err))?;
    Ok(())
}

async fn take_slot(job: &Job<'_>) -> Result<(usize, File), Failure> {
    const MOST: usize = 64;
    let failed = |err: &dyn std::error::Error| Failure::because("could not take a slot", err);
    let slots = job.control.home.slots(&job.spec.stack.name);
    make_private(&slots).map_err(|err| failed(&err))?;
    let path = |number: usize| slots.join(format!("{number}.lock"));
    let most = if job.holds_lanes { 1 } else { MOST };
    for number in 0..most {
        if let Some(lock) = try_lock(&path(number)).map_err(|err| failed(&err))? {
            return Ok((number, lock));
        }
    }
    if !job.holds_lanes {
        return Err(Failure::new(format!(
            "{MOST} engines are at work on this stack already"
        )));
    }
    let first = path(0);
    let wait = tokio::task::spawn_blocking(move || -> io::Result<File> {
        let file = File::options().write(true).open(first)?;
        file.lock()?;
        Ok(file)
    });
    let mut interrupts = job.interrupts.lock().await;
    tokio::select! {
        () = interrupts.next() => Err(Failure::interrupted()),
        lock = wait => Ok((0, lock.map_err(|err| failed(&err))?.map_err(|err| failed(&err))?)),
    }
}

/// An override file tells the engine which backend to use; everything else goes by environment or by
/// `-backend-config`. It is not part of the source's digest.
///
/// It would take the place of the module's own block, settings and all: where that is of the target's
/// kind already, it stays.
fn write_override(dir: &Path, spec: &RunSpec) -> io::Result<()> {
    let path = dir.join("terrane_override.tf.json");
    let kind = match &spec.target.backend {
        Backend::Terrane => "http",
        Backend::Engine { kind, .. } if spec.own_backend.as_ref() == Some(kind) => {
            return match fs::remove_file(path) {
                Err(err) if err.kind() != io::ErrorKind::NotFound => Err(err),
                _ => Ok(()),
            };
        }
        Backend::Engine { kind, .. } => kind,
    };
    let text = json!({ "terraform": { "backend": { kind: {} } } }).to_string();
    if fs::read_to_string(&path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    fs::write(path, text)
}

/// A directory in memory where there is one, for input values and plan files in clear.
pub(super) struct Scratch {
    dir: PathBuf,
}

impl Scratch {
    pub(super) fn open(job: &Job<'_>) -> Result<Self, Failure> {
        let dir = scratch_dir(&job.control.home, job.run);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .map_err(|err| Failure::because("could not make a scratch directory", &err))?;
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

    pub(super) fn write_variables(&self, variables: &Map<String, Value>) -> Result<(), Failure> {
        write_private(
            &self.variables(),
            Value::Object(variables.clone()).to_string().as_bytes(),
        )
        .map_err(|err| Failure::because("could not hand over the inputs", &err))
    }

    pub(super) fn remove(self) {
        // What is left behind after a failure here is swept with the run.
        drop(fs::remove_dir_all(&self.dir));
    }
}

/// Known from the run alone, so that the next start can sweep what a killed runner left.
pub(crate) fn scratch_dir(home: &crate::home::Home, run: model::ids::RunId) -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        let owner = rustix::process::getuid().as_raw();
        memory.join(format!("terrane-{owner}-{}-{run}", home.tag()))
    } else {
        home.run_dir(run).join("scratch")
    }
}

pub(super) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::options()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)
}
