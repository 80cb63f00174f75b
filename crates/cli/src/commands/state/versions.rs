//! `terrane state versions`

use control::state::queries::{deleted, versions};

use super::query_args::shown;
use crate::commands::home_args::HomeHandle;
use crate::global::Global;
use crate::view::state as view;
use crate::{CommandError, ExitStatus, Process, report};

/// List the versions of a state: when, by whom, and what each did
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane state versions network\n  terrane state versions network --all\n  terrane state versions network --json"
)]
pub(crate) struct VersionsArgs {
    /// A stack of the project here, or `PROJECT/NAME`
    state: String,
    /// All that are kept, not only the newest 30
    #[arg(long)]
    all: bool,
}

/// How many versions are listed without `--all`.
const MOST: usize = 30;

pub(crate) async fn versions(
    args: &VersionsArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let (place, state) = HomeHandle::open_state(global, process, &args.state).await?;
    let mut lines = versions::versions(&place.control, &state)
        .await
        .map_err(|err| shown(&err))?;
    lines.reverse();
    let deleted = deleted::deleted(&place.control, &state).await;
    let deleted = deleted.map_err(|err| CommandError::because("could not read the state", &err))?;
    if global.json {
        report::json(&view::json::versions(&lines, deleted.as_ref()))?;
        return Ok(ExitStatus::Done);
    }
    let older = lines.len().saturating_sub(MOST);
    if !args.all {
        lines.truncate(MOST);
    }
    let look = process.data_look(global);
    report::data(&view::versions::text(&lines, jiff::Timestamp::now(), look))?;
    if let Some(deleted) = deleted {
        let newest = lines.first().map_or(1, |line| line.version.version);
        let said = view::versions::deleted(&deleted, &args.state, newest, jiff::Timestamp::now());
        report::say(&said)?;
    }
    if older > 0 && !args.all {
        report::say(&format!(
            "{older} older ones are kept: `--all` shows them\n"
        ))?;
    }
    Ok(ExitStatus::Done)
}
