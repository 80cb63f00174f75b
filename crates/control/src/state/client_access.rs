//! Access to states for clients of the server with a token, whether or not a known project has the states.
//!
//! Not here: HTTP (`server::state`), what a run may do with its own state (`state::run_access`).

use std::path::Path;
use std::sync::Arc;

use model::base::actor::{Actor, ActorKind, Entrance, Verification};
use model::state::lock::LockInfo;
use model::state::token::{Token, TokenScope};
use model::state::{HeldLock, PushRefusal, StateName, StateVersion};
use store::{
    AcquireLockError, AppendError, Appended, DeleteStateError, NewRefusal, ReleaseLockError,
    StateWriter, Store, StoreError,
};

use crate::Control;
use crate::access::tokens::TokenCheck;
use crate::home::Home;
use crate::run::liveness;
use crate::state::run_access::StateAccessError;

/// A home whose states are served to others.
#[derive(Debug)]
pub struct StateService {
    store: Store,
    home: Home,
    tokens: TokenCheck,
}

/// One client's access to one state, as its token allows.
#[derive(Clone, Debug)]
pub struct ClientAccess {
    store: Store,
    home: Home,
    token: Arc<Token>,
    state: StateName,
}

/// Whether a write made a new version, or was already stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    New,
    Same,
}

impl StateService {
    pub fn new(control: Control) -> Self {
        let Control { store, home, .. } = control;
        let tokens = TokenCheck::new(store.clone());
        Self {
            store,
            home,
            tokens,
        }
    }

    /// The working directory on this machine.
    pub fn work(&self) -> &Path {
        self.home.work()
    }

    pub fn tokens(&self) -> &TokenCheck {
        &self.tokens
    }

    pub fn access(&self, token: Arc<Token>, state: StateName) -> ClientAccess {
        ClientAccess {
            store: self.store.clone(),
            home: self.home.clone(),
            token,
            state,
        }
    }

    /// Whether database and blobs respond.
    pub async fn check_ready(&self) -> Result<(), StoreError> {
        self.store.check_ready().await
    }
}

impl ClientAccess {
    /// Checks that the token allows an operation: before a body is read, and again in each operation.
    pub async fn check_scope(
        &self,
        action: &'static str,
        scope: TokenScope,
    ) -> Result<(), StateAccessError> {
        if self.token.allows(scope, &self.state) {
            return Ok(());
        }
        let why = if self.token.states.covers(&self.state) {
            format!("its scope is `{}`", self.token.scope)
        } else {
            "it reaches other states".to_owned()
        };
        self.record(action, why.clone(), None).await?;
        Err(self.denied(why))
    }

    /// The newest version and its bytes, or `None` if there is no state.
    pub async fn read(&self) -> Result<Option<(StateVersion, Arc<Vec<u8>>)>, StateAccessError> {
        self.check_scope("GET", TokenScope::Read).await?;
        let head = self.store.state_head_bytes(&self.state).await;
        head.map_err(|source| self.failed("read", source))
    }

    pub async fn lock(&self, info: &LockInfo) -> Result<(), StateAccessError> {
        self.check_scope("LOCK", TokenScope::Write).await?;
        let acquired = self.store.lock_acquire_outside(&self.state, info).await;
        let refused = match acquired {
            Ok(_) => return Ok(()),
            Err(AcquireLockError::Store { source, .. }) => return Err(self.failed("lock", source)),
            Err(AcquireLockError::RunsOnly { .. }) => {
                return Err(self.only_for_runs("LOCK", Some(&info.id)).await?);
            }
            Err(refused) => refused,
        };
        self.record("LOCK", refused.to_string(), Some(&info.id))
            .await?;
        Err(StateAccessError::from(refused))
    }

    /// Makes `body` the newest version; it is durable when this returns.
    pub async fn write(
        &self,
        lock_id: Option<String>,
        body: Vec<u8>,
    ) -> Result<WriteOutcome, StateAccessError> {
        self.check_scope("POST", TokenScope::Write).await?;
        let writer = StateWriter {
            lock_id,
            surgery: self.token.allows(TokenScope::Surgery, &self.state),
            outsider: true,
            actor: Some(self.actor()),
            ..StateWriter::default()
        };
        let appended = self
            .store
            .state_version_append(&self.state, &writer, body)
            .await;
        match appended {
            Ok(Appended::Same(_)) => Ok(WriteOutcome::Same),
            Ok(Appended::New(_)) => Ok(WriteOutcome::New),
            Err(AppendError::Refused {
                source: refusal @ PushRefusal::RunsOnly,
                ..
            }) => Err(self.denied(refusal.to_string())), // already recorded, with the body
            Err(err) => Err(err.into()),
        }
    }

    /// Releases the described lock, or any lock, as Terraform's `force-unlock` requires. It is idempotent. A
    /// forced unlock is recorded.
    pub async fn unlock(&self, described: Option<&LockInfo>) -> Result<(), StateAccessError> {
        let id = described.map(|info| info.id.as_str());
        self.check_scope("UNLOCK", TokenScope::Write).await?;
        // The operation that releases the lock checks whether it is still held.
        let given = id.and_then(|id| self.store.lock_cached(&self.state, id));
        let held = if given.is_some() {
            given
        } else {
            self.held().await?
        };
        let ended = match (held, id) {
            (Some(held), _) if is_forced(&held, described) => {
                self.may_break(held, id).await?;
                let actor = &self.actor();
                let broken = self.store.lock_break_recorded(&self.state, id, actor, None);
                broken.await.map(drop)
            }
            (_, Some(id)) => self.store.lock_release(&self.state, id).await.map(drop),
            (_, None) => Ok(()),
        };
        match ended {
            Ok(()) => Ok(()),
            Err(err) => Err(self.not_released(err, id).await?),
        }
    }

    /// Releases the lock with this id and no other, for clients that send only the id.
    pub async fn unlock_by_id(&self, id: &str) -> Result<(), StateAccessError> {
        self.check_scope("UNLOCK", TokenScope::Write).await?;
        let held = self.held().await?;
        let ended = match held.filter(|held| held.info.id == id && held.run.is_some()) {
            Some(held) => {
                self.may_break(held, Some(id)).await?;
                let actor = &self.actor();
                let broken = self
                    .store
                    .lock_break_recorded(&self.state, Some(id), actor, None);
                broken.await.map(drop)
            }
            None => self.store.lock_release(&self.state, id).await.map(drop),
        };
        match ended {
            Ok(()) => Ok(()),
            Err(err) => Err(self.not_released(err, Some(id)).await?),
        }
    }

    /// A client can claim any name, but its token was verified.
    fn actor(&self) -> Actor {
        Actor {
            name: self.token.name.clone(),
            kind: ActorKind::Token,
            verified: Verification::Secret,
            via: Entrance::Server,
        }
    }

    async fn held(&self) -> Result<Option<HeldLock>, StateAccessError> {
        let row = self.store.state_get(&self.state).await;
        let row = row.map_err(|source| self.failed("unlock", source))?;
        Ok(row.and_then(|row| row.lock))
    }

    /// Hides the state; its versions stay.
    pub async fn delete(&self, lock_id: Option<&str>) -> Result<(), StateAccessError> {
        self.check_scope("DELETE", TokenScope::Write).await?;
        let actor = &self.actor();
        match self.store.state_delete(&self.state, lock_id, actor).await {
            Ok(()) => Ok(()),
            Err(DeleteStateError::Store { source, .. }) => Err(self.failed("delete", source)),
            Err(DeleteStateError::RunsOnly { .. }) => {
                Err(self.only_for_runs("DELETE", lock_id).await?)
            }
            Err(DeleteStateError::Copy { state }) => {
                let source = PushRefusal::Copy;
                self.record("DELETE", source.to_string(), lock_id).await?;
                Err(StateAccessError::Refused {
                    state,
                    source,
                    holder: None,
                })
            }
            Err(DeleteStateError::Ended { state, id }) => {
                let reason = format!("lock `{id}` does not hold it any more");
                self.record("DELETE", reason, lock_id).await?;
                Err(StateAccessError::LockEnded { state, id })
            }
            Err(DeleteStateError::Held { state, holder }) => {
                let reason = format!("it is locked by {}", holder.info);
                self.record("DELETE", reason, lock_id).await?;
                Err(StateAccessError::Locked { state, holder })
            }
        }
    }

    /// Records why a request was refused, because clients only show a status code.
    pub async fn record(
        &self,
        action: &'static str,
        reason: String,
        lock_id: Option<&str>,
    ) -> Result<(), StateAccessError> {
        let refusal = NewRefusal {
            state: &self.state,
            method: action,
            reason: format!("token `{}`: {reason}", self.token.name),
            run: None,
            lock_id,
            body: None,
        };
        let recorded = self.store.refusal_record(refusal).await;
        recorded
            .map(drop)
            .map_err(|source| self.failed("record a refusal for", source))
    }

    /// A client cannot break a lock whose run is alive, because its engine is working.
    async fn may_break(&self, held: HeldLock, id: Option<&str>) -> Result<(), StateAccessError> {
        let Some(run) = held.run else {
            return Ok(());
        };
        if !liveness::may_be_alive(&self.store, &self.home, run).await {
            return Ok(());
        }
        let reason = format!("run {run} holds the lock and may be alive");
        self.record("UNLOCK", reason, id).await?;
        Err(StateAccessError::NotYours {
            state: self.state.clone(),
            holder: Box::new(held),
        })
    }

    async fn not_released(
        &self,
        err: ReleaseLockError,
        id: Option<&str>,
    ) -> Result<StateAccessError, StateAccessError> {
        match err {
            ReleaseLockError::Store { source, .. } => Ok(self.failed("unlock", source)),
            ReleaseLockError::Held { state, holder } => {
                let reason = format!("it is locked by {}", holder.info);
                self.record("UNLOCK", reason, id).await?;
                Ok(StateAccessError::NotYours { state, holder })
            }
        }
    }

    async fn only_for_runs(
        &self,
        action: &'static str,
        lock_id: Option<&str>,
    ) -> Result<StateAccessError, StateAccessError> {
        let why = PushRefusal::RunsOnly.to_string();
        self.record(action, why.clone(), lock_id).await?;
        Ok(self.denied(why))
    }

    fn denied(&self, why: String) -> StateAccessError {
        StateAccessError::Denied {
            token: self.token.name.clone(),
            why,
        }
    }

    fn failed(&self, action: &'static str, source: StoreError) -> StateAccessError {
        StateAccessError::Store {
            state: self.state.clone(),
            action,
            source,
        }
    }
}

/// Whether releasing this lock takes it away from its holder. OpenTofu's `force-unlock` sends only the id,
/// while the holder sends its whole description again.
fn is_forced(held: &HeldLock, described: Option<&LockInfo>) -> bool {
    let is_bare = |info: &LockInfo| info.operation.is_empty() && info.who.is_empty();
    match described {
        None => true,
        Some(info) if info.id != held.info.id => false,
        Some(info) => held.run.is_some() || is_bare(info) && !is_bare(&held.info),
    }
}
