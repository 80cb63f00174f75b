//! `terrane run imports`, and the reminder of it.

use std::collections::BTreeSet;

use control::Control;
use model::base::ids::StackName;
use model::run::import_proposal::UnrecordedResources;
use model::run::{Outcome, Run, RunEvent, RunState};
use serde_json::json;

use super::read_run;
use crate::commands::home_args::HomeHandle;
use crate::global::Global;
use crate::view::{ViewOptions, errors, text};
use crate::{CommandError, ExitStatus, Process, report};

/// How many resources a reminder names.
const NAMED: usize = 3;

/// Print `import` blocks for resources that an engine created before it died
///
/// Engines save their state every 20 seconds at most, but report each resource when it is finished. The ids
/// come from these reports: check them against the provider's import format.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane run imports r7\n  terrane run imports r7 > network/imports.tf"
)]
pub(crate) struct ImportsArgs {
    /// The run, such as `r7`
    run: String,
}

pub(crate) async fn imports(
    args: &ImportsArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let id = read_run(&args.run)?;
    let place = HomeHandle::open(global, process).await?;
    let run = place.control.run(id).await;
    let run = run.map_err(|err| CommandError::from_error(&err))?;
    let run = run.ok_or_else(|| CommandError::new(format!("there is no run {id}")))?;
    let left = left_by(&place.control, &run).await?;
    let left = left.as_ref();
    if global.json {
        report::json(&json!({
            "run": id.to_string(),
            "stack": run.stack.to_string(),
            "left": left,
            "blocks": left.map(UnrecordedResources::blocks),
        }))?;
        return Ok(ExitStatus::Done);
    }
    match left {
        Some(left) if !left.made.is_empty() => report::data(&left.blocks())?,
        _ => report::say(&format!(
            "Run {id} of stack `{}` left nothing to import.\n",
            run.stack
        ))?,
    }
    Ok(ExitStatus::Done)
}

/// Warns about resources of these stacks that no state records: an apply would create them again.
pub(crate) async fn warn_unrecorded(
    control: &Control,
    stacks: &BTreeSet<StackName>,
    look: ViewOptions,
) -> Result<(), CommandError> {
    let runs = control.runs_with_unrecorded().await;
    let runs = runs.map_err(|err| CommandError::from_error(&err))?;
    for run in runs.iter().filter(|run| stacks.contains(&run.stack)) {
        let left = left_by(control, run).await?;
        let importable = left
            .as_ref()
            .map(UnrecordedResources::importable)
            .unwrap_or_default();
        if importable.is_empty() {
            continue;
        }
        let made = text::count(importable.len(), "resource");
        let said = format!(
            "the engine of run {} created {made} of stack `{}` that no state contains ({}): an apply creates them again",
            run.id,
            run.stack,
            brief(&importable)
        );
        let hint = format!("`terrane run imports {}` prints `import` blocks", run.id);
        report::say(&errors::render_warning(&said, &[hint], look))?;
    }
    Ok(())
}

/// The first few addresses, and the number of the rest.
fn brief(addresses: &[&str]) -> String {
    let shown = addresses.iter().take(NAMED);
    let shown: Vec<String> = shown.map(|address| format!("`{address}`")).collect();
    match addresses.len().saturating_sub(NAMED) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// What a run's engine left unrecorded. It is still there if the run was reopened since.
async fn left_by(
    control: &Control,
    run: &Run,
) -> Result<Option<UnrecordedResources>, CommandError> {
    if let Some(left) = unrecorded_of(&run.state) {
        return Ok(Some(left.clone()));
    }
    let events = control.run_events(run.id).await;
    let events = events.map_err(|err| CommandError::from_error(&err))?;
    let mut left = None;
    for (_, event) in events {
        match event {
            RunEvent::RunnerLost { left: it, .. } => left = it.or(left),
            RunEvent::Failed { problem } => left = problem.left.or(left),
            RunEvent::ApplyFinished { .. } => left = None,
            _ => {}
        }
    }
    Ok(left.map(|left| *left))
}

/// The unrecorded resources in the outcome of a run.
pub(crate) fn unrecorded_of(state: &RunState) -> Option<&UnrecordedResources> {
    let RunState::Finished { outcome, .. } = state else {
        return None;
    };
    match outcome {
        Outcome::Unknown { left, .. } => left.as_deref(),
        Outcome::Failed { problem } => problem.left.as_deref(),
        Outcome::Planned { .. }
        | Outcome::Deferred { .. }
        | Outcome::Unchanged
        | Outcome::Untouched
        | Outcome::Applied { .. }
        | Outcome::NotDone { .. }
        | Outcome::Skipped { .. } => None,
    }
}
