//! Creates a database or migrates it to this program's layout. One process does it; others wait.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::sqlite::prepare_connection;

/// The migrations, in order. Entries are only added.
pub(super) const MIGRATIONS: &[&str] = &[
    include_str!("../../migrations/0001_foundation.sql"),
    include_str!("../../migrations/0002_break_glass.sql"),
    include_str!("../../migrations/0003_blobs.sql"),
    include_str!("../../migrations/0004_tokens.sql"),
    include_str!("../../migrations/0005_state_index.sql"),
    include_str!("../../migrations/0006_kept_aside.sql"),
    include_str!("../../migrations/0007_segment_seen.sql"),
    include_str!("../../migrations/0008_people.sql"),
    include_str!("../../migrations/0009_stages.sql"),
    include_str!("../../migrations/0010_facts.sql"),
    include_str!("../../migrations/0011_fact_standing.sql"),
    include_str!("../../migrations/0012_artifacts.sql"),
    include_str!("../../migrations/0013_run_updated.sql"),
    include_str!("../../migrations/0014_lock_taken.sql"),
    include_str!("../../migrations/0015_hidden.sql"),
    include_str!("../../migrations/0016_blob_home.sql"),
    include_str!("../../migrations/0017_outputs.sql"),
    include_str!("../../migrations/0018_state_index_secret.sql"),
    include_str!("../../migrations/0019_refused_bounds.sql"),
    include_str!("../../migrations/0020_run_left.sql"),
    include_str!("../../migrations/0021_blob_number.sql"),
    include_str!("../../migrations/0022_plan_view.sql"),
    include_str!("../../migrations/0023_lock_taken_ring.sql"),
    include_str!("../../migrations/0024_secret_paths.sql"),
    include_str!("../../migrations/0025_token_actor.sql"),
];

/// A home of an older layout is refused: its frames have another format.
const OLDEST_LAYOUT: usize = 24;

/// How long to wait for other processes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Older versions may lose a write when a WAL is reset while another connection checkpoints.
const OLDEST_SQLITE: [u64; 3] = [3, 51, 3];

#[derive(Debug, thiserror::Error)]
pub enum OpenDbError {
    #[error("cannot wait for the process that sets up the database")]
    Queue(#[source] io::Error),
    #[error("could not rename the new database")]
    Place(#[source] io::Error),
    #[error("cannot open the database for writing")]
    Unwritable(#[source] super::DbError),
    #[error("could not open the database")]
    Connect(#[source] rusqlite::Error),
    #[error("could not set up the database (migration {number})")]
    Migrate {
        number: usize,
        source: rusqlite::Error,
    },
    #[error("the database did not accept the write-ahead log: its journal is `{journal}`")]
    Journal { journal: String },
    #[error(
        "the database was written by a newer terrane (layout {found}; this one supports {known})"
    )]
    Newer { found: i64, known: usize },
    #[error(transparent)]
    Older(#[from] OlderLayout),
    #[error("SQLite {found} is too old: 3.51.3 or newer is needed")]
    OldSqlite { found: String },
}

/// The database was written by a terrane from before the first release.
#[derive(Debug, thiserror::Error)]
#[error(
    "the database was written by an older terrane (layout {found}), and this one reads layout {OLDEST_LAYOUT} and newer: \
     export its states with that terrane, and import them into a new home"
)]
pub struct OlderLayout {
    found: usize,
}

impl OpenDbError {
    /// Whether it failed because the database cannot be written.
    pub(crate) fn wants_writing(&self) -> bool {
        use rusqlite::ErrorCode;
        let code = match self {
            Self::Queue(err) | Self::Place(err) => return crate::is_denied(err),
            // Its hint already names the fix.
            Self::Unwritable(_) => return false,
            Self::Connect(err) | Self::Migrate { source: err, .. } => err.sqlite_error_code(),
            Self::Journal { .. } | Self::Newer { .. } | Self::Older(_) | Self::OldSqlite { .. } => {
                None
            }
        };
        matches!(
            code,
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied)
        )
    }
}

/// Opens a connection, after creating or migrating the database if needed.
pub(super) async fn connect(file: &Path) -> Result<Connection, OpenDbError> {
    // A missing file is not probed: the first connection to it must be the one that sets it up.
    let mut connection = None;
    if file.exists() {
        let opened = open(file).map_err(OpenDbError::Connect)?;
        connection = probe(&opened)?.then_some(opened);
    }
    let connection = if let Some(connection) = connection {
        connection
    } else {
        let place = file.to_owned();
        tokio::task::spawn_blocking(move || set_up(&place))
            .await
            .map_err(|err| OpenDbError::Queue(io::Error::other(err)))??;
        open(file).map_err(OpenDbError::Connect)?
    };
    // From here on we wait asynchronously: waiting inside SQLite would block the thread.
    connection
        .busy_timeout(Duration::ZERO)
        .map_err(OpenDbError::Connect)?;
    Ok(connection)
}

fn open(file: &Path) -> rusqlite::Result<Connection> {
    // Each connection is used by one thread at a time.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags)?;
    // Closing the last connection to a database locks it for a moment.
    connection.busy_timeout(BUSY_TIMEOUT)?;
    prepare_connection(&connection)?;
    Ok(connection)
}

/// Whether the database has the layout of this program.
fn probe(connection: &Connection) -> Result<bool, OpenDbError> {
    const PROBE: &str = "SELECT sqlite_version(), (SELECT user_version FROM pragma_user_version), \
        (SELECT journal_mode FROM pragma_journal_mode)";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let (sqlite, layout, journal): (String, i64, String) = connection
        .query_row(PROBE, [], read)
        .map_err(OpenDbError::Connect)?;
    check_sqlite(&sqlite)?;
    Ok(migrations_left(layout)?.is_empty() && journal == "wal")
}

/// The same for a read-only connection, which may need no write-ahead log.
pub(super) fn is_current(connection: &Connection) -> Result<bool, OpenDbError> {
    let layout = connection.query_row("PRAGMA user_version", [], |row| row.get(0));
    let layout = layout.map_err(OpenDbError::Connect)?;
    Ok(migrations_left(layout)?.is_empty())
}

/// One process at a time does this, under an OS lock beside the database. A new database is created under another name
/// and renamed when complete: SQLite does not wait while a database is being switched to a write-ahead log.
fn set_up(file: &Path) -> Result<(), OpenDbError> {
    let _turn = take_turn(&file.with_extension("setup")).map_err(OpenDbError::Queue)?;
    if file.exists() {
        return bring_up_to_date(file);
    }
    let aside = file.with_extension("new");
    for left in ["new", "new-wal", "new-shm", "new-journal"] {
        let _ = fs::remove_file(file.with_extension(left));
    }
    // The log and the shared memory get the mode of the database.
    let mut made = File::options();
    made.create(true).truncate(false).write(true).mode(0o600);
    made.open(&aside).map_err(OpenDbError::Place)?;
    bring_up_to_date(&aside)?;
    fs::rename(&aside, file).map_err(OpenDbError::Place)?;
    let dir = file.parent().unwrap_or(Path::new("."));
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(OpenDbError::Place)
}

fn take_turn(path: &Path) -> io::Result<File> {
    let turn = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)?;
    rustix::fs::flock(&turn, rustix::fs::FlockOperation::LockExclusive)?;
    Ok(turn)
}

fn bring_up_to_date(file: &Path) -> Result<(), OpenDbError> {
    let mut connection = open(file).map_err(OpenDbError::Connect)?;
    let sqlite: String = connection
        .query_row("SELECT sqlite_version()", [], |row| row.get(0))
        .map_err(OpenDbError::Connect)?;
    check_sqlite(&sqlite)?;
    let journal: String = connection
        .query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))
        .map_err(OpenDbError::Connect)?;
    if journal != "wal" {
        return Err(OpenDbError::Journal { journal });
    }
    migrate(&mut connection)?;
    connection
        .close()
        .map_err(|(_, err)| OpenDbError::Connect(err))
}

/// Applies all missing migrations in one transaction.
fn migrate(connection: &mut Connection) -> Result<(), OpenDbError> {
    let tx = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(OpenDbError::Connect)?;
    let layout: i64 = tx
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .map_err(OpenDbError::Connect)?;
    let left = migrations_left(layout)?;
    let first = MIGRATIONS.len() - left.len() + 1;
    for (number, migration) in (first..).zip(left) {
        tx.execute_batch(migration)
            .and_then(|()| tx.execute_batch(&format!("PRAGMA user_version = {number}")))
            .map_err(|source| OpenDbError::Migrate { number, source })?;
    }
    tx.commit().map_err(OpenDbError::Connect)
}

fn migrations_left(layout: i64) -> Result<&'static [&'static str], OpenDbError> {
    check_not_older(layout)?;
    usize::try_from(layout)
        .ok()
        .and_then(|done| MIGRATIONS.get(done..))
        .ok_or(OpenDbError::Newer {
            found: layout,
            known: MIGRATIONS.len(),
        })
}

/// Layout zero is a database that is not set up yet.
pub(super) fn check_not_older(layout: i64) -> Result<(), OlderLayout> {
    match usize::try_from(layout) {
        Ok(found @ 1..OLDEST_LAYOUT) => Err(OlderLayout { found }),
        Ok(_) | Err(_) => Ok(()),
    }
}

fn check_sqlite(found: &str) -> Result<(), OpenDbError> {
    let numbers: Vec<u64> = found
        .split('.')
        .map_while(|part| part.parse().ok())
        .collect();
    if numbers.as_slice() >= OLDEST_SQLITE.as_slice() {
        Ok(())
    } else {
        Err(OpenDbError::OldSqlite {
            found: found.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_sqlite_is_refused() {
        assert!(check_sqlite("3.51.3").is_ok());
        assert!(check_sqlite("3.52.0").is_ok());
        assert!(check_sqlite("3.51.2").is_err());
        assert!(check_sqlite("3.9.9").is_err());
    }
}
