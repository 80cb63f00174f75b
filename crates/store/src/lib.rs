//! The only access to SQL and blobs.
//!
//! A home is a directory: `terrane.db` (the database), `segments/` (every version, sealed), `keys/` (wrapped data
//! keys), `artifacts/` (files that stacks wrote, sealed), `refused/` (refused writes). Several processes may open it at
//! once. A shared home has its tables in PostgreSQL and the rest in a bucket.
//!
//! Not here: what may happen (`model`), and in which order (`control`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

mod access;
mod blob;
mod crypto;
mod db;
mod key;
mod offload;
mod run;
mod state;

pub use access::break_glass::NewBreakGlass;
pub use access::tokens::{NewToken, StoredToken, TokenError};
pub use blob::bucket::{BucketError, BucketFault, OpenBucketError};
pub use blob::file_name;
pub use blob::scratch::ScratchFile;
pub use crypto::UnsealError;
pub use db::{DbError, DriverError, OpenDbError, OpenMode, OpenPostgresError};
pub use key::data_keys::{KeyError, KeyScope, Rewrapped, WrappedKey};
pub use key::keyring::{Keyring, OpenKeyringError};
pub use key::sealing::KeyedDigester;
pub use offload::offload;
pub use run::bundles::{BundleInsertion, OpenBundleError, is_bundle};
use run::change_sets::KnownRequest;
pub use run::change_sets::{ChangeSetStep, ReportedEvent, ValueOverride};
pub use run::facts::{FactDigest, NewFactCommit, PastFact};
pub use run::holds::{NewHold, ReleaseHoldError};
pub use run::lanes::Fence;
pub use run::records::ChangeSetError;
use run::runs::KnownRuns;
pub use run::runs::{RunSummary, SettledOutputs, SettledRun};
pub use state::artifacts::{KeepArtifactsError, StoredArtifacts};
pub use state::check::rebuild::{LostVersion, RebuildReport};
pub use state::check::recover::{Acknowledgement, RecoveredItem, recover};
pub use state::check::stale_database::StaleState;
use state::check::stale_database::StaleStates;
pub use state::check::verify::{Damage, VerifyReport};
pub use state::index::{LastChange, ObjectLifetime, VersionSummary};
pub use state::locks::{AcquireLockError, LockRelease, ReleaseLockError};
pub use state::refusals::{Decider, Decision, NewRefusal};
pub use state::retention::RemovedVersion;
pub use state::states::{DeleteStateError, StateRow};
pub use state::sweep::SweepReport;
pub use state::versions::{
    AdoptError, Adopted, AppendError, Appended, BreakGlassRecord, ManualWrite, StateWriter,
};

use blob::bucket::Bucket;
use blob::{Blobs, Disk, UploadIntents};
use db::Db;
use key::data_keys::Keys;
use model::base::error::{ErrorKind, Explain};
use model::base::secret::Secret;
use model::state::{RivalVersion, StateName};
pub(crate) use offload::{blocking, try_offload};
use state::versions::{BodyCache, LockCache};
use tokio::sync::Semaphore;

/// How many large bodies are encoded at a time: each needs several times its size in memory.
const LARGE_AT_ONCE: usize = 2;

/// An open home. Cheap to clone; clones share their connections.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) db: Db,
    pub(crate) blobs: Blobs,
    pub(crate) keys: Arc<Keys>,
    pub(crate) recent: Arc<BodyCache>,
    /// A permit is held while a large body is encoded.
    pub(crate) large: Arc<Semaphore>,
    how: OpenMode,
    /// Found when the home was opened.
    pub(crate) stale: Arc<StaleStates>,
    /// The database, if it is a file.
    file: Option<PathBuf>,
    pub(crate) known_runs: Arc<KnownRuns>,
    pub(crate) known_request: Arc<KnownRequest>,
    pub(crate) upload_intents: Arc<UploadIntents>,
    pub(crate) lock_cache: Arc<LockCache>,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenStoreError {
    #[error("cannot create the directory `{path}`")]
    Directory {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "the database `{path}` is missing, but versions of states exist beside it: restore it, or rebuild it with `terrane state recover --into-home`"
    )]
    TablesGone { path: PathBuf },
    #[error(
        "the database is empty, but versions of states exist in `{place}`: name the right database, or fill this one with `terrane state recover --into-home`"
    )]
    TablesEmpty { place: PathBuf },
    #[error(
        "the versions of states are missing in `{place}`, but the database lists some: restore the directory"
    )]
    BlobsGone { place: PathBuf },
    #[error(
        "`{place}` does not belong to this database: name the right bucket and prefix, or the right database"
    )]
    OtherBlobs { place: PathBuf },
    #[error(
        "`{place}` can be read but not listed, so terrane cannot check whether the database is an older copy"
    )]
    NotListed {
        place: PathBuf,
        source: Box<BucketError>,
    },
    #[error("could not compare the database with the stored versions")]
    Compare(#[source] StoreError),
    #[error("could not open `{path}`")]
    Database { path: PathBuf, source: OpenDbError },
    #[error("could not open the database")]
    Postgres(#[from] OpenPostgresError),
    #[error("could not open the bucket")]
    Bucket(#[from] OpenBucketError),
}

impl OpenStoreError {
    /// Whether it failed because something cannot be written.
    pub fn wants_writing(&self) -> bool {
        match self {
            Self::Directory { source, .. } => is_denied(source),
            Self::Database { source, .. } => source.wants_writing(),
            Self::TablesGone { .. }
            | Self::TablesEmpty { .. }
            | Self::BlobsGone { .. }
            | Self::OtherBlobs { .. }
            | Self::NotListed { .. }
            | Self::Compare(_)
            | Self::Postgres(_)
            | Self::Bucket(_) => false,
        }
    }
}

fn is_denied(err: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(
        err.kind(),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
    )
}

/// Where the database is.
#[derive(Clone, Copy, Debug)]
pub enum DatabaseLocation<'a> {
    File(&'a Path),
    /// `postgres://…`
    Postgres(&'a Secret),
}

/// Where versions, keys and refused writes are stored.
#[derive(Clone, Copy, Debug)]
pub enum BlobLocation<'a> {
    Directory(&'a Path),
    /// `s3://BUCKET/PREFIX`, `az://…`, `gs://…` or `file:///DIR`, and the environment variables with its credentials.
    Bucket {
        url: &'a str,
        settings: &'a BTreeMap<String, String>,
    },
}

/// Whether the database is compared with the files when a home is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StalenessCheck {
    Made,
    Left,
}

/// Why an operation of the store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the database failed")]
    Db(#[from] DbError),
    #[error("could not {action} `{path}`")]
    File {
        action: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("could not {action} `{path}`")]
    Object {
        action: &'static str,
        path: PathBuf,
        source: Box<BucketError>,
    },
    #[error("could not get the data key")]
    Key(#[from] KeyError),
    #[error("could not read `{path}`")]
    Unseal { path: PathBuf, source: UnsealError },
    #[error("the database contains `{found}` where {expected} is expected")]
    Row {
        found: String,
        expected: &'static str,
    },
    #[error(
        "version {} of state `{state}` was acknowledged{}, but the database contains {}: it is older than the files; run `terrane state recover --into-home` to update it",
        .stale.acknowledged,
        .stale.since.map(|at| format!(" (the first one missing is from {})", at.strftime("%Y-%m-%d %H:%M:%S UTC"))).unwrap_or_default(),
        if .stale.known == 0 { "no version".to_owned() } else { format!("only version {}", .stale.known) },
    )]
    Stale { state: StateName, stale: StaleState },
    #[error(transparent)]
    Lost(Box<LostVersion>),
    #[error(transparent)]
    Rival(Box<RivalVersion>),
    #[error("the database's head is version {head}, but version {newest} exists")]
    OldHead { head: i64, newest: i64 },
    #[error(
        "the state has no head in the database, but version {newest} exists and the state was not deleted"
    )]
    NoHead { newest: i64 },
    #[error(
        "a frame in `{path}` is damaged, and only the database records that this version was acknowledged"
    )]
    Unmarked { version: i64, path: PathBuf },
    #[error("an internal task ended early")]
    Interrupted,
}

impl Explain for StoreError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Db(err) => err.kind(),
            Self::File { .. } | Self::Object { .. } | Self::Interrupted => ErrorKind::Unavailable,
            Self::Key(_)
            | Self::Unseal { .. }
            | Self::Row { .. }
            | Self::Stale { .. }
            | Self::Lost(_)
            | Self::OldHead { .. }
            | Self::NoHead { .. }
            | Self::Unmarked { .. }
            | Self::Rival(_) => ErrorKind::Failed,
        }
    }
}

impl StoreError {
    /// Whether the requested thing does not exist.
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::File { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
            Self::Object { source, .. } => {
                matches!(source.0, object_store::Error::NotFound { .. })
            }
            _ => false,
        }
    }

    /// Whether something exists where nothing was expected.
    pub(crate) fn is_taken(&self) -> bool {
        match self {
            Self::Object { source, .. } => {
                matches!(source.0, object_store::Error::AlreadyExists { .. })
            }
            _ => false,
        }
    }
}

/// The time and size of the database's files. If two marks are equal, nothing was committed in between. If the
/// database is not a file, no two marks are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DbFileMark {
    files: [Option<(std::time::SystemTime, u64)>; 2],
    look: usize,
}

impl DbFileMark {
    /// Whether it can be relied on at `now`. File times are coarse: a mark taken between two commits of the same clock
    /// tick would miss the second.
    pub fn is_settled(&self, now: std::time::SystemTime) -> bool {
        const TICK: std::time::Duration = std::time::Duration::from_millis(100);
        let old = |(at, _): &(std::time::SystemTime, u64)| {
            now.duration_since(*at).is_ok_and(|age| age > TICK)
        };
        self.files.iter().flatten().all(old)
    }
}

impl Store {
    /// Costs two `stat` calls, so that polling does not query the database. May differ without a change.
    pub fn change_mark(&self) -> DbFileMark {
        static LOOKS: AtomicUsize = AtomicUsize::new(0);
        let look = |extension: &str| {
            let path = self.file.as_ref()?.with_extension(extension);
            let metadata = std::fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        };
        let is_file = self.file.is_some();
        DbFileMark {
            files: [look("db-wal"), look("db")],
            look: if is_file {
                0
            } else {
                LOOKS.fetch_add(1, Ordering::Relaxed)
            },
        }
    }

    /// Opens the home, and creates it if needed. Costs one connection; keys are read when first needed.
    pub async fn open(home: &Path, keyring: Keyring) -> Result<Self, OpenStoreError> {
        let file = home.join("terrane.db");
        let (tables, blobs) = (DatabaseLocation::File(&file), BlobLocation::Directory(home));
        Self::open_with(tables, blobs, keyring, OpenMode::Cli).await
    }

    /// Opens a home whose database and blobs are in different places, or for a server.
    pub async fn open_with(
        tables: DatabaseLocation<'_>,
        blobs: BlobLocation<'_>,
        keyring: Keyring,
        how: OpenMode,
    ) -> Result<Self, OpenStoreError> {
        Self::open_parts(tables, blobs, keyring, how, StalenessCheck::Made).await
    }

    /// Opens a home to rebuild its database from its files.
    pub async fn open_to_rebuild(
        tables: DatabaseLocation<'_>,
        blobs: BlobLocation<'_>,
        keyring: Keyring,
    ) -> Result<Self, OpenStoreError> {
        Self::open_parts(tables, blobs, keyring, OpenMode::Cli, StalenessCheck::Left).await
    }

    async fn open_parts(
        tables: DatabaseLocation<'_>,
        blobs: BlobLocation<'_>,
        keyring: Keyring,
        how: OpenMode,
        comparison: StalenessCheck,
    ) -> Result<Self, OpenStoreError> {
        let blobs = blobs.open(how)?;
        let (db, file) = match tables {
            DatabaseLocation::File(file) => {
                // A new database beside old versions would only hide that the right one is missing.
                if let (Blobs::Disk(disk), false) = (&blobs, file.exists())
                    && comparison == StalenessCheck::Made
                    && disk.segments.numbers().is_ok_and(|found| !found.is_empty())
                {
                    let path = file.to_owned();
                    return Err(OpenStoreError::TablesGone { path });
                }
                make_dir(file.parent().unwrap_or(Path::new(".")))?;
                let db = Db::open_sqlite(file, how).await;
                let db = db.map_err(|source| OpenStoreError::Database {
                    path: file.to_owned(),
                    source,
                })?;
                (db, Some(file.to_owned()))
            }
            DatabaseLocation::Postgres(url) => (Db::open_postgres(url.expose()).await?, None),
        };
        let stale = match comparison {
            StalenessCheck::Made => state::check::stale_database::compare(&db, &blobs).await?,
            StalenessCheck::Left => StaleStates::new(),
        };
        Ok(Self {
            stale: Arc::new(stale),
            db,
            keys: Arc::new(Keys::new(keyring, blobs.clone())),
            blobs,
            recent: Arc::default(),
            large: Arc::new(Semaphore::new(LARGE_AT_ONCE)),
            how,
            file,
            known_runs: Arc::default(),
            known_request: Arc::default(),
            upload_intents: Arc::default(),
            lock_cache: Arc::default(),
        })
    }

    /// Like `blocking`, for work on `size` bytes that at most reads or writes small files. A CLI process does it at
    /// once: a thread would cost more than the work.
    pub(crate) async fn nearby<T: Send + 'static>(
        &self,
        size: usize,
        operation: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let is_disk = matches!(self.blobs, Blobs::Disk(_));
        if is_disk && self.how == OpenMode::Cli && size as u64 <= offload::SMALL {
            operation()
        } else if size as u64 > offload::LARGE {
            try_offload(size as u64, operation).await
        } else {
            blocking(operation).await
        }
    }
}

impl BlobLocation<'_> {
    fn open(self, how: OpenMode) -> Result<Blobs, OpenStoreError> {
        Ok(match self {
            BlobLocation::Directory(home) => {
                make_dir(home)?;
                let mut disk = Disk::new(home);
                if how == OpenMode::Server {
                    disk.serve();
                }
                Blobs::Disk(disk)
            }
            BlobLocation::Bucket { url, settings } => {
                let settings = settings.iter();
                let settings = settings.map(|(key, value)| (key.as_str(), value.as_str()));
                Blobs::Bucket(Bucket::open(url, settings)?)
            }
        })
    }
}

fn make_dir(dir: &Path) -> Result<(), OpenStoreError> {
    blob::files::make_dir(dir).map_err(|source| OpenStoreError::Directory {
        path: dir.to_owned(),
        source,
    })
}

#[cfg(test)]
mod testing;
