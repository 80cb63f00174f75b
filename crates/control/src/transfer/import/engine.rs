//! Imports a state from a backend that only the engine can access, while an engine holds its lock. An
//! interrupted process releases the lock before it ends.
//!
//! Not here: calling the engine (`changeset::backends`), and the resulting version (`transfer::import`).

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use model::base::ids::StackName;
use model::project::Project;
use model::state::StateName;

use super::{ImportError, ImportRequest, Imported, SourceLockState, store};
use crate::Control;
use crate::changeset::backends::{BackendChoice, BackendEngine, LockSupport};
use crate::project::open::OpenProject;
use crate::state::http_backend_lock::{HttpLockError, told_to_stop};

/// How long an interrupted process waits for an engine that is about to lock.
const LAST_ANSWER: Duration = Duration::from_secs(5);

pub(super) async fn import(
    control: &Control,
    open: &OpenProject,
    project: &Project,
    env: &BTreeMap<String, String>,
    import: &ImportRequest<'_>,
) -> Result<Imported, ImportError> {
    let stack = import.stack;
    let state = control.state_name(&project.stacks[stack].state);
    if !project.is_on_terrane_backend(stack) {
        if import.leave_locked {
            let why = "the backend of its target still uses the state".to_owned();
            return Err(ImportError::NoLocks { why });
        }
        return look_again(control, open, project, env, stack).await;
    }
    let mut told_to_stop = pin!(told_to_stop());
    let opening = BackendEngine::open(control, open, project, stack, env, BackendChoice::Source);
    let seat = tokio::select! {
        seat = Box::pin(opening) => seat?,
        () = &mut told_to_stop => return Err(interrupted()),
    };
    if import.leave_locked {
        can_be_left_locked(&seat)?;
    }
    let mut holding = pin!(seat.hold_lock());
    let held = tokio::select! {
        held = &mut holding => held?,
        () = &mut told_to_stop => {
            // Giving up now would leave it unknown whether we hold a lock. Without this process, the engine
            // ends and unlocks.
            let held = tokio::time::timeout(LAST_ANSWER, holding).await;
            let Ok(Ok(Some(held))) = held else {
                return Err(interrupted());
            };
            return Err(match seat.release(held).await {
                Ok(()) => interrupted(),
                Err(_) => left_locked(&state, None, interrupted()),
            });
        }
    };
    let brought = async {
        let body = tokio::select! {
            body = seat.pull() => body?,
            () = &mut told_to_stop => return Err(interrupted()),
        };
        let body = body.ok_or_else(|| ImportError::NothingInSource {
            hint: other_workspaces(&seat, stack),
        })?;
        store(control, &state, &body, import.who).await
    };
    let brought = brought.await;
    let old_home = match held {
        None => SourceLockState::NoLock,
        Some(held) if import.leave_locked && brought.is_ok() => {
            let left = held.leave_locked().await;
            left.map_err(ImportError::EndOfEngine)?;
            SourceLockState::LeftLocked { id: None }
        }
        // After a failure nothing was imported, so the old place stays in use.
        Some(held) => {
            if let Err(err) = seat.release(held).await {
                return Err(match brought {
                    Ok((version, _)) => left_locked(&state, Some(version.serial), err.into()),
                    Err(failed) => left_locked(&state, None, failed),
                });
            }
            SourceLockState::Released
        }
    };
    let (version, was_here) = brought?;
    Ok(Imported {
        version,
        was_here,
        old_home,
        locked_by: None,
    })
}

fn can_be_left_locked(seat: &BackendEngine) -> Result<(), ImportError> {
    let kind = seat.kind();
    let why = match seat.locks() {
        LockSupport::Lasting => return Ok(()),
        LockSupport::File => {
            format!("backend `{kind}` of the source is a file, which cannot be kept locked")
        }
        LockSupport::Never => format!("backend `{kind}` of the source is set up without locks"),
        LockSupport::WhileHeld => {
            format!(
                "a lock in backend `{kind}` of the source ends with the connection that holds it"
            )
        }
    };
    Err(ImportError::NoLocks { why })
}

/// The hint that the state may be in another workspace, if that kind of backend has workspaces.
fn other_workspaces(seat: &BackendEngine, stack: &StackName) -> Option<String> {
    let engine = seat.flavor();
    (seat.kind() != "http").then(|| {
        format!(
            "states of other workspaces are not looked at: `{engine} workspace select NAME && {engine} state pull > FILE` there, then \
             `terrane state import {stack} --from FILE`"
        )
    })
}

fn left_locked(state: &StateName, imported: Option<u64>, source: ImportError) -> ImportError {
    ImportError::LeftLocked {
        state: state.clone(),
        id: None,
        imported,
        source: Box::new(source),
    }
}

fn interrupted() -> ImportError {
    ImportError::Held(HttpLockError::Interrupted)
}

/// For a state in the backend of its target: accepts what is there now, whatever was there before.
async fn look_again(
    control: &Control,
    open: &OpenProject,
    project: &Project,
    env: &BTreeMap<String, String>,
    stack: &StackName,
) -> Result<Imported, ImportError> {
    let state = control.state_name(&project.stacks[stack].state);
    let failed = |source| ImportError::Store {
        state: state.clone(),
        source: Box::new(source),
    };
    let head = control.store.state_head(&state).await.map_err(failed)?;
    if head.is_some_and(|head| !head.is_copy() && head.contents.may_hold_resources()) {
        return Err(ImportError::Here {
            stack: stack.clone(),
        });
    }
    let seat =
        BackendEngine::open(control, open, project, stack, env, BackendChoice::Target).await?;
    let body = seat.pull().await?.unwrap_or_default();
    let kept = seat.keep_copy(control, &state.name, body).await;
    kept.map_err(|source| ImportError::Append {
        state: state.clone(),
        source: Box::new(source),
    })?;
    let head = control.store.state_head(&state).await.map_err(failed)?;
    let version = head.ok_or_else(|| ImportError::Nothing {
        place: "the backend of its target".to_owned(),
    })?;
    Ok(Imported {
        version,
        was_here: false,
        old_home: SourceLockState::Stays,
        locked_by: None,
    })
}
