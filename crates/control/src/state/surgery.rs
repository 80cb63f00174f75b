//! Break-glass changes of a state: restoring an older version, pushing a file, removing resources. All of
//! them start with a proposal that shows what would change. Carrying it out takes the lock, makes one version
//! and opens a record with the reason, or does nothing.
//!
//! Not here: user interaction (`cli`), the rules for a push (`model::state::check_push`).

use std::sync::Arc;

use jiff::Timestamp;
use model::base::error::{ErrorKind, Explain, NextStep, advice, command};
use model::base::ids::RunId;
use model::base::masking::Mask;
use model::state::break_glass::BreakGlassAction;
use model::state::lock::LockInfo;
use model::state::resources::StateDocument;
use model::state::secret_paths::SecretPaths;
use model::state::{
    Contents, ExpectedHead, HeldLock, InvalidState, PushRefusal, ReadResourcesError,
    RefusedRequest, RemoveError, StateChangeSummary, StateFacts, StateName, StateVersion,
    VersionMark, as_written, remove, summary, with_identity,
};
use store::{
    AcquireLockError, AppendError, Appended, BreakGlassRecord, Decider, Decision, ManualWrite,
    StoreError,
};

use crate::Control;
use crate::state::redact_reason::BreakGlassReason;
use crate::state::secret_paths;

mod target;

pub use target::{InvalidRollbackTarget, RollbackTarget};

/// The proposed newest version, and how it differs from the current one.
#[derive(Debug)]
pub struct SurgeryProposal {
    pub state: StateName,
    pub head: Option<StateVersion>,
    pub body: Vec<u8>,
    pub serial: u64,
    /// The older version that the content comes from.
    pub older: Option<i64>,
    /// `None` if the engine encrypted one of them, or the current version cannot be read.
    pub summary: Option<StateChangeSummary>,
    /// Why the current version cannot be compared: it is damaged, and stays unchanged.
    pub unread: Option<StoreError>,
    /// Known secret paths in the body, besides those inherited from the current version.
    secret_paths: SecretPaths,
    act: BreakGlassAction,
    mark: Option<VersionMark>,
    force: bool,
    detail: String,
    /// Quarantined states that this decides.
    decides: Vec<RefusedRequest>,
}

impl SurgeryProposal {
    /// Both lineages, if they differ.
    pub fn other_lineage(&self) -> Option<(String, String)> {
        let before = self.head.as_ref().map(|head| head.lineage.clone())?;
        let after = StateFacts::read(&self.body).ok()?.lineage;
        (!before.is_empty() && before != after).then_some((before, after))
    }
}

/// The result.
#[derive(Debug)]
pub enum SurgeryOutcome {
    Wrote(StateVersion),
    /// The newest version already has this content.
    Same(StateVersion),
}

#[derive(Debug, thiserror::Error)]
pub enum SurgeryError {
    #[error("there is no state `{state}`")]
    NoState { state: StateName },
    #[error("state `{state}` has no version {target}")]
    NoVersion { state: StateName, target: String },
    #[error("several versions of state `{state}` have serial {serial}: {}", listed(.versions))]
    SerialTwice {
        state: StateName,
        serial: u64,
        versions: Vec<i64>,
    },
    #[error("state `{state}` had no version on {} yet", .at.strftime("%Y-%m-%d %H:%M:%S UTC"))]
    NotYet { state: StateName, at: Timestamp },
    #[error("version {version} is already the newest of state `{state}`")]
    IsHead { state: StateName, version: i64 },
    #[error("run {run} left no quarantined state for state `{state}`")]
    NothingKept { state: StateName, run: RunId },
    #[error("there is no refused write {number} of state `{state}`")]
    NothingRefused { state: StateName, number: i64 },
    #[error("this cannot be a version of state `{state}`")]
    Invalid {
        state: StateName,
        source: InvalidState,
    },
    #[error("cannot read the resources of state `{state}`")]
    Resources {
        state: StateName,
        source: ReadResourcesError,
    },
    #[error("cannot remove anything from state `{state}`")]
    Remove {
        state: StateName,
        source: RemoveError,
    },
    #[error("state `{state}` is locked by {}", .holder.info)]
    Locked {
        state: StateName,
        holder: Box<HeldLock>,
    },
    #[error("state `{state}` has changed in the meantime")]
    Moved { state: StateName },
    #[error("cannot store this after the newest version of state `{state}`")]
    Refused {
        state: StateName,
        source: PushRefusal,
    },
    #[error("could not {action} state `{state}`")]
    Store {
        state: StateName,
        action: &'static str,
        source: Box<StoreError>,
    },
}

impl Explain for SurgeryError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Locked { .. } | Self::Moved { .. } | Self::Refused { .. } => ErrorKind::Refused,
            Self::NoState { .. } | Self::NoVersion { .. } => ErrorKind::NotFound,
            _ => ErrorKind::Failed,
        }
    }

    fn next_steps(&self) -> Vec<NextStep> {
        vec![match self {
            Self::Locked { state, holder } if holder.run.is_none() => {
                return vec![
                    advice("wait for it; a killed command leaves its lock"),
                    command(
                        format!("lock break {state} --reason …"),
                        "releases the lock of a process that is gone",
                    ),
                ];
            }
            Self::Locked { .. } => {
                command("lock list", "shows its holder, and whether it is alive")
            }
            Self::Moved { .. } => advice("nothing was changed: review it and try again"),
            Self::Refused { source, .. } => match source {
                PushRefusal::SerialTaken { .. }
                | PushRefusal::SerialBehind { .. }
                | PushRefusal::SerialUsed { .. } => advice("`--force` gives it the next serial"),
                PushRefusal::OtherLineage { .. } => advice("`--force` replaces this state with it"),
                PushRefusal::Copy => advice(
                    "the engine changes it in its backend: `terrane exec STACK --reason … -- state rm …`",
                ),
                _ => return Vec::new(),
            },
            Self::Remove { source, state } => match source {
                RemoveError::Unknown { near, .. } if !near.is_empty() => {
                    let near: Vec<String> = near.iter().map(|one| format!("`{one}`")).collect();
                    advice(format!("did you mean {}?", near.join(" or ")))
                }
                RemoveError::Ambiguous { .. } => advice(format!(
                    "name one by its exact address, which `terrane state pull {state}` shows, or remove the whole resource"
                )),
                RemoveError::OldFormat { .. } => advice(
                    "an engine can, and writes the present format: `terrane exec STACK --reason … -- state rm …`",
                ),
                _ => return Vec::new(),
            },
            Self::SerialTwice { versions, .. } => match versions.first() {
                Some(version) => {
                    advice(format!("name one of them by its number: `--to {version}`"))
                }
                None => return Vec::new(),
            },
            Self::NoVersion { state, .. } | Self::NotYet { state, .. } => command(
                format!("state versions {state}"),
                "lists all stored versions",
            ),
            Self::NothingRefused { .. } => {
                command("state verify", "lists what is stored, with its number")
            }
            _ => return Vec::new(),
        }]
    }
}

/// Proposes the content of an older version as a new version.
pub async fn rollback(
    control: &Control,
    state: &StateName,
    target: RollbackTarget,
) -> Result<SurgeryProposal, SurgeryError> {
    let now = CurrentHead::read(control, state).await?;
    let versions = versions_of(control, state).await?;
    if versions.is_empty() {
        let state = state.clone();
        return Err(SurgeryError::NoState { state });
    }
    let old = target.find(state, &versions)?;
    if let Some(head) = &now.head
        && old.version == head.version
    {
        let (state, version) = (state.clone(), head.version);
        return Err(SurgeryError::IsHead { state, version });
    }
    // Without a head, the state was deleted and is restored with its old lineage.
    let lineage = now.head.as_ref().map_or(&old.lineage, |head| &head.lineage);
    let next = next_serial(&versions, lineage).unwrap_or(1);
    let content = control.store.state_version_content(old).await;
    let (body, paths) = content.map_err(|source| failed(state, "read", source))?;
    let encrypted = old.contents == Contents::Encrypted;
    let body = if encrypted {
        // The serial is also inside, and cannot be changed without the key.
        body.to_vec()
    } else {
        let renumbered = with_identity(&body, next, lineage);
        renumbered.map_err(|source| invalid(state, source))?
    };
    let after = if now.head.is_none() {
        ", after the state was deleted"
    } else {
        now.over()
    };
    let detail = format!(
        "content of version {} (serial {}) again{after}",
        old.version, old.serial
    );
    Ok(SurgeryProposal {
        older: Some(old.version),
        serial: if encrypted { old.serial } else { next },
        summary: now.compare(state, &body, &paths)?,
        unread: now.unread,
        secret_paths: paths.as_ref().clone(),
        state: state.clone(),
        head: now.head,
        body,
        act: BreakGlassAction::StateRolledBack,
        mark: Some(VersionMark::RolledBack),
        force: encrypted,
        detail,
        decides: Vec::new(),
    })
}

/// Proposes a person's file as the newest version.
pub async fn push(
    control: &Control,
    state: &StateName,
    file: Vec<u8>,
    force: bool,
) -> Result<SurgeryProposal, SurgeryError> {
    let decides = control.store.quarantine_list(state).await;
    let decides = decides.map_err(|source| failed(state, "read", source))?;
    let source = PushSource {
        what: "a file".to_owned(),
        secret_paths: SecretPaths::default(),
        decides,
    };
    propose_push(control, state, file, force, source).await
}

/// Proposes the quarantined state of a run as the newest version.
pub async fn push_kept(
    control: &Control,
    state: &StateName,
    run: RunId,
    force: bool,
) -> Result<SurgeryProposal, SurgeryError> {
    let store = &control.store;
    let read = |source| failed(state, "read", source);
    let left = store.quarantine_list_run(run).await.map_err(read)?;
    let kept = left.into_iter().rev().find(|one| one.state == *state);
    let body = match &kept {
        Some(kept) => store.refusal_body(kept).await.map_err(read)?,
        None => None,
    };
    let nothing = || SurgeryError::NothingKept {
        state: state.clone(),
        run,
    };
    let body = body.ok_or_else(nothing)?;
    let decides = store.quarantine_list(state).await.map_err(read)?;
    let source = PushSource {
        what: format!("the quarantined state of run {run}"),
        secret_paths: secret_paths::of_earlier_run(control, run, &body),
        decides,
    };
    // It was quarantined because others wrote since: the person who chooses it knows that its serial is
    // behind.
    let head = store.state_head(state).await.map_err(read)?;
    let lineage = StateFacts::read(&body).map(|facts| facts.lineage);
    let is_of_head = |head: &StateVersion| {
        let of_head = |lineage: &String| lineage.is_empty() || *lineage == head.lineage;
        lineage.as_ref().is_ok_and(of_head)
    };
    let force = force || head.as_ref().is_some_and(is_of_head);
    propose_push(control, state, body, force, source).await
}

/// Proposes a refused write that was saved as the newest version.
pub async fn push_refused(
    control: &Control,
    state: &StateName,
    number: i64,
    force: bool,
) -> Result<SurgeryProposal, SurgeryError> {
    let store = &control.store;
    let read = |source| failed(state, "read", source);
    let refused = store.refusal_get(number).await.map_err(read)?;
    let refused = refused.filter(|one| one.state == *state);
    let body = match &refused {
        Some(refused) => store.refusal_body(refused).await.map_err(read)?,
        None => None,
    };
    let body = body.ok_or_else(|| SurgeryError::NothingRefused {
        state: state.clone(),
        number,
    })?;
    let run = refused.and_then(|refused| refused.run);
    let paths = run.map(|run| secret_paths::of_earlier_run(control, run, &body));
    let source = PushSource {
        what: format!("what was refused as number {number}"),
        secret_paths: paths.unwrap_or_default(),
        decides: store.quarantine_list(state).await.map_err(read)?,
    };
    propose_push(control, state, body, force, source).await
}

/// Proposes the newest version without some of its resources. They are forgotten, not destroyed.
pub async fn take_out(
    control: &Control,
    state: &StateName,
    addresses: &[String],
) -> Result<SurgeryProposal, SurgeryError> {
    let mut now = CurrentHead::read(control, state).await?;
    let (head, body) = now.there(state)?;
    let paths = &now.secret_paths;
    let mask = masking(&[document(&body, paths)]);
    let shown = |address: &str| paths.shown_address(address, &mask);
    let versions = versions_of(control, state).await?;
    let serial = next_serial(&versions, &head.lineage).unwrap_or(head.serial + 1);
    let removal = as_written(&body, addresses, shown)
        .and_then(|addresses| remove(&body, &addresses, serial))
        .map_err(|source| SurgeryError::Remove {
            state: state.clone(),
            source: source.masked(&mask),
        })?;
    Ok(SurgeryProposal {
        summary: now.compare(state, &removal.body, &SecretPaths::default())?,
        unread: None,
        secret_paths: SecretPaths::default(),
        serial,
        older: None,
        state: state.clone(),
        head: Some(head),
        body: removal.body,
        act: BreakGlassAction::StateEdited,
        mark: Some(VersionMark::Edited),
        force: false,
        detail: mask.mask_text(&format!("without {}", removal.removed.join(", "))),
        decides: Vec::new(),
    })
}

/// The lock under which a person changes a state.
pub(crate) fn manual_lock(reason: &BreakGlassReason, now: Timestamp) -> LockInfo {
    LockInfo {
        id: uuid::Uuid::new_v4().to_string(),
        // Every client, and the rules, recognise a person's push by this name.
        operation: "state-push".to_owned(),
        info: reason.text.clone(),
        who: reason.actor.name.clone(),
        version: concat!("terrane ", env!("CARGO_PKG_VERSION")).to_owned(),
        created: now.to_string(),
        ..LockInfo::default()
    }
}

/// Carries out a proposal, if the state is unchanged since it was shown.
pub async fn carry_out(
    control: &Control,
    proposal: SurgeryProposal,
    reason: &BreakGlassReason,
) -> Result<SurgeryOutcome, SurgeryError> {
    let (state, store) = (&proposal.state, &control.store);
    let reason = &reason.kept(control, state).await;
    let info = manual_lock(reason, control.now());
    let head = proposal.head.as_ref().map(|head| head.version);
    let expected = ExpectedHead::Exactly(head);
    let lock = store.lock_acquire(state, &info, None, expected).await;
    lock.map_err(|err| not_locked(state, err))?;
    let by_hand = ManualWrite {
        lock_id: info.id.clone(),
        mark: proposal.mark,
        surgery: proposal.force,
        beyond: 0,
        secret_paths: proposal.secret_paths,
        record: BreakGlassRecord {
            act: proposal.act,
            actor: reason.actor.clone(),
            reason: reason.text.clone(),
            detail: proposal.detail,
        },
    };
    let appended = store.state_version_append_manual(state, by_hand, proposal.body);
    let appended = appended.await.map_err(|err| not_written(state, err));
    // Release the lock in any case, so that no client waits for a command that is over.
    let released = store.lock_release(state, &info.id).await;
    let done = match appended? {
        Appended::New(version) => SurgeryOutcome::Wrote(version),
        Appended::Same(version) => SurgeryOutcome::Same(version),
    };
    drop(released);
    let decider = Decider {
        actor: &reason.actor,
        reason: &reason.text,
    };
    // A push that wrote nothing decides nothing.
    if matches!(done, SurgeryOutcome::Wrote(_)) && !proposal.decides.is_empty() {
        let decided = store.quarantine_decide(&proposal.decides, Decision::Pushed, decider);
        let decided = decided.await;
        decided.map_err(|source| failed(state, "note the decision about", source))?;
    }
    Ok(done)
}

/// The origin of a pushed body.
struct PushSource {
    /// A description for the record.
    what: String,
    secret_paths: SecretPaths,
    /// Quarantined states that the push decides.
    decides: Vec<RefusedRequest>,
}

async fn propose_push(
    control: &Control,
    state: &StateName,
    file: Vec<u8>,
    force: bool,
    source: PushSource,
) -> Result<SurgeryProposal, SurgeryError> {
    let now = CurrentHead::read(control, state).await?;
    let facts = StateFacts::read(&file).map_err(|source| invalid(state, source))?;
    let (mut body, mut serial, mut mark) = (file, facts.serial, None);
    if force && facts.contents != Contents::Encrypted && now.body.as_deref() != Some(&body) {
        let lineage = match &now.head {
            // An engine leaves it empty if it could not deliver its first state.
            Some(head) if facts.lineage.is_empty() => &head.lineage,
            Some(_) | None => &facts.lineage,
        };
        let versions = versions_of(control, state).await?;
        let next = next_serial(&versions, lineage).unwrap_or(serial);
        if *lineage != facts.lineage || serial < next {
            serial = serial.max(next);
            let renumbered = with_identity(&body, serial, lineage);
            body = renumbered.map_err(|source| invalid(state, source))?;
            mark = Some(VersionMark::Forced);
        }
    }
    Ok(SurgeryProposal {
        summary: now.compare(state, &body, &source.secret_paths)?,
        detail: format!(
            "{}, serial {} as it came{}",
            source.what,
            facts.serial,
            now.over()
        ),
        unread: now.unread,
        secret_paths: source.secret_paths,
        state: state.clone(),
        head: now.head,
        body,
        serial,
        older: None,
        act: BreakGlassAction::StatePushed,
        mark,
        force,
        decides: source.decides,
    })
}

async fn versions_of(
    control: &Control,
    state: &StateName,
) -> Result<Vec<StateVersion>, SurgeryError> {
    let versions = control.store.state_version_list(state).await;
    versions.map_err(|source| failed(state, "read", source))
}

/// The first serial that no stored version of this lineage has had; `None` without such a version. The newest
/// version need not have the highest serial, because a client may have forced in an older state. No serial
/// may have two contents, or an old plan could match the wrong one.
fn next_serial(versions: &[StateVersion], lineage: &str) -> Option<u64> {
    let of_it = versions.iter().filter(|one| one.lineage == lineage);
    of_it.map(|one| one.serial + 1).max()
}

/// The current version, if there is one, and its bytes, or why they cannot be read.
struct CurrentHead {
    head: Option<StateVersion>,
    body: Option<Arc<Vec<u8>>>,
    secret_paths: Arc<SecretPaths>,
    unread: Option<StoreError>,
}

impl CurrentHead {
    async fn read(control: &Control, state: &StateName) -> Result<Self, SurgeryError> {
        let read = |source| failed(state, "read", source);
        let head = control.store.state_head(state).await.map_err(read)?;
        let (content, unread) = match &head {
            None => (None, None),
            // Fail before the user is asked: a copy cannot be changed here.
            Some(head) if head.is_copy() => {
                return Err(SurgeryError::Refused {
                    state: state.clone(),
                    source: PushRefusal::Copy,
                });
            }
            Some(head) => match control.store.state_version_content(head).await {
                Ok(content) => (Some(content), None),
                // A damaged version must not block its own replacement; all other errors may be temporary.
                Err(err @ StoreError::Unseal { .. }) => (None, Some(err)),
                Err(err) => return Err(read(err)),
            },
        };
        let (body, paths) = content.unzip();
        Ok(Self {
            head,
            body,
            secret_paths: paths.unwrap_or_default(),
            unread,
        })
    }

    fn there(&mut self, state: &StateName) -> Result<(StateVersion, Arc<Vec<u8>>), SurgeryError> {
        if let Some(unread) = self.unread.take() {
            return Err(failed(state, "read", unread));
        }
        let there = self.head.clone().zip(self.body.clone());
        there.ok_or_else(|| SurgeryError::NoState {
            state: state.clone(),
        })
    }

    /// An addition for the record.
    fn over(&self) -> &'static str {
        if self.unread.is_some() {
            ", over a newest version that cannot be read"
        } else {
            ""
        }
    }

    /// How a body differs from the newest version, without sensitive values of either.
    fn compare(
        &self,
        state: &StateName,
        after: &[u8],
        after_paths: &SecretPaths,
    ) -> Result<Option<StateChangeSummary>, SurgeryError> {
        if self.unread.is_some() {
            return Ok(None);
        }
        let before = self.body.as_deref().map(Vec::as_slice);
        let mut paths = self.secret_paths.as_ref().clone();
        paths.extend(after_paths.clone());
        let documents = before.into_iter().chain([after]);
        let documents: Vec<Option<StateDocument>> =
            documents.map(|body| document(body, &paths)).collect();
        let mask = masking(&documents);
        match summary(before, after) {
            Ok(summary) => Ok(Some(summary.masked(&paths, &mask))),
            Err(ReadResourcesError::Encrypted) => Ok(None),
            Err(source) => Err(SurgeryError::Resources {
                state: state.clone(),
                source,
            }),
        }
    }
}

fn document(body: &[u8], paths: &SecretPaths) -> Option<StateDocument> {
    let document = StateDocument::read(body).ok()?;
    Some(document.with_secret_paths(paths))
}

/// A mask for the sensitive values in these documents.
fn masking(documents: &[Option<StateDocument>]) -> Mask {
    let documents = documents.iter().flatten();
    let secrets: Vec<_> = documents
        .flat_map(StateDocument::sensitive_values)
        .collect();
    Mask::new(&secrets)
}

fn not_locked(state: &StateName, err: AcquireLockError) -> SurgeryError {
    let state = state.clone();
    match err {
        AcquireLockError::Held { holder, .. } => SurgeryError::Locked { state, holder },
        AcquireLockError::HeadMoved { .. } | AcquireLockError::Ended { .. } => {
            SurgeryError::Moved { state }
        }
        AcquireLockError::RunsOnly { .. } => SurgeryError::Refused {
            state,
            source: PushRefusal::RunsOnly,
        },
        AcquireLockError::Store { source, .. } => failed(&state, "lock", source),
    }
}

fn not_written(state: &StateName, err: AppendError) -> SurgeryError {
    let state = state.clone();
    match err {
        AppendError::Invalid { source, .. } => SurgeryError::Invalid { state, source },
        AppendError::Refused { source, .. } => SurgeryError::Refused { state, source },
        AppendError::Contended { .. } => SurgeryError::Moved { state },
        AppendError::Store { source, .. } => failed(&state, "write", source),
    }
}

fn listed(versions: &[i64]) -> String {
    let versions: Vec<String> = versions.iter().map(ToString::to_string).collect();
    versions.join(", ")
}

fn invalid(state: &StateName, source: InvalidState) -> SurgeryError {
    SurgeryError::Invalid {
        state: state.clone(),
        source,
    }
}

fn failed(state: &StateName, action: &'static str, source: StoreError) -> SurgeryError {
    SurgeryError::Store {
        state: state.clone(),
        action,
        source: Box::new(source),
    }
}

#[cfg(test)]
pub(crate) mod tests;
