//! `terrane state list`

use control::state::queries::listing;
use control::state::queries::version::{self, AskStateError, VersionDocument};
use model::state::glob::Glob;
use model::state::version_ref::VersionRef;

use super::query_args::{VersionRefArgs, say_if_copy, shown};
use crate::commands::home_args::HomeHandle;
use crate::commands::manual::print_restrictions;
use crate::global::Global;
use crate::view::state as view;
use crate::{CommandError, ExitStatus, Process, report};

/// List all states, or the resources of one
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane state list\n  terrane state list network\n  terrane state list network 'module.*' --type 'azurerm_*'\n  terrane state list network --at 2d"
)]
pub(crate) struct ListArgs {
    /// A stack of the project here, or `PROJECT/NAME`; none: all states
    state: Option<String>,
    /// Addresses, with `*` for anything
    #[arg(value_name = "GLOB", requires = "state")]
    addresses: Vec<String>,
    /// Only resources of this type, with `*` for anything
    #[arg(long = "type", value_name = "TYPE", requires = "state")]
    resource_type: Option<String>,
    #[command(flatten)]
    pick: VersionRefArgs,
}

pub(crate) async fn list(
    args: &ListArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let place = HomeHandle::open(global, process).await?;
    let Some(word) = &args.state else {
        let pick = args.pick.pick()?;
        if let VersionRef::Version(_) = pick {
            return Err(CommandError::new("`--version` needs a state")
                .hint("`--at TIME` works for all of them")
                .status(ExitStatus::Usage));
        }
        let listing = listing::list(&place.control, pick).await;
        let listing = listing.map_err(|err| shown(&err))?;
        let lines = &listing.lines;
        if global.json {
            report::json(&view::json::states(lines))?;
        } else if lines.is_empty() && listing.unread.is_empty() {
            report::say(match pick {
                VersionRef::At(_) => "There was no state at that time.\n",
                VersionRef::Head | VersionRef::Version(_) | VersionRef::Serial(_) => {
                    "There is no state yet: `terrane apply` makes one.\n"
                }
            })?;
        } else {
            let names =
                view::StateLabels::new(place.project.as_ref(), place.control.home.project());
            let look = process.data_look(global);
            let now = jiff::Timestamp::now();
            report::data(&view::list::states(lines, &names, now, look))?;
            print_restrictions(&place.control).await?;
        }
        return not_all(&listing.unread);
    };
    let state = place.state(word).await?;
    let asked = version::document(&place.control, &state, args.pick.pick()?)
        .await
        .map_err(|err| shown(&err))?;
    let mask = asked.document.mask();
    let asked = filtered(asked.with_masked_names(&mask), args)?;
    if global.json {
        report::json(&view::json::resources(&asked))?;
        return Ok(ExitStatus::Done);
    }
    report::data(&view::list::resources(&asked))?;
    report::say(&view::list::closing(&asked))?;
    say_if_copy(&asked.version)?;
    Ok(ExitStatus::Done)
}

/// Reports the states that could not be read, after the others are listed.
fn not_all(unread: &[AskStateError]) -> Result<ExitStatus, CommandError> {
    let [first, more @ ..] = unread else {
        return Ok(ExitStatus::Done);
    };
    if more.is_empty() {
        return Err(shown(first).hint("`terrane state verify` shows what is wrong with it"));
    }
    let message = format!("cannot read {} states", unread.len());
    let whole = unread
        .iter()
        .fold(CommandError::new(message), |whole, one| {
            let one = CommandError::from_error(one);
            let words = std::iter::once(one.message).chain(one.causes);
            whole.cause(words.collect::<Vec<_>>().join(": "))
        });
    Err(whole.hint("`terrane state verify` shows what is wrong with them"))
}

/// Keeps only the requested resources.
fn filtered(mut asked: VersionDocument, args: &ListArgs) -> Result<VersionDocument, CommandError> {
    let glob = |word: &String| Glob::parse(word).map_err(|err| CommandError::from_error(&err));
    let addresses = args.addresses.iter().map(glob);
    let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
    let types = args.resource_type.as_ref().map(glob).transpose()?;
    asked.document.instances.retain(|instance| {
        let is_named = addresses.iter().any(|glob| glob.fits(&instance.address));
        let is_of_type = |glob: &Glob| glob.fits(&instance.resource_type);
        (addresses.is_empty() || is_named) && types.as_ref().is_none_or(is_of_type)
    });
    Ok(asked)
}
