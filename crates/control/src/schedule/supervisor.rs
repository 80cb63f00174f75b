//! Drives one change set for an attached client: claims runs and starts their runners, ends runs of lost runners, continues
//! others in the queue, passes stalled ones, and cleans up. The client only starts it and reads the store.
//!
//! Not here: a single step (`scheduler`), what a crash left behind (`recovery`), drawing (`cli::watch`).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use model::base::error::{ErrorKind, Explain, NextStep};
use model::base::ids::{ChangeSetId, RunId};
use model::run::changeset::{ChangeSet, LaneBlocker, Status, UserCommand};
use model::run::{Run, RunState, Upstream};
use store::ChangeSetError;

use crate::Control;
use crate::run::cleanup;
use crate::schedule::recovery;
use crate::schedule::scheduler::{self, AdvanceError, UnattendedOutcome};
use crate::secrets::caller_env::{CallerEnv, MissingValuesError};

/// How often to check for lost runners, and to request lanes again.
const INTERVAL: Duration = Duration::from_secs(1);
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
}

impl Explain for SuperviseError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Advance(err) => err.kind(),
            Self::Recover(err) => err.kind(),
            Self::Values(err) => err.kind(),
        }
    }

    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::Advance(err) => err.next_steps(),
            Self::Recover(err) => err.next_steps(),
            Self::Values(err) => err.next_steps(),
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

#[expect(
    missing_debug_implementations,
    reason = "it holds the requester's values"
)]
pub struct Supervisor<'a> {
    control: &'a Control,
    set: ChangeSetId,
    /// With the requester's values the change set can be advanced; without them it is only watched.
    caller: Option<CallerEnv>,
    /// What blocks the queue while the change set waits for its lanes.
    blocked_by: Option<LaneBlocker>,
    /// The change set that blocks the queue without progress, and since when.
    stalled: Option<(ChangeSetId, Instant)>,
    checked: Instant,
    /// Runs whose runner was asked to interrupt its engine.
    interrupted: BTreeSet<RunId>,
}

impl<'a> Supervisor<'a> {
    pub fn new(control: &'a Control, set: ChangeSetId, caller: Option<CallerEnv>) -> Self {
        Self {
            control,
            set,
            caller,
            blocked_by: None,
            stalled: None,
            checked: Instant::now(),
            interrupted: BTreeSet::new(),
        }
    }

    pub fn caller(&self) -> CallerEnv {
        self.caller.clone().unwrap_or_default()
    }

    pub fn blocked_by(&self) -> Option<&LaneBlocker> {
        self.blocked_by.as_ref()
    }

    pub fn note_blocker(&mut self, blocked_by: Option<LaneBlocker>) {
        self.blocked_by = blocked_by;
    }

    /// The first step. Does nothing without the requester's values.
    pub async fn start(&mut self) -> Result<(), AdvanceError> {
        if self.caller.is_some() {
            self.advance(None).await?;
        }
        Ok(())
    }

    /// Records a user's command, if there is one, and performs what is possible now.
    pub async fn advance(&mut self, command: Option<UserCommand>) -> Result<(), AdvanceError> {
        let caller = self.caller();
        let done = scheduler::advance(self.control, self.set, command, &caller, None).await?;
        self.blocked_by = done.front;
        Ok(())
    }

    /// Asks each running engine to stop, once, including those that started in the meantime.
    pub fn interrupt_engines(&mut self, runs: &[Run]) -> io::Result<()> {
        scheduler::interrupt_runners(self.control, runs, &mut self.interrupted)
    }

    /// Performs the work that is due. Returns whether any was.
    pub async fn tick(&mut self, set: &ChangeSet, runs: &[Run]) -> Result<bool, SuperviseError> {
        if self.checked.elapsed() <= INTERVAL {
            return Ok(false);
        }
        self.checked = Instant::now();
        let lost = recovery::recover(self.control, set).await?;
        let waits = set.status == Status::Waiting;
        if waits {
            // The change set at the head of the queue may be dead.
            recovery::release_abandoned(self.control).await?;
            if let Some(caller) = &self.caller {
                scheduler::resume_unattended(self.control, caller, Some(self.set)).await?;
            }
        }
        self.pass_stalled().await?;
        let stalls = !lost.is_empty() || !runs.iter().any(|run| run.state.is_running());
        if !waits && !stalls && !self.may_be_free(set, runs) {
            return Ok(true);
        }
        // After an interrupt nothing new starts, so ending it needs no requester's values.
        if self.caller.is_some() || set.status == Status::Interrupting {
            self.advance(None).await?;
        } else {
            recovery::stop_if_gone(self.control, set, runs).await?;
        }
        Ok(true)
    }

    /// Removes plan files and the source once nothing needs them.
    pub async fn finish(&self, set: &ChangeSet, runs: &[Run]) {
        cleanup::remove_leftovers(self.control, set, runs).await;
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
    async fn pass_stalled(&mut self) -> Result<(), AdvanceError> {
        let first = match &self.blocked_by {
            Some(LaneBlocker::Earlier { set, .. }) => Some(*set),
            Some(LaneBlocker::Holder { set, .. }) => {
                let is_still = scheduler::is_still(self.control, *set).await?;
                is_still.then_some(*set)
            }
            Some(LaneBlocker::Hold(_)) | None => None,
        };
        let since = self.stalled.filter(|(set, _)| first == Some(*set));
        self.stalled = since.or_else(|| Some((first?, Instant::now())));
        if let (Some((set, since)), Some(caller)) = (self.stalled, &self.caller)
            && since.elapsed() > OVERDUE
        {
            scheduler::skip_stalled(self.control, caller, set, self.set).await?;
        }
        Ok(())
    }
}
