//! Shared code of push, rollback and rm: shows a proposal, asks, and carries it out.

use control::changeset::restrictions::Restrictions;
use control::state::surgery::{self, SurgeryError, SurgeryOutcome, SurgeryProposal};
use model::base::error::chain_texts;
use model::project::Stack;
use serde_json::{Value, json};

use crate::commands::home_args::HomeHandle;
use crate::commands::manual::{ReasonArg, ask, word};
use crate::global::Global;
use crate::view::text::clean;
use crate::view::{errors, surgery as view};
use crate::{CommandError, ExitStatus, Process, report};

/// What each of them needs to be told.
#[derive(Debug, clap::Args)]
pub(super) struct SurgeryArgs {
    #[command(flatten)]
    reason: ReasonArg,
    /// Do it without asking
    #[arg(long)]
    auto_approve: bool,
}

pub(super) async fn carry_out(
    place: &HomeHandle,
    proposal: SurgeryProposal,
    consent: &SurgeryArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let reason = consent.reason.read(global, process)?;
    let state = word(place, &proposal.state);
    let shown = document(&proposal);
    if !global.json {
        show(&proposal, &state, global, process)?;
    }
    say_holds(place, &proposal, global, process).await?;
    ask(
        &format!("Make this the newest version of `{state}`?"),
        consent.auto_approve,
        process,
    )?;
    let done = surgery::carry_out(&place.control, proposal, &reason).await;
    let done = done.map_err(|err| refused(&err))?;
    let (version, wrote) = match &done {
        SurgeryOutcome::Wrote(version) => (version, true),
        SurgeryOutcome::Same(version) => (version, false),
    };
    if global.json {
        report::json(&json!({
            "state": version.state,
            "wrote": wrote,
            "version": version.version,
            "serial": version.serial,
            "lineage": version.lineage,
            "mark": version.mark,
            "reason": reason.text,
            "changes": shown,
        }))?;
    } else if wrote {
        report::say(&format!(
            "\nDone: version {} of `{state}`, serial {}. Its record stays open: `terrane run list --open`.\n",
            version.version, version.serial
        ))?;
    } else {
        report::say(&format!(
            "\nNothing to do: version {} of `{state}` has the same content.\n",
            version.version
        ))?;
    }
    if wrote {
        place.tell_git(global, process).await?;
    }
    Ok(ExitStatus::Done)
}

/// Prints the holds on the state's stacks. A hold blocks runs but not break-glass changes; the user should
/// see it.
async fn say_holds(
    place: &HomeHandle,
    proposal: &SurgeryProposal,
    global: &Global,
    process: &Process,
) -> Result<(), CommandError> {
    let Some(project) = &place.project else {
        return Ok(());
    };
    let is_its = |stack: &&Stack| place.control.state_name(&stack.state) == proposal.state;
    let stacks = project.stacks.values().filter(is_its);
    let stacks = stacks.map(|stack| stack.name.clone()).collect();
    let in_force = Restrictions::read(&place.control).await;
    let in_force = in_force.map_err(|err| CommandError::from_error(&err))?;
    for hold in in_force.on(&place.control, project, &stacks).holds {
        let said = format!("{} is {}", hold.on.words(), hold.words());
        let look = process.look(global);
        report::say(&errors::render_warning(&said, &[], look))?;
    }
    Ok(())
}

pub(super) fn refused(err: &SurgeryError) -> CommandError {
    CommandError::from_error(err)
}

fn show(
    proposal: &SurgeryProposal,
    state: &str,
    global: &Global,
    process: &Process,
) -> Result<(), CommandError> {
    let look = process.look(global);
    let head = proposal.head.as_ref().map(|head| head.serial);
    report::say(&view::title(state, head, proposal.serial, look))?;
    if let Some((before, after)) = proposal.other_lineage() {
        let said = format!(
            "this is another state: lineage {} takes the place of {}",
            clean(&after),
            clean(&before)
        );
        report::say(&errors::render_warning(&said, &[], look))?;
    }
    if let Some(summary) = &proposal.summary {
        return report::say(&view::render(summary, look));
    }
    if let (Some(unread), Some(head)) = (&proposal.unread, &proposal.head) {
        let said = format!(
            "version {}, the newest, is damaged, so the changes cannot be shown: {}. It stays as it is, and this version follows it",
            head.version,
            chain_texts(unread).join(": ")
        );
        return report::say(&errors::render_warning(&said, &[], look));
    }
    let said = "the engine has encrypted this state: the changes cannot be shown, and its serial cannot be changed";
    report::say(&errors::render_warning(said, &[], look))
}

fn document(proposal: &SurgeryProposal) -> Value {
    match &proposal.summary {
        Some(summary) => json!(summary),
        None => Value::Null,
    }
}
