//! `terrane state rm`

use control::state::surgery;

use super::surgery::{SurgeryArgs, carry_out, refused};
use crate::commands::home_args::HomeHandle;
use crate::global::Global;
use crate::{CommandError, ExitStatus, Process};

/// Take resources out of a state, without destroying them
///
/// The next plan creates them again, unless the configuration no longer has them.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane state rm network 'aws_subnet.nodes[0]' --reason 'moved to edge'\n  \
                  terrane state rm network module.vpn aws_eip.old --reason \"kept by hand from now on\""
)]
pub(crate) struct RmArgs {
    /// A stack of the project here, or `PROJECT/NAME`
    state: String,
    /// An instance, a resource with all its instances, or a module with all it holds
    #[arg(required = true, value_name = "ADDRESS")]
    addresses: Vec<String>,
    #[command(flatten)]
    consent: SurgeryArgs,
}

pub(crate) async fn rm(
    args: &RmArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let (place, state) = HomeHandle::open_state(global, process, &args.state).await?;
    let proposal = surgery::take_out(&place.control, &state, &args.addresses).await;
    let proposal = proposal.map_err(|err| refused(&err))?;
    carry_out(&place, proposal, &args.consent, global, process).await
}
