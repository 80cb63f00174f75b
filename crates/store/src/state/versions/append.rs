//! A write: decided, encoded, made durable, then made the head, all or nothing.
//!
//! No transaction is open while a body is encoded or its frame is synced: the decision is checked again in the
//! transaction that moves the head.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use model::base::actor::Actor;
use model::base::error::{ErrorKind, Explain};
use model::base::ids::RunId;
use model::state::break_glass::BreakGlassAction;
use model::state::lock::LockEpoch;
use model::state::resources::StateDocument;
use model::state::secret_paths::SecretPaths;
use model::state::{
    Contents, HeldLock, InvalidState, LockView, PushRefusal, PushVerdict, PushView, StateFacts,
    StateName, StateVersion, VersionMark, check_copy, check_push, check_push_over_copy,
};

use super::blob::{self, DeltaBase, NewBlob, may_build_on};
use super::manual::BreakGlassRecord;
use super::{CachedLock, Content, HEAD, STATE_AND_HEAD, StoredVersion, unknown};
use crate::access::break_glass::NewBreakGlass;
use crate::blob::Blobs;
use crate::blob::segments::FrameLocation;
use crate::blob::segments::Staged;
use crate::crypto::Digest;
use crate::crypto::hex;
use crate::db::name_args;
use crate::db::{Row, Tx};
use crate::key::data_keys::KeyScope;
use crate::state::refusals::NewRefusal;
use crate::state::states::StateRow;
use crate::{Store, StoreError, try_offload};

const PAST: &str = "SELECT MAX(version), lineage, MAX(serial) FROM state_version \
    WHERE state = $1 GROUP BY lineage";

/// How long a state that lost its resources, and the version before it, are kept at least.
const EMPTIED_PIN: SignedDuration = SignedDuration::from_hours(90 * 24);

/// How often a writer without a lock tries again after concurrent writes.
const ATTEMPTS: usize = 16;

/// The writer and its permissions.
#[derive(Clone, Debug, Default)]
pub struct StateWriter {
    /// The lock that it claims to hold.
    pub lock_id: Option<String>,
    /// The run that it writes for; the same run took the lock.
    pub run: Option<RunId>,
    /// Whether the run's sealed plan may leave the state without resources.
    pub may_empty: bool,
    /// Whether it may do what `state push -force` and a migration do.
    pub surgery: bool,
    /// Whether it is refused where only runs write: true for a client of a server.
    pub outsider: bool,
    /// The actor; by default, the one that took the lock.
    pub actor: Option<Actor>,
    /// Versions up to this one were acknowledged and are lost: the next one gets a higher number.
    pub beyond: i64,
    /// The paths of the writer's secrets in the body. The version also inherits the paths of its parent. None
    /// if the body came from elsewhere: then the version has no secret paths.
    pub secret_paths: Option<SecretPaths>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Appended {
    New(StateVersion),
    /// The head already has these bytes: nothing was written.
    Same(StateVersion),
}

#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    #[error("this cannot be a version of state `{state}`")]
    Invalid {
        state: StateName,
        source: InvalidState,
    },
    #[error("a write to state `{state}` was refused")]
    Refused {
        state: StateName,
        source: PushRefusal,
        holder: Option<Box<HeldLock>>,
    },
    #[error("cannot write state `{state}`: other writers changed it at each attempt")]
    Contended { state: StateName },
    #[error("could not store a version of state `{state}`")]
    Store {
        state: StateName,
        source: StoreError,
    },
}

impl Explain for AppendError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Store { source, .. } => source.kind(),
            Self::Invalid { .. } | Self::Refused { .. } | Self::Contended { .. } => {
                ErrorKind::Refused
            }
        }
    }
}

/// A write from any kind of writer.
#[derive(Clone)]
pub(super) struct StateWrite {
    pub(super) state: StateName,
    pub(super) writer: StateWriter,
    /// The run that the version is recorded under.
    pub(super) run: Option<RunId>,
    pub(super) mark: Option<VersionMark>,
    /// The break-glass record that opens with the version, if a person makes it.
    pub(super) record: Option<BreakGlassRecord>,
    pub(super) body: Arc<Vec<u8>>,
}

/// The head, the lock and the highest version, read together.
pub(super) struct HeadSnapshot {
    row: StateRow,
    head: Option<StoredVersion>,
    last: i64,
    /// The highest serial of each lineage, for a deleted state.
    used: BTreeMap<String, u64>,
    /// Whether the writer's lock is known to have ended.
    lock_ended: bool,
}

/// A write that was decided and encoded, ready to be stored.
pub(super) struct EncodedWrite {
    pub(super) write: StateWrite,
    state: i64,
    /// What the decision was based on.
    head: Option<i64>,
    lock_epoch: LockEpoch,
    version: StateVersion,
    /// What to record if it did not follow the head and was allowed anyway.
    exception: Option<String>,
    content: Content,
    blob: NewBlob,
}

impl Store {
    /// Makes `body` the newest version if it may follow the head. Durable when this returns. A refused write is
    /// recorded with its reason, and stored.
    pub async fn state_version_append(
        &self,
        state: &StateName,
        writer: &StateWriter,
        body: impl Into<Arc<Vec<u8>>>,
    ) -> Result<Appended, AppendError> {
        let body = body.into();
        let write = StateWrite {
            state: state.clone(),
            writer: writer.clone(),
            run: writer.run,
            mark: None,
            record: None,
            body: Arc::clone(&body),
        };
        let refused = match self.append(write).await {
            Err(err @ (AppendError::Invalid { .. } | AppendError::Refused { .. })) => err,
            other => return other,
        };
        let reason = std::error::Error::source(&refused).map(ToString::to_string);
        let record = NewRefusal {
            state,
            method: "POST",
            reason: reason.unwrap_or_default(),
            run: writer.run,
            lock_id: writer.lock_id.as_deref(),
            body: Some(Arc::unwrap_or_clone(body)),
        };
        self.refusal_record(record)
            .await
            .map_err(|source| AppendError::Store {
                state: state.clone(),
                source,
            })?;
        Err(refused)
    }

    pub(super) async fn append(&self, mut write: StateWrite) -> Result<Appended, AppendError> {
        let state = write.state.clone();
        let failed = |source| AppendError::Store {
            state: state.clone(),
            source,
        };
        let digester = self.state_digester().await.map_err(failed)?;
        let body = Arc::clone(&write.body);
        let read = try_offload(body.len() as u64, move || {
            Ok(StateFacts::read(&body).map(|facts| (facts, digester.digest(&body))))
        });
        let (facts, content) =
            read.await
                .map_err(failed)?
                .map_err(|source| AppendError::Invalid {
                    state: state.clone(),
                    source,
                })?;
        for _ in 0..ATTEMPTS {
            let mut seen = self.look(&write).await.map_err(failed)?;
            let mut verdict = write.decide(&seen, &facts, &content);
            if !matches!(verdict, PushVerdict::Accept { .. }) {
                // A refusal must be based on one consistent snapshot.
                let mut tx = self
                    .db
                    .begin_write()
                    .await
                    .map_err(|err| failed(err.into()))?;
                seen = tx.head_snapshot(&write).await.map_err(failed)?;
                verdict = write.decide(&seen, &facts, &content);
            }
            let mark = match verdict {
                PushVerdict::Accept { mark } => write.mark.or(mark),
                // Same content, but newer acknowledged versions were lost: write it again under a higher number.
                PushVerdict::Same if write.writer.beyond > seen.last => write.mark,
                PushVerdict::Same => {
                    let head = seen.head.ok_or_else(|| failed(StoreError::Interrupted))?;
                    return Ok(Appended::Same(head.version));
                }
                PushVerdict::Refuse(source) => {
                    let holder = seen.row.lock.map(Box::new);
                    return Err(AppendError::Refused {
                        state,
                        source,
                        holder,
                    });
                }
            };
            let before = seen.head.as_ref().map(|head| *head.blob_digest);
            let version = seen.next(&write, &facts, &content, mark);
            let ready = self.encode(write, seen, version).await.map_err(failed)?;
            let ready = Arc::new(ready);
            let moved = self.commit(&ready).await.map_err(failed)?;
            self.lock_cache.forget_head(&state);
            if moved {
                if let Some(before) = before {
                    self.recent.forget(&before);
                }
                self.recent.put(ready.blob.frame.digest, &ready.content);
                return Ok(Appended::New(ready.version.clone()));
            }
            write = ready.write.clone();
        }
        Err(AppendError::Contended { state })
    }

    /// Compresses and seals, on another thread if it takes long.
    pub(super) async fn encode(
        &self,
        write: StateWrite,
        seen: HeadSnapshot,
        version: StateVersion,
    ) -> Result<EncodedWrite, StoreError> {
        let key = self.data_key(&KeyScope::State(write.state.clone())).await?;
        let head_size = seen.head.as_ref().map_or(0, |head| head.version.size);
        let size = version.size.max(head_size);
        // One permit for both bodies: a waiting writer holds only its own.
        let _turn = self.turn(size).await;
        // A parent that cannot be read must not stop the next version: it is then whole, and inherits nothing.
        let inherits = write.writer.secret_paths.is_some();
        let parent = match &seen.head {
            Some(head) if inherits || may_build_on(head.depth, size) => {
                self.content_in_turn(head).await.ok()
            }
            _ => None,
        };
        let base = seen.head.as_ref().zip(parent.as_ref());
        let base = base.filter(|(head, _)| may_build_on(head.depth, size));
        let base = base.map(|(head, content)| DeltaBase {
            version: head.version.version,
            depth: head.depth,
            body: Arc::clone(&content.body),
        });
        let parent_digest = seen.head.as_ref().map(|head| hex(&head.blob_digest[..]));
        let (body, encoded) = (Arc::clone(&write.body), version.clone());
        let found = write.writer.secret_paths.clone();
        let encode = move || {
            let secret_paths = found.map(|found| with_inherited(found, parent.as_ref(), &body));
            let content = Content {
                body,
                secret_paths: Arc::new(secret_paths.unwrap_or_default()),
            };
            let blob = blob::encode(&key, encoded, parent_digest, &content, base)?;
            Ok((content, blob))
        };
        let (content, blob) = try_offload(size, encode).await?;
        let exception = exception(&write, seen.head.as_ref(), &version);
        Ok(EncodedWrite {
            exception,
            write,
            state: seen.row.id,
            head: seen.head.as_ref().map(|head| head.version.version),
            lock_epoch: seen.row.lock_epoch,
            version,
            content,
            blob,
        })
    }

    /// Makes the frame durable and moves the head, in a commit that other writers may share. Returns false and changes
    /// nothing if lock or head have changed. Durable when this returns.
    pub(super) async fn commit(&self, ready: &Arc<EncodedWrite>) -> Result<bool, StoreError> {
        let staged = match self.blob_stage_ahead(&ready.blob.frame).await {
            Err(err) if err.is_taken() => {
                // An answer of the bucket was lost, or another database used this name: try other names.
                self.upload_intents.forget().await;
                return Ok(false);
            }
            staged => staged?,
        };
        let (blobs, one) = (self.blobs.clone(), Arc::clone(ready));
        let moved = self.db.write(move |tx| {
            Box::pin(async move { tx.version_store(&one, &blobs, staged.as_ref()).await })
        });
        let moved = moved.await;
        if let Err(StoreError::Interrupted) = moved {
            self.upload_intents.forget().await;
        }
        let moved = moved?;
        if moved
            && let Some(key) = self.keys.known(&KeyScope::State(ready.write.state.clone()))
            && let Ok(marker) = blob::marker(&key, &ready.version, &ready.blob.frame.digest)
        {
            self.blobs.mark(marker);
        }
        Ok(moved)
    }

    /// Reads without a transaction; the statement that moves the head checks that nothing changed.
    async fn look(&self, write: &StateWrite) -> Result<HeadSnapshot, StoreError> {
        self.check_current(&write.state)?;
        if let Some(head_snapshot) = self.look_at_hint(write) {
            return Ok(head_snapshot);
        }
        let args = name_args(&write.state);
        let found = self.db.fetch_optional(STATE_AND_HEAD, &args).await?;
        let (row, head) = match found {
            Some(row) => {
                let (state, head) = row.split_at(StateRow::COLUMNS);
                let state = StateRow::read(&state)?;
                let head = state.head.map(|_| StoredVersion::read(&head)).transpose()?;
                (state, head)
            }
            // A new state has no head.
            None => (self.state_ensure(&write.state).await?, None),
        };
        // The head is the highest version, unless the state was deleted.
        let (last, used) = if let Some(head) = &head {
            (head.version.version, BTreeMap::new())
        } else {
            let past = self.db.fetch_all(PAST, &[row.id.into()]).await?;
            read_past(&past)?
        };
        Ok(HeadSnapshot {
            head,
            last,
            used,
            row,
            lock_ended: false,
        })
    }
}

impl Store {
    /// The same from what this process saw under the writer's lock.
    fn look_at_hint(&self, write: &StateWrite) -> Option<HeadSnapshot> {
        let id = write.writer.lock_id.as_deref()?;
        let CachedLock { state, lock, head } = self.lock_cache.get(&write.state, id)?;
        let head = head?;
        let last = head.version.version;
        let row = StateRow {
            id: state,
            name: write.state.clone(),
            head: Some(last),
            lock_epoch: lock.epoch,
            lock: Some(lock),
            deleted_at: None,
            // The lock was granted, so the writer may write.
            runs_only: false,
        };
        Some(HeadSnapshot {
            head: Some(head),
            last,
            used: BTreeMap::new(),
            row,
            lock_ended: false,
        })
    }
}

impl Tx {
    pub(super) async fn head_snapshot(
        &mut self,
        write: &StateWrite,
    ) -> Result<HeadSnapshot, StoreError> {
        let row = self
            .state_get(&write.state)
            .await?
            .ok_or(StoreError::Interrupted)?;
        let head = self.fetch_optional(HEAD, &name_args(&write.state)).await?;
        let past = self.fetch_all(PAST, &[row.id.into()]).await?;
        let (last, used) = read_past(&past)?;
        let holder = row.lock.as_ref().map(|lock| &lock.info.id);
        let lock_ended = match &write.writer.lock_id {
            Some(id) if holder != Some(id) => self.lock_was_taken(row.id, id).await?,
            _ => false,
        };
        Ok(HeadSnapshot {
            head: head.as_ref().map(StoredVersion::read).transpose()?,
            last,
            used,
            row,
            lock_ended,
        })
    }

    /// The only place where a head moves. `staged` is the frame's location if it is already durable.
    async fn version_store(
        &mut self,
        ready: &EncodedWrite,
        blobs: &Blobs,
        staged: Option<&Staged>,
    ) -> Result<bool, StoreError> {
        const MOVE: &str = "UPDATE state SET head = $2 \
            WHERE id = $1 AND head IS NOT DISTINCT FROM $3 \
                AND lock_id IS NOT DISTINCT FROM $4 AND lock_epoch = $5 \
                AND (runs_only = 0 OR $6 = 0) AND lock_run IS NOT DISTINCT FROM $7 \
            RETURNING head";
        const PIN: &str = "UPDATE state_version SET pinned_until = $3 \
            WHERE state = $1 AND version = $2 AND COALESCE(pinned_until, 0) < $3";
        let (write, version, blob) = (&ready.write, &ready.version, &ready.blob);
        // The decision is based on this head and this lock; if either has changed, decide again.
        let moved = [
            ready.state.into(),
            version.version.into(),
            ready.head.into(),
            write.writer.lock_id.as_deref().into(),
            ready.lock_epoch.0.into(),
            write.writer.outsider.into(),
            write.writer.run.into(),
        ];
        if self.fetch_optional(MOVE, &moved).await?.is_none() {
            return Ok(false);
        }
        // Returning an error rolls the move back; returning false would not.
        let place = self.frame_place(blobs, &blob.frame, staged).await?;
        let place = place.ok_or(StoreError::Interrupted)?;
        let pinned = pinned_until(version);
        let row = NewVersion {
            state: ready.state,
            version,
            place: &place,
            digest: &blob.frame.digest,
            lock_id: write.writer.lock_id.as_deref(),
            base: blob.base,
            depth: blob.depth,
        };
        self.version_insert(&row).await?;
        if let (Some(until), Some(parent)) = (pinned, version.parent) {
            let args = [ready.state.into(), parent.into(), until.into()];
            self.execute(PIN, &args).await?;
        }
        if let Some(record) = &write.record {
            let opened = NewBreakGlass {
                act: record.act,
                state: &version.state,
                actor: &record.actor,
                reason: Some(&record.reason),
                detail: format!("version {}: {}", version.version, record.detail),
            };
            self.break_glass_open(&opened).await?;
        }
        if let Some(detail) = &ready.exception {
            let opened = NewBreakGlass {
                act: BreakGlassAction::StatePushed,
                state: &version.state,
                actor: &version.actor,
                reason: None,
                detail: detail.clone(),
            };
            self.break_glass_open(&opened).await?;
        }
        Ok(true)
    }
}

/// A version and its frame, as stored in a row.
pub(crate) struct NewVersion<'a> {
    pub(crate) state: i64,
    pub(crate) version: &'a StateVersion,
    pub(crate) place: &'a FrameLocation,
    pub(crate) digest: &'a Digest,
    pub(crate) lock_id: Option<&'a str>,
    pub(crate) base: Option<i64>,
    pub(crate) depth: i64,
}

impl Tx {
    pub(crate) async fn version_insert(&mut self, row: &NewVersion<'_>) -> Result<(), StoreError> {
        const INSERT: &str = "INSERT INTO state_version \
            (state, version, serial, lineage, content, size, parent, blob, blob_digest, contents, \
             mark, run, lock_id, created_at, actor, pinned_until, base, depth) \
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)";
        let version = row.version;
        let insert = [
            row.state.into(),
            version.version.into(),
            to_integer(version.serial)?.into(),
            version.lineage.as_str().into(),
            version.content.as_str().into(),
            to_integer(version.size)?.into(),
            version.parent.into(),
            row.place.to_string().into(),
            row.digest.to_vec().into(),
            version.contents.as_str().into(),
            version.mark.map(VersionMark::as_str).into(),
            version.run.into(),
            row.lock_id.into(),
            version.created_at.into(),
            version.actor.to_text().into(),
            pinned_until(version).into(),
            row.base.into(),
            row.depth.into(),
        ];
        self.execute(INSERT, &insert).await?;
        Ok(())
    }
}

impl StateWrite {
    fn decide(&self, seen: &HeadSnapshot, facts: &StateFacts, content: &str) -> PushVerdict {
        if seen.row.runs_only && self.writer.outsider {
            return PushVerdict::Refuse(PushRefusal::RunsOnly);
        }
        let head = seen.head.as_ref().map(|head| head.version.view());
        let lock = seen.row.lock.as_ref().map(|lock| LockView {
            id: &lock.info.id,
            operation: &lock.info.operation,
            run: lock.run,
        });
        let push = PushView {
            serial: facts.serial,
            lineage: &facts.lineage,
            content,
            contents: facts.contents,
            lock_id: self.writer.lock_id.as_deref(),
            lock_ended: seen.lock_ended,
            run: self.writer.run,
            may_empty: self.writer.may_empty,
            surgery: self.writer.surgery,
        };
        let head_is_copy = seen
            .head
            .as_ref()
            .is_some_and(|head| head.version.is_copy());
        if self.mark == Some(VersionMark::Copy) {
            check_copy(head.as_ref(), head_is_copy, lock.as_ref(), &push)
        } else if head_is_copy {
            check_push_over_copy(lock.as_ref(), &push)
        } else {
            match check_push(head.as_ref(), lock.as_ref(), &push) {
                PushVerdict::Accept { .. } if seen.was_used(facts) => {
                    let (serial, last) = (facts.serial, seen.used[&facts.lineage]);
                    PushVerdict::Refuse(PushRefusal::SerialUsed { serial, last })
                }
                verdict => verdict,
            }
        }
    }
}

impl HeadSnapshot {
    pub(super) fn next(
        &self,
        write: &StateWrite,
        facts: &StateFacts,
        content: &str,
        mark: Option<VersionMark>,
    ) -> StateVersion {
        StateVersion {
            state: write.state.clone(),
            version: self.last.max(write.writer.beyond) + 1,
            serial: facts.serial,
            lineage: facts.lineage.clone(),
            content: content.to_owned(),
            size: write.body.len() as u64,
            parent: self.head.as_ref().map(|head| head.version.version),
            contents: facts.contents,
            mark,
            run: write.run,
            created_at: now_in_micros(),
            actor: self.actor(write),
        }
    }
}

impl HeadSnapshot {
    /// A deleted state may come back, but no serial may have two contents: an old plan would match the wrong one. An
    /// encrypted state contains its serial, so it cannot be changed.
    fn was_used(&self, facts: &StateFacts) -> bool {
        let last = self.used.get(&facts.lineage);
        self.head.is_none()
            && facts.contents != Contents::Encrypted
            && last.is_some_and(|last| facts.serial <= *last)
    }

    fn actor(&self, write: &StateWrite) -> Actor {
        let holder = self.row.lock.as_ref();
        let holder = holder.map(|lock| Actor::named(&lock.info.who));
        let actor = write.writer.actor.clone();
        actor.or(holder).unwrap_or_default()
    }
}

/// The paths that were found, and those that the body inherits from its parent.
fn with_inherited(mut found: SecretPaths, parent: Option<&Content>, body: &[u8]) -> SecretPaths {
    let Some(parent) = parent.filter(|parent| !found.is_superset(&parent.secret_paths)) else {
        return found;
    };
    if let (Ok(before), Ok(after)) = (StateDocument::read(&parent.body), StateDocument::read(body))
    {
        found.extend(parent.secret_paths.inherited(&before, &after));
    }
    found
}

/// A state that lost its resources without a plan is kept for a while, regardless of the retention policy.
fn pinned_until(version: &StateVersion) -> Option<i64> {
    let is_emptied = match version.mark {
        Some(VersionMark::Emptied) => true,
        // A version that a person made has its own mark.
        Some(VersionMark::Forced | VersionMark::RolledBack | VersionMark::Edited) => {
            !version.contents.may_hold_resources()
        }
        Some(VersionMark::Adopted | VersionMark::Copy) | None => false,
    };
    let until = is_emptied.then(|| version.created_at.checked_add(EMPTIED_PIN).ok());
    until.flatten().map(Timestamp::as_microsecond)
}

/// What to record of a client's write that bypassed the rules; other writers record it themselves.
fn exception(
    write: &StateWrite,
    head: Option<&StoredVersion>,
    version: &StateVersion,
) -> Option<String> {
    let parent = &head?.version;
    let follows = if parent.lineage == version.lineage || parent.lineage.is_empty() {
        version.serial > parent.serial
    } else {
        parent.contents == Contents::Nothing
    };
    let is_exception = write.writer.surgery && write.writer.outsider && !follows;
    is_exception.then(|| {
        format!(
            "version {} (serial {}) over version {} (serial {})",
            version.version, version.serial, parent.version, parent.serial
        )
    })
}

/// The highest version, and the highest serial of each lineage.
fn read_past(rows: &[Row]) -> Result<(i64, BTreeMap<String, u64>), StoreError> {
    let (mut last, mut used) = (0, BTreeMap::new());
    for row in rows {
        last = last.max(row.int(0)?);
        let serial = u64::try_from(row.int(2)?).unwrap_or_default();
        used.insert(row.text(1)?.to_owned(), serial);
    }
    Ok((last, used))
}

/// With the precision of the database, so that the value read equals the value written.
fn now_in_micros() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}

fn to_integer(number: u64) -> Result<i64, StoreError> {
    i64::try_from(number).map_err(|_| unknown(&number.to_string(), "a 63 bit number"))
}
