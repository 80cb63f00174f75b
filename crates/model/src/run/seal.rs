//! Binds a plan to everything that it was made from, and detects what has changed since.
//!
//! Not here: collecting the current values (`control`), checking the head while the lock is granted
//! (`store::state::locks`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::base::actor::Actor;
use crate::base::ids::RunId;
use crate::state::StateVersion;

#[cfg(test)]
mod tests;

/// What a plan was made from. The apply is refused if any of it has changed.
///
/// Stored with the plan: fields are only added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    /// Digest of the source snapshot.
    pub source: String,
    /// The head of the state, if there was one.
    pub head: Option<SealedHead>,
    /// Keyed digest of the input values.
    pub inputs: String,
    /// Keyed digests of the single inputs, to name those that changed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub each_input: BTreeMap<String, String>,
    pub engine: String,
    /// Digest of the provider lock file after planning, if the module has one.
    #[serde(default)]
    pub lock_file: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedHead {
    pub version: i64,
    pub serial: i64,
    pub lineage: String,
}

impl SealedHead {
    pub fn of(head: &StateVersion) -> Self {
        Self {
            version: head.version,
            serial: i64::try_from(head.serial).unwrap_or(i64::MAX),
            lineage: head.lineage.clone(),
        }
    }
}

/// Something that has changed since the plan was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SealMismatch {
    Source {
        from: String,
        to: String,
    },
    State {
        from: Option<SealedHead>,
        to: Option<SealedHead>,
    },
    LockFile {
        from: Option<String>,
        to: Option<String>,
    },
    Engine {
        from: String,
        to: String,
    },
    /// Values may be secret, so only the names of changed inputs are reported. Empty if the seal has no digests of
    /// single inputs.
    Inputs {
        names: Vec<String>,
    },
}

/// Everything that has changed, most important first.
pub fn moved(sealed: &Seal, now: &Seal) -> Vec<SealMismatch> {
    let mut all = Vec::new();
    if sealed.head != now.head {
        all.push(SealMismatch::State {
            from: sealed.head.clone(),
            to: now.head.clone(),
        });
    }
    if sealed.source != now.source {
        all.push(SealMismatch::Source {
            from: sealed.source.clone(),
            to: now.source.clone(),
        });
    }
    if sealed.inputs != now.inputs {
        let names = if sealed.each_input.is_empty() {
            Vec::new()
        } else {
            differing(&sealed.each_input, &now.each_input)
        };
        all.push(SealMismatch::Inputs { names });
    }
    if sealed.engine != now.engine {
        all.push(SealMismatch::Engine {
            from: sealed.engine.clone(),
            to: now.engine.clone(),
        });
    }
    if sealed.lock_file != now.lock_file {
        all.push(SealMismatch::LockFile {
            from: sealed.lock_file.clone(),
            to: now.lock_file.clone(),
        });
    }
    all
}

/// The keys that only one map has, or whose values differ.
fn differing(some: &BTreeMap<String, String>, others: &BTreeMap<String, String>) -> Vec<String> {
    let names: BTreeSet<&String> = some.keys().chain(others.keys()).collect();
    let differs = |name: &&String| some.get(*name) != others.get(*name);
    names.into_iter().filter(differs).cloned().collect()
}

/// What has changed, in one phrase.
pub fn words(moved: &[SealMismatch]) -> String {
    let all: Vec<String> = moved.iter().map(ToString::to_string).collect();
    all.join("; ")
}

impl fmt::Display for SealMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source { from, to } => write!(
                f,
                "the source changed after it was made ({}, now {})",
                short(from),
                short(to)
            ),
            Self::State {
                from: Some(from),
                to: Some(to),
            } if from.lineage != to.lineage => write!(
                f,
                "the state was replaced after it was made (lineage {}, now {})",
                short(&from.lineage),
                short(&to.lineage)
            ),
            // The same serial with other content: restored or overwritten manually.
            Self::State {
                from: Some(from),
                to: Some(to),
            } if from.serial == to.serial => write!(
                f,
                "the state moved after it was made (version {}, now {}; both serial {})",
                from.version, to.version, to.serial
            ),
            Self::State {
                from: Some(from),
                to: Some(to),
            } => write!(
                f,
                "the state moved after it was made (serial {}, now {})",
                from.serial, to.serial
            ),
            Self::State { from, to } => write!(
                f,
                "the state moved after it was made ({}, now {})",
                serial(from.as_ref()),
                serial(to.as_ref())
            ),
            Self::LockFile { from, to } => write!(
                f,
                "the provider lock file changed after it was made ({}, now {})",
                from.as_deref().map_or("none", short),
                to.as_deref().map_or("none", short)
            ),
            Self::Engine { from, to } => {
                write!(f, "the engine changed after it was made ({from}, now {to})")
            }
            Self::Inputs { names } => {
                let quoted: Vec<String> = names.iter().map(|it| format!("`{it}`")).collect();
                match quoted.as_slice() {
                    [] => f.write_str("its input values changed after it was made"),
                    [one] => write!(f, "the value of its input {one} changed after it was made"),
                    many => {
                        let many = many.join(", ");
                        write!(
                            f,
                            "the values of its inputs {many} changed after it was made"
                        )
                    }
                }
            }
        }
    }
}

fn serial(head: Option<&SealedHead>) -> String {
    head.map_or_else(
        || "no state".to_owned(),
        |head| format!("serial {}", head.serial),
    )
}

/// The part of a digest that is shown to people.
fn short(digest: &str) -> &str {
    digest.get(..7).unwrap_or(digest)
}

/// The author of a state's current version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionAuthor {
    pub serial: i64,
    pub run: Option<RunId>,
    pub commit: Option<String>,
    /// A person or a token, if known.
    pub by: Option<Actor>,
    pub at: Timestamp,
}

impl VersionAuthor {
    /// ``serial 18 was written by run r40 (commit 77ab310, by `ci`) 3 minutes ago``
    pub fn words(&self, now: Timestamp) -> String {
        let mut known = Vec::new();
        known.extend(
            self.commit
                .as_deref()
                .map(|commit| format!("commit {}", short(commit))),
        );
        known.extend(self.by.as_ref().map(|by| format!("requested by `{by}`")));
        let whom = match (self.run, known.is_empty()) {
            (Some(run), true) => format!(" by run {run}"),
            (Some(run), false) => format!(" by run {run} ({})", known.join(", ")),
            (None, _) => self
                .by
                .as_ref()
                .map(|by| format!(" by `{by}`"))
                .unwrap_or_default(),
        };
        let when = ago(self.at, now);
        format!("serial {} was written{whom} {when}", self.serial)
    }
}

fn ago(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(then).as_secs().max(0);
    let (number, unit) = match seconds {
        0..60 => return "less than a minute ago".to_owned(),
        60..3_600 => (seconds / 60, "minute"),
        3_600..86_400 => (seconds / 3_600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {unit}{plural} ago")
}
