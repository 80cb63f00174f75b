//! The post-apply stages of a stack, as configured in the project file: blocks whose values may only be known after the
//! apply.
//!
//! The files beside this one decide what each kind means. Not here: reading them (`project::config`), resolving their
//! values (`project::config::resolve`).

pub mod artifact;
pub mod bootstrap;
pub mod contract;
pub mod drain;
pub mod fact_readers;
pub mod facts;
pub mod gate;
pub mod kubernetes;
pub mod sink;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::base::diagnostic::Location;
use crate::hcl::expression::Input;
use crate::hcl::stored_expression::known_words;

/// A stage of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    Preparing,
    Planning,
    Applying,
    Publishing,
    Bootstrapping,
    Verifying,
}

impl Stage {
    pub const ALL: [Self; 6] = [
        Self::Preparing,
        Self::Planning,
        Self::Applying,
        Self::Publishing,
        Self::Bootstrapping,
        Self::Verifying,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Self::Preparing => "preparing",
            Self::Planning => "planning",
            Self::Applying => "applying",
            Self::Publishing => "publishing",
            Self::Bootstrapping => "bootstrapping",
            Self::Verifying => "verifying",
        }
    }

    /// The name of what this stage does after the engine has finished.
    pub fn part_word(self) -> &'static str {
        match self {
            Self::Applying => "hooks after applying",
            Self::Preparing
            | Self::Planning
            | Self::Publishing
            | Self::Bootstrapping
            | Self::Verifying => self.word(),
        }
    }
}

/// The blocks of a stack's post-apply stages, in the order in which they were written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stages {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub publish: Vec<StageBlock>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bootstrap: Vec<StageBlock>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<StageBlock>,
}

impl Stages {
    pub fn is_empty(&self) -> bool {
        self.publish.is_empty() && self.bootstrap.is_empty() && self.gates.is_empty()
    }

    /// All of them, in execution order.
    pub fn blocks(&self) -> impl Iterator<Item = &StageBlock> {
        let later = self.bootstrap.iter().chain(&self.gates);
        self.publish.iter().chain(later)
    }

    /// The gates that are checked after an apply, or after a destroy.
    pub fn gates_when(&self, destroyed: bool) -> Vec<StageBlock> {
        let gates = self.gates.iter();
        let meant = gates.filter(|gate| gate.is_after_destroy() == destroyed);
        meant.cloned().collect()
    }
}

/// A `publish`, `bootstrap` or `gate` block, or a block nested in one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageBlock {
    /// Its first label if that is a keyword (`dns`, `argocd`, `configmap`), or else its block type.
    pub kind: String,
    /// Its other label, if it has one.
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_each: Option<Input>,
    pub attrs: BTreeMap<String, Input>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<StageBlock>,
    pub at: Location,
}

impl StageBlock {
    /// Whether a name refers to it: its own, or that of one of its `for_each` instances.
    pub fn is_named(&self, name: &str) -> bool {
        let rest = name.strip_prefix(self.name.as_str());
        rest.is_some_and(|rest| rest.is_empty() || self.for_each.is_some() && rest.starts_with('-'))
    }

    /// Whether a gate checks that something is gone: `when = "destroyed"`.
    pub fn is_after_destroy(&self) -> bool {
        let when = self.attrs.get("when");
        matches!(when, Some(Input::Known(Value::String(word))) if word == "destroyed")
    }
}

/// Attributes of a bootstrap that name files or directories of the project.
const FILES: [&str; 3] = ["manifests", "values", "root"];

/// Access to literal values of blocks.
impl StageBlock {
    /// The files and directories of the project that a bootstrap uses.
    pub fn manifests(&self) -> impl Iterator<Item = String> {
        let named = FILES.iter().filter_map(|name| self.attrs.get(*name));
        named.flat_map(known_words).flatten()
    }

    /// The program of a command and its arguments; none for an argument that is only known later.
    pub fn words(&self) -> Vec<Option<String>> {
        self.attrs.get("run").map(known_words).unwrap_or_default()
    }
}

/// All values in blocks, known or not.
pub fn inputs(blocks: &[StageBlock]) -> Vec<&Input> {
    let mut found = Vec::new();
    for block in blocks {
        found.extend(block.for_each.iter().chain(block.attrs.values()));
        found.extend(inputs(&block.blocks));
    }
    found
}

/// The same block with all values known. Kept in memory only, since values may be secret.
#[derive(Clone, PartialEq)]
pub struct ResolvedBlock {
    pub kind: String,
    /// `NAME`, or `NAME-KEY` for an instance of a `for_each`.
    pub name: String,
    /// The key of a `for_each`.
    pub each: Option<String>,
    pub attrs: Map<String, Value>,
    pub blocks: Vec<ResolvedBlock>,
    /// The attributes that fully or partly contain a secret or a sensitive output.
    pub sensitive: BTreeSet<String>,
    pub at: Location,
}

impl std::fmt::Debug for ResolvedBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |(key, value): (&String, &Value)| {
            if self.sensitive.contains(key) {
                format!("{key} = [sensitive]")
            } else {
                format!("{key} = {value}")
            }
        };
        let attrs: Vec<String> = self.attrs.iter().map(shown).collect();
        f.debug_struct("ResolvedBlock")
            .field("kind", &self.kind)
            .field("name", &self.name)
            .field("attrs", &attrs)
            .field("blocks", &self.blocks)
            .finish_non_exhaustive()
    }
}
