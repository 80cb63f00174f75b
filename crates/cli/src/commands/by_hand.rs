//! What the commands share that change something by hand: who does it and why, and the question before it.

use std::io::{self, BufRead as _};
use std::path::Path;

use control::Control;
use control::changeset::restrictions::InForce;
use control::stage::facts::{self, MissedRecord};
use control::state::reasons::Reason;
use control::state::reasons::without_secrets_here;
use model::project::Project;
use model::state::StateName;

use super::place::Place;
use super::read_project;
use crate::args::Global;
use crate::view::{self, errors};
use crate::{CommandError, ExitStatus, Process, report};

/// Why something is done by hand; it is kept in the record.
#[derive(Debug, clap::Args)]
pub(crate) struct ReasonArg {
    /// Why, in a sentence: it stays in the record
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

impl From<String> for ReasonArg {
    fn from(reason: String) -> Self {
        Self { reason }
    }
}

impl ReasonArg {
    pub(crate) fn read(&self, global: &Global, process: &Process) -> Result<Reason, CommandError> {
        Ok(Reason {
            actor: process.actor(),
            text: reason_text(&self.reason, global, process)?,
        })
    }
}

/// A reason as it may be kept, and committed for others to read: without the secrets that the project names.
pub(crate) fn reason_text(
    said: &str,
    global: &Global,
    process: &Process,
) -> Result<String, CommandError> {
    let said = said.trim();
    if said.is_empty() {
        return Err(CommandError::new("the reason is empty")
            .hint("say why, for who reads the record later: `--reason \"…\"`")
            .status(ExitStatus::Usage));
    }
    // An emergency needs no sound project, nor any.
    let open = read_project(global, process).ok();
    Ok(without_secrets_here(open.as_ref(), &process.env, said))
}

/// Tells the branches of facts what was done past the usual rules, so that whoever looks into Git next finds it. Those
/// that cannot be told now hear it with the next publication.
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
    for MissedRecord { place, why } in missed {
        let said = format!(
            "the record of break-glass acts is not on `{place}` yet; the next publication brings it there: {why}"
        );
        let said = view::text::clean(&said);
        report::say(&errors::render_warning(&said, &[], process.look(global)))?;
    }
    Ok(())
}

/// Holds, and what was done by hand, beside a listing that they bear on.
pub(crate) async fn say_in_force(control: &Control) -> Result<(), CommandError> {
    let in_force = InForce::read(control).await;
    let in_force = in_force.map_err(|err| CommandError::from_error(&err))?;
    for line in view::in_force::lines(&in_force) {
        report::say(&format!("note: {line}\n"))?;
    }
    Ok(())
}

/// A state as a person writes it here: the stack's name, else `PROJECT/NAME`.
pub(crate) fn word(place: &Place, state: &StateName) -> String {
    let stack = place.project.as_ref().and_then(|project| {
        let mut stacks = project.stacks.iter();
        stacks.find(|(_, stack)| place.control.state_name(&stack.state) == *state)
    });
    stack.map_or_else(|| state.to_string(), |(name, _)| name.to_string())
}

/// Goes on only after a typed `yes`. `approved` was said beforehand.
pub(crate) fn ask(question: &str, approved: bool, process: &Process) -> Result<(), CommandError> {
    if approved {
        return Ok(());
    }
    let unchanged = |why: &str| CommandError::new(format!("nothing was changed: {why}"));
    if !process.stdin_is_terminal {
        return Err(unchanged("nobody is here to say yes")
            .hint("`--auto-approve` goes on without asking")
            .status(ExitStatus::Waits));
    }
    report::say(&format!("\n{question} Only `yes` goes on: "))?;
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
