//! Locks in backends of the engines: reading their holder, if the backend reveals it, and breaking a lock.

use std::collections::BTreeMap;

use drivers::engine::EngineCall;
use model::base::ids::StackName;
use model::project::engine::Flavor;
use model::project::{Backend, Project};
use model::state::break_glass::BreakGlassAction;
use model::state::lock::LockInfo;
use store::NewBreakGlass;

use super::{BackendChoice, BackendEngine, BackendError};
use crate::Control;
use crate::project::open::{OpenProject, ProjectContext};
use crate::state::redact_reason::BreakGlassReason;

/// The lock of a stack's state, as its backend reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendLock {
    Free,
    Held(Box<LockInfo>),
    /// This kind of backend does not reveal its locks.
    NotRevealed,
}

/// A lock in a backend of the engine.
#[derive(Debug)]
pub struct StackLock {
    pub stack: StackName,
    pub lock: Result<BackendLock, BackendError>,
}

/// The locks of all stacks whose target has a backend of the engine. A backend that cannot be queried does
/// not hide the others.
pub async fn locks(
    control: &Control,
    open: &OpenProject,
    project: &Project,
    env: &BTreeMap<String, String>,
) -> Vec<StackLock> {
    let mut found = Vec::new();
    for stack in project.stacks.keys() {
        if !project.is_on_terrane_backend(stack) {
            let lock = lock_of(control, open, project, stack, env).await;
            found.push(StackLock {
                stack: stack.clone(),
                lock,
            });
        }
    }
    found
}

/// The lock of a stack's state in the backend of its target. The query takes no lock: the engine is told to
/// release a lock that does not exist. Its refusal names the lock that is held.
pub async fn lock_of(
    control: &Control,
    open: &OpenProject,
    project: &Project,
    stack: &StackName,
    env: &BTreeMap<String, String>,
) -> Result<BackendLock, BackendError> {
    let target = &project.targets[&project.stacks[stack].target];
    match &target.backend {
        Backend::Terrane => {
            return Err(BackendError::Ours {
                stack: stack.clone(),
            });
        }
        // For these backends the engine compares the id before it changes anything. Others leave that to
        // their server or accept any id, so the query could release the lock.
        Backend::Engine { kind, .. } if ["s3", "azurerm"].contains(&kind.as_str()) => {}
        Backend::Engine { .. } => return Ok(BackendLock::NotRevealed),
    }
    let seat =
        BackendEngine::open(control, open, project, stack, env, BackendChoice::Target).await?;
    let call = EngineCall::ForceUnlock {
        id: "1",
        var_files: &[],
    };
    let said = seat
        .engine
        .capture(&call, &seat.dir, &seat.environment, &[])
        .await?;
    let words = format!("{}\n{}", said.stderr_text(), said.stdout_text());
    match read_lock(&words) {
        Some(info) => Ok(BackendLock::Held(Box::new(info))),
        None if NOT_LOCKED.iter().any(|sign| words.contains(sign)) => Ok(BackendLock::Free),
        // A failed query does not mean that the lock is free.
        None => seat
            .check("ask for the lock", &said)
            .map(|()| BackendLock::Free),
    }
}

/// What engines print if there is no lock: in a table, in a bucket, on a blob.
const NOT_LOCKED: [&str; 6] = [
    "no lock info found",
    "unexpected end of JSON input",
    "NoSuchKey",
    "was empty",
    "BlobNotFound",
    "blob does not exist",
];

/// How certain it is that a lock was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakOutcome {
    /// The engine compared the id.
    Surely,
    /// The server accepted the request and does not report whether the lock was held.
    Asked,
}

/// Breaks the lock with this id, with the engine's `force-unlock` or a request to the `http` server. It is
/// recorded with its reason.
pub async fn break_lock(
    control: &Control,
    context: ProjectContext<'_>,
    stack: &StackName,
    id: &str,
    reason: &BreakGlassReason,
) -> Result<BreakOutcome, BackendError> {
    let ProjectContext { open, project, env } = context;
    let target = &project.stacks[stack].target;
    let (action, broken) = match &project.targets[target].backend {
        Backend::Engine { kind, .. } if kind == "pg" => {
            let kind = kind.clone();
            return Err(BackendError::Unbreakable { kind });
        }
        // The server decides what it releases, and only accepts the request.
        Backend::Engine { kind, .. } if kind == "http" => {
            ("asked to end lock", BreakOutcome::Asked)
        }
        Backend::Engine { .. } | Backend::Terrane => ("lock", BreakOutcome::Surely),
    };
    let seat =
        BackendEngine::open(control, open, project, stack, env, BackendChoice::Target).await?;
    if broken == BreakOutcome::Asked && seat.engine.flavor == Flavor::Terraform {
        seat.unlock_by_id(id).await?;
    } else {
        let call = EngineCall::ForceUnlock { id, var_files: &[] };
        seat.call("break the lock", &call).await?;
    }
    let state = control.state_name(&project.stacks[stack].state);
    let reason = reason.kept(control, &state).await;
    let record = NewBreakGlass {
        act: BreakGlassAction::LockBroken,
        state: &state,
        actor: &reason.actor,
        reason: Some(&reason.text),
        detail: format!("{action} `{id}` in the backend of target `{target}`"),
    };
    let recorded = control.store.break_glass_open(&record).await;
    recorded.map_err(BackendError::Record)?;
    Ok(broken)
}

/// Parses the block that engines print about a lock: a name, a colon and a value on each line.
fn read_lock(words: &str) -> Option<LockInfo> {
    let mut info = LockInfo::default();
    for line in words.lines() {
        let line = line.trim_start_matches(|c: char| !c.is_ascii_alphabetic());
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let value = value.trim().to_owned();
        match name {
            "ID" => info.id = value,
            "Path" => info.path = value,
            "Operation" => info.operation = value,
            "Who" => info.who = value,
            "Version" => info.version = value,
            "Created" => info.created = value,
            _ => {}
        }
    }
    Some(info).filter(|info| !info.id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_read_from_a_refusal() {
        let said = "Failed to unlock state: lock ID \"1\" does not match existing lock\nLock Info:\n  ID:        f1c2\n  Path:      b/k\n  Operation: OperationTypeApply\n  Who:       a@b\n  Version:   1.11.14\n  Created:   2026-01-01 00:00:00 UTC\n  Info:      \n";
        let info = read_lock(said).expect("a lock");
        assert_eq!(info.to_string(), "a@b (apply), lock `f1c2`");
        assert_eq!(read_lock("Error: nothing here"), None);
    }
}
