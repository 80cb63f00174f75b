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
use store::{OpenStoreError, Store};

use crate::keys::{KeySource, ReadKeyError};

/// Directories of the person and the place, read from the environment once, by `cli`.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `--data` or `TERRANE_HOME`.
    pub named_home: Option<PathBuf>,
    pub data_dir: PathBuf,
    pub config_dir: PathBuf,
    pub cache_dir: PathBuf,
    pub key: KeySource,
    /// Whether this is a CI job, whose disk goes when it ends.
    pub is_ci: bool,
}

#[derive(Clone, Debug)]
pub struct Home {
    root: PathBuf,
    key: KeySource,
    project: String,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenHomeError {
    #[error("could not make the home `{}`", path.display())]
    Make { path: PathBuf, source: io::Error },
    #[error("the master key `{}` is missing, and the home `{}` holds states sealed with it", path.display(), home.display())]
    KeyGone { path: PathBuf, home: PathBuf },
    #[error(transparent)]
    Key(#[from] ReadKeyError),
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
            key: self.key.clone(),
            project: project.to_owned(),
        }
    }

    /// The named home itself, for states of any project, as a server keeps them.
    pub fn bare_home(&self) -> Option<Home> {
        let root = self.named_home.clone()?;
        let key = self.key.clone();
        let project = String::new();
        Some(Home { root, key, project })
    }
}

impl Home {
    /// For a runner, which is told where its home is.
    pub fn at(root: PathBuf, key: KeySource, project: String) -> Self {
        Self { root, key, project }
    }

    pub async fn open(mut self) -> Result<Opened, OpenHomeError> {
        // A new key for old states would only hide that the right one is missing.
        if let Some(path) = self.key.file()
            && !path.exists()
            && self.root.join("keys").is_dir()
        {
            return Err(OpenHomeError::KeyGone {
                path: path.to_owned(),
                home: self.root,
            });
        }
        make_private(&self.root).map_err(|source| OpenHomeError::Make {
            path: self.root.clone(),
            source,
        })?;
        let keys = self.key.read().await?;
        let new_key = keys.created().then(|| self.key.file().map(Path::to_owned));
        if self.key.file().is_none() {
            // A command is asked once; runners get what it said.
            self.key = KeySource::Text(keys.to_text());
        }
        let store = Store::open(&self.root, keys)
            .await
            .map_err(|source| OpenHomeError::Open {
                path: self.root.clone(),
                source: Box::new(source),
            })?;
        Ok(Opened {
            store,
            home: self,
            new_key: new_key.flatten(),
        })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn key(&self) -> &KeySource {
        &self.key
    }

    pub fn project(&self) -> &str {
        &self.project
    }

    /// What the engine writes to standard error, in whatever stage.
    pub(crate) fn engine_complaints(&self, run: RunId) -> PathBuf {
        self.run_dir(run).join("engine.err")
    }

    /// A short name of this home among all homes of the machine.
    pub(crate) fn tag(&self) -> String {
        let digest = drivers::snapshot::sha256(self.root.as_os_str().as_encoded_bytes());
        digest[..12].to_owned()
    }

    pub fn run_dir(&self, run: RunId) -> PathBuf {
        self.runs().join(run.to_string())
    }

    pub(crate) fn runs(&self) -> PathBuf {
        self.root.join("runs")
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
