//! `terrane run`: one stack's way through a change set, seen and ended by hand.

use model::ids::RunId;

use crate::args::Global;
use crate::{CommandError, ExitStatus, Process};

mod cancel;
mod discard;
pub(crate) mod imports;
mod logs;

/// See runs, end them, and decide about what they left behind
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    #[command(subcommand)]
    command: RunCommand,
}

#[derive(Debug, clap::Subcommand)]
enum RunCommand {
    Logs(logs::LogsArgs),
    Cancel(cancel::CancelArgs),
    Imports(imports::ImportsArgs),
    Discard(discard::DiscardArgs),
}

pub(crate) async fn run(
    args: RunArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    match args.command {
        RunCommand::Logs(args) => logs::logs(&args, global, process).await,
        RunCommand::Cancel(args) => cancel::cancel(&args, global, process).await,
        RunCommand::Imports(args) => imports::imports(&args, global, process).await,
        RunCommand::Discard(args) => discard::discard(&args, global, process).await,
    }
}

pub(crate) fn read_run(word: &str) -> Result<RunId, CommandError> {
    let run = word.parse();
    run.map_err(|err| CommandError::from_error(&err).status(ExitStatus::Usage))
}
