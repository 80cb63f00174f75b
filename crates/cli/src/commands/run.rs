//! `terrane run`: lists runs and why they wait, and records users' decisions.

use std::collections::BTreeSet;

use control::Control;
use control::access::writers;
use control::changeset::prepare;
use control::project::open::OpenProject;
use model::base::error::Explain;
use model::base::ids::{ChangeSetId, RunId, StackName};
use model::project::Project;
use model::run::changeset::{Action, Request};

use super::change::prepare_error;
use super::{destroy, open_home, valid_project_except};
use crate::global::Global;
use crate::{CommandError, ExitStatus, Process};

mod approve;
mod cancel;
mod confirm;
mod discard;
mod explain;
pub(crate) mod imports;
mod list;
mod logs;
mod reject;
mod retry;
mod show;

pub(crate) use confirm::confirm_change_set;

/// See what runs and why it waits; approve, confirm, try again
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane run list\n  terrane run show r44\n  terrane run retry r44"
)]
pub(crate) struct RunArgs {
    #[command(subcommand)]
    command: RunCommand,
}

impl RunArgs {
    pub(crate) fn tells_events(&self) -> bool {
        matches!(self.command, RunCommand::Confirm(_) | RunCommand::Retry(_))
    }
}

#[derive(Debug, clap::Subcommand)]
enum RunCommand {
    List(list::ListArgs),
    Show(show::ShowArgs),
    Approve(approve::ApproveArgs),
    Reject(reject::RejectArgs),
    Confirm(confirm::ConfirmArgs),
    Retry(retry::RetryArgs),
    Logs(logs::LogsArgs),
    Cancel(cancel::CancelArgs),
    Imports(imports::ImportsArgs),
    Discard(discard::DiscardArgs),
    Explain(explain::ExplainArgs),
}

pub(crate) async fn run(
    args: RunArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    match args.command {
        RunCommand::Logs(args) => logs::logs(&args, global, process).await,
        RunCommand::Cancel(args) => Box::pin(cancel::cancel(&args, global, process)).await,
        RunCommand::Imports(args) => imports::imports(&args, global, process).await,
        RunCommand::List(args) => list::list(&args, global, process).await,
        RunCommand::Show(args) => show::show(&args, global, process).await,
        RunCommand::Approve(args) => approve::approve(args, global, process).await,
        RunCommand::Reject(args) => reject::reject(&args, global, process).await,
        RunCommand::Confirm(args) => Box::pin(confirm::confirm(&args, global, process)).await,
        RunCommand::Retry(args) => retry::retry(args, global, process).await,
        RunCommand::Discard(args) => discard::discard(&args, global, process).await,
        RunCommand::Explain(args) => explain::explain(&args, global, process).await,
    }
}

/// The current project and its home.
pub(super) struct ProjectHandle {
    pub(super) open: OpenProject,
    pub(super) project: Project,
    pub(super) control: Control,
}

impl ProjectHandle {
    pub(super) async fn open(global: &Global, process: &Process) -> Result<Self, CommandError> {
        // The project may have no stacks left: its last one may be the one to destroy.
        let (open, project) = valid_project_except(&["empty-project"], global, process)?;
        let settings = process.settings(global)?;
        let control = open_home(&settings, &open, process, process.look(global)).await?;
        Ok(Self {
            open,
            project,
            control,
        })
    }

    /// Refuses a change set of another machine: its source and plans are only there.
    async fn check_machine(&self, set: ChangeSetId) -> Result<(), CommandError> {
        let found = self.control.change_set(set).await;
        let found = found.map_err(|err| CommandError::from_error(&err))?;
        if found.request.machine == self.control.home.machine() {
            return Ok(());
        }
        Err(CommandError::new(format!(
            "change set {set} was planned on another machine, or by another user, who has its source and its plans"
        ))
        .hint(format!(
            "confirm it there, or apply a bundle (`terrane plan --out FILE`); if that machine is gone: \
             `terrane run discard {set} --reason …`, then `terrane apply`"
        ))
        .status(ExitStatus::Refused))
    }

    /// Uses the project of the change set: for a destroy with older code, the project as of that commit.
    async fn of_set(self, set: ChangeSetId, process: &Process) -> Result<Self, CommandError> {
        let found = self.control.change_set(set).await;
        let request = found.map_err(|err| CommandError::from_error(&err))?.request;
        let is_gone = |stack: &StackName| !self.project.stacks.contains_key(stack);
        let is_older = request.action == Action::Destroy && request.stacks.iter().any(is_gone);
        let Some(commit) = request.commit.filter(|_| is_older) else {
            return Ok(self);
        };
        let (open, project) = destroy::as_of(&commit, self.open, &self.project, process)?;
        Ok(Self {
            open,
            project,
            control: self.control,
        })
    }

    /// The request of a change set, and its stacks that were protected at that time. Their names were typed
    /// for a destroy.
    async fn typed_names(
        &self,
        set: ChangeSetId,
    ) -> Result<(Request, BTreeSet<StackName>), CommandError> {
        let control = &self.control;
        let failed = |err: &dyn Explain| CommandError::from_error(err);
        let found = control.change_set(set).await;
        let request = found.map_err(|err| failed(&err))?.request;
        let mut typed = BTreeSet::new();
        for run in control.runs(set).await.map_err(|err| failed(&err))? {
            let spec = control.run_spec(run.id).await.map_err(|err| failed(&err))?;
            if spec.stack.protected {
                typed.insert(run.stack);
            }
        }
        Ok((request, typed))
    }

    /// A stack of a destroy that became protected after the request.
    async fn protected_since(&self, set: ChangeSetId) -> Result<Option<StackName>, CommandError> {
        let (request, typed) = self.typed_names(set).await?;
        let is_protected = |name: &&StackName| {
            let stack = self.project.stacks.get(*name);
            stack.is_some_and(|stack| stack.protected) && !typed.contains(*name)
        };
        let found = request.stacks.iter().find(is_protected).cloned();
        Ok(found.filter(|_| request.action == Action::Destroy))
    }

    /// Checks that the user may start the runs: as a writer of their targets, and only if the project does
    /// not require more approvals by now.
    pub(super) async fn check_writer(
        &self,
        set: ChangeSetId,
        process: &Process,
    ) -> Result<(), CommandError> {
        let found = self.control.change_set(set).await;
        let request = found.map_err(|err| CommandError::from_error(&err))?.request;
        let again =
            format!("`terrane run discard {set} --reason …` drops it; then request it again");
        let more = prepare::requires_more_approvals(&self.project, &request);
        let stacks: BTreeSet<StackName> = request.stacks.into_iter().collect();
        if let Some(gone) = stacks
            .iter()
            .find(|stack| !self.project.stacks.contains_key(*stack))
        {
            return Err(CommandError::new(format!(
                "cannot tell who may apply stack `{gone}`: it is no longer in the project"
            ))
            .hint(again)
            .status(ExitStatus::Refused));
        }
        if let Some(by) = more {
            return Err(CommandError::new(format!(
                "{by} now requires more approvals than when change set {set} was requested"
            ))
            .hint(again)
            .status(ExitStatus::Refused));
        }
        let actor = process.actor();
        let who = writers::identify(&self.project, &stacks, &process.env, &actor).await;
        who.check_all(&self.project, &stacks)
            .map_err(|err| prepare_error(&err.into()))
    }
}

/// What an argument names: `c42` or `r44`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunOrChangeSet {
    Set(ChangeSetId),
    Run(RunId),
}

impl RunOrChangeSet {
    fn read(word: &str) -> Result<Self, CommandError> {
        if let Ok(set) = word.parse() {
            return Ok(Self::Set(set));
        }
        word.parse().map(Self::Run).map_err(|_| {
            CommandError::new(format!("`{word}` is neither a change set nor a run"))
                .hint("change sets are `c42`, runs `r44`: `terrane run list`")
                .status(ExitStatus::Usage)
        })
    }

    /// The change set, and the run if the argument names one.
    async fn set(self, control: &Control) -> Result<(ChangeSetId, Option<RunId>), CommandError> {
        let (set, run) = match self {
            Self::Set(set) => (set, None),
            Self::Run(run) => {
                let found = control.run(run).await;
                let found = found.map_err(|err| CommandError::from_error(&err))?;
                let found = found.ok_or_else(|| {
                    CommandError::new(format!("there is no run `{run}`"))
                        .hint("`terrane run list --all` shows them all")
                })?;
                (found.change_set, Some(run))
            }
        };
        must_be_of_here(control, set).await?;
        Ok((set, run))
    }
}

/// Refuses a change set of another project: projects that share a home only see their own, and whether its
/// processes are alive is only visible there.
async fn must_be_of_here(control: &Control, set: ChangeSetId) -> Result<(), CommandError> {
    let found = control.change_set(set).await;
    let found = found.map_err(|err| CommandError::from_error(&err))?;
    let project = found.request.project;
    if project == control.home.project() {
        return Ok(());
    }
    Err(
        CommandError::new(format!("change set `{set}` is another project's"))
            .hint(format!(
                "run the command in the directory of project `{project}`"
            ))
            .status(ExitStatus::Refused),
    )
}

pub(crate) fn read_run(word: &str) -> Result<RunId, CommandError> {
    if word.parse::<ChangeSetId>().is_ok() {
        return Err(
            CommandError::new(format!("`{word}` is a change set, not a run"))
                .hint(format!("`terrane run show {word}` lists its runs"))
                .status(ExitStatus::Usage),
        );
    }
    word.parse().map_err(|_| {
        CommandError::new(format!("`{word}` is not a run"))
            .hint("runs are called `r44`: `terrane run list` shows them with their stacks")
            .status(ExitStatus::Usage)
    })
}

pub(crate) fn read_set(word: &str) -> Result<ChangeSetId, CommandError> {
    word.parse().map_err(|_| {
        CommandError::new(format!("`{word}` is not a change set"))
            .hint("change sets are called `c42`: `terrane run list --all` shows them")
            .status(ExitStatus::Usage)
    })
}
