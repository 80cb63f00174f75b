//! States: one row each, with the head and the lock, so that one statement can decide on both.
//!
//! Not here: versions (`versions`), taking and ending locks (`locks`).

use jiff::Timestamp;
use model::base::actor::Actor;
use model::base::ids::RunId;
use model::state::break_glass::BreakGlassAction;
use model::state::lock::{LockEpoch, LockInfo};
use model::state::{HeldLock, StateName};

use crate::access::break_glass::NewBreakGlass;
use crate::db::{DbError, Row, Tx, Value, name_args, read_time};
use crate::{Store, StoreError};

/// A state's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateRow {
    pub(crate) id: i64,
    pub name: StateName,
    /// The newest version.
    pub head: Option<i64>,
    pub lock: Option<HeldLock>,
    /// How often it was locked so far.
    pub lock_epoch: LockEpoch,
    /// When it was last deleted. A state without a head since then is hidden.
    pub deleted_at: Option<Timestamp>,
    /// Whether only runs may lock and write it.
    pub runs_only: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum DeleteStateError {
    #[error("state `{state}` is locked by {}", .holder.info)]
    Held {
        state: StateName,
        holder: Box<HeldLock>,
    },
    #[error("lock `{id}` no longer holds state `{state}`")]
    Ended { state: StateName, id: String },
    #[error("only runs write state `{state}`")]
    RunsOnly { state: StateName },
    #[error(
        "cannot delete state `{state}`: it is only a copy of a state in a backend of the engine"
    )]
    Copy { state: StateName },
    #[error("could not delete state `{state}`")]
    Store {
        state: StateName,
        source: StoreError,
    },
}

/// The columns that `StateRow::read` expects of the table `s`.
macro_rules! state_columns {
    () => {
        "s.id, s.project, s.name, s.head, s.lock_info, s.lock_run, s.lock_since, s.lock_epoch, \
         s.deleted_at, s.runs_only"
    };
}
pub(crate) use state_columns;

macro_rules! state_sql {
    ($rest:literal) => {
        concat!("SELECT ", state_columns!(), " FROM state AS s ", $rest)
    };
}

const BY_NAME: &str = state_sql!("WHERE s.project = $1 AND s.name = $2");

const INSERT: &str = "INSERT INTO state (project, name, created_at) VALUES ($1, $2, $3) \
    ON CONFLICT (project, name) DO NOTHING";

impl Store {
    /// The state of that name, created if it is new.
    pub async fn state_ensure(&self, state: &StateName) -> Result<StateRow, StoreError> {
        if let Some(row) = self.state_get(state).await? {
            return Ok(row);
        }
        self.db.execute(INSERT, &new_args(state)).await?;
        self.state_get(state).await?.ok_or(StoreError::Interrupted)
    }

    pub async fn state_get(&self, state: &StateName) -> Result<Option<StateRow>, StoreError> {
        let row = self.db.fetch_optional(BY_NAME, &name_args(state)).await?;
        row.as_ref().map(StateRow::read).transpose()
    }

    pub async fn state_list(&self) -> Result<Vec<StateRow>, StoreError> {
        let rows = self
            .db
            .fetch_all(state_sql!("ORDER BY s.project, s.name"), &[])
            .await?;
        rows.iter().map(StateRow::read).collect()
    }

    /// Deletes the state for a client of a server: it has no head any more, and any lineage may start. Its versions
    /// stay, and a break-glass record is opened in the same transaction. Refused while another lock than the given one
    /// is held, or a run's. Deleting twice is the same as once.
    pub async fn state_delete(
        &self,
        state: &StateName,
        lock_id: Option<&str>,
        actor: &Actor,
    ) -> Result<(), DeleteStateError> {
        let failed = |source| DeleteStateError::Store {
            state: state.clone(),
            source,
        };
        self.check_current(state).map_err(failed)?;
        let (own, id, who) = (state.clone(), lock_id.map(str::to_owned), actor.clone());
        let write = self.db.write(move |tx| {
            Box::pin(async move { tx.state_delete(&own, id.as_deref(), &who).await })
        });
        if write.await.map_err(failed)? {
            return Ok(());
        }
        let head = self.state_head(state).await.map_err(failed)?;
        if head.is_some_and(|head| head.is_copy()) {
            let state = state.clone();
            return Err(DeleteStateError::Copy { state });
        }
        let row = self.state_get(state).await.map_err(failed)?;
        let Some(row) = row.filter(|row| row.head.is_some()) else {
            return Ok(()); // there is none: deleting is idempotent
        };
        let state = state.clone();
        if row.runs_only {
            return Err(DeleteStateError::RunsOnly { state });
        }
        match (row.lock, lock_id) {
            (Some(holder), _) => Err(DeleteStateError::Held {
                state,
                holder: Box::new(holder),
            }),
            (None, Some(id)) => Err(DeleteStateError::Ended {
                state,
                id: id.to_owned(),
            }),
            (None, None) => Err(DeleteStateError::Store {
                state,
                source: StoreError::Interrupted,
            }),
        }
    }

    /// From now on only runs may lock and write it.
    pub async fn state_reserve_for_runs(&self, state: &StateName) -> Result<(), StoreError> {
        const SET: &str = "UPDATE state SET runs_only = 1 WHERE project = $1 AND name = $2";
        if self.state_ensure(state).await?.runs_only {
            return Ok(());
        }
        self.db.execute(SET, &name_args(state)).await?;
        Ok(())
    }

    /// From now on clients may write it, too.
    pub async fn state_open_to_others(&self, state: &StateName) -> Result<(), StoreError> {
        const OPEN: &str = "UPDATE state SET runs_only = 0 WHERE project = $1 AND name = $2";
        self.db.execute(OPEN, &name_args(state)).await?;
        Ok(())
    }

    /// The states of a project that only runs may write.
    pub async fn state_list_reserved(&self, project: &str) -> Result<Vec<StateName>, StoreError> {
        const RESERVED: &str =
            "SELECT project, name FROM state WHERE project = $1 AND runs_only = 1 ORDER BY name";
        let rows = self.db.fetch_all(RESERVED, &[project.into()]).await?;
        let name = |row: &Row| Ok(StateName::new(row.text(0)?, row.text(1)?));
        rows.iter().map(name).collect()
    }
}

impl Tx {
    /// Returns whether there was a head that may be removed.
    async fn state_delete(
        &mut self,
        state: &StateName,
        lock_id: Option<&str>,
        actor: &Actor,
    ) -> Result<bool, StoreError> {
        const HEAD: &str = "SELECT s.head, v.serial FROM state AS s JOIN state_version AS v \
            ON v.state = s.id AND v.version = s.head WHERE s.project = $1 AND s.name = $2 \
            AND (v.mark IS NULL OR v.mark <> 'copy')";
        const DELETE: &str = "UPDATE state SET head = NULL, deleted_at = $3 \
            WHERE project = $1 AND name = $2 AND head = $5 \
                AND lock_id IS NOT DISTINCT FROM $4 AND lock_run IS NULL AND runs_only = 0";
        let Some(head) = self.fetch_optional(HEAD, &name_args(state)).await? else {
            return Ok(false);
        };
        let (version, serial) = (head.int(0)?, head.int(1)?);
        let mut args = name_args(state).to_vec();
        args.extend([Timestamp::now().into(), lock_id.into(), version.into()]);
        if self.execute(DELETE, &args).await? == 0 {
            return Ok(false);
        }
        let record = NewBreakGlass {
            act: BreakGlassAction::StateDeleted,
            state,
            actor,
            reason: None,
            detail: format!("version {version} (serial {serial}) was the newest"),
        };
        self.break_glass_open(&record).await?;
        Ok(true)
    }

    /// Locks the state's row until the end of the transaction: what is read after this stays true.
    pub(crate) async fn state_hold(&mut self, state: &StateName) -> Result<(), DbError> {
        const HOLD: &str = "SELECT id FROM state WHERE project = $1 AND name = $2 FOR UPDATE";
        match self {
            Self::Sqlite(_) => Ok(()), // there is one writer
            Self::Postgres(_) => self.fetch_all(HOLD, &name_args(state)).await.map(drop),
        }
    }

    pub(crate) async fn state_insert(&mut self, state: &StateName) -> Result<(), DbError> {
        self.execute(INSERT, &new_args(state)).await.map(drop)
    }

    pub(crate) async fn state_get(
        &mut self,
        state: &StateName,
    ) -> Result<Option<StateRow>, StoreError> {
        let row = self.fetch_optional(BY_NAME, &name_args(state)).await?;
        row.as_ref().map(StateRow::read).transpose()
    }
}

impl StateRow {
    /// How many columns of a row it takes.
    pub(crate) const COLUMNS: usize = 10;

    pub(crate) fn read(row: &Row) -> Result<Self, StoreError> {
        let lock_epoch = LockEpoch(row.int(7)?);
        let lock = match row.opt_text(4)? {
            None => None,
            Some(text) => Some(HeldLock {
                info: read_lock_info(text)?,
                run: row.opt_int(5)?.map(RunId),
                epoch: lock_epoch,
                since: read_time(row.opt_int(6)?.unwrap_or_default())?,
            }),
        };
        Ok(Self {
            id: row.int(0)?,
            name: StateName::new(row.text(1)?, row.text(2)?),
            head: row.opt_int(3)?,
            lock,
            lock_epoch,
            deleted_at: row.opt_int(8)?.map(read_time).transpose()?,
            runs_only: row.int(9)? != 0,
        })
    }
}

fn new_args(state: &StateName) -> [Value; 3] {
    let [project, name] = name_args(state);
    [project, name, Timestamp::now().into()]
}

pub(crate) fn read_lock_info(text: &str) -> Result<LockInfo, StoreError> {
    LockInfo::from_json(text.as_bytes()).map_err(|_| StoreError::Row {
        found: text.to_owned(),
        expected: "a lock",
    })
}

#[cfg(test)]
mod tests;
