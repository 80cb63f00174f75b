//! Upstreams of a stack that are not part of its change set. None of them may be in an apply, because their
//! values are just being replaced. Their gates must have passed, unless the stack sets `wait = "applied"`.
//! Values in a backend of the engine are read again before the apply.

use std::collections::BTreeSet;
use std::path::Path;

use model::base::error::{NextStep, command};
use model::base::ids::{ChangeSetId, RunId, StackName};
use model::project::{Project, WaitFor};
use model::run::changeset::Action;
use model::run::{Outcome, Run, RunProblem, RunSpec, RunState, SkipReason, Stage};
use store::ChangeSetError;

use crate::Control;
use crate::changeset::backends::{self, CopyFreshness, RefreshCopyError};
use crate::project::open;
use crate::run::failure::Failure;
use crate::secrets::caller_env::CallerEnv;

/// The stacks outside of a set that a stack waits for.
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
pub struct UnfinishedUpstream {
    pub stack: StackName,
    /// Its current state: `applied, not verified`, `being applied by change set c4`.
    pub state: String,
    /// What did not pass, in one line.
    pub why: Option<String>,
    /// The one command that continues.
    pub next_step: NextStep,
    /// No process works on it: it does not get there by itself.
    pub rests: bool,
}

impl UnfinishedUpstream {
    pub fn words(&self) -> String {
        let why = self.why.as_ref().map(|why| format!(" ({why})"));
        format!(
            "its dependency `{}` is {}{}",
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

/// The first stack that is being applied, if values of it are used, or that was applied and is not done, if
/// `wait` requires that.
pub(crate) async fn undone(
    control: &Control,
    stacks: &BTreeSet<StackName>,
    wait: WaitFor,
    takes_of: impl Fn(&StackName) -> bool,
) -> Result<Option<UnfinishedUpstream>, ChangeSetError> {
    if stacks.is_empty() {
        return Ok(None);
    }
    let project = control.home.project();
    for set in control.store.change_set_list_open(project).await? {
        if set.request.action != Action::Apply {
            continue; // a destroy reports that itself
        }
        let runs = control.store.run_list(set.id).await?;
        let mut applying = runs.iter().filter(|run| {
            stacks.contains(&run.stack)
                && takes_of(&run.stack)
                && matches!(run.state, RunState::Applying { .. })
        });
        if let Some(undone) = applying.next().and_then(UnfinishedUpstream::of) {
            return Ok(Some(undone));
        }
    }
    if wait == WaitFor::Applied {
        return Ok(None);
    }
    for stack in stacks {
        let last = control
            .store
            .run_last_applied(control.home.project(), stack);
        if let Some(undone) = last.await?.as_ref().and_then(UnfinishedUpstream::of) {
            return Ok(Some(undone));
        }
    }
    Ok(None)
}

/// A stack that is applied or destroyed but not done, and that no process works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedRun {
    pub run: RunId,
    pub stack: StackName,
    /// `applied, not verified`
    pub state: String,
    /// The stage at which it stopped.
    pub stage: Stage,
    pub why: Option<String>,
    pub next_step: NextStep,
    /// The stacks that were skipped because of it.
    pub waiting: Vec<StackName>,
}

/// All resting stacks of this project.
pub async fn resting(control: &Control) -> Result<Vec<UnfinishedRun>, ChangeSetError> {
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
                        because: SkipReason::UpstreamFailed { by, .. },
                    },
                ..
            } => *by == stack,
            _ => false,
        };
        let waiting = others.iter().filter(|other| waits(other));
        found.push(UnfinishedRun {
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
fn next_step(problem: &RunProblem, run: &Run, action: Action) -> NextStep {
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
    let found = found.map_err(|err| Failure::because("could not check its dependencies", &err))?;
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

/// Reads the states whose values a run uses from backends of the engine, unless its own change set has just
/// applied them. Returns a message for each one that could not be read: only a copy of it is known.
pub(crate) async fn look_again(
    control: &Control,
    set: ChangeSetId,
    spec: &RunSpec,
    asker: &CallerEnv,
) -> Result<Vec<String>, Failure> {
    let elsewhere = spec.output_states.iter();
    let elsewhere = elsewhere.filter(|(_, state)| !state.is_ours);
    let mut stacks: BTreeSet<StackName> = elsewhere.map(|(stack, _)| stack.clone()).collect();
    if stacks.is_empty() {
        return Ok(Vec::new());
    }
    let runs = control.store.run_list(set).await;
    let runs = runs.map_err(|err| Failure::because("could not check its dependencies", &err))?;
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
        return Ok(all_unseen("the project now has errors"));
    };
    let is_there = |name: &StackName| {
        let state = project.stacks.get(name).map(|stack| &stack.state);
        let then = spec.output_states.get(name).map(|then| &then.name);
        state.is_some() && state == then && !project.is_on_terrane_backend(name)
    };
    let (there, moved): (BTreeSet<StackName>, BTreeSet<StackName>) =
        stacks.into_iter().partition(is_there);
    let env = asker.env();
    let looked =
        backends::look_again(control, &open, project, env, &there, CopyFreshness::Fresh).await;
    let looked = looked.map_err(|err| not_looked(&err))?;
    let looked = looked.iter().map(|it| unseen(&it.stack, &it.why));
    let moved = moved.iter();
    let moved = moved.map(|stack| unseen(stack, "the project now keeps it elsewhere"));
    Ok(looked.chain(moved).collect())
}

/// Whether the change set applied this stack: its outputs were read then.
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
        "could not read the state of stack `{stack}` in its backend before the apply; its values come from a copy: {}",
        why.join(" ")
    )
}

fn not_looked(err: &RefreshCopyError) -> Failure {
    Failure::explained("nothing was applied", err)
}
