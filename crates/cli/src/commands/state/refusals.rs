//! `terrane state refusals`

use control::state::queries;
use jiff::Timestamp;
use model::state::RefusedRequest;
use serde_json::json;

use crate::commands::home_args::HomeHandle;
use crate::global::Global;
use crate::view::state::ago;
use crate::view::table::Table;
use crate::{CommandError, ExitStatus, Process, report};

/// List refused requests with the reason (engines only show a status code)
///
/// Locks, unlocks, writes and deletions that a server or a run's endpoint did not accept. The state in a refused write is
/// quarantined for a while: `terrane state verify` shows where.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane state refusals\n  terrane state refusals network --all\n  terrane state refusals --json"
)]
pub(crate) struct RefusalsArgs {
    /// A stack of the project here, or `PROJECT/NAME`; all states if none is named
    state: Option<String>,
    /// All that are known, not only the newest 30
    #[arg(long)]
    all: bool,
}

/// How many refusals are listed without `--all`.
const MOST: usize = 30;

pub(crate) async fn refusals(
    args: &RefusalsArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let place = HomeHandle::open(global, process).await?;
    let state = match &args.state {
        Some(word) => Some(place.state(word).await?),
        None => None,
    };
    let refused = queries::refusals(&place.control, state.as_ref()).await;
    let mut refused =
        refused.map_err(|err| CommandError::because("could not list the refusals", &err))?;
    refused.reverse();
    if global.json {
        let refused: Vec<_> = refused.iter().map(document).collect();
        report::json(&json!({ "refusals": refused }))?;
        return Ok(ExitStatus::Done);
    }
    if refused.is_empty() {
        report::say("Nothing was refused.\n")?;
        return Ok(ExitStatus::Done);
    }
    let older = refused.len().saturating_sub(MOST);
    if !args.all {
        refused.truncate(MOST);
    }
    let now = Timestamp::now();
    let mut table = Table::new(["NUMBER", "WHEN", "STATE", "ASKED", "WHY"]).right(0);
    for one in &refused {
        table.row([
            one.id.to_string(),
            ago(one.at, now),
            one.state.to_string(),
            one.method.clone(),
            told(one),
        ]);
    }
    report::data(&table.render(process.data_look(global)))?;
    if older > 0 && !args.all {
        report::say(&format!(
            "{older} older ones are known: `--all` shows them\n"
        ))?;
    }
    Ok(ExitStatus::Done)
}

fn told(refusal: &RefusedRequest) -> String {
    let gone = refusal.let_go.map(|_| " (its state is no longer kept)");
    format!("{}{}", refusal.reason, gone.unwrap_or_default())
}

fn document(refusal: &RefusedRequest) -> serde_json::Value {
    json!({
        "number": refusal.id,
        "state": refusal.state,
        "method": refusal.method,
        "reason": refusal.reason,
        "run": refusal.run.map(|run| run.to_string()),
        "lock": refusal.lock_id,
        "at": refusal.at,
        "kept": refusal.kept,
        "let_go": refusal.let_go,
    })
}
