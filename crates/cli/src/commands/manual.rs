//! Shared code of the break-glass commands: actor, reason, and the prompt before the action.

use std::io::{self, BufRead as _};
use std::path::Path;

use control::Control;
use control::changeset::restrictions::Restrictions;
use control::stage::facts;
use control::state::redact_reason::BreakGlassReason;
use control::state::redact_reason::without_secrets_here;
use model::project::Project;
use model::state::StateName;

use super::change::forget_input;
use super::home_args::HomeHandle;
use super::read_project;
use crate::global::Global;
use crate::view;
use crate::watch;
use crate::{CommandError, ExitStatus, Process, report};

/// Why something is done by hand; it is kept in the record.
#[derive(Debug, clap::Args)]
pub(crate) struct ReasonArg {
    /// Why, in a sentence; it is recorded
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

impl From<String> for ReasonArg {
    fn from(reason: String) -> Self {
        Self { reason }
    }
}

impl ReasonArg {
    pub(crate) fn read(
        &self,
        global: &Global,
        process: &Process,
    ) -> Result<BreakGlassReason, CommandError> {
        Ok(BreakGlassReason {
            actor: process.actor(),
            text: reason_text(&self.reason, global, process)?,
        })
    }
}

/// Removes the project's secrets from a reason, so that it can be stored and committed.
pub(crate) fn reason_text(
    said: &str,
    global: &Global,
    process: &Process,
) -> Result<String, CommandError> {
    let said = said.trim();
    if said.is_empty() {
        return Err(CommandError::new("the reason is empty")
            .hint("give a reason for later readers of the record: `--reason \"…\"`")
            .status(ExitStatus::Usage));
    }
    // An emergency action needs no valid project, and no project at all.
    let open = read_project(global, process).ok();
    Ok(without_secrets_here(open.as_ref(), &process.env, said))
}

/// Publishes break-glass records to the facts branches. A branch that cannot be updated now gets them with
/// the next publication.
pub(crate) async fn tell_git(
    control: &Control,
    root: &Path,
    project: Option<&Project>,
    global: &Global,
    process: &Process,
) -> Result<(), CommandError> {
    let Some(project) = project.filter(|project| !project.facts.is_empty()) else {
        return Ok(());
    };
    let missed = facts::publish_records(control, root, &process.env, &project.facts).await;
    let missed = missed.map_err(|err| CommandError::from_error(&err))?;
    watch::say_missed_records(&missed, process.look(global))
}

/// Prints holds, open break-glass records and quarantined states as notes, next to a listing that they
/// affect.
pub(crate) async fn print_restrictions(control: &Control) -> Result<(), CommandError> {
    let in_force = Restrictions::read(control).await;
    let in_force = in_force.map_err(|err| CommandError::from_error(&err))?;
    for line in view::restrictions::lines(&in_force) {
        report::say(&format!("note: {line}\n"))?;
    }
    Ok(())
}

/// A state as the user types it: the stack's name, else `PROJECT/NAME`.
pub(crate) fn word(place: &HomeHandle, state: &StateName) -> String {
    let stack = place.project.as_ref().and_then(|project| {
        let mut stacks = project.stacks.iter();
        stacks.find(|(_, stack)| place.control.state_name(&stack.state) == *state)
    });
    stack.map_or_else(|| state.to_string(), |(name, _)| name.to_string())
}

/// Continues only if the user types `yes` or `approved` is set.
pub(crate) fn ask(question: &str, approved: bool, process: &Process) -> Result<(), CommandError> {
    if approved {
        return Ok(());
    }
    let unchanged = |why: &str| CommandError::new(format!("nothing was changed: {why}"));
    if !process.stdin_is_terminal {
        return Err(unchanged("no terminal to confirm it")
            .hint("add `--auto-approve` to skip the confirmation")
            .status(ExitStatus::Waits));
    }
    forget_input();
    report::say(&format!("\n{question} Type `yes` to continue: "))?;
    let mut line = String::new();
    io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|err| CommandError::because("could not read the answer", &err))?;
    if line.trim() == "yes" {
        Ok(())
    } else {
        Err(unchanged("the answer was not `yes`").status(ExitStatus::Waits))
    }
}
