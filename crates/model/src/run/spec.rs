//! Everything a runner needs to know about its run that may lie in the store: no secret, no value of
//! the asker's environment, only where they come from.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::Stage;
use crate::context::{HookStage, When};
use crate::engine::Flavor;
use crate::exec::{Exec, ExecKind};
use crate::fact_readers::Reliance;
use crate::facts::FactLocation;
use crate::ids::StackName;
use crate::policy::{AppliedPolicy, Point};
use crate::project::{Confirm, Context, FactsPlace, Stack, Target, Wait};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSpec {
    pub stack: Stack,
    pub target: Target,
    /// Attached contexts, weakest first.
    pub contexts: Vec<Context>,
    /// Runs of the same change set that come first.
    pub upstreams: Vec<Upstream>,
    /// The state behind each stack whose outputs this one takes, in the change set or not.
    pub output_states: BTreeMap<StackName, OutputState>,
    /// The states of the stacks that it merely comes after.
    #[serde(default)]
    pub order_states: BTreeSet<String>,
    pub engine: EnginePin,
    /// Which tree its engine runs in: one that all stacks share, or one of its own if another stack has
    /// the same root module.
    pub slot: String,
    /// Digest of the snapshot it runs on.
    pub source: String,
    /// The project's root on the asker's machine, for what is written back (the provider lock file).
    pub root: String,
    /// What `init` depends on in the module and those it calls.
    pub init_inputs: String,
    /// Whether the module, or one it calls, needs a provider that is not built into the engine.
    pub needs_providers: bool,
    /// Whether the module, or one it calls, uses paths that differ from tree to tree.
    #[serde(default)]
    pub has_unstable_paths: bool,
    /// The kind of the root module's own `backend` block.
    #[serde(default)]
    pub own_backend: Option<String>,
    /// What the root module declares, by name.
    pub variables: BTreeMap<String, DeclaredVariable>,
    /// The outputs it declares. An engine stores none that is null.
    #[serde(default)]
    pub outputs: BTreeSet<String>,
    /// Digest of what is this stack's own: its part of the source, and how the project describes it.
    #[serde(default)]
    pub own_source: String,
    /// Nothing of its own, and nothing that it takes from outside its change set, differs from when its
    /// stack last ended well.
    #[serde(default)]
    pub settled: bool,
    /// Only a plan was asked for.
    #[serde(default)]
    pub review: bool,
    /// The places it publishes facts to, by name.
    #[serde(default)]
    pub facts: BTreeMap<String, FactsPlace>,
    /// Where its facts were published before.
    #[serde(default, rename = "standing", skip_serializing_if = "Vec::is_empty")]
    pub fact_locations: Vec<FactLocation>,
    /// Who relies on its outputs and facts.
    #[serde(default)]
    pub relied: Reliance,
    /// Stacks outside its change set that nobody may be applying when it is applied, and that must be done by then if it
    /// waits for that.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub stands_on: BTreeSet<StackName>,
    /// Keyed digest of the values that its plan takes from whoever asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_with: Option<String>,
    /// A secret that is too short to be masked is an error.
    #[serde(default)]
    pub strict_secrets: bool,
    pub destroy: bool,
    pub refresh_only: bool,
    /// The version to plan from instead of the newest: only to see what it would lead to.
    #[serde(default)]
    pub pinned: Option<i64>,
    /// The policies that apply to its stack.
    #[serde(default)]
    pub policies: Vec<AppliedPolicy>,
    /// A review where the state cannot be read: planned as if there were none.
    #[serde(default)]
    pub no_state: bool,
    /// A command of the engine's own, in the place of plan and apply.
    #[serde(default)]
    pub exec: Option<Exec>,
}

impl RunSpec {
    /// Whether nobody confirms it, as its stack says: an apply, never a destroy.
    pub fn applies_by_itself(&self) -> bool {
        self.stack.confirm == Confirm::Auto && !self.destroy
    }

    /// Whether one of its policies is asked then.
    pub fn is_asked_at(&self, point: Point) -> bool {
        self.policies
            .iter()
            .any(|policy| policy.at.contains(&point))
    }

    /// Whether a policy sees approvals, or may want some.
    pub fn hears_approvals(&self) -> bool {
        !self.policies.is_empty()
    }

    /// Whether it only looks, for as long as somebody likes: nobody may have to wait for that.
    pub fn only_reads(&self) -> bool {
        let exec = self.exec.as_ref();
        exec.is_some_and(|exec| exec.kind == ExecKind::Read)
    }

    /// Whether its stack has hooks there.
    pub fn has_hooks(&self, stage: Stage, when: Option<When>) -> bool {
        let stage = HookStage::around(stage);
        let hooks = self.contexts.iter().flat_map(|context| &context.hooks);
        let mut wanted = hooks.filter(|hook| hook.stage == stage);
        wanted.any(|hook| when.is_none_or(|when| hook.when == when))
    }

    /// The stages that follow its apply, in their order.
    pub fn stages_after(&self) -> Vec<Stage> {
        if self.exec.is_some() || self.refresh_only || self.review {
            return Vec::new();
        }
        let stages = &self.stack.stages;
        let all = [
            (
                Stage::Publishing,
                !stages.publish.is_empty() || !self.fact_locations.is_empty(),
            ),
            (Stage::Bootstrapping, !stages.bootstrap.is_empty()),
            (
                Stage::Verifying,
                !stages.gates_when(self.destroy).is_empty(),
            ),
        ];
        // What is destroyed has facts to withdraw and its absence to prove, and nothing else.
        let wanted = all.into_iter().filter(|(stage, is_there)| {
            *is_there && (!self.destroy || *stage != Stage::Bootstrapping)
        });
        wanted.map(|(stage, _)| stage).collect()
    }
}

/// Where another stack's outputs are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputState {
    pub name: String,
    /// Whether it is in terrane's own backend.
    pub is_ours: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclaredVariable {
    pub sensitive: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnginePin {
    pub flavor: Flavor,
    pub version: String,
    pub program: String,
}

/// A run of the same change set that this one waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upstream {
    pub stack: StackName,
    /// Its outputs that this run consumes; none for a mere order.
    pub outputs: BTreeSet<String>,
    /// What it must have reached.
    #[serde(default)]
    pub wait: Wait,
}
