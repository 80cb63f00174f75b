//! `terrane hold`: a person's lock on a stack or a target's lane, with a reason and an end.

use std::time::Duration;

use control::changeset::holds::{self, ReleaseError, ReleasedHolds};
use control::decision::release;
use control::state::redact_reason::without_secrets;
use jiff::Timestamp;
use model::base::actor::Actor;
use model::base::error::Explain;
use model::project::Stack;
use model::run::changeset::Status;
use model::run::hold::{Hold, HoldOn};
use serde_json::json;

use crate::commands::manual::ReasonArg;
use crate::commands::run::ProjectHandle;
use crate::global::Global;
use crate::view::{actors, duration, table::Table, text::clean};
use crate::watch::decision_error;
use crate::{CommandError, ExitStatus, Process, report};

/// Keep a stack or a whole target from being applied for a while
///
/// Plans work meanwhile. A hold ends by itself; it is not a state lock.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane hold add k8s-prod --for 2d --reason \"migration under way\"\n  terrane hold list"
)]
pub(crate) struct HoldArgs {
    #[command(subcommand)]
    command: HoldCommand,
}

#[derive(Debug, clap::Subcommand)]
enum HoldCommand {
    Add(AddArgs),
    List(ListArgs),
    Release(ReleaseArgs),
}

/// Hold a stack, or the lane of a target
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane hold add k8s-prod --for 2d --reason \"migration under way\"\n  \
                  terrane hold add azure --reason \"quota is being raised\""
)]
struct AddArgs {
    /// A stack or a target
    name: String,
    /// How long, such as `90m`, `24h` or `7d`
    #[arg(long = "for", value_name = "DURATION", default_value = "24h", value_parser = term)]
    term: Duration,
    #[command(flatten)]
    reason: ReasonArg,
}

/// Show what is held, by whom, why and until when
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  terrane hold list\n  terrane hold list --all --json")]
struct ListArgs {
    /// Also show ended holds
    #[arg(long)]
    all: bool,
}

/// End your holds before their time; confirmed change sets that waited for them continue
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane hold release k8s-prod\n  terrane hold release k8s-prod --all"
)]
struct ReleaseArgs {
    /// A stack or a target
    name: String,
    /// Also end the holds of others
    #[arg(long)]
    all: bool,
}

/// The longest hold.
const LONGEST: Duration = Duration::from_hours(10 * 365 * 24);

fn term(text: &str) -> Result<Duration, &'static str> {
    let term = model::base::duration::parse(text).filter(|term| !term.is_zero());
    let term = term.ok_or("write a number and a unit: `90m`, `24h`, `7d`")?;
    if term > LONGEST {
        return Err("a hold ends within ten years: at most `3650d`");
    }
    Ok(term)
}

pub(crate) async fn hold(
    args: HoldArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let here = ProjectHandle::open(global, process).await?;
    let control = &here.control;
    let failed = |err: &dyn Explain| CommandError::from_error(err);
    let find = |word: &str| -> Result<HoldOn, CommandError> {
        holds::find(&here.project, word).ok_or_else(|| {
            CommandError::new(format!("`{word}` is neither a stack nor a target"))
                .hint("`terrane graph` shows the stacks")
                .status(ExitStatus::Usage)
        })
    };
    match args.command {
        HoldCommand::Add(args) => {
            let on = find(&args.name)?;
            let reason = args.reason.read(global, process)?;
            let is_held = |stack: &&Stack| match &on {
                HoldOn::Stack(name) => stack.name == *name,
                HoldOn::Lane(target) => stack.target == *target,
            };
            let held = here.project.stacks.values().filter(is_held);
            let states: Vec<_> = held.map(|it| control.state_name(&it.state)).collect();
            let text = without_secrets(control, &states, &reason.text).await;
            let hold = holds::add(control, &on, &reason.actor, &text, args.term)
                .await
                .map_err(|err| failed(&err))?;
            if global.json {
                report::json(&actors::by_name(json!({ "hold": hold })))?;
            } else {
                report::say(&format!(
                    "Held {} until {}; `terrane hold release {}` ends it earlier.\n",
                    on.words(),
                    moment(hold.until),
                    on.name()
                ))?;
            }
        }
        HoldCommand::Release(args) => {
            let on = match find(&args.name) {
                Ok(on) => on,
                // The hold may be on a stack that was removed since.
                Err(unknown) => {
                    let active = holds::list(control, false).await;
                    let active = active.map_err(|err| failed(&err))?;
                    let held = active.into_iter().find(|hold| hold.on.name() == args.name);
                    held.ok_or(unknown)?.on
                }
            };
            let actor = process.actor();
            let released = holds::release(control, &on, &actor, args.all).await;
            let released = released.map_err(|err| not_released(&err, &on, &args.name, &actor))?;
            if !global.json {
                report::say(&told(&released, &on, &args.name))?;
            }
            let started = go_on(&here, &on, global, process).await?;
            if global.json {
                report::json(&actors::by_name(json!({
                    "released": released.ended, "left": released.left, "goes_on": started,
                })))?;
            }
        }
        HoldCommand::List(args) => {
            let all = holds::list(control, args.all)
                .await
                .map_err(|err| failed(&err))?;
            if global.json {
                report::json(&actors::by_name(json!({ "holds": all })))?;
            } else if all.is_empty() {
                report::say("Nothing is held.\n")?;
            } else {
                report::data(&table(&all).render(process.data_look(global)))?;
            }
        }
    }
    Ok(ExitStatus::Done)
}

/// The message about the holds that ended, and those that did not.
fn told(released: &ReleasedHolds, on: &HoldOn, name: &str) -> String {
    let mut said = String::new();
    for hold in &released.ended {
        let (person, reason) = (clean(&hold.person.name), clean(&hold.reason));
        let line = format!("Released {}, held by `{person}`: {reason}\n", on.words());
        said.push_str(&line);
    }
    for hold in &released.left {
        let line = format!("Still {}\n", clean(&hold.words()));
        said.push_str(&line);
    }
    if !released.left.is_empty() {
        let way = format!("`terrane hold release {name} --all` also ends the holds of others.\n");
        said.push_str(&way);
    }
    said
}

fn not_released(err: &ReleaseError, on: &HoldOn, name: &str, actor: &Actor) -> CommandError {
    match err {
        ReleaseError::OfOthers(holds) => {
            let said = format!("{} is not held by `{actor}`, but by others", on.words());
            let refused = CommandError::new(said)
                .hint(format!(
                    "`terrane hold release {name} --all` ends the holds of others"
                ))
                .status(ExitStatus::Refused);
            let causes = holds.iter().map(Hold::words);
            causes.fold(refused, CommandError::cause)
        }
        ReleaseError::Missing | ReleaseError::Store(_) => CommandError::from_error(err),
    }
}

/// Continues change sets that waited for the hold, if the user who released it may and has the values.
/// Otherwise reports what they wait for.
async fn go_on(
    here: &ProjectHandle,
    on: &HoldOn,
    global: &Global,
    process: &Process,
) -> Result<Vec<String>, CommandError> {
    let actor = process.actor();
    let decider = here.decider(&actor, process);
    let waiters = release::continue_waiters(&here.control, decider, &here.open, on).await;
    let mut started = Vec::new();
    for one in waiters.map_err(|err| decision_error(&err))? {
        let waiter = one.details;
        let set = waiter.set.id;
        let words = if one.is_started {
            started.push(set.to_string());
            format!("Change set {set} continues; follow it with `terrane run logs -f {set}`.\n")
        } else if waiter.goes_on() {
            // The full command could be taken for more than was requested.
            let way = if waiter.set.status == Status::AwaitingConfirm {
                format!("`terrane run confirm {set}`")
            } else {
                "the same command".to_owned()
            };
            format!("Change set {set} may continue: its requester runs {way} in the same place.\n")
        } else {
            let why = waiter
                .why()
                .unwrap_or_else(|| waiter.set.status.word().to_owned());
            let link = if why.starts_with("stack ") {
                ":"
            } else {
                " for"
            };
            format!("Change set {set} waits{link} {why}.\n")
        };
        if !global.json {
            report::say(&words)?;
        }
    }
    Ok(started)
}

fn table(holds: &[Hold]) -> Table {
    let now = Timestamp::now();
    let mut table = Table::new(["HELD", "BY", "SINCE", "UNTIL", "REASON"]);
    for hold in holds {
        let since = Duration::try_from(now.duration_since(hold.since)).unwrap_or_default();
        let until = match &hold.released {
            Some(release) => format!("released by `{}`", release.by),
            None if hold.is_active(now) => moment(hold.until),
            None => format!("ended {}", moment(hold.until)),
        };
        table.row([
            hold.on.words(),
            hold.person.name.clone(),
            duration::ago(since),
            until,
            hold.reason.clone(),
        ]);
    }
    table
}

fn moment(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M UTC").to_string()
}
