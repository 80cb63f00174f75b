//! Confirms the plans of a change set. Policies may deny the confirmation because of the user or the time.

use model::base::actor::Actor;
use model::base::ids::{ChangeSetId, StackName};
use model::policy::Remark;
use model::run::approval::MissingApproval;
use model::run::changeset::{LaneBlocker, Status, UserCommand};

use super::{DecidingUser, DecisionError};
use crate::Control;
use crate::changeset::approval_policy::{self, PolicyVerdicts};
use crate::changeset::explain;
use crate::schedule::scheduler;
use crate::secrets::caller_env::CallerEnv;

/// The result of a confirmation, and what policies reported about it.
#[derive(Debug)]
pub struct ConfirmOutcome {
    pub verdicts: PolicyVerdicts,
    pub result: ConfirmResult,
}

#[derive(Debug)]
pub enum ConfirmResult {
    /// It starts, or waits for its lanes.
    Confirmed { blocked_by: Option<LaneBlocker> },
    /// Policies deny it; the change set still waits.
    Denied(Vec<Remark>),
    /// Policies require approvals that are missing.
    Missing(Vec<MissingApproval>),
}

/// What a user confirms.
#[derive(Clone, Copy, Debug)]
pub struct ConfirmRequest<'a> {
    pub set: ChangeSetId,
    /// Stacks that were protected after their destroy was requested, and whose names the user typed.
    pub typed: &'a [StackName],
}

/// Confirms the plans, if the user may apply them here, and no stack was protected in the meantime.
pub async fn confirm(
    control: &Control,
    decider: DecidingUser<'_>,
    request: ConfirmRequest<'_>,
    caller: &CallerEnv,
) -> Result<ConfirmOutcome, DecisionError> {
    let (set, actor) = (request.set, decider.actor);
    control.check_project(set).await?;
    control.check_machine(set).await?;
    decider.check_writer(control, set).await?;
    decider.check_typed(control, request).await?;
    let verdicts = evaluate(control, set, actor).await?;
    let denials: Vec<Remark> = verdicts.denials().cloned().collect();
    let result = if !denials.is_empty() {
        ConfirmResult::Denied(denials)
    } else if !verdicts.missing.is_empty() {
        ConfirmResult::Missing(verdicts.missing.clone())
    } else {
        let by = actor.clone();
        let command = UserCommand::Confirm { by };
        let after = scheduler::advance(control, set, Some(command), caller, None).await?;
        ConfirmResult::Confirmed {
            blocked_by: after.front,
        }
    };
    Ok(ConfirmOutcome { verdicts, result })
}

async fn evaluate(
    control: &Control,
    set: ChangeSetId,
    actor: &Actor,
) -> Result<PolicyVerdicts, DecisionError> {
    let before = explain::explain(control, set).await?;
    if before.set.status != Status::AwaitingConfirm {
        return Ok(PolicyVerdicts::default()); // the scheduler refuses the confirmation for another reason
    }
    Ok(approval_policy::evaluate_confirmation(control, &before, actor).await?)
}
