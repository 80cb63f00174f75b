//! Metadata of a plan, and the policy verdicts on it.
//!
//! Not here: the plan as people see it (`plan`), what it was made from (`seal`).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::plan::PlanCounts;
use crate::policy::{PolicyPhase, Remark, RequiredApproval, Verdict};
use crate::run::seal::Seal;

/// Metadata of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRecord {
    pub counts: PlanCounts,
    /// The plan destroys existing resources.
    pub destroys: bool,
    /// Outputs that will change. Dependents that consume one of them are deferred.
    pub outputs: BTreeSet<String>,
    pub seal: Box<Seal>,
    /// Made in another slot than the one that applies use. It can be reviewed, but is planned again at apply.
    pub preview: bool,
    /// The policy verdict at plan time.
    #[serde(default)]
    pub policy: Verdict,
    /// The latest verdicts of later evaluations (at confirmation and before the apply), with all warnings so far.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub policy_since: BTreeMap<PolicyPhase, Verdict>,
    /// Approvals count for this plan from this time on. None: the plan came with a bundle, and all approvals of the
    /// change set count.
    #[serde(default)]
    pub since: Option<Timestamp>,
    /// Digest of its difference, which is stored beside the run. An approval covers this difference.
    #[serde(rename = "sight", default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<String>,
    /// Keyed digest of the values that the plan takes from other stacks.
    #[serde(default)]
    pub consumed: Option<String>,
    /// Keyed digests of the states of its `order` upstreams at plan time. None in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub came_after: Option<BTreeMap<String, String>>,
}

impl PlanRecord {
    /// Whether the apply may leave the state without resources.
    pub fn may_empty(&self) -> bool {
        self.destroys || self.counts.forget > 0
    }

    /// The approvals that policies require for the plan, and for confirming it at the last evaluation.
    pub fn wanted(&self) -> impl Iterator<Item = &RequiredApproval> {
        let of_plan = &self.policy.approvals;
        let of_yes = self.policy_since.get(&PolicyPhase::Approval);
        let of_yes = of_yes.map_or(&[][..], |said| &said.approvals);
        let kept = of_plan.iter().filter(|it| !it.is_less_than_any(of_yes));
        kept.chain(of_yes.iter().filter(|it| !of_plan.contains(it)))
    }

    /// All approvals that policies have required so far. Everyone who views the plan sees them.
    pub fn required(&self) -> impl Iterator<Item = &RequiredApproval> {
        let of_yes = self.policy_since.get(&PolicyPhase::Approval);
        let of_yes = of_yes.map_or(&[][..], |said| &said.approvals);
        self.policy.approvals.iter().chain(of_yes)
    }

    /// The combined policy verdict, without denials of a confirmation.
    pub(super) fn verdict(&self) -> Verdict {
        let mut verdict = Verdict {
            approvals: self.wanted().cloned().collect(),
            warnings: self.warnings(),
            ..self.policy.clone()
        };
        for said in self.policy_since.values() {
            let new = said
                .asked
                .iter()
                .filter(|it| !self.policy.asked.contains(it));
            verdict.asked.extend(new.cloned());
        }
        verdict
    }

    /// Whether the verdict contains anything new.
    pub fn is_news(&self, at: PolicyPhase, said: &Verdict) -> bool {
        let known = &self.policy;
        match self.policy_since.get(&at) {
            Some(before) => {
                let but_for_warnings = |it: &Verdict| Verdict {
                    warnings: Vec::new(),
                    ..it.clone()
                };
                but_for_warnings(before) != but_for_warnings(said)
                    || said.warnings.iter().any(|it| !before.warnings.contains(it))
            }
            None => {
                said.denies()
                    || said
                        .approvals
                        .iter()
                        .any(|it| !known.approvals.contains(it))
                    || said.warnings.iter().any(|it| !known.warnings.contains(it))
            }
        }
    }

    /// Adds a new policy verdict. Earlier warnings stay.
    pub(super) fn heard(&self, at: PolicyPhase, mut said: Verdict) -> Self {
        let mut plan = self.clone();
        if let Some(before) = plan.policy_since.remove(&at) {
            let new = std::mem::replace(&mut said.warnings, before.warnings);
            let new = new.into_iter();
            let new: Vec<Remark> = new.filter(|it| !said.warnings.contains(it)).collect();
            said.warnings.extend(new);
        }
        plan.policy_since.insert(at, said);
        plan
    }

    /// All policy warnings, without duplicates.
    pub fn warnings(&self) -> Vec<Remark> {
        let since = self.policy_since.values().flat_map(|said| &said.warnings);
        let mut all: Vec<Remark> = Vec::new();
        for warning in self.policy.warnings.iter().chain(since) {
            if !all.contains(warning) {
                all.push(warning.clone());
            }
        }
        all
    }
}
