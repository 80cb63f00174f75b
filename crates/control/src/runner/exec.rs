//! An engine command that changes the state, as a normal run. It waits for its lane and holds the state's
//! lock through the endpoint. What a kill leaves is found and handled as after an apply.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use drivers::engine::EngineCall;
use model::base::ids::RunId;
use model::base::masking::Mask;
use model::plan::PlanCounts;
use model::project::context::HookStage;
use model::run::exec::Exec;
use model::run::seal::Seal;
use model::run::{PlanRecord, RunEvent, Stage};
use model::state::ExpectedHead;
use model::state::break_glass::BreakGlassAction;
use store::NewBreakGlass;

use super::apply::{
    ReadAfter, after_the_engine, head, keep_copy, nothing_kept_aside, nothing_left_over, plan_of,
    serial,
};
use super::deadline::Deadline;
use super::engine::EngineSession;
use super::hooks::Hooks;
use super::plan::{EngineFiles, initialise};
use super::workspace::{ScratchDir, Workspace};
use super::{Failure, RetainedWorkspace, StageJob, deadline, failed, inputs, logs};
use crate::changeset::exec_args;
use crate::home::Home;
use crate::state::pending_write::PendingWrite;
use crate::state::quarantine::AdoptionContext;
use crate::state::run_access::StateAccess;

/// The file with the engine's exit code, so that a user's script gets the same code.
pub fn exit_file(home: &Home, run: RunId) -> PathBuf {
    home.run_dir(run).join("exec.exit")
}

/// There is nothing to plan. Records what the command will work on, like the seal of a plan.
pub(super) async fn prepare(job: &StageJob<'_>) -> RunEvent {
    let mut mask = Mask::default();
    match try_prepare(job, &mut mask).await {
        Ok(event) => event,
        Err(failure) => failed(failure, Stage::Preparing, None, &mask),
    }
}

async fn try_prepare(job: &StageJob<'_>, mask: &mut Mask) -> Result<RunEvent, Failure> {
    logs::begin_attempt(job)?;
    let limit = Deadline::from_now("apply", job.spec.stack.timeout_apply);
    let inputs = inputs::gather(job, limit).await?;
    *mask = inputs.log_mask.clone();
    let plan = PlanRecord {
        policy: model::policy::Verdict::default(),
        policy_since: BTreeMap::new(),
        difference: None,
        counts: PlanCounts::default(),
        // A command such as `state rm` removes resources intentionally.
        destroys: true,
        outputs: job.spec.outputs.clone(),
        seal: Box::new(Seal {
            source: job.spec.source.clone(),
            head: head(job).await?,
            inputs: inputs.digest.clone(),
            each_input: inputs.each.clone(),
            engine: format!("{} {}", job.spec.engine.flavor, job.spec.engine.version),
            lock_file: None,
        }),
        preview: false,
        since: Some(job.control.now()),
        // An engine command does not make the stack match its source.
        consumed: None,
        came_after: None,
    };
    if job.goes_on {
        let workspace = Workspace::prepare(job).await?;
        let scratch = ScratchDir::open(job)?;
        let carried = RetainedWorkspace {
            inputs,
            workspace,
            scratch,
        };
        *job.carried.lock().await = Some(carried);
    }
    Ok(RunEvent::PlanFinished {
        plan,
        confirmed: true,
        review: false,
        reason: None,
        is_equal: None,
        new: Vec::new(),
    })
}

pub(super) async fn exec(job: &StageJob<'_>, exec: &Exec) -> RunEvent {
    let mut mask = Mask::default();
    let done = try_exec(job, exec, &mut mask).await;
    match done {
        Ok(event) => event,
        Err(failure) => {
            let serial = serial(job).await.ok().flatten();
            failed(failure, Stage::Applying, serial, &mask)
        }
    }
}

async fn try_exec(job: &StageJob<'_>, exec: &Exec, mask: &mut Mask) -> Result<RunEvent, Failure> {
    let exec = &exec_args::opened(job.control, exec)
        .await
        .map_err(|err| Failure::because("nothing was done", &err))?;
    let plan = plan_of(job).await?;
    nothing_kept_aside(job).await?;
    let carried = job.carried.lock().await.take();
    let mut limit = Deadline::from_now("apply", job.spec.stack.timeout_apply);
    let (inputs, mut workspace, scratch) = match carried {
        Some(carried) => (carried.inputs, carried.workspace, carried.scratch),
        None => (
            inputs::gather(job, limit).await?,
            deadline::apart_from(&mut limit, Workspace::prepare(job)).await?,
            ScratchDir::open(job)?,
        ),
    };
    *mask = inputs.log_mask.clone();
    *job.limit_of_apply.lock().await = limit;
    workspace.mount(&inputs.files)?;
    let workspace = workspace;
    let left = AdoptionContext::of(job.run, job.spec, &workspace.dir, &plan);
    nothing_left_over(job, left).await?;
    scratch.hand_over(job, &inputs)?;
    let state = job.control.state_name(&job.spec.stack.state);
    let spool = PendingWrite::new(job.control.home.run_dir(job.run), job.run);
    // The engine reads the state under its lock, so it changes the version that is the head then.
    let store = job.control.store.clone();
    let access = StateAccess::for_apply(store, state, job.run, ExpectedHead::Any, true);
    let access = access.holding(spool).with_secrets(&inputs.mask);
    let caller = EngineSession::new(job, &workspace, &inputs, access.clone()).await?;
    let var_files = workspace.var_files(job, &scratch);
    let hooks = Hooks::of(job, &workspace, &inputs, mask, None, limit);
    let work = hooks.before_and(HookStage::Apply, async {
        let files = EngineFiles {
            workspace: &workspace,
            inputs: &inputs,
            var_files: &var_files,
        };
        initialise(job, &caller, files, limit, &hooks).await?;
        job.holds_its_lanes().await?;
        workspace.owe_artifacts()?;
        let call = EngineCall::Exec {
            exec,
            var_files: &var_files,
        };
        // The record is opened before the command begins, so that a crash cannot lose it.
        let record = open_record(job, exec, mask).await?;
        let ended = caller.call(&call, Stage::Applying, limit).await?;
        if let Some(record) = record
            && head(job).await? == plan.seal.head
        {
            withdraw(job, record).await;
        }
        let kept = after_the_engine(job, &access, left).await?;
        let artifacts = workspace.keep_artifacts(job).await;
        // Without this file, the client reports only success or failure.
        let code = ended.exit.code().unwrap_or(1).to_string();
        drop(fs::write(exit_file(&job.control.home, job.run), code));
        if !ended.exit.success() {
            scratch.remove();
            if let Err(also) = artifacts {
                job.warn(&also.message);
            }
            let mut failure = ended.failure(&format!("could not `{exec}`"));
            failure.hint = kept.or(failure.hint);
            return Err(failure);
        }
        keep_copy(job, &caller, &scratch, &var_files, ReadAfter::Done, limit).await?;
        scratch.remove();
        artifacts?;
        Ok(RunEvent::ApplyFinished {
            counts: PlanCounts::default(),
            serial: serial(job).await?,
            lineage: None,
            then: job.after_apply(),
        })
    });
    work.await
}

/// Opens a break-glass record for a command that edits the state. It stays open until the next successful
/// apply of the stack.
async fn open_record(job: &StageJob<'_>, exec: &Exec, mask: &Mask) -> Result<Option<i64>, Failure> {
    if !exec.is_surgery() {
        return Ok(None);
    }
    let state = job.control.state_name(&job.spec.stack.state);
    let reason = exec.reason.as_deref().map(|reason| mask.mask_text(reason));
    let record = NewBreakGlass {
        act: BreakGlassAction::StateEdited,
        state: &state,
        actor: &job.set.request.actor(),
        reason: reason.as_deref(),
        detail: format!("run {}: `{}`", job.run, mask.mask_text(&exec.line())),
    };
    let opened = job.control.store.break_glass_open(&record).await;
    let opened = opened.map_err(|err| Failure::because("could not record the action", &err))?;
    Ok(Some(opened))
}

/// Nothing was changed. If the record cannot be withdrawn, it reports more than happened, not less.
async fn withdraw(job: &StageJob<'_>, record: i64) {
    if let Err(err) = job.control.store.break_glass_withdraw(record).await {
        job.warn(&format!(
            "the record of an action that did not run stays open: {err}"
        ));
    }
}
