//! `terrane state blame`

use control::state::queries::blame;

use super::query_args::{RevealArgs, VersionRefArgs, say_if_copy, shown};
use crate::commands::home_args::HomeHandle;
use crate::global::Global;
use crate::view::state as view;
use crate::{CommandError, ExitStatus, Process, report};

/// Show who last changed each attribute of a resource: version, run, commit, person
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane state blame network azurerm_subnet.nodes\n  terrane state blame network azurerm_subnet.nodes address_prefixes\n  terrane state blame network output.subnet_id\n  terrane state blame network azurerm_subnet.nodes --at 2d   # its last change at that time"
)]
pub(crate) struct BlameArgs {
    /// A stack of the project here, or `PROJECT/NAME`
    state: String,
    /// A resource, one instance of it, or `output.NAME`
    address: String,
    /// One attribute with all below it: `tags`, `rules[0].port`
    attribute: Option<String>,
    #[command(flatten)]
    pick: VersionRefArgs,
    #[command(flatten)]
    reveal: RevealArgs,
}

pub(crate) async fn blame(
    args: &BlameArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let pick = args.pick.pick()?;
    let (place, state) = HomeHandle::open_state(global, process, &args.state).await?;
    let detail = format!("blame of {}", args.address);
    let reveal = args
        .reveal
        .reveal(&place.control, &state, global, process, detail);
    let revealed = reveal.await?;
    let attribute = args.attribute.as_deref();
    let answer = blame::blame(
        &place.control,
        &state,
        pick,
        &args.address,
        attribute,
        revealed,
    )
    .await
    .map_err(|err| shown(&err))?;
    if global.json {
        report::json(&view::blame::json(&answer))?;
    } else {
        let look = process.data_look(global);
        let now = jiff::Timestamp::now();
        report::data(&view::blame::text(&answer, now, args.reveal.full, look))?;
        say_if_copy(&answer.asked.version)?;
    }
    if revealed {
        place.tell_git(global, process).await?;
    }
    Ok(ExitStatus::Done)
}
