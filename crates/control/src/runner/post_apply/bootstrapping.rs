//! Bootstrapping: installs GitOps in the cluster that the stack created, or runs a program of the project.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use model::stage::StageBlock;
use model::stage::bootstrap::{
    Bootstrap, BootstrapAction, BootstrapReport, BootstrapSettingError, StepEnd,
};
use model::state::break_glass::BreakGlassAction;
use serde_json::json;

use super::{Failure, StageReport, StageWork, count, record_act};
use crate::program_output::progress_interval::ProgressInterval;
use crate::stage::bootstrap::{self, BootstrapProgress, ConflictPolicy};
use crate::stage::cluster::ClusterContext;

pub(super) async fn bootstrap(
    part: &StageWork<'_>,
    source: &Path,
    blocks: &[StageBlock],
) -> Result<StageReport, Failure> {
    let resolved = part.resolve(blocks)?;
    let blocks = resolved
        .iter()
        .map(Bootstrap::read)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|err| wrong(&err))?;
    let cluster = ClusterContext {
        source,
        env: &part.env,
        hidden: &part.hidden,
        cache: &part.job.control.cache,
        held: Some(part.job.lock.file()),
    };
    let manner = manner(part, &blocks).await?;
    let mut reports = Vec::new();
    let mut steps = 0;
    for block in &blocks {
        let report = run(part, block, cluster, manner).await;
        steps += report.steps.len();
        if let Some(last) = report.steps.last()
            && let StepEnd::Failed { why, hint } = &last.end
        {
            let mut lines = vec![format!("{}: {}: {why}", report.kind, last.title)];
            let seen = last.notes.iter().filter(|note| *note != why);
            lines.extend(seen.map(|note| format!("  {note}")));
            let mut failure = Failure::new(lines.join("\n"));
            failure.hint.clone_from(hint);
            reports.push(report);
            failure.report = Some(Box::new(json!(reports)));
            return Err(failure);
        }
        reports.push(report);
    }
    Ok(StageReport {
        changed: None,
        summary: summary(steps, &reports),
        details: json!(reports),
    })
}

/// ``4 steps done; ConfigMap argocd/argocd-cm handed over to argocd-controller, which holds `data.url`, and 2 more``
fn summary(steps: usize, reports: &[BootstrapReport]) -> String {
    let mut words = format!("{} done", count(steps, "step"));
    let objects = reports.iter().flat_map(|report| &report.steps);
    let objects = objects.flat_map(|step| &step.objects);
    let mut others = objects.filter(|one| one.outcome.concerns_others());
    if let Some(first) = others.next() {
        words = format!("{words}; {} {}", first.object, first.outcome);
    }
    match others.count() {
        0 => words,
        more => format!("{words}, and {more} more"),
    }
}

fn wrong(err: &BootstrapSettingError) -> Failure {
    let failure = Failure::new(format!("{err} ({}:{})", err.at.file, err.at.line));
    err.hint.iter().fold(failure, Failure::hint)
}

/// Carries out one block, and logs from time to time what it waits for.
async fn run(
    part: &StageWork<'_>,
    block: &Bootstrap,
    cluster: ClusterContext<'_>,
    manner: ConflictPolicy,
) -> BootstrapReport {
    let now = Mutex::new(String::new());
    let at = |words: &str| {
        part.log.say(words);
        words.clone_into(&mut now.lock().unwrap_or_else(PoisonError::into_inner));
    };
    let mut said = |progress: BootstrapProgress<'_>| match progress {
        BootstrapProgress::Began(step) => at(step.title()),
        BootstrapProgress::Seen(_, seen) => at(seen),
        BootstrapProgress::Ended(step) => {
            for note in &step.notes {
                part.log.say(note);
            }
            for one in &step.objects {
                part.log.say(&format!("{}: {}", one.object, one.outcome));
            }
        }
    };
    let running = bootstrap::run(block, cluster, manner, &mut said);
    tokio::pin!(running);
    let mut cadence = ProgressInterval::begin();
    loop {
        tokio::select! {
            report = &mut running => return report,
            () = cadence.due() => if let Some(seconds) = cadence.tick() {
                let now = now.lock().unwrap_or_else(PoisonError::into_inner).clone();
                part.log.still(&format!("still running after {seconds} s: {now}"));
            }
        }
    }
}

/// Leaves objects alone that others manage now, unless the user requests a reinstall with a reason.
async fn manner(part: &StageWork<'_>, blocks: &[Bootstrap]) -> Result<ConflictPolicy, Failure> {
    let exceptions = part.job.set.request.exceptions.as_ref();
    let installs = blocks
        .iter()
        .any(|block| matches!(block.action, BootstrapAction::Agent(_)));
    if !installs || !exceptions.is_some_and(|exceptions| exceptions.reinstall) {
        return Ok(ConflictPolicy::Yield);
    }
    let detail = format!("run {}", part.job.run);
    record_act(part.job, BreakGlassAction::Reinstalled, detail).await?;
    Ok(ConflictPolicy::Reinstall)
}
