//! From a request to a change set: what each run needs is put together, the source is kept, the lanes
//! are named; then it is stored, and from there on it goes by itself.
//!
//! Not here: what happens next (`worker`), people (`cli`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;

use drivers::engine::Engine;
use drivers::snapshot::{self, Extras};
use model::changeset::{Action, ChangeSet, Request, Status};
use model::engine::EngineRequirement;
use model::graph::Graph;
use model::ids::{ChangeSetId, StackName};
use model::plan::Plan;
use model::project::{LaneScope, Project};
use model::run::{Run, RunSpec};
use store::{ChangeSetError, Scope};

use crate::asker::Asker;
use crate::projects::OpenProject;
use crate::{Control, changed, kept_aside, runner};
use source::Source;
use watch::watch_path;

mod checks;
mod prepare_error;
mod source;
mod spec;
mod watch;

pub use prepare_error::PrepareError;
pub use spec::is_ours;
pub(crate) use spec::spec_alone;
pub(crate) use watch::is_watched;
pub use watch::watch;

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
    /// Why what policies deny is applied all the same.
    pub policy_override: Option<String>,
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
        checks::may(project, &project.stacks[name], wanted)?;
        if wanted.action != Action::Plan {
            let state = control.state_name(&project.stacks[name].state);
            let checked = kept_aside::check(control, &state).await;
            checked.map_err(|source| PrepareError::KeptAside {
                stack: name.clone(),
                source: Box::new(source),
            })?;
        }
        if wanted.action == Action::Apply {
            checks::check_state_file(control, open, project, name).await?;
        }
    }
    checks::reserve_for_runs(control, project, wanted).await?;
    checks::check_upstreams(control, project, wanted).await?;
    checks::check_downstreams(control, project, &graph, wanted).await?;
    // Until the change set is stored, nobody may take its source for left over.
    let _kept = source::hold_snapshots(control)?;
    let snapshot = source::keep_source(control, open, project).await?;
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
        .map(|name| spec::spec(open, project, &graph, engines, &source, &name, wanted))
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
        policy_override: wanted.policy_override.clone(),
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
            && set.request.policy_override == wanted.policy_override
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

/// The plan of a run as people see it, if one was kept.
pub async fn plan_view(control: &Control, run: &Run) -> Option<Plan> {
    let sealed = std::fs::read(runner::plan_view(&control.home.run_dir(run.id))).ok()?;
    let spec = control.store.run_spec(run.id).await.ok()?;
    let purpose = format!("plan-view {}", run.id);
    let scope = Scope::State(control.state_name(&spec.stack.state));
    let plain = control.store.unseal(scope, &purpose, sealed).await.ok()?;
    serde_json::from_slice(&plain).ok()
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
