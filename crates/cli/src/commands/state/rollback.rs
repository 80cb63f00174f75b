//! `terrane state rollback`

use control::state::surgery::{self, RollbackTarget, SurgeryProposal};
use model::run::changeset::Action;

use super::surgery::{SurgeryArgs, carry_out, refused};
use crate::commands::change::{self, ChangeOptions};
use crate::commands::home_args::HomeHandle;
use crate::commands::manual::word;
use crate::global::Global;
use crate::{CommandError, ExitStatus, Process};

/// Make an older version the newest again
///
/// Its content comes back under the next serial. Nothing real is touched: the next plan shows what differs.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane state rollback network --to 12 --reason \"13 lost the subnets\"\n  \
                  terrane state rollback network --to serial:40 --reason \"as before the migration\"\n  \
                  terrane state rollback network --to 2026-11-16T02:00:00Z --reason \"as it was at two\"\n  \
                  terrane state rollback network --to 12 --plan --reason \"what would it mean?\""
)]
pub(crate) struct RollbackArgs {
    /// A stack of the project here, or `PROJECT/NAME`
    state: String,
    /// A version, `serial:N`, or when it was the newest: `2026-11-01T10:00` (UTC), or how long ago: `2h`
    #[arg(long, value_name = "WHICH")]
    to: String,
    /// First show what the configuration would then change
    #[arg(long)]
    plan: bool,
    #[command(flatten)]
    consent: SurgeryArgs,
}

pub(crate) async fn rollback(
    args: &RollbackArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let target = RollbackTarget::parse(&args.to, jiff::Timestamp::now())
        .map_err(|err| CommandError::from_error(&err))?;
    let (place, state) = HomeHandle::open_state(global, process, &args.state).await?;
    let proposal = surgery::rollback(&place.control, &state, target).await;
    let proposal = proposal.map_err(|err| refused(&err))?;
    if args.plan {
        let planned = plan(&place, &proposal, global, process).await?;
        if planned != ExitStatus::Done {
            return Ok(planned);
        }
    }
    carry_out(&place, proposal, &args.consent, global, process).await
}

/// Plans from the old version: what an apply would change after the rollback.
async fn plan(
    place: &HomeHandle,
    proposal: &SurgeryProposal,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let stack = word(place, &proposal.state);
    let stacks = place.project.as_ref().map(|project| &project.stacks);
    if !stacks.is_some_and(|stacks| stacks.keys().any(|name| name.as_str() == stack)) {
        return Err(CommandError::new(format!(
            "no stack of the project here has the state `{stack}`, so nothing can be planned"
        ))
        .hint("leave `--plan` out, or go to its project")
        .status(ExitStatus::Usage));
    }
    let change = ChangeOptions {
        selectors: vec![stack],
        pinned: proposal.older,
        ..ChangeOptions::of(Action::Plan)
    };
    Box::pin(change::carry_out(change, global, process)).await
}
