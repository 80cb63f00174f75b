//! The plans of a change set, as one page or as events.

use control::changeset::prepare;
use control::changeset::restrictions::Restrictions;
use control::stage::facts::forecast_of;
use model::plan::placeholders::as_text;
use model::project::Project;
use model::run::changeset::Action;
use model::run::confirmation::ConfirmationReason;
use model::run::{AwaitedOutputs, Outcome, Preview, Run, RunEvent, RunState};
use serde_json::{Value, json};

use super::outcome;
use crate::global::Global;
use crate::view::diagnostics::DiagnosticView;
use crate::view::plan::{self, PlanSet, StackPlan, StackStatus};
use crate::view::policy::StackVerdict;
use crate::view::restrictions;
use crate::watch::Watcher;
use crate::{CommandError, Process, report};

/// Whether plans that were applied are shown, too.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AppliedPlans {
    /// Only named: the user is asked about the others.
    Named,
    Shown,
}

/// The plans in the order of the project's layers, then of the graph.
pub(super) async fn plan_set(
    watcher: &Watcher<'_>,
    project: &Project,
    applied: AppliedPlans,
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
    let (mut stacks, mut policy, mut facts) = (Vec::new(), Vec::new(), Vec::new());
    for run in runs {
        let status = status(watcher, run, applied).await?;
        let forecast = forecast_of(&watcher.control().home, run.id);
        if !forecast.is_empty() {
            facts.push((run.stack.to_string(), forecast));
        }
        let denied = hear(run, &mut policy);
        let deferred = deferral(run);
        let mut remarks: Vec<String> = match denied {
            DenialTime::Now => vec!["denied by policy".to_owned()],
            DenialTime::Foreseen | DenialTime::Not => deferred.iter().cloned().collect(),
        };
        if denied == DenialTime::Foreseen {
            remarks.push("policy would deny it".to_owned());
        }
        if denied != DenialTime::Now {
            remarks.extend(asked_again(watcher, run).await?);
        }
        stacks.push(StackPlan {
            stack: run.stack.to_string(),
            status,
            is_deferred: deferred.is_some(),
            remark: (!remarks.is_empty()).then(|| remarks.join("; ")),
        });
    }
    let control = watcher.control();
    let in_force = Restrictions::read(control).await;
    let in_force = in_force.map_err(|err| CommandError::from_error(&err))?;
    let names = watcher.runs().iter().map(|run| run.stack.clone()).collect();
    Ok(PlanSet {
        in_force: restrictions::lines(&in_force.on(control, project, &names)),
        heading: watcher.heading(),
        stacks,
        policy,
        facts,
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DenialTime {
    Now,
    Foreseen,
    Not,
}

/// Adds the policy verdict on a run's plan or preview.
fn hear(run: &Run, policy: &mut Vec<StackVerdict>) -> DenialTime {
    let foreseen = run.state.foreseen().cloned();
    let is_foreseen = foreseen.is_some();
    let Some(verdict) = foreseen.or_else(|| run.state.policy()) else {
        return DenialTime::Not;
    };
    let denied = match (verdict.denies(), is_foreseen) {
        (true, true) => DenialTime::Foreseen,
        (true, false) => DenialTime::Now,
        (false, _) => DenialTime::Not,
    };
    policy.push(StackVerdict {
        stack: run.stack.to_string(),
        verdict,
        is_foreseen,
    });
    denied
}

/// Why the user is asked again, and what is new since an earlier plan was approved.
async fn asked_again(watcher: &Watcher<'_>, run: &Run) -> Result<Option<String>, CommandError> {
    let (RunState::Planned { .. } | RunState::Deferred { .. }) = run.state else {
        return Ok(None);
    };
    let events = watcher.control().run_events(run.id).await;
    let events = events.map_err(|err| CommandError::from_error(&err))?;
    let last = events.into_iter().rev().find_map(|(_, event)| match event {
        RunEvent::PlanFinished {
            new,
            is_equal,
            reason,
            ..
        } => Some((new, is_equal, reason)),
        RunEvent::Previewed { new, .. } => Some((new, None, None)),
        _ => None,
    });
    Ok(last.and_then(|(new, is_equal, reason)| {
        if reason == Some(ConfirmationReason::EndedUnknown) {
            return Some("its last apply ended unknown: check the whole plan".to_owned());
        }
        match (new.as_slice(), is_equal) {
            // The approved plan can no longer be read.
            ([], Some(false)) => Some("planned again: check the whole plan".to_owned()),
            ([], _) => None,
            (new, _) => Some(format!("new since it was approved: {}", new.join("; "))),
        }
    }))
}

async fn status(
    watcher: &Watcher<'_>,
    run: &Run,
    applied: AppliedPlans,
) -> Result<StackStatus, CommandError> {
    let has_plan = match &run.state {
        RunState::Planned { .. } | RunState::Applying { .. } => true,
        RunState::Applied { outcome, .. } | RunState::Completing { outcome, .. } => {
            return after_apply(watcher, run, outcome, applied).await;
        }
        RunState::Finished { outcome, .. } => match outcome {
            Outcome::Planned { .. } => true,
            Outcome::Unchanged | Outcome::Applied { .. } => {
                return after_apply(watcher, run, outcome, applied).await;
            }
            Outcome::NotDone { done, .. } => {
                return after_apply(watcher, run, done, applied).await;
            }
            Outcome::Deferred { on, preview } => match seen(on, preview) {
                Some(status) => return Ok(status),
                None => true,
            },
            Outcome::Untouched => return Ok(StackStatus::Untouched),
            Outcome::Skipped { because } => {
                return Ok(StackStatus::Skipped {
                    reason: because.words(),
                });
            }
            // A denied run has a plan, which is worth showing.
            Outcome::Failed { problem } if problem.policy.denies() => true,
            Outcome::Failed { problem } => {
                let mut lines = Vec::new();
                if problem.diagnostics.is_empty() {
                    lines.push(problem.message.clone());
                }
                lines.extend(problem.hint.clone());
                return Ok(StackStatus::Failed {
                    stage: problem.word().to_owned(),
                    is_interrupted: problem.interrupted,
                    lines,
                    diagnostics: outcome::diagnostics(problem, watcher.control(), run).await?,
                });
            }
            Outcome::Unknown { .. } => false,
        },
        RunState::Deferred { on, preview } => match seen(on, preview) {
            Some(status) => return Ok(status),
            None => true,
        },
        RunState::Queued | RunState::Planning { .. } => false,
    };
    if !has_plan {
        return Ok(StackStatus::Deferred {
            reason: deferred(&awaited(run, watcher.runs())),
        });
    }
    match prepare::plan_view(watcher.control(), run).await {
        Some(plan) => Ok(StackStatus::Planned(plan)),
        // A preview is only on the machine that made it, and nothing depends on it.
        None if matches!(run.state, RunState::Deferred { .. }) => Ok(StackStatus::Deferred {
            reason: deferred(&awaited(run, watcher.runs())),
        }),
        None => Err(unreadable(watcher, run)),
    }
}

/// The error for a plan that cannot be read. A plan is stored, sealed, only on the machine that made it.
fn unreadable(watcher: &Watcher<'_>, run: &Run) -> CommandError {
    let said = CommandError::new(format!("cannot read the plan of stack `{}`", run.stack));
    let set = watcher.set();
    if set.request.machine == watcher.control().home.machine() {
        return said;
    }
    let id = set.id;
    said.cause("it is on the machine that made it")
        .hint(format!(
            "`terrane run show {id} --plan` there shows it; a bundle (`terrane plan --out FILE`) is shown wherever it is \
             applied"
        ))
}

/// The status of a run that needs no plan any more: it was applied, or had nothing to change.
async fn after_apply(
    watcher: &Watcher<'_>,
    run: &Run,
    outcome: &Outcome,
    applied: AppliedPlans,
) -> Result<StackStatus, CommandError> {
    let Outcome::Applied { .. } = outcome else {
        return Ok(StackStatus::NoChanges);
    };
    // An engine command is carried out without a plan.
    if applied == AppliedPlans::Named || watcher.set().request.action == Action::Exec {
        return Ok(StackStatus::Applied(None));
    }
    match prepare::plan_view(watcher.control(), run).await {
        Some(plan) => Ok(StackStatus::Applied(Some(plan))),
        None => Err(unreadable(watcher, run)),
    }
}

/// The status of a deferred run whose preview has no plan; none if it has one.
fn seen(on: &[AwaitedOutputs], preview: &Preview) -> Option<StackStatus> {
    let reason = match preview {
        Preview::Planned { .. } => return None,
        Preview::Unchanged => return Some(StackStatus::NoChanges),
        Preview::None => deferred(on),
        Preview::Impossible { why } => why.clone(),
    };
    Some(StackStatus::Deferred { reason })
}

/// ``deferred: `subnet_id` is known after `network` ``, shown next to the preview.
fn deferral(run: &Run) -> Option<String> {
    let (on, preview) = match &run.state {
        RunState::Deferred { on, preview }
        | RunState::Finished {
            outcome: Outcome::Deferred { on, preview },
            ..
        } => (on, preview),
        RunState::Finished { .. }
        | RunState::Queued
        | RunState::Planning { .. }
        | RunState::Planned { .. }
        | RunState::Applying { .. }
        | RunState::Applied { .. }
        | RunState::Completing { .. } => return None,
    };
    match preview {
        Preview::None => None, // already part of the reason
        Preview::Impossible { .. } => Some(deferred(on)),
        Preview::Planned { .. } | Preview::Unchanged => Some(format!("deferred: {}", deferred(on))),
    }
}

/// What a run that is not planned yet waits for.
fn awaited(run: &Run, runs: &[Run]) -> Vec<AwaitedOutputs> {
    let mut awaited = Vec::new();
    for need in &run.upstreams {
        let Some(upstream) = runs.iter().find(|other| other.stack == need.stack) else {
            continue;
        };
        let outputs = match &upstream.state {
            RunState::Finished { .. } | RunState::Applied { .. } | RunState::Completing { .. } => {
                continue;
            }
            RunState::Planned { plan, .. } | RunState::Applying { plan, .. } => {
                need.outputs.intersection(&plan.outputs).cloned().collect()
            }
            RunState::Queued | RunState::Planning { .. } | RunState::Deferred { .. } => {
                need.outputs.iter().cloned().collect()
            }
        };
        awaited.push(AwaitedOutputs {
            stack: need.stack.clone(),
            outputs,
        });
    }
    awaited
}

/// `subnet_id` is known after `network`.
pub(super) fn deferred(on: &[AwaitedOutputs]) -> String {
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
        let remark = stack.remark.as_deref().map_or(Value::Null, |remark| {
            let words = remark.strip_prefix("deferred: ");
            json!(words.unwrap_or(remark))
        });
        let (word, plan, reason) = match (&stack.status, stack.is_deferred) {
            (StackStatus::Planned(plan), true) => ("deferred", json!(plan), remark),
            (StackStatus::NoChanges, true) => ("deferred", Value::Null, remark),
            (StackStatus::Planned(plan), false) => ("planned", json!(plan), remark),
            (StackStatus::Applied(plan), _) => ("applied", json!(plan), Value::Null),
            (StackStatus::NoChanges, false) => ("unchanged", Value::Null, Value::Null),
            (StackStatus::Deferred { reason }, _) => ("deferred", Value::Null, json!(reason)),
            (StackStatus::Untouched, _) => ("untouched", Value::Null, Value::Null),
            (StackStatus::Skipped { reason }, _) => ("skipped", Value::Null, json!(reason)),
            (StackStatus::Failed { lines, .. }, _) if lines.is_empty() => {
                ("failed", Value::Null, Value::Null)
            }
            (StackStatus::Failed { lines, .. }, _) => {
                ("failed", Value::Null, json!(lines.join("\n")))
            }
        };
        let mut event = json!({ "event": "plan", "stack": stack.stack, "status": word });
        if !plan.is_null() {
            event["plan"] = as_text(plan);
        }
        let facts = set.facts.iter().find(|(name, _)| *name == stack.stack);
        if let Some((_, forecast)) = facts {
            event["facts"] = json!(forecast);
        }
        let said = set.policy.iter().find(|it| it.stack == stack.stack);
        if let Some(said) = said.filter(|it| !it.verdict.asked.is_empty()) {
            if said.verdict.denies() && !said.is_foreseen {
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
    if !set.in_force.is_empty() {
        report::json_line(&json!({ "event": "in_force", "lines": set.in_force }))?;
    }
    Ok(())
}

fn diagnostic_json(diagnostic: &DiagnosticView) -> Value {
    let source = diagnostic.source.as_ref();
    json!({
        "summary": diagnostic.summary,
        "detail": diagnostic.detail,
        "address": diagnostic.address,
        "file": source.map(|source| &source.file),
        "line": source.map(|source| source.line),
    })
}
