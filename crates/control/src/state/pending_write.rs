//! A state that an engine sent and the home could not store yet. It is sealed and durable in the run's
//! directory, until it becomes a version or a person decides about it.
//!
//! Not here: handling one that is found later (`state::quarantine`).

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use model::base::error::{ErrorKind, Explain};
use model::base::ids::RunId;
use model::state::StateName;
use store::{KeyScope, Store, StoreError};

use crate::home::{Home, make_private};

const FILE: &str = "undelivered.tfstate";
/// Marker file for a waiting state: on a full disk, an empty file can often still be created.
const WAITS: &str = "undelivered";

/// The place for a run's undelivered state. There is at most one, because each contains everything.
#[derive(Clone, Debug)]
pub struct PendingWrite {
    dir: PathBuf,
    run: RunId,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum PendingWriteError {
    #[error("cannot seal the pending write")]
    Seal(#[source] StoreError),
    #[error("could not {action} `{}`", path.display())]
    File {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

impl Explain for PendingWriteError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Seal(source) => source.kind(),
            Self::File { .. } => ErrorKind::Unavailable,
        }
    }
}

impl PendingWrite {
    /// `dir` is the run's directory.
    pub fn new(dir: PathBuf, run: RunId) -> Self {
        Self { dir, run }
    }

    /// The runs of a home that have an undelivered state.
    pub(crate) fn runs_with_pending(home: &Home) -> Vec<RunId> {
        let entries = fs::read_dir(home.runs()).into_iter().flatten().flatten();
        let mut runs: Vec<RunId> = entries
            .filter(|entry| entry.path().join(FILE).exists())
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        runs.sort_unstable();
        runs
    }

    /// Why a live run makes no progress, if an undelivered state is the reason.
    pub(crate) fn waits(home: &Home, run: RunId) -> Option<String> {
        let dir = home.run_dir(run);
        let waits = dir.join(WAITS).exists() || dir.join(FILE).exists();
        waits.then(|| {
            "waits for its home to take its state (is the disk full, or the database away?): it is held, and tried again for \
             ten minutes"
                .to_owned()
        })
    }

    /// Marks that a state is waiting.
    pub(crate) fn note(&self) {
        drop(File::create(self.dir.join(WAITS)));
    }

    /// Stores the state durably, in place of an earlier one.
    pub(crate) async fn keep(
        &self,
        store: &Store,
        state: &StateName,
        body: Vec<u8>,
    ) -> Result<(), PendingWriteError> {
        let scope = KeyScope::State(state.clone());
        let sealed = store.seal(scope, &self.purpose(), body).await;
        let sealed = sealed.map_err(PendingWriteError::Seal)?;
        place(&self.dir, &sealed).map_err(|source| PendingWriteError::File {
            action: "write",
            path: self.path(),
            source,
        })
    }

    /// The stored state, if there is one.
    pub(crate) async fn read(
        &self,
        store: &Store,
        state: &StateName,
    ) -> Result<Option<Vec<u8>>, PendingWriteError> {
        let sealed = match fs::read(self.path()) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|source| PendingWriteError::File {
                action: "read",
                path: self.path(),
                source,
            })?,
        };
        let scope = KeyScope::State(state.clone());
        let body = store.unseal(scope, &self.purpose(), sealed).await;
        body.map(Some).map_err(PendingWriteError::Seal)
    }

    /// Removes the file, because the state is in the store now. If that fails, the file is later recognised
    /// as already stored.
    pub(crate) fn clear(&self) {
        drop(fs::remove_file(self.path()));
        self.forget();
    }

    /// Removes the marker, because nothing waits for the state any more.
    pub(crate) fn forget(&self) {
        drop(fs::remove_file(self.dir.join(WAITS)));
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.join(FILE)
    }

    /// Binds the sealed state to its run.
    fn purpose(&self) -> String {
        format!("undelivered state {}", self.run)
    }
}

/// Writes a temporary file, syncs it, renames it, and syncs the directory.
fn place(dir: &Path, bytes: &[u8]) -> io::Result<()> {
    make_private(dir)?;
    let aside = dir.join(format!("{FILE}.new"));
    let mut file = File::options()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(&aside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&aside, dir.join(FILE))?;
    File::open(dir)?.sync_all()
}
