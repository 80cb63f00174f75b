//! `terrane lock`: lists the locks of states, and breaks one.

use std::time::Duration;

use control::changeset::orphan_processes;
use control::state::lock_admin::{self, BreakLockError, Holder, LockedState};
use jiff::Timestamp;
use model::state::StateName;
use model::state::lock::operation_words;
use serde_json::{Value, json};

use crate::commands::home_args::HomeHandle;
use crate::commands::manual::{ReasonArg, ask, print_restrictions, word};
use crate::global::Global;
use crate::global::at_home;
use crate::view::text::count;
use crate::view::{duration, table::Table};
use crate::{CommandError, ExitStatus, Process, report};

mod backend_locks;

/// See who holds which state, and break abandoned locks
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane lock list\n  terrane lock break network --reason \"its job was ended\""
)]
pub(crate) struct LockArgs {
    #[command(subcommand)]
    command: LockCommand,
}

#[derive(Debug, clap::Subcommand)]
enum LockCommand {
    List(ListArgs),
    Break(BreakArgs),
}

/// Show every lock, and whether its run is still alive
///
/// An orphan is the lock of a run whose process is gone. For stacks of this project in a backend of the engine,
/// terrane checks the lock there, through the engine. Not every kind of backend reports it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane lock list\n  terrane lock list --own\n  terrane lock list --json"
)]
struct ListArgs {
    /// Only locks of the home; do not query backends of the engine
    #[arg(long)]
    own: bool,
}

/// Take a lock away from its holder
///
/// Anything that the holder still writes is refused and quarantined. The action is break-glass: its record stays open
/// in `terrane run list --open`. In a backend of the engine it is the engine's own `force-unlock`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane lock break network --reason \"the laptop was stolen\"\n  \
                  terrane lock break shop/network --force --reason \"it hangs since Monday\"\n  \
                  terrane lock break dns --id 5d8c9f52 --reason \"its job was killed\"   # a backend that does not report locks"
)]
struct BreakArgs {
    /// A stack of the project here, or `PROJECT/NAME`
    state: String,
    #[command(flatten)]
    reason: ReasonArg,
    /// Even if the run that holds it is active
    #[arg(long)]
    force: bool,
    /// Only the lock of this id
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Do it without asking
    #[arg(long)]
    auto_approve: bool,
}

pub(crate) async fn lock(
    args: LockArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    match args.command {
        LockCommand::List(args) => list(&args, global, process).await,
        LockCommand::Break(args) => break_lock(&args, global, process).await,
    }
}

async fn list(
    args: &ListArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let place = &HomeHandle::open(global, process).await?;
    let locks = lock_admin::list(&place.control).await;
    let locks = locks.map_err(|err| CommandError::from_error(&err))?;
    let others = if args.own {
        Vec::new()
    } else {
        backend_locks::locks(place, process).await
    };
    if global.json {
        let own = locks.iter().map(|lock| document(place, lock));
        let mut documents: Vec<Value> = own.collect();
        for found in &others {
            documents.extend(backend_locks::document(place, found).await);
        }
        let unknown: Vec<Value> = others.iter().filter_map(backend_locks::unknown).collect();
        report::json(&json!({ "locks": documents, "unknown": unknown }))?;
        return Ok(ExitStatus::Done);
    }
    let now = Timestamp::now();
    let headings = ["STATE", "HELD BY", "OPERATION", "SINCE", "CLIENT", "HOLDER"];
    let mut table = Table::new(headings);
    for one in &locks {
        let info = &one.lock.info;
        let since = Duration::try_from(now.duration_since(one.lock.since)).unwrap_or_default();
        table.row([
            typed(place, &one.state),
            info.who.clone(),
            operation_words(&info.operation).to_owned(),
            duration::ago(since),
            info.version.clone(),
            at_home(&held_by(place, one), global),
        ]);
    }
    for one in &others {
        if let Some(row) = backend_locks::row(place, one).await {
            table.row(row);
        }
    }
    let shown = table.render(process.data_look(global));
    let remarks: Vec<String> = others.iter().filter_map(backend_locks::remark).collect();
    match (shown.is_empty(), remarks.len()) {
        (true, 0) => report::say("Nothing is locked.\n")?,
        (true, states) => report::say(&format!(
            "No lock was found; {} cannot be checked.\n",
            count(states, "state")
        ))?,
        (false, _) => {}
    }
    report::data(&shown)?;
    for remark in remarks {
        report::say(&format!("note: {remark}\n"))?;
    }
    print_restrictions(&place.control).await?;
    Ok(ExitStatus::Done)
}

/// Whether the holder is alive, and if not, the command that resolves it.
fn held_by(place: &HomeHandle, one: &LockedState) -> String {
    match (one.holder, way_out(place, one)) {
        (Holder::Run(run), _) => match orphan_processes::of_run(&place.control.home, run) {
            Some(words) => format!("run {run} {words}"),
            None => format!("run {run}, alive"),
        },
        (Holder::Elsewhere { run, .. }, way) => {
            format!("run {run} on another machine; if that machine is gone for good: {way}")
        }
        (Holder::Orphan { run, .. }, way) => format!("run {run} is dead; release the lock: {way}"),
        (Holder::Client, way) => format!("a client without a run; if it is gone: {way}"),
    }
}

fn way_out(place: &HomeHandle, one: &LockedState) -> String {
    let state = typed(place, &one.state);
    match one.holder {
        // `plan` ends the run as it was observed, adopts what it left, and unlocks.
        Holder::Orphan {
            unfinished: true, ..
        } => format!("`terrane plan {state}`"),
        Holder::Elsewhere { set, .. } => format!("`terrane run cancel {set} --gone --reason …`"),
        Holder::Orphan { .. } | Holder::Client | Holder::Run(_) => {
            format!("`terrane lock break {state} --reason …`")
        }
    }
}

/// A state as it must be typed here: inside a project, a bare name is a stack.
fn typed(place: &HomeHandle, state: &StateName) -> String {
    let is_alone = place.project.is_none() && !state.name.contains('/');
    if state.project.is_empty() && !is_alone {
        format!("/{state}")
    } else {
        word(place, state)
    }
}

fn document(place: &HomeHandle, one: &LockedState) -> Value {
    let run = match one.holder {
        Holder::Run(run) | Holder::Elsewhere { run, .. } | Holder::Orphan { run, .. } => {
            Some(run.to_string())
        }
        Holder::Client => None,
    };
    let alive = match one.holder {
        Holder::Run(_) => Some(true),
        Holder::Orphan { .. } => Some(false),
        Holder::Elsewhere { .. } | Holder::Client => None,
    };
    json!({
        "state": one.state,
        "lock": one.lock.info,
        "since": one.lock.since,
        "epoch": one.lock.epoch,
        "run": run,
        "alive": alive,
        "holder": one.holder.word(),
        "resolve": way_out(place, one).trim_matches('`'),
    })
}

async fn break_lock(
    args: &BreakArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let reason = args.reason.read(global, process)?;
    let (place, state) = &HomeHandle::open_state(global, process, &args.state).await?;
    if let Some(stack) = backend_locks::stack(place, state) {
        return backend_locks::break_lock(args, place, &stack, &reason, global, process).await;
    }
    let locked = lock_admin::breakable(&place.control, state, args.force).await;
    let locked = locked.map_err(|err| refused(&err))?;
    let (name, info) = (word(place, state), &locked.lock.info);
    if let Some(id) = args.id.as_ref().filter(|id| **id != info.id) {
        return Err(
            CommandError::new(format!("state `{name}` is locked by another one: {info}"))
                .hint(format!(
                    "`{id}` no longer holds it: check `terrane lock list` again"
                ))
                .status(ExitStatus::Refused),
        );
    }
    let question = format!("Break the lock of {info} on `{name}`?");
    ask(&question, args.auto_approve, process)?;
    let broken = lock_admin::break_lock(&place.control, &locked, &reason).await;
    let broken = broken.map_err(|err| refused(&err))?;
    if global.json {
        report::json(&json!({ "broken": document(place, &broken), "reason": reason.text }))?;
    } else {
        report::say(&format!(
            "Broke the lock of {} on `{name}`; what it still writes is refused.\n",
            broken.lock.info
        ))?;
    }
    place.tell_git(global, process).await?;
    Ok(ExitStatus::Done)
}

fn refused(err: &BreakLockError) -> CommandError {
    CommandError::from_error(err)
}
