//! Whether a new plan is covered by a confirmation or an approval of an earlier one.
//!
//! A plan is covered if its [`Difference`] is equal to the reviewed one once unknown values are filled in, and the stack's
//! own source and inputs are the same. A difference is a set without order and without drift. It holds keyed digests
//! instead of values, so it can be stored as long as an approval and reveals no value.
//!
//! Not here: who confirmed or approved (`run::confirmation`, `approval`), reading plan JSON (`parse`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::diff::{MarkedValue, ValueDigestFn, compare};
use super::{ChangeAction, PlanValue};

#[cfg(test)]
mod tests;

/// How a new plan compares with the last reviewed one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Coverage {
    /// No earlier plan of this run was confirmed or approved.
    #[default]
    NothingReviewed,
    /// The plan equals the reviewed one.
    Equal,
    /// The plan differs. `new` lists what is new in it; empty if the earlier plan can no longer be read.
    Different { new: Vec<String> },
}

impl Coverage {
    /// Whether the plan equals the reviewed one. None if there is no reviewed plan.
    pub fn is_equal(&self) -> Option<bool> {
        match self {
            Self::NothingReviewed => None,
            Self::Equal => Some(true),
            Self::Different { .. } => Some(false),
        }
    }

    /// What is new in the plan.
    pub fn into_new(self) -> Vec<String> {
        match self {
            Self::NothingReviewed | Self::Equal => Vec::new(),
            Self::Different { new } => new,
        }
    }
}

/// The stored form of a plan, for comparison with later plans. Stored beside the run and in bundles: fields are only
/// added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewedPlan {
    #[serde(flatten)]
    pub difference: Difference,
    /// Digest of the stack's own source: modules, `watch`, hooks.
    #[serde(default)]
    pub own_source: String,
    /// Keyed digests of its input values, as far as they are known.
    #[serde(default)]
    pub inputs: BTreeMap<String, String>,
    /// The plan came with a bundle, so no plan of this run is recorded here yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_bundle: bool,
}

impl ReviewedPlan {
    /// Whether agreement to this plan covers a new one.
    pub fn covers(&self, new: &Self) -> Coverage {
        let deviations = deviations(&new.difference, &self.difference);
        let mut found: Vec<String> = deviations.iter().map(ToString::to_string).collect();
        if found.is_empty() {
            for (name, digest) in &self.inputs {
                match new.inputs.get(name) {
                    Some(now) if now == digest => {}
                    Some(_) => found.push(format!("input `{name}` has another value")),
                    None => found.push(format!("input `{name}` is not known yet")),
                }
            }
            if self.own_source != new.own_source {
                found.push(OTHER_SOURCE.to_owned());
            }
        }
        if found.is_empty() {
            Coverage::Equal
        } else {
            Coverage::Different { new: found }
        }
    }
}

const OTHER_SOURCE: &str =
    "its own source changed: a plan does not show what provisioners and hooks run";

/// What a plan would change. Stored with the plan: fields are only added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// By address. A deposed object of a failed replacement has an entry of its own.
    resources: BTreeMap<String, Change>,
    /// By name.
    outputs: BTreeMap<String, Change>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Change {
    pub(super) action: ChangeAction,
    #[serde(default)]
    pub(super) moved_from: Option<String>,
    #[serde(default)]
    pub(super) importing: Option<String>,
    #[serde(default)]
    pub(super) replace_paths: BTreeSet<String>,
    pub(super) leaves: BTreeSet<Leaf>,
}

/// An attribute, or a leaf inside one. In a list, a path may occur twice: for the removed and the added element.
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

/// A difference between a new plan and the reviewed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Deviation {
    subject: Subject,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    Resource(String),
    Output(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    /// Only the new plan changes it.
    Added {
        action: ChangeAction,
    },
    /// Only the reviewed plan changed it.
    Dropped {
        action: ChangeAction,
    },
    Action {
        reviewed: ChangeAction,
        new: ChangeAction,
    },
    ReplacePath(String),
    NoReplacePath(String),
    MovedFrom(Option<String>),
    Importing(Option<String>),
    Value {
        path: String,
    },
    NoValue {
        path: String,
    },
}

/// The differences between a new plan and the reviewed one, after unknown values are filled in.
pub(super) fn deviations(new: &Difference, reviewed: &Difference) -> Vec<Deviation> {
    let resources = compare_all(&new.resources, &reviewed.resources, Subject::Resource);
    let outputs = compare_all(&new.outputs, &reviewed.outputs, Subject::Output);
    resources.into_iter().chain(outputs).collect()
}

fn compare_all(
    new: &BTreeMap<String, Change>,
    reviewed: &BTreeMap<String, Change>,
    subject: fn(String) -> Subject,
) -> Vec<Deviation> {
    let names: BTreeSet<&String> = new.keys().chain(reviewed.keys()).collect();
    let mut found = Vec::new();
    for name in names {
        let what = match (new.get(name), reviewed.get(name)) {
            (Some(new), Some(reviewed)) => new.deviations(reviewed),
            (Some(Change { action, .. }), None) => vec![What::Added { action: *action }],
            (None, Some(reviewed)) => {
                let is_filled_in = Change::nothing().deviations(reviewed).is_empty();
                let action = reviewed.action;
                Vec::from_iter((!is_filled_in).then_some(What::Dropped { action }))
            }
            (None, None) => Vec::new(),
        };
        let subject = subject(name.clone());
        found.extend(what.into_iter().map(|what| Deviation {
            subject: subject.clone(),
            what,
        }));
    }
    found
}

impl Difference {
    /// Removes one resource.
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
    /// Compares two values from the engine. Sensitive values are compared too, since only digests are kept.
    pub(super) fn new(
        action: ChangeAction,
        before: &Value,
        after: &Value,
        unknown: &Value,
        digest: ValueDigestFn<'_>,
    ) -> Self {
        let nothing = Value::Null;
        let before = MarkedValue::new(before, &nothing, &nothing);
        let after = MarkedValue::new(after, unknown, &nothing);
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
    fn new(value: &PlanValue, digest: ValueDigestFn<'_>) -> Self {
        match value {
            PlanValue::Absent => Self::Absent,
            PlanValue::Unknown | PlanValue::KnownAfter { .. } => Self::Unknown,
            PlanValue::Known(value) => Self::Value(digest(value)),
            PlanValue::Sensitive => Self::Value(String::new()),
            PlanValue::Masked { digest } => Self::Value(digest.clone()),
        }
    }
}

impl Change {
    /// The change that remains if the filled-in values equal the old ones.
    fn nothing() -> Self {
        Self {
            action: ChangeAction::NoOp,
            moved_from: None,
            importing: None,
            replace_paths: BTreeSet::new(),
            leaves: BTreeSet::new(),
        }
    }

    /// The differences between this change and the reviewed one of the same resource or output.
    fn deviations(&self, reviewed: &Self) -> Vec<What> {
        if !self.is_action_of(reviewed) {
            let (reviewed, new) = (reviewed.action, self.action);
            return vec![What::Action { reviewed, new }];
        }
        let mut found = self.replace_deviations(reviewed);
        if self.moved_from != reviewed.moved_from {
            found.push(What::MovedFrom(self.moved_from.clone()));
        }
        if self.importing != reviewed.importing {
            found.push(What::Importing(self.importing.clone()));
        }
        for leaf in &self.leaves {
            if !reviewed.leaves.iter().any(|known| known.becomes(leaf)) {
                let path = leaf.path.clone();
                found.push(What::Value { path });
            }
        }
        // An unknown value may turn out to be the old one. A known value must still be set.
        for leaf in &reviewed.leaves {
            let is_reported =
                |what: &What| matches!(what, What::Value { path } if overlap(path, &leaf.path));
            let is_kept = leaf.after == Side::Unknown || self.leaves.contains(leaf);
            if !is_kept && !found.iter().any(is_reported) {
                let path = leaf.path.clone();
                found.push(What::NoValue { path });
            }
        }
        found.dedup();
        found
    }

    /// Whether the action equals the reviewed one. It may also be a weaker action, if only because unknown values
    /// turned out to be the old ones.
    fn is_action_of(&self, reviewed: &Self) -> bool {
        if self.action == reviewed.action {
            return true;
        }
        match (reviewed.action, self.action) {
            (ChangeAction::Update, ChangeAction::NoOp) => {
                let mut leaves = reviewed.leaves.iter();
                leaves.any(|leaf| leaf.after == Side::Unknown)
            }
            (
                ChangeAction::DeleteCreate | ChangeAction::CreateDelete,
                ChangeAction::Update | ChangeAction::NoOp,
            ) => {
                let mut paths = reviewed.replace_paths.iter();
                !reviewed.replace_paths.is_empty()
                    && paths.all(|path| reviewed.is_unknown_at(path) && !self.changes_at(path))
            }
            _ => false,
        }
    }

    fn replace_deviations(&self, reviewed: &Self) -> Vec<What> {
        let is_known = |path: &&String| {
            let mut known = reviewed.replace_paths.iter();
            known.any(|known| covers(known, path))
        };
        let added = self.replace_paths.iter().filter(|path| !is_known(path));
        let mut found: Vec<What> = added.cloned().map(What::ReplacePath).collect();
        let is_left = |path: &&String| self.replace_paths.iter().any(|left| covers(path, left));
        let dropped = reviewed.replace_paths.iter().filter(|path| {
            let is_filled_in = reviewed.is_unknown_at(path) && !self.changes_at(path);
            !is_left(path) && !is_filled_in
        });
        found.extend(dropped.cloned().map(What::NoReplacePath));
        found
    }

    /// Whether the value at this path is unknown, partly or as a whole.
    fn is_unknown_at(&self, path: &str) -> bool {
        let mut leaves = self.leaves.iter();
        leaves.any(|leaf| leaf.after == Side::Unknown && overlap(&leaf.path, path))
    }

    fn changes_at(&self, path: &str) -> bool {
        self.leaves.iter().any(|leaf| overlap(&leaf.path, path))
    }
}

impl Leaf {
    /// Whether this reviewed leaf becomes the new one when it is filled in.
    fn becomes(&self, new: &Self) -> bool {
        if self == new {
            return true;
        }
        let same_place = self.path == new.path;
        self.after == Side::Unknown
            && covers(&self.path, &new.path)
            // If a whole value was unknown, the old values of its parts are not known individually.
            && (!same_place || self.before == new.before)
    }
}

/// Whether one path equals or contains the other.
fn overlap(one: &str, other: &str) -> bool {
    covers(one, other) || covers(other, one)
}

/// Whether `outer` equals or contains a path.
fn covers(outer: &str, path: &str) -> bool {
    path.strip_prefix(outer)
        .is_some_and(|rest| outer.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']))
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resource(address) => write!(f, "`{address}`"),
            Self::Output(name) => write!(f, "output `{name}`"),
        }
    }
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subject = &self.subject;
        match &self.what {
            What::Added { action } => {
                write!(f, "{} {subject}, which was not in the plan", verb(*action))
            }
            What::Dropped { action } => write!(f, "no longer {} {subject}", verb(*action)),
            What::Action { reviewed, new } => write!(
                f,
                "{} {subject}, where {} was planned",
                verb(*new),
                noun(*reviewed)
            ),
            What::ReplacePath(path) => {
                write!(f, "replaces {subject} because of `{path}` as well")
            }
            What::NoReplacePath(path) => {
                write!(f, "no longer replaces {subject} because of `{path}`")
            }
            What::MovedFrom(Some(from)) => write!(f, "moves {subject} here from `{from}`"),
            What::MovedFrom(None) => write!(f, "no longer moves {subject}"),
            What::Importing(Some(id)) if id.is_empty() => write!(f, "imports {subject}"),
            What::Importing(Some(id)) => write!(f, "imports {subject} by the id `{id}`"),
            What::Importing(None) => write!(f, "no longer imports {subject}"),
            What::Value { path } if path.is_empty() => write!(f, "gives {subject} another value"),
            What::Value { path } => write!(f, "gives `{path}` of {subject} another value"),
            What::NoValue { path } if path.is_empty() => write!(f, "no longer changes {subject}"),
            What::NoValue { path } => write!(f, "no longer sets `{path}` of {subject}"),
        }
    }
}

fn verb(action: ChangeAction) -> &'static str {
    match action {
        ChangeAction::NoOp => "moves or imports",
        ChangeAction::Create => "creates",
        ChangeAction::Read => "reads",
        ChangeAction::Update => "updates",
        ChangeAction::DeleteCreate | ChangeAction::CreateDelete => "replaces",
        ChangeAction::Delete => "deletes",
        ChangeAction::Forget => "forgets",
    }
}

fn noun(action: ChangeAction) -> &'static str {
    match action {
        ChangeAction::NoOp => "a move or an import",
        ChangeAction::Create => "a creation",
        ChangeAction::Read => "a read",
        ChangeAction::Update => "an update",
        ChangeAction::DeleteCreate => "a replacement",
        ChangeAction::CreateDelete => "a replacement that creates first",
        ChangeAction::Delete => "a deletion",
        ChangeAction::Forget => "forgetting it",
    }
}
