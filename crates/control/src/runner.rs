//! Carries out one stage of a run: plan, preview, apply, engine commands, and the stages after an apply.
//!
//! Not here: the process that goes from stage to stage (`runner_process`), which run starts when
//! (`scheduler`), the state endpoint's protocol (`server`).

use std::fs::{self, File};
use std::future::Future;
use std::io::{self, Write as _};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};

use model::base::ids::RunId;
use model::base::masking::Mask;
use model::base::secret::Secret;
use model::project::context::HookTiming;
use model::run::changeset::{ChangeSet, SetEvent};
use model::run::{AwaitedOutputs, RunEvent, RunSpec, RunState, Stage};
use store::{ChangeSetError, Fence, ReportedEvent, RunSummary, StoreError, ValueOverride};
use tokio::net::TcpListener;
use tokio::sync::Mutex;

use crate::Control;
use crate::access::tokens;
use crate::changeset::cancel_requests;
use crate::changeset::up_to_date;
use crate::home::Home;
pub(crate) use crate::run::failure::Failure;
use crate::run::lock::RunLock;
use crate::secrets::caller_env::CallerEnv;
use crate::state::run_access::StateAccess;
use deadline::Deadline;
use engine_permits::EnginePermit;
pub(crate) use interrupts::Interrupts;

mod apply;
mod check;
mod confirmation;
mod coverage;
mod deadline;
mod engine;
mod engine_permits;
mod exec;
mod hooks;
mod inputs;
mod interactive;
mod interrupts;
mod logs;
mod plan;
mod planned_outputs;
mod post_apply;
mod preview;
mod seal;
mod usage;
mod workspace;

pub use exec::exit_file;
pub use interactive::{InteractiveError, attend};
pub(crate) use logs::{finish_lost as finish_lost_logs, lost_events};
pub use post_apply::STILL;
pub use usage::{USAGE_FILE, note_usage};
pub(crate) use workspace::clean_up_lost;

/// Starts a run's state endpoint, which requires the given token. `cli` passes it in, because this crate does
/// not depend on `server`.
pub type ServeFn = fn(StateAccess, TcpListener, Secret) -> io::Result<Endpoint>;

/// A state endpoint. It answers as long as `serving` is polled.
pub struct Endpoint {
    /// Variables through which the engine finds the endpoint.
    pub environment: Vec<(&'static str, Secret)>,
    pub serving: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// Everything that a stage of a run needs.
pub(crate) struct StageJob<'a> {
    control: &'a Control,
    set: &'a ChangeSet,
    run: RunId,
    spec: &'a RunSpec,
    asker: &'a CallerEnv,
    serve: ServeFn,
    /// Gives the run's engines access to the state endpoint, in every stage.
    token: Secret,
    /// The run's lock, which its engines inherit.
    lock: RunLock,
    /// The run's state as last committed. No other process changes it while the run's lock is held.
    state: Mutex<RunState>,
    interrupts: &'a Mutex<Interrupts>,
    /// What the plan was made with, if the same process also applies it.
    carried: Mutex<Option<RetainedWorkspace>>,
    /// Held while the run's engines are at work.
    place: Mutex<Option<EnginePermit>>,
    /// The time limit of the apply in this process. The hooks after the apply count towards it.
    limit_of_apply: Mutex<Option<Deadline>>,
    /// The lane fence under which the current stage began.
    fence: Mutex<Option<Fence>>,
    /// The change set holds its lanes, so no other change set applies this stack meanwhile.
    holds_lanes: bool,
    /// Confirmed in advance. A plan whose seal no longer matches is made again instead of refused.
    auto_approve: bool,
    /// No confirmation or approval is needed between plan and apply.
    goes_on: bool,
    /// Only a plan was requested.
    review: bool,
    /// The user who confirmed supplied other values than the requester did. No user has agreed to these
    /// values.
    has_other_values: AtomicBool,
}

/// What a process shares with each run that it carries out.
#[derive(Clone, Copy)]
pub(crate) struct RunnerProcess<'a> {
    pub(crate) asker: &'a CallerEnv,
    pub(crate) serve: ServeFn,
    pub(crate) interrupts: &'a Mutex<Interrupts>,
}

impl<'a> StageJob<'a> {
    pub(crate) fn new(
        control: &'a Control,
        process: RunnerProcess<'a>,
        run: RunId,
        lock: RunLock,
        summary: &'a RunSummary,
    ) -> Result<Self, RunStageError> {
        let set = &summary.set;
        let request = &set.request;
        let holds_lanes = set.status.holds_lanes();
        Ok(Self {
            control,
            set,
            run,
            spec: &summary.spec,
            asker: process.asker,
            serve: process.serve,
            token: new_token().map_err(RunStageError::Token)?,
            lock,
            state: Mutex::new(summary.state.clone()),
            interrupts: process.interrupts,
            carried: Mutex::new(None),
            place: Mutex::new(None),
            limit_of_apply: Mutex::new(None),
            fence: Mutex::new(None),
            holds_lanes,
            auto_approve: request.auto_approve,
            goes_on: holds_lanes && request.auto_approve && request.approvals.is_empty(),
            review: request.action == model::run::changeset::Action::Plan,
            has_other_values: AtomicBool::new(false),
        })
    }

    /// Sets the lane fence under which the next stage begins.
    pub(crate) async fn set_fence(&self, fence: Option<Fence>) {
        *self.fence.lock().await = fence;
    }

    /// Sets the run's state as last committed.
    pub(crate) async fn set_state(&self, state: RunState) {
        *self.state.lock().await = state;
    }
}

impl StageJob<'_> {
    /// Whether the plan goes into a bundle.
    fn keeps_plan(&self) -> bool {
        self.set.request.keeps_plans
    }

    /// Whether the plan comes from a bundle. It was made and reviewed elsewhere, and is applied unchanged.
    fn is_bundled(&self) -> bool {
        self.set.request.bundle.is_some()
    }

    /// The stage that follows when the stack matches its source; none if only a plan was requested.
    fn first_stage(&self) -> Option<Stage> {
        let stages = self.spec.stages_after();
        stages.first().copied().filter(|_| !self.review)
    }

    /// The stage that follows an apply. Hooks after the apply come first.
    fn after_apply(&self) -> Option<Stage> {
        let has_hooks = self
            .spec
            .has_hooks(Stage::Applying, Some(HookTiming::After));
        has_hooks
            .then_some(Stage::Applying)
            .or_else(|| self.first_stage())
    }

    /// The stage that follows a plan without changes. Hooks that an earlier apply has not run come first.
    async fn after_nothing(&self) -> Result<Option<Stage>, Failure> {
        let first = self.first_stage();
        let after = self.after_apply();
        if self.review || after == first {
            return Ok(first);
        }
        let owes = up_to_date::owes_hooks(self.control, self.spec).await;
        let owes = owes.map_err(|err| Failure::because("could not check earlier runs", &err))?;
        Ok(if owes { after } else { first })
    }

    /// The upstream values that this plan is made without.
    async fn awaits(&self) -> Vec<AwaitedOutputs> {
        match &*self.state.lock().await {
            RunState::Planning { awaits, .. } => awaits.clone(),
            _ => Vec::new(),
        }
    }

    /// Whether the engine has finished and only the hooks after the apply are left.
    async fn is_applied(&self) -> bool {
        let is_completing = matches!(*self.state.lock().await, RunState::Completing { .. });
        is_completing
            && self
                .spec
                .has_hooks(Stage::Applying, Some(HookTiming::After))
    }

    /// Refuses to start an engine that changes something if the run has lost the lanes it was claimed under.
    async fn holds_its_lanes(&self) -> Result<(), Failure> {
        let lost = || Failure::new("nothing was applied: its change set lost its lanes").refused();
        let fence = self.fence.lock().await.clone().ok_or_else(lost)?;
        match self.control.store.lane_check(&fence).await {
            Err(ChangeSetError::LaneLost { .. }) => Err(lost()),
            checked => checked.map_err(|err| Failure::because("could not check its lanes", &err)),
        }
    }

    /// The name of the requester.
    fn asker_name(&self) -> &str {
        let asker = self.set.request.asker.as_ref();
        asker.map_or("an unknown person", |asker| &asker.name)
    }

    /// Takes an engine permit before the first engine of a stage. Waits until the change set may run one more
    /// engine. A permit that is already held is kept.
    async fn take_place(&self) -> Result<(), Failure> {
        let request = &self.set.request;
        let mut place = self.place.lock().await;
        if place.is_some() || request.runs_at_once() <= request.parallelism {
            return Ok(());
        }
        let (home, engines) = (&self.control.home, request.parallelism);
        let note = home.run_waits(self.run);
        // The note is only for display. If it cannot be written, the run waits anyway.
        let waits = || {
            drop(fs::write(
                &note,
                format!("waits: the limit of {engines} engines is reached"),
            ));
        };
        let mut interrupts = self.interrupts.lock().await;
        let taken = tokio::select! {
            () = interrupts.next() => return Err(Failure::interrupted()),
            taken = EnginePermit::take(home, self.set.id, engines, waits) => taken,
        };
        drop(fs::remove_file(&note));
        let taken = taken
            .map_err(|err| Failure::because("could not reserve a slot for an engine", &err))?;
        *place = Some(taken);
        Ok(())
    }

    /// Does work that may take long without an engine. Drops it when the run is interrupted or the time limit
    /// is reached.
    async fn unless_stopped<T>(
        &self,
        limit: Option<Deadline>,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let over = async {
            let Some(limit) = limit else {
                return std::future::pending().await;
            };
            tokio::time::sleep_until(limit.until).await;
            Failure::too_late(limit, "the engine")
        };
        let mut interrupts = self.interrupts.lock().await;
        tokio::select! {
            biased;
            done = work => done,
            () = interrupts.next() => Err(Failure::interrupted()),
            failure = over => Err(failure),
        }
    }

    /// Releases the engine permit after the last engine, so that another run's engine can start.
    async fn leave_place(&self) {
        drop(self.place.lock().await.take());
    }

    /// Notes the engine's process number, so that another process can end the engine. A failure to write the
    /// note is ignored.
    fn note_engine(&self, pid: Option<u32>) {
        drop(self.lock.note_engine(pid));
    }

    /// Writes a warning for the requester beside the run's logs. Nothing fails.
    fn warn(&self, words: &str) {
        warn(&self.control.home, self.run, words);
    }
}

fn warn(home: &Home, run: RunId, words: &str) {
    let path = home.run_warnings(run);
    let file = File::options().create(true).append(true).open(path);
    // A warning that cannot be written does not fail the run.
    drop(file.and_then(|mut file| writeln!(file, "{words}")));
}

/// A workspace that is still held, with values that cannot have changed, because the lanes are held too.
pub(crate) struct RetainedWorkspace {
    inputs: inputs::Inputs,
    workspace: workspace::Workspace,
    scratch: workspace::ScratchDir,
}

/// Why a stage could not begin.
#[derive(Debug, thiserror::Error)]
pub enum RunStageError {
    #[error("cannot create a token for the run's engines")]
    Token(#[source] io::Error),
    #[error("cannot read the record of run `{run}`")]
    Read { run: RunId, source: ChangeSetError },
    #[error("could not digest the values that run `{run}` is planned with")]
    Digest { run: RunId, source: StoreError },
}

/// Carries out one stage of a run.
pub(crate) async fn carry_out_stage(
    job: &StageJob<'_>,
    stage: Stage,
) -> Result<ReportedEvent, RunStageError> {
    let (control, run, spec) = (job.control, job.run, job.spec);
    let brought = match stage {
        Stage::Preparing | Stage::Planning => {
            brought(control, run, spec, job.set, job.asker).await?
        }
        _ => None,
    };
    job.has_other_values
        .store(brought.is_some(), Ordering::Relaxed);
    // Each future is boxed, so that it is not stored inline in this one.
    let happened = match (stage, &spec.exec) {
        (Stage::Preparing | Stage::Planning, None) => match job.awaits().await.as_slice() {
            [] if spec.no_state => Box::pin(preview::without_state(job)).await,
            [] => Box::pin(plan::plan(job)).await,
            awaits => Box::pin(preview::preview(job, awaits)).await,
        },
        (Stage::Applying, _) if job.is_applied().await => Box::pin(hooks::after_apply(job)).await,
        (Stage::Applying, None) => Box::pin(apply::apply(job)).await,
        (Stage::Preparing | Stage::Planning, Some(_)) => Box::pin(exec::prepare(job)).await,
        (Stage::Applying, Some(exec)) => Box::pin(exec::exec(job, exec)).await,
        (Stage::Publishing | Stage::Bootstrapping | Stage::Verifying, _) => {
            Box::pin(post_apply::carry_out(job, stage)).await
        }
    };
    if job.carried.lock().await.is_none() {
        job.leave_place().await;
    }
    Ok(ReportedEvent {
        run,
        event: cancel_requests::name_requester(control, run, happened).await,
        brought,
    })
}

fn new_token() -> io::Result<Secret> {
    let token = tokens::random().map_err(io::Error::other)?;
    Ok(Secret::new(token))
}

/// The values of the user who confirmed, if they differ from the requester's. That user is then an author of
/// the plan.
async fn brought(
    control: &Control,
    run: RunId,
    spec: &RunSpec,
    set: &ChangeSet,
    asker: &CallerEnv,
) -> Result<Option<ValueOverride>, RunStageError> {
    let values = asker.digest_for(&control.store, spec).await;
    let values = values.map_err(|source| RunStageError::Digest { run, source })?;
    if values == spec.asked_with {
        return Ok(None);
    }
    let events = control.store.change_set_events(set.id).await;
    let events = events.map_err(|source| RunStageError::Read { run, source })?;
    let yes = events.into_iter().rev().find_map(|(_, event)| match event {
        SetEvent::Confirmed { by } => by,
        _ => None,
    });
    Ok(yes.map(|by| ValueOverride { values, by }))
}

/// The event that records the failure of a stage.
pub(crate) fn failed(failure: Failure, stage: Stage, serial: Option<i64>, mask: &Mask) -> RunEvent {
    RunEvent::Failed {
        problem: failure.into_problem(stage, serial, mask),
    }
}
