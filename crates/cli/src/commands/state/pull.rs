//! `terrane state pull`

use std::io::Write as _;

use control::state::queries::{self, version};
use model::state::version_ref::VersionRef;

use super::query_args::{VersionRefArgs, say_if_copy, shown};
use crate::commands::home_args::HomeHandle;
use crate::global::Global;
use crate::{CommandError, ExitStatus, Process};

/// Print a state as it is stored, byte for byte
///
/// It contains every value in clear, sensitive ones too, and nothing is recorded: it is meant for engines and backups.
/// For people there is `terrane state show`, which hides sensitive values.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane state pull network > network.tfstate\n  terrane state pull network --version 3\n  terrane state pull network --at 2h"
)]
pub(crate) struct PullArgs {
    /// A stack of the project here, or `PROJECT/NAME`
    state: String,
    #[command(flatten)]
    pick: VersionRefArgs,
}

pub(crate) async fn pull(
    args: &PullArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let (place, state) = HomeHandle::open_state(global, process, &args.state).await?;
    let version = match args.pick.pick()? {
        VersionRef::Head => None,
        VersionRef::Version(version) => Some(version),
        pick @ (VersionRef::Serial(_) | VersionRef::At(_)) => {
            let found = version::pick(&place.control, &state, pick).await;
            Some(found.map_err(|err| shown(&err))?.version)
        }
    };
    let (version, bytes) = queries::read(&place.control, &state, version)
        .await
        .map_err(|err| CommandError::from_error(&err))?;
    let mut out = std::io::stdout().lock();
    out.write_all(&bytes)
        .and_then(|()| out.flush())
        .map_err(|err| CommandError::because("could not write", &err))?;
    say_if_copy(&version)?;
    Ok(ExitStatus::Done)
}
