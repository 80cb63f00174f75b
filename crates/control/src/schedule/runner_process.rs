//! The process that carries out runs, one at a time, and outlives the client that requested them.
//!
//! Standard input contains the requester's values. Standard output is the run's lock, held as long as the
//! process or its engine lives. Standard error is its log.
//!
//! After each run the process performs one step of the scheduler, so that a confirmed change set needs no
//! terminal. If that step claims another run, the same process carries it out, because a new process would
//! cost as much as all of its work.
//!
//! Not here: the stages (`runner`), which run starts when (`scheduler`).

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;

use model::base::error::Explain;
use model::base::ids::{ChangeSetId, RunId};
use model::run::Stage;
use store::{ChangeSetError, Fence, ReportedEvent};
use tokio::sync::Mutex;

use crate::Control;
use crate::home::retry::retry_unavailable;
use crate::run::cleanup;
use crate::run::lock::{ClaimedRun, RunLock};
use crate::runner::{Interrupts, RunStageError, RunnerProcess, ServeFn, StageJob, carry_out_stage};
use crate::schedule::scheduler::{self, RunReport};
use crate::secrets::caller_env::CallerEnv;

/// Detaches from the client's terminal: a Ctrl-C there must not reach this process.
pub fn leave_terminal() -> Result<(), RunnerError> {
    drivers::process::become_session_leader().map_err(RunnerError::Session)
}

#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    #[error("cannot detach from the terminal's session")]
    Session(#[source] io::Error),
    #[error("cannot write to the lock of run `{run}`")]
    Sign { run: RunId, source: io::Error },
    #[error("cannot read the record of run `{run}`")]
    Read { run: RunId, source: ChangeSetError },
    #[error(transparent)]
    CarryOut(#[from] RunStageError),
    #[error(transparent)]
    Turn(#[from] scheduler::AdvanceError),
}

impl Explain for RunnerError {}

/// Carries out `stage` of `run`, then each further stage that can follow at once, then other runs of its
/// change set.
pub async fn run(
    control: &Control,
    run: RunId,
    stage: Stage,
    asker: &CallerEnv,
    serve: ServeFn,
) -> Result<(), RunnerError> {
    let lock = inherited_lock().map_err(|source| RunnerError::Sign { run, source })?;
    run_claimed(control, ClaimedRun { run, stage, lock }, asker, serve).await
}

/// Like [`run`], with the lock that the claim took.
pub async fn run_claimed(
    control: &Control,
    claimed: ClaimedRun,
    asker: &CallerEnv,
    serve: ServeFn,
) -> Result<(), RunnerError> {
    // Install signal handlers before our process number is in the lock, so that no signal can kill us.
    let interrupts = Interrupts::listen().map_err(RunnerError::Session)?;
    let interrupts = Mutex::new(interrupts);
    let process = RunnerProcess {
        asker,
        serve,
        interrupts: &interrupts,
    };
    let mut next = Some(claimed);
    while let Some(claimed) = next {
        next = Box::pin(carry_out(control, claimed, process)).await?;
    }
    Ok(())
}

/// Waits until a run of a confirmed change set can begin, and starts it.
pub async fn wait(control: &Control, run: RunId, asker: &CallerEnv) -> Result<(), RunnerError> {
    Ok(scheduler::wait_for_orphans(control, run, asker).await?)
}

/// Carries out a claimed run as far as possible. Returns the next run that was claimed for this process.
async fn carry_out(
    control: &Control,
    claimed: ClaimedRun,
    process: RunnerProcess<'_>,
) -> Result<Option<ClaimedRun>, RunnerError> {
    let ClaimedRun {
        run,
        mut stage,
        lock,
    } = claimed;
    process.interrupts.lock().await.begin(&control.store, run);
    lock.sign(std::process::id())
        .map_err(|source| RunnerError::Sign { run, source })?;
    let summary = control.store.run_summary(run).await;
    let summary = summary.map_err(|source| RunnerError::Read { run, source })?;
    let job = StageJob::new(control, process, run, lock, &summary)?;
    let mut fence = None;
    loop {
        // The previous step was committed under this fence, so the run still holds its lanes.
        if fence.is_none() {
            let held = control.store.lane_fence(&summary.set).await;
            fence = held.map_err(|source| RunnerError::Read { run, source })?;
        }
        job.set_fence(fence.clone()).await;
        let happened = carry_out_stage(&job, stage).await?;
        let mut step = commit(control, summary.set.id, process, happened, fence.clone()).await?;
        step.runs.retain(|other| other.id == run);
        let Some(next) = step.own else {
            cleanup::remove_leftovers(control, &step.set, &step.runs).await;
            return Ok(step.next);
        };
        if let [run] = step.runs.as_slice() {
            job.set_state(run.state.clone()).await;
        }
        stage = next;
    }
}

/// Records what happened. Retries while the home does not answer, so that the result is not lost.
async fn commit(
    control: &Control,
    set: ChangeSetId,
    process: RunnerProcess<'_>,
    happened: ReportedEvent,
    fence: Option<Fence>,
) -> Result<scheduler::AdvanceOutcome, RunnerError> {
    let commit = async || {
        let own = RunReport {
            happened: happened.clone(),
            fence: fence.clone(),
            goes_on: !process.interrupts.lock().await.is_terminated(),
        };
        scheduler::advance(control, set, None, process.asker, Some(own)).await
    };
    Ok(retry_unavailable(commit).await?)
}

/// The lock that this process was started with. Only this value holds it. Dropping it releases the lock,
/// unless an engine left a process running.
fn inherited_lock() -> io::Result<RunLock> {
    let lock = io::stdout().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdout(File::options().write(true).open("/dev/null")?)?;
    Ok(RunLock::inherited(File::from(lock)))
}
