//! Stacks that another stands on and that are no part of its change set: applied is not done, so their gates must have
//! passed, unless it says `wait = "applied"`.

use std::collections::BTreeSet;

use model::changeset::Action;
use model::ids::{RunId, StackName};
use model::project::{Project, Wait};
use model::run::{Outcome, Problem, Run, RunSpec, RunState, Skip, Stage};
use store::ChangeSetError;

use crate::Control;
use crate::runner::Failure;

/// Whom a stack waits for outside a set of stacks.
pub(crate) fn outside(
    project: &Project,
    stack: &StackName,
    inside: &BTreeSet<StackName>,
) -> BTreeSet<StackName> {
    let stack = &project.stacks[stack];
    if stack.wait == Wait::Applied {
        return BTreeSet::new();
    }
    let edges = stack.edges.iter().map(|edge| &edge.upstream);
    edges
        .filter(|name| !inside.contains(*name))
        .cloned()
        .collect()
}

/// An upstream that was applied and is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undone {
    pub stack: StackName,
    /// What it is by now, in a word: `not verified`, `publishing`.
    pub word: &'static str,
    /// What did not pass, in a line.
    pub why: Option<String>,
    /// The one command that goes on.
    pub way_on: String,
    /// Nobody is at it: it does not get there by itself.
    pub rests: bool,
}

impl Undone {
    pub fn words(&self) -> String {
        let why = self.why.as_ref().map(|why| format!(" ({why})"));
        format!(
            "`{}`, which it stands on, is applied, {}{}",
            self.stack,
            self.word,
            why.unwrap_or_default()
        )
    }

    fn of(run: &Run) -> Option<Self> {
        let (why, way_on, rests) = match &run.state {
            RunState::Finished {
                outcome: Outcome::NotDone { problem, .. },
                ..
            } => {
                let why = problem.message.lines().next().map(str::to_owned);
                (why, way_on(problem, run, Action::Apply), true)
            }
            RunState::Applied { .. } | RunState::Completing { .. } => {
                let way_on = format!("`terrane run logs -f {}` shows how far it is", run.id);
                (None, way_on, false)
            }
            RunState::Queued
            | RunState::Planning { .. }
            | RunState::Deferred { .. }
            | RunState::Planned { .. }
            | RunState::Applying { .. }
            | RunState::Finished { .. } => return None,
        };
        Some(Self {
            stack: run.stack.clone(),
            word: match &run.state {
                RunState::Applied { .. } => "not done",
                state => state.word(),
            },
            why,
            way_on,
            rests,
        })
    }
}

/// The first of some stacks that was applied and is not done.
pub(crate) async fn undone(
    control: &Control,
    stacks: &BTreeSet<StackName>,
) -> Result<Option<Undone>, ChangeSetError> {
    for stack in stacks {
        let last = control
            .store
            .run_last_applied(control.home.project(), stack);
        if let Some(undone) = last.await?.as_ref().and_then(Undone::of) {
            return Ok(Some(undone));
        }
    }
    Ok(None)
}

/// A stack that is applied, or destroyed, and not done, at which nobody is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resting {
    pub run: RunId,
    pub stack: StackName,
    /// `applied, not verified`
    pub state: String,
    /// At which stage it stopped.
    pub stage: Stage,
    pub why: Option<String>,
    pub way_on: String,
    /// Those that were not begun because of it.
    pub waiting: Vec<StackName>,
}

/// All of them in this project.
pub async fn resting(control: &Control) -> Result<Vec<Resting>, ChangeSetError> {
    let (store, project) = (&control.store, control.home.project());
    let mut found = Vec::new();
    for stack in store.run_list_not_done(project).await? {
        let Some(run) = store.run_last_applied(project, &stack).await? else {
            continue;
        };
        let RunState::Finished {
            outcome: outcome @ Outcome::NotDone { problem, .. },
            ..
        } = &run.state
        else {
            continue;
        };
        let set = store.change_set_get(run.change_set).await?;
        let done = match set.request.action {
            Action::Destroy => "destroyed",
            Action::Plan | Action::Apply | Action::Exec => "applied",
        };
        let others = store.run_list(run.change_set).await?;
        let waits = |other: &Run| match &other.state {
            RunState::Finished {
                outcome:
                    Outcome::Skipped {
                        because: Skip::Poisoned { by, .. },
                    },
                ..
            } => *by == stack,
            _ => false,
        };
        let waiting = others.iter().filter(|other| waits(other));
        found.push(Resting {
            run: run.id,
            state: format!("{done}, {}", outcome.word()),
            stage: problem.stage,
            why: problem.message.lines().next().map(str::to_owned),
            way_on: way_on(problem, &run, set.request.action),
            waiting: waiting.map(|other| other.stack.clone()).collect(),
            stack,
        });
    }
    Ok(found)
}

/// The one command that goes on where a stage after the apply did not pass.
fn way_on(problem: &Problem, run: &Run, action: Action) -> String {
    if action == Action::Destroy {
        format!("`terrane destroy {}` looks at what is left", run.stack)
    } else if problem.can_go_on() {
        format!("`terrane run retry {}` goes on there", run.id)
    } else {
        format!("`terrane apply {}` plans it afresh", run.stack)
    }
}

/// Refuses the apply of a run whose upstreams are not done.
pub(crate) async fn check(control: &Control, spec: &RunSpec) -> Result<(), Failure> {
    let found = undone(control, &spec.stands_on).await;
    let found = found.map_err(|err| Failure::because("could not look at its upstreams", &err))?;
    match found {
        None => Ok(()),
        Some(undone) => {
            let message = format!("nothing was applied: {}", undone.words());
            Err(Failure::new(message).hint(undone.way_on).refused())
        }
    }
}
