//! `terrane run discard`

use control::decision::stop;
use control::state::quarantine;
use model::base::ids::{ChangeSetId, RunId};
use serde_json::json;

use super::RunOrChangeSet;
use crate::commands::home_args::HomeHandle;
use crate::commands::manual::ReasonArg;
use crate::global::Global;
use crate::watch::decision_error;
use crate::{CommandError, ExitStatus, Process, report};

/// Drop a waiting change set, or the quarantined state of a run
///
/// A dropped change set applies nothing more; it can be resumed. After a run's state is discarded, its
/// stack may be applied again; the bytes stay in the home, encrypted.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane run discard c42 --reason \"not this week\"\n  \
                  terrane run discard r7 --reason \"its resources were imported again\""
)]
pub(super) struct DiscardArgs {
    /// The change set, such as `c42`, or the run, such as `r7`
    what: String,
    #[command(flatten)]
    reason: ReasonArg,
}

pub(super) async fn discard(
    args: &DiscardArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    match RunOrChangeSet::read(&args.what)? {
        RunOrChangeSet::Set(set) => drop_set(set, args, global, process).await,
        RunOrChangeSet::Run(run) => drop_kept(run, args, global, process).await,
    }
}

async fn drop_set(
    set: ChangeSetId,
    args: &DiscardArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let reason = args.reason.read(global, process)?;
    // Must work while the project is being edited: needs no valid project.
    let here = HomeHandle::open(global, process).await?;
    let text = stop::discard(&here.control, set, reason).await;
    let text = text.map_err(|err| decision_error(&err))?;
    if global.json {
        report::json(&json!({ "change_set": set.to_string(), "reason": text }))?;
    } else {
        report::say(&format!("Discarded change set {set}.\n"))?;
    }
    Ok(ExitStatus::Done)
}

async fn drop_kept(
    run: RunId,
    args: &DiscardArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let reason = args.reason.read(global, process)?;
    let place = HomeHandle::open(global, process).await?;
    RunOrChangeSet::Run(run).set(&place.control).await?;
    let left = quarantine::discard(&place.control, run, &reason).await;
    let left = left.map_err(|err| CommandError::from_error(&err))?;
    if global.json {
        let kept: Vec<_> = left.iter().map(|one| &one.kept).collect();
        report::json(&json!({ "run": run.to_string(), "discarded": kept, "reason": reason.text }))?;
    } else {
        report::say(&format!(
            "Discarded the quarantined state of run {run}; its stack may be applied again.\n"
        ))?;
    }
    Ok(ExitStatus::Done)
}
