//! What policies are and what they say: where they are asked, what they are shown, and what their answers
//! come to.
//!
//! Not here: the language they are written in (`drivers::rego`), when they are asked (`control::policy`).

mod answer;
mod dialect;
mod input;
mod redact;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

pub use answer::{Answer, AnswerError, Mentions};
pub use dialect::{Dialect, Rule};
pub use input::{
    Actor, Approval, Document, RunFacts, SourceFacts, StackFacts, TimeFacts, UpstreamFacts,
};
pub use redact::redact;

use crate::ids::StackName;

/// When policies are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Point {
    /// A plan was made.
    Plan,
    /// Somebody approves or confirms it.
    Approval,
    /// It is about to be applied.
    Apply,
}

impl Point {
    pub const ALL: [Self; 3] = [Self::Plan, Self::Approval, Self::Apply];
    /// As they are written in the project file.
    pub const WORDS: &'static [&'static str] = &["plan", "approval", "apply"];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Approval => "approval",
            Self::Apply => "apply",
        }
    }
}

/// A `policy` block of the project file, with what its files hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub name: String,
    pub sources: Vec<PolicySource>,
    pub at: BTreeSet<Point>,
    /// Otherwise what it denies is only a warning.
    pub enforce: bool,
    /// As they are written; none: it applies to every stack.
    pub selectors: Option<Vec<String>>,
    /// The stacks it applies to.
    pub stacks: BTreeSet<StackName>,
    /// Its files are in the source that is planned; not so where that is of another commit.
    pub is_of_source: bool,
    pub declared_at: crate::diagnostic::Location,
}

/// One Rego file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicySource {
    /// Relative to the project's root.
    pub path: String,
    pub text: String,
}

/// A policy that applies to a run, by the digests of its files: what was planned with is what is checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedPolicy {
    pub name: String,
    pub at: BTreeSet<Point>,
    pub enforce: bool,
    pub files: Vec<AppliedFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedFile {
    pub path: String,
    /// SHA-256 in hex of its text.
    pub digest: String,
    /// If it is not in the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// What all policies of a run said at one point.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The policies that were asked.
    #[serde(default)]
    pub asked: Vec<String>,
    #[serde(default)]
    pub denials: Vec<Remark>,
    #[serde(default)]
    pub warnings: Vec<Remark>,
    #[serde(default)]
    pub approvals: Vec<Requirement>,
    /// Answers beyond what is kept.
    #[serde(default)]
    pub left_off: usize,
}

/// One answer of a policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Remark {
    pub policy: String,
    /// The rule that said it, such as `deny`.
    pub rule: String,
    pub message: String,
    /// The address it is about, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
}

/// Approvals that a policy wants before the apply.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Requirement {
    #[serde(flatten)]
    pub remark: Remark,
    pub count: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
}

impl Verdict {
    /// Nobody has anything to say.
    pub fn is_silent(&self) -> bool {
        self.denials.is_empty() && self.warnings.is_empty() && self.approvals.is_empty()
    }

    pub fn denies(&self) -> bool {
        !self.denials.is_empty()
    }

    /// Whether all that it denies is what approvals would permit.
    pub fn lacks_only_approvals(&self) -> bool {
        let permitted = [Rule::RequireApproval, Rule::Approve];
        let is_permitted = |it: &Remark| permitted.iter().any(|rule| rule.as_str() == it.rule);
        self.denies() && self.denials.iter().all(is_permitted)
    }

    /// Adds what is wanted, once.
    pub fn want(&mut self, wanted: Requirement) {
        if !self.approvals.contains(&wanted) {
            self.approvals.push(wanted);
        }
    }

    /// Adds what one policy answered. Of one that is not enforced, everything is a warning.
    pub fn add(&mut self, policy: &str, enforce: bool, answers: Vec<Answer>, left_off: usize) {
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
                Rule::Warn => self.warnings.push(remark),
                Rule::Deny | Rule::Violation | Rule::Reject if enforce => self.denials.push(remark),
                Rule::RequireApproval | Rule::Approve if enforce => {
                    self.approvals.push(Requirement {
                        remark,
                        count: answer.count,
                        role: answer.role,
                    });
                }
                Rule::Deny
                | Rule::Violation
                | Rule::Reject
                | Rule::RequireApproval
                | Rule::Approve => self.warnings.push(Remark {
                    message: format!("{} (not enforced)", remark.message),
                    ..remark
                }),
            }
        }
        self.bound();
    }

    /// A thousand warnings are as good as a hundred, and are stored with every run.
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

impl Requirement {
    /// Whether the same policy wants the same of more people.
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
    /// `` `x`: message (resource)``; a rule that is not one of the usual is named, too.
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
