//! Compares a new plan or preview with the one that people saw last, and stores it for later plans.
//!
//! Not here: which plans are equal (`model::plan::coverage`), what follows from that (`confirmation`).

use std::fs;
use std::sync::atomic::Ordering;

use drivers::snapshot::sha256;
use jiff::Timestamp;
use model::base::error::Explain;
use model::base::ids::RunId;
use model::plan::coverage::{Coverage, Difference, ReviewedPlan};
use model::policy::Verdict;
use model::run::approval::Approval;
use model::run::confirmation::{ConfirmationScope, ReviewHistory};
use model::run::preview::RewrittenModule;
use store::KeyScope;

use super::inputs::Inputs;
use super::{Failure, StageJob};
use crate::home::write_private;
use crate::run::keyed_digests::{DigestPurpose, digester};

/// A plan that was compared.
#[derive(Default)]
pub(super) struct PlanComparison {
    pub(super) coverage: Coverage,
    pub(super) history: ReviewHistory,
    /// Whether the plan that it was compared with was confirmed.
    pub(super) was_confirmed: bool,
    pub(super) approvals: Vec<Approval>,
    /// The plan to store; none if no user reviews it.
    new: Option<ReviewedPlan>,
}

const OTHER_VALUES: &str = "inputs whose values differ from the request";

/// Compares the engine's plan JSON. The resource that a preview added to its source is left out.
pub(super) async fn compare(
    job: &StageJob<'_>,
    json: &[u8],
    inputs: &Inputs,
    rewritten: Option<&RewrittenModule>,
) -> Result<PlanComparison, Failure> {
    if job.review && !job.keeps_plan() {
        return Ok(PlanComparison::default());
    }
    let history = history(job).await?;
    if is_unattended(job) {
        return Ok(PlanComparison {
            history,
            ..PlanComparison::default()
        });
    }
    let mut difference = read_difference(job, json).await?;
    if let Some(rewritten) = rewritten {
        difference.leave_out(&rewritten.resource());
    }
    let new = ReviewedPlan {
        difference,
        own_source: job.spec.own_source.clone(),
        inputs: inputs.each.clone(),
        from_bundle: false,
    };
    let approvals = job.control.store.approval_list(job.set.id).await;
    let approvals =
        approvals.map_err(|err| Failure::because("could not read the approvals", &err))?;
    let was_confirmed = match history.confirmed {
        ConfirmationScope::Yes => true,
        ConfirmationScope::WithChangeSet => job.holds_lanes,
        ConfirmationScope::No => false,
    };
    let reviewed = load(job, &history).await?;
    let from_bundle = reviewed.as_ref().is_some_and(|it| it.from_bundle);
    let is_agreed = was_confirmed
        || from_bundle && job.auto_approve
        || is_approved(job.run, &history, &approvals);
    let coverage = match reviewed {
        _ if !is_agreed => Coverage::NothingReviewed,
        _ if job.has_other_values.load(Ordering::Relaxed) => Coverage::Different {
            new: vec![OTHER_VALUES.to_owned()],
        },
        Some(reviewed) => reviewed.covers(&new),
        None => Coverage::Different { new: Vec::new() },
    };
    Ok(PlanComparison {
        coverage,
        history,
        was_confirmed,
        approvals,
        new: Some(new),
    })
}

impl PlanComparison {
    /// The time from which approvals count for the new plan; none if all approvals of its change set count.
    /// With `keeps`, approvals of the earlier plan count too, unless policies require one that was not known
    /// then.
    pub(super) fn approvals_since(
        &self,
        job: &StageJob<'_>,
        keeps: bool,
        said: &Verdict,
    ) -> Option<Timestamp> {
        if keeps && self.knew_of(job, said) {
            self.history.last.as_ref().and_then(|last| last.since)
        } else {
            Some(job.control.now())
        }
    }

    /// Whether all approvals that policies require were known when people agreed.
    pub(super) fn knew_of(&self, job: &StageJob<'_>, said: &Verdict) -> bool {
        let is_overridden = job.set.request.policy_override.is_some();
        is_overridden || said.approvals.iter().all(|it| self.history.knew_of(it))
    }

    /// Stores the plan for later comparisons. Returns its digest.
    pub(super) async fn keep(&self, job: &StageJob<'_>) -> Result<Option<String>, Failure> {
        let Some(new) = &self.new else {
            return Ok(None);
        };
        let failed = |err: &dyn std::error::Error| Failure::because("could not keep the plan", err);
        let plain = serde_json::to_vec(new).map_err(|err| failed(&err))?;
        let digest = sha256(&plain);
        let scope = KeyScope::State(job.control.state_name(&job.spec.stack.state));
        let path = job.control.home.plan_difference(job.run);
        let sealed = job
            .control
            .store
            .seal(scope, &purpose(job.run), plain)
            .await;
        let sealed = sealed.map_err(|err| failed(&err))?;
        // A crash leaves the old file or the new one.
        let temporary = path.with_extension("new");
        let written =
            write_private(&temporary, &sealed).and_then(|()| fs::rename(&temporary, &path));
        written.map_err(|err| failed(&err))?;
        Ok(Some(digest))
    }
}

/// Whether no user reviews plans. With `--auto-approve` and without approvals, plans are never compared.
fn is_unattended(job: &StageJob<'_>) -> bool {
    let others_approve = !job.set.request.approvals.is_empty() || job.spec.hears_approvals();
    job.auto_approve && !others_approve && !job.is_bundled()
}

async fn history(job: &StageJob<'_>) -> Result<ReviewHistory, Failure> {
    let events = job.control.store.run_events(job.run).await;
    let events = events.map_err(|err| Failure::because("could not read the run's events", &err))?;
    Ok(ReviewHistory::of(events.iter().map(|(_, event)| event)))
}

async fn read_difference(job: &StageJob<'_>, json: &[u8]) -> Result<Difference, Failure> {
    let digester = digester(job.control, job.run, job.spec, DigestPurpose::PlanValue).await;
    let digester = digester.map_err(|err| Failure::because("could not read the key", &err))?;
    let digest = |value: &serde_json::Value| digester.digest(value.to_string().as_bytes());
    let difference = model::plan::difference(json, job.spec.refresh_only, &digest);
    difference.map_err(|err| Failure::because("could not understand the plan", &err))
}

/// Whether the last plan was approved, by itself or with its change set.
fn is_approved(run: RunId, history: &ReviewHistory, approvals: &[Approval]) -> bool {
    let Some(last) = &history.last else {
        return false;
    };
    let is_about = |it: &Approval| {
        let is_newer = last.since.is_none_or(|since| it.at >= since);
        it.run.is_none_or(|about| about == run) && is_newer
    };
    approvals.iter().any(is_about)
}

/// The plan that people saw last, if it is the stored one. A plan that was stored but not recorded, because
/// its runner died in between, does not count.
async fn load(
    job: &StageJob<'_>,
    history: &ReviewHistory,
) -> Result<Option<ReviewedPlan>, Failure> {
    let Ok(sealed) = fs::read(job.control.home.plan_difference(job.run)) else {
        return Ok(None);
    };
    let scope = KeyScope::State(job.control.state_name(&job.spec.stack.state));
    let purpose = purpose(job.run);
    let plain = match job.control.store.unseal(scope, &purpose, sealed).await {
        Err(err) if err.is_unavailable() => {
            return Err(Failure::because("could not read the earlier plan", &err));
        }
        Err(_) => return Ok(None),
        Ok(plain) => plain,
    };
    let stored: Option<ReviewedPlan> = serde_json::from_slice(&plain).ok();
    let is_meant = |stored: &ReviewedPlan| match &history.last {
        Some(last) => last.digest.is_some() && last.digest == digest(stored),
        None => stored.from_bundle,
    };
    Ok(stored.filter(is_meant))
}

/// The digest of a stored plan. A plan from a bundle has the same digest as where the bundle was made.
fn digest(stored: &ReviewedPlan) -> Option<String> {
    let plain = serde_json::to_vec(&ReviewedPlan {
        from_bundle: false,
        ..stored.clone()
    });
    plain.ok().map(|plain| sha256(&plain))
}

/// The purpose for which the stored plan is sealed.
fn purpose(run: RunId) -> String {
    format!("plan-difference {run}")
}
