//! Identifies the plans that are ready for approval, so that an approver can name the ones they reviewed.

use jiff::Timestamp;

use super::plan_since;
use crate::base::ids::RunId;
use crate::plan::PlanCounts;
use crate::run::seal::Seal;
use crate::run::{PlanRecord, Preview, Run, RunState};

/// The plans and previews that an approval covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalSubject {
    /// Differs if a plan was made from other inputs, or is not equal to the plan reviewed before.
    pub mark: String,
    pub counts: PlanCounts,
    pub stacks: usize,
    /// The time of the newest plan that no earlier approval can cover.
    pub since: Option<Timestamp>,
}

/// For all runs of a change set, or for one that is approved separately. None if no plan is ready.
pub fn shown(runs: &[Run], about: Option<RunId>) -> Option<ApprovalSubject> {
    let mut counts = PlanCounts::default();
    let (mut stacks, mut since) = (0, None);
    let mut mark = Fnv1a::default();
    for run in runs
        .iter()
        .filter(|run| about.is_none_or(|id| id == run.id))
    {
        let Some(plan) = plan_of(run) else {
            continue;
        };
        counts = counts.plus(plan.counts);
        stacks += 1;
        let made = plan_since(run);
        since = since.max(made);
        mark.add_number(run.id.0);
        mark.add_number(made.map_or(0, Timestamp::as_microsecond));
        mark.add_seal(&plan.seal);
    }
    (stacks > 0).then(|| ApprovalSubject {
        mark: mark.words(),
        counts,
        stacks,
        since,
    })
}

fn plan_of(run: &Run) -> Option<&PlanRecord> {
    match &run.state {
        RunState::Planned { plan, .. } => Some(plan),
        RunState::Deferred {
            preview: Preview::Planned { plan },
            ..
        } => Some(plan),
        RunState::Deferred { .. }
        | RunState::Queued
        | RunState::Planning { .. }
        | RunState::Applying { .. }
        | RunState::Applied { .. }
        | RunState::Completing { .. }
        | RunState::Finished { .. } => None,
    }
}

/// FNV-1a. It only distinguishes successive plans and is not a security measure.
struct Fnv1a(u64);

impl Default for Fnv1a {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv1a {
    fn add_number(&mut self, number: i64) {
        self.add(&number.to_le_bytes());
    }

    /// Adds what the plan was made from.
    fn add_seal(&mut self, seal: &Seal) {
        self.add(seal.source.as_bytes());
        self.add(seal.inputs.as_bytes());
        let head = seal.head.as_ref();
        self.add_number(head.map_or(-1, |head| head.version));
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn words(&self) -> String {
        format!("{:016x}", self.0)
    }
}
