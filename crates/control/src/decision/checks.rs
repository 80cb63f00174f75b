//! Checks who decides about a change set, and where.

use std::collections::{BTreeMap, BTreeSet};

use model::base::actor::Actor;
use model::base::error::{ErrorKind, Explain, NextStep, advice, command};
use model::base::ids::{ChangeSetId, StackName};
use model::policy::Remark;
use model::project::Project;
use model::run::changeset::{Action, Request};
use store::ChangeSetError;

use super::confirm::ConfirmRequest;
use crate::Control;
use crate::access::writers::{self, NotAWriterError};
use crate::changeset::explain::ApproveError;
use crate::changeset::prepare::{self, PrepareError};
use crate::policy::PolicyError;
use crate::schedule::scheduler::AdvanceError;

/// The user who decides, and the project as this user has it.
#[derive(Clone, Copy, Debug)]
pub struct DecidingUser<'a> {
    pub actor: &'a Actor,
    pub env: &'a BTreeMap<String, String>,
    pub project: &'a Project,
}

/// Why a decision is not recorded.
#[derive(Debug, thiserror::Error)]
pub enum DecisionError {
    #[error("change set `{set}` is another project's")]
    OtherProject { set: ChangeSetId, project: String },
    #[error(
        "change set {set} was planned on another machine, or by another user; its source and its plans are there"
    )]
    OtherMachine { set: ChangeSetId },
    #[error("cannot determine the writers of stack `{stack}`: it is no longer in the project")]
    StackGone { set: ChangeSetId, stack: StackName },
    #[error("{by} now requires more approvals than when change set {set} was requested")]
    MoreApprovals { set: ChangeSetId, by: String },
    #[error("stack `{stack}` was protected after its destroy was requested")]
    Protected { set: ChangeSetId, stack: StackName },
    #[error(transparent)]
    NotAWriter(#[from] NotAWriterError),
    #[error("cannot approve change set {set}: it is still being planned")]
    StillPlanned { set: ChangeSetId },
    #[error("change set {set} is {status}")]
    Over {
        set: ChangeSetId,
        status: &'static str,
    },
    #[error("change set {set} needs no approval")]
    NoApprovalNeeded { set: ChangeSetId },
    #[error("this approval is denied by policy: {denial}")]
    ApprovalDenied { denial: Remark },
    #[error(transparent)]
    Approve(ApproveError),
    #[error("{source}")]
    OtherPlans {
        set: ChangeSetId,
        source: ApproveError,
    },
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Advance(#[from] AdvanceError),
    #[error(transparent)]
    Store(#[from] ChangeSetError),
}

impl Explain for DecisionError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Approve(err) => err.kind(),
            Self::Prepare(err) => err.kind(),
            Self::Policy(err) => err.kind(),
            Self::Advance(err) => err.kind(),
            Self::Store(err) => err.kind(),
            Self::OtherProject { .. }
            | Self::OtherMachine { .. }
            | Self::StackGone { .. }
            | Self::MoreApprovals { .. }
            | Self::Protected { .. }
            | Self::NotAWriter(_)
            | Self::StillPlanned { .. }
            | Self::Over { .. }
            | Self::NoApprovalNeeded { .. }
            | Self::ApprovalDenied { .. }
            | Self::OtherPlans { .. } => ErrorKind::Refused,
        }
    }

    fn next_steps(&self) -> Vec<NextStep> {
        let drop_it = |set: &ChangeSetId| {
            command(
                format!("run discard {set} --reason …"),
                "drops it; then request it again",
            )
        };
        match self {
            Self::OtherProject { project, .. } => vec![advice(format!(
                "run the command in the directory of project `{project}`"
            ))],
            Self::OtherMachine { set } => vec![
                advice("confirm it there, or apply a bundle (`terrane plan --out FILE`)"),
                command(
                    format!("run discard {set} --reason …"),
                    "drops it if that machine is gone; then `terrane apply`",
                ),
            ],
            Self::StackGone { set, .. } | Self::MoreApprovals { set, .. } => vec![drop_it(set)],
            Self::Protected { set, stack } => vec![command(
                format!("run confirm {set} --confirm {stack}"),
                "destroys it",
            )],
            Self::NotAWriter(err) => err.next_steps(),
            Self::StillPlanned { set } => vec![command(
                format!("run show {set} --plan"),
                "shows the plan once it exists",
            )],
            Self::Over { set, .. } | Self::NoApprovalNeeded { set } => {
                vec![command(format!("run show {set}"), "shows its status")]
            }
            Self::OtherPlans { set, .. } => vec![command(
                format!("run show {set} --plan"),
                "shows the current plan and its name",
            )],
            Self::Prepare(err) => err.next_steps(),
            Self::Policy(err) => err.next_steps(),
            Self::Advance(err) => err.next_steps(),
            Self::Store(err) => err.next_steps(),
            Self::ApprovalDenied { .. } | Self::Approve(_) => Vec::new(),
        }
    }
}

impl Control {
    /// Refuses a change set of another project: projects that share a home only see their own, and only there is it
    /// visible whether its processes are alive.
    pub async fn check_project(&self, set: ChangeSetId) -> Result<(), DecisionError> {
        let project = self.store.change_set_get(set).await?.request.project;
        if project == self.home.project() {
            return Ok(());
        }
        Err(DecisionError::OtherProject { set, project })
    }

    /// Refuses a change set of another machine: its source and plans are only there.
    pub async fn check_machine(&self, set: ChangeSetId) -> Result<(), DecisionError> {
        let found = self.store.change_set_get(set).await?;
        if found.request.machine == self.home.machine() {
            return Ok(());
        }
        Err(DecisionError::OtherMachine { set })
    }

    /// The request of a change set, and its stacks that were protected at that time. Their names were typed for a destroy.
    pub async fn typed_names(
        &self,
        set: ChangeSetId,
    ) -> Result<(Request, BTreeSet<StackName>), DecisionError> {
        let request = self.store.change_set_get(set).await?.request;
        let mut typed = BTreeSet::new();
        for run in self.store.run_list(set).await? {
            if self.store.run_spec(run.id).await?.stack.protected {
                typed.insert(run.stack);
            }
        }
        Ok((request, typed))
    }
}

impl DecidingUser<'_> {
    /// Requires the names of stacks that became protected after the request.
    pub(super) async fn check_typed(
        &self,
        control: &Control,
        request: ConfirmRequest<'_>,
    ) -> Result<(), DecisionError> {
        let set = request.set;
        match self.protected_since(control, set, request.typed).await? {
            None => Ok(()),
            Some(stack) => Err(DecisionError::Protected { set, stack }),
        }
    }

    /// A stack of a destroy that became protected after the request, and that is not among these names.
    pub(super) async fn protected_since(
        &self,
        control: &Control,
        set: ChangeSetId,
        named: &[StackName],
    ) -> Result<Option<StackName>, DecisionError> {
        let (request, typed) = control.typed_names(set).await?;
        let is_protected = |name: &&StackName| {
            let stack = self.project.stacks.get(*name);
            stack.is_some_and(|stack| stack.protected)
                && !typed.contains(*name)
                && !named.contains(*name)
        };
        let found = request.stacks.iter().find(is_protected).cloned();
        Ok(found.filter(|_| request.action == Action::Destroy))
    }

    /// Checks that the user may start the runs: as a writer of their targets, and only if the project does not require
    /// more approvals by now.
    pub async fn check_writer(
        &self,
        control: &Control,
        set: ChangeSetId,
    ) -> Result<(), DecisionError> {
        let request = control.store.change_set_get(set).await?.request;
        let more = prepare::requires_more_approvals(self.project, &request);
        let stacks: BTreeSet<StackName> = request.stacks.into_iter().collect();
        let mut all = stacks.iter();
        if let Some(stack) = all.find(|stack| !self.project.stacks.contains_key(*stack)) {
            let stack = stack.clone();
            return Err(DecisionError::StackGone { set, stack });
        }
        if let Some(by) = more {
            return Err(DecisionError::MoreApprovals { set, by });
        }
        let caller = writers::identify(self.project, &stacks, self.env, self.actor).await;
        Ok(caller.check_all(self.project, &stacks)?)
    }
}
