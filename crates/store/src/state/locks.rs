//! Locks on states: atomic, owned, fenced by an epoch. Each operation is one conditional `UPDATE`. If it
//! changes no row, the lock is refused, and the row shows why.
//!
//! Not here: whether a run is still alive (`control`): a lock never expires.

use jiff::Timestamp;
use model::base::error::{ErrorKind, Explain};
use model::base::ids::RunId;
use model::state::lock::{LockEpoch, LockInfo};
use model::state::{ExpectedHead, HeldLock, StateName};

use crate::db::name_args;
use crate::db::{DbError, Durability, Tx, Value};
use crate::state::states::read_lock_info;
use crate::{Store, StoreError};

mod breaking;

/// Usually this one statement ends a lock.
const CLEAR: &str = "UPDATE state \
    SET lock_id = NULL, lock_info = NULL, lock_run = NULL, lock_since = NULL \
    WHERE project = $1 AND name = $2 AND lock_id = $3 RETURNING id";

/// How many past locks are remembered per state.
const REMEMBERED: i64 = 32;

#[derive(Debug, thiserror::Error)]
pub enum AcquireLockError {
    #[error("state `{state}` is locked by {}", .holder.info)]
    Held {
        state: StateName,
        holder: Box<HeldLock>,
    },
    #[error("state `{state}` changed: expected version {}, found {}", or_none(*.expected), or_none(*.head))]
    HeadMoved {
        state: StateName,
        expected: Option<i64>,
        head: Option<i64>,
    },
    /// A LOCK that arrives after its own UNLOCK would be held forever.
    #[error("lock `{id}` on state `{state}` has ended already")]
    Ended { state: StateName, id: String },
    #[error("only runs write state `{state}`: its target's writers are not `anyone`")]
    RunsOnly { state: StateName },
    #[error("could not lock state `{state}`")]
    Store {
        state: StateName,
        source: StoreError,
    },
}

impl Explain for AcquireLockError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Store { source, .. } => source.kind(),
            Self::Held { .. }
            | Self::HeadMoved { .. }
            | Self::Ended { .. }
            | Self::RunsOnly { .. } => ErrorKind::Refused,
        }
    }
}

/// A granted lock, and the state's row.
struct GrantedLock {
    state: i64,
    epoch: LockEpoch,
}

/// A requested lock.
struct LockRequest {
    info: LockInfo,
    run: Option<RunId>,
    expected: ExpectedHead,
    /// Whether it is refused where only runs write.
    outsider: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ReleaseLockError {
    #[error("state `{state}` is locked by {}", .holder.info)]
    Held {
        state: StateName,
        holder: Box<HeldLock>,
    },
    #[error("could not unlock state `{state}`")]
    Store {
        state: StateName,
        source: StoreError,
    },
}

impl Explain for ReleaseLockError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Store { source, .. } => source.kind(),
            Self::Held { .. } => ErrorKind::Refused,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockRelease {
    Now,
    /// It was not held, or had ended before. Unlocking twice is not an error.
    Before,
}

impl Store {
    /// Locks the state if it is free and its head is the expected one, in one step. The same id may repeat
    /// the request: the response may have been lost.
    pub async fn lock_acquire(
        &self,
        state: &StateName,
        info: &LockInfo,
        run: Option<RunId>,
        expected: ExpectedHead,
    ) -> Result<LockEpoch, AcquireLockError> {
        let want = LockRequest {
            info: info.clone(),
            run,
            expected,
            outsider: false,
        };
        self.lock_acquire_by(state, want).await
    }

    /// The same for a client of a server, which is refused where only runs write.
    pub async fn lock_acquire_outside(
        &self,
        state: &StateName,
        info: &LockInfo,
    ) -> Result<LockEpoch, AcquireLockError> {
        let want = LockRequest {
            info: info.clone(),
            run: None,
            expected: ExpectedHead::Any,
            outsider: true,
        };
        self.lock_acquire_by(state, want).await
    }

    async fn lock_acquire_by(
        &self,
        state: &StateName,
        want: LockRequest,
    ) -> Result<LockEpoch, AcquireLockError> {
        let failed = |source| AcquireLockError::Store {
            state: state.clone(),
            source,
        };
        self.check_current(state).map_err(failed)?;
        let (own, info, run) = (state.clone(), want.info.clone(), want.run);
        // If the machine crashes, the run and its lock end with it. A version stored under the lock makes the lock
        // durable, too.
        let durability = match want.run {
            Some(_) => Durability::NoSync,
            None => Durability::Sync,
        };
        let write = self.db.write_for(durability, move |tx| {
            Box::pin(async move {
                match tx.lock_acquire(&own, &want).await {
                    // An incomplete lock is rolled back.
                    Err(AcquireLockError::Store { source, .. }) => Err(source),
                    answer => Ok(answer),
                }
            })
        });
        let taken = write.await.map_err(failed)??;
        let (epoch, since) = (taken.epoch, Timestamp::now());
        let lock = HeldLock {
            info,
            run,
            epoch,
            since,
        };
        self.lock_cache.insert(state, taken.state, lock);
        Ok(epoch)
    }

    /// The lock of this id if this process granted it and did not see it end. It may have ended since.
    pub fn lock_cached(&self, state: &StateName, id: &str) -> Option<HeldLock> {
        self.lock_cache.get(state, id).map(|hint| hint.lock)
    }

    /// Unlocks the state if this lock holds it.
    pub async fn lock_release(
        &self,
        state: &StateName,
        id: &str,
    ) -> Result<LockRelease, ReleaseLockError> {
        let failed = |source| ReleaseLockError::Store {
            state: state.clone(),
            source,
        };
        self.lock_cache.remove(state);
        self.blobs_settle_cli().await;
        let cleared = self.db.write_one(CLEAR, clear_args(state, id)).await;
        if !cleared.map_err(|err| failed(err.into()))?.is_empty() {
            return Ok(LockRelease::Now);
        }
        self.lock_end_for(Durability::Sync, state, id).await
    }

    /// The same for the lock of a run. If the machine crashes first, the lock is found as that of a dead run.
    pub async fn lock_release_in_run(
        &self,
        state: &StateName,
        id: &str,
    ) -> Result<LockRelease, ReleaseLockError> {
        self.lock_cache.remove(state);
        self.blobs_settle_cli().await;
        self.lock_end_for(Durability::NoSync, state, id).await
    }

    async fn lock_end_for(
        &self,
        durability: Durability,
        state: &StateName,
        id: &str,
    ) -> Result<LockRelease, ReleaseLockError> {
        let failed = |source| ReleaseLockError::Store {
            state: state.clone(),
            source,
        };
        let (name, id) = (state.clone(), id.to_owned());
        let write = self.db.write_for(durability, move |tx| {
            Box::pin(async move { Ok(tx.lock_end(&name, &id).await) })
        });
        write.await.map_err(failed)?
    }

    /// Ends all locks of a run that is known to be dead.
    pub async fn lock_release_run(
        &self,
        run: RunId,
    ) -> Result<Vec<(StateName, LockInfo)>, StoreError> {
        const HELD: &str =
            "SELECT project, name, lock_id, lock_info FROM state WHERE lock_run = $1";
        let mut released = Vec::new();
        // The usual case: the engine has unlocked what it locked, and nothing else locks for this run.
        if self.db.fetch_all(HELD, &[run.into()]).await?.is_empty() {
            return Ok(released);
        }
        let mut tx = self.db.begin_write().await?;
        for row in tx.fetch_all(HELD, &[run.into()]).await? {
            let state = StateName::new(row.text(0)?, row.text(1)?);
            if tx.lock_clear(&state, row.text(2)?).await? {
                released.push((state, read_lock_info(row.text(3)?)?));
            }
        }
        tx.commit().await?;
        Ok(released)
    }
}

/// Whether the holder requests its own lock again. The id alone does not prove it: a script may use one id
/// for all locks, and a refusal contains the holder's id.
fn is_same(holder: &HeldLock, info: &LockInfo, run: Option<RunId>) -> bool {
    let held = &holder.info;
    let is_its_own = run.is_some() || (held.who == info.who && held.created == info.created);
    held.id == info.id && holder.run == run && is_its_own
}

impl Tx {
    async fn lock_acquire(
        &mut self,
        state: &StateName,
        want: &LockRequest,
    ) -> Result<GrantedLock, AcquireLockError> {
        let (info, run) = (&want.info, want.run);
        let failed = |source| AcquireLockError::Store {
            state: state.clone(),
            source,
        };
        let failed_db = |err: DbError| failed(err.into());
        if want.expected == ExpectedHead::Exactly(None) {
            // A caller that expects no version usually locks a state that was never locked.
            self.state_insert(state).await.map_err(failed_db)?;
        }
        let taken = self.lock_take(state, want).await;
        if let Some(taken) = taken.map_err(failed)? {
            return Ok(taken);
        }
        // The reason for a refusal is read after another try, while nothing else can change it.
        self.state_hold(state).await.map_err(failed_db)?;
        let taken = self.lock_take(state, want).await;
        if let Some(taken) = taken.map_err(failed)? {
            return Ok(taken);
        }
        // Most states that are locked exist already; only the first lock of a state takes this longer path.
        let mut now = self.state_get(state).await.map_err(failed)?;
        if now.is_none() {
            self.state_insert(state).await.map_err(failed_db)?;
            self.state_hold(state).await.map_err(failed_db)?;
            let taken = self.lock_take(state, want).await;
            if let Some(taken) = taken.map_err(failed)? {
                return Ok(taken);
            }
            now = self.state_get(state).await.map_err(failed)?;
        }
        let now = now.ok_or_else(|| failed(StoreError::Interrupted))?;
        let ended = self.lock_was_taken(now.id, &info.id).await;
        let ended = ended.map_err(failed_db)?;
        let state = state.clone();
        if now.runs_only && want.outsider {
            return Err(AcquireLockError::RunsOnly { state });
        }
        match (now.lock, want.expected) {
            (Some(holder), _) if is_same(&holder, info, run) => Ok(GrantedLock {
                state: now.id,
                epoch: holder.epoch,
            }),
            (Some(holder), _) => Err(AcquireLockError::Held {
                state,
                holder: Box::new(holder),
            }),
            (None, ExpectedHead::Exactly(expected)) if expected != now.head => {
                Err(AcquireLockError::HeadMoved {
                    state,
                    expected,
                    head: now.head,
                })
            }
            (None, _) if ended => Err(AcquireLockError::Ended {
                state,
                id: info.id.clone(),
            }),
            (None, _) => Err(AcquireLockError::Store {
                state,
                source: StoreError::Interrupted,
            }),
        }
    }

    async fn lock_end(
        &mut self,
        state: &StateName,
        id: &str,
    ) -> Result<LockRelease, ReleaseLockError> {
        let failed = |source| ReleaseLockError::Store {
            state: state.clone(),
            source,
        };
        let failed_db = |err: DbError| failed(err.into());
        self.state_hold(state).await.map_err(failed_db)?;
        if self.lock_clear(state, id).await.map_err(failed_db)? {
            return Ok(LockRelease::Now);
        }
        let Some(row) = self.state_get(state).await.map_err(failed)? else {
            return Ok(LockRelease::Before);
        };
        let ended = self.lock_was_taken(row.id, id).await.map_err(failed_db)?;
        match row.lock {
            Some(holder) if !ended => Err(ReleaseLockError::Held {
                state: state.clone(),
                holder: Box::new(holder),
            }),
            _ => Ok(LockRelease::Before),
        }
    }

    /// Takes the lock if it is free, and remembers its id: the same id never takes it again.
    async fn lock_take(
        &mut self,
        state: &StateName,
        want: &LockRequest,
    ) -> Result<Option<GrantedLock>, StoreError> {
        const TAKE: &str = "UPDATE state \
            SET lock_id = $3, lock_info = $4, lock_run = $5, lock_since = $6, \
                lock_epoch = lock_epoch + 1 \
            WHERE project = $1 AND name = $2 AND lock_id IS NULL \
                AND ($7 = 1 OR head IS NOT DISTINCT FROM $8) \
                AND (runs_only = 0 OR $9 = 0) \
            RETURNING id, lock_epoch";
        // Replaces the oldest. The writer holds the state's row, so it sees all of them.
        const REMEMBER: &str = "INSERT INTO lock_taken (state, slot, epoch, lock_id, at) \
            SELECT $1, $2, $3, $4, $5 WHERE NOT EXISTS \
                (SELECT 1 FROM lock_taken AS t WHERE t.state = $1 AND t.lock_id = $4) \
            ON CONFLICT (state, slot) DO UPDATE \
                SET epoch = excluded.epoch, lock_id = excluded.lock_id, at = excluded.at";
        const GIVE_BACK: &str = "UPDATE state \
            SET lock_id = NULL, lock_info = NULL, lock_run = NULL, lock_since = NULL, \
                lock_epoch = lock_epoch - 1 \
            WHERE id = $1";
        let (any, head) = match want.expected {
            ExpectedHead::Any => (true, None),
            ExpectedHead::Exactly(head) => (false, head),
        };
        let [project, name] = name_args(state);
        let (id, now): (Value, Value) = (want.info.id.as_str().into(), Timestamp::now().into());
        let args = [
            project,
            name,
            id.clone(),
            want.info.to_json().into(),
            want.run.into(),
            now.clone(),
            any.into(),
            Value::Int(head),
            want.outsider.into(),
        ];
        let Some(row) = self.fetch_optional(TAKE, &args).await? else {
            return Ok(None);
        };
        let (row, epoch) = (row.int(0)?, row.int(1)?);
        let slot = epoch % REMEMBERED;
        let args = [row.into(), slot.into(), epoch.into(), id, now];
        if self.execute(REMEMBER, &args).await? == 0 {
            // It was taken before: nothing changed.
            self.execute(GIVE_BACK, &[row.into()]).await?;
            return Ok(None);
        }
        Ok(Some(GrantedLock {
            state: row,
            epoch: LockEpoch(epoch),
        }))
    }

    /// Ends the lock if this id holds it.
    async fn lock_clear(&mut self, state: &StateName, id: &str) -> Result<bool, DbError> {
        let cleared = self.fetch_optional(CLEAR, &clear_args(state, id)).await?;
        Ok(cleared.is_some())
    }

    /// Whether this id holds the lock, or held it recently.
    pub(crate) async fn lock_was_taken(&mut self, state: i64, id: &str) -> Result<bool, DbError> {
        const TAKEN: &str = "SELECT 1 FROM lock_taken WHERE state = $1 AND lock_id = $2";
        Ok(self
            .fetch_optional(TAKEN, &[state.into(), id.into()])
            .await?
            .is_some())
    }
}

fn clear_args(state: &StateName, id: &str) -> [Value; 3] {
    let [project, name] = name_args(state);
    [project, name, id.into()]
}

fn or_none(version: Option<i64>) -> String {
    version.map_or_else(|| "none".to_owned(), |version| version.to_string())
}

#[cfg(test)]
mod tests;
