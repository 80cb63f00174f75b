//! What one run may do with one state: read, lock, write, unlock.
//!
//! A plan only reads one version. An apply may lock the state if its seal is still valid, and write under
//! that lock.
//!
//! Not here: HTTP (`server::state::RunEndpoint`), and which write may follow (`model::state`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use model::base::error::Explain;
use model::base::ids::RunId;
use model::base::masking::Mask;
use model::state::lock::LockInfo;
use model::state::secret_paths::SecretPaths;
use model::state::{ExpectedHead, HeldLock, InvalidState, PushRefusal, StateName, StateVersion};
use store::{
    AcquireLockError, AppendError, Appended, NewRefusal, ReleaseLockError, StateWriter, Store,
    StoreError,
};
use tokio::sync::Mutex;

use crate::home::retry::Backoff;
use crate::state::pending_write::PendingWrite;

/// One run's access to one state.
#[derive(Clone, Debug)]
pub struct StateAccess {
    store: Store,
    state: StateName,
    run: RunId,
    mode: AccessMode,
    /// Where a write waits while the store cannot accept it; without it, the write fails at once.
    spool: Option<PendingWrite>,
    /// The run's secrets. Their paths in a written state are stored with the version.
    secrets: Mask,
    /// Allows one write at a time, and lets others wait for the end of the last one.
    writing: Arc<Mutex<()>>,
    /// The lock was refused because the head is not the expected one.
    head_moved: Arc<AtomicBool>,
    locked: Arc<AtomicBool>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum AccessMode {
    Plan {
        pinned: Option<StateVersion>,
    },
    Apply {
        expected: ExpectedHead,
        may_empty: bool,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum StateAccessError {
    #[error("run {run} may not do this: {why}")]
    Forbidden { run: RunId, why: &'static str },
    #[error("token `{token}` may not do this: {why}")]
    Denied { token: String, why: String },
    #[error("state `{state}` is locked by {}", .holder.info)]
    Locked {
        state: StateName,
        holder: Box<HeldLock>,
    },
    #[error("another lock holds state `{state}`: {}", .holder.info)]
    NotYours {
        state: StateName,
        holder: Box<HeldLock>,
    },
    #[error("state `{state}` moved after this plan was made")]
    Moved {
        state: StateName,
        source: AcquireLockError,
    },
    #[error("lock `{id}` on state `{state}` has ended already")]
    LockEnded { state: StateName, id: String },
    #[error("a write to state `{state}` was refused")]
    Refused {
        state: StateName,
        source: PushRefusal,
        holder: Option<Box<HeldLock>>,
    },
    #[error("this cannot be a version of state `{state}`")]
    Invalid {
        state: StateName,
        source: InvalidState,
    },
    #[error("state `{state}` kept moving under this write")]
    Contended { state: StateName },
    #[error("could not {action} state `{state}`")]
    Store {
        state: StateName,
        action: &'static str,
        source: StoreError,
    },
}

impl StateAccess {
    /// For a plan: it sees the current head until its end.
    pub async fn for_plan(
        store: Store,
        state: StateName,
        run: RunId,
    ) -> Result<Self, StateAccessError> {
        let pinned = store.state_head(&state).await;
        let pinned = pinned.map_err(|source| unread(&state, source))?;
        Ok(Self::planning(store, state, run, pinned))
    }

    /// For a plan that sees an empty state, whatever exists.
    pub fn for_plan_of_nothing(store: Store, state: StateName, run: RunId) -> Self {
        Self::planning(store, state, run, None)
    }

    /// For a plan that only shows what would follow from an older version.
    pub async fn for_plan_from(
        store: Store,
        state: StateName,
        run: RunId,
        version: i64,
    ) -> Result<Self, StateAccessError> {
        let pinned = store.state_version_get(&state, version).await;
        let pinned = pinned.map_err(|source| unread(&state, source))?;
        Ok(Self::planning(store, state, run, pinned))
    }

    fn planning(store: Store, state: StateName, run: RunId, pinned: Option<StateVersion>) -> Self {
        Self {
            store,
            state,
            run,
            mode: AccessMode::Plan { pinned },
            spool: None,
            secrets: Mask::default(),
            writing: Arc::default(),
            head_moved: Arc::default(),
            locked: Arc::default(),
        }
    }

    /// For an apply. `expected` is the plan's seal, checked by the statement that grants the lock.
    /// `may_empty` is set if the plan deletes or replaces all existing resources.
    pub fn for_apply(
        store: Store,
        state: StateName,
        run: RunId,
        expected: ExpectedHead,
        may_empty: bool,
    ) -> Self {
        Self {
            store,
            state,
            run,
            mode: AccessMode::Apply {
                expected,
                may_empty,
            },
            spool: None,
            secrets: Mask::default(),
            writing: Arc::default(),
            head_moved: Arc::default(),
            locked: Arc::default(),
        }
    }

    /// Writes that the store cannot accept now are saved in `spool`, and retried before they fail.
    #[must_use]
    pub fn holding(self, spool: PendingWrite) -> Self {
        let spool = Some(spool);
        Self { spool, ..self }
    }

    /// The paths of these secrets are stored with each written version.
    #[must_use]
    pub fn with_secrets(self, mask: &Mask) -> Self {
        let secrets = mask.clone();
        Self { secrets, ..self }
    }

    /// Waits until no write is in progress.
    pub async fn settle(&self) {
        drop(self.writing.lock().await);
    }

    /// Whether the engine took the lock through this access.
    pub fn was_locked(&self) -> bool {
        self.locked.load(Ordering::Acquire)
    }

    /// Whether the lock was refused because the head had changed: then the engine changed nothing.
    pub fn found_head_moved(&self) -> bool {
        self.head_moved.load(Ordering::Acquire)
    }

    /// The version that a plan saw, for its seal.
    pub fn pinned(&self) -> Option<&StateVersion> {
        match &self.mode {
            AccessMode::Plan { pinned } => pinned.as_ref(),
            AccessMode::Apply { .. } => None,
        }
    }

    /// The version to work on, or `None` if there is no state yet.
    pub async fn version(&self) -> Result<Option<StateVersion>, StateAccessError> {
        match &self.mode {
            AccessMode::Plan { pinned } => Ok(pinned.clone()),
            AccessMode::Apply { .. } => {
                let head = self.store.state_head(&self.state).await;
                head.map_err(|source| self.failed("read", source))
            }
        }
    }

    /// The version to work on and its bytes, or `None` if there is no state yet.
    pub async fn read(&self) -> Result<Option<(StateVersion, Arc<Vec<u8>>)>, StateAccessError> {
        let failed = |source| self.failed("read", source);
        let version = match &self.mode {
            AccessMode::Plan { pinned } => pinned.clone(),
            AccessMode::Apply { .. } => {
                return self
                    .store
                    .state_head_bytes(&self.state)
                    .await
                    .map_err(failed);
            }
        };
        let Some(version) = version else {
            return Ok(None);
        };
        let body = self.store.state_version_bytes(&version).await;
        Ok(Some((version, body.map_err(failed)?)))
    }

    pub async fn lock(&self, info: &LockInfo) -> Result<(), StateAccessError> {
        let AccessMode::Apply { expected, .. } = &self.mode else {
            return Err(self.forbid("LOCK", "a plan takes no lock").await?);
        };
        let acquired = self
            .store
            .lock_acquire(&self.state, info, Some(self.run), *expected)
            .await;
        let refused = match acquired {
            Ok(_) => {
                self.locked.store(true, Ordering::Release);
                return Ok(());
            }
            Err(err @ AcquireLockError::Store { .. }) => return Err(err.into()),
            Err(refused) => refused,
        };
        if matches!(refused, AcquireLockError::HeadMoved { .. }) {
            self.head_moved.store(true, Ordering::Release);
        }
        self.record("LOCK", refused.to_string(), Some(&info.id))
            .await?;
        Err(refused.into())
    }

    /// Makes `body` the newest version; it is durable when this returns.
    pub async fn write(
        &self,
        lock_id: Option<String>,
        body: Vec<u8>,
    ) -> Result<(), StateAccessError> {
        let AccessMode::Apply { may_empty, .. } = &self.mode else {
            return Err(self.forbid("POST", "a plan writes no state").await?);
        };
        let writer = StateWriter {
            lock_id,
            run: Some(self.run),
            may_empty: *may_empty,
            secret_paths: Some(SecretPaths::find(&body, &self.secrets)),
            ..StateWriter::default()
        };
        let _turn = self.writing.lock().await;
        self.append(&writer, body).await?;
        Ok(())
    }

    /// Holds the request while the store does not respond: the engine waits without limit, and no other
    /// process has a record of what it did. Meanwhile the state is saved in the run's directory if possible,
    /// else it is in memory.
    async fn append(&self, writer: &StateWriter, body: Vec<u8>) -> Result<Appended, AppendError> {
        let Some(spool) = &self.spool else {
            let append = self.store.state_version_append(&self.state, writer, body);
            return append.await;
        };
        let (mut patience, mut is_kept) = (None, false);
        loop {
            let copy = body.clone();
            let append = self.store.state_version_append(&self.state, writer, copy);
            let appended = append.await;
            if !matches!(&appended, Err(err) if err.is_unavailable()) {
                // Stored, or refused and saved as refused.
                spool.clear();
                return appended;
            }
            spool.note();
            if !is_kept {
                let keep = spool.keep(&self.store, &self.state, body.clone());
                is_kept = keep.await.is_ok();
            }
            if !patience.get_or_insert_with(Backoff::begin).again().await {
                spool.forget();
                return appended;
            }
        }
    }

    /// Releases the lock with this id; idempotent.
    pub async fn unlock(&self, id: &str) -> Result<(), StateAccessError> {
        let AccessMode::Apply { .. } = &self.mode else {
            return Err(self.forbid("UNLOCK", "a plan holds no lock").await?);
        };
        match self.store.lock_release_in_run(&self.state, id).await {
            Ok(_) => Ok(()),
            Err(ReleaseLockError::Held { state, holder }) => {
                Err(StateAccessError::NotYours { state, holder })
            }
            Err(ReleaseLockError::Store { source, .. }) => Err(self.failed("unlock", source)),
        }
    }

    /// Records a request that was refused earlier, or that no run may make.
    pub async fn forbid(
        &self,
        action: &'static str,
        why: &'static str,
    ) -> Result<StateAccessError, StateAccessError> {
        self.record(action, why.to_owned(), None).await?;
        Ok(StateAccessError::Forbidden { run: self.run, why })
    }

    /// Records why a request was refused, because the engine only shows a status code.
    pub async fn record(
        &self,
        action: &'static str,
        reason: String,
        lock_id: Option<&str>,
    ) -> Result<(), StateAccessError> {
        let (state, run) = (&self.state, Some(self.run));
        let refusal = NewRefusal {
            state,
            method: action,
            reason,
            run,
            lock_id,
            body: None,
        };
        self.store
            .refusal_record(refusal)
            .await
            .map(drop)
            .map_err(|source| self.failed("record a refusal for", source))
    }

    fn failed(&self, action: &'static str, source: StoreError) -> StateAccessError {
        StateAccessError::Store {
            state: self.state.clone(),
            action,
            source,
        }
    }
}

fn unread(state: &StateName, source: StoreError) -> StateAccessError {
    StateAccessError::Store {
        state: state.clone(),
        action: "read",
        source,
    }
}

impl From<AcquireLockError> for StateAccessError {
    fn from(err: AcquireLockError) -> Self {
        match err {
            AcquireLockError::Held { state, holder } => Self::Locked { state, holder },
            AcquireLockError::Ended { state, id } => Self::LockEnded { state, id },
            AcquireLockError::HeadMoved { ref state, .. } => Self::Moved {
                state: state.clone(),
                source: err,
            },
            AcquireLockError::RunsOnly { state } => Self::Refused {
                state,
                source: PushRefusal::RunsOnly,
                holder: None,
            },
            AcquireLockError::Store { state, source } => Self::Store {
                state,
                action: "lock",
                source,
            },
        }
    }
}

impl From<AppendError> for StateAccessError {
    fn from(err: AppendError) -> Self {
        match err {
            AppendError::Refused {
                state,
                source: PushRefusal::Locked { .. },
                holder: Some(holder),
            } => Self::Locked { state, holder },
            AppendError::Refused {
                state,
                source,
                holder,
            } => Self::Refused {
                state,
                source,
                holder,
            },
            AppendError::Invalid { state, source } => Self::Invalid { state, source },
            AppendError::Contended { state } => Self::Contended { state },
            AppendError::Store { state, source } => Self::Store {
                state,
                action: "write",
                source,
            },
        }
    }
}
