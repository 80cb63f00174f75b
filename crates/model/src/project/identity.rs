//! The identity of a requester: a person by operating system name, or a CI job by its signed token; and what a `writer`
//! block requires of such a token.
//!
//! Not here: fetching and verifying tokens (`drivers::oidc`), permissions to apply (`control::access::writers`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::base::actor::{Actor, ActorKind, Entrance, Verification};
use crate::project::Writer;

mod address;
mod pattern;

pub use address::{UntrustedAddress, check_place};
pub use pattern::Pattern;

/// The claims of a token.
pub type Claims = Map<String, Value>;

/// Stored in a change set's request: fields are only added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The person's name, or the token's subject.
    pub name: String,
    pub kind: IdentityKind,
    /// Whether it is proved by a signature. A person's name is only what the machine reports.
    pub verified: bool,
    /// The `writer` blocks whose rules it meets.
    #[serde(default)]
    pub writers: BTreeSet<String>,
    /// The claims that are stored and shown.
    #[serde(default)]
    pub claims: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdentityKind {
    Person,
    Ci,
}

/// Claims that are stored whatever the rules are: the person who started the job, the commit, the job.
const REMEMBERED: &[&str] = &[
    "iss",
    "sub",
    "repository",
    "ref",
    "sha",
    "environment",
    "actor",
    "event_name",
    "workflow_ref",
    "job_workflow_ref",
    "run_id",
    "run_attempt",
    "project_path",
    "ref_type",
    "ref_protected",
    "user_login",
    "pipeline_source",
    "pipeline_id",
    "job_id",
];
/// The maximum length at which a claim is shown.
const SHOWN: usize = 200;

impl Identity {
    /// A person, by operating system name.
    pub fn person(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            kind: IdentityKind::Person,
            verified: false,
            writers: BTreeSet::new(),
            claims: BTreeMap::new(),
        }
    }

    /// The bearer of a verified token that meets the rules of `writer`.
    pub fn job(writer: &Writer, claims: &Claims) -> Self {
        let named = writer.claims.keys().map(String::as_str);
        let kept = REMEMBERED.iter().copied().chain(named);
        let kept = kept.filter_map(|name| Some((name.to_owned(), shown(claims.get(name)?)?)));
        let kept: BTreeMap<String, String> = kept.collect();
        Self {
            name: kept.get("sub").cloned().unwrap_or_else(|| "CI".to_owned()),
            kind: IdentityKind::Ci,
            verified: true,
            writers: BTreeSet::from([writer.name.clone()]),
            claims: kept,
        }
    }

    /// The job as an actor. It is not the person who started the job.
    pub fn actor(&self) -> Actor {
        Actor {
            name: self.name.clone(),
            kind: ActorKind::Ci,
            verified: Verification::Issuer,
            via: Entrance::Cli,
        }
    }

    /// The responsible person, if known: the one who started the job, or else the name.
    pub fn author(&self) -> &str {
        let started = ["actor", "user_login"].iter();
        let mut started = started.filter_map(|claim| self.claims.get(*claim));
        started.next().unwrap_or(&self.name)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind, self.verified) {
            (IdentityKind::Person, _) => write!(f, "`{}`", self.name),
            (IdentityKind::Ci, true) => write!(f, "CI job `{}`", self.name),
            (IdentityKind::Ci, false) => write!(f, "CI job `{}` (not verified)", self.name),
        }
    }
}

/// A claim that does not match the rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    pub claim: String,
    /// Patterns, one of which must match.
    pub expected: Vec<String>,
    pub seen: Option<String>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected: Vec<String> = self.expected.iter().map(|one| format!("`{one}`")).collect();
        let (claim, expected) = (&self.claim, expected.join(" or "));
        match &self.seen {
            Some(seen) => write!(f, "`{claim}` must be {expected}, and is `{seen}`"),
            None => write!(f, "`{claim}` must be {expected}, and the token has none"),
        }
    }
}

/// Every claim of a verified token that does not match the writer's rules. Empty if the token belongs to that writer.
pub fn mismatches(writer: &Writer, claims: &Claims) -> Vec<Mismatch> {
    let rules = writer.claims.iter();
    let wrong = rules.filter(|(name, patterns)| {
        let values = claims.get(*name).map(texts).unwrap_or_default();
        !patterns.iter().any(|pattern| {
            let pattern = Pattern::new(pattern);
            values.iter().any(|value| pattern.fits(value))
        })
    });
    wrong
        .map(|(name, patterns)| Mismatch {
            claim: name.clone(),
            expected: patterns.clone(),
            seen: claims.get(name).and_then(shown),
        })
        .collect()
}

/// A claim as texts for comparison. A list matches with any of its members.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Bool(_) | Value::Number(_) => vec![value.to_string()],
        Value::Array(items) => items
            .iter()
            .filter(|item| !item.is_array())
            .flat_map(texts)
            .collect(),
        Value::Null | Value::Object(_) => Vec::new(),
    }
}

/// A claim for display, limited in length.
pub fn shown(value: &Value) -> Option<String> {
    let texts = texts(value);
    if texts.is_empty() {
        return None;
    }
    let text = texts.join(", ");
    if text.chars().count() <= SHOWN {
        return Some(text);
    }
    let cut: String = text.chars().take(SHOWN).collect();
    Some(format!("{cut}…"))
}

#[cfg(test)]
mod tests;
