//! Decides whether a new plan is applied, needs a confirmation, or needs approvals. The decision is a pure function of
//! facts that the caller collects.
//!
//! Not here: which plans are equal (`plan::coverage`), who must approve (`approval`), collecting the facts (`control`).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{PlanRecord, Preview, RunEvent};
use crate::plan::coverage::Coverage;
use crate::policy::{PolicyPhase, RequiredApproval};

#[cfg(test)]
mod tests;

/// The facts about a new plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfirmationFacts {
    /// Only a plan was requested: nothing is applied.
    pub is_review: bool,
    /// The plan has no changes.
    pub is_empty: bool,
    /// `--auto-approve` was given for this apply.
    pub auto_approve: bool,
    /// The stack has `apply = "auto"`, and this is not a destroy.
    pub applies_by_itself: bool,
    /// The change set applies a bundle. `--auto-approve` then covers only what the bundle shows.
    pub is_bundled: bool,
    /// An apply of this run ended `unknown`, and no plan has been confirmed since.
    pub ended_unknown: bool,
    /// The stack is approved separately (`scope = "stack"`), so no earlier approval covers its new plan.
    pub has_own_approval: bool,
    /// How the plan compares with the last reviewed one.
    pub coverage: Coverage,
    /// The last reviewed plan was confirmed.
    pub was_confirmed: bool,
    /// Approvals that the project's `approval` blocks require are missing.
    pub lacks_approvals: bool,
    /// Approvals that policies require are missing.
    pub lacks_policy_approvals: bool,
}

/// What happens to a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// It is applied without a confirmation.
    ApplyNow,
    /// It is confirmed and is applied once the missing approvals are given.
    NeedsApprovals,
    /// A person has to confirm it.
    NeedsConfirmation(ConfirmationReason),
}

/// Why a person has to confirm. Stored in `run_event.body`: variants are only added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfirmationReason {
    /// Only a plan was requested.
    Review,
    /// The last apply of this run ended `unknown`.
    EndedUnknown,
    /// The plan was not confirmed yet, or could not be shown.
    NotConfirmed,
    /// A different plan was confirmed.
    Different,
    /// The stack is approved separately.
    OwnApproval,
    /// A policy requires an approval that was unknown at confirmation.
    PolicyApproval,
}

impl ConfirmationFacts {
    /// Whether the agreement to the earlier plan also covers this one.
    pub fn keeps_agreement(&self) -> bool {
        self.coverage == Coverage::Equal && !self.has_own_approval && !self.ended_unknown
    }

    /// Whether an equal plan was confirmed.
    pub fn is_confirmed(&self) -> bool {
        self.was_confirmed && self.keeps_agreement()
    }

    /// Whether `--auto-approve` or `apply = "auto"` covers the plan.
    fn is_automatic(&self) -> bool {
        let is_reviewed = !self.is_bundled || self.coverage == Coverage::Equal;
        self.applies_by_itself || self.auto_approve && is_reviewed
    }

    fn reason(&self) -> ConfirmationReason {
        if self.is_confirmed() {
            ConfirmationReason::PolicyApproval
        } else if matches!(self.coverage, Coverage::Different { .. }) {
            ConfirmationReason::Different
        } else if self.has_own_approval {
            ConfirmationReason::OwnApproval
        } else {
            ConfirmationReason::NotConfirmed
        }
    }
}

/// Decides what happens to a plan.
pub fn decide(facts: &ConfirmationFacts) -> Confirmation {
    if facts.is_review {
        return Confirmation::NeedsConfirmation(ConfirmationReason::Review);
    }
    if facts.is_empty {
        return Confirmation::ApplyNow;
    }
    if facts.ended_unknown {
        return Confirmation::NeedsConfirmation(ConfirmationReason::EndedUnknown);
    }
    // The confirmation does not cover an approval that a policy requires only now.
    let is_confirmed = facts.is_confirmed() && !facts.lacks_policy_approvals;
    if !is_confirmed && !facts.is_automatic() {
        return Confirmation::NeedsConfirmation(facts.reason());
    }
    if facts.lacks_approvals || facts.lacks_policy_approvals {
        return Confirmation::NeedsApprovals;
    }
    Confirmation::ApplyNow
}

impl Confirmation {
    /// Whether the plan needs no confirmation.
    pub fn is_confirmed(self) -> bool {
        match self {
            Self::ApplyNow | Self::NeedsApprovals => true,
            Self::NeedsConfirmation(_) => false,
        }
    }

    /// Why a person has to confirm; none if no confirmation is needed.
    pub fn reason(self) -> Option<ConfirmationReason> {
        match self {
            Self::ApplyNow | Self::NeedsApprovals => None,
            Self::NeedsConfirmation(reason) => Some(reason),
        }
    }
}

/// What people have seen and confirmed of a run, read from its events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReviewHistory {
    /// The last plan or preview that was shown.
    pub last: Option<LastReview>,
    pub confirmed: ConfirmationScope,
    /// An apply ended `unknown`, and no plan has been confirmed since.
    pub ended_unknown: bool,
}

/// The last plan or preview that was shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastReview {
    /// Digest of its stored form.
    pub digest: Option<String>,
    /// Approvals count from this time on. None: all approvals of the change set count.
    pub since: Option<Timestamp>,
    /// The approvals that policies were known to require.
    pub required: Vec<RequiredApproval>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConfirmationScope {
    #[default]
    No,
    /// It is a preview; confirming the change set confirms it.
    WithChangeSet,
    Yes,
}

impl ReviewHistory {
    /// Reads the events of a run, oldest first.
    pub fn of<'a>(events: impl IntoIterator<Item = &'a RunEvent>) -> Self {
        let mut history = Self::default();
        let mut is_applying = false;
        for event in events {
            match event {
                RunEvent::PlanFinished {
                    plan,
                    confirmed,
                    is_equal,
                    ..
                } => {
                    // A confirmation also covers an equal plan.
                    let is_carried = *confirmed && *is_equal == Some(true);
                    history.show(
                        plan,
                        if is_carried {
                            ConfirmationScope::Yes
                        } else {
                            ConfirmationScope::No
                        },
                    );
                }
                RunEvent::Previewed { preview, .. } => match preview {
                    Preview::Planned { plan } => {
                        history.show(plan, ConfirmationScope::WithChangeSet);
                    }
                    Preview::None | Preview::Unchanged | Preview::Impossible { .. } => {
                        history.forget();
                    }
                },
                RunEvent::PolicyAsked {
                    at: PolicyPhase::Approval,
                    said,
                    ..
                } => history.require(&said.approvals),
                RunEvent::ApplyPutOff { said } => {
                    is_applying = false;
                    history.require(&said.approvals);
                }
                RunEvent::Confirmed => {
                    history.confirmed = ConfirmationScope::Yes;
                    history.ended_unknown = false;
                }
                RunEvent::ApplyStarted => is_applying = true,
                RunEvent::RunnerLost { .. } if is_applying => {
                    is_applying = false;
                    history.forget();
                    history.ended_unknown = true;
                }
                RunEvent::ApplyFinished { .. } | RunEvent::NothingToChange { .. } => {
                    is_applying = false;
                    history = Self::default();
                }
                RunEvent::PlanVoided { .. } | RunEvent::Failed { .. } => is_applying = false,
                // A resume requires a new confirmation. Approvals stay valid.
                RunEvent::Reopened { .. } => history.confirmed = ConfirmationScope::No,
                RunEvent::PolicyAsked { .. }
                | RunEvent::PlanStarted
                | RunEvent::PreviewStarted { .. }
                | RunEvent::NothingConsumed { .. }
                | RunEvent::Deferred { .. }
                | RunEvent::StageStarted { .. }
                | RunEvent::StageFinished { .. }
                | RunEvent::Skipped { .. }
                | RunEvent::RunnerLost { .. }
                | RunEvent::CancelAsked { .. } => {}
            }
        }
        history
    }

    /// Whether this requirement was already known when people agreed.
    pub fn knew_of(&self, required: &RequiredApproval) -> bool {
        let mut known = self.last.iter().flat_map(|last| &last.required);
        known.any(|known| known == required)
    }

    fn show(&mut self, plan: &PlanRecord, confirmed: ConfirmationScope) {
        self.last = Some(LastReview {
            digest: plan.difference.clone(),
            since: plan.since,
            required: plan.required().cloned().collect(),
        });
        self.confirmed = confirmed;
    }

    fn forget(&mut self) {
        self.last = None;
        self.confirmed = ConfirmationScope::No;
    }

    fn require(&mut self, approvals: &[RequiredApproval]) {
        if let Some(last) = &mut self.last {
            last.required.extend_from_slice(approvals);
        }
    }
}
