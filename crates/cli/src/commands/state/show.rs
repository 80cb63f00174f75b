//! `terrane state show`

use control::state::queries::version::{self, ValueDigests};
use model::state::diff::SensitiveDisplay;

use super::query_args::{RevealArgs, VersionRefArgs, shown};
use crate::commands::home_args::HomeHandle;
use crate::global::Global;
use crate::view::state as view;
use crate::{CommandError, ExitStatus, Process, report};

/// Show what a state holds: all resources and outputs, or one
///
/// Sensitive values are shown by a digest: two with the same one are equal.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane state show network\n  terrane state show network azurerm_subnet.nodes\n  terrane state show network --at 2h --json\n  terrane state show database random_password.admin --reveal --reason \"restore of the backup\""
)]
pub(crate) struct ShowArgs {
    /// A stack of the project here, or `PROJECT/NAME`
    state: String,
    /// One resource, or one instance of it: `aws_instance.web[0]`; or an output: `output.url`
    address: Option<String>,
    #[command(flatten)]
    pick: VersionRefArgs,
    #[command(flatten)]
    reveal: RevealArgs,
}

pub(crate) async fn show(
    args: &ShowArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let (place, state) = HomeHandle::open_state(global, process, &args.state).await?;
    let mut asked = version::document(&place.control, &state, args.pick.pick()?)
        .await
        .map_err(|err| shown(&err))?;
    let mask = asked.document.mask();
    if let Some(address) = &args.address {
        asked = asked.only(address).map_err(|err| shown(&err))?;
    }
    let what = args.address.as_deref().unwrap_or("everything");
    let detail = format!("{what} of version {}", asked.version.version);
    let revealed = args
        .reveal
        .reveal(&place.control, &state, global, process, detail)
        .await?;
    let digests = ValueDigests::of(&place.control)
        .await
        .map_err(|err| shown(&err))?;
    let short = |value: &serde_json::Value| digests.short(value);
    let showing = if revealed {
        SensitiveDisplay::Revealed
    } else {
        SensitiveDisplay::Masked(&short)
    };
    if !revealed {
        asked = asked.with_masked_names(&mask);
    }
    let sheet = view::show::StateView {
        asked: &asked,
        is_whole: args.address.is_none(),
        mask,
        full: args.reveal.full || args.address.is_some(),
        showing,
    };
    if global.json {
        report::json(&view::show::json(&sheet))?;
    } else {
        let look = process.data_look(global);
        report::data(&view::show::text(&sheet, jiff::Timestamp::now(), look))?;
    }
    if revealed {
        place.tell_git(global, process).await?;
    }
    Ok(ExitStatus::Done)
}
