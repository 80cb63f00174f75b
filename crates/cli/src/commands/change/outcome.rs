//! Reports the outcome of a change set in full, and returns the exit code.

use std::collections::BTreeSet;
use std::time::Duration;

use control::Control;
use model::project::context::HookTiming;
use model::run::changeset::{Action, Status};
use model::run::engine_event::{EventKind, EventReader};
use model::run::{Outcome, Run, RunEvent, RunProblem, RunState, SkipReason, Stage};
use serde_json::json;

use crate::commands::run::imports::unrecorded_of;
use crate::global::Global;
use crate::view::diagnostics::{DiagnosticSource, DiagnosticView};
use crate::view::outcome::{
    self, ReportedAction, SavedState, StackFailure, StackOutcome, StackResult, UnfinishedStack,
};
use crate::view::unrecorded;
use crate::watch::Watcher;
use crate::{CommandError, ExitStatus, Process, report};

/// How many denials of one stack are printed; the rest is only counted.
const DENIALS: usize = 5;

pub(super) fn plan_status(runs: &[Run], changes_facts: bool, detailed: bool) -> ExitStatus {
    let status = exit_status(runs);
    let has_changes = runs.iter().any(|run| match &run.state {
        RunState::Finished { outcome, .. } => {
            matches!(outcome, Outcome::Planned { .. } | Outcome::Deferred { .. })
        }
        RunState::Queued
        | RunState::Planning { .. }
        | RunState::Deferred { .. }
        | RunState::Planned { .. }
        | RunState::Applying { .. }
        | RunState::Applied { .. }
        | RunState::Completing { .. } => false,
    });
    if status == ExitStatus::Done && detailed && (has_changes || changes_facts) {
        ExitStatus::Changes
    } else {
        status
    }
}

/// Whether a change set has applied anything.
pub(super) fn something_was_applied(runs: &[Run]) -> bool {
    let applied = |run: &Run| match &run.state {
        RunState::Finished { outcome, .. } => {
            matches!(outcome, Outcome::Applied { .. } | Outcome::NotDone { .. })
        }
        RunState::Applied { .. } | RunState::Completing { .. } => true,
        RunState::Queued
        | RunState::Planning { .. }
        | RunState::Deferred { .. }
        | RunState::Planned { .. }
        | RunState::Applying { .. } => false,
    };
    runs.iter().any(applied)
}

pub(super) async fn tell(
    watcher: &mut Watcher<'_>,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let runs = watcher.runs().iter();
    let warned = runs.map(|run| (run.stack.clone(), run.state.warnings()));
    let warned: Vec<_> = warned.filter(|(_, said)| !said.is_empty()).collect();
    for (stack, warnings) in &warned {
        watcher.warn(stack, warnings)?;
    }
    let mut stacks = Vec::new();
    for run in watcher.runs() {
        stacks.push(StackOutcome {
            stack: run.stack.to_string(),
            result: result(watcher, run).await?,
        });
    }
    let action = match watcher.set().request.action {
        Action::Destroy => ReportedAction::Destroy,
        Action::Apply if watcher.set().request.bundle.is_some() => ReportedAction::ApplyBundle,
        Action::Plan => ReportedAction::Plan,
        Action::Apply | Action::Exec => ReportedAction::Apply,
    };
    let ended = outcome::OutcomeReport {
        change_set: watcher.set().id.to_string(),
        action,
        elapsed: watcher.elapsed(),
        stacks,
    };
    let status = match &watcher.set().status {
        Status::Stopped { why } if why == "interrupted" => ExitStatus::Interrupted,
        _ => exit_status(watcher.runs()),
    };
    if global.json {
        say_outcome(watcher, status)?;
    } else {
        report::say(&outcome::render(&ended, process.look(global)))?;
    }
    Ok(status)
}

/// Prints the outcome, the last line of every stream of events.
pub(super) fn say_outcome(watcher: &Watcher<'_>, status: ExitStatus) -> Result<(), CommandError> {
    let stacks = watcher.runs().iter();
    let stacks = stacks.map(|run| (run.stack.to_string(), json!(run.state)));
    report::json_line(&json!({
        "event": "outcome",
        "change_set": watcher.set().id.to_string(),
        "exit": status.code(),
        "stacks": stacks.collect::<serde_json::Map<_, _>>(),
    }))
}

fn is_poisoned(run: &Run) -> bool {
    matches!(
        run.state,
        RunState::Finished {
            outcome: Outcome::Skipped {
                because: SkipReason::UpstreamFailed { .. }
            },
            ..
        }
    )
}

/// The worst status of all runs.
fn exit_status(runs: &[Run]) -> ExitStatus {
    let of = |run: &Run| match &run.state {
        RunState::Finished { outcome, .. } => match outcome {
            Outcome::Failed { problem } | Outcome::NotDone { problem, .. }
                if problem.interrupted =>
            {
                ExitStatus::Interrupted
            }
            Outcome::NotDone { problem, .. } if problem.stage == Stage::Verifying => {
                ExitStatus::NotVerified
            }
            Outcome::Failed { problem } | Outcome::NotDone { problem, .. } if problem.refused => {
                ExitStatus::Refused
            }
            Outcome::NotDone { .. } => ExitStatus::Failed,
            Outcome::Skipped {
                because: SkipReason::StillNeeded { .. } | SkipReason::Undermined { .. },
            } => ExitStatus::Refused,
            Outcome::Failed { .. }
            | Outcome::Unknown { .. }
            | Outcome::Skipped {
                because: SkipReason::Abandoned,
            } => ExitStatus::Failed,
            Outcome::Skipped {
                because: SkipReason::NotConfirmed,
            } => ExitStatus::Waits,
            Outcome::Skipped {
                because: SkipReason::Interrupted,
            } => ExitStatus::Interrupted,
            Outcome::Skipped {
                because: SkipReason::UpstreamFailed { .. },
            }
            | Outcome::Planned { .. }
            | Outcome::Deferred { .. }
            | Outcome::Unchanged
            | Outcome::Untouched
            | Outcome::Applied { .. } => ExitStatus::Done,
        },
        RunState::Queued
        | RunState::Planning { .. }
        | RunState::Deferred { .. }
        | RunState::Planned { .. }
        | RunState::Applying { .. }
        | RunState::Applied { .. }
        | RunState::Completing { .. } => ExitStatus::Failed,
    };
    match runs.iter().map(of).max().unwrap_or(ExitStatus::Done) {
        // The upstream that caused the skip is fixed by now, but the skipped run is still to be done.
        ExitStatus::Done if runs.iter().any(is_poisoned) => ExitStatus::Failed,
        worst => worst,
    }
}

async fn result(watcher: &Watcher<'_>, run: &Run) -> Result<StackResult, CommandError> {
    let RunState::Finished { outcome, .. } = &run.state else {
        return Ok(StackResult::Skipped);
    };
    Ok(match outcome {
        Outcome::Planned { .. } | Outcome::Deferred { .. } | Outcome::Unchanged => {
            StackResult::Unchanged
        }
        Outcome::Untouched => StackResult::Untouched,
        Outcome::Applied { .. } if watcher.was_before(run) => StackResult::Before,
        Outcome::Applied { .. } => StackResult::Changed,
        Outcome::Skipped {
            because: SkipReason::UpstreamFailed { by, through },
        } => StackResult::UpstreamFailed {
            by: by.to_string(),
            through: through.iter().map(ToString::to_string).collect(),
        },
        Outcome::Skipped {
            because: because @ SkipReason::StillNeeded { .. },
        } => StackResult::StillNeeded {
            why: because.words(),
        },
        Outcome::Skipped {
            because: because @ SkipReason::Undermined { .. },
        } => StackResult::Undermined {
            why: because.words(),
        },
        Outcome::Skipped {
            because: SkipReason::Interrupted,
        } => StackResult::Cancelled,
        Outcome::Skipped { .. } => StackResult::Skipped,
        Outcome::Failed { problem } => {
            let failure = failure(watcher, run, problem).await?;
            if problem.policy.lacks_only_approvals() {
                StackResult::NotApproved(failure)
            } else if problem.policy.denies() {
                StackResult::Denied(failure)
            } else if problem.interrupted {
                StackResult::Interrupted(failure)
            } else {
                StackResult::Failed(failure)
            }
        }
        Outcome::NotDone { problem, .. } => StackResult::NotDone(UnfinishedStack {
            failure: failure(watcher, run, problem).await?,
            run: run.id.to_string(),
            is_interrupted: problem.interrupted,
            can_go_on: problem.can_go_on(),
        }),
        Outcome::Unknown { kept, .. } => StackResult::Unknown(StackFailure {
            stage: "applying".to_owned(),
            after: took(watcher, run).await?,
            lines: [
                lost_lines(kept.as_deref()),
                hook_lines(watcher, run).await?,
                left_lines(run),
            ]
            .concat(),
            diagnostics: Vec::new(),
            kept: None,
            made_by: made_by(run),
        }),
    })
}

async fn failure(
    watcher: &Watcher<'_>,
    run: &Run,
    problem: &RunProblem,
) -> Result<StackFailure, CommandError> {
    let after = took(watcher, run).await?;
    let mut lines = Vec::new();
    // For an interrupt the headline is enough, unless a time limit or another user caused it.
    if problem.policy.denies() {
        let denials = problem.policy.denials.iter();
        lines.extend(denials.take(DENIALS).map(ToString::to_string));
        match problem.policy.denials.len().saturating_sub(DENIALS) + problem.policy.left_off {
            0 => {}
            more => lines.push(format!(
                "and {more} more: `terrane run show {} --json`",
                run.id
            )),
        }
    } else if problem.was_stopped() || problem.diagnostics.is_empty() && !problem.interrupted {
        lines.extend(problem.message.lines().map(str::to_owned));
    }
    lines.extend(problem.hint.clone());
    lines.extend(left_lines(run));
    let kept = problem
        .serial
        .filter(|_| problem.stage == Stage::Applying)
        .map(|serial| {
            let (changed, begun) = completed(watcher.control(), run);
            SavedState {
                serial: u64::try_from(serial).unwrap_or_default(),
                changed,
                begun,
            }
        });
    Ok(StackFailure {
        stage: problem.word().to_owned(),
        after,
        lines,
        diagnostics: diagnostics(problem, watcher.control(), run).await?,
        kept,
        made_by: made_by(run),
    })
}

/// How long the run's last stage took.
async fn took(watcher: &Watcher<'_>, run: &Run) -> Result<Duration, CommandError> {
    let events = watcher.control().run_events(run.id).await;
    let events = events.map_err(|err| CommandError::from_error(&err))?;
    let started = events
        .iter()
        .rev()
        .find(|(_, event)| is_start(event))
        .map(|(at, _)| *at);
    let ended = events.last().map(|(at, _)| *at);
    Ok(match (started, ended) {
        (Some(started), Some(ended)) => {
            Duration::try_from(ended.duration_since(started)).unwrap_or_default()
        }
        _ => Duration::ZERO,
    })
}

fn is_start(event: &RunEvent) -> bool {
    matches!(
        event,
        RunEvent::PlanStarted | RunEvent::ApplyStarted | RunEvent::StageStarted { .. }
    )
}

/// How many resources the engine completed before it failed, and how many it had only started.
fn completed(control: &Control, run: &Run) -> (usize, usize) {
    let path = control.home.engine_events(run.id, Stage::Applying);
    let bytes = std::fs::read(path).unwrap_or_default();
    let mut reader = EventReader::default();
    let mut open = BTreeSet::new();
    let mut done = 0;
    for event in reader.push(&bytes) {
        match &event.kind {
            EventKind::ApplyStart(step) => {
                open.insert(step.resource.addr.clone());
            }
            EventKind::ApplyComplete(step) => {
                open.remove(&step.resource.addr);
                done += 1;
            }
            _ => {}
        }
    }
    (done, open.len())
}

/// The engine's diagnostics, with files relative to the project's root.
pub(super) async fn diagnostics(
    problem: &RunProblem,
    control: &Control,
    run: &Run,
) -> Result<Vec<DiagnosticView>, CommandError> {
    let spec = control.run_spec(run.id).await;
    let path = spec
        .map_err(|err| CommandError::from_error(&err))?
        .stack
        .path;
    let place = |file: &String| {
        if path.is_empty() {
            file.clone()
        } else {
            format!("{path}/{file}")
        }
    };
    let shown = problem.diagnostics.iter().map(|diagnostic| DiagnosticView {
        is_warning: false,
        summary: diagnostic.summary.clone(),
        detail: diagnostic.detail.clone(),
        address: diagnostic.address.clone(),
        source: diagnostic.file.as_ref().map(|file| DiagnosticSource {
            file: place(file),
            line: diagnostic
                .line
                .and_then(|line| usize::try_from(line).ok())
                .unwrap_or(0),
            code: None,
        }),
    });
    Ok(shown.collect())
}

/// The message about a run whose result is unknown.
pub(in crate::commands) fn unknown(run: &Run) -> Option<String> {
    let RunState::Finished {
        outcome: Outcome::Unknown { kept, .. },
        ..
    } = &run.state
    else {
        return None;
    };
    let words = lost_lines(kept.as_deref()).join("; ");
    Some(format!(
        "run {} of stack `{}` ended unknown: {words}",
        run.id, run.stack
    ))
}

/// The run's id, if its engine created importable resources that no state records.
fn made_by(run: &Run) -> Option<String> {
    let left = unrecorded_of(&run.state).filter(|left| !left.importable().is_empty());
    left.map(|_| run.id.to_string())
}

/// The hooks that may not have run because the runner was lost.
async fn hook_lines(watcher: &Watcher<'_>, run: &Run) -> Result<Vec<String>, CommandError> {
    let spec = watcher.control().run_spec(run.id).await;
    let spec = spec.map_err(|err| CommandError::from_error(&err))?;
    let line = "its hooks after `apply` did not run: they run when it is applied again, even if nothing is left to change";
    let owes = spec.has_hooks(Stage::Applying, Some(HookTiming::After));
    Ok(owes.then(|| line.to_owned()).into_iter().collect())
}

/// What the run's engine did that no state records.
fn left_lines(run: &Run) -> Vec<String> {
    let left = unrecorded_of(&run.state);
    left.map_or_else(Vec::new, |left| {
        unrecorded::lines(left, &run.id.to_string(), run.stack.as_str())
    })
}

fn lost_lines(kept: Option<&str>) -> Vec<String> {
    let mut lines = vec!["its runner was lost while applying: the result is unknown".to_owned()];
    lines.extend(kept.map(str::to_owned));
    lines.push("next step: a new plan shows which resources exist".to_owned());
    lines
}
