//! `terrane run`: lists runs and why they wait, and records users' decisions.

use control::Control;
use control::decision::DecidingUser;
use control::project::open::OpenProject;
use model::base::actor::Actor;
use model::base::ids::{ChangeSetId, RunId, StackName};
use model::project::Project;
use model::run::changeset::Action;

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

    /// The user, with the project as this user has it.
    pub(super) fn decider<'a>(
        &'a self,
        actor: &'a Actor,
        process: &'a Process,
    ) -> DecidingUser<'a> {
        DecidingUser {
            actor,
            env: &process.env,
            project: &self.project,
        }
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

    /// Checks that the user may start the runs of a change set.
    pub(super) async fn check_writer(
        &self,
        set: ChangeSetId,
        process: &Process,
    ) -> Result<(), CommandError> {
        let actor = process.actor();
        let decider = self.decider(&actor, process);
        let checked = decider.check_writer(&self.control, set).await;
        checked.map_err(|err| CommandError::from_error(&err))
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
        let checked = control.check_project(set).await;
        checked.map_err(|err| CommandError::from_error(&err))?;
        Ok((set, run))
    }
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
