//! PostgreSQL, for homes that several machines share.
//!
//! Not here: the layout (`migrate` has the migrations), SQL of the other directories.

use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgConnectOptions, PgConnection, PgPool, PgPoolOptions, PgRow};
use sqlx::{
    Column as _, ConnectOptions as _, Connection as _, Row as _, TypeInfo as _, ValueRef as _,
};

use super::migrate::{MIGRATIONS, OlderLayout, check_not_older};
use super::value::{Row, Value};
use super::{DbError, SyncedFile, failed, sync_all};

/// Advisory locks: for setting up the layout, and for transactions that must be the only one.
const SET_UP: i64 = 0x7465_7272_0001;
const ALONE: i64 = 0x7465_7272_0002;

const CONNECTIONS: u32 = 16;

/// A connection that was idle this long is tested before use: the database may have been restarted meanwhile.
const RESTED: Duration = Duration::from_millis(200);

#[derive(Clone, Debug)]
pub(crate) struct PostgresDb {
    pool: PgPool,
}

pub(crate) struct PostgresTx {
    tx: sqlx::Transaction<'static, sqlx::Postgres>,
    pub(super) syncs: Vec<Arc<dyn SyncedFile>>,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenPostgresError {
    #[error("cannot parse the address of the database")]
    Address(#[source] sqlx::Error),
    #[error("could not reach the database")]
    Connect(#[source] sqlx::Error),
    #[error("the database has `{setting} = off`: it could lose acknowledged writes")]
    NotDurable { setting: &'static str },
    #[error("could not set up the database (migration {number})")]
    Migrate { number: usize, source: sqlx::Error },
    #[error(
        "the database was written by a newer terrane (layout {found}; this one supports {known})"
    )]
    Newer { found: i64, known: usize },
    #[error(transparent)]
    Older(#[from] OlderLayout),
}

impl PostgresDb {
    pub(super) async fn open(url: &str) -> Result<Self, OpenPostgresError> {
        let options = PgConnectOptions::from_str(url)
            .map_err(OpenPostgresError::Address)?
            .application_name("terrane")
            .disable_statement_logging();
        let mut connection = options
            .connect()
            .await
            .map_err(OpenPostgresError::Connect)?;
        check_durable(&mut connection).await?;
        migrate(&mut connection).await?;
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(Duration::from_secs(30))
            .test_before_acquire(false)
            .before_acquire(|connection, before| {
                Box::pin(
                    async move { Ok(before.idle_for < RESTED || connection.ping().await.is_ok()) },
                )
            })
            .connect_lazy_with(options);
        Ok(Self { pool })
    }

    pub(super) async fn execute(&self, sql: &'static str, args: &[Value]) -> Result<u64, DbError> {
        let done = bind(sql, args).execute(&self.pool).await;
        Ok(done.map_err(failed(sql))?.rows_affected())
    }

    pub(super) async fn fetch_all(
        &self,
        sql: &'static str,
        args: &[Value],
    ) -> Result<Vec<Row>, DbError> {
        let mut rows = bind(sql, args).fetch_all(&self.pool).await;
        if rows.as_ref().is_err_and(is_cut_off) && sql.starts_with("SELECT") {
            rows = bind(sql, args).fetch_all(&self.pool).await;
        }
        rows.map_err(failed(sql))?.iter().map(read).collect()
    }

    pub(super) async fn begin(&self) -> Result<PostgresTx, DbError> {
        let mut tx = self.pool.begin().await;
        if tx.as_ref().is_err_and(is_cut_off) {
            tx = self.pool.begin().await;
        }
        let tx = tx.map_err(failed("BEGIN"))?;
        let syncs = Vec::new();
        Ok(PostgresTx { tx, syncs })
    }

    /// A transaction during which nothing else is written, on any machine.
    pub(super) async fn begin_alone(&self) -> Result<PostgresTx, DbError> {
        const WAIT: &str = "SELECT pg_advisory_xact_lock($1)";
        let mut tx = self.begin().await?;
        tx.execute(WAIT, &[ALONE.into()]).await?;
        Ok(tx)
    }
}

impl PostgresTx {
    pub(super) async fn execute(
        &mut self,
        sql: &'static str,
        args: &[Value],
    ) -> Result<u64, DbError> {
        let done = bind(sql, args).execute(&mut *self.tx).await;
        Ok(done.map_err(failed(sql))?.rows_affected())
    }

    pub(super) async fn fetch_all(
        &mut self,
        sql: &'static str,
        args: &[Value],
    ) -> Result<Vec<Row>, DbError> {
        let rows = bind(sql, args).fetch_all(&mut *self.tx).await;
        rows.map_err(failed(sql))?.iter().map(read).collect()
    }

    pub(super) async fn commit(self) -> Result<(), DbError> {
        sync_all(&self.syncs)?;
        self.tx.commit().await.map_err(failed("COMMIT"))
    }
}

/// Whether the connection broke. Read-only statements are then tried once more on another one.
fn is_cut_off(err: &sqlx::Error) -> bool {
    /// The server was told to stop, or stopped by itself.
    const SHUT_DOWN: [&str; 2] = ["57P01", "57P02"];
    match err {
        sqlx::Error::Io(_) => true,
        sqlx::Error::Database(err) => err.code().is_some_and(|code| SHUT_DOWN.contains(&&*code)),
        _ => false,
    }
}

/// Refuses a database that may forget acknowledged commits.
async fn check_durable(connection: &mut PgConnection) -> Result<(), OpenPostgresError> {
    let settings = [
        ("fsync", "SHOW fsync"),
        ("synchronous_commit", "SHOW synchronous_commit"),
    ];
    for (setting, show) in settings {
        let value: String = sqlx::query_scalar(show)
            .fetch_one(&mut *connection)
            .await
            .map_err(OpenPostgresError::Connect)?;
        if value == "off" {
            return Err(OpenPostgresError::NotDurable { setting });
        }
    }
    Ok(())
}

/// Applies all missing migrations in one transaction, one process at a time.
async fn migrate(connection: &mut PgConnection) -> Result<(), OpenPostgresError> {
    let connect = OpenPostgresError::Connect;
    let mut tx = connection.begin().await.map_err(connect)?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(SET_UP)
        .execute(&mut *tx)
        .await
        .map_err(connect)?;
    sqlx::query("CREATE TABLE IF NOT EXISTS terrane_layout (layout BIGINT NOT NULL)")
        .execute(&mut *tx)
        .await
        .map_err(connect)?;
    let found: Option<i64> = sqlx::query_scalar("SELECT layout FROM terrane_layout")
        .fetch_optional(&mut *tx)
        .await
        .map_err(connect)?;
    let found = found.unwrap_or(0);
    check_not_older(found)?;
    let left = usize::try_from(found)
        .ok()
        .and_then(|done| MIGRATIONS.get(done..))
        .ok_or(OpenPostgresError::Newer {
            found,
            known: MIGRATIONS.len(),
        })?;
    if left.is_empty() {
        return Ok(());
    }
    let first = MIGRATIONS.len() - left.len() + 1;
    for (number, migration) in (first..).zip(left) {
        let migration = migration
            .replace(
                "INTEGER PRIMARY KEY AUTOINCREMENT",
                "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
            )
            .replace(") WITHOUT ROWID", ")");
        sqlx::raw_sql(sqlx::AssertSqlSafe(migration))
            .execute(&mut *tx)
            .await
            .map_err(|source| OpenPostgresError::Migrate { number, source })?;
    }
    sqlx::query("DELETE FROM terrane_layout")
        .execute(&mut *tx)
        .await
        .map_err(connect)?;
    sqlx::query("INSERT INTO terrane_layout (layout) VALUES ($1)")
        .bind(i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX))
        .execute(&mut *tx)
        .await
        .map_err(connect)?;
    tx.commit().await.map_err(connect)
}

fn bind<'q>(
    sql: &'static str,
    args: &'q [Value],
) -> sqlx::query::Query<'q, sqlx::Postgres, PgArguments> {
    args.iter()
        .fold(sqlx::query(sql), |query, value| match value {
            Value::Int(value) => query.bind(*value),
            Value::Text(value) => query.bind(value.as_deref()),
            Value::Bytes(value) => query.bind(value.as_deref()),
        })
}

fn read(row: &PgRow) -> Result<Row, DbError> {
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
            "INT8" => row.try_get(index).map(Value::Int).map_err(wrong),
            "INT4" => {
                let number: i32 = row.try_get(index).map_err(wrong)?;
                Ok(Value::Int(Some(number.into())))
            }
            "TEXT" | "VARCHAR" => row.try_get(index).map(Value::Text).map_err(wrong),
            "BYTEA" => row.try_get(index).map(Value::Bytes).map_err(wrong),
            _ => Err(DbError::Column {
                column: index,
                expected: "integer, text or bytes",
            }),
        }
    };
    let columns = row.columns().iter();
    let values = columns.map(|column| value(column.ordinal()));
    values.collect::<Result<_, _>>().map(Row::new)
}
