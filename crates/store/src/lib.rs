//! The one door to SQL and blobs.
//!
//! A home is a directory: `terrane.db` (tables), `states/` (one sealed file per version), `keys/`
//! (wrapped data keys), `refused/` (what was not accepted). Several processes may open it at once.
//!
//! Not here: what may happen (`model`), and in which order (`control`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

mod blobs;
mod break_glass;
mod change_sets;
mod db;
mod keys;
mod lanes;
mod locks;
mod refusals;
mod runs;
mod sealing;
mod state_index;
mod state_versions;
mod states;

pub use break_glass::NewBreakGlass;
pub use change_sets::{ChangeSetError, Say, Turn};
pub use db::{DbError, OpenDbError};
pub use keys::{KeyError, Keyring, OpenKeyringError, Scope};
pub use locks::{AcquireLockError, ReleaseLockError, Released};
pub use refusals::{NewRefusal, Refusal};
pub use sealing::{KeyedDigester, UnsealError};
pub use state_index::{Appearance, LastChange, VersionSummary};
pub use state_versions::{AdoptError, Adopted, AppendError, Appended, Writer};
pub use states::StateRow;

use blobs::Disk;
use db::Db;
use keys::Keys;

/// Everything a home keeps. Cheap to clone; clones share their connections.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) db: Db,
    pub(crate) disk: Disk,
    pub(crate) keys: Arc<Keys>,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenStoreError {
    #[error("could not make the directory `{path}`")]
    Directory {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("could not open `{path}`")]
    Database { path: PathBuf, source: OpenDbError },
}

/// Why the store could not do what was asked, whatever that was.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the database failed")]
    Db(#[from] DbError),
    #[error("could not {deed} `{path}`")]
    File {
        deed: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("could not get the data key")]
    Key(#[from] KeyError),
    #[error("could not read `{path}`")]
    Unseal { path: PathBuf, source: UnsealError },
    #[error("the database says `{found}` where {expected} is meant")]
    Row {
        found: String,
        expected: &'static str,
    },
    #[error("a task of ours ended early")]
    Interrupted,
}

/// How the database's files looked; another look says whether anything was committed since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeMark([Option<(std::time::SystemTime, u64)>; 2]);

impl ChangeMark {
    /// Whether it can be relied on at `now`. File times are coarse: of two commits in one tick of the
    /// clock, a look between them would never see the second.
    pub fn is_settled(&self, now: std::time::SystemTime) -> bool {
        const TICK: std::time::Duration = std::time::Duration::from_millis(100);
        let old = |(at, _): &(std::time::SystemTime, u64)| {
            now.duration_since(*at).is_ok_and(|age| age > TICK)
        };
        self.0.iter().flatten().all(old)
    }
}

impl Store {
    /// Costs two `stat` calls, so that who waits need not ask the database. May differ without a change.
    pub fn change_mark(&self) -> ChangeMark {
        let look = |name: &str| {
            let metadata = std::fs::metadata(self.disk.path(name)).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        };
        ChangeMark([look("terrane.db-wal"), look("terrane.db")])
    }

    /// Opens the home, made if it is new. Costs one connection; keys are read at first use.
    pub async fn open(home: &Path, keyring: Keyring) -> Result<Self, OpenStoreError> {
        let disk = Disk::new(home);
        disk.make_home()
            .map_err(|source| OpenStoreError::Directory {
                path: home.to_owned(),
                source,
            })?;
        let path = home.join("terrane.db");
        let db = Db::open_sqlite(&path)
            .await
            .map_err(|source| OpenStoreError::Database { path, source })?;
        let keys = Arc::new(Keys::new(keyring, disk.clone()));
        Ok(Self { db, disk, keys })
    }
}

/// Hashing, compression, encryption and fsync happen off the threads that serve others.
pub(crate) async fn blocking<T: Send + 'static>(
    deed: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(deed)
        .await
        .map_err(|_| StoreError::Interrupted)?
}

#[cfg(test)]
mod testing;
