//! Bringing a database to the layout this program knows: once, whoever comes first.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use sqlx::{ConnectOptions as _, Connection as _, Row as _};

/// Each entry: what to do, and the stamp that says it was done. Entries are only added.
const MIGRATIONS: &[(&str, &str)] = &[
    (
        include_str!("../../migrations/0001_foundation.sql"),
        "PRAGMA user_version = 1",
    ),
    (
        include_str!("../../migrations/0002_break_glass.sql"),
        "PRAGMA user_version = 2",
    ),
    (
        include_str!("../../migrations/0005_state_index.sql"),
        "PRAGMA user_version = 3",
    ),
];

/// Older ones may lose a write when a WAL is reset while another connection checkpoints.
const OLDEST_SQLITE: [u64; 3] = [3, 51, 3];

#[derive(Debug, thiserror::Error)]
pub enum OpenDbError {
    #[error("could not wait for the other process that sets up the database")]
    Queue(#[source] io::Error),
    #[error("could not put the new database in its place")]
    Place(#[source] io::Error),
    #[error("could not open the database")]
    Connect(#[source] sqlx::Error),
    #[error("could not set up the database (migration {number})")]
    Migrate { number: usize, source: sqlx::Error },
    #[error("the database did not accept the write-ahead log: its journal is `{journal}`")]
    Journal { journal: String },
    #[error("the database was written by a newer terrane (layout {found}, this one knows {known})")]
    Newer { found: i64, known: usize },
    #[error("SQLite {found} is too old: 3.51.3 or newer is needed")]
    OldSqlite { found: String },
}

/// Whether the database is of the layout this program knows.
pub(super) async fn probe(reader: &SqlitePool) -> Result<bool, OpenDbError> {
    const PROBE: &str = "SELECT sqlite_version(), (SELECT user_version FROM pragma_user_version), \
        (SELECT journal_mode FROM pragma_journal_mode)";
    let row = sqlx::query(PROBE)
        .fetch_one(reader)
        .await
        .map_err(OpenDbError::Connect)?;
    let sqlite: String = row.try_get(0).map_err(OpenDbError::Connect)?;
    let layout: i64 = row.try_get(1).map_err(OpenDbError::Connect)?;
    let journal: String = row.try_get(2).map_err(OpenDbError::Connect)?;
    check_sqlite(&sqlite)?;
    Ok(migrations_left(layout)?.is_empty() && journal == "wal")
}

/// One process at a time, under an OS lock beside the database. A new one is made aside and put in
/// its place when it is whole: SQLite does not wait when a database becomes one with a write-ahead
/// log while somebody looks at it.
pub(super) async fn set_up(file: &Path, options: &SqliteConnectOptions) -> Result<(), OpenDbError> {
    let turn = take_turn(file.with_extension("setup")).await;
    let _turn = turn.map_err(OpenDbError::Queue)?;
    if file.exists() {
        return bring_up_to_date(options.clone()).await;
    }
    let aside = file.with_extension("new");
    for left in ["new", "new-wal", "new-shm", "new-journal"] {
        let _ = fs::remove_file(file.with_extension(left));
    }
    // Its log and its shared memory get the mode of the database.
    let mut made = File::options();
    made.create(true).truncate(false).write(true).mode(0o600);
    made.open(&aside).map_err(OpenDbError::Place)?;
    bring_up_to_date(options.clone().filename(&aside)).await?;
    fs::rename(&aside, file).map_err(OpenDbError::Place)?;
    let dir = file.parent().unwrap_or(Path::new("."));
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(OpenDbError::Place)
}

async fn take_turn(path: PathBuf) -> io::Result<File> {
    tokio::task::spawn_blocking(move || {
        let turn = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path)?;
        rustix::fs::flock(&turn, rustix::fs::FlockOperation::LockExclusive)?;
        Ok(turn)
    })
    .await
    .map_err(io::Error::other)?
}

async fn bring_up_to_date(options: SqliteConnectOptions) -> Result<(), OpenDbError> {
    let mut connection = options.connect().await.map_err(OpenDbError::Connect)?;
    let sqlite: String = sqlx::query_scalar("SELECT sqlite_version()")
        .fetch_one(&mut connection)
        .await
        .map_err(OpenDbError::Connect)?;
    check_sqlite(&sqlite)?;
    let journal: String = sqlx::query_scalar("PRAGMA journal_mode = WAL")
        .fetch_one(&mut connection)
        .await
        .map_err(OpenDbError::Connect)?;
    if journal != "wal" {
        return Err(OpenDbError::Journal { journal });
    }
    migrate(&mut connection).await?;
    connection.close().await.map_err(OpenDbError::Connect)
}

/// All that is left to do, in one transaction, each step with its stamp.
async fn migrate(connection: &mut sqlx::SqliteConnection) -> Result<(), OpenDbError> {
    let mut tx = connection
        .begin_with("BEGIN IMMEDIATE")
        .await
        .map_err(OpenDbError::Connect)?;
    let layout: i64 = sqlx::query_scalar("PRAGMA user_version")
        .fetch_one(&mut *tx)
        .await
        .map_err(OpenDbError::Connect)?;
    let left = migrations_left(layout)?;
    let first = MIGRATIONS.len() - left.len() + 1;
    for (number, (deed, stamp)) in (first..).zip(left) {
        for sql in [*deed, *stamp] {
            sqlx::raw_sql(sql)
                .execute(&mut *tx)
                .await
                .map_err(|source| OpenDbError::Migrate { number, source })?;
        }
    }
    tx.commit().await.map_err(OpenDbError::Connect)
}

fn migrations_left(layout: i64) -> Result<&'static [(&'static str, &'static str)], OpenDbError> {
    usize::try_from(layout)
        .ok()
        .and_then(|done| MIGRATIONS.get(done..))
        .ok_or(OpenDbError::Newer {
            found: layout,
            known: MIGRATIONS.len(),
        })
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
