//! `terrane state push`

use std::fs;
use std::io::{self, Read as _};

use control::state::surgery;

use super::surgery::{SurgeryArgs, carry_out, refused};
use crate::commands::home_args::{HomeHandle, require_durable_home};
use crate::commands::run::read_run;
use crate::global::Global;
use crate::{CommandError, ExitStatus, Process};

/// Make a file the newest version of a state
///
/// Its lineage must match the state's and its serial must be higher, unless forced. The push also settles
/// quarantined states that runs left.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane state push network errored.tfstate --reason \"the runner lost its disk\"\n  \
                  terrane state push network --kept r7 --reason \"it has what r7 made\"\n  \
                  terrane state push shop/network --kept 12 --reason \"it was right, and the lock was not\"\n  \
                  terrane state push shop/network - --force --reason \"restored from the backup\" < network.tfstate"
)]
pub(crate) struct PushArgs {
    /// A stack of the project here, or `PROJECT/NAME`
    state: String,
    /// A state file; `-` is standard input
    #[arg(required_unless_present = "kept")]
    file: Option<String>,
    /// Instead of a file: the quarantined state of this run, or the refused write with this number in `terrane state verify`
    #[arg(long, value_name = "RUN|NUMBER", conflicts_with = "file")]
    kept: Option<String>,
    /// Ignore the serial and lineage checks
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    consent: SurgeryArgs,
}

pub(crate) async fn push(
    args: &PushArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    require_durable_home(global, process)?;
    let (place, state) = HomeHandle::open_state(global, process, &args.state).await?;
    let proposal = match (&args.kept, &args.file) {
        (Some(kept), _) => {
            if let Ok(number) = kept.parse() {
                surgery::push_refused(&place.control, &state, number, args.force).await
            } else {
                let run = read_run(kept)?;
                surgery::push_kept(&place.control, &state, run, args.force).await
            }
        }
        (None, file) => {
            let body = read(file.as_deref().unwrap_or("-"), process)?;
            surgery::push(&place.control, &state, body, args.force).await
        }
    };
    let proposal = proposal.map_err(|err| refused(&err))?;
    carry_out(&place, proposal, &args.consent, global, process).await
}

fn read(file: &str, process: &Process) -> Result<Vec<u8>, CommandError> {
    let read = if file == "-" {
        let mut body = Vec::new();
        io::stdin().lock().read_to_end(&mut body).map(|_| body)
    } else {
        fs::read(process.cwd.join(file))
    };
    read.map_err(|err| CommandError::because(format!("could not read `{file}`"), &err))
}
