//! The plans of a change set, as one page or as events.

use control::changesets;
use model::policy::Verdict;
use model::project::Project;
use model::run::{Awaited, Outcome, Run, RunState};
use serde_json::{Value, json};

use super::ending;
use crate::args::Global;
use crate::view::diagnostics::EngineDiagnostic;
use crate::view::plan::{self, PlanSet, StackPlan, StackStatus};
use crate::view::policy::StackVerdict;
use crate::watch::Watcher;
use crate::{CommandError, Process, report};

/// In the order of the project's layers, then of the graph.
pub(super) async fn plan_set(
    watcher: &Watcher<'_>,
    project: &Project,
) -> Result<PlanSet, CommandError> {
    let mut runs: Vec<&Run> = watcher.runs().iter().collect();
    runs.sort_by_key(|run| {
        let layer = project
            .stacks
            .get(&run.stack)
            .map(|stack| stack.layer.as_str())
            .unwrap_or_default();
        (
            project.layers.get(layer).copied().unwrap_or_default(),
            run.id,
        )
    });
    let (mut stacks, mut policy) = (Vec::new(), Vec::new());
    for run in runs {
        let status = status(watcher, run).await?;
        let verdict = run.state.policy();
        let denied = verdict.is_some_and(Verdict::denies);
        policy.extend(verdict.map(|verdict| StackVerdict {
            stack: run.stack.to_string(),
            verdict: verdict.clone(),
        }));
        stacks.push(StackPlan {
            stack: run.stack.to_string(),
            status,
            remark: denied.then(|| "denied by policy".to_owned()),
        });
    }
    Ok(PlanSet {
        heading: watcher.heading(),
        stacks,
        policy,
    })
}

async fn status(watcher: &Watcher<'_>, run: &Run) -> Result<StackStatus, CommandError> {
    let has_plan = match &run.state {
        RunState::Planned { .. } | RunState::Applying { .. } => true,
        RunState::Finished { outcome, .. } => match outcome {
            Outcome::Planned { .. } => true,
            Outcome::Unchanged | Outcome::Applied { .. } => return Ok(StackStatus::NoChanges),
            Outcome::Untouched => {
                return Ok(StackStatus::Skipped {
                    reason: "nothing it consumes changes".to_owned(),
                });
            }
            Outcome::Deferred { on } => {
                return Ok(StackStatus::Deferred {
                    reason: deferred(on),
                });
            }
            Outcome::Skipped { because } => {
                return Ok(StackStatus::Skipped {
                    reason: ending::skipped(because),
                });
            }
            // What is denied was planned, and is worth seeing.
            Outcome::Failed { problem } if problem.policy.denies() => true,
            Outcome::Failed { problem } => {
                let mut lines = Vec::new();
                if problem.diagnostics.is_empty() {
                    lines.push(problem.message.clone());
                }
                lines.extend(problem.hint.clone());
                return Ok(StackStatus::Failed {
                    lines,
                    diagnostics: ending::diagnostics(problem, watcher.control(), run).await?,
                });
            }
            Outcome::Unknown { .. } => false,
        },
        RunState::Queued | RunState::Planning { .. } => false,
    };
    if !has_plan {
        return Ok(StackStatus::Deferred {
            reason: deferred(&awaited(run, watcher.runs())),
        });
    }
    match changesets::plan_view(watcher.control(), run).await {
        Some(plan) => Ok(StackStatus::Planned(plan)),
        None => Err(CommandError::new(format!(
            "the plan of stack `{}` cannot be read",
            run.stack
        ))),
    }
}

/// What a run that could not be planned yet waits for.
fn awaited(run: &Run, runs: &[Run]) -> Vec<Awaited> {
    let mut awaited = Vec::new();
    for need in &run.upstreams {
        let Some(upstream) = runs.iter().find(|other| other.stack == need.stack) else {
            continue;
        };
        let outputs = match &upstream.state {
            RunState::Finished { .. } => continue,
            RunState::Planned { plan, .. } | RunState::Applying { plan, .. } => {
                need.outputs.intersection(&plan.outputs).cloned().collect()
            }
            RunState::Queued | RunState::Planning { .. } => need.outputs.iter().cloned().collect(),
        };
        awaited.push(Awaited {
            stack: need.stack.clone(),
            outputs,
        });
    }
    awaited
}

/// `subnet_id` is known after `network`.
pub(super) fn deferred(on: &[Awaited]) -> String {
    let words: Vec<String> = on
        .iter()
        .map(|awaited| {
            if awaited.outputs.is_empty() {
                return format!("planned after `{}`", awaited.stack);
            }
            let names: Vec<String> = awaited
                .outputs
                .iter()
                .map(|name| format!("`{name}`"))
                .collect();
            let verb = if names.len() == 1 { "is" } else { "are" };
            format!(
                "{} {verb} known after `{}`",
                names.join(", "),
                awaited.stack
            )
        })
        .collect();
    words.join("; ")
}

pub(super) fn show(
    set: &PlanSet,
    full: bool,
    global: &Global,
    process: &Process,
) -> Result<(), CommandError> {
    if !global.json {
        return report::data(&plan::render(set, full, process.data_look(global)));
    }
    for stack in &set.stacks {
        let (word, plan, reason) = match &stack.status {
            StackStatus::Planned(plan) => ("planned", json!(plan), Value::Null),
            StackStatus::NoChanges => ("unchanged", Value::Null, Value::Null),
            StackStatus::Deferred { reason } => ("deferred", Value::Null, json!(reason)),
            StackStatus::Skipped { reason } => ("skipped", Value::Null, json!(reason)),
            StackStatus::Failed { lines, .. } if lines.is_empty() => {
                ("failed", Value::Null, Value::Null)
            }
            StackStatus::Failed { lines, .. } => ("failed", Value::Null, json!(lines.join("\n"))),
        };
        let mut event = json!({ "event": "plan", "stack": stack.stack, "status": word });
        if !plan.is_null() {
            event["plan"] = plan;
        }
        let said = set.policy.iter().find(|it| it.stack == stack.stack);
        if let Some(said) = said.filter(|it| !it.verdict.asked.is_empty()) {
            if said.verdict.denies() {
                event["status"] = json!("denied");
            }
            event["policy"] = json!(said.verdict);
        }
        if !reason.is_null() {
            event["reason"] = reason;
        }
        if let StackStatus::Failed { diagnostics, .. } = &stack.status {
            event["diagnostics"] = diagnostics.iter().map(diagnostic_json).collect();
        }
        report::json_line(&event)?;
    }
    Ok(())
}

fn diagnostic_json(diagnostic: &EngineDiagnostic) -> Value {
    let source = diagnostic.source.as_ref();
    json!({
        "summary": diagnostic.summary,
        "detail": diagnostic.detail,
        "address": diagnostic.address,
        "file": source.map(|source| &source.file),
        "line": source.map(|source| source.line),
    })
}
