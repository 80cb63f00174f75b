//! Hooks around the stages after an apply, and after the apply itself. They run again if their runner is
//! lost. A run whose hooks fail there is applied, but not done.

use std::future::Future;

use model::base::masking::Mask;
use model::project::context::HookStage;
use model::run::{RunEvent, Stage};
use serde_json::json;

use super::{Hooks, StageResult};
use crate::runner::deadline::{self, Deadline};
use crate::runner::inputs::for_hooks;
use crate::runner::workspace::{ScratchDir, Workspace};
use crate::runner::{Failure, StageJob, failed};

/// Runs a stage after the apply with its hooks.
pub(in crate::runner) async fn around_part<T>(
    job: &StageJob<'_>,
    stage: Stage,
    workspace: Option<&mut Workspace>,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let Some(workspace) = workspace.filter(|_| job.spec.has_hooks(stage, None)) else {
        return work.await;
    };
    let stage = HookStage::around(stage);
    let (hooks, scratch) = prepare(job, workspace, None).await?;
    let done = hooks.around(stage, work).await;
    scratch.remove();
    done.map_err(|failure| failure.masked(&hooks.mask))
}

/// Prepares hooks that run without an engine of their stage.
async fn prepare<'a>(
    job: &'a StageJob<'a>,
    workspace: &mut Workspace,
    limit: Option<Deadline>,
) -> Result<(Hooks<'a>, ScratchDir), Failure> {
    let values = job.unless_stopped(None, for_hooks(job)).await?;
    let scratch = ScratchDir::open(job)?;
    scratch.write_hidden(values.hidden.iter())?;
    workspace.mount(&values.files)?;
    let hooks = Hooks {
        job,
        ready: values.hooks,
        environment: values.environment,
        mask: Mask::new(&values.hidden),
        tree: workspace.tree().to_owned(),
        dir: workspace.dir.clone(),
        plan: None,
        limit,
    };
    Ok((hooks, scratch))
}

/// Runs the hooks after a successful apply.
pub(in crate::runner) async fn after_apply(job: &StageJob<'_>) -> RunEvent {
    let stage = Stage::Applying;
    // The rest of the apply's limit; a retry gets the whole limit.
    let kept = *job.limit_of_apply.lock().await;
    let mut limit = kept.or_else(|| Deadline::from_now("apply", job.spec.stack.timeout_apply));
    let prepared = deadline::apart_from(&mut limit, Workspace::prepare(job)).await;
    let mut workspace = match prepared {
        Ok(workspace) => workspace,
        Err(failure) => return failed(failure, stage, None, &Mask::default()),
    };
    let ended = async {
        let (hooks, scratch) = prepare(job, &mut workspace, limit).await?;
        // A hook may fetch artifacts that the engine cannot write.
        workspace.owe_artifacts()?;
        let done = hooks.after(HookStage::Apply, StageResult::Succeeded).await;
        scratch.remove();
        let kept = workspace.keep_artifacts(job).await;
        done.and(kept)
            .map_err(|failure| failure.masked(&hooks.mask))
    };
    match ended.await {
        Ok(()) => RunEvent::StageFinished {
            part: stage,
            report: json!({ "summary": "hooks done", "details": null }),
            changed: None,
            then: job.first_stage(),
        },
        Err(failure) => failed(failure, stage, None, &Mask::default()),
    }
}
