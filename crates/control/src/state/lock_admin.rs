//! Locks that are held on states: their holders, whether the holding run is alive, and breaking a lock.
//!
//! Not here: how a run takes and releases its own lock (`state::run_access`).

use model::base::error::{ErrorKind, Explain, NextStep, advice, command};
use model::base::ids::{ChangeSetId, RunId, StackName};
use model::run::RunState;
use model::state::{HeldLock, StateName};
use store::{ReleaseLockError, StoreError};

use crate::Control;
use crate::run::liveness;
use crate::run::lock::RunLock;
use crate::state::redact_reason::BreakGlassReason;

/// A locked state.
#[derive(Clone, Debug)]
pub struct LockedState {
    pub state: StateName,
    pub lock: HeldLock,
    pub holder: Holder,
}

/// What is known about the holder of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A run with a process.
    Run(RunId),
    /// A run on another machine, whose liveness only that machine can check.
    Elsewhere { run: RunId, set: ChangeSetId },
    /// A run without a process. If it is `unfinished`, the next command that recovers runs ends it and
    /// releases the lock. Otherwise nothing releases the lock.
    Orphan { run: RunId, unfinished: bool },
    /// A client without a run; whether it still exists is unknown.
    Client,
}

impl Holder {
    pub fn word(self) -> &'static str {
        match self {
            Self::Run(_) => "alive",
            Self::Elsewhere { .. } => "elsewhere",
            Self::Orphan { .. } => "orphan",
            Self::Client => "client",
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ListLocksError {
    #[error("could not list the locks")]
    Store(#[source] StoreError),
}

impl Explain for ListLocksError {}

#[derive(Debug, thiserror::Error)]
pub enum BreakLockError {
    #[error("there is no state `{state}`")]
    NoState { state: StateName },
    #[error("state `{state}` is not locked")]
    NotLocked { state: StateName },
    #[error("run {run}, which holds the lock on state `{state}`, is still running")]
    Alive { state: StateName, run: RunId },
    #[error("run {run}, which holds the lock on state `{state}`, runs on another machine")]
    Elsewhere {
        state: StateName,
        run: RunId,
        set: ChangeSetId,
    },
    #[error("state `{state}` now has another lock: {}", .holder.info)]
    Changed {
        state: StateName,
        holder: Box<HeldLock>,
    },
    #[error("could not break the lock on state `{state}`")]
    Store {
        state: StateName,
        source: StoreError,
    },
}

impl Explain for BreakLockError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Alive { .. } | Self::Elsewhere { .. } | Self::Changed { .. } => {
                ErrorKind::Refused
            }
            Self::NoState { .. } | Self::NotLocked { .. } => ErrorKind::NotFound,
            Self::Store { .. } => ErrorKind::Failed,
        }
    }

    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::Alive { run, .. } => vec![
                advice(format!(
                    "wait for {run}, or interrupt it where it was started"
                )),
                advice(format!(
                    "`--force` breaks the lock anyway; later writes of {run} are then refused"
                )),
            ],
            Self::Elsewhere { set, .. } => vec![
                advice("wait for it"),
                command(
                    format!("run cancel {set} --gone --reason …"),
                    "ends it if that machine no longer exists",
                ),
            ],
            Self::NotLocked { .. } => vec![command("lock list", "lists all locks")],
            Self::Changed { .. } => vec![command("lock list", "shows the present lock")],
            Self::NoState { .. } | Self::Store { .. } => Vec::new(),
        }
    }
}

/// All locks of the home, by state.
pub async fn list(control: &Control) -> Result<Vec<LockedState>, ListLocksError> {
    let rows = control.store.state_list().await;
    let rows = rows.map_err(ListLocksError::Store)?;
    let mut held = Vec::new();
    for row in rows {
        if let Some(lock) = row.lock {
            held.push(LockedState {
                state: row.name,
                holder: holder(control, &lock).await,
                lock,
            });
        }
    }
    Ok(held)
}

/// The run that is applying a stack of this project now, with a process on this machine.
pub async fn applying(control: &Control, stack: &StackName) -> Option<RunId> {
    for run in control.store.run_list_of_stack(stack).await.ok()? {
        if !RunLock::is_held(&control.home, run) {
            continue;
        }
        let brief = control.store.run_summary(run).await.ok()?;
        let is_ours = brief.set.request.project == control.home.project();
        if is_ours && matches!(brief.state, RunState::Applying { .. }) {
            return Some(run);
        }
    }
    None
}

/// The lock that would be broken. With `force`, even the lock of a live run.
pub async fn breakable(
    control: &Control,
    state: &StateName,
    force: bool,
) -> Result<LockedState, BreakLockError> {
    let state = state.clone();
    let row = match control.store.state_get(&state).await {
        Ok(row) => row,
        Err(source) => return Err(BreakLockError::Store { state, source }),
    };
    let Some(row) = row else {
        return Err(BreakLockError::NoState { state });
    };
    let Some(lock) = row.lock else {
        return Err(BreakLockError::NotLocked { state });
    };
    let holder = holder(control, &lock).await;
    match holder {
        Holder::Run(run) if !force => return Err(BreakLockError::Alive { state, run }),
        Holder::Elsewhere { run, set } if !force => {
            return Err(BreakLockError::Elsewhere { state, run, set });
        }
        Holder::Run(_) | Holder::Elsewhere { .. } | Holder::Orphan { .. } | Holder::Client => {}
    }
    Ok(LockedState {
        state,
        lock,
        holder,
    })
}

/// Takes exactly this lock from its holder, whose later writes are refused.
pub async fn break_lock(
    control: &Control,
    locked: &LockedState,
    reason: &BreakGlassReason,
) -> Result<LockedState, BreakLockError> {
    let (state, store, holder) = (&locked.state, &control.store, locked.holder);
    let reason = &reason.kept(control, state).await;
    let failed = |source| BreakLockError::Store {
        state: state.clone(),
        source,
    };
    let name = || state.clone();
    let id = Some(locked.lock.info.id.as_str());
    let why = Some(reason.text.as_str());
    let broken = store.lock_break_recorded(state, id, &reason.actor, why);
    match broken.await {
        Ok(Some(lock)) => Ok(LockedState {
            state: name(),
            lock,
            holder,
        }),
        Ok(None) => {
            let row = store.state_get(state).await.map_err(failed)?;
            Err(match row.and_then(|row| row.lock) {
                // The lock that was shown has ended, and another client has taken one.
                Some(lock) => BreakLockError::Changed {
                    state: name(),
                    holder: Box::new(lock),
                },
                None => BreakLockError::NotLocked { state: name() },
            })
        }
        Err(ReleaseLockError::Held { state, holder }) => {
            Err(BreakLockError::Changed { state, holder })
        }
        Err(ReleaseLockError::Store { source, .. }) => Err(failed(source)),
    }
}

async fn holder(control: &Control, lock: &HeldLock) -> Holder {
    let Some(run) = lock.run else {
        return Holder::Client;
    };
    if liveness::may_be_alive(&control.store, &control.home, run).await {
        return match control.store.run_summary(run).await {
            Ok(brief) if liveness::is_elsewhere(control, &brief.set) => Holder::Elsewhere {
                run,
                set: brief.set.id,
            },
            _ => Holder::Run(run),
        };
    }
    let found = control.store.run_get(run).await.ok().flatten();
    let unfinished = found.is_some_and(|run| run.state.is_running());
    Holder::Orphan { run, unfinished }
}
