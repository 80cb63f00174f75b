//! Everything that a runner needs to know about its run and that may be stored. It contains no secret and no value of
//! the requester's environment, only their sources.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::Stage;
use crate::base::ids::StackName;
use crate::policy::{AppliedPolicy, PolicyPhase};
use crate::project::context::{HookStage, HookTiming};
use crate::project::engine::Flavor;
use crate::project::{ConfirmMode, Context, Stack, Target, WaitFor};
use crate::run::exec::{Exec, ExecKind};
use crate::stage::fact_readers::Reliance;
use crate::stage::facts::FactLocation;
use crate::stage::facts::FactsBranch;

/// All that a runner needs besides the state and the values. It is stored as one document, so a group of fields would
/// change the stored form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSpec {
    pub stack: Stack,
    pub target: Target,
    /// Attached contexts, lowest precedence first.
    pub contexts: Vec<Context>,
    /// Upstream runs in the same change set.
    pub upstreams: Vec<Upstream>,
    /// The state of each stack whose outputs this one consumes, inside or outside the change set.
    pub output_states: BTreeMap<StackName, OutputState>,
    /// The states of its `order` upstreams.
    #[serde(default)]
    pub order_states: BTreeSet<String>,
    pub engine: EnginePin,
    /// The tree in which the engine runs: the shared one, or a separate one if another stack has the same root module.
    pub slot: String,
    /// Digest of the source snapshot.
    pub source: String,
    /// The project's root on the requester's machine, for files that are written back (the provider lock file).
    pub root: String,
    /// Digest of everything that `init` depends on in the module and the modules it calls.
    pub init_inputs: String,
    /// Whether the module, or a module it calls, needs a provider that is not built into the engine.
    pub needs_providers: bool,
    /// Whether the module, or a module it calls, uses paths that differ between trees.
    #[serde(default)]
    pub has_unstable_paths: bool,
    /// The type of the root module's own `backend` block.
    #[serde(default)]
    pub own_backend: Option<String>,
    /// The variables that the root module declares, by name.
    pub variables: BTreeMap<String, DeclaredVariable>,
    /// The outputs that the root module declares. Engines do not store null outputs.
    #[serde(default)]
    pub outputs: BTreeSet<String>,
    /// Digest of the stack's own source and its description in the project.
    #[serde(default)]
    pub own_source: String,
    /// Neither the stack nor anything it takes from outside its change set changed since its last successful run.
    #[serde(default)]
    pub settled: bool,
    /// Only a plan was requested.
    #[serde(default)]
    pub review: bool,
    /// The places to which it publishes facts, by name.
    #[serde(default)]
    pub facts: BTreeMap<String, FactsBranch>,
    /// Where its facts were published before.
    #[serde(default, rename = "standing", skip_serializing_if = "Vec::is_empty")]
    pub fact_locations: Vec<FactLocation>,
    /// The consumers of its outputs and facts.
    #[serde(default)]
    pub relied: Reliance,
    /// Dependencies outside the change set. None of them may be in an apply when this stack is applied. If the stack
    /// waits for their completion, they must be done by then.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub stands_on: BTreeSet<StackName>,
    /// Keyed digest of the values that the plan takes from the requester.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_with: Option<String>,
    /// A secret that is too short to mask is an error.
    #[serde(default)]
    pub strict_secrets: bool,
    pub destroy: bool,
    pub refresh_only: bool,
    /// The state version to plan from instead of the newest, for a what-if preview.
    #[serde(default)]
    pub pinned: Option<i64>,
    /// The policies that apply to the stack.
    #[serde(default)]
    pub policies: Vec<AppliedPolicy>,
    /// A review without a readable state: planned as if there were none.
    #[serde(default)]
    pub no_state: bool,
    /// An engine command that runs instead of plan and apply.
    #[serde(default)]
    pub exec: Option<Exec>,
}

impl RunSpec {
    /// Whether the stack is applied without a confirmation. Never true for a destroy.
    pub fn applies_by_itself(&self) -> bool {
        self.stack.confirm == ConfirmMode::Auto && !self.destroy
    }

    /// Whether a policy is evaluated at this point.
    pub fn is_asked_at(&self, point: PolicyPhase) -> bool {
        self.policies
            .iter()
            .any(|policy| policy.at.contains(&point))
    }

    /// Whether a policy reads approvals or may require some.
    pub fn hears_approvals(&self) -> bool {
        !self.policies.is_empty()
    }

    /// Whether it only reads and may take arbitrarily long, so that no other run may wait for it.
    pub fn only_reads(&self) -> bool {
        let exec = self.exec.as_ref();
        exec.is_some_and(|exec| exec.kind == ExecKind::Read)
    }

    /// Whether the stack has hooks at this point.
    pub fn has_hooks(&self, stage: Stage, when: Option<HookTiming>) -> bool {
        let stage = HookStage::around(stage);
        let hooks = self.contexts.iter().flat_map(|context| &context.hooks);
        let mut wanted = hooks.filter(|hook| hook.stage == stage);
        wanted.any(|hook| when.is_none_or(|when| hook.when == when))
    }

    /// The stages that follow the apply, in order.
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
        // After a destroy, facts are withdrawn and gates check the absence; no other stage applies.
        let wanted = all.into_iter().filter(|(stage, is_there)| {
            *is_there && (!self.destroy || *stage != Stage::Bootstrapping)
        });
        wanted.map(|(stage, _)| stage).collect()
    }
}

/// The location of another stack's outputs.
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

/// An upstream run in the same change set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upstream {
    pub stack: StackName,
    /// The outputs that this run consumes. Empty if only the order matters.
    pub outputs: BTreeSet<String>,
    /// What the upstream must have reached.
    #[serde(default)]
    pub wait: WaitFor,
}
