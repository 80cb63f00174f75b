//! A plan as terrane shows and evaluates it: parsed from the engine's plan JSON, with sensitive values removed.
//!
//! Not here: displaying it (`cli::view::plan`).

pub mod coverage;
pub(crate) mod diff;
mod mask;
mod outputs;
mod parse;
pub mod placeholders;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::base::ids::StackName;

pub use outputs::{PlannedOutput, planned_outputs};
pub(crate) use parse::sensitive_in;
pub use parse::{ParsePlanError, difference, parse};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub engine_version: String,
    /// Resource changes other than no-op and read, in the engine's order. A no-op with a move, an import or generated
    /// configuration counts as a change.
    pub changes: Vec<ResourceChange>,
    /// Differences between the state and the real resources, found by the engine.
    pub drift: Vec<ResourceChange>,
    /// Changed outputs, by name.
    pub outputs: BTreeMap<String, OutputChange>,
    /// The engine stopped early. Such a plan is never applied.
    pub errored: bool,
    /// The plan only updates the state with outside changes. The drift then counts as its changes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refresh_only: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResourceChange {
    /// The engine's notation: `module.cluster.azurerm_subnet.nodes["a"]`.
    pub address: String,
    /// `module.cluster`, or empty in the root module.
    pub module: String,
    pub resource_type: String,
    pub mode: Mode,
    pub action: ChangeAction,
    pub moved_from: Option<String>,
    /// The id of the imported object; an empty string if unknown.
    pub importing: Option<String>,
    /// The paths whose change forces the replacement, such as `default_node_pool[0].vnet_subnet_id`.
    pub replace_because: Vec<String>,
    /// The engine's `action_reason`, such as `replace_because_tainted`.
    pub reason: Option<String>,
    /// Changed attributes as leaf paths, in order.
    pub attributes: Vec<AttributeChange>,
    /// The number of unchanged attributes.
    pub unchanged: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    Managed,
    Data,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeAction {
    /// Only a move or an import.
    NoOp,
    Create,
    Read,
    Update,
    /// Deleted first, then created.
    DeleteCreate,
    /// Created first, then deleted.
    CreateDelete,
    Delete,
    /// Removed from the state, but not destroyed.
    Forget,
}

impl ChangeAction {
    pub fn is_replace(self) -> bool {
        matches!(self, Self::DeleteCreate | Self::CreateDelete)
    }

    /// Whether an existing resource is destroyed.
    pub fn destroys(self) -> bool {
        self.is_replace() || self == Self::Delete
    }
}

/// A changed attribute, or a changed leaf inside an attribute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttributeChange {
    /// `tags.env`, `rules[0].port`, `labels["a.b"]`.
    pub path: String,
    pub before: PlanValue,
    pub after: PlanValue,
    pub forces_replacement: bool,
}

/// A value in a plan. Sensitive values are masked before they get here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanValue {
    /// Does not exist on this side.
    Absent,
    Known(Value),
    /// Known after apply.
    Unknown,
    /// Known once these upstream stacks are applied.
    KnownAfter {
        stacks: Vec<StackName>,
    },
    Sensitive,
    /// Sensitive, with a keyed digest for comparing two values.
    Masked {
        digest: String,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputChange {
    pub action: ChangeAction,
    pub before: PlanValue,
    pub after: PlanValue,
}

/// The number of changes in a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanCounts {
    pub create: usize,
    pub update: usize,
    pub replace: usize,
    pub delete: usize,
    pub import: usize,
    pub moved: usize,
    pub forget: usize,
    pub outputs: usize,
    /// For a refresh-only plan: resources that were changed outside.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub drift: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Plan {
    pub fn counts(&self) -> PlanCounts {
        let mut counts = PlanCounts {
            outputs: self.outputs.len(),
            drift: if self.refresh_only {
                self.drift.len()
            } else {
                0
            },
            ..PlanCounts::default()
        };
        for change in &self.changes {
            match change.action {
                ChangeAction::NoOp | ChangeAction::Read => {}
                ChangeAction::Create => counts.create += 1,
                ChangeAction::Update => counts.update += 1,
                ChangeAction::DeleteCreate | ChangeAction::CreateDelete => counts.replace += 1,
                ChangeAction::Delete => counts.delete += 1,
                ChangeAction::Forget => counts.forget += 1,
            }
            counts.import += usize::from(change.importing.is_some());
            counts.moved += usize::from(change.moved_from.is_some());
        }
        counts
    }

    /// No resource change except no-op, no output change, no move, import or forget. For a refresh-only plan: no drift.
    pub fn is_empty(&self) -> bool {
        self.counts() == PlanCounts::default()
    }

    /// Whether an existing resource is destroyed.
    pub fn destroys(&self) -> bool {
        self.changes.iter().any(|change| change.action.destroys())
    }
}

impl PlanCounts {
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            create: self.create + other.create,
            update: self.update + other.update,
            replace: self.replace + other.replace,
            delete: self.delete + other.delete,
            import: self.import + other.import,
            moved: self.moved + other.moved,
            forget: self.forget + other.forget,
            outputs: self.outputs + other.outputs,
            drift: self.drift + other.drift,
        }
    }
}
