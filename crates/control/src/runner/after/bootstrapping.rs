//! Bootstrapping: the cluster that the stack made is put into the hands of GitOps, or a program of the project does
//! what it wants done.

use std::path::Path;

use model::bootstrap::{Bootstrap, Deed, StepEnd};
use model::break_glass::Act;
use model::stage::StageBlock;
use serde_json::json;

use super::{Failure, Part, Report, count, record_act};
use crate::bootstrap::{self, Ground, Manner, Progress};

pub(super) async fn bootstrap(
    part: &Part<'_>,
    source: &Path,
    blocks: &[StageBlock],
) -> Result<Report, Failure> {
    let resolved = part.resolve(blocks)?;
    let blocks = resolved
        .iter()
        .map(Bootstrap::read)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|err| Failure::because("could not work out a `bootstrap`", &err))?;
    let ground = Ground {
        source,
        env: &part.env,
        hidden: &part.hidden,
        cache: &part.job.control.cache,
        held: Some(&part.job.lock),
    };
    let manner = manner(part, &blocks).await?;
    let mut reports = Vec::new();
    let mut steps = 0;
    for block in &blocks {
        let mut said = |progress: Progress<'_>| match progress {
            Progress::Began(step) => part.log.say(step.title()),
            Progress::Seen(_, seen) => part.log.say(seen),
            Progress::Ended(_) => {}
        };
        let report = bootstrap::run(block, ground, manner, &mut said).await;
        steps += report.steps.len();
        if let Some(last) = report.steps.last()
            && let StepEnd::Failed { why, hint } = &last.end
        {
            let mut failure = Failure::new(format!("{}: {}: {why}", report.kind, last.title));
            failure.hint.clone_from(hint);
            reports.push(report);
            failure.report = Some(Box::new(json!(reports)));
            return Err(failure);
        }
        reports.push(report);
    }
    Ok(Report {
        summary: format!("{} done", count(steps, "step")),
        details: json!(reports),
    })
}

/// What others hold by now is theirs, unless somebody wants it back, with a reason.
async fn manner(part: &Part<'_>, blocks: &[Bootstrap]) -> Result<Manner, Failure> {
    let exceptions = part.job.set.request.exceptions.as_ref();
    let installs = blocks
        .iter()
        .any(|block| matches!(block.deed, Deed::Agent(_)));
    if !installs || !exceptions.is_some_and(|exceptions| exceptions.reinstall) {
        return Ok(Manner::Yield);
    }
    let detail = format!("run {}", part.job.run);
    record_act(part.job, Act::Reinstalled, detail).await?;
    Ok(Manner::Reinstall)
}
