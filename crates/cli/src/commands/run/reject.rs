//! `terrane run reject`

use control::run::cleanup;
use control::schedule::scheduler::{self, UserCommand};
use control::secrets::caller_env::CallerEnv;
use control::state::redact_reason::without_secrets_of_set;
use serde_json::json;

use super::RunOrChangeSet;
use crate::commands::home_args::HomeHandle;
use crate::commands::manual::ReasonArg;
use crate::global::Global;
use crate::watch::advance_error;
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
    let text = without_secrets_of_set(&here.control, set, &reason.text).await;
    let say = UserCommand::Reject {
        by: reason.actor,
        reason: text.clone(),
    };
    let standing = scheduler::advance(&here.control, set, Some(say), &CallerEnv::default(), None)
        .await
        .map_err(|err| advance_error(&err))?;
    cleanup::remove_leftovers(&here.control, &standing.set, &standing.runs).await;
    if global.json {
        report::json(&json!({ "change_set": set.to_string(), "reason": text }))?;
    } else {
        report::say(&format!("Rejected change set {set}.\n"))?;
    }
    Ok(ExitStatus::Done)
}
