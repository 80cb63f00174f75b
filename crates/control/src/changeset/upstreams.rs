//! Stacks that another stands on and that are no part of its change set: nobody may be applying them, since what they
//! give is just being replaced; and applied is not done, so their gates must have passed, unless it says
//! `wait = "applied"`. What they give is looked at once more before it is applied, where it lies in a backend of the engine.

use std::collections::BTreeSet;
use std::path::Path;

use model::changeset::Action;
use model::error::{NextStep, command};
use model::ids::{ChangeSetId, RunId, StackName};
use model::project::{Project, Wait};
use model::run::{Outcome, Problem, Run, RunSpec, RunState, Skip, Stage};
use store::ChangeSetError;

use crate::Control;
use crate::changeset::backends::{self, Copies, LookAgainError};
use crate::project::open;
use crate::run::failure::Failure;
use crate::secrets::caller_env::Asker;

/// Whom a stack waits for outside a set of stacks.
pub(crate) fn outside(
    project: &Project,
    stack: &StackName,
    inside: &BTreeSet<StackName>,
) -> BTreeSet<StackName> {
    let edges = project.stacks[stack].edges.iter();
    let edges = edges.map(|edge| &edge.upstream);
    edges
        .filter(|name| !inside.contains(*name))
        .cloned()
        .collect()
}

/// An upstream that is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undone {
    pub stack: StackName,
    /// What it is by now: `applied, not verified`, `being applied by change set c4`.
    pub state: String,
    /// What did not pass, in a line.
    pub why: Option<String>,
    /// The one command that continues.
    pub next_step: NextStep,
    /// No process works on it: it does not get there by itself.
    pub rests: bool,
}

impl Undone {
    pub fn words(&self) -> String {
        let why = self.why.as_ref().map(|why| format!(" ({why})"));
        format!(
            "`{}`, which it stands on, is {}{}",
            self.stack,
            self.state,
            why.unwrap_or_default()
        )
    }

    fn of(run: &Run) -> Option<Self> {
        let (why, next_step, rests) = match &run.state {
            RunState::Finished {
                outcome: Outcome::NotDone { problem, .. },
                ..
            } => {
                let why = problem.message.lines().next().map(str::to_owned);
                (why, next_step(problem, run, Action::Apply), true)
            }
            RunState::Applying { .. } | RunState::Applied { .. } | RunState::Completing { .. } => {
                let follow = command(
                    format!("run logs -f {}", run.id),
                    "follows it; resume this one afterwards",
                );
                (None, follow, false)
            }
            RunState::Queued
            | RunState::Planning { .. }
            | RunState::Deferred { .. }
            | RunState::Planned { .. }
            | RunState::Finished { .. } => return None,
        };
        Some(Self {
            stack: run.stack.clone(),
            state: match &run.state {
                RunState::Applying { .. } => {
                    format!("being applied by change set {}", run.change_set)
                }
                RunState::Applied { .. } => "applied, not done".to_owned(),
                state => format!("applied, {}", state.word()),
            },
            why,
            next_step,
            rests,
        })
    }
}

/// The first of some stacks that is being applied, if one takes values of it, or was applied and is not done, as far as one
/// waits for that.
pub(crate) async fn undone(
    control: &Control,
    stacks: &BTreeSet<StackName>,
    wait: Wait,
    takes_of: impl Fn(&StackName) -> bool,
) -> Result<Option<Undone>, ChangeSetError> {
    if stacks.is_empty() {
        return Ok(None);
    }
    let project = control.home.project();
    for set in control.store.change_set_list_open(project).await? {
        if set.request.action != Action::Apply {
            continue; // what is destroyed says so itself
        }
        let runs = control.store.run_list(set.id).await?;
        let mut applying = runs.iter().filter(|run| {
            stacks.contains(&run.stack)
                && takes_of(&run.stack)
                && matches!(run.state, RunState::Applying { .. })
        });
        if let Some(undone) = applying.next().and_then(Undone::of) {
            return Ok(Some(undone));
        }
    }
    if wait == Wait::Applied {
        return Ok(None);
    }
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
    pub next_step: NextStep,
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
            next_step: next_step(problem, &run, set.request.action),
            waiting: waiting.map(|other| other.stack.clone()).collect(),
            stack,
        });
    }
    Ok(found)
}

/// The one command that continues where a stage after the apply did not pass.
fn next_step(problem: &Problem, run: &Run, action: Action) -> NextStep {
    if action == Action::Destroy {
        command(format!("destroy {}", run.stack), "checks what is left")
    } else if problem.can_go_on() {
        command(format!("run retry {}", run.id), "continues there")
    } else {
        command(format!("apply {}", run.stack), "plans it again")
    }
}

/// Refuses the apply of a run whose upstreams are not done.
pub(crate) async fn check(control: &Control, spec: &RunSpec) -> Result<(), Failure> {
    let takes_of = |stack: &StackName| spec.output_states.contains_key(stack);
    let found = undone(control, &spec.stands_on, spec.stack.wait, takes_of).await;
    let found = found.map_err(|err| Failure::because("could not look at its upstreams", &err))?;
    match found {
        None => Ok(()),
        Some(undone) => {
            let message = format!("nothing was applied: {}", undone.words());
            Err(Failure::new(message)
                .hint(undone.next_step.to_string())
                .refused())
        }
    }
}

/// Looks at what backends of the engine hold by now of the stacks that a run takes values of, unless its own change set has
/// just applied them. Says which of them could not be looked at: what is known of those is a copy.
pub(crate) async fn look_again(
    control: &Control,
    set: ChangeSetId,
    spec: &RunSpec,
    asker: &Asker,
) -> Result<Vec<String>, Failure> {
    let elsewhere = spec.output_states.iter();
    let elsewhere = elsewhere.filter(|(_, state)| !state.is_ours);
    let mut stacks: BTreeSet<StackName> = elsewhere.map(|(stack, _)| stack.clone()).collect();
    if stacks.is_empty() {
        return Ok(Vec::new());
    }
    let runs = control.store.run_list(set).await;
    let runs = runs.map_err(|err| Failure::because("could not look at its upstreams", &err))?;
    for run in runs.iter().filter(|run| was_applied(run)) {
        stacks.remove(&run.stack);
    }
    if stacks.is_empty() {
        return Ok(Vec::new());
    }
    let all_unseen = |why: &str| -> Vec<String> {
        let stacks = stacks.iter();
        stacks.map(|stack| unseen(stack, why)).collect()
    };
    let open = match open::open(Path::new(&spec.root), asker.env()) {
        Ok(open) => open,
        Err(err) => return Ok(all_unseen(&err.to_string())),
    };
    let sound = open.loaded.project.as_ref();
    let Some(project) = sound.filter(|_| !open.loaded.has_errors()) else {
        return Ok(all_unseen("the project has errors by now"));
    };
    let is_there = |name: &StackName| {
        let state = project.stacks.get(name).map(|stack| &stack.state);
        let then = spec.output_states.get(name).map(|then| &then.name);
        state.is_some() && state == then && !project.is_on_terrane_backend(name)
    };
    let (there, moved): (BTreeSet<StackName>, BTreeSet<StackName>) =
        stacks.into_iter().partition(is_there);
    let env = asker.env();
    let looked = backends::look_again(control, &open, project, env, &there, Copies::Fresh).await;
    let looked = looked.map_err(|err| not_looked(&err))?;
    let looked = looked.iter().map(|it| unseen(&it.stack, &it.why));
    let moved = moved.iter();
    let moved = moved.map(|stack| unseen(stack, "the project keeps it elsewhere by now"));
    Ok(looked.chain(moved).collect())
}

/// Whether its change set applied a stack: what it gives was read then.
fn was_applied(run: &Run) -> bool {
    let outcome: &Outcome = match &run.state {
        RunState::Finished { outcome, .. } => outcome,
        RunState::Applied { outcome, .. } | RunState::Completing { outcome, .. } => outcome,
        RunState::Queued
        | RunState::Planning { .. }
        | RunState::Deferred { .. }
        | RunState::Planned { .. }
        | RunState::Applying { .. } => return false,
    };
    match outcome {
        Outcome::Applied { .. } => true,
        Outcome::NotDone { done, .. } => matches!(**done, Outcome::Applied { .. }),
        _ => false,
    }
}

fn unseen(stack: &StackName, why: &str) -> String {
    let why: Vec<&str> = why.split_whitespace().collect();
    format!(
        "could not look at the state of stack `{stack}` in its backend before the apply, so its values are those of a copy: {}",
        why.join(" ")
    )
}

fn not_looked(err: &LookAgainError) -> Failure {
    Failure::explained("nothing was applied", err)
}
