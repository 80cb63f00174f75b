//! `terrane run retry`

use model::run::changeset::Reopen;

use super::{ProjectHandle, read_run};
use crate::commands::change::{self, ChangeOptions};
use crate::commands::exceptions::ExceptionArgs;
use crate::global::Global;
use crate::{CommandError, ExitStatus, Process};

/// Retry a run that did not succeed, and the runs that were skipped because of it
///
/// Stacks that were untouched because of its plan are checked again, too.
///
/// The runs are planned again, on the current source. A run that is applied but not done continues at the stage that did
/// not pass. `terrane apply --resume` retries everything that is left.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane run retry r44\n  terrane run retry r44 --auto-approve\n  \
    terrane run retry r44 --skip-gate k8s-prod/sso --reason \"the probe is wrong, see the ticket\"",
    group(clap::ArgGroup::new("emergency").multiple(true))
)]
pub(super) struct RetryArgs {
    /// The run, such as `r44`
    run: String,
    /// Apply without asking
    #[arg(long)]
    auto_approve: bool,
    #[command(flatten)]
    exceptions: ExceptionArgs,
    /// Why, in a sentence
    #[arg(long, value_name = "TEXT", requires = "emergency")]
    reason: Option<String>,
}

pub(super) async fn retry(
    args: RetryArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let run = read_run(&args.run)?;
    let here = ProjectHandle::open(global, process).await?;
    let (set, _) = super::RunOrChangeSet::Run(run).set(&here.control).await?;
    let found = here.control.change_set(set).await;
    let action = found
        .map_err(|err| CommandError::from_error(&err))?
        .request
        .action;
    drop(here);
    let exceptions = args
        .exceptions
        .read(args.reason.as_deref(), global, process)?;
    let change = ChangeOptions {
        exceptions,
        auto_approve: args.auto_approve,
        ..ChangeOptions::of(action)
    };
    let what = Reopen::Run(run);
    Box::pin(change::reopen_and_watch(
        Some(set),
        what,
        change,
        global,
        process,
    ))
    .await
}
