//! `terrane run discard`

use control::kept_aside;
use serde_json::json;

use super::read_run;
use crate::args::Global;
use crate::commands::by_hand::ReasonArg;
use crate::commands::place::Place;
use crate::{CommandError, ExitStatus, Process, report};

/// Go on without the state that a run could not deliver
///
/// Its stack may be applied again. The bytes stay in the home, sealed.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane run discard r7 --reason \"its resources were imported again\""
)]
pub(crate) struct DiscardArgs {
    /// The run, such as `r7`
    run: String,
    #[command(flatten)]
    reason: ReasonArg,
}

pub(crate) async fn discard(
    args: &DiscardArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let reason = args.reason.read(process)?;
    let run = read_run(&args.run)?;
    let place = Place::open(global, process).await?;
    let left = kept_aside::discard(&place.control, run, &reason).await;
    let left = left.map_err(|err| CommandError::from_error(&err))?;
    if global.json {
        let kept: Vec<_> = left.iter().map(|one| &one.kept).collect();
        report::json(&json!({ "run": run.to_string(), "discarded": kept, "reason": reason.text }))?;
    } else {
        report::say(&format!(
            "Discarded what run {run} left aside; its stack may be applied again.\n"
        ))?;
    }
    Ok(ExitStatus::Done)
}
