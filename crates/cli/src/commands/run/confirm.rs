//! `terrane run confirm`

use control::changeset::prepare;
use model::base::error::Explain;
use model::base::ids::{ChangeSetId, StackName};
use model::run::changeset::{Action, Status};

use super::{ProjectHandle, RunOrChangeSet};
use crate::commands::change::{self, AppliedPlans, DestroyOptions};
use crate::commands::destroy;
use crate::global::Global;
use crate::watch::Watcher;
use crate::{CommandError, ExitStatus, Process};

/// Start the apply of a planned change set, and watch it
///
/// Approvals are checked again. If the plan is no longer valid, nothing is applied:
/// `terrane apply --resume` plans it again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  terrane run confirm c42")]
pub(super) struct ConfirmArgs {
    /// The change set, such as `c42`, or one of its runs
    what: String,

    /// The name of a stack that was protected after its destroy was requested, in place of typing it
    #[arg(long = "confirm", value_name = "STACK")]
    confirm: Vec<String>,
}

pub(super) async fn confirm(
    args: &ConfirmArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    Box::pin(confirm_change_set(
        &args.what,
        &args.confirm,
        global,
        process,
    ))
    .await
}

/// Confirms a change set, given by its id or that of a run.
pub(crate) async fn confirm_change_set(
    what: &str,
    named: &[String],
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let here = ProjectHandle::open(global, process).await?;
    let failed = |err: &dyn Explain| CommandError::from_error(err);
    let (set, _) = RunOrChangeSet::read(what)?.set(&here.control).await?;
    let checked = here.control.check_machine(set).await;
    checked.map_err(|err| failed(&err))?;
    let here = here.of_set(set, process).await?;
    here.check_writer(set, process).await?;
    check_protected(&here, set, named, global, process).await?;
    let values = prepare::gather_for(&here.control, &here.open, &process.env, set)
        .await
        .map_err(|err| failed(&err))?;
    let (values, missing) = match values {
        Ok(values) => (Some(values), None),
        Err(missing) => (None, Some(missing)),
    };
    let mut watcher =
        Watcher::attach(&here.control, set, values, global, process).map_err(|err| failed(&err))?;
    watcher.see().await?;
    // Only a waiting change set needs values; that it is over is reported below.
    if let Some(missing) = missing.filter(|_| watcher.set().status == Status::AwaitingConfirm) {
        let said =
            format!("cannot confirm change set {set}: values that it needs are not set here");
        return Err(CommandError::because(said, &missing)
            .hint("confirm it where they are set, or set the same values as for its plan"));
    }
    if watcher.set().status == Status::AwaitingConfirm {
        change::show_plans(
            &mut watcher,
            &here.project,
            AppliedPlans::Named,
            false,
            global,
            process,
        )
        .await?;
    }
    // `check_protected` had each name typed that was not given.
    let typed: Vec<StackName> = here.project.stacks.keys().cloned().collect();
    if let Err(refused) = watcher.confirm(&here.project, process, &typed).await {
        return Err(change::explain_stall(&here.control, set, refused).await);
    }
    change::go_on(&mut watcher, &here.project, global, process).await
}

/// Checks stacks that are protected by now. A name that was typed before is not required again.
async fn check_protected(
    here: &ProjectHandle,
    set: ChangeSetId,
    named: &[String],
    global: &Global,
    process: &Process,
) -> Result<(), CommandError> {
    let found = here.control.typed_names(set).await;
    let (request, typed) = found.map_err(|err| CommandError::from_error(&err))?;
    if request.action != Action::Destroy {
        return Ok(());
    }
    let typed = typed.iter().map(ToString::to_string);
    let destroying = DestroyOptions {
        confirm: named.iter().cloned().chain(typed).collect(),
        from: None,
    };
    let stacks = request.stacks.into_iter().collect();
    let look = process.look(global);
    destroy::check(
        &destroying,
        &here.open,
        &here.project,
        &stacks,
        process,
        look,
    )
}
