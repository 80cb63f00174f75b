//! `terrane run confirm`

use control::changesets;
use model::changeset::Status;

use super::{About, Here};
use crate::args::Global;
use crate::commands::change;
use crate::watch::Watcher;
use crate::{CommandError, ExitStatus, Process};

/// Start what was planned, and watch it
///
/// Approvals are looked at again. If what was planned from has moved meanwhile, nothing is applied:
/// `terrane apply --resume` plans it afresh.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  terrane run confirm c42")]
pub(super) struct ConfirmArgs {
    /// The change set, such as `c42`, or one of its runs
    what: String,
}

pub(super) async fn confirm(
    args: &ConfirmArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    Box::pin(say_yes(&args.what, global, process)).await
}

/// To a change set, or that of a run.
pub(crate) async fn say_yes(
    what: &str,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let here = Here::open(global, process).await?;
    let failed = |err: &dyn std::error::Error| CommandError::from_error(err);
    let (set, _) = About::read(what)?.set(&here.control).await?;
    here.check_machine(set).await?;
    here.check_writer(set, process).await?;
    let values = changesets::gather_again(&here.control, &here.open, &process.env, set)
        .await
        .map_err(|err| failed(&err))?;
    let values = values.ok_or_else(|| {
        CommandError::new(format!(
            "change set {set} needs values from the environment that are not set here"
        ))
        .hint("confirm it where the variables and files that its contexts name are there")
    })?;
    let mut watcher = Watcher::attach(&here.control, set, Some(values), global, process)
        .map_err(|err| failed(&err))?;
    watcher.see().await?;
    if watcher.set().status == Status::AwaitingConfirm {
        change::show_plans(&mut watcher, &here.project, false, global, process).await?;
    }
    watcher.confirm().await?;
    change::go_on(&mut watcher, &here.project, global, process).await
}
