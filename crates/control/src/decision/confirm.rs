//! Confirms the plans of a change set. Policies may deny the confirmation because of the user or the time.

use model::base::actor::Actor;
use model::base::ids::ChangeSetId;
use model::policy::Remark;
use model::run::approval::MissingApproval;
use model::run::changeset::{LaneBlocker, Status, UserCommand};

use super::DecisionError;
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

pub async fn confirm(
    control: &Control,
    set: ChangeSetId,
    actor: &Actor,
    caller: &CallerEnv,
) -> Result<ConfirmOutcome, DecisionError> {
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
