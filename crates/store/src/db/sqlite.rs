//! SQLite, called on the current thread: most statements take microseconds, and most processes live for
//! milliseconds.
//!
//! Not here: creating a database (`migrate`), shared commits (`group`).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Connection, ErrorCode};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::group::Group;
use super::migrate::{self, OpenDbError};
use super::read_only::{index_in_memory, may_be_unwritable, open_read_only, why};
use super::value::{Row, Value};
use super::{DbError, OpenMode, SyncedFile, failed, sync_all};

/// How long a writer waits for the writers of other processes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Prepared statements cached per connection.
const STATEMENTS: usize = 128;

/// How many pages a server's log holds before a checkpoint: 32 MB.
const CHECKPOINT_PAGES: usize = 8000;

/// Whether a commit waits for the disk.
const FULL: &str = "PRAGMA synchronous = FULL";
const LAZY: &str = "PRAGMA synchronous = NORMAL";

/// A server's read connections.
const READERS: usize = 4;

#[derive(Clone, Debug)]
pub(crate) struct SqliteDb {
    writer: Arc<Mutex<Connection>>,
    /// Empty in a CLI process: a second connection would cost more than it saves.
    readers: Arc<[Mutex<Connection>]>,
    next: Arc<AtomicUsize>,
    group: Option<Group>,
    /// Whether the writer's commits wait for the disk at present. Changed while holding the writer.
    waits: Arc<AtomicBool>,
}

/// The only writer from its first statement on.
pub(crate) struct SqliteTx {
    connection: OwnedMutexGuard<Connection>,
    pub(super) syncs: Vec<Arc<dyn SyncedFile>>,
}

impl SqliteDb {
    pub(super) async fn open(file: &Path, how: OpenMode) -> Result<Self, OpenDbError> {
        let writer = match migrate::connect(file).await {
            Err(err) if how == OpenMode::Cli && file.exists() && may_be_unwritable(&err) => {
                // The reason why it cannot be written is more useful than a second error.
                open_read_only(file).map_err(|_| why(file).unwrap_or(err))?
            }
            Err(err) if may_be_unwritable(&err) => return Err(why(file).unwrap_or(err)),
            opened => opened?,
        };
        let writer = Arc::new(Mutex::new(writer));
        let mut readers = Vec::new();
        let mut group = None;
        if how == OpenMode::Server {
            for _ in 0..READERS {
                readers.push(Mutex::new(migrate::connect(file).await?));
            }
            // A checkpoint syncs the database file: many small commits share one.
            let fewer = format!("PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}");
            let told = writer.lock().await.execute_batch(&fewer);
            told.map_err(OpenDbError::Connect)?;
            group = Some(Group::new(&writer));
        }
        Ok(Self {
            writer,
            readers: readers.into(),
            next: Arc::default(),
            group,
            waits: Arc::new(AtomicBool::new(true)),
        })
    }

    pub(super) fn group(&self) -> Option<&Group> {
        self.group.as_ref()
    }

    /// From now on this process keeps the state index in memory.
    pub(super) async fn index_in_memory(&self) -> bool {
        self.has_one_connection() && index_in_memory(&*self.writer.lock().await).is_ok()
    }

    fn has_one_connection(&self) -> bool {
        self.readers.is_empty() && self.group.is_none()
    }

    pub(super) async fn execute(&self, sql: &'static str, args: &[Value]) -> Result<u64, DbError> {
        let mut connection = self.writer.lock().await;
        self.wait_for_disk(&connection, true)?;
        patiently(&mut connection, |connection| execute(connection, sql, args))
            .await
            .map_err(failed(sql))
    }

    pub(super) async fn fetch_all(
        &self,
        sql: &'static str,
        args: &[Value],
    ) -> Result<Vec<Row>, DbError> {
        let mut connection = if self.readers.is_empty() {
            self.writer.lock().await
        } else {
            let turn = self.next.fetch_add(1, Ordering::Relaxed);
            self.readers[turn % self.readers.len()].lock().await
        };
        patiently(&mut connection, |connection| {
            fetch_all(connection, sql, args)
        })
        .await
        .map_err(failed(sql))
    }

    pub(super) async fn begin(&self) -> Result<SqliteTx, DbError> {
        let connection = Arc::clone(&self.writer).lock_owned().await;
        self.wait_for_disk(&connection, true)?;
        begin_with(connection).await
    }

    /// The same, with a commit that does not wait for the disk. The order of commits is kept: a later durable commit
    /// makes this one durable, too.
    pub(super) async fn begin_lazily(&self) -> Result<SqliteTx, DbError> {
        let connection = Arc::clone(&self.writer).lock_owned().await;
        self.wait_for_disk(&connection, false)?;
        begin_with(connection).await
    }

    /// Set before each transaction, so that none depends on the previous one.
    fn wait_for_disk(&self, connection: &Connection, waits: bool) -> Result<(), DbError> {
        if self.waits.load(Ordering::Relaxed) == waits {
            return Ok(());
        }
        let sql = if waits { FULL } else { LAZY };
        connection.execute_batch(sql).map_err(failed(sql))?;
        self.waits.store(waits, Ordering::Relaxed);
        Ok(())
    }
}

/// For a server, whose commits always wait for the disk.
pub(super) async fn begin(writer: Arc<Mutex<Connection>>) -> Result<SqliteTx, DbError> {
    begin_with(writer.lock_owned().await).await
}

async fn begin_with(mut connection: OwnedMutexGuard<Connection>) -> Result<SqliteTx, DbError> {
    const BEGIN: &str = "BEGIN IMMEDIATE";
    patiently(&mut connection, |connection| {
        execute(connection, BEGIN, &[])
    })
    .await
    .map_err(failed(BEGIN))?;
    Ok(SqliteTx {
        connection,
        syncs: Vec::new(),
    })
}

impl SqliteTx {
    pub(super) fn execute(&mut self, sql: &'static str, args: &[Value]) -> Result<u64, DbError> {
        self.check(sql)?;
        execute(&self.connection, sql, args).map_err(failed(sql))
    }

    pub(super) fn fetch_all(
        &mut self,
        sql: &'static str,
        args: &[Value],
    ) -> Result<Vec<Row>, DbError> {
        self.check(sql)?;
        fetch_all(&self.connection, sql, args).map_err(failed(sql))
    }

    pub(super) fn commit(self) -> Result<(), DbError> {
        const COMMIT: &str = "COMMIT";
        self.check(COMMIT)?;
        sync_all(&self.syncs)?;
        execute(&self.connection, COMMIT, &[]).map_err(failed(COMMIT))?;
        Ok(())
    }

    /// A full disk makes SQLite end the transaction; later statements would be committed on their own.
    fn check(&self, sql: &'static str) -> Result<(), DbError> {
        if self.connection.is_autocommit() {
            return Err(failed(sql)(rusqlite::Error::SqliteFailure(
                rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_ABORT),
                Some("the transaction has already ended".to_owned()),
            )));
        }
        Ok(())
    }
}

impl Drop for SqliteTx {
    fn drop(&mut self) {
        // If this fails, the connection was in no transaction or is unusable.
        if !self.connection.is_autocommit() {
            drop(self.connection.execute_batch("ROLLBACK"));
        }
    }
}

/// Retries while another process writes.
async fn patiently<T>(
    connection: &mut Connection,
    mut operation: impl FnMut(&mut Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        match operation(connection) {
            Err(err) if is_busy(&err) && begun.elapsed() < BUSY_TIMEOUT => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(20));
            }
            done => return done,
        }
    }
}

fn is_busy(err: &rusqlite::Error) -> bool {
    err.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}

fn execute(connection: &Connection, sql: &str, args: &[Value]) -> rusqlite::Result<u64> {
    let mut statement = prepare(connection, sql, args)?;
    Ok(statement.raw_execute()? as u64)
}

fn fetch_all(connection: &Connection, sql: &str, args: &[Value]) -> rusqlite::Result<Vec<Row>> {
    let mut statement = prepare(connection, sql, args)?;
    let columns = statement.column_count();
    let mut answer = Vec::new();
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        let values = (0..columns).map(|column| row.get_ref(column).and_then(read));
        answer.push(Row::new(values.collect::<rusqlite::Result<_>>()?));
    }
    Ok(answer)
}

fn read(value: ValueRef<'_>) -> rusqlite::Result<Value> {
    Ok(match value {
        ValueRef::Null => Value::Text(None),
        ValueRef::Integer(number) => Value::Int(Some(number)),
        ValueRef::Text(text) => Value::Text(Some(
            std::str::from_utf8(text)
                .map_err(|err| rusqlite::Error::Utf8Error(0, err))?
                .to_owned(),
        )),
        ValueRef::Blob(bytes) => Value::Bytes(Some(bytes.to_owned())),
        ValueRef::Real(_) => {
            let kind = rusqlite::types::Type::Real;
            return Err(rusqlite::Error::InvalidColumnType(0, String::new(), kind));
        }
    })
}

/// Parameters are numbered as in PostgreSQL; SQLite takes `$2` for a name.
fn prepare<'c>(
    connection: &'c Connection,
    sql: &str,
    args: &[Value],
) -> rusqlite::Result<CachedStatement<'c>> {
    let mut statement = connection.prepare_cached(sql)?;
    for index in 1..=statement.parameter_count() {
        let number = statement
            .parameter_name(index)
            .and_then(|name| name.strip_prefix('$')?.parse::<usize>().ok())
            .unwrap_or(index);
        let value = number.checked_sub(1).and_then(|place| args.get(place));
        match value.ok_or(rusqlite::Error::InvalidParameterCount(args.len(), number))? {
            Value::Int(value) => statement.raw_bind_parameter(index, value)?,
            Value::Text(value) => statement.raw_bind_parameter(index, value.as_deref())?,
            Value::Bytes(value) => statement.raw_bind_parameter(index, value.as_deref())?,
        }
    }
    Ok(statement)
}

/// Settings of every connection.
pub(super) fn prepare_connection(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.execute_batch(FULL)?;
    connection.execute_batch("PRAGMA foreign_keys = ON")
}
