//! The applying stage: applies exactly the plan that was made, if nothing it was made from has changed.

use std::fs;
use std::path::{Path, PathBuf};

use drivers::engine::EngineCall;
use model::base::masking::Mask;
use model::project::Backend;
use model::project::context::HookStage;
use model::run::seal::SealedHead;
use model::run::{PlanRecord, RunEvent, RunState, Stage};
use model::state::ExpectedHead;
use store::KeyScope;

use super::deadline::Deadline;
use super::engine::{EngineResult, EngineSession};
use super::hooks::{Hooks, StageResult};
use super::inputs::{self, Inputs};
use super::plan::{EngineFiles, initialise};
use super::seal::StalePlan;
use super::workspace::{ScratchDir, Workspace};
use super::{Failure, StageJob, check, deadline, failed, planned_outputs, post_apply, seal};
use crate::changeset::backends;
use crate::changeset::upstreams;
use crate::home::retry::retry_unavailable;
use crate::home::write_private;
use crate::state::outputs;
use crate::state::pending_write::PendingWrite;
use crate::state::quarantine::{self, AdoptionContext};
use crate::state::run_access::StateAccess;
use crate::state::unrecorded;

pub(super) async fn apply(job: &StageJob<'_>) -> RunEvent {
    let mut mask = Mask::default();
    let applied = try_apply(job, &mut mask).await;
    match applied {
        Ok(event) => event,
        Err(failure) => {
            // A refused apply changed nothing, so the state's serial is not its result.
            let serial = if failure.refused {
                None
            } else {
                serial(job).await.ok().flatten()
            };
            failed(failure, Stage::Applying, serial, &mask)
        }
    }
}

async fn try_apply(job: &StageJob<'_>, mask: &mut Mask) -> Result<RunEvent, Failure> {
    job.take_place().await?;
    let plan = plan_of(job).await?;
    nothing_kept_aside(job).await?;
    let setup = match start(job, &plan, mask).await? {
        Start::Ready(setup) => *setup,
        Start::Ended(event) => return Ok(*event),
    };
    let Setup {
        inputs,
        workspace,
        scratch,
        limit,
        goes_on,
    } = setup;
    let expected = ExpectedHead::Exactly(plan.seal.head.as_ref().map(|head| head.version));
    let store = &job.control.store;
    let state = job.control.state_name(&job.spec.stack.state);
    let spool = PendingWrite::new(job.control.home.run_dir(job.run), job.run);
    let access = StateAccess::for_apply(store.clone(), state, job.run, expected, plan.may_empty())
        .holding(spool)
        .with_secrets(&inputs.mask);
    let caller = EngineSession::new(job, &workspace, &inputs, access.clone()).await?;
    let var_files = workspace.var_files(job, &scratch);
    let hooks = Hooks::of(job, &workspace, &inputs, mask, Some(scratch.plan()), limit);
    let applying = Applying {
        job,
        plan: &plan,
        files: EngineFiles {
            workspace: &workspace,
            inputs: &inputs,
            var_files: &var_files,
        },
        scratch,
        caller: &caller,
        access: &access,
        left: AdoptionContext::of(job.run, job.spec, &workspace.dir, &plan),
        hidden: mask,
        limit,
        goes_on,
    };
    let work = hooks.before_and(HookStage::Apply, applying.run(&hooks));
    let done = work.await?;
    // Nothing was applied after all, so the `after` hooks run now.
    if matches!(done, RunEvent::PlanVoided { .. }) {
        hooks
            .after_failure(HookStage::Apply, StageResult::Failed)
            .await;
    }
    Ok(done)
}

/// Where a plan is applied, and with which values.
struct Setup {
    inputs: Inputs,
    workspace: Workspace,
    scratch: ScratchDir,
    limit: Option<Deadline>,
    /// The process that made the plan also applies it.
    goes_on: bool,
}

enum Start {
    Ready(Box<Setup>),
    /// Nothing is applied now.
    Ended(Box<RunEvent>),
}

/// Checks that the plan may be applied, and prepares what the engine needs.
async fn start(job: &StageJob<'_>, plan: &PlanRecord, mask: &mut Mask) -> Result<Start, Failure> {
    let carried = job.carried.lock().await.take();
    let mut limit = Deadline::from_now("apply", job.spec.stack.timeout_apply);
    let (inputs, held, scratch) = if let Some(carried) = carried {
        (carried.inputs, Some(carried.workspace), carried.scratch)
    } else {
        // If the state has changed, values that the run needs may be gone. Check the head before gathering
        // them.
        let is_ours = job.spec.target.backend == Backend::Terrane;
        if is_ours && !plan.preview && head(job).await? != plan.seal.head {
            let void = seal::head_moved(job, plan).await?;
            return void
                .into_event(job, plan)
                .map(|event| Start::Ended(Box::new(event)));
        }
        see_upstreams(job, limit).await?;
        let mut inputs = inputs::gather(job, limit).await?;
        inputs.hide_outputs(planned_outputs::own_sensitive(job).await?, &job.token);
        (inputs, None, ScratchDir::open(job)?)
    };
    *mask = inputs.log_mask.clone();
    let goes_on = held.is_some();
    if let Some(void) = moved(job, plan, &inputs, goes_on, &scratch).await? {
        scratch.remove();
        return void
            .into_event(job, plan)
            .map(|event| Start::Ended(Box::new(event)));
    }
    let mut workspace = match held {
        Some(workspace) => workspace,
        None => deadline::apart_from(&mut limit, Workspace::prepare(job)).await?,
    };
    *job.limit_of_apply.lock().await = limit;
    workspace.mount(&inputs.files)?;
    let left = AdoptionContext::of(job.run, job.spec, &workspace.dir, plan);
    nothing_left_over(job, left).await?;
    match may_start(job, plan).await {
        Ok(None) => {}
        Ok(Some(put_off)) => {
            scratch.remove();
            return Ok(Start::Ended(Box::new(put_off)));
        }
        Err(refused) => {
            scratch.remove();
            return Err(refused);
        }
    }
    if !goes_on {
        scratch.hand_over(job, &inputs)?;
    }
    Ok(Start::Ready(Box::new(Setup {
        inputs,
        workspace,
        scratch,
        limit,
        goes_on,
    })))
}

/// Checks policies and upstreams for the last time. Returns an event if the apply has to wait.
async fn may_start(job: &StageJob<'_>, plan: &PlanRecord) -> Result<Option<RunEvent>, Failure> {
    if let Some(put_off) = check::at_apply(job, plan).await? {
        return Ok(Some(put_off));
    }
    upstreams::check(job.control, job.spec).await?;
    Ok(None)
}

/// An apply that may start.
struct Applying<'a> {
    job: &'a StageJob<'a>,
    plan: &'a PlanRecord,
    files: EngineFiles<'a>,
    scratch: ScratchDir,
    caller: &'a EngineSession<'a>,
    access: &'a StateAccess,
    left: AdoptionContext<'a>,
    hidden: &'a Mask,
    limit: Option<Deadline>,
    goes_on: bool,
}

impl Applying<'_> {
    async fn run(self, hooks: &Hooks<'_>) -> Result<RunEvent, Failure> {
        let Self { job, files, .. } = self;
        if !self.goes_on {
            initialise(job, self.caller, files, self.limit, hooks).await?;
            if let Some(void) = seal::lock_file_moved(files.workspace, self.plan) {
                self.scratch.remove();
                return void.into_event(job, self.plan);
            }
        }
        job.holds_its_lanes().await?;
        if post_apply::before_destroy(job).await? {
            job.holds_its_lanes().await?; // draining may have taken long
        }
        quarantine::note_applying(job.control, self.left);
        files.workspace.owe_artifacts()?;
        let call = EngineCall::Apply {
            plan: &self.scratch.plan(),
            var_files: files.var_files,
        };
        let ended = self.caller.call(&call, Stage::Applying, self.limit).await?;
        if job.spec.target.backend == Backend::Terrane {
            job.leave_place().await;
        }
        let kept = after_the_engine(job, self.access, self.left).await?;
        let artifacts = files.workspace.keep_artifacts(job).await;
        if ended.exit.success() {
            self.copy_state().await?;
            self.scratch.remove();
            artifacts?;
            applied(job, self.plan, self.access).await
        } else {
            if let Err(also) = artifacts {
                job.warn(&self.hidden.mask_text(&also.message));
            }
            self.fail(&ended, kept).await
        }
    }

    async fn copy_state(&self) -> Result<(), Failure> {
        let (caller, files) = (self.caller, self.files.var_files);
        keep_copy(
            self.job,
            caller,
            &self.scratch,
            files,
            ReadAfter::Applied,
            None,
        )
        .await
    }

    /// The engine failed. `kept` reports what happened to a state that the engine could not store.
    async fn fail(self, ended: &EngineResult, kept: Option<String>) -> Result<RunEvent, Failure> {
        let job = self.job;
        // An engine backend may contain more than the copy that was made for the plan.
        drop(self.copy_state().await);
        self.scratch.remove();
        if self.access.found_head_moved() {
            // The engine got no lock, so it changed nothing.
            let void = seal::head_moved(job, self.plan).await?;
            return void.into_event(job, self.plan);
        }
        let mut failure = ended.failure("could not apply");
        let events = ended.masked_events(self.hidden);
        let left = unrecorded::look(job.control, job.run, job.spec, &events, ended.died());
        failure.left = left.await;
        if let Some(kept) = kept {
            failure.hint = Some(kept);
        }
        Err(failure)
    }
}

async fn applied(
    job: &StageJob<'_>,
    plan: &PlanRecord,
    access: &StateAccess,
) -> Result<RunEvent, Failure> {
    let now = head(job).await?;
    // An engine that took the lock here and wrote nothing had nothing new to store.
    let is_elsewhere = now == plan.seal.head && !access.was_locked();
    if job.spec.target.backend == Backend::Terrane && is_elsewhere {
        return Err(Failure::new("applied, but the engine stored no state here")
            .hint("look for a `backend` or `cloud` block in an override file of the module"));
    }
    Ok(RunEvent::ApplyFinished {
        counts: plan.counts,
        serial: now.as_ref().map(|head| head.serial),
        lineage: now.map(|head| head.lineage),
        then: job.after_apply(),
    })
}

/// Reads the upstream states in engine backends again, because another home may have applied them since the
/// plan. The seal is compared with what they contain now.
async fn see_upstreams(job: &StageJob<'_>, limit: Option<Deadline>) -> Result<(), Failure> {
    if job.spec.destroy {
        return Ok(()); // a destroy does not depend on these values
    }
    let look = upstreams::look_again(job.control, job.set.id, job.spec, job.asker);
    for unseen in job.unless_stopped(limit, look).await? {
        job.warn(&unseen);
    }
    Ok(())
}

/// After the engine has exited: adopts or quarantines a state that it could not store, and releases its lock.
pub(super) async fn after_the_engine(
    job: &StageJob<'_>,
    access: &StateAccess,
    left: AdoptionContext<'_>,
) -> Result<Option<String>, Failure> {
    access.settle().await;
    let patient = true;
    let kept = quarantine::take_in(job.control, AdoptionContext { patient, ..left }).await;
    let release = async || job.control.store.lock_release_run(job.run).await;
    let released = retry_unavailable(release).await;
    released.map_err(|err| Failure::because("could not release the state's lock", &err))?;
    Ok(kept)
}

/// Refuses the apply while a quarantined state waits for a person.
pub(super) async fn nothing_kept_aside(job: &StageJob<'_>) -> Result<(), Failure> {
    let state = job.control.state_name(&job.spec.stack.state);
    let Err(err) = quarantine::check(job.control, &state).await else {
        return Ok(());
    };
    Err(Failure::explained("nothing was applied", &err))
}

/// Refuses if an earlier run left a state file here, because the engine would overwrite it.
pub(super) async fn nothing_left_over(
    job: &StageJob<'_>,
    left: AdoptionContext<'_>,
) -> Result<(), Failure> {
    if drivers::engine::find_errored_state(left.dir).is_none() {
        return Ok(());
    }
    let left = quarantine::of_earlier(job.control, left);
    let said = quarantine::take_in(job.control, left).await;
    let failure = Failure::new("an earlier run left a state here that could not be delivered");
    let stack = &job.spec.stack.name;
    let next = format!("`terrane plan {stack}` makes a new plan");
    Err(failure
        .hint(said.map_or_else(|| next.clone(), |said| format!("{said}; {next}")))
        .refused())
}

/// The operation after which a state is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadAfter {
    Planned,
    Applied,
    Done,
}

impl ReadAfter {
    fn as_str(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Applied => "applied",
            Self::Done => "done",
        }
    }
}

/// Stores a copy of the state in an engine backend, whichever process wrote it. Dependents read its outputs,
/// and users its history. For a state in terrane that the engine encrypts, stores the outputs.
pub(super) async fn keep_copy(
    job: &StageJob<'_>,
    caller: &EngineSession<'_>,
    scratch: &ScratchDir,
    var_files: &[PathBuf],
    seen: ReadAfter,
    limit: Option<Deadline>,
) -> Result<(), Failure> {
    let path = scratch.shown();
    let action = seen.as_str();
    if job.spec.target.backend == Backend::Terrane {
        return keep_outputs(job, caller, &path, var_files, action, limit).await;
    }
    let call = EngineCall::StatePull { var_files };
    let pulled = caller.call_to(&call, &path, limit).await?;
    if !pulled.exit.success() {
        return Err(pulled.failure(&format!("{action}, but could not read the state")));
    }
    let state = &job.spec.stack.state;
    if seen == ReadAfter::Planned {
        is_where_it_was(job, &pulled.output).await?;
    }
    // A state that is read after a plan was not written by this run.
    let run = (seen != ReadAfter::Planned).then_some(job.run);
    let kept = backends::keep_copy(job.control, state, run, pulled.output, caller.mask()).await;
    kept.map_err(|err| Failure::because("could not keep a copy of the state", &err))
}

/// Refuses to plan if the backend's state was replaced by another one. All resources would be created again.
async fn is_where_it_was(job: &StageJob<'_>, body: &[u8]) -> Result<(), Failure> {
    let stack = &job.spec.stack;
    let before = backends::lost_copy(job.control, &stack.state, body).await;
    let before = before.map_err(|err| Failure::because("could not read the copy", &err))?;
    let Some(before) = before else { return Ok(()) };
    let failure = Failure::new(format!(
        "its backend contained resources before (serial {}), but no longer contains that state: they would be created again",
        before.serial
    ));
    let name = &stack.name;
    Err(failure
        .hint(format!(
            "its target may name the wrong backend; if this is intended, `terrane state export {name} --to engine` copies the state there, or `terrane state import {name} --from engine` uses the state that is there"
        ))
        .refused())
}

/// Reads the outputs of a state that only the engine can read, unless they are stored already.
async fn keep_outputs(
    job: &StageJob<'_>,
    caller: &EngineSession<'_>,
    path: &Path,
    var_files: &[PathBuf],
    action: &str,
    limit: Option<Deadline>,
) -> Result<(), Failure> {
    let failed = |err: &dyn std::error::Error| {
        Failure::because(&format!("{action}, but could not read the outputs"), err)
    };
    let Some(version) = caller
        .access()
        .version()
        .await
        .map_err(|err| failed(&err))?
    else {
        return Ok(());
    };
    let unread = outputs::are_unread(job.control, &version).await;
    if !unread.map_err(|err| failed(&err))? {
        return Ok(());
    }
    let call = EngineCall::Output { var_files };
    let told = caller.call_to(&call, path, limit).await?;
    if !told.exit.success() {
        return Err(told.failure(&format!("{action}, but could not read the outputs")));
    }
    // If another process wrote the state meanwhile, these outputs may not belong to `version`.
    let after = caller
        .access()
        .version()
        .await
        .map_err(|err| failed(&err))?;
    if after.is_none_or(|after| after.content != version.content) {
        return Ok(());
    }
    let kept = outputs::keep_opened(job.control, &version, &told.output, caller.mask()).await;
    kept.map_err(|err| failed(&err))
}

/// The current serial of the state.
pub(super) async fn serial(job: &StageJob<'_>) -> Result<Option<i64>, Failure> {
    Ok(head(job).await?.map(|head| head.serial))
}

pub(super) async fn head(job: &StageJob<'_>) -> Result<Option<SealedHead>, Failure> {
    Ok(seal::head(job).await?.as_ref().map(SealedHead::of))
}

pub(super) async fn plan_of(job: &StageJob<'_>) -> Result<PlanRecord, Failure> {
    match &*job.state.lock().await {
        RunState::Applying { plan, .. } => Ok(plan.clone()),
        _ => Err(Failure::new("there is no plan to apply")),
    }
}

/// What has changed since the plan was made, if anything. Also restores the plan file.
async fn moved(
    job: &StageJob<'_>,
    plan: &PlanRecord,
    inputs: &Inputs,
    goes_on: bool,
    scratch: &ScratchDir,
) -> Result<Option<StalePlan>, Failure> {
    if plan.preview {
        let why = "another engine ran in this stack while it was made";
        return Ok(Some(StalePlan::because(why)));
    }
    if let Some(void) = seal::moved(job, plan, inputs, goes_on).await? {
        return Ok(Some(void));
    }
    if !scratch.plan().is_file() && !restore_plan_file(job, &scratch.plan()).await? {
        return Ok(Some(StalePlan::because("its file is gone")));
    }
    Ok(None)
}

async fn restore_plan_file(job: &StageJob<'_>, to: &Path) -> Result<bool, Failure> {
    let sealed = job.control.home.plan_file(job.run);
    let Ok(bytes) = fs::read(&sealed) else {
        return Ok(false);
    };
    let plain = job
        .control
        .store
        .unseal(
            KeyScope::State(job.control.state_name(&job.spec.stack.state)),
            &format!("plan-file {}", job.run),
            bytes,
        )
        .await
        .map_err(|err| Failure::because("could not open the kept plan", &err))?;
    write_private(to, &plain).map_err(|err| Failure::because("could not place the plan", &err))?;
    Ok(true)
}
