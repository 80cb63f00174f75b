//! A write: decided, made durable, then made the head, all or nothing.

use std::sync::Arc;

use jiff::Timestamp;
use model::ids::RunId;
use model::state::{
    HeldLock, InvalidState, LockView, Mark, PushRefusal, PushVerdict, PushView, StateFacts,
    StateName, StateVersion, check_copy, check_push, check_push_over_copy,
};

use super::blob::{self, BlobHeader, NewBlob};
use super::{HEAD, Stored, unknown};
use crate::db::Tx;
use crate::refusals::NewRefusal;
use crate::sealing::hex;
use crate::states::{StateRow, name_args};
use crate::{Store, StoreError, blocking};

const LAST: &str = "SELECT COALESCE(MAX(version), 0) FROM state_version WHERE state = $1";

/// A writer without a lock may meet others; after so many it gives up.
const ATTEMPTS: usize = 16;

/// Who writes, and what it may do.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    /// The lock it says it holds.
    pub lock_id: Option<String>,
    pub run: Option<RunId>,
    /// Whether the run's sealed plan may leave the state without resources.
    pub may_empty: bool,
    /// Whether it may do what `state push -force` and a migration do.
    pub surgery: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Appended {
    New(StateVersion),
    /// The head has these bytes already: nothing was written.
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
    #[error("state `{state}` kept moving under this write")]
    Contended { state: StateName },
    #[error("could not store a version of state `{state}`")]
    Store {
        state: StateName,
        source: StoreError,
    },
}

/// What a write comes down to, whoever asked for it.
pub(super) struct Write<'a> {
    pub(super) state: &'a StateName,
    pub(super) writer: &'a Writer,
    /// The run the version is recorded under.
    pub(super) run: Option<RunId>,
    pub(super) mark: Option<Mark>,
    pub(super) body: Arc<Vec<u8>>,
}

/// Head, lock and highest version at one moment.
pub(super) struct Moment {
    row: StateRow,
    head: Option<Stored>,
    last: i64,
    /// Whether the lock that the writer names is known to have ended.
    lock_ended: bool,
}

impl Store {
    /// Makes `body` the newest version if it may follow the one that is there. Durable when this
    /// returns. What is refused is recorded with its reason, and kept.
    pub async fn state_version_append(
        &self,
        state: &StateName,
        writer: &Writer,
        body: Vec<u8>,
    ) -> Result<Appended, AppendError> {
        let body = Arc::new(body);
        let write = Write {
            state,
            writer,
            run: writer.run,
            mark: None,
            body: Arc::clone(&body),
        };
        let refused = match self.append(&write).await {
            Err(err @ (AppendError::Invalid { .. } | AppendError::Refused { .. })) => err,
            other => return other,
        };
        let reason = std::error::Error::source(&refused).map(ToString::to_string);
        drop(write);
        let record = NewRefusal {
            state,
            deed: "POST",
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

    pub(super) async fn append(&self, write: &Write<'_>) -> Result<Appended, AppendError> {
        let failed = |source| AppendError::Store {
            state: write.state.clone(),
            source,
        };
        let (keys, body) = (self.keys.clone(), Arc::clone(&write.body));
        let read = blocking(move || match StateFacts::read(&body) {
            Ok(facts) => Ok(Ok((facts, keys.keyed_digest("state", &body)?))),
            Err(invalid) => Ok(Err(invalid)),
        });
        let (facts, content) =
            read.await
                .map_err(failed)?
                .map_err(|source| AppendError::Invalid {
                    state: write.state.clone(),
                    source,
                })?;
        self.state_ensure(write.state).await.map_err(failed)?;
        for _ in 0..ATTEMPTS {
            let mut tx = self
                .db
                .begin_write()
                .await
                .map_err(|err| failed(err.into()))?;
            let seen = tx.moment(write).await.map_err(failed)?;
            drop(tx); // the file is written while others may write theirs
            let mark = match write.decide(&seen, &facts, &content) {
                PushVerdict::Accept { mark } => write.mark.or(mark),
                PushVerdict::Same => {
                    let head = seen.head.ok_or_else(|| failed(StoreError::Interrupted))?;
                    return Ok(Appended::Same(head.version));
                }
                PushVerdict::Refuse(source) => {
                    let holder = seen.row.lock.map(Box::new);
                    return Err(AppendError::Refused {
                        state: write.state.clone(),
                        source,
                        holder,
                    });
                }
            };
            let version = seen.next(write, &facts, &content, mark);
            let new = self
                .write_blob(&seen, &version, write)
                .await
                .map_err(failed)?;
            if self
                .move_head(&seen, &version, &new, write, &facts)
                .await
                .map_err(failed)?
            {
                return Ok(Appended::New(version));
            }
            let disk = self.disk.clone();
            blocking(move || {
                disk.forget(&new.blob);
                Ok(())
            })
            .await
            .map_err(failed)?;
        }
        Err(AppendError::Contended {
            state: write.state.clone(),
        })
    }

    pub(super) async fn write_blob(
        &self,
        seen: &Moment,
        version: &StateVersion,
        write: &Write<'_>,
    ) -> Result<NewBlob, StoreError> {
        let parent = seen.head.as_ref().map(|head| hex(&head.blob_digest));
        let header = BlobHeader::new(version, parent);
        let (keys, disk, body) = (
            self.keys.clone(),
            self.disk.clone(),
            Arc::clone(&write.body),
        );
        blocking(move || blob::write(&keys, &disk, header, &body)).await
    }

    /// The one place a head moves. Nothing happens if lock or head are not what was seen any more.
    pub(super) async fn move_head(
        &self,
        seen: &Moment,
        version: &StateVersion,
        new: &NewBlob,
        write: &Write<'_>,
        facts: &StateFacts,
    ) -> Result<bool, StoreError> {
        const INSERT: &str = "INSERT INTO state_version \
            (state, version, serial, lineage, content, size, parent, blob, blob_digest, contents, \
             mark, run, lock_id, created_at) \
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)";
        const MOVE: &str = "UPDATE state SET head = $2 \
            WHERE id = $1 AND head IS NOT DISTINCT FROM $3 \
                AND lock_id IS NOT DISTINCT FROM $4 AND lock_epoch = $5 \
            RETURNING head";
        let mut tx = self.db.begin_write().await?;
        let now = tx.moment(write).await?;
        let accepted = matches!(
            write.decide(&now, facts, &version.content),
            PushVerdict::Accept { mark } if write.mark.or(mark) == version.mark
        );
        if !accepted || now.last != seen.last || now.row.head != seen.row.head {
            return Ok(false);
        }
        let insert = [
            now.row.id.into(),
            version.version.into(),
            to_integer(version.serial)?.into(),
            version.lineage.as_str().into(),
            version.content.as_str().into(),
            to_integer(version.size)?.into(),
            version.parent.into(),
            new.blob.as_str().into(),
            new.digest.clone().into(),
            version.contents.as_str().into(),
            version.mark.map(Mark::as_str).into(),
            version.run.into(),
            write.writer.lock_id.as_deref().into(),
            version.created_at.into(),
        ];
        tx.execute(INSERT, &insert).await?;
        let moved = [
            now.row.id.into(),
            version.version.into(),
            seen.row.head.into(),
            write.writer.lock_id.as_deref().into(),
            seen.row.lock_epoch.0.into(),
        ];
        if tx.fetch_optional(MOVE, &moved).await?.is_none() {
            return Ok(false);
        }
        #[cfg(test)]
        self.disk.note(crate::blobs::Step::HeadMoved);
        tx.commit().await?;
        Ok(true)
    }
}

impl Tx {
    pub(super) async fn moment(&mut self, write: &Write<'_>) -> Result<Moment, StoreError> {
        let row = self
            .state_get(write.state)
            .await?
            .ok_or(StoreError::Interrupted)?;
        let head = self.fetch_optional(HEAD, &name_args(write.state)).await?;
        let head = head.as_ref().map(Stored::read).transpose()?;
        let last = self.fetch_optional(LAST, &[row.id.into()]).await?;
        let last = last
            .map_or(Ok(0), |row| row.int(0))
            .map_err(StoreError::Db)?;
        let lock_ended = match &write.writer.lock_id {
            Some(id) => self.lock_has_ended(row.id, id).await?,
            None => false,
        };
        Ok(Moment {
            row,
            head,
            last,
            lock_ended,
        })
    }
}

impl Write<'_> {
    fn decide(&self, seen: &Moment, facts: &StateFacts, content: &str) -> PushVerdict {
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
        if self.mark == Some(Mark::Copy) {
            check_copy(head.as_ref(), head_is_copy, lock.as_ref(), &push)
        } else if head_is_copy {
            check_push_over_copy(lock.as_ref(), &push)
        } else {
            check_push(head.as_ref(), lock.as_ref(), &push)
        }
    }
}

impl Moment {
    pub(super) fn next(
        &self,
        write: &Write<'_>,
        facts: &StateFacts,
        content: &str,
        mark: Option<Mark>,
    ) -> StateVersion {
        StateVersion {
            state: write.state.clone(),
            version: self.last + 1,
            serial: facts.serial,
            lineage: facts.lineage.clone(),
            content: content.to_owned(),
            size: write.body.len() as u64,
            parent: self.row.head,
            contents: facts.contents,
            mark,
            run: write.run,
            created_at: now_in_micros(),
        }
    }
}

/// As fine as the database keeps it, so that what is read equals what was written.
fn now_in_micros() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}

fn to_integer(number: u64) -> Result<i64, StoreError> {
    i64::try_from(number).map_err(|_| unknown(&number.to_string(), "a 63 bit number"))
}
