//! The loop that drives one change set: claims runs and starts their runners, ends runs of lost runners, continues others in
//! the queue, passes stalled ones, cleans up, and publishes break-glass records. A client only starts it and reads the store.
//!
//! Not here: a single step (`scheduler`), what a crash left behind (`recovery`), drawing (`cli::watch`).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use model::base::actor::Actor;
use model::base::error::{ErrorKind, Explain, NextStep};
use model::base::ids::{ChangeSetId, RunId};
use model::run::changeset::{Action, ChangeSet, LaneBlocker, Status, UserCommand};
use model::run::{Run, RunState, Upstream};
use model::stage::facts::FactsBranch;
use store::{ChangeSetError, StoreError};
use tokio::sync::Notify;

use crate::Control;
use crate::run::{cleanup, client_presence};
use crate::schedule::recovery;
use crate::schedule::scheduler::{self, AdvanceError, UnattendedOutcome};
use crate::secrets::caller_env::{CallerEnv, MissingValuesError};
use crate::stage::facts::{self, MissedRecord};

/// How often to check for lost runners, and to request lanes again.
const INTERVAL: Duration = Duration::from_secs(1);
/// How often to pass an interrupt on to runners that have just started.
const INTERRUPTING: Duration = Duration::from_millis(100);
/// A live change set at the head of the queue starts sooner than this.
const OVERDUE: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    #[error(transparent)]
    Advance(#[from] AdvanceError),
    #[error(transparent)]
    Recover(#[from] ChangeSetError),
    #[error(transparent)]
    Values(#[from] MissingValuesError),
    #[error("cannot interrupt a runner")]
    Interrupt(#[from] io::Error),
    #[error("cannot publish break-glass records")]
    Records(#[source] StoreError),
}

impl Explain for SuperviseError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Advance(err) => err.kind(),
            Self::Recover(err) => err.kind(),
            Self::Values(err) => err.kind(),
            Self::Records(err) => err.kind(),
            Self::Interrupt(_) => ErrorKind::Failed,
        }
    }

    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::Advance(err) => err.next_steps(),
            Self::Recover(err) => err.next_steps(),
            Self::Values(err) => err.next_steps(),
            Self::Records(err) => err.next_steps(),
            Self::Interrupt(_) => Vec::new(),
        }
    }
}

/// What happened to earlier change sets that had no client.
#[derive(Debug)]
pub struct CaughtUp {
    /// Change sets that a crash left open, and that are over now.
    pub ended: Vec<(ChangeSet, Vec<Run>)>,
    pub continued: Vec<(ChangeSetId, UnattendedOutcome)>,
}

/// Ends change sets that a crash left open, and continues those that waited.
pub async fn catch_up(
    control: &Control,
    root: &Path,
    env: &BTreeMap<String, String>,
) -> Result<CaughtUp, SuperviseError> {
    let mut ended = Vec::new();
    for set in recovery::release_abandoned(control).await? {
        let runs = control.store.run_list(set.id).await?;
        ended.push((set, runs));
    }
    let caller = CallerEnv::gather(env, root, &[], &BTreeMap::new())?;
    let continued = scheduler::resume_unattended(control, &caller, None).await?;
    Ok(CaughtUp { ended, continued })
}

/// Where break-glass records are published: the facts branches of the project, as the client has it.
#[derive(Clone, Debug)]
pub struct RecordBranches {
    pub root: PathBuf,
    pub env: BTreeMap<String, String>,
    pub branches: BTreeMap<String, FactsBranch>,
}

/// The loop of one change set. Several clients may run it: a lease lets one of them work at a time.
#[expect(
    missing_debug_implementations,
    reason = "it holds the requester's values"
)]
pub struct Supervisor {
    control: Control,
    set: ChangeSetId,
    /// With the requester's values the change set can be advanced; without them it is only watched.
    caller: Option<CallerEnv>,
    records: Option<RecordBranches>,
    /// What blocks the queue while the change set waits for its lanes.
    blocked_by: Mutex<Option<LaneBlocker>>,
    /// Branches that could not be updated at the end.
    missed: Mutex<Vec<MissedRecord>>,
    /// Runs whose runner was asked to interrupt its engine.
    interrupted: tokio::sync::Mutex<BTreeSet<RunId>>,
    stopping: AtomicBool,
    woken: Notify,
}

/// What the loop remembers from one step to the next.
struct Memory {
    /// The change set that blocks the queue without progress, and since when.
    stalled: Option<(ChangeSetId, Instant)>,
    /// Since when another process has held the lease.
    refused: Option<Instant>,
    supervised: Instant,
}

impl Supervisor {
    pub fn new(
        control: &Control,
        set: ChangeSetId,
        caller: Option<CallerEnv>,
        records: Option<RecordBranches>,
    ) -> Self {
        Self {
            control: control.clone(),
            set,
            caller,
            records,
            blocked_by: Mutex::new(None),
            missed: Mutex::new(Vec::new()),
            interrupted: tokio::sync::Mutex::default(),
            stopping: AtomicBool::new(false),
            woken: Notify::new(),
        }
    }

    pub fn caller(&self) -> CallerEnv {
        self.caller.clone().unwrap_or_default()
    }

    pub fn blocked_by(&self) -> Option<LaneBlocker> {
        lock(&self.blocked_by).clone()
    }

    /// The branches that could not get the break-glass records of this change set.
    pub fn take_missed_records(&self) -> Vec<MissedRecord> {
        std::mem::take(&mut *lock(&self.missed))
    }

    /// Runs the loop beside `watching`, and ends it with the step that is under way: a step that is dropped halfway
    /// would leave claimed runs without runners.
    pub async fn run_beside<T, E: From<SuperviseError>>(
        &self,
        watching: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        self.stopping.store(false, Ordering::Release);
        // Before the client looks: it must not take what can start now for something that waits.
        if self.caller.is_some() {
            self.advance(None).await.map_err(SuperviseError::from)?;
        }
        let (mut supervising, mut watching) = (pin!(self.run()), pin!(watching));
        let mut is_supervised = true;
        loop {
            tokio::select! {
                biased;
                ended = &mut supervising, if is_supervised => {
                    ended?;
                    is_supervised = false;
                }
                watched = &mut watching => {
                    self.stopping.store(true, Ordering::Release);
                    self.woken.notify_one();
                    if is_supervised {
                        supervising.await?;
                    }
                    return watched;
                }
            }
        }
    }

    /// Works until it is stopped. An error ends the loop: the client decides whether to wait and to start it again.
    async fn run(&self) -> Result<(), SuperviseError> {
        let mut memory = Memory {
            stalled: None,
            refused: None,
            supervised: Instant::now(),
        };
        while !self.stopping.load(Ordering::Acquire) {
            match Box::pin(self.step(&mut memory)).await? {
                Status::Interrupting => self.pause(INTERRUPTING).await,
                _ => self.pause(INTERVAL).await,
            }
        }
        // A client may leave before the pass that reaches a runner which has just started.
        self.interrupt_runners().await?;
        self.clean_up().await
    }

    async fn pause(&self, time: Duration) {
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = self.woken.notified() => {}
        }
    }

    /// Performs the work that is due, if no other process has the lease. Returns the status.
    async fn step(&self, memory: &mut Memory) -> Result<Status, SuperviseError> {
        let set = self.control.store.change_set_get(self.set).await?;
        let runs = self.control.store.run_list(self.set).await?;
        if set.status.is_over() || set.status == Status::AwaitingConfirm {
            return Ok(set.status);
        }
        if set.status == Status::Interrupting {
            self.interrupt_runners().await?;
        }
        if memory.supervised.elapsed() < INTERVAL {
            return Ok(set.status);
        }
        let lease = client_presence::supervise(&self.control, self.set).unwrap_or(None);
        let refused = memory.refused.filter(|_| lease.is_none());
        memory.refused = refused.or_else(|| lease.is_none().then(Instant::now));
        // The holder may be suspended. The lease only saves double work: transactions decide who claims a run.
        if lease.is_some() || refused.is_some_and(|since| since.elapsed() > OVERDUE) {
            memory.supervised = Instant::now();
            self.supervise(&set, &runs, memory).await?;
        }
        Ok(set.status)
    }

    async fn supervise(
        &self,
        set: &ChangeSet,
        runs: &[Run],
        memory: &mut Memory,
    ) -> Result<(), SuperviseError> {
        let lost = recovery::recover(&self.control, set).await?;
        let waits = set.status == Status::Waiting;
        if waits {
            // The change set at the head of the queue may be dead.
            recovery::release_abandoned(&self.control).await?;
            if let Some(caller) = &self.caller {
                scheduler::resume_unattended(&self.control, caller, Some(self.set)).await?;
            }
        }
        self.pass_stalled(memory).await?;
        let stalls = !lost.is_empty() || !runs.iter().any(|run| run.state.is_running());
        if !waits && !stalls && !self.may_be_free(set, runs) {
            return Ok(());
        }
        // After an interrupt nothing new starts, so ending it needs no requester's values.
        if self.caller.is_some() || set.status == Status::Interrupting {
            self.advance(None).await?;
        } else {
            recovery::stop_if_gone(&self.control, set, runs).await?;
        }
        Ok(())
    }

    /// Starts nothing more, and interrupts the engines that are running.
    pub async fn interrupt(&self, by: Actor) -> Result<(), SuperviseError> {
        self.advance(Some(UserCommand::Interrupt { by })).await?;
        self.interrupt_runners().await?;
        self.woken.notify_one();
        Ok(())
    }

    /// Asks each running engine of an interrupted change set to stop, once.
    async fn interrupt_runners(&self) -> Result<(), SuperviseError> {
        let set = self.control.store.change_set_get(self.set).await?;
        if set.status != Status::Interrupting {
            return Ok(());
        }
        let runs = self.control.store.run_list(self.set).await?;
        let mut interrupted = self.interrupted.lock().await;
        Ok(scheduler::interrupt_runners(
            &self.control,
            &runs,
            &mut interrupted,
        )?)
    }

    /// Records a user's command, if there is one, and performs what is possible now.
    async fn advance(&self, command: Option<UserCommand>) -> Result<(), AdvanceError> {
        let caller = self.caller();
        let done = scheduler::advance(&self.control, self.set, command, &caller, None).await?;
        self.note_blocker(done.front);
        Ok(())
    }

    pub fn note_blocker(&self, blocked_by: Option<LaneBlocker>) {
        *lock(&self.blocked_by) = blocked_by;
    }

    /// After the end: removes plan files and the source, and publishes break-glass records.
    async fn clean_up(&self) -> Result<(), SuperviseError> {
        let set = self.control.store.change_set_get(self.set).await?;
        if !set.status.is_over() {
            return Ok(());
        }
        // Another client that has the lease cleans up too.
        let Some(_lease) = client_presence::supervise(&self.control, self.set).unwrap_or(None)
        else {
            return Ok(());
        };
        let runs = self.control.store.run_list(self.set).await?;
        cleanup::remove_leftovers(&self.control, &set, &runs).await;
        let Some(to) = self.records.as_ref().filter(|to| !to.branches.is_empty()) else {
            return Ok(());
        };
        if set.request.action == Action::Plan {
            return Ok(());
        }
        let missed = facts::publish_records(&self.control, &to.root, &to.env, &to.branches).await;
        *lock(&self.missed) = missed.map_err(SuperviseError::Records)?;
        Ok(())
    }

    /// Whether a planned run waits only for an approval or a hold, which may have changed in the meantime.
    fn may_be_free(&self, set: &ChangeSet, runs: &[Run]) -> bool {
        let is_awaited = |need: &Upstream| {
            let mut others = runs.iter();
            others.any(|other| other.stack == need.stack && !other.state.is_finished())
        };
        let is_ready = |run: &Run| {
            matches!(run.state, RunState::Planned { .. }) && !run.upstreams.iter().any(is_awaited)
        };
        self.caller.is_some() && set.status == Status::Confirmed && runs.iter().any(is_ready)
    }

    /// Skips a change set that is first in the queue but does not start because its terminal is suspended, or that holds
    /// the lane while idle.
    async fn pass_stalled(&self, memory: &mut Memory) -> Result<(), AdvanceError> {
        let first = match self.blocked_by() {
            Some(LaneBlocker::Earlier { set, .. }) => Some(set),
            Some(LaneBlocker::Holder { set, .. }) => {
                let is_still = scheduler::is_still(&self.control, set).await?;
                is_still.then_some(set)
            }
            Some(LaneBlocker::Hold(_)) | None => None,
        };
        let since = memory.stalled.filter(|(set, _)| first == Some(*set));
        memory.stalled = since.or_else(|| Some((first?, Instant::now())));
        if let (Some((set, since)), Some(caller)) = (memory.stalled, &self.caller)
            && since.elapsed() > OVERDUE
        {
            scheduler::skip_stalled(&self.control, caller, set, self.set).await?;
        }
        Ok(())
    }
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
