//! Where a project's memory lives, and which file is where in it.
//!
//! ```text
//! <home>/terrane.db           runs, change sets, lanes, locks, the index of states
//! <home>/states, keys         every version of every state, and the wrapped keys (`store`)
//! <home>/snapshots/<digest>   sources of change sets that are not over, encrypted
//! <home>/slots/<slot>/<n>     where engines run: a laid-out snapshot; most stacks share one
//! <home>/runs/<run>           a run's lock, what its engine wrote, its plan, encrypted
//! ```
//!
//! Not here: what the files mean.

use std::io;
use std::path::{Path, PathBuf};

use drivers::snapshot::Slot;
use model::ids::RunId;
use store::{Keyring, OpenStoreError, Store};

/// Directories of the person and the place, read from the environment once, by `cli`.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `--data` or `TERRANE_HOME`.
    pub named_home: Option<PathBuf>,
    pub data_dir: PathBuf,
    pub config_dir: PathBuf,
    pub cache_dir: PathBuf,
    /// Where the master key lies, if not in the config directory.
    pub key_file: Option<PathBuf>,
    /// Whether this is a CI job, whose disk goes when it ends.
    pub is_ci: bool,
}

#[derive(Clone, Debug)]
pub struct Home {
    root: PathBuf,
    key_file: PathBuf,
    project: String,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenHomeError {
    #[error("could not make the home `{}`", path.display())]
    Make { path: PathBuf, source: io::Error },
    #[error("the master key `{}` is missing, and the home `{}` holds states sealed with it", path.display(), home.display())]
    KeyGone { path: PathBuf, home: PathBuf },
    #[error("could not read the master key `{}`", path.display())]
    Key {
        path: PathBuf,
        source: store::OpenKeyringError,
    },
    #[error("could not open the home `{}`", path.display())]
    Open {
        path: PathBuf,
        source: Box<OpenStoreError>,
    },
}

/// A home that was opened, and whether a master key was made on the way: its owner must hear of it.
pub struct Opened {
    pub store: Store,
    pub home: Home,
    pub new_key: Option<PathBuf>,
}

impl Settings {
    /// The home of a project: a directory of its own for each, so that names never meet.
    pub fn home_of(&self, project: &str) -> Home {
        let base = self
            .named_home
            .clone()
            .unwrap_or_else(|| self.data_dir.clone());
        Home {
            root: base.join(project),
            key_file: self.master_key(),
            project: project.to_owned(),
        }
    }

    /// The named home itself, for states of any project, as a server keeps them.
    pub fn bare_home(&self) -> Option<Home> {
        let root = self.named_home.clone()?;
        let key_file = self.master_key();
        let project = String::new();
        Some(Home {
            root,
            key_file,
            project,
        })
    }

    /// Where the master key lies, or would be made.
    pub fn master_key(&self) -> PathBuf {
        let default = || self.config_dir.join("master.key");
        self.key_file.clone().unwrap_or_else(default)
    }
}

impl Home {
    /// For a runner, which is told where its home is.
    pub fn at(root: PathBuf, key_file: PathBuf, project: String) -> Self {
        Self {
            root,
            key_file,
            project,
        }
    }

    pub async fn open(self) -> Result<Opened, OpenHomeError> {
        // A new key for old states would only hide that the right one is missing.
        if !self.key_file.exists() && self.root.join("keys").is_dir() {
            return Err(OpenHomeError::KeyGone {
                path: self.key_file.clone(),
                home: self.root,
            });
        }
        make_private(&self.root).map_err(|source| OpenHomeError::Make {
            path: self.root.clone(),
            source,
        })?;
        let keys =
            Keyring::open_or_create(&self.key_file).map_err(|source| OpenHomeError::Key {
                path: self.key_file.clone(),
                source,
            })?;
        let made = keys.created();
        let store = Store::open(&self.root, keys)
            .await
            .map_err(|source| OpenHomeError::Open {
                path: self.root.clone(),
                source: Box::new(source),
            })?;
        let new_key = made.then(|| self.key_file.clone());
        Ok(Opened {
            store,
            home: self,
            new_key,
        })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn key_file(&self) -> &Path {
        &self.key_file
    }

    pub fn project(&self) -> &str {
        &self.project
    }

    /// What the engine writes to standard error, in whatever stage.
    pub(crate) fn engine_complaints(&self, run: RunId) -> PathBuf {
        self.run_dir(run).join("engine.err")
    }

    /// For whom a run waits before its engine starts.
    pub fn run_waits(&self, run: RunId) -> PathBuf {
        self.run_dir(run).join("waits")
    }

    /// What whoever asked should hear of, a line each; no secret is among them.
    pub fn run_warnings(&self, run: RunId) -> PathBuf {
        self.run_dir(run).join("warnings")
    }

    /// Notes which project lives here; says which other one did already. Two projects with one id would
    /// share states and lanes without knowing.
    pub fn claim_for(&self, name: &str) -> io::Result<Option<String>> {
        let path = self.project_name();
        match std::fs::read_to_string(&path) {
            Ok(other) => Ok(Some(other.trim().to_owned()).filter(|other| other != name)),
            Err(err) if err.kind() == io::ErrorKind::NotFound => {
                std::fs::write(path, name)?;
                Ok(None)
            }
            Err(err) => Err(err),
        }
    }

    /// The name of the project that made this home.
    pub fn project_name(&self) -> PathBuf {
        self.root.join("project.name")
    }

    /// A short name of this home among all homes of the machine.
    pub(crate) fn tag(&self) -> String {
        let digest = drivers::snapshot::sha256(self.root.as_os_str().as_encoded_bytes());
        digest[..12].to_owned()
    }

    pub fn run_dir(&self, run: RunId) -> PathBuf {
        self.root.join("runs").join(run.to_string())
    }

    /// What runners complain of before they can record anything; one file for all.
    pub(crate) fn runners_log(&self) -> PathBuf {
        self.root.join("runners.log")
    }

    /// What the engine says while it plans or applies, as it says it.
    pub fn engine_events(&self, run: RunId, stage: model::run::Stage) -> PathBuf {
        let name = match stage {
            model::run::Stage::Preparing => "init.jsonl",
            model::run::Stage::Planning => "plan.jsonl",
            model::run::Stage::Applying => "apply.jsonl",
        };
        self.run_dir(run).join(name)
    }

    /// Where the trees of a slot are, and their locks.
    pub(crate) fn slots(&self, slot: &str) -> PathBuf {
        self.root.join("slots").join(slot)
    }

    pub(crate) fn slot(&self, slot: &str, number: usize) -> Result<Slot, globset::Error> {
        // What engines and we write beside the source stays when another source is laid out.
        let keep = ["errored.tfstate", OVERRIDE_FILE, ".terraform.initialised"];
        let keep = keep.map(|name| format!("**/{name}"));
        let base = self.slots(slot);
        Slot::new(
            base.join(number.to_string()),
            base.join(format!("{number}.manifest")),
            &keep,
        )
    }

    pub(crate) fn snapshots_lock(&self) -> PathBuf {
        self.root.join("snapshots").join("lock")
    }

    pub fn snapshot(&self, digest: &str) -> PathBuf {
        self.root.join("snapshots").join(digest)
    }
}

/// Tells the engine which backend to use. Engines merge override files by name, and the last one wins: a
/// module's own must not take the state elsewhere.
pub(crate) const OVERRIDE_FILE: &str = "~~terrane_override.tf.json";

/// Makes a directory that only its owner can enter.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}
