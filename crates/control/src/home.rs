//! Where a project stores its data, and which file is where.
//!
//! ```text
//! <home>/terrane.db           runs, change sets, lanes, locks, the index of states
//! <home>/segments, keys       all versions of all states, and the wrapped keys (`store`)
//! <home>/refused              refused writes, stored for a limited time (`store`)
//! <work>/snapshots/<digest>   sources of open change sets, encrypted
//! <work>/slots/<slot>/<n>     where engines run: an unpacked snapshot; most stacks share one
//! <work>/runs/<run>           a run's lock, its engine's output, its plan and what was approved, encrypted
//! <work>/kept-plans/<set>     change sets whose plans wait to be written into a bundle
//! ```
//!
//! In a project's own home, `<home>` and `<work>` are the same. A named home is shared by all projects that name
//! it, and by a server; each of them works in `<home>/projects/<id>`.
//!
//! Not here: what the files contain.

pub mod hardening;
pub mod master_keys;
pub mod retry;

use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use drivers::snapshot::Slot;
use model::base::error::{Explain, NextStep, advice, causes};
use model::base::ids::RunId;
use model::run::RunSpec;
use store::{OpenStoreError, Store, StoreError};

pub use location::{HomeLocation, InvalidHomeLocation, SharedHome};
use store::OpenMode;

mod location;

use crate::home::master_keys::{KeySource, ReadKeyError};

/// Directories and settings of the user, read from the environment once by `cli`.
#[derive(Clone, Debug)]
pub struct HomeSettings {
    /// `--data` or `TERRANE_HOME`.
    pub named_home: Option<HomeLocation>,
    pub data_dir: PathBuf,
    pub config_dir: PathBuf,
    pub cache_dir: PathBuf,
    pub key: KeySource,
    /// Whether this is a CI job, whose disk is discarded when it ends.
    pub is_ci: bool,
}

/// A memory file system, for files that must never reach a disk.
const MEMORY: &str = "/dev/shm";

#[derive(Clone, Debug)]
pub struct Home {
    store: HomeLocation,
    /// The working directory of this project.
    work: PathBuf,
    key: KeySource,
    project: String,
    /// The ID of this machine in a shared home; empty if the home is not shared.
    machine: String,
    /// Path prefix of the runs' scratch directories in memory; `None` without a memory file system.
    memory: OnceLock<Option<String>>,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenHomeError {
    #[error("cannot create the home `{}`", path.display())]
    Make { path: PathBuf, source: io::Error },
    #[error("the master key `{}` is missing, but the home `{}` contains states sealed with it", path.display(), home.display())]
    KeyGone { path: PathBuf, home: PathBuf },
    #[error("the home `{home}` contains data sealed with a master key that is not available")]
    KeyElsewhere { home: String },
    #[error("cannot list the keys of the home `{home}`")]
    Keys {
        home: String,
        source: Box<StoreError>,
    },
    #[error(transparent)]
    Key(#[from] ReadKeyError),
    #[error("could not open the home `{home}`")]
    Open {
        home: String,
        source: Box<OpenStoreError>,
    },
}

impl Explain for OpenHomeError {
    fn next_steps(&self) -> Vec<NextStep> {
        vec![advice(match self {
            Self::Key(err) => return err.next_steps(),
            Self::Make { path, .. } => {
                let own = rustix::process::getuid().as_raw();
                of_another(path, own).unwrap_or_else(|| {
                    "name a home that can be written: `--data DIR` or `TERRANE_HOME`".to_owned()
                })
            }
            Self::KeyElsewhere { .. } => {
                "copy the key from the machine where the home was first used, and set `TERRANE_KEY_FILE`, `TERRANE_KEY` or `TERRANE_KEY_COMMAND`"
                    .to_owned()
            }
            Self::KeyGone { .. } => {
                "restore the file from a backup, or set its path: `TERRANE_KEY_FILE`".to_owned()
            }
            Self::Open { source, .. } if source.wants_writing() => {
                "make the home writable, or name another one: `--data DIR` or `TERRANE_HOME`"
                    .to_owned()
            }
            Self::Keys { .. } | Self::Open { .. } => return Vec::new(),
        })]
    }
}

/// The hint for a home in a directory that only another user can enter.
fn of_another(path: &Path, own: u32) -> Option<String> {
    // Find the nearest ancestor that can be read.
    let mut seen = path.ancestors().map(|dir| (dir, std::fs::metadata(dir)));
    let (dir, found) = seen.find_map(|(dir, found)| Some((dir, found.ok()?)))?;
    let is_private = found.mode() % 0o10 == 0; // no permissions for others
    (found.uid() != own && is_private).then(|| {
        format!(
            "`{}` belongs to another user (number {}), and a home in a directory is one user's: name one of your own \
             (`--data DIR` or `TERRANE_HOME`), or share one in PostgreSQL with a bucket",
            dir.display(),
            found.uid()
        )
    })
}

/// An opened home. `new_key` is set if a master key was created, so that the user can be told.
pub(crate) struct OpenedHome {
    pub(crate) store: Store,
    pub(crate) home: Home,
    pub(crate) new_key: Option<PathBuf>,
}

impl HomeSettings {
    pub fn home_of(&self, project: &str) -> Home {
        let own = self.data_dir.join(project);
        let (store, work) = match &self.named_home {
            None => {
                let work = work_in(&own, project);
                (HomeLocation::Directory(own), work)
            }
            Some(HomeLocation::Directory(dir)) => {
                (HomeLocation::Directory(dir.clone()), work_in(dir, project))
            }
            // Data that only this machine needs stays on it.
            Some(shared @ HomeLocation::Shared(_)) => (shared.clone(), own.join("shared")),
        };
        Home::at(store, work, self.key.clone(), project.to_owned())
    }

    /// The named home itself, for states of any project, as a server stores them.
    pub fn bare_home(&self) -> Option<Home> {
        let store = self.named_home.clone()?;
        let work = match &store {
            HomeLocation::Directory(dir) => dir.clone(),
            HomeLocation::Shared(_) => self.data_dir.join("shared"),
        };
        Some(Home::at(store, work, self.key.clone(), String::new()))
    }
}

/// The working directory of a project in a home: `projects/<id>`, or the home itself if it has the project's
/// name. The result must not depend on how the home is named: processes have to find each other's locks.
fn work_in(home: &Path, project: &str) -> PathBuf {
    let real = home.canonicalize();
    let real = real.as_deref().unwrap_or(home);
    let part = home.join("projects").join(project);
    let is_own = real.file_name().is_some_and(|name| name == project);
    let is_used = |work: &Path| work.join("runs").is_dir();
    if is_own && (is_used(home) || !is_used(&part)) {
        home.to_owned()
    } else {
        part
    }
}

impl Home {
    /// For a runner, which receives the location of its home.
    pub fn at(store: HomeLocation, work: PathBuf, key: KeySource, project: String) -> Self {
        Self {
            store,
            work,
            key,
            project,
            machine: String::new(),
            memory: OnceLock::new(),
        }
    }

    pub(crate) async fn open(self) -> Result<OpenedHome, OpenHomeError> {
        self.open_for(OpenMode::Cli).await
    }

    pub(crate) async fn open_for(mut self, how: OpenMode) -> Result<OpenedHome, OpenHomeError> {
        // Creating a new key for existing states would only hide that the right key is missing.
        if let Some(path) = self.key.file()
            && !path.exists()
            && let Some(dir) = self.store.directory()
            && dir.join("keys").is_dir()
        {
            return Err(OpenHomeError::KeyGone {
                path: path.to_owned(),
                home: dir.to_owned(),
            });
        }
        for dir in self.store.directory().into_iter().chain([&*self.work]) {
            make_private(dir).map_err(|source| OpenHomeError::Make {
                path: dir.to_owned(),
                source,
            })?;
        }
        drivers::git::publish::sweep_keys(&self.work.join("facts"));
        if let HomeLocation::Shared(_) = self.store {
            let path = self.work.join("machine");
            self.machine = machine(&path).map_err(|source| OpenHomeError::Make { path, source })?;
        }
        let keys = self.key.read().await?;
        let new_key = keys.created().then(|| self.key.file().map(Path::to_owned));
        let source = self.key.clone();
        if self.key.file().is_none() {
            // A key command runs only once; runners receive its output.
            self.key = KeySource::Text {
                key: keys.to_text(),
                origin: self.key.describe(),
            };
        }
        let store = self.store.open(keys, how).await;
        let store = store.map_err(|source| OpenHomeError::Open {
            home: self.store.describe(),
            source: Box::new(source),
        })?;
        // A key that was just created cannot open an existing shared home: do not leave it behind.
        if let (Some(Some(path)), HomeLocation::Shared(_)) = (&new_key, &self.store) {
            let home = self.store.describe();
            let asked = store
                .has_keys()
                .await
                .map_err(|source| OpenHomeError::Keys {
                    home: home.clone(),
                    source: Box::new(source),
                });
            if !matches!(asked, Ok(false)) {
                drop(std::fs::remove_file(path));
            }
            if asked? {
                return Err(OpenHomeError::KeyElsewhere { home });
            }
        }
        source.renew(&store);
        Ok(OpenedHome {
            store,
            home: self,
            new_key: new_key.flatten(),
        })
    }

    pub fn store(&self) -> &HomeLocation {
        &self.store
    }

    /// The same home for another of its projects, with that project's working directory.
    pub(crate) fn seen_by(&self, project: &str) -> Self {
        let mut home = self.clone();
        if let HomeLocation::Directory(dir) = &self.store
            && self.project != project
        {
            home.work = work_in(dir, project);
            home.memory = OnceLock::new();
            project.clone_into(&mut home.project);
        }
        home
    }

    /// Whether runs of this project were executed here.
    pub fn is_used(&self) -> bool {
        self.runs().is_dir()
    }

    /// This project's data outside the store, on this machine.
    pub fn work(&self) -> &Path {
        &self.work
    }

    pub fn key(&self) -> &KeySource {
        &self.key
    }

    pub fn machine(&self) -> &str {
        &self.machine
    }

    pub fn project(&self) -> &str {
        &self.project
    }

    /// The directory for a run's plain-text data, in memory if possible. The path depends only on the run, so
    /// that the next start can remove what a killed runner left.
    pub(crate) fn scratch(&self, run: RunId) -> PathBuf {
        let memory = || {
            let owner = rustix::process::getuid().as_raw();
            let begins = format!("{MEMORY}/terrane-{owner}-{}-", self.tag());
            Path::new(MEMORY).is_dir().then_some(begins)
        };
        match self.memory.get_or_init(memory) {
            Some(begins) => PathBuf::from(format!("{begins}{run}")),
            None => self.run_dir(run).join("scratch"),
        }
    }

    /// The file with the values that a run must mask, in its scratch directory.
    pub(crate) fn hidden_values(&self, run: RunId) -> PathBuf {
        self.scratch(run).join(HIDDEN_VALUES)
    }

    /// The raw output of the engine, including secrets, until its masked copy is complete.
    pub(crate) fn engine_output(&self, run: RunId, stage: model::run::Stage) -> PathBuf {
        self.scratch(run).join(log_name(stage))
    }

    pub(crate) fn engine_complaints_raw(&self, run: RunId) -> PathBuf {
        self.scratch(run).join(COMPLAINTS)
    }

    /// The raw output of a hook. It is not in the scratch directory, which a hook after a failure no longer
    /// has.
    pub(crate) fn hook_output(&self, run: RunId) -> PathBuf {
        self.run_dir(run).join("hook.raw")
    }

    /// The engine's standard error in all stages, without secrets.
    pub fn engine_complaints(&self, run: RunId) -> PathBuf {
        self.run_dir(run).join(COMPLAINTS)
    }

    /// Why a run is waiting.
    pub fn run_waits(&self, run: RunId) -> PathBuf {
        self.run_dir(run).join("waits")
    }

    /// Warnings for the user who requested the run, one per line, without secrets.
    pub fn run_warnings(&self, run: RunId) -> PathBuf {
        self.run_dir(run).join("warnings")
    }

    /// What applying the run's plan would change in facts.
    pub fn run_facts(&self, run: RunId) -> PathBuf {
        self.run_dir(run).join("facts.json")
    }

    /// Records which project uses this home; returns the name of another project that already does. Two
    /// projects with the same id would share states and lanes unnoticed.
    pub fn claim_for(&self, name: &str) -> io::Result<Option<String>> {
        let path = self.project_name();
        match std::fs::read_to_string(&path) {
            Ok(other) => Ok(Some(other.trim().to_owned()).filter(|other| other != name)),
            Err(err) if err.kind() == io::ErrorKind::NotFound => {
                let mut options = std::fs::File::options();
                let mut file = options
                    .write(true)
                    .create(true)
                    .truncate(true)
                    .mode(0o600)
                    .open(path)?;
                file.write_all(name.as_bytes())?;
                Ok(None)
            }
            Err(err) => Err(err),
        }
    }

    /// The file with the name of the project that created this home.
    pub fn project_name(&self) -> PathBuf {
        self.work.join("project.name")
    }

    /// A short digest that distinguishes this home from others on the machine.
    fn tag(&self) -> String {
        let digest = drivers::snapshot::sha256(self.work.as_os_str().as_encoded_bytes());
        digest[..12].to_owned()
    }

    pub fn run_dir(&self, run: RunId) -> PathBuf {
        self.runs().join(run.to_string())
    }

    /// The engine's plan file of a run, sealed.
    pub(crate) fn plan_file(&self, run: RunId) -> PathBuf {
        self.run_dir(run).join("plan.file")
    }

    /// The plan of a run as shown to people, sealed.
    pub(crate) fn plan_view(&self, run: RunId) -> PathBuf {
        self.run_dir(run).join("plan.view")
    }

    /// The plan of a run in the form that later plans are compared with, sealed.
    pub(crate) fn plan_difference(&self, run: RunId) -> PathBuf {
        self.run_dir(run).join("plan.difference")
    }

    /// The outputs that the plan of a run would produce, sealed.
    pub(crate) fn planned_outputs(&self, run: RunId) -> PathBuf {
        self.run_dir(run).join("plan.outputs")
    }

    /// Lock file that serialises checks and claims of run locks.
    pub(crate) fn run_gate(&self) -> PathBuf {
        self.work.join("runs.gate")
    }

    pub(crate) fn runs(&self) -> PathBuf {
        self.work.join("runs")
    }

    /// Errors of runners that cannot record anything yet; one file for all runners.
    pub(crate) fn runners_log(&self) -> PathBuf {
        self.work.join("runners.log")
    }

    /// The engine's output in a stage of the last attempt, without secrets.
    pub fn engine_events(&self, run: RunId, stage: model::run::Stage) -> PathBuf {
        self.run_dir(run).join(log_name(stage))
    }

    /// The logs of an earlier attempt of a run, counted from 1.
    pub(crate) fn attempt(&self, run: RunId, number: usize) -> PathBuf {
        self.attempts(run).join(number.to_string())
    }

    pub(crate) fn attempts(&self, run: RunId) -> PathBuf {
        self.run_dir(run).join("attempts")
    }

    /// The engine permits: one lock file for each permit of a change set.
    pub(crate) fn places(&self) -> PathBuf {
        self.work.join("places")
    }

    /// The directory of a slot's trees and their locks.
    pub(crate) fn slots(&self, slot: &str) -> PathBuf {
        self.work.join("slots").join(slot)
    }

    /// The file that records which run's engine applied last in the stack's directory.
    pub(crate) fn applying_note(&self, spec: &RunSpec) -> PathBuf {
        let name = format!("0.{}.applying", spec.stack.name);
        self.slots(&spec.slot).join(name)
    }

    pub(crate) fn slot(&self, slot: &str, number: usize) -> Result<Slot, globset::Error> {
        // Files that engines and terrane write beside the source stay when another source is unpacked.
        let keep = ["errored.tfstate", OVERRIDE_FILE, ".terraform.initialised"];
        let keep = keep.map(|name| format!("**/{name}"));
        let base = self.slots(slot);
        Slot::new(
            base.join(number.to_string()),
            base.join(format!("{number}.manifest")),
            &keep,
        )
    }

    /// Contains one file for each change set whose plans are kept for a bundle.
    pub(crate) fn kept_plans(&self) -> PathBuf {
        self.work.join("kept-plans")
    }

    pub(crate) fn snapshots_lock(&self) -> PathBuf {
        self.work.join("snapshots").join("lock")
    }

    pub fn snapshot(&self, digest: &str) -> PathBuf {
        self.work.join("snapshots").join(digest)
    }
}

/// Override file that sets the engine's backend. Engines merge override files in the order of their names,
/// and the last one wins. This name sorts last, so that a module's own override cannot redirect the state.
pub(crate) const OVERRIDE_FILE: &str = "~~terrane_override.tf.json";

/// The file in a run's scratch directory with the values to mask.
pub(crate) const HIDDEN_VALUES: &str = "hidden.json";

/// Writes a file that only its owner can read.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = std::fs::File::options()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)
}

/// Creates a directory that only its owner can enter.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

/// The ID that this machine chose when it first used a shared home. A restarted container counts as another
/// machine, because no process of the previous one is alive in it.
fn machine(path: &Path) -> io::Result<String> {
    let aside = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new(".")))?;
    let name = uuid::Uuid::new_v4().simple().to_string();
    aside.as_file().write_all(name.as_bytes())?;
    match aside.persist_noclobber(path) {
        Ok(_) => Ok(name),
        Err(err) if err.error.kind() == io::ErrorKind::AlreadyExists => {
            std::fs::read_to_string(path)
        }
        Err(err) => Err(err.error),
    }
}
pub(crate) const COMPLAINTS: &str = "engine.err";

/// The file name of a stage's log.
pub(crate) fn log_name(stage: model::run::Stage) -> &'static str {
    match stage {
        model::run::Stage::Preparing => "init.jsonl",
        model::run::Stage::Planning => "plan.jsonl",
        model::run::Stage::Applying => "apply.jsonl",
        model::run::Stage::Publishing => "publish.jsonl",
        model::run::Stage::Bootstrapping => "bootstrap.jsonl",
        model::run::Stage::Verifying => "verify.jsonl",
    }
}

/// Whether the home's database is currently unreachable.
pub fn is_away(error: &dyn std::error::Error) -> bool {
    causes(error)
        .filter_map(|cause| cause.downcast_ref::<store::DriverError>())
        .any(store::DriverError::is_away)
}

/// The hint for an error caused by the location of the home: it cannot be written, or its bucket is not
/// accessible.
pub fn advice_about_place(error: &dyn std::error::Error) -> Option<NextStep> {
    causes(error).find_map(about_cause).map(advice)
}

fn about_cause(cause: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    const FULL: &str = "free space on that disk and repeat the command; acknowledged data is not lost, and commands that only read work meanwhile";
    const READ_ONLY: &str = "the file system or the files are read-only: commands that only read work there; use a writable home for the others";
    const EITHER: &str =
        "free space on the disk, or mount it writable; commands that only read work meanwhile";
    const NO_BUCKET: &str = "create the bucket, or correct `blobs=` in `TERRANE_HOME`; `AWS_ENDPOINT_URL` selects another S3 service";
    const CREDENTIALS: &str = "set credentials in the service's own variables: `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, `AZURE_STORAGE_…`, `GOOGLE_…`";
    const LISTING: &str = "allow these credentials to list the bucket (on S3: `s3:ListBucket`)";
    if let Some(open) = cause.downcast_ref::<Box<OpenStoreError>>()
        && matches!(**open, OpenStoreError::NotListed { .. })
    {
        return Some(LISTING);
    }
    match cause.downcast_ref::<store::DbError>() {
        Some(store::DbError::NoRoom) => return Some(FULL),
        Some(store::DbError::ReadOnly) => return Some(EITHER),
        _ => {}
    }
    let trouble = cause.downcast_ref::<Box<store::BucketError>>();
    match trouble.and_then(|trouble| trouble.fault()) {
        Some(store::BucketFault::NoBucket) => return Some(NO_BUCKET),
        Some(store::BucketFault::Credentials) => return Some(CREDENTIALS),
        None => {}
    }
    match cause.downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(io::ErrorKind::StorageFull) => return Some(FULL),
        Some(io::ErrorKind::ReadOnlyFilesystem) => return Some(READ_ONLY),
        _ => {}
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_of_another_user_is_said_to_be_theirs() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        make_private(&home).unwrap();
        let owner = std::fs::metadata(&home).unwrap().uid();
        let work = home.join("projects").join("shop");
        assert_eq!(of_another(&work, owner), None);
        let hint = of_another(&work, owner + 1).expect("a hint");
        let words = format!("`{}` belongs to another user", home.display());
        assert!(hint.starts_with(&words), "{hint}");
    }
}
