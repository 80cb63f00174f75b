//! The only type that knows which database is in use. SQL is written once, in what SQLite and PostgreSQL both accept:
//! `$1`, `RETURNING`, `ON CONFLICT`, `IS NOT DISTINCT FROM`. Values are integers, text and bytes; times are epoch
//! microseconds.
//!
//! Futures of PostgreSQL are boxed: they are tens of kilobytes large, and every caller would carry them on its stack.
//! That costs a short-lived process a page fault for every 4 KB.
//!
//! Here: connections, transactions, migrations, values and rows.
//!
//! Not here: what the statements mean (one file per noun in the other directories). The only retry is for SQLite: a
//! statement that meets another writer waits up to ten seconds, then fails.

use model::base::error::{ErrorKind, Explain};
use std::fmt;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

mod group;
mod migrate;
mod postgres;
mod read_only;
mod sqlite;
mod value;

pub use migrate::OpenDbError;
pub use postgres::OpenPostgresError;
pub(crate) use value::{Row, Value, name_args, read_time};

use postgres::{PostgresDb, PostgresTx};
use sqlite::{SqliteDb, SqliteTx};

#[derive(Clone, Debug)]
pub(crate) enum Db {
    Sqlite(SqliteDb),
    Postgres(PostgresDb),
}

/// A write transaction. Others see its changes after `commit`; dropping it rolls it back.
pub(crate) enum Tx {
    Sqlite(SqliteTx),
    Postgres(PostgresTx),
}

/// A file that must be durable before the commit of the transaction whose rows name it.
pub(crate) trait SyncedFile: fmt::Debug + Send + Sync {
    fn sync(&self) -> io::Result<()>;

    /// Called after all files are durable: tests stop a process here.
    fn before_commit(&self) -> io::Result<()>;
}

/// What an operation within a transaction returns.
pub(crate) type TxFuture<'t, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 't>>;

/// What kind of process opens a home: decides which connections are set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// A process that lives for seconds and does one thing at a time.
    Cli,
    /// A server: readers do not wait for writers, and writers share their commits.
    Server,
}

/// Whether a commit waits until the disk has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    Sync,
    /// For rows that mean nothing once this machine has crashed. Only CLI processes that share a local database skip
    /// the wait.
    NoSync,
}

#[derive(Debug, thiserror::Error)]
pub enum DbError {
    #[error("the database failed to execute `{statement}`")]
    Statement {
        statement: &'static str,
        source: DriverError,
    },
    #[error("the database does not answer")]
    Away { source: DriverError },
    #[error("the disk of the database is full")]
    NoRoom,
    #[error("cannot write to the database: its disk is full or read-only")]
    ReadOnly,
    #[error("column {column} of a row is not {expected}")]
    Column {
        column: usize,
        expected: &'static str,
    },
    #[error("cannot sync a blob to disk")]
    Sync(#[source] io::Error),
    #[error("the shared commit failed: {0}")]
    Group(String),
}

/// An error of a database driver.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error(transparent)]
    Postgres(#[from] sqlx::Error),
}

impl Explain for DbError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Statement { .. }
            | Self::Away { .. }
            | Self::NoRoom
            | Self::ReadOnly
            | Self::Sync(_)
            | Self::Group(_) => ErrorKind::Unavailable,
            Self::Column { .. } => ErrorKind::Failed,
        }
    }
}

impl DriverError {
    /// Whether the server cannot be reached: it is down, starting or stopping, or the network is broken.
    pub fn is_away(&self) -> bool {
        match self {
            Self::Sqlite(_) => false,
            Self::Postgres(sqlx::Error::Database(said)) => {
                // PostgreSQL's codes for stopping, crashed and starting, and for a broken connection.
                let code = said.code().unwrap_or_default();
                ["57P01", "57P02", "57P03"].contains(&&*code) || code.starts_with("08")
            }
            Self::Postgres(err) => matches!(
                err,
                sqlx::Error::Io(_)
                    | sqlx::Error::Tls(_)
                    | sqlx::Error::Protocol(_)
                    | sqlx::Error::PoolTimedOut
                    | sqlx::Error::PoolClosed
                    | sqlx::Error::WorkerCrashed
            ),
        }
    }
}

impl Db {
    /// Opens the database in `file`, and sets it up if it is new or of an older layout. The usual case costs one
    /// connection and one query.
    pub(crate) async fn open_sqlite(file: &Path, how: OpenMode) -> Result<Self, OpenDbError> {
        SqliteDb::open(file, how).await.map(Self::Sqlite)
    }

    pub(crate) async fn open_postgres(url: &str) -> Result<Self, OpenPostgresError> {
        Box::pin(PostgresDb::open(url)).await.map(Self::Postgres)
    }

    /// Whether other machines may have it open.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }

    /// Keeps the state index in memory from now on, if `err` means that nothing can be written. Returns false
    /// for other errors, or if this process serves others.
    pub(crate) async fn index_in_memory(&self, err: &DbError) -> bool {
        match (self, err) {
            (Self::Sqlite(db), DbError::NoRoom | DbError::ReadOnly) => db.index_in_memory().await,
            _ => false,
        }
    }

    pub(crate) async fn execute(&self, sql: &'static str, args: &[Value]) -> Result<u64, DbError> {
        match self {
            Self::Sqlite(db) => db.execute(sql, args).await,
            Self::Postgres(db) => Box::pin(db.execute(sql, args)).await,
        }
    }

    /// Reads. Statements that change something belong to `execute` or a `Tx`.
    pub(crate) async fn fetch_all(
        &self,
        sql: &'static str,
        args: &[Value],
    ) -> Result<Vec<Row>, DbError> {
        match self {
            Self::Sqlite(db) => db.fetch_all(sql, args).await,
            Self::Postgres(db) => Box::pin(db.fetch_all(sql, args)).await,
        }
    }

    /// Reads at most one row.
    pub(crate) async fn fetch_optional(
        &self,
        sql: &'static str,
        args: &[Value],
    ) -> Result<Option<Row>, DbError> {
        Ok(self.fetch_all(sql, args).await?.into_iter().next())
    }

    /// Begins a transaction that is the only writer from its first statement on. Reads that a decision depends on go
    /// through it.
    pub(crate) async fn begin_write(&self) -> Result<Tx, DbError> {
        match self {
            Self::Sqlite(db) => db.begin().await.map(Tx::Sqlite),
            Self::Postgres(db) => Box::pin(db.begin_alone()).await.map(Tx::Postgres),
        }
    }

    /// The same for derived data, which can be computed again: a CLI process does not wait for the disk.
    pub(crate) async fn begin_learning(&self) -> Result<Tx, DbError> {
        match self {
            Self::Sqlite(db) if db.group().is_none() => db.begin_lazily().await.map(Tx::Sqlite),
            Self::Sqlite(_) | Self::Postgres(_) => self.begin_write().await,
        }
    }

    /// Executes one changing statement and returns its rows. Like `write`, but without a transaction where no commit
    /// is shared.
    pub(crate) async fn write_one<const N: usize>(
        &self,
        sql: &'static str,
        args: [Value; N],
    ) -> Result<Vec<Row>, DbError> {
        match self {
            Self::Sqlite(_) => {
                let operation =
                    self.write(move |tx| Box::pin(async move { tx.fetch_all(sql, &args).await }));
                operation.await
            }
            Self::Postgres(db) => Box::pin(db.fetch_all(sql, &args)).await,
        }
    }

    /// Runs one operation in a transaction that it may share with concurrent ones. Durable when this returns. Rows
    /// that the operation depends on must be locked (`Tx::state_hold`) or checked by the writing statement: on
    /// PostgreSQL others write at the same time.
    pub(crate) async fn write<T, E>(
        &self,
        operation: impl for<'t> FnOnce(&'t mut Tx) -> TxFuture<'t, T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DbError> + Send + 'static,
    {
        self.write_for(Durability::Sync, operation).await
    }

    pub(crate) async fn write_for<T, E>(
        &self,
        durability: Durability,
        operation: impl for<'t> FnOnce(&'t mut Tx) -> TxFuture<'t, T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DbError> + Send + 'static,
    {
        let mut tx = match self {
            Self::Sqlite(db) => match (db.group(), durability) {
                (Some(group), _) => return group.write(operation).await,
                (None, Durability::Sync) => Tx::Sqlite(db.begin().await?),
                (None, Durability::NoSync) => Tx::Sqlite(db.begin_lazily().await?),
            },
            Self::Postgres(db) => Tx::Postgres(Box::pin(db.begin()).await?),
        };
        let done = operation(&mut tx).await?;
        tx.commit().await?;
        Ok(done)
    }
}

impl Tx {
    pub(crate) async fn execute(
        &mut self,
        sql: &'static str,
        args: &[Value],
    ) -> Result<u64, DbError> {
        match self {
            Self::Sqlite(tx) => tx.execute(sql, args),
            Self::Postgres(tx) => Box::pin(tx.execute(sql, args)).await,
        }
    }

    pub(crate) async fn fetch_all(
        &mut self,
        sql: &'static str,
        args: &[Value],
    ) -> Result<Vec<Row>, DbError> {
        match self {
            Self::Sqlite(tx) => tx.fetch_all(sql, args),
            Self::Postgres(tx) => Box::pin(tx.fetch_all(sql, args)).await,
        }
    }

    pub(crate) async fn fetch_optional(
        &mut self,
        sql: &'static str,
        args: &[Value],
    ) -> Result<Option<Row>, DbError> {
        // All rows are fetched: SQLite does not complete a `RETURNING` statement that is not read to its end.
        Ok(self.fetch_all(sql, args).await?.into_iter().next())
    }

    /// Makes a file durable before this transaction commits.
    pub(crate) fn sync_before_commit(&mut self, file: Arc<dyn SyncedFile>) {
        let syncs = match self {
            Self::Sqlite(tx) => &mut tx.syncs,
            Self::Postgres(tx) => &mut tx.syncs,
        };
        if !syncs.iter().any(|known| Arc::ptr_eq(known, &file)) {
            syncs.push(file);
        }
    }

    /// Durable when this returns.
    pub(crate) async fn commit(self) -> Result<(), DbError> {
        match self {
            Self::Sqlite(tx) => tx.commit(),
            Self::Postgres(tx) => Box::pin(tx.commit()).await,
        }
    }
}

fn failed<E: Into<DriverError>>(statement: &'static str) -> impl Fn(E) -> DbError {
    use rusqlite::ErrorCode as Code;
    move |source| {
        let source = source.into();
        let code = match &source {
            DriverError::Sqlite(err) => err.sqlite_error_code(),
            DriverError::Postgres(_) => None,
        };
        match code {
            Some(Code::DiskFull) => DbError::NoRoom,
            Some(Code::ReadOnly) => DbError::ReadOnly,
            _ if source.is_away() => DbError::Away { source },
            _ => DbError::Statement { statement, source },
        }
    }
}

/// Syncs each file once, however many writers appended to it.
fn sync_all(files: &[Arc<dyn SyncedFile>]) -> Result<(), DbError> {
    let synced = files.iter().try_for_each(|file| file.sync());
    let ready = synced.and_then(|()| files.iter().try_for_each(|file| file.before_commit()));
    ready.map_err(DbError::Sync)
}

#[cfg(test)]
mod tests;
