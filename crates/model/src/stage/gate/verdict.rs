//! The results of a gate's checks.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Evidence;

/// One check: its evidence and its verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckResult {
    pub verdict: GateVerdict,
    pub evidence: Option<Evidence>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum GateVerdict {
    Passed,
    /// The requirement is not met.
    Failed {
        misses: Vec<GateMismatch>,
    },
    /// The check itself could not be executed, so the result is unknown.
    CannotLook {
        why: String,
    },
    /// Not checked: a person skipped it as an emergency.
    Skipped {
        by: String,
        reason: String,
    },
    /// Not checked, because this gate did not pass.
    NotTried {
        after: String,
    },
}

/// Expected and actual value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateMismatch {
    /// The subject: a name, a certificate chain, a header.
    pub subject: String,
    pub expected: String,
    pub seen: String,
    /// A further observation that narrows down the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub also: Option<String>,
}

/// The result of a gate, with its evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateReport {
    pub name: String,
    pub kind: String,
    #[serde(flatten)]
    pub verdict: GateVerdict,
    pub tries: u32,
    pub began: Timestamp,
    pub ended: Timestamp,
    /// Since when the result is as it is now. None if it passed at once or was not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// Commands with which a person can reproduce a failed check.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub look_further: Vec<String>,
}

impl GateReport {
    /// The report on a failed gate: expected, actual, and how to investigate.
    pub fn lines(&self) -> Vec<String> {
        let title = format!("gate `{}` ({})", self.name, self.kind);
        let mut lines = match &self.verdict {
            GateVerdict::Passed => vec![format!("{title} passed")],
            GateVerdict::Skipped { .. } => {
                return vec![format!("{title} was {}", self.verdict.brief())];
            }
            GateVerdict::NotTried { after } => {
                return vec![format!("{title} was not tried: it comes after `{after}`")];
            }
            GateVerdict::CannotLook { why } => {
                vec![format!("{title} could not be looked at: {why}")]
            }
            GateVerdict::Failed { misses } => {
                let of = |miss: &GateMismatch| {
                    let also = miss.also.as_ref().map(|also| format!("  {also}"));
                    let seen = [
                        format!("  {}", miss.subject),
                        format!("    expected   {}", miss.expected),
                        format!("    seen       {}", miss.seen),
                    ];
                    seen.into_iter().chain(also).collect::<Vec<_>>()
                };
                let mut lines = vec![title];
                lines.extend(misses.iter().flat_map(of));
                lines
            }
        };
        let further = self.look_further.iter();
        lines.extend(further.map(|command| format!("  see also: {command}")));
        lines
    }
}

impl CheckResult {
    pub fn judged(evidence: Evidence, misses: Vec<GateMismatch>) -> Self {
        let verdict = if misses.is_empty() {
            GateVerdict::Passed
        } else {
            GateVerdict::Failed { misses }
        };
        Self {
            verdict,
            evidence: Some(evidence),
        }
    }

    pub fn impossible(why: impl Into<String>) -> Self {
        Self {
            verdict: GateVerdict::CannotLook { why: why.into() },
            evidence: None,
        }
    }
}

impl GateVerdict {
    pub fn is_pass(&self) -> bool {
        match self {
            Self::Passed => true,
            Self::Failed { .. }
            | Self::CannotLook { .. }
            | Self::NotTried { .. }
            | Self::Skipped { .. } => false,
        }
    }

    /// Whether later gates may continue.
    pub fn lets_on(&self) -> bool {
        match self {
            Self::Passed | Self::Skipped { .. } => true,
            Self::Failed { .. } | Self::CannotLook { .. } | Self::NotTried { .. } => false,
        }
    }

    /// Whether two results are the same, ignoring remaining TTLs, which change by themselves.
    pub fn is_like(&self, other: &Self) -> bool {
        let steady = |text: &str| text.split(", TTL ").next().unwrap_or_default().to_owned();
        match (self, other) {
            (Self::Failed { misses }, Self::Failed { misses: others }) => {
                let mut pairs = misses.iter().zip(others);
                misses.len() == others.len()
                    && pairs.all(|(one, other)| {
                        one.subject == other.subject && steady(&one.seen) == steady(&other.seen)
                    })
            }
            _ => self == other,
        }
    }

    /// In one line, for progress and logs.
    pub fn brief(&self) -> String {
        match self {
            Self::Passed => "passed".to_owned(),
            Self::Failed { misses } => match misses.first() {
                Some(miss) => format!("{}: {}", miss.subject, miss.seen),
                None => "failed".to_owned(),
            },
            Self::CannotLook { why } => why.clone(),
            Self::NotTried { after } => format!("not tried: gate `{after}` did not pass"),
            Self::Skipped { by, reason } => format!("skipped by {by}: {reason}"),
        }
    }
}

impl GateMismatch {
    pub fn new(
        subject: impl Into<String>,
        expected: impl Into<String>,
        seen: impl Into<String>,
    ) -> Self {
        Self {
            subject: subject.into(),
            expected: expected.into(),
            seen: seen.into(),
            also: None,
        }
    }

    #[must_use]
    pub fn also(self, also: impl Into<String>) -> Self {
        Self {
            also: Some(also.into()),
            ..self
        }
    }
}
