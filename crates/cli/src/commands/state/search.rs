//! `terrane state search`

use control::state::queries::search::{self, SearchQuery};
use model::state::glob::Glob;

use super::query_args::{moment, shown};
use crate::commands::home_args::HomeHandle;
use crate::global::Global;
use crate::view::state as view;
use crate::{CommandError, ExitStatus, Process, report};

/// Find a text in all states: in addresses, types and values
///
/// Upper and lower case are the same. A sensitive value is found only by its whole text.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane state search 10.0.0.\n  terrane state search web --type 'aws_*'\n  terrane state search 203.0.113.7 --at 2026-11-01T10:00\n  terrane state search old-name --all-versions"
)]
pub(crate) struct SearchArgs {
    /// What to look for; `''` with `--type` finds all of that type
    text: String,
    /// Only resources of this type, with `*` for anything; `output` for outputs
    #[arg(long = "type", value_name = "TYPE")]
    resource_type: Option<String>,
    /// In what was the newest at that time: `2026-11-01T10:00` (UTC), or how long ago: `2h`
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// In every version that is kept
    #[arg(long, conflicts_with = "at")]
    all_versions: bool,
}

pub(crate) async fn search(
    args: &SearchArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let place = HomeHandle::open(global, process).await?;
    let types = args.resource_type.as_deref().map(Glob::parse).transpose();
    let types = types.map_err(|err| CommandError::from_error(&err))?;
    let query = SearchQuery {
        text: args.text.clone(),
        types,
        at: args.at.as_deref().map(moment).transpose()?,
        all_versions: args.all_versions,
    };
    let found = search::search(&place.control, &query)
        .await
        .map_err(|err| shown(&err))?;
    if global.json {
        report::json(&view::search::json(&found))?;
        return Ok(ExitStatus::Done);
    }
    let names = view::StateLabels::new(place.project.as_ref(), place.control.home.project());
    let look = process.data_look(global);
    report::data(&view::search::text(&found, &names, look))?;
    report::say(&view::search::closing(&found, &names, process.look(global)))?;
    Ok(ExitStatus::Done)
}
