//! Checks before a change set is prepared.

use std::collections::{BTreeMap, BTreeSet};

use drivers::snapshot::Snapshot;
use model::base::ids::StackName;
use model::graph::Graph;
use model::project::ignored_files::SourceListing;
use model::project::module::Module;
use model::project::{Backend, EdgeKind, Project, Stack};
use model::run::changeset::{Action, Dependent, reopen};
use model::run::hold::HoldOn;
use model::run::{Outcome, OutputState, Run, RunState, Stage};
use model::state::{Contents, StateFacts};
use render::check_fresh;

use super::{ChangeSetRequest, PrepareError, ResumeRequest};
use crate::Control;
use crate::changeset::staleness::{self, StalenessError};
use crate::changeset::upstreams;
use crate::project::ignored;
use crate::project::open::OpenProject;
use crate::state::outputs::{self, OutputsError};

/// Checks that the requester and this machine may do it.
pub(super) fn may(
    project: &Project,
    stack: &Stack,
    wanted: &ChangeSetRequest,
) -> Result<(), PrepareError> {
    let target = &project.targets[&stack.target];
    if !wanted.changes() {
        return Ok(());
    }
    wanted.who.check(target)?;
    if !wanted.may_keep_state && target.backend == Backend::Terrane {
        return Err(PrepareError::NoHome {
            stack: stack.name.clone(),
        });
    }
    Ok(())
}

/// Refuses stacks whose rendered files are not current. A destroy does not need current files.
pub(super) fn are_rendered(
    open: &OpenProject,
    project: &Project,
    wanted: &ChangeSetRequest,
) -> Result<(), PrepareError> {
    if wanted.action == Action::Destroy || open.commit.is_some() {
        return Ok(());
    }
    let mut seen = BTreeSet::new();
    for name in &wanted.stacks {
        let render = project.stacks[name].render.as_ref();
        if render.is_some_and(|render| seen.insert(render)) {
            check_fresh(&open.root, project, name)?;
        }
    }
    Ok(())
}

/// Runs use the snapshot. A stack cannot run if its directory, or a module that it calls, is missing there.
pub(super) fn is_in_the_source(
    open: &OpenProject,
    project: &Project,
    snapshot: &Snapshot,
    wanted: &ChangeSetRequest,
) -> Result<(), PrepareError> {
    let listed = snapshot.files.iter().map(|file| file.path.as_str());
    let listed: SourceListing = listed.collect();
    for stack in wanted.stacks.iter().map(|name| &project.stacks[name]) {
        if let Some(ignored) = ignored::of(open, stack, &listed) {
            return Err(PrepareError::Ignored {
                stack: stack.name.clone(),
                ignored,
            });
        }
    }
    Ok(())
}

/// Refuses files of contexts and artifacts by name where the source has a file: what was reviewed is what
/// runs.
pub(super) fn no_file_twice(
    project: &Project,
    snapshot: &Snapshot,
    wanted: &ChangeSetRequest,
) -> Result<(), PrepareError> {
    let paths: BTreeSet<&str> = snapshot.files.iter().map(|it| it.path.as_str()).collect();
    for stack in wanted.stacks.iter().map(|name| &project.stacks[name]) {
        let contexts = stack.contexts.iter();
        for context in contexts.filter_map(|name| project.contexts.get(name)) {
            for file in context.files.keys() {
                if let Some(path) = in_the_way(&paths, &stack.path, file) {
                    return Err(PrepareError::FileTwice {
                        stack: stack.name.clone(),
                        context: context.name.clone(),
                        file: file.clone(),
                        path,
                    });
                }
            }
        }
        // Source files that match a glob belong to the source.
        let names = stack.artifacts.iter().filter(|glob| !is_glob(glob));
        for file in names {
            if let Some(path) = in_the_way(&paths, &stack.path, file) {
                return Err(PrepareError::ArtifactTwice {
                    stack: stack.name.clone(),
                    file: file.clone(),
                    path,
                });
            }
        }
    }
    Ok(())
}

fn is_glob(word: &str) -> bool {
    word.contains(['*', '?', '[', '{'])
}

/// A source file that conflicts with another path: the same path, one below it, or one in place of a
/// directory.
fn in_the_way(paths: &BTreeSet<&str>, dir: &str, file: &str) -> Option<String> {
    let whole = match dir {
        "" => file.to_owned(),
        dir => format!("{dir}/{file}"),
    };
    let below = format!("{whole}/");
    let parents = whole.match_indices('/').map(|(at, _)| &whole[..at]);
    let parent = parents.filter(|parent| parent.len() > dir.len());
    let mut taken = parent.chain([whole.as_str()]);
    let found = taken.find(|path| paths.contains(path)).map(str::to_owned);
    let first_below = || {
        let next = paths.range(below.as_str()..).next()?;
        next.starts_with(&below).then(|| (*next).to_owned())
    };
    found.or_else(first_below)
}

/// Refuses an apply where a person placed a hold. `free` are stacks to which nothing is written.
pub(super) async fn check_holds(
    control: &Control,
    project: &Project,
    wanted: &ChangeSetRequest,
    free: &BTreeSet<StackName>,
) -> Result<(), PrepareError> {
    if !wanted.changes() {
        return Ok(());
    }
    let lanes = super::lanes(project, wanted);
    let active = control
        .store
        .hold_list_active(control.home.project(), control.now());
    let hold = active.await?.into_iter().find(|hold| match &hold.on {
        HoldOn::Stack(stack) => wanted.stacks.contains(stack) && !free.contains(stack),
        HoldOn::Lane(_) => lanes.iter().any(|lane| hold.on.covers_lane(lane)),
    });
    match hold {
        Some(hold) => Err(PrepareError::Held {
            hold: Box::new(hold),
        }),
        None => Ok(()),
    }
}

/// The stacks of a reopened change set whose holds do not matter: they are not started, or only their gates
/// are checked.
pub(super) async fn free_of_holds(
    control: &Control,
    resumed: &ResumeRequest,
) -> Result<BTreeSet<StackName>, PrepareError> {
    let runs = control.store.run_list(resumed.set.id).await?;
    let again = reopen(&resumed.set, &runs, &resumed.what)?;
    let writes = |run: &Run| match &run.state {
        RunState::Finished {
            outcome: Outcome::NotDone { problem, .. },
            ..
        } => problem.stage != Stage::Verifying,
        _ => true,
    };
    let free = runs
        .iter()
        .filter(|run| again.iter().all(|it| it.run != run.id) || !writes(run));
    Ok(free.map(|run| run.stack.clone()).collect())
}

/// A stage is retried only on the state that its run left.
pub(super) async fn check_state(
    control: &Control,
    project: &Project,
    run: &Run,
) -> Result<(), PrepareError> {
    if !run.state.is_not_done() {
        return Ok(());
    }
    let state = control.state_name(&project.stacks[&run.stack].state);
    match staleness::moved(control, run.id, &run.stack, &state).await {
        Ok(None) => Ok(()),
        Ok(Some(moved)) => Err(PrepareError::StateMoved(Box::new(moved))),
        Err(StalenessError::History(err)) => Err(err.into()),
        Err(StalenessError::State(err)) => Err(PrepareError::Reserve(err)),
    }
}

/// Checks that the gates to skip and the installation to take back exist.
pub(super) fn check_exceptions(
    project: &Project,
    wanted: &ChangeSetRequest,
) -> Result<(), PrepareError> {
    let Some(exceptions) = &wanted.exceptions else {
        return Ok(());
    };
    let destroys = wanted.action == Action::Destroy;
    for skipped in &exceptions.skip_gates {
        let stack = project.stacks.get(&skipped.stack);
        let stack = stack.filter(|stack| wanted.stacks.contains(&stack.name));
        let Some(stack) = stack else {
            return Err(PrepareError::NoSuchGate {
                gate: skipped.clone(),
                known: Vec::new(),
            });
        };
        let gates = stack.stages.gates_when(destroys);
        if !gates.iter().any(|gate| gate.is_named(&skipped.gate)) {
            let all = &stack.stages.gates;
            if all.iter().any(|gate| gate.is_named(&skipped.gate)) {
                return Err(PrepareError::GateOfOtherTime {
                    gate: skipped.clone(),
                    is_after_destroy: !destroys,
                });
            }
            return Err(PrepareError::NoSuchGate {
                gate: skipped.clone(),
                known: gates.iter().map(|gate| gate.name.clone()).collect(),
            });
        }
    }
    let installs = |name: &StackName| {
        let mut blocks = project.stacks[name].stages.bootstrap.iter();
        blocks.any(|block| block.kind != "command")
    };
    if exceptions.reinstall && (destroys || !wanted.stacks.iter().any(installs)) {
        return Err(PrepareError::NothingToReinstall);
    }
    Ok(())
}

/// Refuses an apply that depends on a stack whose gates did not pass.
pub(super) async fn check_upstreams_done(
    control: &Control,
    project: &Project,
    wanted: &ChangeSetRequest,
) -> Result<(), PrepareError> {
    if wanted.action != Action::Apply {
        return Ok(());
    }
    for name in &wanted.stacks {
        let outside = upstreams::outside(project, name, &wanted.stacks);
        let wait = project.stacks[name].wait;
        let undone = upstreams::undone(control, &outside, wait, |_| true).await?;
        // An upstream that is being applied may be done when this stack starts. It is checked again then.
        if let Some(undone) = undone.filter(|undone| undone.rests) {
            return Err(PrepareError::UpstreamNotDone {
                stack: name.clone(),
                undone: Box::new(undone),
            });
        }
    }
    Ok(())
}

/// If a target restricts its writers, only runs write its states: a server on this home refuses its
/// clients. If the restriction is removed, the next apply lifts this. A plan of an edited project file does
/// not.
pub(super) async fn reserve_for_runs(
    control: &Control,
    project: &Project,
    wanted: &ChangeSetRequest,
) -> Result<(), PrepareError> {
    let store = &control.store;
    let reserved = store.state_list_reserved(control.home.project()).await;
    let reserved = reserved.map_err(PrepareError::Reserve)?;
    for name in &wanted.stacks {
        let stack = &project.stacks[name];
        let target = &project.targets[&stack.target];
        let state = control.state_name(&stack.state);
        let is_closed = !target.is_open() && target.backend == Backend::Terrane;
        let done = match (is_closed, reserved.contains(&state)) {
            (true, false) => store.state_reserve_for_runs(&state).await,
            (false, true) if wanted.action == Action::Apply => {
                store.state_open_to_others(&state).await
            }
            (false, _) | (true, true) => Ok(()),
        };
        done.map_err(PrepareError::Reserve)?;
    }
    Ok(())
}

/// Refuses a stack whose earlier state must be moved first. A state from before terrane must be imported:
/// from a file beside the module, or from a backend that its source names. A state in this home must be
/// exported to where its target stores states now.
pub(super) async fn check_earlier_state(
    control: &Control,
    open: &OpenProject,
    project: &Project,
    name: &StackName,
) -> Result<(), PrepareError> {
    let stack = &project.stacks[name];
    let state = control.state_name(&stack.state);
    let head = control.store.state_head(&state).await;
    let head = head.map_err(PrepareError::Reserve)?;
    if let Backend::Engine { kind, .. } = &project.targets[&stack.target].backend {
        return match head {
            Some(head) if !head.is_copy() && head.contents.may_hold_resources() => {
                Err(PrepareError::StateHere {
                    stack: name.clone(),
                    serial: head.serial,
                    target: stack.target.clone(),
                    kind: kind.clone(),
                })
            }
            _ => Ok(()),
        };
    }
    if head.is_some() {
        return Ok(());
    }
    let module = open.loaded.modules.get(&stack.path);
    if let Some((kind, at)) = module.and_then(Module::keeps_state_elsewhere) {
        return Err(PrepareError::StateElsewhere {
            stack: name.clone(),
            kind: kind.to_owned(),
            file: at.file.clone(),
            line: at.line,
        });
    }
    let file = format!("{}/terraform.tfstate", stack.path);
    let facts = std::fs::read(open.root.join(&file))
        .ok()
        .and_then(|bytes| StateFacts::read(&bytes).ok());
    if !facts.is_some_and(|facts| facts.contents.may_hold_resources()) {
        return Ok(());
    }
    Err(PrepareError::StateFile {
        stack: name.clone(),
        file,
    })
}

/// Stacks outside of this change set that provide values to it, and whose states are in backends of the
/// engine.
pub(super) fn upstreams_elsewhere(
    project: &Project,
    wanted: &ChangeSetRequest,
) -> BTreeSet<StackName> {
    let edges = wanted.stacks.iter();
    let edges = edges.flat_map(|name| &project.stacks[name].edges);
    let gives = |kind: &EdgeKind| matches!(kind, EdgeKind::Output { .. });
    edges
        .filter(|edge| gives(&edge.kind) && !wanted.stacks.contains(&edge.upstream))
        .filter(|edge| !project.is_on_terrane_backend(&edge.upstream))
        .map(|edge| edge.upstream.clone())
        .collect()
}

/// Checks that outputs of stacks outside of this change set exist already.
pub(super) async fn check_upstreams(
    control: &Control,
    project: &Project,
    wanted: &ChangeSetRequest,
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
                let place = OutputState {
                    name: state.clone(),
                    is_ours: project.is_on_terrane_backend(&edge.upstream),
                };
                let found = outputs::with_nulls(control, &edge.upstream, &place).await?;
                known.insert(state.clone(), found.into_keys().collect::<BTreeSet<_>>());
            }
            // A stack without resources needs no values to be destroyed.
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

/// Refuses to destroy what another stack still depends on. Returns possible dependents, which are checked
/// again when the destroy starts.
pub(super) async fn check_downstreams(
    control: &Control,
    open: &OpenProject,
    project: &Project,
    graph: &Graph,
    wanted: &ChangeSetRequest,
) -> Result<Vec<Dependent>, PrepareError> {
    let mut dependents = Vec::new();
    if wanted.action != Action::Destroy && !wanted.destroy {
        return Ok(dependents);
    }
    for name in &wanted.stacks {
        for other in graph.downstreams(name) {
            if let Some(from) = &open.commit
                && let Some(stack) = from.now.stacks.get(other)
                && stack.edges.iter().all(|edge| edge.upstream != *name)
            {
                continue; // it depended on it then, and no longer does
            }
            if wanted.stacks.contains(other) {
                continue;
            }
            if has_resources(control, project, other).await? {
                return Err(PrepareError::StillNeeded {
                    stack: name.clone(),
                    by: other.clone(),
                    is_of_commit: open.commit.is_some(),
                });
            }
            dependents.push(Dependent {
                stack: other.clone(),
                on: name.clone(),
                state: project.stacks[other].state.clone(),
            });
        }
    }
    let now = open.commit.as_ref().map_or(project, |from| &from.now);
    check_removed(control, now, wanted).await?;
    Ok(dependents)
}

/// Removed stacks whose states still contain something depend on their last upstreams.
async fn check_removed(
    control: &Control,
    now: &Project,
    wanted: &ChangeSetRequest,
) -> Result<(), PrepareError> {
    let wrong = |state: &str| {
        let state = state.to_owned();
        move |source| OutputsError::State { state, source }
    };
    let states = crate::state::queries::abandoned(control, now).await;
    for state in states.map_err(PrepareError::Reserve)? {
        let head = control.store.state_head(&control.state_name(&state)).await;
        let Some(run) = head.map_err(wrong(&state))?.and_then(|head| head.run) else {
            continue; // it is unknown what made it
        };
        let Ok(spec) = control.store.run_spec(run).await else {
            continue; // that run is no longer stored
        };
        let stack = spec.stack;
        if wanted.stacks.contains(&stack.name) {
            continue;
        }
        let mut upstreams = stack.edges.iter().map(|edge| &edge.upstream);
        if let Some(upstream) = upstreams.find(|upstream| wanted.stacks.contains(*upstream)) {
            return Err(PrepareError::StillNeededByRemoved {
                stack: upstream.clone(),
                by: stack.name,
            });
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
