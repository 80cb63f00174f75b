//! A database that cannot be written to, because its disk is full or read-only: it is opened read-only, so that commands
//! that only read still work.
//!
//! The state index is a cache and may be absent. Where it cannot be written, this process keeps one of its own in
//! memory: temporary tables of the same names, which SQLite prefers to those of the file.
//!
//! Not here: servers, which refuse to start there. A database of an older layout is refused, too.

use std::io;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::DbError;
use super::migrate::{OpenDbError, is_current};
use super::sqlite::prepare_connection;

/// The smallest shared memory of a database that a process has open.
const SHARED_REGION: u64 = 32 * 1024;

/// Opens a database read-only. Nothing here waits for other processes: readers never do.
pub(super) fn open_read_only(file: &Path) -> Result<Connection, OpenDbError> {
    // Without a log no process has the database open, and SQLite could not create the files that it shares
    // with others. An open that failed for lack of room leaves an empty log, and less than one region of
    // shared memory.
    let size = |extension: &str| {
        let found = std::fs::metadata(file.with_extension(extension));
        found.map_or(0, |found| found.len())
    };
    let has_log = size("db-wal") > 0 || size("db-shm") >= SHARED_REGION;
    let mode = if has_log { "mode=ro" } else { "immutable=1" };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let address = format!("file:{}?{mode}", escaped(file));
    let connection = Connection::open_with_flags(address, flags).map_err(OpenDbError::Connect)?;
    prepare_connection(&connection).map_err(OpenDbError::Connect)?;
    if !is_current(&connection)? {
        return Err(OpenDbError::Unwritable(DbError::ReadOnly));
    }
    index_in_memory(&connection).map_err(OpenDbError::Connect)?;
    Ok(connection)
}

/// Gives a connection a state index of its own, which begins as a copy of the stored one.
pub(super) fn index_in_memory(connection: &Connection) -> rusqlite::Result<()> {
    const TABLES: &str = "SELECT name, (SELECT group_concat(name) FROM pragma_table_info(t.name) \
        WHERE pk > 0) FROM main.sqlite_schema AS t WHERE type = 'table' AND name LIKE 'state\\_index%' ESCAPE '\\'";
    connection.execute_batch("PRAGMA temp_store = MEMORY")?;
    let mut statement = connection.prepare(TABLES)?;
    let tables = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    for table in tables.collect::<rusqlite::Result<Vec<(String, String)>>>()? {
        let (name, key) = table;
        connection.execute_batch(&format!(
            "CREATE TEMP TABLE IF NOT EXISTS {name} AS SELECT * FROM main.{name}; \
             CREATE UNIQUE INDEX IF NOT EXISTS temp.{name}_key ON {name} ({key})"
        ))?;
    }
    Ok(())
}

/// A path as part of a `file:` address.
fn escaped(file: &Path) -> String {
    let text = file.to_string_lossy();
    text.replace('%', "%25")
        .replace('?', "%3f")
        .replace('#', "%23")
}

/// Whether a failure to open may mean that nothing can be written.
pub(super) fn may_be_unwritable(err: &OpenDbError) -> bool {
    use rusqlite::ErrorCode as Code;
    match err {
        OpenDbError::Connect(err) | OpenDbError::Migrate { source: err, .. } => matches!(
            err.sqlite_error_code(),
            Some(Code::CannotOpen | Code::ReadOnly | Code::DiskFull | Code::SystemIoFailure)
        ),
        OpenDbError::Queue(err) | OpenDbError::Place(err) => {
            matches!(
                err.kind(),
                io::ErrorKind::ReadOnlyFilesystem
                    | io::ErrorKind::StorageFull
                    | io::ErrorKind::PermissionDenied
            )
        }
        OpenDbError::Unwritable(_) => true,
        OpenDbError::Journal { .. }
        | OpenDbError::Newer { .. }
        | OpenDbError::Older(_)
        | OpenDbError::OldSqlite { .. } => false,
    }
}

/// Why nothing can be written beside a database, if there is a reason.
pub(super) fn why(file: &Path) -> Option<OpenDbError> {
    let dir = file.parent()?;
    if rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_err() {
        return Some(OpenDbError::Unwritable(DbError::ReadOnly));
    }
    let is_full = rustix::fs::statvfs(dir).is_ok_and(|room| room.f_bavail == 0);
    is_full.then_some(OpenDbError::Unwritable(DbError::NoRoom))
}

#[cfg(test)]
mod tests {
    use super::super::migrate::connect;
    use super::*;

    const INDEX: &str = "INSERT INTO state_index (state, version, form) VALUES (1, 2, 'f') \
        ON CONFLICT (state) DO UPDATE SET version = 2";

    async fn database(dir: &Path) -> Connection {
        let writer = connect(&dir.join("terrane.db")).await.unwrap();
        let sql = "INSERT INTO state (id, project, name, created_at) VALUES (1, '', 'network', 1)";
        writer.execute(sql, []).unwrap();
        writer
    }

    fn check(dir: &Path) {
        let reader = open_read_only(&dir.join("terrane.db")).unwrap();
        let count = |sql| reader.query_row(sql, [], |row| row.get::<_, i64>(0));
        assert_eq!(count("SELECT COUNT(*) FROM state"), Ok(1));
        let refused = reader.execute("DELETE FROM state", []).unwrap_err();
        let code = refused.sqlite_error_code();
        assert_eq!(code, Some(rusqlite::ErrorCode::ReadOnly));
        for _ in 0..2 {
            reader.execute(INDEX, []).unwrap();
        }
        assert_eq!(count("SELECT version FROM state_index"), Ok(2));
        assert_eq!(count("SELECT COUNT(*) FROM main.state_index"), Ok(0));
    }

    #[tokio::test]
    async fn a_database_in_use_is_read_and_not_changed() {
        let dir = tempfile::tempdir().unwrap();
        let _writer = database(dir.path()).await;
        check(dir.path());
    }

    #[tokio::test]
    async fn a_closed_database_is_read_and_not_changed() {
        let dir = tempfile::tempdir().unwrap();
        drop(database(dir.path()).await);
        assert!(!dir.path().join("terrane.db-wal").exists());
        check(dir.path());
    }

    /// What a full disk does to a process that opened the database while there was room.
    #[tokio::test]
    async fn a_connection_that_can_write_gets_an_index_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let writer = database(dir.path()).await;
        writer
            .execute("INSERT INTO state_index VALUES (1, 1, 'f')", [])
            .unwrap();
        index_in_memory(&writer).unwrap();
        writer.execute(INDEX, []).unwrap();
        let version = |table: &str| {
            let sql = format!("SELECT version FROM {table}");
            writer
                .query_row(&sql, [], |row| row.get::<_, i64>(0))
                .unwrap()
        };
        assert_eq!(
            (version("state_index"), version("main.state_index")),
            (2, 1)
        );
    }
}
