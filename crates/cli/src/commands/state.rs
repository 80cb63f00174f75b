//! `terrane state`: what was kept, and what may be done with it. One file per command.

mod export;
mod import;
mod pull;

use crate::args::Global;
use crate::{CommandError, ExitStatus, Process};

/// Look at states, and change them by hand where that is needed
#[derive(Debug, clap::Args)]
pub(crate) struct StateArgs {
    #[command(subcommand)]
    command: StateCommand,
}

#[derive(Debug, clap::Subcommand)]
enum StateCommand {
    Export(export::ExportArgs),
    Import(import::ImportArgs),
    Pull(pull::PullArgs),
}

pub(crate) async fn state(
    args: StateArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    match args.command {
        StateCommand::Export(args) => export::export(&args, global, process).await,
        StateCommand::Import(args) => import::import(&args, global, process).await,
        StateCommand::Pull(args) => pull::pull(&args, global, process).await,
    }
}
