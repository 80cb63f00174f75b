//! Stacks that another stands on and that are no part of its change set: applied is not done, so their gates must have
//! passed, unless it says `wait = "applied"`.

use std::collections::BTreeSet;

use model::ids::StackName;
use model::project::{Project, Wait};
use model::run::{Outcome, Run, RunSpec, RunState};
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
                let way_on = if problem.can_go_on() {
                    format!("`terrane run retry {}` goes on there", run.id)
                } else {
                    format!("`terrane apply {}` plans it afresh", run.stack)
                };
                (
                    problem.message.lines().next().map(str::to_owned),
                    way_on,
                    true,
                )
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
