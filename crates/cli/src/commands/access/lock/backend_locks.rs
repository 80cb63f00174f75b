//! Locks in backends of the engines, which only the engine can read and break.

use std::time::Duration;

use control::changeset::backends::{self, BackendError, BackendLock, BreakOutcome, StackLock};
use control::project::open::ProjectContext;
use control::state::lock_admin::applying;
use control::state::redact_reason::BreakGlassReason;
use jiff::Timestamp;
use model::base::ids::StackName;
use model::state::StateName;
use model::state::lock::{LockInfo, operation_words};
use serde_json::{Value, json};

use super::BreakArgs;
use crate::commands::home_args::HomeHandle;
use crate::commands::manual::ask;
use crate::global::Global;
use crate::view::duration;
use crate::{CommandError, ExitStatus, Process, report};

/// Locks of the stacks of this project; none outside a project.
pub(super) async fn locks(place: &HomeHandle, process: &Process) -> Vec<StackLock> {
    let (Some(open), Some(project)) = (&place.open, &place.project) else {
        return Vec::new();
    };
    backends::locks(&place.control, open, project, &process.env).await
}

/// The stack that has this state, if its backend is one of the engine.
pub(super) fn stack(place: &HomeHandle, state: &StateName) -> Option<StackName> {
    let project = place.project.as_ref()?;
    let mut stacks = project.stacks.iter();
    let is_it = |stack: &str| place.control.state_name(stack) == *state;
    let (name, _) =
        stacks.find(|(name, stack)| is_it(&stack.state) && !project.is_on_terrane_backend(name))?;
    Some(name.clone())
}

pub(super) async fn row(place: &HomeHandle, found: &StackLock) -> Option<[String; 6]> {
    let stack = &found.stack;
    let run = applying(&place.control, stack).await;
    let Some(info) = held(found) else {
        // The backend does not report locks, but terrane has the run that is applying.
        let run = run.filter(|_| remark(found).is_some())?;
        let holder = format!("in the engine's backend; run {run}, alive");
        let (nothing, apply) = (String::new(), "apply".to_owned());
        return Some([
            stack.to_string(),
            run.to_string(),
            apply,
            nothing.clone(),
            nothing,
            holder,
        ]);
    };
    let holder = match run {
        Some(run) => format!("in the engine's backend; run {run}, alive"),
        None => format!(
            "in the engine's backend; if it is gone: `terrane lock break {stack} --reason …`"
        ),
    };
    Some([
        stack.to_string(),
        info.who.clone(),
        operation_words(&info.operation).to_owned(),
        since(&info.created),
        info.version.clone(),
        holder,
    ])
}

/// How long ago a time was, if it can be parsed. Go writes times in its own format.
fn since(created: &str) -> String {
    let zoned = created.strip_suffix(" UTC").unwrap_or(created);
    let at = created
        .parse()
        .or_else(|_| Timestamp::strptime("%Y-%m-%d %H:%M:%S%.f %z", zoned));
    let Ok(at) = at else {
        return created.to_owned();
    };
    let since = Timestamp::now().duration_since(at);
    duration::ago(Duration::try_from(since).unwrap_or_default())
}

pub(super) async fn document(place: &HomeHandle, found: &StackLock) -> Option<Value> {
    let info = held(found);
    let run = applying(&place.control, &found.stack).await;
    if info.is_none() && (run.is_none() || remark(found).is_none()) {
        return None;
    }
    Some(json!({
        "stack": found.stack.as_str(),
        "lock": info,
        "run": run.map(|run| run.to_string()),
        "alive": run.map(|_| true),
        "holder": "backend",
        "resolve": format!("terrane lock break {} --reason …", found.stack),
    }))
}

/// A lock that cannot be read, and why, as data.
pub(super) fn unknown(found: &StackLock) -> Option<Value> {
    let why = remark(found)?;
    Some(json!({ "stack": found.stack.as_str(), "why": why }))
}

/// A lock that cannot be read, and why.
pub(super) fn remark(found: &StackLock) -> Option<String> {
    let stack = &found.stack;
    match &found.lock {
        Ok(BackendLock::NotRevealed) => Some(format!(
            "stack `{stack}`: this kind of backend does not report who holds its lock"
        )),
        Err(err) => Some(format!("cannot check the lock of stack `{stack}`: {err}")),
        Ok(BackendLock::Free | BackendLock::Held(_)) => None,
    }
}

pub(super) async fn break_lock(
    args: &BreakArgs,
    place: &HomeHandle,
    stack: &StackName,
    reason: &BreakGlassReason,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let (Some(open), Some(project)) = (&place.open, &place.project) else {
        return Err(CommandError::new("there is no project here"));
    };
    let (control, env) = (&place.control, &process.env);
    if !args.force
        && let Some(run) = applying(control, stack).await
    {
        return Err(CommandError::new(format!(
            "run {run}, which applies stack `{stack}`, is active"
        ))
        .hint(format!(
            "wait for {run}, or `terrane run cancel {run}`; with `--force` another could write at the same time"
        ))
        .status(ExitStatus::Refused));
    }
    let found = backends::lock_of(control, open, project, stack, env).await;
    let found = found.map_err(|err| failed(&err))?;
    let id = id_of(&found, args.id.as_deref(), stack)?;
    let what = match &found {
        BackendLock::Held(info) => format!("the lock of {info}"),
        BackendLock::Free | BackendLock::NotRevealed => format!("lock `{id}`"),
    };
    let question = format!("Break {what} on `{stack}`, in the backend of its engine?");
    ask(&question, args.auto_approve, process)?;
    let context = ProjectContext { open, project, env };
    let broken = backends::break_lock(control, context, stack, &id, reason).await;
    let broken = broken.map_err(|err| failed(&err))?;
    if global.json {
        report::json(&json!({
            "broken": {
                "stack": stack.as_str(), "lock_id": id, "holder": "backend",
                "certain": broken == BreakOutcome::Surely,
            },
            "reason": reason.text,
        }))?;
    } else {
        report::say(&match broken {
            BreakOutcome::Surely => format!("Broke {what} on `{stack}`.\n"),
            BreakOutcome::Asked => format!(
                "Requested the backend of `{stack}` to release {what}; it does not report whether that lock held the state.\n"
            ),
        })?;
    }
    place.tell_git(global, process).await?;
    Ok(ExitStatus::Done)
}

fn id_of(
    found: &BackendLock,
    named: Option<&str>,
    stack: &StackName,
) -> Result<String, CommandError> {
    match (found, named) {
        (BackendLock::Held(info), Some(named)) if info.id != named => Err(CommandError::new(
            format!("stack `{stack}` is locked by another one: {info}"),
        )
        .hint("check `terrane lock list` again")
        .status(ExitStatus::Refused)),
        (BackendLock::Held(info), _) => Ok(info.id.clone()),
        (BackendLock::Free, _) => Err(CommandError::new(format!(
            "stack `{stack}` is not locked in the backend of its engine"
        ))
        .hint("`terrane lock list` shows every lock")),
        (BackendLock::NotRevealed, Some(named)) => Ok(named.to_owned()),
        (BackendLock::NotRevealed, None) => Err(CommandError::new(format!(
            "the backend of stack `{stack}` does not report which lock holds its state"
        ))
        .hint("the engine prints the id when it is refused: give it with `--id ID`")
        .status(ExitStatus::Usage)),
    }
}

fn held(found: &StackLock) -> Option<&LockInfo> {
    match &found.lock {
        Ok(BackendLock::Held(info)) => Some(info),
        Ok(BackendLock::Free | BackendLock::NotRevealed) | Err(_) => None,
    }
}

fn failed(err: &BackendError) -> CommandError {
    CommandError::from_error(err)
}
