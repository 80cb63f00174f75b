//! States that an engine could not deliver. The leftovers of a run are adopted if that is safe. Otherwise
//! they are quarantined, and the stack cannot be applied until a person decides.
//!
//! Not here: the rules of adoption (`model::state::adoption`), a manual push (`surgery`).

use std::fs;
use std::path::Path;

use model::base::error::{ErrorKind, Explain, NextStep, advice, command};
use model::base::ids::RunId;
use model::project::Backend;
use model::run::{PlanRecord, RunSpec};
use model::state::{RefusedRequest, StateName};
use serde::{Deserialize, Serialize};
use store::{AdoptError, Adopted, ChangeSetError, Decider, Decision, StoreError};

use crate::Control;
use crate::home::retry::retry_unavailable;
use crate::run::lock::RunLock;
use crate::state::pending_write::PendingWrite;
use crate::state::redact_reason::BreakGlassReason;
use crate::state::redact_reason::without_secrets_of;
use crate::state::secret_paths;

/// Why a stack cannot be applied: a person has to decide first.
#[derive(Debug, thiserror::Error)]
pub enum QuarantineError {
    #[error("run {run} left a state that was quarantined: {why}")]
    Undecided {
        run: RunId,
        state: StateName,
        why: String,
        /// The location of its sealed bytes in the home.
        kept: String,
    },
    #[error("cannot look for quarantined states of `{state}`")]
    Store {
        state: StateName,
        source: StoreError,
    },
}

impl Explain for QuarantineError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Undecided { .. } => ErrorKind::Refused,
            Self::Store { source, .. } => source.kind(),
        }
    }

    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::Undecided {
                run, state, kept, ..
            } => vec![
                advice(format!("it is stored as `{kept}`")),
                command(
                    format!("state push {} --kept {run} --reason …", state.name),
                    "makes it the newest version",
                ),
                command(
                    format!("run discard {run} --reason …"),
                    "continues without it",
                ),
            ],
            Self::Store { .. } => Vec::new(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DiscardError {
    #[error("there is no run {run}")]
    NoRun { run: RunId },
    #[error("run {run} left no quarantined state")]
    Nothing { run: RunId },
    #[error("cannot discard the quarantined state of run {run}")]
    Store { run: RunId, source: StoreError },
    #[error("cannot look up run {run}")]
    Read { run: RunId, source: ChangeSetError },
}

impl Explain for DiscardError {}

/// A run's properties that decide about its leftovers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdoptionContext<'a> {
    pub(crate) run: RunId,
    pub(crate) spec: &'a RunSpec,
    /// The directory in which its engine worked.
    pub(crate) dir: &'a Path,
    /// The version that its plan was based on.
    pub(crate) base: Option<i64>,
    /// Whether its plan may remove all resources.
    pub(crate) may_empty: bool,
    /// Whether to retry while the home does not respond: the runner does, a person need not.
    pub(crate) patient: bool,
}

impl<'a> AdoptionContext<'a> {
    pub(crate) fn of(run: RunId, spec: &'a RunSpec, dir: &'a Path, plan: &PlanRecord) -> Self {
        Self {
            run,
            spec,
            dir,
            base: plan.seal.head.as_ref().map(|head| head.version),
            may_empty: plan.may_empty(),
            patient: false,
        }
    }

    async fn try_for<T, E: Explain>(
        &self,
        mut action: impl AsyncFnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        if self.patient {
            retry_unavailable(action).await
        } else {
            action().await
        }
    }
}

/// The owner of a state that may be left in a stack's directory, recorded before the engine applies there.
#[derive(Debug, Serialize, Deserialize)]
struct ApplyRecord {
    run: RunId,
    base: Option<i64>,
    may_empty: bool,
}

/// Records which run the leftovers will belong to. If that fails, they are attributed to the next run.
pub(crate) fn note_applying(control: &Control, left: AdoptionContext<'_>) {
    let applying = ApplyRecord {
        run: left.run,
        base: left.base,
        may_empty: left.may_empty,
    };
    let text = serde_json::to_vec(&applying).unwrap_or_default();
    drop(fs::write(control.home.applying_note(left.spec), text));
}

/// The leftovers of an earlier run in the directory, attributed to that run.
pub(crate) fn of_earlier<'a>(control: &Control, left: AdoptionContext<'a>) -> AdoptionContext<'a> {
    let note = fs::read(control.home.applying_note(left.spec));
    let applying = note
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok());
    match applying {
        Some(ApplyRecord {
            run,
            base,
            may_empty,
        }) => AdoptionContext {
            run,
            base,
            may_empty,
            ..left
        },
        None => AdoptionContext { base: None, ..left },
    }
}

/// Fails if an undecided state blocks the next apply.
pub async fn check(control: &Control, state: &StateName) -> Result<(), QuarantineError> {
    let waiting = control.store.quarantine_list(state).await;
    let waiting = waiting.map_err(|source| QuarantineError::Store {
        state: state.clone(),
        source,
    })?;
    match waiting.into_iter().next() {
        None => Ok(()),
        Some(first) => Err(QuarantineError::Undecided {
            run: first.run.unwrap_or(RunId(0)),
            state: first.state,
            why: first.reason,
            kept: first.kept.unwrap_or_default(),
        }),
    }
}

/// Continues without a run's leftovers, by a person's decision. The bytes stay in the home.
pub async fn discard(
    control: &Control,
    run: RunId,
    reason: &BreakGlassReason,
) -> Result<Vec<RefusedRequest>, DiscardError> {
    let store = &control.store;
    let failed = |source| DiscardError::Store { run, source };
    let found = store.run_get(run).await;
    let found = found.map_err(|source| DiscardError::Read { run, source })?;
    if found.is_none() {
        return Err(DiscardError::NoRun { run });
    }
    let left = store.quarantine_list_run(run).await.map_err(failed)?;
    let text = without_secrets_of(control, &[run], &reason.text).await;
    let decider = Decider {
        actor: &reason.actor,
        reason: &text,
    };
    let decided = store.quarantine_decide(&left, Decision::Discarded, decider);
    if decided.await.map_err(failed)? == 0 {
        return Err(DiscardError::Nothing { run });
    }
    Ok(left)
}

/// Adopts or quarantines the leftovers of a finished run: first what the home could not store, then what its
/// engine saved. The text describes what was done.
pub(crate) async fn take_in(control: &Control, left: AdoptionContext<'_>) -> Option<String> {
    let spooled = take_in_spooled(control, left).await;
    let errored = take_in_errored(control, left).await;
    match (spooled, errored) {
        (Some(first), Some(second)) if first != second => Some(format!("{first}; {second}")),
        (first, second) => second.or(first),
    }
}

/// Adopts or quarantines undelivered states of finished runs that were not handled when the runs ended.
pub(crate) async fn adopt_or_quarantine_all(control: &Control) -> Result<(), ChangeSetError> {
    for run in PendingWrite::runs_with_pending(&control.home) {
        let Ok(Some(_lock)) = RunLock::try_take(&control.home, run) else {
            continue;
        };
        let found = control.store.run_get(run).await?;
        if !found.is_some_and(|run| run.state.is_finished()) {
            continue; // handled when the run is ended
        }
        let spec = control.store.run_spec(run).await?;
        let left = AdoptionContext {
            run,
            spec: &spec,
            dir: Path::new(""),
            base: None,
            may_empty: false,
            patient: false,
        };
        take_in_spooled(control, left).await;
    }
    Ok(())
}

async fn take_in_spooled(control: &Control, left: AdoptionContext<'_>) -> Option<String> {
    let spool = PendingWrite::new(control.home.run_dir(left.run), left.run);
    let state = control.state_name(&left.spec.stack.state);
    let read = async || spool.read(&control.store, &state).await;
    let bytes = left.try_for(read).await;
    let said = match bytes {
        Ok(None) => {
            spool.forget(); // the marker could be written, but not the state
            return None;
        }
        Ok(Some(bytes)) => adopt(control, &state, left, &bytes).await,
        Err(err) => return Some(lies_in(&spool.path(), &err)),
    };
    match said {
        Ok(said) => {
            spool.clear();
            Some(said)
        }
        Err(err) => Some(lies_in(&spool.path(), &err)),
    }
}

async fn take_in_errored(control: &Control, left: AdoptionContext<'_>) -> Option<String> {
    let path = drivers::engine::find_errored_state(left.dir)?;
    if left.spec.target.backend != Backend::Terrane {
        let why = "it belongs to the engine's own backend; push it there";
        return Some(lies_in(&path, &why));
    }
    let state = control.state_name(&left.spec.stack.state);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(err) => return Some(lies_in(&path, &err)),
    };
    match adopt(control, &state, left, &bytes).await {
        Ok(said) => {
            // It is in the store now; left here, it would be found again after the next failure.
            drop(fs::remove_file(path));
            Some(said)
        }
        Err(err) => Some(lies_in(&path, &err)),
    }
}

/// Adopts or quarantines; retries while the home does not respond.
async fn adopt(
    control: &Control,
    state: &StateName,
    left: AdoptionContext<'_>,
    bytes: &[u8],
) -> Result<String, AdoptError> {
    let once = async || try_adopt(control, state, left, bytes).await;
    let adopted = left.try_for(once).await?;
    Ok(match adopted {
        Adopted::New(version) => format!(
            "the state that could not be delivered was found and kept as serial {}",
            version.serial
        ),
        Adopted::Nothing => "the state that could not be delivered was already stored".to_owned(),
        Adopted::KeptAside { why, kept } => format!(
            "the state that could not be delivered is quarantined as `{}`: {why}",
            kept.unwrap_or_default()
        ),
    })
}

async fn try_adopt(
    control: &Control,
    state: &StateName,
    left: AdoptionContext<'_>,
    bytes: &[u8],
) -> Result<Adopted, AdoptError> {
    let (store, run) = (&control.store, left.run);
    let failed = |source| AdoptError::Compare {
        state: state.clone(),
        run,
        source,
    };
    let head = store.state_head(state).await.map_err(failed)?;
    // Another writer changed the state since. The leftover does not contain that change, whatever its serial
    // is.
    if let Some(head) = head
        && head.run != Some(run)
        && Some(head.version) != left.base
        && store.state_version_read(&head).await.map_err(failed)? != bytes
    {
        let why = model::state::QuarantineReason::HeadMoved { head: head.serial };
        let record = store.quarantine_record(state, run, why.to_string(), bytes.to_vec());
        let kept = record.await.map_err(failed)?.kept;
        return Ok(Adopted::KeptAside { why, kept });
    }
    let paths = secret_paths::of_earlier_run(control, run, bytes);
    store
        .state_adopt(state, run, bytes.to_vec(), left.may_empty, paths)
        .await
}

/// The file stays where it is, and survives when another source is unpacked.
fn lies_in(path: &Path, why: &dyn std::fmt::Display) -> String {
    format!(
        "the state that could not be delivered lies in `{}`: {why}",
        path.display()
    )
}
