//! `terrane state`: reads and changes stored states. One file per command.

mod blame;
mod diff;
mod export;
mod import;
mod list;
mod locking_args;
mod pull;
mod push;
mod query_args;
mod recover;
mod refusals;
mod rm;
mod rollback;
mod search;
mod show;
mod surgery;
mod verify;
mod versions;

pub(crate) use query_args::say_if_copy;

use crate::global::Global;
use crate::{CommandError, ExitStatus, Process};

/// Inspect states, and change them manually if needed
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane state list\n  terrane state show network\n  terrane state diff network 3 5"
)]
pub(crate) struct StateArgs {
    #[command(subcommand)]
    command: StateCommand,
}

#[derive(Debug, clap::Subcommand)]
enum StateCommand {
    List(list::ListArgs),
    Show(show::ShowArgs),
    Versions(versions::VersionsArgs),
    Diff(diff::DiffArgs),
    Blame(blame::BlameArgs),
    Search(search::SearchArgs),
    Export(export::ExportArgs),
    Import(import::ImportArgs),
    Pull(pull::PullArgs),
    Recover(recover::RecoverArgs),
    Verify(verify::StateVerifyArgs),
    Refusals(refusals::RefusalsArgs),
    Push(push::PushArgs),
    Rollback(rollback::RollbackArgs),
    Rm(rm::RmArgs),
}

pub(crate) async fn state(
    args: StateArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    match args.command {
        StateCommand::List(args) => list::list(&args, global, process).await,
        StateCommand::Show(args) => show::show(&args, global, process).await,
        StateCommand::Versions(args) => versions::versions(&args, global, process).await,
        StateCommand::Diff(args) => diff::diff(&args, global, process).await,
        StateCommand::Blame(args) => blame::blame(&args, global, process).await,
        StateCommand::Search(args) => search::search(&args, global, process).await,
        StateCommand::Export(args) => export::export(&args, global, process).await,
        StateCommand::Import(args) => import::import(&args, global, process).await,
        StateCommand::Pull(args) => pull::pull(&args, global, process).await,
        StateCommand::Recover(args) => recover::recover(&args, global, process).await,
        StateCommand::Verify(args) => verify::verify(&args, global, process).await,
        StateCommand::Refusals(args) => refusals::refusals(&args, global, process).await,
        StateCommand::Push(args) => push::push(&args, global, process).await,
        StateCommand::Rollback(args) => rollback::rollback(&args, global, process).await,
        StateCommand::Rm(args) => rm::rm(&args, global, process).await,
    }
}
