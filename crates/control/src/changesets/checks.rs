//! What must hold before a change set is put together at all.

use std::collections::{BTreeMap, BTreeSet};

use drivers::snapshot::Snapshot;
use model::changeset::{Action, Dependent};
use model::graph::Graph;
use model::hold::HoldOn;
use model::ids::StackName;
use model::project::{Backend, EdgeKind, Project, Stack};
use model::state::{Contents, StateFacts};

use super::{PrepareError, Wanted, is_ours};
use crate::Control;
use crate::outputs::{self, OutputsError};
use crate::projects::OpenProject;

/// Whether who asks, and this machine, may do it at all.
pub(super) fn may(project: &Project, stack: &Stack, wanted: &Wanted) -> Result<(), PrepareError> {
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

/// No context gives a file where the source has one: what was reviewed is what runs.
pub(super) fn no_file_twice(
    project: &Project,
    snapshot: &Snapshot,
    wanted: &Wanted,
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
    }
    Ok(())
}

/// A file of the source where another should lie: there, below it, or in the place of one of its directories.
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

/// Nothing is applied where a person said not to.
pub(super) async fn check_holds(
    control: &Control,
    project: &Project,
    wanted: &Wanted,
) -> Result<(), PrepareError> {
    if !wanted.changes() {
        return Ok(());
    }
    let lanes = super::lanes(project, wanted);
    let active = control
        .store
        .hold_list_active(control.home.project(), control.now());
    let hold = active.await?.into_iter().find(|hold| match &hold.on {
        HoldOn::Stack(stack) => wanted.stacks.contains(stack),
        HoldOn::Lane(lane) => lanes.contains(lane),
    });
    match hold {
        Some(hold) => Err(PrepareError::Held {
            hold: Box::new(hold),
        }),
        None => Ok(()),
    }
}

/// Where not anyone may apply, only runs write the state: a server on this home refuses its clients. Where anyone may
/// again, it does no more.
pub(super) async fn reserve_for_runs(
    control: &Control,
    project: &Project,
    wanted: &Wanted,
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
            (false, true) => store.state_open_to_others(&state).await,
            (true, true) | (false, false) => Ok(()),
        };
        done.map_err(PrepareError::Reserve)?;
    }
    Ok(())
}

/// A state file that somebody applied beside the module, before the stack came here, must be brought in first.
pub(super) async fn check_state_file(
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
pub(super) async fn check_upstreams(
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

/// Nothing is destroyed that something else still stands on. Says who might: the same is asked again when it begins.
pub(super) async fn check_downstreams(
    control: &Control,
    open: &OpenProject,
    project: &Project,
    graph: &Graph,
    wanted: &Wanted,
) -> Result<Vec<Dependent>, PrepareError> {
    let mut dependents = Vec::new();
    if wanted.action != Action::Destroy {
        return Ok(dependents);
    }
    for name in &wanted.stacks {
        for other in graph.downstreams(name) {
            if let Some(from) = &open.commit
                && let Some(stack) = from.now.stacks.get(other)
                && stack.edges.iter().all(|edge| edge.upstream != *name)
            {
                continue; // it stood on it then, and does no longer
            }
            if wanted.stacks.contains(other) {
                continue;
            }
            if has_resources(control, project, other).await? {
                return Err(PrepareError::StillNeeded {
                    stack: name.clone(),
                    by: other.clone(),
                });
            }
            dependents.push(Dependent {
                stack: other.clone(),
                on: name.clone(),
                state: project.stacks[other].state.clone(),
            });
        }
    }
    Ok(dependents)
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
