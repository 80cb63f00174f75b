//! A loaded and checked project: everything is resolved that can be resolved without running anything.
//!
//! The files beside this one read it (`config`, `module`, `engine`, `context`, `identity`), and compare it (`changed`).
//! Not here: HCL itself (`hcl`), what the stages after an apply mean (`stage`), the graph (`graph`).

mod approval_rule;
pub mod backend;
pub mod changed;
pub mod config;
pub mod context;
pub mod engine;
pub mod identity;
pub mod ignored_files;
pub mod module;
pub mod proposal;
pub mod providers;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::diagnostic::Location;
use crate::base::ids::StackName;
use crate::hcl::expression::Input;
use crate::policy::Policy;
use crate::project::engine::EngineRequirement;
use crate::render::Render;
use crate::stage::Stages;
use crate::stage::facts::FactsBranch;

pub use crate::project::context::Context;
pub use approval_rule::{ApprovalBlock, ApprovalRule, ApprovalScope};

#[derive(Clone, Debug, PartialEq)]
pub struct Project {
    pub name: String,
    /// Connects clones and worktrees to one home. Written by `init`.
    pub id: Option<String>,
    pub engine: EngineRequirement,
    /// The number of engines that run in parallel in a change set.
    pub parallelism: Option<usize>,
    pub platforms: Vec<String>,
    pub strict_secrets: bool,
    /// By name. Ascending `order` is bottom to top.
    pub layers: BTreeMap<String, i64>,
    pub targets: BTreeMap<String, Target>,
    pub contexts: BTreeMap<String, Context>,
    pub policies: BTreeMap<String, Policy>,
    /// The places to which facts are published, by name.
    pub facts: BTreeMap<String, FactsBranch>,
    /// Files generated from templates, by name.
    pub renders: BTreeMap<String, Render>,
    /// Globs of the files that consume facts. They may leave the project.
    pub gitops: Vec<String>,
    /// The rules that identify CI jobs, by name.
    pub writers: BTreeMap<String, Writer>,
    /// Only enabled stacks, with `for_each` and `discover` expanded, by name.
    pub stacks: BTreeMap<StackName, Stack>,
}

impl Project {
    /// Whether terrane itself stores a stack's state. Otherwise the engine's backend does.
    pub fn is_on_terrane_backend(&self, stack: &StackName) -> bool {
        self.targets[&self.stacks[stack].target].backend == Backend::Terrane
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    pub name: String,
    pub writers: Vec<String>,
    pub lane: LaneScope,
    /// Allowed providers, `namespace/type`. Empty: any, unless `no_providers` is set.
    pub providers: Vec<String>,
    /// `providers = []`: none except the engine's own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_providers: bool,
    pub backend: Backend,
    #[serde(default)]
    pub approval: Option<ApprovalBlock>,
}

impl Target {
    /// Whether people may apply here locally: `anyone` is among the writers.
    pub fn is_open(&self) -> bool {
        self.writers.iter().any(|writer| writer == "anyone")
    }

    /// Whether it restricts providers.
    pub fn limits_providers(&self) -> bool {
        self.no_providers || !self.providers.is_empty()
    }
}

/// CI jobs that may apply to the targets that name this writer: their tokens come from this issuer, for this audience,
/// with these claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    pub name: String,
    pub issuer: String,
    pub audience: String,
    /// The environment variable with the token of a job.
    pub token_env: String,
    /// By claim: patterns, one of which must match.
    pub claims: BTreeMap<String, Vec<String>>,
    pub declared_at: Location,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LaneScope {
    #[default]
    Target,
    Stack,
}

/// Where the states of a target are stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// terrane's own state service.
    #[default]
    Terrane,
    /// An engine's backend. Values may contain `env()` and names, so they are expressions that `config::stored_expression` converts
    /// to text for one stack.
    Engine {
        kind: String,
        settings: BTreeMap<String, Input>,
    },
}

/// A `stack` block: one field for each attribute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stack {
    pub name: StackName,
    /// The root module's directory, relative to the project's root, `/`-separated; `""` is the root.
    pub path: String,
    pub target: String,
    pub layer: String,
    pub labels: BTreeSet<String>,
    /// The name of its state.
    pub state: String,
    pub engine: EngineRequirement,
    pub inputs: BTreeMap<String, Input>,
    /// Relative to the project's root.
    pub var_files: Vec<String>,
    pub edges: Vec<Edge>,
    /// Names of attached contexts, lowest precedence first: by priority, then by name.
    pub contexts: Vec<String>,
    pub wait: WaitFor,
    pub confirm: ConfirmMode,
    pub protected: bool,
    pub watch: Vec<String>,
    pub include: Vec<String>,
    pub artifacts: Vec<String>,
    /// A render whose files must be up to date before planning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub render: Option<String>,
    pub timeout_plan: Option<Duration>,
    pub timeout_apply: Option<Duration>,
    #[serde(default)]
    pub approval: Option<ApprovalBlock>,
    /// Its post-apply stages.
    #[serde(default, skip_serializing_if = "Stages::is_empty")]
    pub stages: Stages,
    #[serde(skip)]
    pub declared_at: Location,
    /// The location of each input.
    #[serde(skip)]
    pub inputs_at: BTreeMap<String, Location>,
}

/// What upstreams must have reached before this stack starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WaitFor {
    #[default]
    Verified,
    Applied,
}

/// Whether a person confirms the apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConfirmMode {
    #[default]
    Manual,
    Auto,
}

/// A typed dependency of the stack that contains it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Edge {
    pub upstream: StackName,
    pub kind: EdgeKind,
    #[serde(skip)]
    pub at: Location,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EdgeKind {
    /// Only the order matters.
    Order,
    /// This stack's input `input` uses the upstream's output `output`.
    Output { output: String, input: String },
}
