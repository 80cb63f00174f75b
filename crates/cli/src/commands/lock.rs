//! `terrane lock`: who holds which state, and taking a lock away.

use std::time::Duration;

use control::locks::held::{self, Holder, LockedState};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::by_hand::{ReasonArg, word};
use super::place::Place;
use crate::args::Global;
use crate::view::{duration, table::Table};
use crate::{CommandError, ExitStatus, Process, report};

/// See who holds which state, and break a lock that nobody will release
#[derive(Debug, clap::Args)]
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
/// An orphan is the lock of a run whose process is gone.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  terrane lock list\n  terrane lock list --json")]
struct ListArgs {}

/// Take a lock away from its holder
///
/// What the holder still writes is refused, and kept aside. The record of it stays open.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane lock break network --reason \"the laptop was stolen\"\n  \
                  terrane lock break shop/network --force --reason \"it hangs since Monday\""
)]
struct BreakArgs {
    /// A stack of the project here, or `PROJECT/NAME`
    state: String,
    #[command(flatten)]
    reason: ReasonArg,
    /// Even if the run that holds it is at work
    #[arg(long)]
    force: bool,
}

pub(crate) async fn lock(
    args: LockArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let place = Place::open(global, process).await?;
    match args.command {
        LockCommand::List(ListArgs {}) => list(&place, global, process).await,
        LockCommand::Break(args) => break_lock(&args, &place, global, process).await,
    }
}

async fn list(
    place: &Place,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let locks = held::list(&place.control).await;
    let locks = locks.map_err(|err| CommandError::from_error(&err))?;
    if global.json {
        let documents: Vec<Value> = locks.iter().map(|lock| document(place, lock)).collect();
        report::json(&json!({ "locks": documents }))?;
        return Ok(ExitStatus::Done);
    }
    if locks.is_empty() {
        report::say("Nothing is locked.\n")?;
        return Ok(ExitStatus::Done);
    }
    let now = Timestamp::now();
    let headings = ["STATE", "HELD BY", "OPERATION", "SINCE", "CLIENT", "HOLDER"];
    let mut table = Table::new(headings);
    for one in &locks {
        let info = &one.lock.info;
        let since = Duration::try_from(now.duration_since(one.lock.since)).unwrap_or_default();
        table.row([
            word(place, &one.state),
            info.who.clone(),
            info.operation.clone(),
            duration::ago(since),
            info.version.clone(),
            held_by(place, one),
        ]);
    }
    report::data(&table.render(process.data_look(global)))?;
    Ok(ExitStatus::Done)
}

/// Whether the holder lives, and the one command that resolves it if not.
fn held_by(place: &Place, one: &LockedState) -> String {
    match (one.holder, way_out(place, one)) {
        (Holder::Run(run), _) => format!("run {run}, alive"),
        (Holder::Orphan { run, .. }, way) => format!("orphan of run {run}: {way}"),
        (Holder::Client, way) => format!("a client without a run; if it is gone: {way}"),
    }
}

fn way_out(place: &Place, one: &LockedState) -> String {
    let state = word(place, &one.state);
    match one.holder {
        // It ends the run by what is seen of it, adopts what it left, and unlocks.
        Holder::Orphan {
            unfinished: true, ..
        } => format!("`terrane plan {state}`"),
        Holder::Orphan { .. } | Holder::Client | Holder::Run(_) => {
            format!("`terrane lock break {state} --reason …`")
        }
    }
}

fn document(place: &Place, one: &LockedState) -> Value {
    let run = match one.holder {
        Holder::Run(run) | Holder::Orphan { run, .. } => Some(run.to_string()),
        Holder::Client => None,
    };
    let alive = match one.holder {
        Holder::Run(_) => Some(true),
        Holder::Orphan { .. } => Some(false),
        Holder::Client => None,
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
    place: &Place,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let reason = args.reason.read(process)?;
    let state = place.state(&args.state)?;
    let broken = held::break_lock(&place.control, &state, &reason, args.force).await;
    let broken = broken.map_err(|err| {
        let status = if err.is_refusal() {
            ExitStatus::Refused
        } else {
            ExitStatus::Failed
        };
        let shown = CommandError::from_error(&err).status(status);
        err.hint().into_iter().fold(shown, CommandError::hint)
    })?;
    if global.json {
        report::json(&json!({ "broken": document(place, &broken), "reason": reason.text }))?;
    } else {
        report::say(&format!(
            "Broke the lock of {} on `{}`; what it still writes is refused.\n",
            broken.lock.info,
            word(place, &state)
        ))?;
    }
    Ok(ExitStatus::Done)
}
