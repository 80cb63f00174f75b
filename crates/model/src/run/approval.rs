//! Which approvals an apply requires, which were given, and which are missing.
//!
//! Not here: what a confirmation does (`changeset::apply_command`), how people are identified (`control`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::base::actor::Actor;
use crate::base::ids::{ChangeSetId, RunId, StackName};
use crate::policy;
use crate::project::{ApprovalRule, ApprovalScope};
use crate::run::changeset::ChangeSet;
use crate::run::{Outcome, Preview, Run, RunState};

mod follow_up;
mod subject;

pub use follow_up::{AfterApproval, ConfirmPlace, FollowUp};
pub use subject::{ApprovalSubject, shown};

/// A rule, and the stacks of a change set that it applies to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRequirement {
    /// What requires it: ``target `azure` ``, ``stack `k8s-prod` ``, ``policy `stateful` ``.
    pub by: String,
    pub rule: ApprovalRule,
    pub stacks: BTreeSet<StackName>,
}

/// A person's approval. A rejection ends the change set or run at once and is not recorded here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    pub change_set: ChangeSetId,
    /// Set if it is for a single stack.
    pub run: Option<RunId>,
    pub person: Actor,
    /// As claimed, unless `verified`.
    pub role: Option<String>,
    pub verified: bool,
    pub comment: Option<String>,
    pub at: Timestamp,
}

/// A missing approval that blocks an apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingApproval {
    pub by: String,
    pub rule: ApprovalRule,
    /// The run, if the approval is for a single stack.
    pub run: Option<RunId>,
    pub stacks: Vec<StackName>,
    /// No run of the change set starts without it.
    pub is_for_all: bool,
    pub given: u32,
    /// Approvals that were given but do not count, with the reason.
    pub not_counted: Vec<UncountedApproval>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UncountedApproval {
    pub person: Actor,
    pub because: UncountedReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UncountedReason {
    IsAuthor,
    OtherRole,
    Expired,
    /// A new plan was made since, and it differs from the approved one.
    OtherPlan,
}

impl UncountedReason {
    pub fn words(self) -> &'static str {
        match self {
            Self::IsAuthor => "asked for it",
            Self::OtherRole => "has another role",
            Self::Expired => "said so too long ago",
            Self::OtherPlan => "approved another plan",
        }
    }
}

/// All approvals that are missing for the plans of a change set that are ready. Approvals for the whole change set are
/// required before anything starts, and also cover previews. After the start they only concern their own stacks.
pub fn missing_approvals(
    set: &ChangeSet,
    runs: &[Run],
    approvals: &[Approval],
    now: Timestamp,
) -> Vec<MissingApproval> {
    let ready: BTreeMap<&StackName, &Run> = runs
        .iter()
        .filter(|run| matches!(run.state, RunState::Planned { .. }))
        .map(|run| (&run.stack, run))
        .collect();
    let mut missing = Vec::new();
    let is_begun = runs.iter().any(has_begun);
    let wanted = set.request.approvals.iter().map(|one| (one, !is_begun));
    let by_policy = by_policy(set, &ready);
    let by_policy = by_policy.iter().map(|one| (one, false));
    for (requirement, is_for_all) in wanted.chain(by_policy) {
        let covered: Vec<&Run> = requirement
            .stacks
            .iter()
            .filter_map(|stack| ready.get(stack).copied())
            .collect();
        match requirement.rule.scope {
            ApprovalScope::Stack => {
                for run in covered {
                    missing.extend(count(
                        set,
                        requirement,
                        Some(run.id),
                        &[run],
                        approvals,
                        now,
                    ));
                }
            }
            ApprovalScope::ChangeSet if covered.is_empty() && !is_for_all => {}
            ApprovalScope::ChangeSet => {
                // An approval of the change set also covers previews.
                let previewed = runs.iter().filter(|run| {
                    matches!(run.state, RunState::Deferred { .. })
                        && requirement.stacks.contains(&run.stack)
                });
                let covered: Vec<&Run> = covered.into_iter().chain(previewed).collect();
                if covered.is_empty() {
                    continue;
                }
                let one = count(set, requirement, None, &covered, approvals, now);
                missing.extend(one.map(|one| MissingApproval { is_for_all, ..one }));
            }
        }
    }
    missing
}

/// Whether an engine has changed something for this run.
fn has_begun(run: &Run) -> bool {
    match &run.state {
        RunState::Applying { .. } => true,
        RunState::Applied { outcome, .. } | RunState::Completing { outcome, .. } => {
            is_change(outcome)
        }
        RunState::Finished { outcome, .. } => is_change(outcome),
        RunState::Queued
        | RunState::Planning { .. }
        | RunState::Deferred { .. }
        | RunState::Planned { .. } => false,
    }
}

fn is_change(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Applied { .. } | Outcome::Unknown { .. } => true,
        Outcome::NotDone { done, .. } => is_change(done),
        Outcome::Planned { .. }
        | Outcome::Deferred { .. }
        | Outcome::Unchanged
        | Outcome::Untouched
        | Outcome::Failed { .. }
        | Outcome::Skipped { .. } => false,
    }
}

/// The approvals that policies require for the plans that are ready, unless the policies are overridden.
fn by_policy(set: &ChangeSet, ready: &BTreeMap<&StackName, &Run>) -> Vec<ApprovalRequirement> {
    if set.request.policy_override.is_some() {
        return Vec::new();
    }
    let wanted = ready.values().flat_map(|run| {
        let wanted = run.state.wanted().into_iter();
        wanted.map(|wanted| of_policy(wanted, run))
    });
    wanted.collect()
}

fn of_policy(wanted: &policy::RequiredApproval, run: &Run) -> ApprovalRequirement {
    ApprovalRequirement {
        by: format!("policy `{}`", wanted.remark.policy),
        rule: ApprovalRule {
            count: wanted.count,
            role: wanted.role.clone(),
            author: false,
            expires: None,
            scope: ApprovalScope::ChangeSet,
        },
        stacks: BTreeSet::from([run.stack.clone()]),
    }
}

/// The approvals that policies require for one run and that are missing, from all evaluation points.
pub fn missing_policy_approvals(
    set: &ChangeSet,
    run: &Run,
    wanted: &policy::RequiredApproval,
    approvals: &[Approval],
    now: Timestamp,
) -> Option<MissingApproval> {
    count(set, &of_policy(wanted, run), None, &[run], approvals, now)
}

/// Whether approvals that the project requires are missing for a new plan of a run. Approvals given before `since` are
/// for another plan.
pub fn lacks_rule_approvals(
    set: &ChangeSet,
    (run, stack): (RunId, &StackName),
    since: Option<Timestamp>,
    approvals: &[Approval],
    now: Timestamp,
) -> bool {
    let rules = set.request.approvals.iter();
    rules.filter(|it| it.stacks.contains(stack)).any(|it| {
        let about = match it.rule.scope {
            ApprovalScope::Stack => Some(run),
            ApprovalScope::ChangeSet => None,
        };
        heard(set, &it.rule, about, since, approvals, now).0 < it.rule.count
    })
}

/// Whether no approval is missing for one run.
pub(crate) fn is_free(missing: &[MissingApproval], run: &Run) -> bool {
    !missing.iter().any(|one| one.blocks(run))
}

fn count(
    set: &ChangeSet,
    requirement: &ApprovalRequirement,
    about: Option<RunId>,
    covered: &[&Run],
    approvals: &[Approval],
    now: Timestamp,
) -> Option<MissingApproval> {
    let rule = &requirement.rule;
    // A new plan of one run does not invalidate the approvals of others.
    let lacks =
        |run: &&&Run| heard(set, rule, about, plan_since(run), approvals, now).0 < rule.count;
    let lacking: Vec<&Run> = covered.iter().filter(lacks).copied().collect();
    if lacking.is_empty() {
        return None;
    }
    let made = lacking.iter().filter_map(|run| plan_since(run)).max();
    let (given, not_counted) = heard(set, rule, about, made, approvals, now);
    (given < rule.count).then(|| MissingApproval {
        by: requirement.by.clone(),
        rule: rule.clone(),
        run: about,
        stacks: lacking.iter().map(|run| run.stack.clone()).collect(),
        is_for_all: false,
        given,
        not_counted,
    })
}

/// Counts the valid approvals for a plan made at a given time, and lists the others with the reason.
fn heard(
    set: &ChangeSet,
    rule: &ApprovalRule,
    about: Option<RunId>,
    made: Option<Timestamp>,
    approvals: &[Approval],
    now: Timestamp,
) -> (u32, Vec<UncountedApproval>) {
    let mut people = BTreeSet::new();
    let mut not_counted = Vec::new();
    for approval in approvals.iter().filter(|one| one.run == about) {
        let because = if made.is_some_and(|made| approval.at < made) {
            Some(UncountedReason::OtherPlan)
        } else if rule
            .expires
            .is_some_and(|term| is_past(approval.at, term, now))
        {
            Some(UncountedReason::Expired)
        } else if !rule.author && set.request.is_author(&approval.person.name) {
            Some(UncountedReason::IsAuthor)
        } else if rule.role.is_some() && rule.role != approval.role {
            Some(UncountedReason::OtherRole)
        } else {
            None
        };
        match because {
            None => {
                people.insert(&approval.person.name);
            }
            Some(because) => {
                let one = UncountedApproval {
                    person: approval.person.clone(),
                    because,
                };
                if !not_counted.contains(&one) {
                    not_counted.push(one);
                }
            }
        }
    }
    not_counted.retain(|one| !people.contains(&one.person.name));
    let given = u32::try_from(people.len()).unwrap_or(u32::MAX);
    (given, not_counted)
}

/// The time from which on approvals count for the current plan.
fn plan_since(run: &Run) -> Option<Timestamp> {
    match &run.state {
        RunState::Planned { plan, .. } | RunState::Applying { plan, .. } => plan.since,
        RunState::Deferred {
            preview: Preview::Planned { plan },
            ..
        } => plan.since,
        RunState::Queued
        | RunState::Planning { .. }
        | RunState::Deferred { .. }
        | RunState::Applied { .. }
        | RunState::Completing { .. }
        | RunState::Finished { .. } => None,
    }
}

fn is_past(at: Timestamp, term: Duration, now: Timestamp) -> bool {
    // A time beyond the representable range has not come.
    at.checked_add(term).is_ok_and(|end| end <= now)
}

impl MissingApproval {
    /// Whether this missing approval blocks a run.
    pub fn blocks(&self, run: &Run) -> bool {
        self.is_for_all || self.stacks.contains(&run.stack)
    }

    /// The command that gives this approval.
    pub fn command(&self, set: ChangeSetId) -> String {
        let what = self
            .run
            .map_or_else(|| set.to_string(), |run| run.to_string());
        match &self.rule.role {
            Some(role) => format!("terrane run approve {what} --role {role}"),
            None => format!("terrane run approve {what}"),
        }
    }

    /// ``1 of 2 approvals; role `approver`, not the author``
    pub fn words(&self) -> String {
        let mut words = format!(
            "{} of {} approval{}",
            self.given,
            self.rule.count,
            if self.rule.count == 1 { "" } else { "s" }
        );
        let mut terms = Vec::new();
        if let Some(role) = &self.rule.role {
            terms.push(format!("role `{role}`"));
        }
        if !self.rule.author {
            terms.push("not the author".to_owned());
        }
        if !terms.is_empty() {
            words = format!("{words}; {}", terms.join(", "));
        }
        for one in &self.not_counted {
            words = format!("{words}; `{}` {}", one.person, one.because.words());
        }
        words
    }
}

#[cfg(test)]
mod tests;
