//! The prompt before an apply, its possible answers, and the message if no user can answer.

use std::io::{self, BufRead as _, Write as _};

use control::changeset::prepare::{self, ContinuableBy};
use model::run::changeset::{Action, ChangeSet, is_said};
use rustix::termios;

use super::outcome;
use crate::global::Global;
use crate::watch::Watcher;
use crate::{CommandError, ExitStatus, Process, report};

/// The answer to the prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PromptOutcome {
    Yes,
    /// Anything else, as typed.
    No(String),
    /// Ctrl-C at the prompt.
    Interrupted,
    /// There is no terminal to ask on.
    NoTerminal,
}

pub(super) async fn confirm(
    action: Action,
    set: &ChangeSet,
    process: &Process,
) -> Result<PromptOutcome, CommandError> {
    if !process.stdin_is_terminal {
        return Ok(PromptOutcome::NoTerminal);
    }
    let action = match action {
        Action::Destroy => "Destroy everything in",
        Action::Plan | Action::Apply | Action::Exec => "Apply",
    };
    forget_input();
    report::say(&format!(
        "\n{action} change set {}? Type `yes` to continue: ",
        set.id
    ))?;
    // A separate thread, so that a pending read does not keep the process from exiting.
    let (answer, heard) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || answer.send(read_line()));
    tokio::select! {
        line = heard => {
            let line = line.unwrap_or_else(|_| Ok(String::new()))?;
            Ok(if line == "yes" { PromptOutcome::Yes } else { PromptOutcome::No(line) })
        }
        _ = tokio::signal::ctrl_c() => Ok(PromptOutcome::Interrupted),
    }
}

impl PromptOutcome {
    /// The exit status. Without confirmation it is not `Done`, so that a script does not take the work for
    /// done.
    pub(super) fn status(&self) -> ExitStatus {
        match self {
            Self::Yes => ExitStatus::Done,
            Self::No(_) | Self::NoTerminal => ExitStatus::Waits,
            Self::Interrupted => ExitStatus::Interrupted,
        }
    }
}

/// Leaves the change set waiting and reports how to continue it. Also reports equal ones that earlier
/// commands left waiting.
pub(super) async fn no_terminal(
    watcher: &Watcher<'_>,
    goes_on: bool,
) -> Result<ExitStatus, CommandError> {
    let set = watcher.set();
    let id = set.id;
    let action = match set.request.action {
        Action::Destroy => "destroys",
        Action::Plan | Action::Apply | Action::Exec => "applies",
    };
    let said = CommandError::new(format!("change set {id} waits: no terminal to confirm it"))
        .hint(format!(
            "`terrane run confirm {id}` {action} it, `terrane run discard {id} --reason \"…\"` drops it"
        ));
    // `--auto-approve` does not cover new changes, and a resumed change set cannot be resumed again while it
    // waits.
    let said = if set.request.auto_approve || goes_on {
        said
    } else {
        said.hint(format!(
            "the same command with `--auto-approve` {action} without confirmation"
        ))
    };
    let others = prepare::find_alike(watcher.control(), set).await;
    let others = others.map_err(|err| CommandError::from_error(&err))?;
    let names: Vec<String> = others.iter().map(ToString::to_string).collect();
    let said = match names.as_slice() {
        [] => said,
        [one] => said.hint(format!(
            "change set {one} requests the same and waits, too; `terrane run discard {one} --reason \"…\"` drops it"
        )),
        many => said.hint(format!(
            "change sets {} request the same and wait, too; `terrane run discard` drops one",
            many.join(", ")
        )),
    };
    Err(said.status(ExitStatus::Waits))
}

/// Reports a hold or missing approvals, if the change set waits for them. Then there is no prompt.
pub(super) async fn waits_for_others(
    watcher: &Watcher<'_>,
    global: &Global,
) -> Result<Option<ExitStatus>, CommandError> {
    let id = watcher.set().id;
    let explained = control::changeset::explain::explain(watcher.control(), id).await;
    let explained = explained.map_err(|err| CommandError::from_error(&err))?;
    if let Some(hold) = explained.stage_hold().or_else(|| explained.plan_hold()) {
        if global.json {
            outcome::say_outcome(watcher, ExitStatus::Waits)?;
            return Ok(Some(ExitStatus::Waits));
        }
        let (on, words) = (&hold.on, hold.words());
        let said = format!("change set {id} waits: {} is {words}", on.words());
        let then = match hands(watcher).await? {
            ContinuableBy::Anyone => ", and it continues".to_owned(),
            ContinuableBy::Writers => format!(
                "; it continues if the user who releases it may apply it. Otherwise an allowed user runs `terrane run confirm {id}`"
            ),
            ContinuableBy::Asker => format!(
                "; it continues if the variables of the request are set there. Otherwise run `terrane run confirm {id}`"
            ),
        };
        let hint = format!("{}{then}", hold.release_step());
        return Err(CommandError::new(said).hint(hint).status(ExitStatus::Waits));
    }
    let missing = explained.missing_approvals();
    if missing.is_empty() {
        return Ok(None);
    }
    if global.json {
        outcome::say_outcome(watcher, ExitStatus::Waits)?;
        return Ok(Some(ExitStatus::Waits));
    }
    let mut said = format!("\nChange set {id} awaits approval:\n");
    for one in &missing {
        let (by, words, command) = (&one.by, one.words(), one.command(id));
        let line = format!("  {by}: {words}\n    `{command}`\n");
        said.push_str(&line);
    }
    let then = if is_said(watcher.set(), watcher.runs()) {
        match hands(watcher).await? {
            ContinuableBy::Anyone => {
                "It starts automatically after the last approval.\n".to_owned()
            }
            ContinuableBy::Writers => format!(
                "It starts after the last approval if that approver may apply it. Otherwise an allowed user runs \
                 `terrane run confirm {id}`.\n"
            ),
            ContinuableBy::Asker => format!(
                "Then run `terrane run confirm {id}` where the variables of the request are set.\n"
            ),
        }
    } else {
        format!("Then `terrane run confirm {id}` starts it.\n")
    };
    said.push_str(&then);
    report::say(&said)?;
    Ok(Some(ExitStatus::Waits))
}

async fn hands(watcher: &Watcher<'_>) -> Result<ContinuableBy, CommandError> {
    let hands = prepare::hands(watcher.control(), watcher.set().id).await;
    hands.map_err(|err| CommandError::from_error(&err))
}

pub(super) fn unconfirmed(answer: &PromptOutcome) -> Result<ExitStatus, CommandError> {
    match answer {
        PromptOutcome::Interrupted => report::say("\nNothing was applied.\n")?,
        PromptOutcome::No(typed) if matches!(typed.to_lowercase().as_str(), "y" | "yes") => {
            report::say(
                "Nothing was applied: type `yes` in full and in lower case to start it.\n",
            )?;
        }
        // After Ctrl-D the cursor is still on the line of the prompt.
        PromptOutcome::No(typed) if typed.is_empty() => report::say("\nNothing was applied.\n")?,
        PromptOutcome::Yes | PromptOutcome::No(_) | PromptOutcome::NoTerminal => {
            report::say("Nothing was applied.\n")?;
        }
    }
    Ok(answer.status())
}

/// Discards what was typed before a question: it was no answer to it.
pub(crate) fn forget_input() {
    // Input that is no terminal has no such queue, and is not asked.
    let _ = termios::tcflush(io::stdin(), termios::QueueSelector::IFlush);
}

pub(crate) fn read_line() -> Result<String, CommandError> {
    let mut line = String::new();
    io::stderr()
        .flush()
        .map_err(|err| CommandError::because("could not ask", &err))?;
    io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|err| CommandError::because("could not read the answer", &err))?;
    Ok(line.trim().to_owned())
}
