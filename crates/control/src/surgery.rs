//! Changing a state by hand: an older version back, a file in, resources out. One door for all of them: a proposal
//! that shows what would change, and a deed that holds the lock, makes one version and opens a record with the
//! reason, or does nothing.
//!
//! Not here: what a person sees and says (`cli`), the rules a push must keep (`model::state::check_push`).

use jiff::Timestamp;
use model::break_glass::Act;
use model::ids::RunId;
use model::lock::LockInfo;
use model::masking::Mask;
use model::secret::Secret;
use model::state::hidden::shown_address;
use model::state::resources::Document;
use model::state::{
    Contents, ExpectedHead, HeldLock, InvalidState, Mark, PushRefusal, ReadResourcesError,
    RemoveError, StateFacts, StateName, StateVersion, Summary, as_written, remove, summary,
    with_identity,
};
use store::{
    AcquireLockError, AppendError, Appended, BreakGlassRecord, Decider, Decision, ManualWrite,
    RefusedRequest, StoreError,
};

use crate::Control;
use crate::hidden;
use crate::reasons::Reason;
use crate::states::ask;

mod target;

pub use target::{InvalidTarget, Target};

/// What would become the newest version, and how it differs from the one that is.
#[derive(Debug)]
pub struct Proposal {
    pub state: StateName,
    pub head: Option<StateVersion>,
    pub body: Vec<u8>,
    pub serial: u64,
    /// The older version whose content it is.
    pub older: Option<i64>,
    /// Nothing if the engine has encrypted one of them, or the newest cannot be read.
    pub summary: Option<Summary>,
    /// Why the newest version cannot be compared with this: it is damaged, and stays as it is.
    pub unread: Option<StoreError>,
    act: Act,
    mark: Option<Mark>,
    force: bool,
    detail: String,
    /// States kept aside that are decided by this.
    decides: Vec<RefusedRequest>,
}

impl Proposal {
    /// The lineages of both, if what would become the newest version is another state altogether.
    pub fn other_lineage(&self) -> Option<(String, String)> {
        let before = self.head.as_ref().map(|head| head.lineage.clone())?;
        let after = StateFacts::read(&self.body).ok()?.lineage;
        (!before.is_empty() && before != after).then_some((before, after))
    }
}

/// What was done.
#[derive(Debug)]
pub enum Done {
    Wrote(StateVersion),
    /// The newest version says the same already.
    Same(StateVersion),
}

#[derive(Debug, thiserror::Error)]
pub enum SurgeryError {
    #[error("there is no state `{state}`")]
    NoState { state: StateName },
    #[error("state `{state}` has no version {target}")]
    NoVersion { state: StateName, target: String },
    #[error("serial {serial} of state `{state}` is that of several versions: {}", listed(.versions))]
    SerialTwice {
        state: StateName,
        serial: u64,
        versions: Vec<i64>,
    },
    #[error("state `{state}` had no version on {} yet", .at.strftime("%Y-%m-%d %H:%M:%S UTC"))]
    NotYet { state: StateName, at: Timestamp },
    #[error("version {version} is the newest of state `{state}` already")]
    IsHead { state: StateName, version: i64 },
    #[error("run {run} left nothing aside for state `{state}`")]
    NothingKept { state: StateName, run: RunId },
    #[error("no refused write of state `{state}` is kept under number {number}")]
    NothingRefused { state: StateName, number: i64 },
    #[error("this cannot be a version of state `{state}`")]
    Invalid {
        state: StateName,
        source: InvalidState,
    },
    #[error("could not read what state `{state}` holds")]
    Resources {
        state: StateName,
        source: ReadResourcesError,
    },
    #[error("could not take anything out of state `{state}`")]
    Remove {
        state: StateName,
        source: RemoveError,
    },
    #[error("state `{state}` is locked by {}", .holder.info)]
    Locked {
        state: StateName,
        holder: Box<HeldLock>,
    },
    #[error("state `{state}` moved while you looked at it")]
    Moved { state: StateName },
    #[error("this may not follow the newest version of state `{state}`")]
    Refused {
        state: StateName,
        source: PushRefusal,
    },
    #[error("could not {deed} state `{state}`")]
    Store {
        state: StateName,
        deed: &'static str,
        source: Box<StoreError>,
    },
}

impl SurgeryError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Locked { state, holder } if holder.run.is_none() => Some(format!(
                "wait for it; if who holds it is gone (a command that was killed leaves its lock): `terrane lock break {state} --reason …`"
            )),
            Self::Locked { .. } => {
                Some("`terrane lock list` shows by whom, and whether it is alive".to_owned())
            }
            Self::Moved { .. } => Some("nothing was changed: look again".to_owned()),
            Self::Refused {
                source:
                    PushRefusal::SerialTaken { .. }
                    | PushRefusal::SerialBehind { .. }
                    | PushRefusal::SerialUsed { .. },
                ..
            } => Some("`--force` gives it the next serial".to_owned()),
            Self::Refused {
                source: PushRefusal::OtherLineage { .. },
                ..
            } => Some("if it really is to replace this state: `--force`".to_owned()),
            Self::Refused {
                source: PushRefusal::Copy,
                ..
            } => Some(
                "its engine changes it where it lives: `terrane exec STACK --reason … -- state rm …`"
                    .to_owned(),
            ),
            Self::Remove {
                source: RemoveError::Unknown { near, .. },
                ..
            } if !near.is_empty() => {
                let near: Vec<String> = near.iter().map(|one| format!("`{one}`")).collect();
                Some(format!("did you mean {}?", near.join(" or ")))
            }
            Self::Remove {
                source: RemoveError::Ambiguous { .. },
                state,
            } => Some(format!(
                "name one by its true address, which `terrane state pull {state}` shows, or take the whole resource out"
            )),
            Self::Remove {
                source: RemoveError::OldFormat { .. },
                ..
            } => Some(
                "an engine can, and writes the format of today: `terrane exec STACK --reason … -- state rm …`"
                    .to_owned(),
            ),
            Self::SerialTwice { versions, .. } => versions
                .first()
                .map(|version| format!("name one of them by its number: `--to {version}`")),
            Self::NoVersion { state, .. } | Self::NotYet { state, .. } => Some(format!(
                "`terrane state versions {state}` shows all that are kept"
            )),
            Self::NothingRefused { .. } => {
                Some("`terrane state verify` lists what is kept, with its number".to_owned())
            }
            Self::NoState { .. }
            | Self::IsHead { .. }
            | Self::NothingKept { .. }
            | Self::Invalid { .. }
            | Self::Resources { .. }
            | Self::Remove { .. }
            | Self::Refused { .. }
            | Self::Store { .. } => None,
        }
    }

    /// Whether a rule refused it, rather than something breaking.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Locked { .. } | Self::Moved { .. } | Self::Refused { .. } => true,
            Self::NoState { .. }
            | Self::NoVersion { .. }
            | Self::SerialTwice { .. }
            | Self::NotYet { .. }
            | Self::IsHead { .. }
            | Self::NothingKept { .. }
            | Self::NothingRefused { .. }
            | Self::Invalid { .. }
            | Self::Resources { .. }
            | Self::Remove { .. }
            | Self::Store { .. } => false,
        }
    }
}

/// The content of an older version, to be the newest again: rolled forward, never back.
pub async fn rollback(
    control: &Control,
    state: &StateName,
    target: Target,
) -> Result<Proposal, SurgeryError> {
    let now = Now::read(control, state).await?;
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
    // Without a head it was deleted, and comes back as what it was.
    let lineage = now.head.as_ref().map_or(&old.lineage, |head| &head.lineage);
    let next = next_serial(&versions, lineage).unwrap_or(1);
    let body = control.store.state_version_read(old).await;
    let body = body.map_err(|source| failed(state, "read", source))?;
    let encrypted = old.contents == Contents::Encrypted;
    let body = if encrypted {
        // Its serial stands inside, too, where nobody without the key can change it.
        body
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
    Ok(Proposal {
        older: Some(old.version),
        serial: if encrypted { old.serial } else { next },
        summary: now.compare(control, state, &body).await?,
        unread: now.unread,
        state: state.clone(),
        head: now.head,
        body,
        act: Act::StateRolledBack,
        mark: Some(Mark::RolledBack),
        force: encrypted,
        detail,
        decides: Vec::new(),
    })
}

/// A file that a person has, to be the newest version.
pub async fn push(
    control: &Control,
    state: &StateName,
    file: Vec<u8>,
    force: bool,
) -> Result<Proposal, SurgeryError> {
    let decides = control.store.kept_aside_list(state).await;
    let decides = decides.map_err(|source| failed(state, "read", source))?;
    propose_push(control, state, file, force, "a file", decides).await
}

/// What a run left aside, to be the newest version.
pub async fn push_kept(
    control: &Control,
    state: &StateName,
    run: RunId,
    force: bool,
) -> Result<Proposal, SurgeryError> {
    let store = &control.store;
    let read = |source| failed(state, "read", source);
    let left = store.kept_aside_list_run(run).await.map_err(read)?;
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
    let decides = store.kept_aside_list(state).await.map_err(read)?;
    let what = format!("what run {run} left aside");
    // It was kept because others wrote since: who decides for it knows that its serial is behind.
    let head = store.state_head(state).await.map_err(read)?;
    let lineage = StateFacts::read(&body).map(|facts| facts.lineage);
    let is_of_head = |head: &StateVersion| {
        let of_head = |lineage: &String| lineage.is_empty() || *lineage == head.lineage;
        lineage.as_ref().is_ok_and(of_head)
    };
    let force = force || head.as_ref().is_some_and(is_of_head);
    propose_push(control, state, body, force, &what, decides).await
}

/// A write that was refused and kept, to be the newest version.
pub async fn push_refused(
    control: &Control,
    state: &StateName,
    number: i64,
    force: bool,
) -> Result<Proposal, SurgeryError> {
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
    let decides = store.kept_aside_list(state).await.map_err(read)?;
    let what = format!("what was refused as number {number}");
    propose_push(control, state, body, force, &what, decides).await
}

/// The newest version without some of its resources. They are forgotten, not destroyed.
pub async fn take_out(
    control: &Control,
    state: &StateName,
    addresses: &[String],
) -> Result<Proposal, SurgeryError> {
    let now = Now::read(control, state).await?;
    let (head, head_body) = now.there(state)?;
    let compared = Some(head_body.as_slice());
    let mask = mask_of(control, state, &[compared]).await;
    let hidden = control.store.hidden_list(state, Some(0)).await;
    let hidden = hidden.map_err(|source| failed(state, "read", source))?;
    let shown = |address: &str| shown_address(address, &hidden, &mask);
    let versions = versions_of(control, state).await?;
    let serial = next_serial(&versions, &head.lineage).unwrap_or(head.serial + 1);
    let removal = as_written(&head_body, addresses, shown)
        .and_then(|addresses| remove(&head_body, &addresses, serial))
        .map_err(|source| SurgeryError::Remove {
            state: state.clone(),
            source: source.masked(&mask),
        })?;
    Ok(Proposal {
        summary: told(control, state, compared, &removal.body).await?,
        unread: None,
        serial,
        older: None,
        state: state.clone(),
        head: Some(head),
        body: removal.body,
        act: Act::StateEdited,
        mark: Some(Mark::Edited),
        force: false,
        detail: mask.mask_text(&format!("without {}", removal.removed.join(", "))),
        decides: Vec::new(),
    })
}

/// The lock under which a person changes a state.
pub(crate) fn lock_by_hand(reason: &Reason, now: Timestamp) -> LockInfo {
    LockInfo {
        id: uuid::Uuid::new_v4().to_string(),
        // The name under which a person's push is known to every client, and to the rules.
        operation: "state-push".to_owned(),
        info: reason.text.clone(),
        who: reason.actor.clone(),
        version: concat!("terrane ", env!("CARGO_PKG_VERSION")).to_owned(),
        created: now.to_string(),
        ..LockInfo::default()
    }
}

/// Carries a proposal out, if the state is still what it was when it was shown.
pub async fn carry_out(
    control: &Control,
    proposal: Proposal,
    reason: &Reason,
) -> Result<Done, SurgeryError> {
    let (state, store) = (&proposal.state, &control.store);
    let reason = &reason.kept(control, state).await;
    let info = lock_by_hand(reason, control.now());
    let head = proposal.head.as_ref().map(|head| head.version);
    let expected = ExpectedHead::Exactly(head);
    let lock = store.lock_acquire(state, &info, None, expected).await;
    lock.map_err(|err| not_locked(state, err))?;
    let by_hand = ManualWrite {
        lock_id: info.id.clone(),
        mark: proposal.mark,
        surgery: proposal.force,
        beyond: 0,
        record: BreakGlassRecord {
            act: proposal.act,
            actor: reason.actor.clone(),
            reason: reason.text.clone(),
            detail: proposal.detail,
        },
    };
    hidden::follow(store, state, &proposal.body).await;
    let appended = store.state_version_append_by_hand(state, by_hand, proposal.body);
    let appended = appended.await.map_err(|err| not_written(state, err));
    // Whatever came of it, nobody is to wait for a command that is over.
    let released = store.lock_release(state, &info.id).await;
    let done = match appended? {
        Appended::New(version) => Done::Wrote(version),
        Appended::Same(version) => Done::Same(version),
    };
    drop(released);
    let decider = Decider {
        actor: &reason.actor,
        reason: &reason.text,
    };
    // Who wrote nothing has decided nothing.
    if matches!(done, Done::Wrote(_)) && !proposal.decides.is_empty() {
        let decided = store.kept_aside_decide(&proposal.decides, Decision::Pushed, decider);
        let decided = decided.await;
        decided.map_err(|source| failed(state, "note the decision about", source))?;
    }
    Ok(done)
}

async fn propose_push(
    control: &Control,
    state: &StateName,
    file: Vec<u8>,
    force: bool,
    what: &str,
    decides: Vec<RefusedRequest>,
) -> Result<Proposal, SurgeryError> {
    let now = Now::read(control, state).await?;
    let facts = StateFacts::read(&file).map_err(|source| invalid(state, source))?;
    let (mut body, mut serial, mut mark) = (file, facts.serial, None);
    if force && facts.contents != Contents::Encrypted && now.body.as_ref() != Some(&body) {
        let lineage = match &now.head {
            // As an engine leaves what it could not deliver first.
            Some(head) if facts.lineage.is_empty() => &head.lineage,
            Some(_) | None => &facts.lineage,
        };
        let versions = versions_of(control, state).await?;
        let next = next_serial(&versions, lineage).unwrap_or(serial);
        if *lineage != facts.lineage || serial < next {
            serial = serial.max(next);
            let renumbered = with_identity(&body, serial, lineage);
            body = renumbered.map_err(|source| invalid(state, source))?;
            mark = Some(Mark::Forced);
        }
    }
    Ok(Proposal {
        summary: now.compare(control, state, &body).await?,
        detail: format!("{what}, serial {} as it came{}", facts.serial, now.over()),
        unread: now.unread,
        state: state.clone(),
        head: now.head,
        body,
        serial,
        older: None,
        act: Act::StatePushed,
        mark,
        force,
        decides,
    })
}

async fn versions_of(
    control: &Control,
    state: &StateName,
) -> Result<Vec<StateVersion>, SurgeryError> {
    let versions = control.store.state_version_list(state).await;
    versions.map_err(|source| failed(state, "read", source))
}

/// The first serial that no version of this lineage has had, as far as they are kept; nothing if there is none of it.
/// The newest need not have the highest: a client may have forced an older state in. No serial stands for two contents,
/// or an old plan would fit the wrong one.
fn next_serial(versions: &[StateVersion], lineage: &str) -> Option<u64> {
    let of_it = versions.iter().filter(|one| one.lineage == lineage);
    of_it.map(|one| one.serial + 1).max()
}

/// The newest version, if there is one, and its bytes, or why there are none.
struct Now {
    head: Option<StateVersion>,
    body: Option<Vec<u8>>,
    unread: Option<StoreError>,
}

impl Now {
    async fn read(control: &Control, state: &StateName) -> Result<Self, SurgeryError> {
        let read = |source| failed(state, "read", source);
        let head = control.store.state_head(state).await.map_err(read)?;
        let (body, unread) = match &head {
            None => (None, None),
            // Nobody is asked about what cannot be done here.
            Some(head) if head.is_copy() => {
                return Err(SurgeryError::Refused {
                    state: state.clone(),
                    source: PushRefusal::Copy,
                });
            }
            Some(head) => match control.store.state_version_read(head).await {
                Ok(body) => (Some(body), None),
                // A damaged one must not stop what is to get over it; all else may pass.
                Err(err @ StoreError::Unseal { .. }) => (None, Some(err)),
                Err(err) => return Err(read(err)),
            },
        };
        Ok(Self { head, body, unread })
    }

    fn there(self, state: &StateName) -> Result<(StateVersion, Vec<u8>), SurgeryError> {
        match (self.head.zip(self.body), self.unread) {
            (Some(there), _) => Ok(there),
            (None, Some(unread)) => Err(failed(state, "read", unread)),
            (None, None) => Err(SurgeryError::NoState {
                state: state.clone(),
            }),
        }
    }

    /// For the record.
    fn over(&self) -> &'static str {
        if self.unread.is_some() {
            ", over a newest version that cannot be read"
        } else {
            ""
        }
    }

    async fn compare(
        &self,
        control: &Control,
        state: &StateName,
        after: &[u8],
    ) -> Result<Option<Summary>, SurgeryError> {
        if self.unread.is_some() {
            return Ok(None);
        }
        told(control, state, self.body.as_deref(), after).await
    }
}

async fn told(
    control: &Control,
    state: &StateName,
    before: Option<&[u8]>,
    after: &[u8],
) -> Result<Option<Summary>, SurgeryError> {
    // Of whatever version.
    let hidden = control.store.hidden_list(state, Some(0)).await;
    let hidden = hidden.map_err(|source| failed(state, "read", source))?;
    let mask = mask_of(control, state, &[before, Some(after)]).await;
    match summary(before, after) {
        Ok(summary) => Ok(Some(summary.hiding(&hidden).masked(&mask))),
        Err(ReadResourcesError::Encrypted) => Ok(None),
        Err(source) => Err(SurgeryError::Resources {
            state: state.clone(),
            source,
        }),
    }
}

/// What is sensitive in these bodies, or was in any version.
async fn mask_of(control: &Control, state: &StateName, bodies: &[Option<&[u8]>]) -> Mask {
    let bodies = bodies.iter().flatten();
    let documents = bodies.filter_map(|body| Document::read(body).ok());
    let mut secrets: Vec<Secret> = documents
        .flat_map(|document| document.sensitive_values())
        .collect();
    secrets.extend(ask::secrets(control, state).await);
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

fn failed(state: &StateName, deed: &'static str, source: StoreError) -> SurgeryError {
    SurgeryError::Store {
        state: state.clone(),
        deed,
        source: Box::new(source),
    }
}

#[cfg(test)]
pub(crate) mod tests;
