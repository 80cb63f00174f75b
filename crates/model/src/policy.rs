//! Policies: when they are evaluated, their input, and their verdicts.
//!
//! Not here: the language (`drivers::rego`), evaluating them (`control::policy`).

mod dialect;
mod input;
mod redact;
mod rule_result;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

pub use dialect::{Dialect, RuleKind};
pub use input::{
    ActorFacts, ApprovalFacts, PolicyInput, RunFacts, SourceFacts, StackFacts, TimeFacts,
    UpstreamFacts,
};
pub use redact::redact;
pub use rule_result::{AddressFinder, RuleResult, RuleResultError};

use crate::base::ids::StackName;

/// When policies are evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyPhase {
    /// After planning.
    Plan,
    /// At an approval or a confirmation.
    Approval,
    /// Before the apply.
    Apply,
}

impl PolicyPhase {
    pub const ALL: [Self; 3] = [Self::Plan, Self::Approval, Self::Apply];
    /// As written in the project file.
    pub const WORDS: &'static [&'static str] = &["plan", "approval", "apply"];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Approval => "approval",
            Self::Apply => "apply",
        }
    }
}

/// A `policy` block of the project file, with the contents of its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub name: String,
    pub sources: Vec<PolicySource>,
    pub at: BTreeSet<PolicyPhase>,
    /// If false, its denials are only warnings.
    pub enforce: bool,
    /// As written; none: it applies to every stack.
    pub selectors: Option<Vec<String>>,
    /// The stacks to which it applies.
    pub stacks: BTreeSet<StackName>,
    /// Whether its files are in the planned source. False if they come from another commit.
    pub is_of_source: bool,
    pub declared_at: crate::base::diagnostic::Location,
}

/// One Rego file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicySource {
    /// Relative to the project's root.
    pub path: String,
    pub text: String,
}

/// A policy that applies to a run, with the digests of its files, so that checks use the same version as the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedPolicy {
    pub name: String,
    pub at: BTreeSet<PolicyPhase>,
    pub enforce: bool,
    pub files: Vec<AppliedFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedFile {
    pub path: String,
    /// SHA-256 in hex of its text.
    pub digest: String,
    /// Set if it is not in the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// The combined result of all policies of a run at one point.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The policies that were evaluated.
    #[serde(default)]
    pub asked: Vec<String>,
    #[serde(default)]
    pub denials: Vec<Remark>,
    #[serde(default)]
    pub warnings: Vec<Remark>,
    #[serde(default)]
    pub approvals: Vec<RequiredApproval>,
    /// The number of answers beyond the limit.
    #[serde(default)]
    pub left_off: usize,
}

/// One answer of a policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Remark {
    pub policy: String,
    /// The rule, such as `deny`.
    pub rule: String,
    pub message: String,
    /// The address concerned, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
}

/// Approvals that a policy requires before the apply.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RequiredApproval {
    #[serde(flatten)]
    pub remark: Remark,
    pub count: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
}

impl Verdict {
    /// Whether no policy reported anything.
    pub fn is_silent(&self) -> bool {
        self.denials.is_empty() && self.warnings.is_empty() && self.approvals.is_empty()
    }

    pub fn denies(&self) -> bool {
        !self.denials.is_empty()
    }

    /// Whether approvals would permit everything that is denied.
    pub fn lacks_only_approvals(&self) -> bool {
        let permitted = [RuleKind::RequireApproval, RuleKind::Approve];
        let is_permitted = |it: &Remark| permitted.iter().any(|rule| rule.as_str() == it.rule);
        self.denies() && self.denials.iter().all(is_permitted)
    }

    /// Adds a requirement, unless it is already there.
    pub fn want(&mut self, wanted: RequiredApproval) {
        if !self.approvals.contains(&wanted) {
            self.approvals.push(wanted);
        }
    }

    /// Adds the answers of one policy. If the policy is not enforced, all of them are warnings.
    pub fn add(&mut self, policy: &str, enforce: bool, answers: Vec<RuleResult>, left_off: usize) {
        self.asked.push(policy.to_owned());
        self.left_off += left_off;
        for answer in answers {
            let remark = Remark {
                policy: policy.to_owned(),
                rule: answer.rule.as_str().to_owned(),
                message: answer.message,
                resource: answer.resource,
            };
            match answer.rule {
                RuleKind::Warn => self.warnings.push(remark),
                RuleKind::Deny | RuleKind::Violation | RuleKind::Reject if enforce => {
                    self.denials.push(remark);
                }
                RuleKind::RequireApproval | RuleKind::Approve if enforce => {
                    self.approvals.push(RequiredApproval {
                        remark,
                        count: answer.count,
                        role: answer.role,
                    });
                }
                RuleKind::Deny
                | RuleKind::Violation
                | RuleKind::Reject
                | RuleKind::RequireApproval
                | RuleKind::Approve => self.warnings.push(Remark {
                    message: format!("{} (not enforced)", remark.message),
                    ..remark
                }),
            }
        }
        self.bound();
    }

    /// Limits the number of answers, since they are stored with every run.
    fn bound(&mut self) {
        const MOST: usize = 100;
        for remarks in [&mut self.denials, &mut self.warnings] {
            self.left_off += remarks.len().saturating_sub(MOST);
            remarks.truncate(MOST);
        }
        self.left_off += self.approvals.len().saturating_sub(MOST);
        self.approvals.truncate(MOST);
    }
}

impl RequiredApproval {
    /// Whether one of `others` has the same policy and role and requires more approvals.
    pub(crate) fn is_less_than_any(&self, others: &[Self]) -> bool {
        others.iter().any(|other| {
            let is_alike = other.remark.policy == self.remark.policy && other.role == self.role;
            is_alike && other.count > self.count
        })
    }

    /// ``2 approvals by role `approver` ``
    pub fn wants(&self) -> String {
        let noun = if self.count == 1 {
            "approval"
        } else {
            "approvals"
        };
        match &self.role {
            Some(role) => format!("{} {noun} by role `{role}`", self.count),
            None => format!("{} {noun}", self.count),
        }
    }
}

impl std::fmt::Display for Remark {
    /// `` `x`: message (resource)``. Unusual rules are named too.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}`", self.policy)?;
        if !matches!(self.rule.as_str(), "deny" | "warn") {
            write!(f, ", rule `{}`", self.rule)?;
        }
        write!(f, ": {}", self.message)?;
        match &self.resource {
            Some(resource) if !self.message.contains(resource.as_str()) => {
                write!(f, " ({resource})")
            }
            _ => Ok(()),
        }
    }
}
