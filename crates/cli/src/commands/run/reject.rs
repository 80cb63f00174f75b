//! `terrane run reject`

use control::decision::stop;
use serde_json::json;

use super::RunOrChangeSet;
use crate::commands::home_args::HomeHandle;
use crate::commands::manual::ReasonArg;
use crate::global::Global;
use crate::watch::decision_error;
use crate::{CommandError, ExitStatus, Process, report};

/// Reject a change set, so that it is not applied
///
/// It stops, with the reason. What it applied already stays.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  terrane run reject c42 --reason \"replaces the database\"")]
pub(super) struct RejectArgs {
    /// The change set, such as `c42`, or one of its runs
    what: String,
    #[command(flatten)]
    reason: ReasonArg,
}

pub(super) async fn reject(
    args: &RejectArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let reason = args.reason.read(global, process)?;
    // Must work while the project is being edited: needs no valid project.
    let here = HomeHandle::open(global, process).await?;
    let (set, _) = RunOrChangeSet::read(&args.what)?.set(&here.control).await?;
    let text = stop::reject(&here.control, set, reason).await;
    let text = text.map_err(|err| decision_error(&err))?;
    if global.json {
        report::json(&json!({ "change_set": set.to_string(), "reason": text }))?;
    } else {
        report::say(&format!("Rejected change set {set}.\n"))?;
    }
    Ok(ExitStatus::Done)
}
