//! Builds the spec of each run of a change set from the project.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use drivers::engine::Engine;
use model::base::actor::Actor;
use model::base::ids::StackName;
use model::graph::Graph;
use model::hcl::expression::Input;
use model::project::context;
use model::project::module::{self, Module};
use model::project::{Backend, EdgeKind, LaneScope, Project, Stack, Target, WaitFor};
use model::run::changeset::Action;
use model::run::{DeclaredVariable, EnginePin, OutputState, RunSpec, Upstream};
use model::stage::facts::FactsBranch;

use super::source::ChangeSetSource;
use super::{ChangeSetRequest, PrepareError};
use crate::access::writers::Caller;
use crate::changeset::upstreams;
use crate::project::open::OpenProject;

/// What the specs of a change set are built from.
#[derive(Clone, Copy)]
pub(super) struct SpecInputs<'a> {
    pub(super) open: &'a OpenProject,
    pub(super) project: &'a Project,
    pub(super) graph: &'a Graph,
    pub(super) engines: &'a BTreeMap<StackName, Engine>,
    pub(super) source: &'a ChangeSetSource,
    pub(super) wanted: &'a ChangeSetRequest,
}

pub(super) fn spec(inputs: SpecInputs<'_>, name: &StackName) -> Result<RunSpec, PrepareError> {
    let SpecInputs {
        open,
        project,
        graph,
        engines,
        source,
        wanted,
    } = inputs;
    let stack = &project.stacks[name];
    let engine = engines.get(name).ok_or_else(|| PrepareError::NoEngine {
        stack: name.clone(),
    })?;
    let modules = &open.loaded.modules;
    let reached = module::closure(modules, &stack.path);
    let reached: Vec<(&String, &Module)> = reached
        .iter()
        .filter_map(|dir| modules.get_key_value(dir))
        .collect();
    let root = modules.get(&stack.path);
    Ok(RunSpec {
        stack: stack.clone(),
        target: target_for(project, stack, wanted.no_state),
        contexts: context::contexts_of(project, stack),
        upstreams: waits_for(project, graph, name, wanted),
        output_states: output_states(project, stack),
        order_states: order_states(project, stack),
        engine: EnginePin {
            flavor: engine.flavor,
            version: engine.version.to_string(),
            program: engine.program.to_string_lossy().into_owned(),
        },
        slot: source.slots.get(name).cloned().unwrap_or_default(),
        source: source.digest.clone(),
        strict_secrets: project.strict_secrets,
        asked_with: None,
        root: open.root.to_string_lossy().into_owned(),
        init_inputs: init_inputs(&reached),
        needs_providers: reached.iter().any(|(_, module)| module.needs_providers()),
        has_unstable_paths: reached.iter().any(|(_, module)| module.has_unstable_paths),
        own_backend: root.and_then(|module| module.backend.clone()),
        variables: root
            .map(|module| {
                let declared = module.variables.iter();
                let keep = |(name, variable): (&String, &module::Variable)| {
                    (
                        name.clone(),
                        DeclaredVariable {
                            sensitive: variable.sensitive,
                        },
                    )
                };
                declared.map(keep).collect()
            })
            .unwrap_or_default(),
        outputs: root
            .map(|module| module.outputs.keys().cloned().collect())
            .unwrap_or_default(),
        own_source: source.own.get(name).cloned().unwrap_or_default(),
        settled: false,
        review: wanted.action == Action::Plan,
        facts: facts_of(project, stack),
        fact_locations: Vec::new(),
        relied: crate::project::fact_readers::reliance(project, name),
        stands_on: match wanted.action {
            Action::Apply => upstreams::outside(project, name, &wanted.stacks),
            Action::Plan | Action::Destroy | Action::Exec => BTreeSet::new(),
        },
        destroy: wanted.destroy || wanted.action == Action::Destroy,
        refresh_only: wanted.refresh_only,
        pinned: wanted.pinned.filter(|_| wanted.action == Action::Plan),
        policies: crate::policy::applied(project, name),
        no_state: wanted.no_state,
        exec: None, // set once it is known what to mask
    })
}

/// The places a stack publishes to.
fn facts_of(project: &Project, stack: &Stack) -> BTreeMap<String, FactsBranch> {
    let places = stack.stages.publish.iter();
    let places = places.filter_map(|block| project.facts.get_key_value(&block.name));
    places
        .map(|(name, place)| (name.clone(), place.clone()))
        .collect()
}

/// The spec of one stack, for engine calls that belong to no run.
pub(crate) fn spec_alone(
    open: &OpenProject,
    project: &Project,
    engines: &BTreeMap<StackName, Engine>,
    name: &StackName,
) -> Result<RunSpec, PrepareError> {
    let wanted = ChangeSetRequest {
        action: Action::Plan,
        stacks: BTreeSet::from([name.clone()]),
        in_any_case: BTreeSet::new(),
        auto_approve: false,
        parallelism: 1,
        destroy: false,
        refresh_only: false,
        pinned: None,
        no_state: false,
        keeps_plans: false,
        who: Caller::new(Actor::default()),
        exec: None,
        may_keep_state: false,
        policy_override: None,
        exceptions: None,
    };
    let graph = Graph::new(project);
    let source = ChangeSetSource {
        slots: slots(&open.root, project),
        ..ChangeSetSource::default()
    };
    let inputs = SpecInputs {
        open,
        project,
        graph: &graph,
        engines,
        source: &source,
        wanted: &wanted,
    };
    spec(inputs, name)
}

/// The tree that each stack works in. Engines keep their data beside the root module, so two stacks with the
/// same one need two trees. A target or stack with its own lane does not wait for another's tree. No stack's
/// name begins with `_`.
pub(super) fn slots(root: &Path, project: &Project) -> BTreeMap<StackName, String> {
    // Two paths may lead to one directory through a link. A missing path is compared as written.
    let place = |stack: &Stack| {
        let path = root.join(&stack.path);
        path.canonicalize().unwrap_or(path)
    };
    let stacks = project.stacks.iter();
    let places: Vec<_> = stacks
        .map(|(name, stack)| (name, stack, place(stack)))
        .collect();
    let mut sharing: BTreeMap<&Path, usize> = BTreeMap::new();
    for (_, _, place) in &places {
        *sharing.entry(place).or_default() += 1;
    }
    let slot = |(name, stack, place): &(&StackName, &Stack, PathBuf)| {
        let lane = project.targets.get(&stack.target).map(|it| it.lane);
        let slot = match (sharing[place.as_path()], lane) {
            (1, Some(LaneScope::Target)) => format!("_{}", stack.target),
            _ => name.to_string(),
        };
        ((*name).clone(), slot)
    };
    places.iter().map(slot).collect()
}

/// What `init` depends on in the module and all it calls.
fn init_inputs(reached: &[(&String, &Module)]) -> String {
    let parts: Vec<String> = reached
        .iter()
        .map(|(dir, module)| format!("{dir}\n{}", module.init_inputs()))
        .collect();
    parts.join("\n")
}

/// A target with its backend settings resolved for one stack.
fn target_for(project: &Project, stack: &Stack, no_state: bool) -> Target {
    let mut target = project.targets[&stack.target].clone();
    if no_state {
        target.backend = Backend::Terrane; // its endpoint returns no state
    }
    if let Backend::Engine { settings, .. } = &mut target.backend {
        bind(settings, stack);
    }
    target
}

fn bind(values: &mut BTreeMap<String, Input>, stack: &Stack) {
    for value in values.values_mut() {
        *value = context::for_stack(value, stack);
    }
}

/// The stacks that a run waits for: its upstreams, or for a destroy its downstreams.
fn waits_for(
    project: &Project,
    graph: &Graph,
    name: &StackName,
    wanted: &ChangeSetRequest,
) -> Vec<Upstream> {
    if wanted.action == Action::Destroy {
        return graph
            .downstreams(name)
            .into_iter()
            .filter(|stack| wanted.stacks.contains(*stack))
            .map(|stack| Upstream {
                stack: stack.clone(),
                outputs: BTreeSet::new(),
                wait: WaitFor::Verified,
            })
            .collect();
    }
    if wanted.destroy {
        return Vec::new(); // each is planned with the values that it has now
    }
    let mut needs: BTreeMap<StackName, BTreeSet<String>> = BTreeMap::new();
    for edge in &project.stacks[name].edges {
        if !wanted.stacks.contains(&edge.upstream) {
            continue;
        }
        let outputs = needs.entry(edge.upstream.clone()).or_default();
        if let EdgeKind::Output { output, .. } = &edge.kind {
            outputs.insert(output.clone());
        }
    }
    needs
        .into_iter()
        .map(|(stack, outputs)| Upstream {
            stack,
            outputs,
            wait: project.stacks[name].wait,
        })
        .collect()
}

/// The states of the stacks that this one depends on only by order.
fn order_states(project: &Project, stack: &Stack) -> BTreeSet<String> {
    let before = stack
        .edges
        .iter()
        .filter(|edge| edge.kind == EdgeKind::Order);
    before
        .filter_map(|edge| project.stacks.get(&edge.upstream))
        .map(|upstream| upstream.state.clone())
        .collect()
}

/// The state of each stack whose outputs this one uses.
fn output_states(project: &Project, stack: &Stack) -> BTreeMap<StackName, OutputState> {
    let needed = stack.inputs.values().filter_map(|input| match input {
        Input::Known(_) => None,
        Input::Expression(expression) => Some(expression.needs.outputs.iter()),
    });
    needed
        .flatten()
        .map(|(upstream, _)| {
            let name = project.stacks[upstream].state.clone();
            let is_ours = project.is_on_terrane_backend(upstream);
            (upstream.clone(), OutputState { name, is_ours })
        })
        .collect()
}
