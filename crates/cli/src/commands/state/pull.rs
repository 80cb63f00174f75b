//! `terrane state pull`

use std::io::Write as _;

use control::states::{self, ReadStateError};

use crate::args::Global;
use crate::commands::place::Place;
use crate::{CommandError, ExitStatus, Process};

/// Print a state as it is stored, byte for byte
///
/// It holds every value in clear, sensitive ones too.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane state pull network > network.tfstate\n  terrane state pull network --version 3"
)]
pub(crate) struct PullArgs {
    /// A stack of the project here, or `PROJECT/NAME`
    state: String,
    /// An older version instead of the newest
    #[arg(long, value_name = "N")]
    version: Option<i64>,
}

pub(crate) async fn pull(
    args: &PullArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let (place, state) = Place::open_state(global, process, &args.state).await?;
    let (_, bytes) = states::read(&place.control, &state, args.version)
        .await
        .map_err(|err| {
            let shown = CommandError::from_error(&err);
            match err {
                ReadStateError::NoState { .. } => {
                    shown.hint("`terrane state list` shows all there are")
                }
                ReadStateError::NoVersion { .. } => shown.hint(format!(
                    "`terrane state versions {}` shows all there are",
                    args.state
                )),
                ReadStateError::Store { .. } => shown,
            }
        })?;
    let mut out = std::io::stdout().lock();
    out.write_all(&bytes)
        .and_then(|()| out.flush())
        .map_err(|err| CommandError::because("could not write", &err))?;
    Ok(ExitStatus::Done)
}
