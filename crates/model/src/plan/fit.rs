//! Whether a fresh plan is no more than the one that was approved.
//!
//! What counts of a plan is its [`Difference`]: a set without order and without drift, in which each value stands by
//! a keyed digest. So it can be kept for as long as an approval, and tells nobody a value.
//!
//! Not here: whose approval it was and what becomes of it (`changeset`), reading plan JSON (`parse`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::diff::{Digest, Marks, compare};
use super::{Action, PlanValue};

#[cfg(test)]
mod tests;

/// What a plan would change. Kept with the plan: fields are only added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// By address; the leftover of a replacement that failed halfway is one of its own.
    resources: BTreeMap<String, Change>,
    /// By name.
    outputs: BTreeMap<String, Change>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Change {
    pub(super) action: Action,
    #[serde(default)]
    pub(super) moved_from: Option<String>,
    #[serde(default)]
    pub(super) importing: Option<String>,
    #[serde(default)]
    pub(super) replace_paths: BTreeSet<String>,
    pub(super) leaves: BTreeSet<Leaf>,
}

/// One attribute, or one leaf inside of one. In a list one path may stand twice: what went and what came.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Leaf {
    path: String,
    before: Side,
    after: Side,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Side {
    Absent,
    Unknown,
    /// A keyed digest.
    Value(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    Yes,
    /// What the fresh plan would do beyond what was approved; never empty.
    No(Vec<Novelty>),
}

/// One thing that nobody approved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Novelty {
    subject: Subject,
    what: New,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    Resource(String),
    Output(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum New {
    Subject { action: Action },
    Action { approved: Action, fresh: Action },
    ReplacePath(String),
    MovedFrom(String),
    Importing(String),
    Value { path: String },
    Unset { path: String },
}

/// It fits if it is equal, except that an approved unknown matches any value, and approved changes may be absent.
pub fn fits(fresh: &Difference, approved: &Difference) -> Fit {
    let mut novelties = Vec::new();
    for (address, change) in &fresh.resources {
        let known = approved.resources.get(address);
        for what in beyond(change, known) {
            let subject = Subject::Resource(address.clone());
            novelties.push(Novelty { subject, what });
        }
    }
    for (name, change) in &fresh.outputs {
        for what in beyond(change, approved.outputs.get(name)) {
            let subject = Subject::Output(name.clone());
            novelties.push(Novelty { subject, what });
        }
    }
    if novelties.is_empty() {
        Fit::Yes
    } else {
        Fit::No(novelties)
    }
}

impl Difference {
    /// Without one resource.
    pub fn leave_out(&mut self, address: &str) {
        self.resources.remove(address);
    }

    pub(super) fn add_resource(&mut self, address: String, change: Change) {
        self.resources.insert(address, change);
    }

    pub(super) fn add_output(&mut self, name: String, change: Change) {
        self.outputs.insert(name, change);
    }
}

impl Change {
    /// Of two values as the engine gives them. What is sensitive is looked into as well: digests tell nothing.
    pub(super) fn new(
        action: Action,
        before: &Value,
        after: &Value,
        unknown: &Value,
        digest: Digest<'_>,
    ) -> Self {
        let nothing = Value::Null;
        let before = Marks::new(before, &nothing, &nothing);
        let after = Marks::new(after, unknown, &nothing);
        let changes = compare(before, after, &[]).changes.into_iter();
        let leaves = changes.map(|change| Leaf {
            path: change.path,
            before: Side::new(&change.before, digest),
            after: Side::new(&change.after, digest),
        });
        Self {
            action,
            moved_from: None,
            importing: None,
            replace_paths: BTreeSet::new(),
            leaves: leaves.collect(),
        }
    }
}

impl Side {
    fn new(value: &PlanValue, digest: Digest<'_>) -> Self {
        match value {
            PlanValue::Absent => Self::Absent,
            PlanValue::Unknown | PlanValue::KnownAfter { .. } => Self::Unknown,
            PlanValue::Known(value) => Self::Value(digest(value)),
            PlanValue::Sensitive => Self::Value(String::new()),
            PlanValue::Masked { digest } => Self::Value(digest.clone()),
        }
    }
}

/// What one change does beyond the approved one of the same thing.
fn beyond(fresh: &Change, approved: Option<&Change>) -> Vec<New> {
    let action = fresh.action;
    let Some(approved) = approved else {
        return vec![New::Subject { action }];
    };
    if !is_within(action, approved.action) {
        let approved = approved.action;
        return vec![New::Action {
            approved,
            fresh: action,
        }];
    }
    let mut new = Vec::new();
    let is_new = |path: &&String| {
        let mut known = approved.replace_paths.iter();
        !known.any(|known| covers(known, path))
    };
    let paths = fresh.replace_paths.iter().filter(is_new);
    new.extend(paths.cloned().map(New::ReplacePath));
    let differs = |fresh: &Option<String>, approved: &Option<String>| {
        fresh.clone().filter(|_| fresh != approved)
    };
    new.extend(differs(&fresh.moved_from, &approved.moved_from).map(New::MovedFrom));
    new.extend(differs(&fresh.importing, &approved.importing).map(New::Importing));
    for leaf in &fresh.leaves {
        if !approved.leaves.iter().any(|known| known.allows(leaf)) {
            let path = leaf.path.clone();
            new.push(New::Value { path });
        }
    }
    if action == Action::Create {
        new.extend(unset(fresh, approved));
    }
    new.dedup();
    new
}

/// What does not change in a thing that exists stays as it was; in one that is made it would be nothing at all.
fn unset<'a>(fresh: &'a Change, approved: &'a Change) -> impl Iterator<Item = New> + 'a {
    let is_there = |known: &Leaf| {
        let mut leaves = fresh.leaves.iter();
        leaves.any(|leaf| covers(&known.path, &leaf.path) || covers(&leaf.path, &known.path))
    };
    let known = approved.leaves.iter();
    known
        .filter(|known| known.after != Side::Unknown)
        .filter(move |known| !is_there(known))
        .map(|known| New::Unset {
            path: known.path.clone(),
        })
}

impl Leaf {
    /// Whether who approved this approved that one.
    fn allows(&self, fresh: &Self) -> bool {
        if self == fresh {
            return true;
        }
        let same_place = self.path == fresh.path;
        self.after == Side::Unknown
            && covers(&self.path, &fresh.path)
            // Of a whole that is not known yet, the parts are compared with nothing.
            && (!same_place || self.before == fresh.before)
    }
}

/// Whether a path is this one or leads further into it.
fn covers(outer: &str, path: &str) -> bool {
    path.strip_prefix(outer)
        .is_some_and(|rest| outer.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Whether an action is the approved one or a weaker one of the same kind.
fn is_within(fresh: Action, approved: Action) -> bool {
    match (strength(fresh), strength(approved)) {
        (Some(fresh), Some(approved)) => fresh <= approved,
        _ => fresh == approved,
    }
}

/// How much it does to something that exists before and after; nothing for what makes, removes or forgets.
fn strength(action: Action) -> Option<u8> {
    match action {
        Action::NoOp => Some(0),
        Action::Update => Some(1),
        Action::CreateDelete => Some(2),
        // There is a while without it.
        Action::DeleteCreate => Some(3),
        Action::Create | Action::Read | Action::Delete | Action::Forget => None,
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resource(address) => write!(f, "`{address}`"),
            Self::Output(name) => write!(f, "output `{name}`"),
        }
    }
}

impl fmt::Display for Novelty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subject = &self.subject;
        match &self.what {
            New::Subject { action } => {
                write!(f, "{} {subject}, which was not in the plan", verb(*action))
            }
            New::Action { approved, fresh } => write!(
                f,
                "{} {subject}, where {} was planned",
                verb(*fresh),
                deed(*approved)
            ),
            New::ReplacePath(path) => {
                write!(f, "replaces {subject} because of `{path}` as well")
            }
            New::MovedFrom(from) => write!(f, "moves {subject} here from `{from}`"),
            New::Importing(id) if id.is_empty() => write!(f, "imports {subject}"),
            New::Importing(id) => write!(f, "imports {subject} by the id `{id}`"),
            New::Value { path } if path.is_empty() => write!(f, "gives {subject} another value"),
            New::Value { path } => write!(f, "gives `{path}` of {subject} another value"),
            New::Unset { path } if path.is_empty() => write!(f, "leaves {subject} without a value"),
            New::Unset { path } => write!(f, "leaves `{path}` of {subject} without a value"),
        }
    }
}

fn verb(action: Action) -> &'static str {
    match action {
        Action::NoOp => "moves or imports",
        Action::Create => "creates",
        Action::Read => "reads",
        Action::Update => "updates",
        Action::DeleteCreate | Action::CreateDelete => "replaces",
        Action::Delete => "deletes",
        Action::Forget => "forgets",
    }
}

fn deed(action: Action) -> &'static str {
    match action {
        Action::NoOp => "a move or an import",
        Action::Create => "a creation",
        Action::Read => "a read",
        Action::Update => "an update",
        Action::DeleteCreate => "a replacement",
        // Said apart, since a replacement may be stronger than a replacement.
        Action::CreateDelete => "a replacement without a gap",
        Action::Delete => "a deletion",
        Action::Forget => "forgetting it",
    }
}
