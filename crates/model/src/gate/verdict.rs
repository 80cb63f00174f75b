//! What looks at a gate's subject amount to.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Evidence;

/// One look: what was found and what it means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Look {
    pub verdict: Verdict,
    pub evidence: Option<Evidence>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Verdict {
    Passed,
    /// The world is not as it should be.
    Failed {
        misses: Vec<Miss>,
    },
    /// Nothing can be said about the world: the probe itself did not get there.
    CannotLook {
        why: String,
    },
    /// Never looked at: somebody said, as an emergency, that it need not pass.
    Skipped {
        by: String,
        reason: String,
    },
    /// Never looked at, because this gate did not pass.
    NotTried {
        after: String,
    },
}

/// Expected and seen, side by side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Miss {
    /// What this is about: a name, a certificate's chain, a header.
    pub subject: String,
    pub expected: String,
    pub seen: String,
    /// What else was noticed, if it narrows the cause down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub also: Option<String>,
}

/// How a gate ended, and all there is to show for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateReport {
    pub name: String,
    pub kind: String,
    #[serde(flatten)]
    pub verdict: Verdict,
    pub tries: u32,
    pub began: Timestamp,
    pub ended: Timestamp,
    /// Since when it has looked as it does now; nothing if it passed at once or was not tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// Commands that show a person the same; for what did not pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub look_further: Vec<String>,
}

impl GateReport {
    /// What there is to say about a gate that did not pass: expected, seen, and how to look further.
    pub fn lines(&self) -> Vec<String> {
        let title = format!("gate `{}` ({})", self.name, self.kind);
        let mut lines = match &self.verdict {
            Verdict::Passed => vec![format!("{title} passed")],
            Verdict::Skipped { .. } => {
                return vec![format!("{title} was {}", self.verdict.brief())];
            }
            Verdict::NotTried { after } => {
                return vec![format!("{title} was not tried: it comes after `{after}`")];
            }
            Verdict::CannotLook { why } => vec![format!("{title} could not be looked at: {why}")],
            Verdict::Failed { misses } => {
                let of = |miss: &Miss| {
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

impl Look {
    pub fn judged(evidence: Evidence, misses: Vec<Miss>) -> Self {
        let verdict = if misses.is_empty() {
            Verdict::Passed
        } else {
            Verdict::Failed { misses }
        };
        Self {
            verdict,
            evidence: Some(evidence),
        }
    }

    pub fn impossible(why: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::CannotLook { why: why.into() },
            evidence: None,
        }
    }
}

impl Verdict {
    pub fn is_pass(&self) -> bool {
        match self {
            Self::Passed => true,
            Self::Failed { .. }
            | Self::CannotLook { .. }
            | Self::NotTried { .. }
            | Self::Skipped { .. } => false,
        }
    }

    /// Whether what comes after it may go on.
    pub fn lets_on(&self) -> bool {
        match self {
            Self::Passed | Self::Skipped { .. } => true,
            Self::Failed { .. } | Self::CannotLook { .. } | Self::NotTried { .. } => false,
        }
    }

    /// Whether it says the same as another: how long an answer may be kept
    /// changes by itself.
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

impl Miss {
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
