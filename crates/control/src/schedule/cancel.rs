//! Ends a run or a change set from any client: one interrupt to each engine, then waiting. A kill loses what
//! was not stored, so it needs a reason and is recorded. The same is true for giving up a machine that is
//! gone.
//!
//! Not here: what an interrupt does to a change set (`model::run::changeset`), the prompt before a kill (`cli`).

use std::collections::BTreeSet;
use std::io;

use model::base::error::{ErrorKind, Explain, NextStep, advice, command};
use model::base::ids::{ChangeSetId, RunId};
use model::run::changeset::ChangeSet;
use model::run::import_proposal::UnrecordedResources;
use model::run::{Run, RunEvent, RunState, SkipReason, Stage};
use model::state::break_glass::BreakGlassAction;
use store::{ChangeSetError, NewBreakGlass, StoreError};

use crate::changeset::cancel_requests::CancelRequest;
use crate::run::liveness;
use crate::run::lock::RunLock;
use crate::schedule::recovery;
use crate::schedule::scheduler::{self, AdvanceError, UserCommand};
use crate::secrets::caller_env::CallerEnv;
use crate::state::redact_reason::{BreakGlassReason, without_secrets_of};
use crate::state::unrecorded;
use crate::{Control, runner};

#[derive(Debug, thiserror::Error)]
pub enum CancelError {
    #[error("there is no run {0}")]
    NoRun(RunId),
    #[error("run {run} of stack `{stack}` has already ended: {word}")]
    RunOver {
        run: RunId,
        stack: String,
        word: &'static str,
    },
    #[error("change set {0} has already ended")]
    SetOver(ChangeSetId),
    #[error("cannot cancel {what} from here: it runs on another machine")]
    Elsewhere { what: String, set: ChangeSetId },
    #[error(
        "change set {set} was started on this machine, so this machine can check its processes"
    )]
    Here { set: ChangeSetId },
    #[error("cannot release the lock of run {run}")]
    GiveUp { run: RunId, source: StoreError },
    #[error("run {run} has no running engine")]
    NoEngine { run: RunId },
    #[error("cannot read the run or change set to cancel")]
    Read(#[from] ChangeSetError),
    #[error(transparent)]
    Turn(#[from] AdvanceError),
    #[error("could not record that the engine of run {run} is killed")]
    Record { run: RunId, source: StoreError },
    #[error("cannot signal the processes of run {run}")]
    Signal { run: RunId, source: io::Error },
}

impl Explain for CancelError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::RunOver { .. }
            | Self::SetOver(_)
            | Self::Elsewhere { .. }
            | Self::Here { .. }
            | Self::NoEngine { .. } => ErrorKind::Refused,
            Self::NoRun(_) => ErrorKind::NotFound,
            Self::Read(_)
            | Self::Turn(_)
            | Self::GiveUp { .. }
            | Self::Record { .. }
            | Self::Signal { .. } => ErrorKind::Failed,
        }
    }

    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::Elsewhere { set, .. } => vec![
                advice("run the same command on that machine"),
                command(
                    format!("run cancel {set} --gone --reason …"),
                    "ends it if that machine no longer exists",
                ),
            ],
            Self::Here { set } => vec![command(format!("run cancel {set}"), "ends it")],
            Self::NoEngine { run } => vec![command(format!("run cancel {run}"), "ends it")],
            _ => Vec::new(),
        }
    }
}

/// Does the same as Ctrl-C in an attached client: nothing new begins, and engines are interrupted once. The
/// caller continues with `scheduler::interrupt_runners` until the change set is over.
pub async fn cancel_set(
    control: &Control,
    id: ChangeSetId,
    wish: &CancelRequest,
) -> Result<(), CancelError> {
    let set = control.store.change_set_get(id).await?;
    if set.status.is_over() {
        return Err(CancelError::SetOver(id));
    }
    check_here(control, &set, || format!("change set {id}"))?;
    for run in control.store.run_list(id).await? {
        if !run.state.is_finished() {
            note(control, run.id, wish, false).await?;
        }
    }
    let by = wish.by.clone();
    let say = Some(UserCommand::Interrupt { by });
    scheduler::advance(control, id, say, &CallerEnv::default(), None).await?;
    Ok(())
}

/// Gives up a change set whose machine is gone for good, as a person states. No process can check what
/// happened there, so the result of its running runs is unknown. Its lanes and locks are released, and later
/// writes of that machine are refused. The action is recorded first. Returns the runs that were under way.
pub async fn give_up(
    control: &Control,
    id: ChangeSetId,
    reason: &BreakGlassReason,
) -> Result<Vec<Run>, CancelError> {
    let set = may_be_given_up(control, id).await?;
    let mut given_up = Vec::new();
    for run in control.store.run_list(id).await? {
        if run.state.is_running() {
            given_up.push(give_up_run(control, &run, reason).await?);
        }
    }
    let why = format!("{} reported that its machine is gone", reason.actor);
    let stopped = control.store.change_set_stop(&set, &why, control.now());
    stopped.await?;
    Ok(given_up)
}

/// Returns a change set that is under way on another machine; refuses any other.
pub async fn may_be_given_up(control: &Control, id: ChangeSetId) -> Result<ChangeSet, CancelError> {
    let set = control.store.change_set_get(id).await?;
    if set.status.is_over() {
        return Err(CancelError::SetOver(id));
    }
    if !liveness::is_elsewhere(control, &set) {
        return Err(CancelError::Here { set: id });
    }
    Ok(set)
}

async fn give_up_run(
    control: &Control,
    run: &Run,
    reason: &BreakGlassReason,
) -> Result<Run, CancelError> {
    let (id, store) = (run.id, &control.store);
    let spec = store.run_spec(id).await?;
    let state = control.state_name(&spec.stack.state);
    let reason = reason.kept(control, &state).await;
    let record = NewBreakGlass {
        act: BreakGlassAction::MachineGivenUp,
        state: &state,
        actor: &reason.actor,
        reason: Some(&reason.text),
        detail: format!("run {id}, {}", run.state.word()),
    };
    let opened = store.break_glass_open(&record).await;
    opened.map_err(|source| CancelError::Record { run: id, source })?;
    let freed = store.lock_release_run(id).await;
    freed.map_err(|source| CancelError::GiveUp { run: id, source })?;
    let event = RunEvent::RunnerLost {
        kept: None,
        left: None,
    };
    Ok(store.run_record(id, event, control.now()).await?)
}

/// A run that can still be ended, and its change set.
pub async fn find(control: &Control, id: RunId) -> Result<(Run, ChangeSet), CancelError> {
    let run = control.store.run_get(id).await?;
    let run = run.ok_or(CancelError::NoRun(id))?;
    let set = control.store.change_set_get(run.change_set).await?;
    check_here(control, &set, || format!("run {id}"))?;
    if run.state.is_finished() {
        return Err(CancelError::RunOver {
            run: id,
            stack: run.stack.to_string(),
            word: run.state.word(),
        });
    }
    Ok((run, set))
}

/// A request to cancel one run. The other runs of its change set continue, except those that depend on it.
/// The request stays valid until the run is over, because another runner may take over the run meanwhile.
#[derive(Debug)]
pub struct PendingCancel {
    run: RunId,
    asked: BTreeSet<RunId>,
}

impl PendingCancel {
    pub async fn begin(
        control: &Control,
        id: RunId,
        wish: &CancelRequest,
    ) -> Result<Self, CancelError> {
        note(control, id, wish, false).await?;
        Ok(Self {
            run: id,
            asked: BTreeSet::new(),
        })
    }

    /// Interrupts a running run once, and skips one that has not begun. Returns the run if it is over.
    pub async fn look(&mut self, control: &Control) -> Result<Option<Run>, CancelError> {
        if let Some(run) = ended(control, self.run).await? {
            return Ok(Some(run));
        }
        let run = control.store.run_get(self.run).await?;
        let run = run.ok_or(CancelError::NoRun(self.run))?;
        if run.state.is_running() {
            let signal = |source| CancelError::Signal {
                run: run.id,
                source,
            };
            scheduler::interrupt_runners(control, std::slice::from_ref(&run), &mut self.asked)
                .map_err(signal)?;
            return Ok(None);
        }
        self.asked.clear();
        let event = RunEvent::Skipped {
            because: SkipReason::Interrupted,
        };
        match control.store.run_record(run.id, event, control.now()).await {
            Err(ChangeSetError::Run(_)) => Ok(None), // it began, or ended, meanwhile
            skipped => Ok(Some(skipped?)),
        }
    }
}

/// What would be lost if the engine of a run were killed now.
pub async fn unrecorded_if_killed(
    control: &Control,
    run: &Run,
) -> Result<Option<Box<UnrecordedResources>>, CancelError> {
    let RunState::Applying { .. } = run.state else {
        return Ok(None);
    };
    let spec = control.store.run_spec(run.id).await?;
    let events = runner::lost_events(&control.home, run.id, Stage::Applying);
    Ok(unrecorded::look(control, run.id, &spec, &events, true).await)
}

/// Whether a run has an engine that could be killed.
pub fn has_engine(control: &Control, run: RunId) -> bool {
    engine(control, run).is_some()
}

/// Kills the engine of a run, with everything it has started. Recorded first.
pub async fn kill(
    control: &Control,
    run: &Run,
    reason: &BreakGlassReason,
) -> Result<(), CancelError> {
    let id = run.id;
    let pid = engine(control, id).ok_or(CancelError::NoEngine { run: id })?;
    let spec = control.store.run_spec(id).await?;
    let state = control.state_name(&spec.stack.state);
    let reason = reason.kept(control, &state).await;
    let record = NewBreakGlass {
        act: BreakGlassAction::EngineKilled,
        state: &state,
        actor: &reason.actor,
        reason: Some(&reason.text),
        detail: format!("the engine of run {id}, {}", run.state.word()),
    };
    let opened = control.store.break_glass_open(&record).await;
    opened.map_err(|source| CancelError::Record { run: id, source })?;
    let wish = CancelRequest {
        by: reason.actor.clone(),
        reason: Some(reason.text.clone()),
    };
    note(control, id, &wish, true).await?;
    let killed = drivers::process::kill_group(pid);
    killed.map_err(|source| CancelError::Signal { run: id, source })
}

/// Checks once whether a run is over. A run that has lost its processes is ended by what is found of it.
pub async fn ended(control: &Control, id: RunId) -> Result<Option<Run>, CancelError> {
    let run = control.store.run_get(id).await?;
    let run = run.ok_or(CancelError::NoRun(id))?;
    if run.state.is_finished() {
        return Ok(Some(run));
    }
    if run.state.is_running() && !RunLock::is_held(&control.home, id) {
        // Also ends its change set if no process is left to continue it, so that others get its lanes.
        Box::pin(recovery::release_abandoned(control)).await?;
    }
    Ok(None)
}

async fn note(
    control: &Control,
    id: RunId,
    wish: &CancelRequest,
    kill: bool,
) -> Result<(), CancelError> {
    let reason = match &wish.reason {
        Some(text) => Some(without_secrets_of(control, &[id], text).await),
        None => None,
    };
    let event = RunEvent::CancelAsked {
        by: wish.by.clone(),
        reason,
        kill,
    };
    match control.store.run_record(id, event, control.now()).await {
        // The run ended meanwhile.
        Err(ChangeSetError::Run(_)) => Ok(()),
        noted => Ok(noted.map(drop)?),
    }
}

/// The engine at work, as its runner noted it. If no process holds the lock, the note is left over from a
/// crash.
fn engine(control: &Control, run: RunId) -> Option<u32> {
    RunLock::signed(&control.home, run)?.engine
}

fn check_here(
    control: &Control,
    set: &ChangeSet,
    what: impl FnOnce() -> String,
) -> Result<(), CancelError> {
    if liveness::is_elsewhere(control, set) {
        return Err(CancelError::Elsewhere {
            what: what(),
            set: set.id,
        });
    }
    Ok(())
}
