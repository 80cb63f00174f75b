//! Determines by a policy's package which rules have a meaning.

use serde::{Deserialize, Serialize};

/// The conventions that a policy follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// `package terrane` and what is below it.
    Terrane,
    /// `package spacelift`: plan and approval policies.
    Spacelift,
    /// `package main`: conftest.
    Conftest,
}

/// A rule whose value is an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleKind {
    Deny,
    Warn,
    RequireApproval,
    /// conftest's synonym for a denial.
    Violation,
    /// Spacelift: whether the reviews so far are sufficient.
    Approve,
    /// Spacelift: whether a review has rejected it.
    Reject,
}

impl Dialect {
    /// By the components of the package name.
    pub fn of(package: &[String]) -> Option<Self> {
        let parts: Vec<&str> = package.iter().map(String::as_str).collect();
        match parts.as_slice() {
            ["terrane", ..] => Some(Self::Terrane),
            ["spacelift"] => Some(Self::Spacelift),
            ["main"] => Some(Self::Conftest),
            _ => None,
        }
    }

    /// The rules that are evaluated. Spacelift's `sample`, `track` and similar rules are not answers.
    pub fn rules(self) -> &'static [RuleKind] {
        match self {
            Self::Terrane => &[RuleKind::Deny, RuleKind::Warn, RuleKind::RequireApproval],
            Self::Spacelift => &[
                RuleKind::Deny,
                RuleKind::Warn,
                RuleKind::Reject,
                RuleKind::Approve,
            ],
            Self::Conftest => &[RuleKind::Deny, RuleKind::Violation, RuleKind::Warn],
        }
    }
}

impl RuleKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Warn => "warn",
            Self::RequireApproval => "require_approval",
            Self::Violation => "violation",
            Self::Approve => "approve",
            Self::Reject => "reject",
        }
    }
}
