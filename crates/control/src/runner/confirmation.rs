//! Collects what the decision about a new plan needs, and evaluates policies for it.
//!
//! Not here: the decision (`model::run::confirmation`), comparing plans (`coverage`), evaluating a policy
//! (`check`).

use jiff::Timestamp;
use model::plan::Plan;
use model::policy::Verdict;
use model::project::{ApprovalBlock, ApprovalScope};
use model::run::RunSpec;
use model::run::approval::lacks_rule_approvals;
use model::run::confirmation::{Confirmation, ConfirmationFacts, decide};

use super::coverage::PlanComparison;
use super::{Failure, StageJob, check};

/// The decision about a plan, and what is recorded with it.
pub(super) struct PlanDecision {
    pub(super) confirmation: Confirmation,
    /// The time from which approvals count for the plan.
    pub(super) since: Option<Timestamp>,
    /// The policies' verdict on the confirmation.
    pub(super) of_yes: Verdict,
}

/// `policy`: the policies' verdict on the plan.
pub(super) async fn confirmation(
    job: &StageJob<'_>,
    plan: &Plan,
    policy: &Verdict,
    compared: &PlanComparison,
) -> Result<PlanDecision, Failure> {
    let mut facts = ConfirmationFacts {
        is_review: job.review,
        is_empty: plan.is_empty(),
        auto_approve: job.auto_approve,
        applies_by_itself: job.spec.applies_by_itself(),
        is_bundled: job.is_bundled(),
        ended_unknown: compared.history.ended_unknown,
        has_own_approval: has_own_approval(job.spec),
        coverage: compared.coverage.clone(),
        was_confirmed: compared.was_confirmed,
        lacks_approvals: false,
        lacks_policy_approvals: false,
    };
    let request = &job.set.request;
    let mut since = compared.approvals_since(job, facts.keeps_agreement(), policy);
    facts.lacks_policy_approvals = check::is_owed(job, policy, since).await?;
    // If other people have to approve first, policies are evaluated again after that.
    let is_final = decide(&facts) == Confirmation::ApplyNow
        && (facts.is_confirmed() || request.approvals.is_empty());
    let of_yes = if job.review {
        Verdict::default()
    } else {
        check::at_yes(job, is_final).await?
    };
    if !compared.knew_of(job, &of_yes) {
        since = Some(job.control.now());
    }
    facts.lacks_policy_approvals |= check::is_owed(job, &of_yes, since).await?;
    let (stack, now) = (&job.spec.stack.name, job.control.now());
    let given = &compared.approvals;
    facts.lacks_approvals = lacks_rule_approvals(job.set, (job.run, stack), since, given, now);
    Ok(PlanDecision {
        confirmation: decide(&facts),
        since,
        of_yes,
    })
}

/// Whether the stack is approved separately from its change set.
fn has_own_approval(spec: &RunSpec) -> bool {
    let rule = ApprovalBlock::rule(spec.target.approval.as_ref(), spec.stack.approval.as_ref());
    rule.is_some_and(|rule| rule.scope == ApprovalScope::Stack)
}
