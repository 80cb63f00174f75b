//! The one type that knows which database this is. SQL is written once, in what SQLite and
//! PostgreSQL both accept: `$1`, `RETURNING`, `ON CONFLICT`, `IS NOT DISTINCT FROM`; values are
//! integers, text and bytes, and times are epoch microseconds.
//!
//! Not here: what the statements mean (one file per noun), and any retry. A statement that waits
//! for another writer waits up to ten seconds inside SQLite, then fails.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use model::ids::{ChangeSetId, RunId};
use sqlx::sqlite::{
    SqliteArguments, SqliteConnectOptions, SqlitePool, SqlitePoolOptions, SqliteRow,
    SqliteSynchronous,
};
use sqlx::{
    Column as _, ConnectOptions as _, Connection as _, Row as _, TypeInfo as _, ValueRef as _,
};

/// Each entry: what to do, and the stamp that says it was done. Entries are only added.
const MIGRATIONS: &[(&str, &str)] = &[(
    include_str!("../migrations/0001_foundation.sql"),
    "PRAGMA user_version = 1",
)];

/// Older ones may lose a write when a WAL is reset while another connection checkpoints.
const OLDEST_SQLITE: [u64; 3] = [3, 51, 3];

/// Writers wait for one another inside SQLite, not in a loop of ours.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub(crate) enum Db {
    /// One connection writes, so that writers of this process queue in memory; readers see the
    /// last commit meanwhile. Both are opened at first use.
    Sqlite {
        writer: SqlitePool,
        reader: SqlitePool,
    },
}

/// What a statement takes and a row gives. A null has a type, or PostgreSQL cannot infer one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Int(Option<i64>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
}

/// One row of an answer; columns are counted from zero.
#[derive(Clone, Debug)]
pub(crate) struct Row(Vec<Value>);

/// A write transaction. It sees and keeps everything to itself until `commit`; dropped, it never
/// happened.
pub(crate) enum Tx {
    Sqlite(sqlx::Transaction<'static, sqlx::Sqlite>),
}

#[derive(Debug, thiserror::Error)]
pub enum DbError {
    #[error("the database did not carry out `{statement}`")]
    Statement {
        statement: &'static str,
        source: sqlx::Error,
    },
    #[error("column {column} of an answer is not {expected}")]
    Column {
        column: usize,
        expected: &'static str,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum OpenDbError {
    #[error("could not wait for the other process that sets up the database")]
    Queue(#[source] std::io::Error),
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

impl Db {
    /// Opens the database in `file`; sets it up if it is new or of an older layout. The usual
    /// case costs one connection and one query.
    pub(crate) async fn open_sqlite(file: &Path) -> Result<Self, OpenDbError> {
        let options = SqliteConnectOptions::new()
            .filename(file)
            .busy_timeout(BUSY_TIMEOUT)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .disable_statement_logging();
        let pool = |size, options| {
            SqlitePoolOptions::new()
                .max_connections(size)
                .idle_timeout(None)
                .max_lifetime(None)
                .test_before_acquire(false)
                .acquire_timeout(Duration::from_mins(1))
                .connect_lazy_with(options)
        };
        let reader = pool(4, options.clone().pragma("query_only", "on"));
        // A file that is not there yet is not probed: its first connection must be the one that
        // sets it up.
        if !file.exists() || !probe(&reader).await? {
            set_up(file, &options).await?;
        }
        Ok(Self::Sqlite {
            writer: pool(1, options),
            reader,
        })
    }

    pub(crate) async fn execute(&self, sql: &'static str, args: &[Value]) -> Result<u64, DbError> {
        let Self::Sqlite { writer, .. } = self;
        let done = bind_sqlite(sql, args)
            .execute(writer)
            .await
            .map_err(failed(sql))?;
        Ok(done.rows_affected())
    }

    /// Reads; a statement that changes something belongs to `execute` or a `Tx`.
    pub(crate) async fn fetch_all(
        &self,
        sql: &'static str,
        args: &[Value],
    ) -> Result<Vec<Row>, DbError> {
        let Self::Sqlite { reader, .. } = self;
        let rows = bind_sqlite(sql, args)
            .fetch_all(reader)
            .await
            .map_err(failed(sql))?;
        rows.iter().map(Row::from_sqlite).collect()
    }

    /// Reads at most one row.
    pub(crate) async fn fetch_optional(
        &self,
        sql: &'static str,
        args: &[Value],
    ) -> Result<Option<Row>, DbError> {
        let Self::Sqlite { reader, .. } = self;
        let row = bind_sqlite(sql, args)
            .fetch_optional(reader)
            .await
            .map_err(failed(sql))?;
        row.as_ref().map(Row::from_sqlite).transpose()
    }

    /// Begins a transaction that is the only writer from its first statement on. Reads that a
    /// decision rests on go through it.
    pub(crate) async fn begin_write(&self) -> Result<Tx, DbError> {
        const BEGIN: &str = "BEGIN IMMEDIATE";
        let Self::Sqlite { writer, .. } = self;
        let tx = writer.begin_with(BEGIN).await.map_err(failed(BEGIN))?;
        Ok(Tx::Sqlite(tx))
    }
}

impl Tx {
    pub(crate) async fn execute(
        &mut self,
        sql: &'static str,
        args: &[Value],
    ) -> Result<u64, DbError> {
        let Self::Sqlite(tx) = self;
        let done = bind_sqlite(sql, args)
            .execute(&mut **tx)
            .await
            .map_err(failed(sql))?;
        Ok(done.rows_affected())
    }

    pub(crate) async fn fetch_all(
        &mut self,
        sql: &'static str,
        args: &[Value],
    ) -> Result<Vec<Row>, DbError> {
        let Self::Sqlite(tx) = self;
        let rows = bind_sqlite(sql, args)
            .fetch_all(&mut **tx)
            .await
            .map_err(failed(sql))?;
        rows.iter().map(Row::from_sqlite).collect()
    }

    pub(crate) async fn fetch_optional(
        &mut self,
        sql: &'static str,
        args: &[Value],
    ) -> Result<Option<Row>, DbError> {
        // All rows are taken, for a `RETURNING` that is not read to its end is not carried out.
        Ok(self.fetch_all(sql, args).await?.into_iter().next())
    }

    /// Durable when this returns.
    pub(crate) async fn commit(self) -> Result<(), DbError> {
        let Self::Sqlite(tx) = self;
        tx.commit().await.map_err(failed("COMMIT"))
    }
}

impl Row {
    pub(crate) fn int(&self, column: usize) -> Result<i64, DbError> {
        self.opt_int(column)?.ok_or(DbError::Column {
            column,
            expected: "an integer",
        })
    }

    pub(crate) fn text(&self, column: usize) -> Result<&str, DbError> {
        self.opt_text(column)?.ok_or(DbError::Column {
            column,
            expected: "text",
        })
    }

    pub(crate) fn bytes(&self, column: usize) -> Result<&[u8], DbError> {
        self.opt_bytes(column)?.ok_or(DbError::Column {
            column,
            expected: "bytes",
        })
    }

    pub(crate) fn opt_int(&self, column: usize) -> Result<Option<i64>, DbError> {
        match self.0.get(column) {
            Some(Value::Int(value)) => Ok(*value),
            Some(value) if value.is_null() => Ok(None),
            _ => Err(DbError::Column {
                column,
                expected: "an integer",
            }),
        }
    }

    pub(crate) fn opt_text(&self, column: usize) -> Result<Option<&str>, DbError> {
        match self.0.get(column) {
            Some(Value::Text(value)) => Ok(value.as_deref()),
            Some(value) if value.is_null() => Ok(None),
            _ => Err(DbError::Column {
                column,
                expected: "text",
            }),
        }
    }

    pub(crate) fn opt_bytes(&self, column: usize) -> Result<Option<&[u8]>, DbError> {
        match self.0.get(column) {
            Some(Value::Bytes(value)) => Ok(value.as_deref()),
            Some(value) if value.is_null() => Ok(None),
            _ => Err(DbError::Column {
                column,
                expected: "bytes",
            }),
        }
    }

    fn from_sqlite(row: &SqliteRow) -> Result<Self, DbError> {
        let value = |index: usize| {
            let wrong = |_: sqlx::Error| DbError::Column {
                column: index,
                expected: "readable",
            };
            let raw = row.try_get_raw(index).map_err(wrong)?;
            if raw.is_null() {
                return Ok(Value::Text(None));
            }
            match raw.type_info().name() {
                "INTEGER" => row.try_get_unchecked(index).map(Value::Int).map_err(wrong),
                "TEXT" => row.try_get_unchecked(index).map(Value::Text).map_err(wrong),
                "BLOB" => row
                    .try_get_unchecked(index)
                    .map(Value::Bytes)
                    .map_err(wrong),
                _ => Err(DbError::Column {
                    column: index,
                    expected: "integer, text or bytes",
                }),
            }
        };
        row.columns()
            .iter()
            .map(|column| value(column.ordinal()))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl Value {
    fn is_null(&self) -> bool {
        matches!(self, Self::Int(None) | Self::Text(None) | Self::Bytes(None))
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(Some(value))
    }
}

impl From<Option<i64>> for Value {
    fn from(value: Option<i64>) -> Self {
        Self::Int(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Int(Some(i64::from(value)))
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(Some(value.to_owned()))
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(Some(value))
    }
}

impl From<Option<&str>> for Value {
    fn from(value: Option<&str>) -> Self {
        Self::Text(value.map(str::to_owned))
    }
}

impl From<Option<String>> for Value {
    fn from(value: Option<String>) -> Self {
        Self::Text(value)
    }
}

impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Self {
        Self::Bytes(Some(value))
    }
}

impl From<Option<Vec<u8>>> for Value {
    fn from(value: Option<Vec<u8>>) -> Self {
        Self::Bytes(value)
    }
}

impl From<RunId> for Value {
    fn from(id: RunId) -> Self {
        Self::from(id.0)
    }
}

impl From<Option<RunId>> for Value {
    fn from(id: Option<RunId>) -> Self {
        Self::Int(id.map(|id| id.0))
    }
}

impl From<ChangeSetId> for Value {
    fn from(id: ChangeSetId) -> Self {
        Self::from(id.0)
    }
}

impl From<Option<ChangeSetId>> for Value {
    fn from(id: Option<ChangeSetId>) -> Self {
        Self::Int(id.map(|id| id.0))
    }
}

impl From<jiff::Timestamp> for Value {
    fn from(at: jiff::Timestamp) -> Self {
        Self::from(at.as_microsecond())
    }
}

fn bind_sqlite<'q>(
    sql: &'static str,
    args: &'q [Value],
) -> sqlx::query::Query<'q, sqlx::Sqlite, SqliteArguments> {
    args.iter()
        .fold(sqlx::query(sql), |query, value| match value {
            Value::Int(value) => query.bind(*value),
            Value::Text(value) => query.bind(value.as_deref()),
            Value::Bytes(value) => query.bind(value.as_deref()),
        })
}

fn failed(statement: &'static str) -> impl Fn(sqlx::Error) -> DbError {
    move |source| DbError::Statement { statement, source }
}

/// Whether the database is of the layout this program knows.
async fn probe(reader: &SqlitePool) -> Result<bool, OpenDbError> {
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

/// One process at a time, under an OS lock beside the database: SQLite does not wait when two
/// connections switch to the write-ahead log at once.
async fn set_up(file: &Path, options: &SqliteConnectOptions) -> Result<(), OpenDbError> {
    let path = file.with_extension("setup");
    let _turn = tokio::task::spawn_blocking(move || -> Result<File, std::io::Error> {
        let turn = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)?;
        rustix::fs::flock(&turn, rustix::fs::FlockOperation::LockExclusive)?;
        Ok(turn)
    })
    .await
    .map_err(|err| OpenDbError::Queue(std::io::Error::other(err)))?
    .map_err(OpenDbError::Queue)?;

    let mut connection = options
        .clone()
        .create_if_missing(true)
        .connect()
        .await
        .map_err(OpenDbError::Connect)?;
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
mod tests;
