//! Approves a change set, or one run of it, and starts the apply if nothing else is missing.
//!
//! Not here: which approvals count (`model::run::approval`).

use model::base::error::{NextStep, command};
use model::base::ids::{ChangeSetId, RunId, StackName};
use model::run::approval::{AfterApproval, ApprovalSubject, FollowUp, MissingApproval, shown};
use model::run::changeset::{ChangeSet, Status, is_said};
use model::run::{Run, RunState};

use super::{DecidingUser, DecisionError};
use crate::Control;
use crate::changeset::approval_policy::{self, PolicyVerdicts};
use crate::changeset::explain::{self, ApproveError, ChangeSetDetails, NewApproval};
use crate::changeset::prepare;
use crate::schedule::scheduler;
use crate::secrets::caller_env::CallerEnv;

/// What a user approves.
#[derive(Clone, Debug)]
pub struct ApproveRequest {
    pub set: ChangeSetId,
    /// Only this run's stack.
    pub run: Option<RunId>,
    pub role: Option<String>,
    pub comment: Option<String>,
    /// The plan that the user reviewed. Another plan is not approved.
    pub plan: Option<String>,
}

/// A recorded approval.
#[derive(Debug)]
pub struct ApproveOutcome {
    pub details: ChangeSetDetails,
    /// The plan that is approved.
    pub subject: Option<ApprovalSubject>,
    /// The approvals that are still missing.
    pub missing: Vec<MissingApproval>,
    pub verdicts: PolicyVerdicts,
    /// Whether the plans can be shown on this machine.
    pub plans_are_here: bool,
    pub follow_up: FollowUp,
    /// Why the project's current rules prevent the start, and the next step.
    pub blocked: Option<(String, NextStep)>,
}

pub async fn approve(
    control: &Control,
    decider: DecidingUser<'_>,
    request: ApproveRequest,
) -> Result<ApproveOutcome, DecisionError> {
    let (set, run) = (request.set, request.run);
    let before = explain::explain(control, set).await?;
    check_open(control, &before, run).await?;
    let is_over = before.set.status.is_over();
    let new = NewApproval {
        set,
        run,
        person: decider.actor.clone(),
        role: request.role,
        comment: request.comment,
        seen: request.plan,
    };
    let verdicts = approval_policy::evaluate_approval(control, &before, &new).await?;
    if let Some(denial) = verdicts.denials().next() {
        let denial = denial.clone();
        return Err(DecisionError::ApprovalDenied { denial });
    }
    let after = match explain::approve(control, new).await {
        Err(source @ ApproveError::OtherPlans(_)) => {
            return Err(DecisionError::OtherPlans { set, source });
        }
        after => after.map_err(DecisionError::Approve)?,
    };
    let missing = if is_over {
        after.missing_before_resume()
    } else {
        after.missing_approvals()
    };
    let blocked = blocked(control, decider, &after.set).await?;
    let facts = facts(control, &after, missing.is_empty(), blocked.is_some()).await?;
    let follow_up = start(control, decider, set, facts).await?;
    Ok(ApproveOutcome {
        subject: shown(&after.runs, run),
        plans_are_here: plans_are_here(control, &after.runs).await,
        details: after,
        missing,
        verdicts,
        follow_up,
        blocked,
    })
}

/// Refuses an approval that no rule and no policy would read.
async fn check_open(
    control: &Control,
    before: &ChangeSetDetails,
    run: Option<RunId>,
) -> Result<(), DecisionError> {
    let set = before.set.id;
    let is_planning = |run: &Run| matches!(run.state, RunState::Planning { .. });
    let has_no_plan = before.set.status == Status::Confirmed
        && shown(&before.runs, run).is_none()
        && before.runs.iter().any(is_planning);
    if before.set.status == Status::Planning || has_no_plan {
        return Err(DecisionError::StillPlanned { set });
    }
    if before.set.status.is_over() {
        if before.missing_before_resume().is_empty() {
            let status = before.set.status.word();
            return Err(DecisionError::Over { set, status });
        }
        return Ok(());
    }
    let is_needed = !before.set.request.approvals.is_empty()
        || !before.missing_approvals().is_empty()
        || approval_policy::hears_approvals(control, before).await?;
    if !is_needed {
        return Err(DecisionError::NoApprovalNeeded { set });
    }
    Ok(())
}

async fn facts(
    control: &Control,
    after: &ChangeSetDetails,
    is_complete: bool,
    is_blocked: bool,
) -> Result<AfterApproval, DecisionError> {
    let set = &after.set;
    Ok(AfterApproval {
        is_complete,
        is_over: set.status.is_over(),
        awaits_confirmation: set.status == Status::AwaitingConfirm,
        is_confirmed: is_said(set, &after.runs),
        can_continue: after.goes_on(),
        is_at_work: set.status == Status::Confirmed,
        is_here: set.request.machine == control.home.machine(),
        // The approver's variables and credentials are not the requester's.
        needs_caller: prepare::needs_caller_env(control, set.id).await?,
        is_blocked,
    })
}

/// Starts the change set if this was the last approval and the user may apply it here.
async fn start(
    control: &Control,
    decider: DecidingUser<'_>,
    set: ChangeSetId,
    facts: AfterApproval,
) -> Result<FollowUp, DecisionError> {
    // A user who approves may have no right to apply.
    let may_apply = facts.may_begin() && decider.check_writer(control, set).await.is_ok();
    if facts.starts(may_apply) {
        scheduler::advance(control, set, None, &CallerEnv::default(), None).await?;
    }
    Ok(facts.follow_up(may_apply))
}

/// Why the project's current rules prevent the start of a change set, and the next step.
async fn blocked(
    control: &Control,
    decider: DecidingUser<'_>,
    set: &ChangeSet,
) -> Result<Option<(String, NextStep)>, DecisionError> {
    let id = set.id;
    if let Some(by) = prepare::requires_more_approvals(decider.project, &set.request) {
        return Ok(Some((
            format!("{by} now requires more approvals than when change set {id} was requested"),
            command(
                format!("run discard {id} --reason …"),
                "drops it; then request it again",
            ),
        )));
    }
    let stack: Option<StackName> = decider.protected_since(control, id, &[]).await?;
    Ok(stack.map(|stack| {
        (
            format!("stack `{stack}` was protected after its destroy was requested"),
            command(format!("run confirm {id} --confirm {stack}"), "destroys it"),
        )
    }))
}

/// Whether the approver could see the plans.
async fn plans_are_here(control: &Control, runs: &[Run]) -> bool {
    for run in runs {
        let has_plan = matches!(run.state, RunState::Planned { .. });
        if has_plan && prepare::plan_view(control, run).await.is_none() {
            return false;
        }
    }
    true
}
