//! `terrane run cancel`

use std::io::{self, BufRead as _};
use std::time::Duration;

use control::Control;
use control::changeset::cancel_requests::CancelRequest;
use control::schedule::cancel::{self, CancelError, PendingCancel};
use control::state::redact_reason::BreakGlassReason;
use model::base::ids::{ChangeSetId, RunId};
use model::run::{Outcome, Run, RunState};
use serde_json::json;

use super::{RunOrChangeSet, read_run};
use crate::commands::change;
use crate::commands::home_args::HomeHandle;
use crate::commands::manual::reason_text;
use crate::global::Global;
use crate::view::{text, unrecorded};
use crate::{CommandError, ExitStatus, Process, report};

/// How often to check whether a run is over.
const LOOK: Duration = Duration::from_millis(100);

/// End a run or a change set, as Ctrl-C does in the terminal that watches it
///
/// No new run starts, and each engine gets one interrupt: it finishes its current work, saves its state and
/// exits. This command waits for that; Ctrl-C detaches. It works only on the machine that carries the run
/// out.
///
/// An engine that does not exit can be killed. What it did since it last saved its state is then in no
/// state: the command shows this first, and records the action.
///
/// Use `--gone` if a machine that shares this home is lost for good. Its runs become `unknown`, other change sets
/// may start, and anything that the machine still writes is refused.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane run cancel r7\n  terrane run cancel c3 --reason \"wrong branch\"\n  \
                  terrane run cancel r7 --kill --reason \"its provider hangs since noon\"\n  \
                  terrane run cancel c3 --gone --reason \"its CI job was killed\""
)]
pub(crate) struct CancelArgs {
    /// A run, such as `r7`, or a change set, such as `c3`
    #[arg(value_name = "RUN|CHANGESET")]
    what: String,
    /// Why, in a sentence; it is recorded
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Kill the engine of a run instead of waiting for it
    #[arg(long, requires = "reason")]
    kill: bool,
    /// Give up a change set whose machine is gone for good
    #[arg(long, requires = "reason", conflicts_with = "kill")]
    gone: bool,
    /// The name, in place of typing it for `--kill` and `--gone`
    #[arg(long, value_name = "NAME", requires = "reason")]
    confirm: Option<String>,
}

pub(crate) async fn cancel(
    args: &CancelArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let set = args.what.parse::<ChangeSetId>().ok();
    let place = HomeHandle::open(global, process).await?;
    let control = &place.control;
    RunOrChangeSet::read(&args.what)?.set(control).await?;
    let reason = args.reason.as_deref().map(str::trim);
    let wish = CancelRequest {
        by: process.actor(),
        reason: reason
            .filter(|it| !it.is_empty())
            .map(|said| reason_text(said, global, process))
            .transpose()?,
    };
    match set {
        _ if args.gone => give_up(args, set, wish, &place, global, process).await,
        Some(_) if args.kill => Err(CommandError::new("`--kill` ends the engine of one run")
            .hint("name the run: `terrane run cancel r7 --kill --reason …`")
            .status(ExitStatus::Usage)),
        Some(set) => {
            let done = cancel::cancel_set(control, set, &wish).await;
            done.map_err(|err| refused(&err))?;
            report::say(&format!(
                "Cancelling change set {set}: engines finish their current work and save their state. \
                 Press Ctrl-C to detach.\n"
            ))?;
            Box::pin(change::watch_until_finished(control, set, global, process)).await?;
            Ok(ExitStatus::Done)
        }
        None => {
            let run = read_run(&args.what)?;
            let ended = if args.kill {
                kill(args, run, wish, control, process).await?
            } else {
                cancel_run(run, &wish, control).await?
            };
            if args.kill {
                place.tell_git(global, process).await?;
            }
            tell(&ended, global)
        }
    }
}

async fn cancel_run(
    id: RunId,
    wish: &CancelRequest,
    control: &Control,
) -> Result<Run, CommandError> {
    let (run, _) = cancel::find(control, id)
        .await
        .map_err(|err| refused(&err))?;
    let stack = &run.stack;
    report::say(&if run.state.is_running() {
        format!(
            "Cancelling run {id} of `{stack}`: its engine finishes its current work and saves its state. \
             Press Ctrl-C to detach.\n"
        )
    } else {
        format!("Cancelling run {id} of `{stack}`, which has not begun.\n")
    })?;
    let begun = PendingCancel::begin(control, id, wish).await;
    let mut cancelling = begun.map_err(|err| refused(&err))?;
    loop {
        let seen = cancelling.look(control).await;
        if let Some(run) = seen.map_err(|err| refused(&err))? {
            return Ok(run);
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn give_up(
    args: &CancelArgs,
    set: Option<ChangeSetId>,
    wish: CancelRequest,
    place: &HomeHandle,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let Some(set) = set else {
        return Err(CommandError::new("`--gone` gives up a whole change set")
            .hint("name the change set: `terrane run cancel c3 --gone --reason …`")
            .status(ExitStatus::Usage));
    };
    let reason = said(wish)?;
    let found = cancel::may_be_given_up(&place.control, set).await;
    found.map_err(|err| refused(&err))?;
    report::say(&format!(
        "If the machine of change set {set} still works, wait for it: no state records what it does from now on.\n"
    ))?;
    type_name(args, &set.to_string(), "give it up", process)?;
    let given_up = cancel::give_up(&place.control, set, &reason).await;
    let given_up = given_up.map_err(|err| refused(&err))?;
    place.tell_git(global, process).await?;
    if global.json {
        let runs: Vec<_> = given_up
            .iter()
            .map(|run| json!({ "run": run.id.to_string(), "stack": run.stack.to_string(), "state": run.state }))
            .collect();
        report::json(&json!({ "change_set": set.to_string(), "runs": runs }))?;
        return Ok(ExitStatus::Done);
    }
    for run in &given_up {
        say_over(run, "")?;
    }
    report::say(&format!(
        "Change set {set} is given up. Check the real resources before the next apply: `terrane plan`.\n"
    ))?;
    Ok(ExitStatus::Done)
}

/// Requires a reason for the record.
fn said(wish: CancelRequest) -> Result<BreakGlassReason, CommandError> {
    let Some(text) = wish.reason else {
        return Err(CommandError::new("the reason is empty")
            .hint("give a reason for later readers of the record: `--reason \"…\"`")
            .status(ExitStatus::Usage));
    };
    Ok(BreakGlassReason {
        actor: wish.by,
        text,
    })
}

async fn kill(
    args: &CancelArgs,
    id: RunId,
    wish: CancelRequest,
    control: &Control,
    process: &Process,
) -> Result<Run, CommandError> {
    let reason = said(wish)?;
    let (run, _) = cancel::find(control, id)
        .await
        .map_err(|err| refused(&err))?;
    if !cancel::has_engine(control, id) {
        return Err(refused(&CancelError::NoEngine { run: id }));
    }
    let lost = cancel::unrecorded_if_killed(control, &run)
        .await
        .map_err(|err| refused(&err))?;
    report::say(&format!(
        "Run {id} of `{}` is {}.\n",
        run.stack,
        run.state.word()
    ))?;
    match &lost {
        None => report::say("If its engine is killed now, nothing is known to be lost.\n")?,
        Some(lost) => {
            report::say("If its engine is killed now, no state records this:\n")?;
            for line in unrecorded::facts(lost) {
                report::say(&format!("  {line}\n"))?;
            }
        }
    }
    type_name(args, &id.to_string(), "kill its engine", process)?;
    let killed = cancel::kill(control, &run, &reason).await;
    killed.map_err(|err| refused(&err))?;
    loop {
        let ended = cancel::ended(control, id).await;
        if let Some(run) = ended.map_err(|err| refused(&err))? {
            return Ok(run);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Requires the name, typed or given, for an action that cannot be undone.
fn type_name(
    args: &CancelArgs,
    name: &str,
    action: &str,
    process: &Process,
) -> Result<(), CommandError> {
    let unsaid = |why: &str| {
        CommandError::new(format!("nothing was done: {why}"))
            .hint(format!("give it with `--confirm {name}`"))
            .status(ExitStatus::Refused)
    };
    if let Some(given) = &args.confirm {
        if *given == name {
            return Ok(());
        }
        return Err(unsaid(&format!("`{given}` is not its name")));
    }
    if !process.stdin_is_terminal {
        return Err(unsaid("its name must be typed, and there is no terminal"));
    }
    report::say(&format!("Type `{name}` to {action}: "))?;
    let mut line = String::new();
    io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|err| CommandError::because("could not read the answer", &err))?;
    if line.trim() == name {
        Ok(())
    } else {
        Err(unsaid("its name was not typed"))
    }
}

fn tell(run: &Run, global: &Global) -> Result<ExitStatus, CommandError> {
    if global.json {
        report::json(
            &json!({ "run": run.id.to_string(), "stack": run.stack.to_string(), "state": run.state }),
        )?;
        return Ok(ExitStatus::Done);
    }
    say_over(run, ", it ended first")?;
    if let Some(found) = super::imports::unrecorded_of(&run.state) {
        for line in unrecorded::lines(found, &run.id.to_string(), run.stack.as_str()) {
            report::say(&format!("  {line}\n"))?;
        }
    }
    Ok(ExitStatus::Done)
}

/// Prints how a run ended, in one line; `well` follows the word for a successful one.
pub(super) fn say_over(run: &Run, well: &str) -> Result<(), CommandError> {
    let RunState::Finished { outcome, .. } = &run.state else {
        return Ok(());
    };
    let how = match outcome {
        Outcome::Failed { problem } => match problem.serial {
            Some(serial) => format!("{}; state kept: serial {serial}", problem.message),
            None => problem.message.clone(),
        },
        Outcome::NotDone { problem, .. } => {
            format!("applied, {}: {}", outcome.word(), problem.message)
        }
        Outcome::Skipped { because } => format!("skipped, {}", because.words()),
        Outcome::Unknown { .. } => "unknown: its runner was lost".to_owned(),
        Outcome::Planned { .. }
        | Outcome::Deferred { .. }
        | Outcome::Unchanged
        | Outcome::Untouched
        | Outcome::Applied { .. } => format!("{}{well}", outcome.word()),
    };
    report::say(&format!(
        "Run {} of `{}` is over: {}.\n",
        run.id,
        run.stack,
        text::clean(&how)
    ))
}

fn refused(err: &CancelError) -> CommandError {
    CommandError::from_error(err)
}
