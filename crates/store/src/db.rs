//! The one type that knows which database this is. SQL is written once, in what SQLite and
//! PostgreSQL both accept: `$1`, `RETURNING`, `ON CONFLICT`, `IS NOT DISTINCT FROM`; values are
//! integers, text and bytes, and times are epoch microseconds.
//!
//! Not here: what the statements mean (one file per noun), and any retry. A statement that waits
//! for another writer waits up to ten seconds inside SQLite, then fails.

use std::path::Path;
use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::sqlite::{
    SqliteArguments, SqliteConnectOptions, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};

mod set_up;
mod value;

pub use set_up::OpenDbError;
pub(crate) use value::{Row, Value};

use set_up::{probe, set_up};

/// Writers wait for one another inside SQLite, not in a loop of ours.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub(crate) enum Db {
    Sqlite(SqlitePool),
}

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
        // One connection, opened at first use: a process here lives for seconds, and a second connection
        // would cost it more than all that it reads. A server will want readers of their own.
        let pool = SqlitePoolOptions::new()
            .max_connections(1)
            .idle_timeout(None)
            .max_lifetime(None)
            .test_before_acquire(false)
            .acquire_timeout(Duration::from_mins(1))
            .connect_lazy_with(options.clone());
        // A file that is not there yet is not probed: its first connection must be the one that
        // sets it up.
        if !file.exists() || !probe(&pool).await? {
            set_up(file, &options).await?;
        }
        Ok(Self::Sqlite(pool))
    }

    pub(crate) async fn execute(&self, sql: &'static str, args: &[Value]) -> Result<u64, DbError> {
        let Self::Sqlite(pool) = self;
        let done = bind_sqlite(sql, args)
            .execute(pool)
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
        let Self::Sqlite(pool) = self;
        let rows = bind_sqlite(sql, args)
            .fetch_all(pool)
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
        let Self::Sqlite(pool) = self;
        let row = bind_sqlite(sql, args)
            .fetch_optional(pool)
            .await
            .map_err(failed(sql))?;
        row.as_ref().map(Row::from_sqlite).transpose()
    }

    /// Begins a transaction that is the only writer from its first statement on. Reads that a
    /// decision rests on go through it.
    pub(crate) async fn begin_write(&self) -> Result<Tx, DbError> {
        const BEGIN: &str = "BEGIN IMMEDIATE";
        let Self::Sqlite(pool) = self;
        let tx = pool.begin_with(BEGIN).await.map_err(failed(BEGIN))?;
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

#[cfg(test)]
mod tests;
