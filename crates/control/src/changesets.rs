//! From a request to a change set: what each run needs is put together, the source is kept, the lanes
//! are named; then it is stored, and from there on it goes by itself.
//!
//! Not here: what happens next (`worker`), people (`cli`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use drivers::engine::Engine;
use drivers::snapshot::{self, Extras, Snapshot, SnapshotError};
use model::changeset::{Action, ChangeSet, Request, Status};
use model::config::eval;
use model::engine::EngineRequirement;
use model::graph::Graph;
use model::ids::{ChangeSetId, StackName};
use model::module::{self, Module};
use model::plan::Plan;
use model::project::{Backend, Context, EdgeKind, Input, LaneScope, Project, Stack, Target};
use model::run::{DeclaredVariable, EnginePin, OutputState, Run, RunSpec, Upstream};
use model::state::{Contents, StateFacts};
use store::{ChangeSetError, Scope};

use crate::asker::{Asker, GatherError};
use crate::home::make_private;
use crate::kept_aside::{self, KeptAsideError};
use crate::outputs::{self, OutputsError};
use crate::projects::OpenProject;
use crate::{Control, changed, runner};

/// What somebody asked for, checked against nothing yet.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub action: Action,
    pub stacks: BTreeSet<StackName>,
    pub auto_approve: bool,
    pub parallelism: usize,
    /// For `plan --destroy`; a destroy is one anyway.
    pub destroy: bool,
    pub refresh_only: bool,
    /// For a plan from an older version of the state.
    pub pinned: Option<i64>,
    /// Who asks: a person of the operating system.
    pub asker: String,
    /// Whether a home was named, or the machine keeps its disk: states may be stored here.
    pub may_keep_state: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error("target `{target}` is applied by {writers} only")]
    NotAWriter { target: String, writers: String },
    #[error(
        "stack `{stack}` would keep its state on the disk of this CI job, which goes when the job ends"
    )]
    NoHome { stack: StackName },
    #[error("stack `{stack}` needs output `{output}` of `{upstream}`, which is not there yet")]
    NotApplied {
        stack: StackName,
        upstream: StackName,
        output: String,
    },
    #[error("stack `{by}` still stands on `{stack}`: it is applied, and not part of this")]
    StillNeeded { stack: StackName, by: StackName },
    #[error("stack `{stack}` may not be applied now")]
    KeptAside {
        stack: StackName,
        source: Box<KeptAsideError>,
    },
    #[error(
        "stack `{stack}` has no state here, and `{file}` holds one: everything in it would be made again"
    )]
    StateFile { stack: StackName, file: String },
    #[error("no engine is known for stack `{stack}`")]
    NoEngine { stack: StackName },
    #[error(transparent)]
    Gather(#[from] GatherError),
    #[error(transparent)]
    Outputs(#[from] OutputsError),
    #[error("could not take a snapshot of the source")]
    Snapshot(#[from] SnapshotError),
    #[error("could not keep the snapshot of the source in `{}`", path.display())]
    Keep { path: PathBuf, source: io::Error },
    #[error("could not seal the snapshot of the source")]
    Seal(#[source] store::StoreError),
    #[error("could not look after a state")]
    Reserve(#[source] store::StoreError),
    #[error("could not store the change set")]
    Store(#[from] ChangeSetError),
}

impl PrepareError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotAWriter { .. } => {
                Some("`terrane plan` works here; the apply runs where one of them runs".to_owned())
            }
            Self::NoHome { .. } => {
                Some("name a home that outlives the job: `--data DIR` or `TERRANE_HOME`".to_owned())
            }
            Self::NotApplied { stack, .. } => Some(format!(
                "`terrane apply +{stack}` applies what it needs first"
            )),
            Self::StillNeeded { stack, .. } => Some(format!(
                "`terrane destroy {stack}+` destroys its dependents first"
            )),
            Self::KeptAside { stack, source } => source.hint(stack.as_str()),
            Self::StateFile { stack, file } => Some(format!(
                "`terrane state import {stack} --from {file}` brings it in; if nothing of it exists any more, remove the file"
            )),
            Self::Gather(GatherError::Unset { name, .. }) => {
                Some(format!("set it: `export {name}=…`"))
            }
            Self::Gather(GatherError::Secret { .. })
            | Self::NoEngine { .. }
            | Self::Outputs(_)
            | Self::Snapshot(_)
            | Self::Keep { .. }
            | Self::Seal(_)
            | Self::Reserve(_)
            | Self::Store(_) => None,
        }
    }

    /// Whether a rule refused it, rather than something breaking.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::NotAWriter { .. }
            | Self::NoHome { .. }
            | Self::StillNeeded { .. }
            | Self::StateFile { .. } => true,
            Self::KeptAside { source, .. } => source.is_refusal(),
            Self::NotApplied { .. }
            | Self::NoEngine { .. }
            | Self::Gather(_)
            | Self::Outputs(_)
            | Self::Snapshot(_)
            | Self::Keep { .. }
            | Self::Seal(_)
            | Self::Reserve(_)
            | Self::Store(_) => false,
        }
    }
}

/// A stored change set, and the values its runners get from the asker's side.
pub struct Begun {
    pub id: ChangeSetId,
    pub asker: Asker,
    /// Held as long as somebody waits for it.
    pub watch: File,
    /// Links that lead out of the project, and so are not part of its source.
    pub left_out: Vec<String>,
}

/// Puts a change set together and stores it.
pub async fn begin(
    control: &Control,
    open: &OpenProject,
    project: &Project,
    engines: &BTreeMap<StackName, Engine>,
    env: &BTreeMap<String, String>,
    wanted: &Wanted,
) -> Result<Begun, PrepareError> {
    let graph = Graph::new(project);
    for name in &wanted.stacks {
        may(project, &project.stacks[name], wanted)?;
        if wanted.action != Action::Plan {
            let state = control.state_name(&project.stacks[name].state);
            let checked = kept_aside::check(control, &state).await;
            checked.map_err(|source| PrepareError::KeptAside {
                stack: name.clone(),
                source: Box::new(source),
            })?;
        }
        if wanted.action == Action::Apply {
            check_state_file(control, open, project, name).await?;
        }
    }
    reserve_for_runs(control, project, wanted).await?;
    check_upstreams(control, project, wanted).await?;
    check_downstreams(control, project, &graph, wanted).await?;
    // Until the change set is stored, nobody may take its source for left over.
    let _kept = hold_snapshots(control)?;
    let snapshot = keep_source(control, open, project).await?;
    let source = Source {
        own: changed::own_sources(open, project, &snapshot),
        digest: snapshot.digest,
    };
    let mut waves = graph.waves(&wanted.stacks);
    if wanted.action == Action::Destroy {
        waves.reverse();
    }
    let specs = waves
        .into_iter()
        .flatten()
        .map(|name| spec(open, project, &graph, engines, &source, &name, wanted))
        .collect::<Result<Vec<_>, _>>()?;
    let asker = Asker::gather(env, &open.root, &specs)?;
    let commit = open
        .git
        .as_ref()
        .and_then(|git| git.head_commit().ok().flatten());
    let request = Request {
        project: control.home.project().to_owned(),
        machine: control.home.machine().to_owned(),
        action: wanted.action,
        stacks: wanted.stacks.iter().cloned().collect(),
        auto_approve: wanted.auto_approve && wanted.action != Action::Plan,
        parallelism: wanted.parallelism.max(1),
        lanes: lanes(project, wanted),
        source: source.digest,
        commit: commit.as_ref().map(|(id, _)| id.clone()),
        subject: commit.map(|(_, subject)| subject),
        asker: Some(wanted.asker.clone()),
        dirty: open
            .git
            .as_ref()
            .is_some_and(|git| git.is_dirty().unwrap_or(true)),
    };
    let id = control
        .store
        .change_set_insert(&request, &specs, control.now())
        .await?;
    let watch = watch(control, id).map_err(|source| PrepareError::Keep {
        path: watch_path(control, id),
        source,
    })?;
    Ok(Begun {
        id,
        asker,
        watch,
        left_out: snapshot.left_out,
    })
}

/// A change set under way that does exactly what is asked for: the same command again attaches to it.
pub async fn find_same(
    control: &Control,
    open: &OpenProject,
    project: &Project,
    wanted: &Wanted,
) -> Result<Option<ChangeSet>, PrepareError> {
    let mut sets = control
        .store
        .change_set_list_open(control.home.project())
        .await?;
    sets.retain(|set| {
        set.request.action == wanted.action
            && matches!(
                set.status,
                Status::Waiting | Status::Confirmed | Status::Interrupting
            )
            && set.request.stacks.iter().eq(&wanted.stacks)
    });
    let Some(set) = sets.pop() else {
        return Ok(None);
    };
    // After an edit it is another request, and waits for its turn.
    let now = snapshot::collect(&open.root, open.git.as_ref(), &Extras::of(project))?;
    Ok((now.digest == set.request.source).then_some(set))
}

/// The values of somebody who attaches and may have to go on in place of whoever asked first. None if
/// some are missing here: then it can only be watched.
pub async fn gather_again(
    control: &Control,
    open: &OpenProject,
    env: &BTreeMap<String, String>,
    id: ChangeSetId,
) -> Result<Option<Asker>, ChangeSetError> {
    let specs = specs(control, id).await?;
    Ok(Asker::gather(env, &open.root, &specs).ok())
}

/// What each run of a change set is about.
pub(crate) async fn specs(
    control: &Control,
    id: ChangeSetId,
) -> Result<Vec<RunSpec>, ChangeSetError> {
    let mut specs = Vec::new();
    for run in control.store.run_list(id).await? {
        specs.push(control.store.run_spec(run.id).await?);
    }
    Ok(specs)
}

/// Says, as long as the file is open, that somebody waits for this change set.
pub fn watch(control: &Control, set: ChangeSetId) -> io::Result<File> {
    let path = watch_path(control, set);
    if let Some(dir) = path.parent() {
        make_private(dir)?;
    }
    let mut options = File::options();
    let file = options.create(true).append(true).mode(0o600).open(path)?;
    file.lock_shared()?;
    Ok(file)
}

/// Whether somebody waits for a change set. One that was stored a moment ago has nobody yet.
pub(crate) fn is_watched(control: &Control, set: &ChangeSet) -> bool {
    match File::options()
        .append(true)
        .open(watch_path(control, set.id))
    {
        Ok(file) => file.try_lock().is_err(),
        Err(_) => control.now().duration_since(set.created_at).as_secs() < 60,
    }
}

fn watch_path(control: &Control, set: ChangeSetId) -> PathBuf {
    control
        .home
        .work()
        .join("changesets")
        .join(format!("{set}.lock"))
}

/// The plan of a run as people see it, if one was kept.
pub async fn plan_view(control: &Control, run: &Run) -> Option<Plan> {
    let sealed = std::fs::read(runner::plan_view(&control.home.run_dir(run.id))).ok()?;
    let spec = control.store.run_spec(run.id).await.ok()?;
    let purpose = format!("plan-view {}", run.id);
    let scope = Scope::State(control.state_name(&spec.stack.state));
    let plain = control.store.unseal(scope, &purpose, sealed).await.ok()?;
    serde_json::from_slice(&plain).ok()
}

/// Whether this machine may do it at all.
fn may(project: &Project, stack: &Stack, wanted: &Wanted) -> Result<(), PrepareError> {
    let target = &project.targets[&stack.target];
    if wanted.action == Action::Plan {
        return Ok(());
    }
    if !target.is_open() {
        let writers: Vec<String> = target
            .writers
            .iter()
            .map(|name| format!("`{name}`"))
            .collect();
        return Err(PrepareError::NotAWriter {
            target: target.name.clone(),
            writers: writers.join(" or "),
        });
    }
    if !wanted.may_keep_state && target.backend == Backend::Terrane {
        return Err(PrepareError::NoHome {
            stack: stack.name.clone(),
        });
    }
    Ok(())
}

/// Where not anyone may apply, only runs write the state: a server on this home refuses its clients.
async fn reserve_for_runs(
    control: &Control,
    project: &Project,
    wanted: &Wanted,
) -> Result<(), PrepareError> {
    for name in &wanted.stacks {
        let stack = &project.stacks[name];
        let target = &project.targets[&stack.target];
        if !target.is_open() && target.backend == Backend::Terrane {
            let state = control.state_name(&stack.state);
            let reserved = control.store.state_reserve_for_runs(&state).await;
            reserved.map_err(PrepareError::Reserve)?;
        }
    }
    Ok(())
}

/// A state file that somebody applied beside the module, before the stack came here, must be brought in first.
async fn check_state_file(
    control: &Control,
    open: &OpenProject,
    project: &Project,
    name: &StackName,
) -> Result<(), PrepareError> {
    let stack = &project.stacks[name];
    if !is_ours(project, name) {
        return Ok(());
    }
    let file = format!("{}/terraform.tfstate", stack.path);
    let facts = std::fs::read(open.root.join(&file))
        .ok()
        .and_then(|bytes| StateFacts::read(&bytes).ok());
    let holds = facts.is_some_and(|facts| match facts.contents {
        Contents::Resources | Contents::Encrypted => true,
        Contents::Nothing | Contents::OutputsOnly => false,
    });
    if !holds {
        return Ok(());
    }
    let state = control.state_name(&stack.state);
    let head = control.store.state_head(&state).await;
    if head.map_err(PrepareError::Reserve)?.is_some() {
        return Ok(());
    }
    Err(PrepareError::StateFile {
        stack: name.clone(),
        file,
    })
}

/// Outputs of stacks that are not part of this change set must be there already.
async fn check_upstreams(
    control: &Control,
    project: &Project,
    wanted: &Wanted,
) -> Result<(), PrepareError> {
    let mut known = BTreeMap::new();
    for name in &wanted.stacks {
        for edge in &project.stacks[name].edges {
            let EdgeKind::Output { output, .. } = &edge.kind else {
                continue;
            };
            let comes_with = wanted.stacks.contains(&edge.upstream) && !wanted.destroy;
            if comes_with {
                continue;
            }
            let state = &project.stacks[&edge.upstream].state;
            if !known.contains_key(state) {
                let is_ours = is_ours(project, &edge.upstream);
                let found = outputs::of_state(control, state, is_ours).await?;
                let mut names: BTreeSet<String> = found.into_keys().collect();
                names.extend(outputs::declared(control, &edge.upstream).await?);
                known.insert(state.clone(), names);
            }
            // A stack that has nothing cannot be missing a value when it is destroyed.
            let nothing_to_destroy =
                wanted.destroy && !has_resources(control, project, name).await?;
            if !known[state].contains(output) && !nothing_to_destroy {
                return Err(PrepareError::NotApplied {
                    stack: name.clone(),
                    upstream: edge.upstream.clone(),
                    output: output.clone(),
                });
            }
        }
    }
    Ok(())
}

/// Nothing is destroyed that something else still stands on.
async fn check_downstreams(
    control: &Control,
    project: &Project,
    graph: &Graph,
    wanted: &Wanted,
) -> Result<(), PrepareError> {
    if wanted.action != Action::Destroy {
        return Ok(());
    }
    for name in &wanted.stacks {
        for other in graph.downstreams(name) {
            if !wanted.stacks.contains(other) && has_resources(control, project, other).await? {
                return Err(PrepareError::StillNeeded {
                    stack: name.clone(),
                    by: other.clone(),
                });
            }
        }
    }
    Ok(())
}

async fn has_resources(
    control: &Control,
    project: &Project,
    stack: &StackName,
) -> Result<bool, PrepareError> {
    let state = &project.stacks[stack].state;
    let head = control.store.state_head(&control.state_name(state)).await;
    let head = head.map_err(|source| OutputsError::State {
        state: state.clone(),
        source,
    })?;
    Ok(head.is_some_and(|head| head.contents != Contents::Nothing))
}

/// Held shared by who adds a source, exclusively by who removes some.
fn hold_snapshots(control: &Control) -> Result<File, PrepareError> {
    let path = control.home.snapshots_lock();
    let keep = |source| PrepareError::Keep {
        path: path.clone(),
        source,
    };
    if let Some(dir) = path.parent() {
        make_private(dir).map_err(keep)?;
    }
    let file = File::options()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&path)
        .map_err(keep)?;
    file.lock_shared().map_err(keep)?;
    Ok(file)
}

/// Stores the source once, encrypted, under its digest.
async fn keep_source(
    control: &Control,
    open: &OpenProject,
    project: &Project,
) -> Result<Snapshot, PrepareError> {
    let source = snapshot::collect(&open.root, open.git.as_ref(), &Extras::of(project))?;
    let path = control.home.snapshot(&source.digest);
    if !path.exists() {
        let keep = |source| PrepareError::Keep {
            path: path.clone(),
            source,
        };
        let packed = source.pack(&open.root)?;
        let small = zstd::encode_all(packed.as_slice(), 1).map_err(keep)?;
        let purpose = format!("snapshot {}", source.digest);
        let sealed = control.store.seal(Scope::Project, &purpose, small).await;
        let sealed = sealed.map_err(PrepareError::Seal)?;
        if let Some(dir) = path.parent() {
            make_private(dir).map_err(keep)?;
        }
        let temporary = path.with_extension(format!("{}", std::process::id()));
        std::fs::write(&temporary, sealed).map_err(keep)?;
        std::fs::rename(&temporary, &path).map_err(keep)?;
    }
    Ok(source)
}

/// The source of a change set, and of each stack what is its own.
#[derive(Default)]
struct Source {
    digest: String,
    own: BTreeMap<StackName, String>,
}

fn spec(
    open: &OpenProject,
    project: &Project,
    graph: &Graph,
    engines: &BTreeMap<StackName, Engine>,
    source: &Source,
    name: &StackName,
    wanted: &Wanted,
) -> Result<RunSpec, PrepareError> {
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
        target: target_for(project, stack),
        contexts: stack
            .contexts
            .iter()
            .filter_map(|context| project.contexts.get(context))
            .map(|context| context_for(context, stack))
            .collect(),
        upstreams: waits_for(project, graph, name, wanted),
        output_states: output_states(project, stack),
        engine: EnginePin {
            flavor: engine.flavor,
            version: engine.version.to_string(),
            program: engine.program.to_string_lossy().into_owned(),
        },
        slot: slot_of(&open.root, project, stack),
        source: source.digest.clone(),
        root: open.root.to_string_lossy().into_owned(),
        init_inputs: init_inputs(&reached),
        needs_providers: reached.iter().any(|(_, module)| module.needs_providers()),
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
        destroy: wanted.destroy || wanted.action == Action::Destroy,
        refresh_only: wanted.refresh_only,
        pinned: wanted.pinned.filter(|_| wanted.action == Action::Plan),
    })
}

/// What the engine of one stack needs to know, for calls that belong to no run.
pub(crate) fn spec_alone(
    open: &OpenProject,
    project: &Project,
    engines: &BTreeMap<StackName, Engine>,
    name: &StackName,
) -> Result<RunSpec, PrepareError> {
    let wanted = Wanted {
        action: Action::Plan,
        stacks: BTreeSet::from([name.clone()]),
        auto_approve: false,
        parallelism: 1,
        destroy: false,
        refresh_only: false,
        pinned: None,
        asker: String::new(),
        may_keep_state: false,
    };
    let graph = Graph::new(project);
    let source = Source::default();
    spec(open, project, &graph, engines, &source, name, &wanted)
}

/// Engines keep their data beside the root module, so two stacks with the same one need two trees; and
/// targets, which change independently, do not wait for each other's trees. No stack's name begins with `_`.
fn slot_of(root: &Path, project: &Project, stack: &Stack) -> String {
    // Two paths may lead to one directory, by a link; one that is not there is compared as written.
    let place = |stack: &Stack| {
        let path = root.join(&stack.path);
        path.canonicalize().unwrap_or(path)
    };
    let own = place(stack);
    let stacks = project.stacks.values();
    let sharing = stacks.filter(|other| place(other) == own).count();
    if sharing == 1 {
        format!("_{}", stack.target)
    } else {
        stack.name.to_string()
    }
}

/// What `init` depends on in the module and all it calls.
fn init_inputs(reached: &[(&String, &Module)]) -> String {
    let parts: Vec<String> = reached
        .iter()
        .map(|(dir, module)| format!("{dir}\n{}", module.init_inputs()))
        .collect();
    parts.join("\n")
}

/// A target with the settings of its backend as they are for one stack.
fn target_for(project: &Project, stack: &Stack) -> Target {
    let mut target = project.targets[&stack.target].clone();
    if let Backend::Engine { settings, .. } = &mut target.backend {
        bind(settings, stack);
    }
    target
}

/// A context with its values as they are for one stack.
fn context_for(context: &Context, stack: &Stack) -> Context {
    let mut context = context.clone();
    for values in [&mut context.env, &mut context.vars, &mut context.files] {
        bind(values, stack);
    }
    context
}

fn bind(values: &mut BTreeMap<String, Input>, stack: &Stack) {
    for value in values.values_mut() {
        *value = eval::for_stack(value, stack);
    }
}

/// Whom a run waits for: its upstreams, or, when everything goes away, those that need it.
fn waits_for(project: &Project, graph: &Graph, name: &StackName, wanted: &Wanted) -> Vec<Upstream> {
    if wanted.action == Action::Destroy {
        return graph
            .downstreams(name)
            .into_iter()
            .filter(|stack| wanted.stacks.contains(*stack))
            .map(|stack| Upstream {
                stack: stack.clone(),
                outputs: BTreeSet::new(),
            })
            .collect();
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
        .map(|(stack, outputs)| Upstream { stack, outputs })
        .collect()
}

/// Whether a stack's state is in terrane's own backend.
pub fn is_ours(project: &Project, stack: &StackName) -> bool {
    project.targets[&project.stacks[stack].target].backend == Backend::Terrane
}

/// The state behind each stack whose outputs this one takes.
fn output_states(project: &Project, stack: &Stack) -> BTreeMap<StackName, OutputState> {
    let needed = stack.inputs.values().filter_map(|input| match input {
        Input::Known(_) => None,
        Input::Expression(expression) => Some(expression.needs.outputs.iter()),
    });
    needed
        .flatten()
        .map(|(upstream, _)| {
            let name = project.stacks[upstream].state.clone();
            let is_ours = is_ours(project, upstream);
            (upstream.clone(), OutputState { name, is_ours })
        })
        .collect()
}

fn lanes(project: &Project, wanted: &Wanted) -> Vec<String> {
    let lane = |name: &StackName| {
        let target = &project.targets[&project.stacks[name].target];
        match target.lane {
            LaneScope::Target => target.name.clone(),
            LaneScope::Stack => format!("{}/{name}", target.name),
        }
    };
    let all: BTreeSet<String> = wanted.stacks.iter().map(lane).collect();
    all.into_iter().collect()
}

/// The distinct engines a set of stacks asks for.
pub fn requirements<'a>(
    project: &'a Project,
    stacks: &'a BTreeSet<StackName>,
) -> impl Iterator<Item = (&'a StackName, &'a EngineRequirement)> {
    stacks
        .iter()
        .map(|name| (name, &project.stacks[name].engine))
}
