//! Checks a change set, commits what can happen now, and starts a runner for each claimed run. A runner whose
//! own run is over carries out one of them itself.
//!
//! The caller need not know what changed, and any process may call it at any time. Attached clients call it,
//! and every runner as its last step, so that a confirmed change set finishes without a terminal.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::time::Duration;

use drivers::process::{self, Environment, StartError};
use model::base::error::{ErrorKind, Explain};
use model::base::ids::{ChangeSetId, RunId};
use model::run::changeset::{ChangeSet, LaneBlocker, Status, UserCommandError};
use model::run::{Run, RunEvent, RunProblem, RunSpec, Stage};
use store::{ChangeSetError, Fence, ReportedEvent, RunSummary};

pub use model::run::changeset::UserCommand;

use crate::Control;
use crate::changeset::{explain, orphan_processes, prepare};
use crate::home::retry::retry_unavailable;
use crate::run::launcher::RunnerLauncher;
use crate::run::lock::{self, ClaimedRun, RunLock};
use crate::run::{client_presence, liveness};
use crate::secrets::caller_env::{self, CallerEnv};

/// The stage argument of a runner that only waits until its run can begin.
pub const WAIT: &str = "wait";
/// How often to check whether the processes that an engine left behind are gone.
const STRAGGLER: Duration = Duration::from_millis(500);

/// The state of a change set after a step.
#[derive(Debug)]
pub struct AdvanceOutcome {
    pub set: ChangeSet,
    pub runs: Vec<Run>,
    /// What blocks the change set while it waits for its lanes.
    pub front: Option<LaneBlocker>,
    /// The caller's own run was claimed for its next stage.
    pub own: Option<Stage>,
    /// The caller's own run is over, and this run is claimed for the caller.
    pub(crate) next: Option<ClaimedRun>,
}

#[derive(Debug, thiserror::Error)]
pub enum AdvanceError {
    #[error("cannot read or update change set `{set}`")]
    Store {
        set: ChangeSetId,
        source: ChangeSetError,
    },
    #[error("cannot read the change sets that wait for lanes")]
    Queue(#[source] ChangeSetError),
    #[error("cannot pass values to a runner")]
    Values(#[source] serde_json::Error),
}

impl AdvanceError {
    /// Why a user's command is refused now.
    pub fn heard(&self) -> Option<&UserCommandError> {
        match self {
            Self::Store {
                source: ChangeSetError::Heard(heard),
                ..
            } => Some(heard),
            Self::Store { .. } | Self::Queue(_) | Self::Values(_) => None,
        }
    }
}

impl Explain for AdvanceError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Store { source, .. } | Self::Queue(source) => source.kind(),
            Self::Values(_) => ErrorKind::Failed,
        }
    }
}

/// A runner's report: the run whose lock it holds already, and what just happened to it.
#[derive(Clone, Debug)]
pub struct RunReport {
    pub happened: ReportedEvent,
    /// The lane fence under which that happened.
    pub fence: Option<Fence>,
    /// Whether the process can carry out another run when its own is over.
    pub goes_on: bool,
}

/// Performs one step, on behalf of a user (`say`) or of a runner (`own`).
pub async fn advance(
    control: &Control,
    set: ChangeSetId,
    say: Option<UserCommand>,
    asker: &CallerEnv,
    own: Option<RunReport>,
) -> Result<AdvanceOutcome, AdvanceError> {
    let fence = own.as_ref().and_then(|own| own.fence.clone());
    let goes_on = own.as_ref().is_some_and(|own| own.goes_on);
    let happened = own.map(|own| own.happened);
    let own = happened.as_ref().map(|happened| happened.run);
    let mut locks: BTreeMap<RunId, RunLock> = BTreeMap::new();
    let mut kept = BTreeSet::new();
    let mut claim = |run: RunId| {
        if own == Some(run) {
            return true;
        }
        let Some(lock) = RunLock::try_take(&control.home, run).ok().flatten() else {
            kept.insert(run);
            return false;
        };
        locks.insert(run, lock).is_none()
    };
    let done = control
        .store
        .change_set_advance_fenced(
            set,
            fence.as_ref(),
            say,
            happened,
            control.now(),
            &mut claim,
        )
        .await
        .map_err(|source| AdvanceError::Store { set, source })?;
    let own_stage = done.starts.iter().find(|(run, _)| own == Some(*run));
    let own_stage = own_stage.map(|(_, stage)| *stage);
    let mut next = None;
    // After lanes are released, this process also continues other change sets. If that fails, it must not
    // fail a run of its own.
    let takes_next = goes_on && own_stage.is_none() && !done.released;
    let values = asker.with_home(&control.home).to_bytes();
    let values = values.map_err(AdvanceError::Values)?;
    for (run, stage) in done.starts {
        let Some(lock) = locks.remove(&run) else {
            continue; // the caller's own run
        };
        if takes_next && next.is_none() {
            next = Some(ClaimedRun { run, stage, lock });
        } else if let Err(failure) = launch(control, ClaimedRun { run, stage, lock }, &values).await
        {
            let problem = could_not_start(stage, &failure);
            let event = RunEvent::Failed { problem };
            control
                .store
                .run_record(run, event, control.now())
                .await
                .map_err(|source| AdvanceError::Store { set, source })?;
        }
    }
    if done.set.status == Status::Confirmed {
        for run in kept {
            // Without that process, the run continues only while a client is attached.
            drop(wait_apart(control, run, &values).await);
        }
    }
    if done.released {
        // A runner was started by a writer of its targets, but anyone can cancel it.
        let as_writer_of = own.map(|_| set);
        Box::pin(resume_unattended(control, asker, as_writer_of)).await?;
    }
    Ok(AdvanceOutcome {
        set: done.set,
        runs: done.runs,
        front: done.front,
        own: own_stage,
        next,
    })
}

/// What happened to a change set without an attached client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnattendedOutcome {
    GoesOn,
    /// The caller cannot continue it, and it must not block the queue forever.
    Stopped {
        why: String,
    },
}

/// Performs one step for each confirmed change set without a client that waits for lanes, or that waited for
/// a hold that has ended. Such a change set continues, unless it needs values that only its client had, or
/// the caller may not apply it. The caller's rights are known only for the targets of the change set that it
/// applies (`as_writer_of`).
pub async fn resume_unattended(
    control: &Control,
    asker: &CallerEnv,
    as_writer_of: Option<ChangeSetId>,
) -> Result<Vec<(ChangeSetId, UnattendedOutcome)>, AdvanceError> {
    let failed = |set: ChangeSetId| move |source| AdvanceError::Store { set, source };
    let mut found = Vec::new();
    let mut writable = None;
    let open = control
        .store
        .change_set_list_open(control.home.project())
        .await;
    for set in open.map_err(AdvanceError::Queue)? {
        if set.request.machine != control.home.machine() {
            continue;
        }
        let is_queued = match set.status {
            Status::Waiting => true,
            // Nothing is sent when a hold expires. The next caller notices it.
            Status::AwaitingConfirm => false,
            Status::Planning
            | Status::Confirmed
            | Status::Interrupting
            | Status::Finished
            | Status::Stopped { .. }
            | Status::Superseded { .. } => continue,
        };
        let explained = explain::explain(control, set.id).await;
        let goes_on = explained.map_err(failed(set.id))?.goes_on();
        if !is_queued && !goes_on {
            continue;
        }
        let Some(_unwatched) = client_presence::unattended(control, &set) else {
            continue;
        };
        let specs = prepare::specs(control, set.id).await;
        let specs = specs.map_err(failed(set.id))?;
        if writable.is_none() {
            writable = Some(targets(control, as_writer_of).await?);
        }
        let obstacle = Obstacle::of(&specs, writable.as_deref().unwrap_or_default());
        let Some(obstacle) = obstacle else {
            let turned = advance(control, set.id, None, &asker.bare(), None).await?;
            if turned.set.status != set.status {
                found.push((set.id, UnattendedOutcome::GoesOn));
            }
            continue;
        };
        // A change set that waits for a person blocks no other, and a user can confirm it again. One that
        // waits for a held lane may be continued by the process that holds the lane.
        if is_queued && (goes_on || matches!(obstacle, Obstacle::Needs(_))) {
            let why = obstacle.words();
            let stopped = control.store.change_set_stop(&set, &why, control.now());
            stopped.await.map_err(failed(set.id))?;
            found.push((set.id, UnattendedOutcome::Stopped { why }));
        }
    }
    Ok(found)
}

/// Handles the first change set in the queue, or the one that holds its lanes, if its client is suspended. A
/// change set that this process can continue continues. Otherwise it is stopped, if it holds lanes, or the
/// others pass it.
pub async fn skip_stalled(
    control: &Control,
    asker: &CallerEnv,
    id: ChangeSetId,
    as_writer_of: ChangeSetId,
) -> Result<(), AdvanceError> {
    let failed = |source| AdvanceError::Store { set: id, source };
    let explained = explain::explain(control, id).await.map_err(failed)?;
    let set = &explained.set;
    let is_idle = is_idle(control, set, &explained.runs);
    if !is_idle && (set.status != Status::Waiting || !explained.goes_on()) {
        return Ok(());
    }
    let specs = prepare::specs(control, id).await.map_err(failed)?;
    let writable = targets(control, Some(as_writer_of)).await?;
    let is_here = set.request.machine == control.home.machine();
    let obstacle = Obstacle::of(&specs, &writable);
    match obstacle {
        None if is_here => {
            advance(control, id, None, &asker.bare(), None).await?;
            Ok(())
        }
        // It holds lanes, and this process cannot continue it.
        Some(obstacle) if is_idle => {
            let why = obstacle.words();
            let stopped = control.store.change_set_stop(set, &why, control.now());
            stopped.await.map_err(failed)
        }
        Some(_) | None => {
            let passed = control.store.change_set_queue_again(id, control.now());
            passed.await.map_err(failed)
        }
    }
}

/// Whether a change set that holds lanes is idle: it is confirmed, and none of its processes is at work.
pub async fn is_still(control: &Control, id: ChangeSetId) -> Result<bool, AdvanceError> {
    let failed = |source| AdvanceError::Store { set: id, source };
    let set = control.store.change_set_get(id).await.map_err(failed)?;
    let runs = control.store.run_list(id).await.map_err(failed)?;
    Ok(is_idle(control, &set, &runs))
}

fn is_idle(control: &Control, set: &ChangeSet, runs: &[Run]) -> bool {
    set.status == Status::Confirmed
        && !liveness::is_elsewhere(control, set)
        && !liveness::is_at_work(control, runs)
}

/// Why the caller cannot continue another user's change set.
enum Obstacle {
    /// The caller may not apply this target, as far as is known.
    Closed(String),
    /// The caller does not have this value of the requester.
    Needs(String),
}

impl Obstacle {
    fn of(specs: &[RunSpec], writable: &[String]) -> Option<Self> {
        let mut targets = specs.iter().map(|spec| &spec.target);
        let closed = targets.find(|one| !one.is_open() && !writable.contains(&one.name));
        let closed = closed.map(|target| Self::Closed(target.name.clone()));
        closed.or_else(|| caller_env::wants(specs).map(|name| Self::Needs(name.to_string())))
    }

    fn words(&self) -> String {
        match self {
            Self::Closed(target) => {
                format!("no client is attached, and this user may not apply target `{target}`")
            }
            Self::Needs(name) => format!("needs `{name}` from the asker's environment"),
        }
    }
}

/// The targets of a change set.
async fn targets(control: &Control, set: Option<ChangeSetId>) -> Result<Vec<String>, AdvanceError> {
    let Some(set) = set else {
        return Ok(Vec::new());
    };
    let specs = prepare::specs(control, set).await;
    let specs = specs.map_err(|source| AdvanceError::Store { set, source })?;
    Ok(specs.into_iter().map(|spec| spec.target.name).collect())
}

/// Starts a process that waits for processes that an earlier engine of a run left behind, if there are any. A
/// confirmed change set then continues without a terminal. One process waits for all of them.
async fn wait_apart(control: &Control, run: RunId, values: &[u8]) -> Result<(), StartError> {
    let home = &control.home;
    let Ok(Some(turn)) = lock::waiter(home, run) else {
        return Ok(());
    };
    if orphan_processes::of_run(home, run).is_none() {
        return Ok(());
    }
    start(control, run, WAIT, values, &turn).await
}

/// The work of the process that [`wait_apart`] starts. Once no leftover process holds the run's lock, it
/// performs a step for the change set. Until then it counts as an attached client, so that the change set is
/// not treated as abandoned.
pub(crate) async fn wait_for_orphans(
    control: &Control,
    run: RunId,
    asker: &CallerEnv,
) -> Result<(), AdvanceError> {
    let RunSummary { set, .. } = retry_unavailable(|| control.store.run_summary(run))
        .await
        .map_err(AdvanceError::Queue)?;
    let _watch = client_presence::attach(control, set.id);
    let are_gone = || orphan_processes::of_run(&control.home, run).is_none();
    let look = async || {
        let failed = |source| AdvanceError::Store {
            set: set.id,
            source,
        };
        let now = control.store.change_set_get(set.id).await.map_err(failed)?;
        if now.status != Status::Confirmed {
            return Ok(true);
        }
        if !are_gone() {
            return Ok(false);
        }
        Box::pin(advance(control, set.id, None, asker, None)).await?;
        Ok(are_gone())
    };
    while !retry_unavailable(&look).await? {
        tokio::time::sleep(STRAGGLER).await;
    }
    Ok(())
}

/// The stage argument for the runner.
fn word(stage: Stage) -> &'static str {
    match stage {
        Stage::Preparing | Stage::Planning => "plan",
        Stage::Applying => "apply",
        Stage::Publishing => "publish",
        Stage::Bootstrapping => "bootstrap",
        Stage::Verifying => "verify",
    }
}

async fn launch(control: &Control, claimed: ClaimedRun, values: &[u8]) -> Result<(), StartError> {
    match &control.launcher {
        RunnerLauncher::Process => {
            let ClaimedRun { run, stage, lock } = claimed;
            start(control, run, word(stage), values, lock.file()).await
        }
        RunnerLauncher::Queue(queue) => {
            // Without a receiver, the run's lock is released, and the run is recovered like any lost one.
            drop(queue.send(claimed));
            Ok(())
        }
    }
}

/// Starts a runner's process.
async fn start(
    control: &Control,
    run: RunId,
    word: &str,
    values: &[u8],
    lock: &File,
) -> Result<(), StartError> {
    let home = &control.home;
    let mut args: Vec<OsString> = [
        "runner".into(),
        "--run".into(),
        run.to_string().into(),
        "--stage".into(),
        word.into(),
        "--work".into(),
        home.work().into(),
        "--id".into(),
        home.project().into(),
        "--cache".into(),
        control.cache.as_os_str().to_owned(),
    ]
    .to_vec();
    if let Some(dir) = home.store().directory() {
        args.extend(["--store".into(), dir.into()]);
    }
    if let Some(file) = home.key().file() {
        args.extend(["--key".into(), file.into()]);
    }
    // A runner gets all it needs by its arguments and standard input. These variables are for measurements
    // and tests.
    let mut env: Environment = [crate::runner::USAGE_FILE, crate::home::retry::PATIENCE]
        .into_iter()
        .filter_map(|name| Some((name, std::env::var(name).ok()?)))
        .collect();
    // A few short-lived threads need no separate heaps, which cost more to set up than to share.
    env.set("MALLOC_ARENA_MAX", "1");
    let log = home.runners_log();
    process::spawn_detached(&control.program, &args, &env, values, &log, lock).await?;
    Ok(())
}

fn could_not_start(stage: Stage, failure: &StartError) -> RunProblem {
    let cause = std::error::Error::source(failure).map(ToString::to_string);
    match cause {
        Some(cause) => RunProblem::new(stage, format!("{failure}: {cause}")),
        None => RunProblem::new(stage, failure.to_string()),
    }
}

/// Requests the runners of a change set to interrupt their engines, once each. A runner that has just started
/// has not signed its lock yet; the next call reaches it.
pub fn interrupt_runners(
    control: &Control,
    runs: &[Run],
    asked: &mut BTreeSet<RunId>,
) -> io::Result<()> {
    for run in runs.iter().filter(|run| run.state.is_running()) {
        if !asked.contains(&run.id)
            && let Some(pid) = RunLock::signed(&control.home, run.id).and_then(|who| who.runner)
        {
            process::interrupt(pid)?;
            asked.insert(run.id);
        }
    }
    Ok(())
}
