//! `terrane run explain`

use control::changeset::restrictions::{self, ENDS_WELL};
use model::base::ids::BreakGlassId;
use serde_json::json;

use crate::commands::home_args::HomeHandle;
use crate::commands::manual::{ReasonArg, word};
use crate::global::Global;
use crate::view::{self, text::clean};
use crate::{CommandError, ExitStatus, Process, report};

/// Add the missing reason to the record of a break-glass action
///
/// Engines cannot send a reason with a `force-unlock`, a forced push or a delete over HTTP. Once it is given, the
/// record closes with the next successful apply or destroy of the stack. For a state without a stack, the reason
/// closes the record at once.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane run list --open\n  terrane run explain b7 --reason \"its job was killed\""
)]
pub(super) struct ExplainArgs {
    /// The record, such as `b7`; `terrane run list --open` shows them
    record: String,
    #[command(flatten)]
    reason: ReasonArg,
}

pub(super) async fn explain(
    args: &ExplainArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let id = read_record(&args.record)?;
    let reason = args.reason.read(global, process)?;
    // Must work while the project is being edited: needs no valid project.
    let place = HomeHandle::open(global, process).await?;
    let act = restrictions::explain(&place.control, place.project.as_ref(), id, &reason).await;
    let act = act.map_err(|err| CommandError::from_error(&err))?;
    if global.json {
        report::json(&json!({ "explained": view::restrictions::document(&act) }))?;
    } else {
        let (state, done) = (word(&place, &act.state), act.act.words());
        let said = if act.closed_at.is_some() {
            format!("Closed record {id}: {done}, `{state}`.")
        } else {
            format!("Record {id} ({done}, `{state}`) has its reason. It closes when {ENDS_WELL}.")
        };
        report::say(&format!("{}\n", clean(&said)))?;
    }
    place.tell_git(global, process).await?;
    Ok(ExitStatus::Done)
}

fn read_record(word: &str) -> Result<BreakGlassId, CommandError> {
    word.parse().map_err(|_| {
        CommandError::new(format!(
            "`{word}` is not the record of a break-glass action"
        ))
        .hint("records are called `b7`: `terrane run list --open` shows those that are open")
        .status(ExitStatus::Usage)
    })
}
