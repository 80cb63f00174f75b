//! Versions of a state: every accepted write, sealed in its own frame, durable before the head moves to it.
//!
//! Not here: which write may follow (`model::state::check_push`). This is decided before the frame is
//! written, and checked again in the transaction that moves the head.

use std::sync::Arc;

use model::base::actor::Actor;
use model::base::ids::RunId;
use model::state::secret_paths::SecretPaths;
use model::state::{Contents, StateName, StateVersion, VersionMark};
use tokio::sync::OwnedSemaphorePermit;

use crate::blob::Blobs;
use crate::blob::segments::FrameLocation;
use crate::crypto::Digest;
use crate::crypto::UnsealError;
use crate::db::Row;
use crate::db::{name_args, read_time};
use crate::key::data_keys::{KeyScope, Keys};
use crate::key::sealing::KeyedDigester;
use crate::offload::LARGE;
use crate::state::states::state_columns;
use crate::{Store, StoreError};

mod adopt;
mod append;
pub(crate) mod blob;
mod body_cache;
mod copy;
mod lock_cache;
mod manual;

pub use adopt::{AdoptError, Adopted};
pub(crate) use append::NewVersion;
pub use append::{AppendError, Appended, StateWriter};
pub(crate) use body_cache::BodyCache;
pub(crate) use lock_cache::{CachedLock, LockCache};
pub use manual::{BreakGlassRecord, ManualWrite};

/// A version and its frame.
#[derive(Clone)]
pub(crate) struct StoredVersion {
    pub(crate) version: StateVersion,
    pub(crate) place: FrameLocation,
    pub(crate) blob_digest: Box<Digest>,
    /// The version that it is a difference to.
    pub(crate) base: Option<i64>,
    /// How many differences lead to a complete one.
    pub(crate) depth: i64,
}

/// The content of a version: its bytes, and the paths in them that contain secrets. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Content {
    pub(crate) body: Arc<Vec<u8>>,
    pub(crate) secret_paths: Arc<SecretPaths>,
}

macro_rules! version_columns {
    () => {
        "s.project, s.name, v.version, v.serial, v.lineage, v.content, v.size, v.parent, \
         v.contents, v.mark, v.run, v.created_at, v.blob, v.blob_digest, v.actor, v.base, v.depth"
    };
}

macro_rules! version_sql {
    ($rest:literal) => {
        concat!(
            "SELECT ",
            version_columns!(),
            " FROM state AS s JOIN state_version AS v ON v.state = s.id ",
            $rest
        )
    };
}

const HEAD: &str = version_sql!("WHERE s.project = $1 AND s.name = $2 AND v.version = s.head");
const ONE: &str = version_sql!("WHERE s.project = $1 AND s.name = $2 AND v.version = $3");
const ALL: &str = version_sql!("WHERE s.project = $1 AND s.name = $2 ORDER BY v.version");

/// A state and, if it has one, its head.
const STATE_AND_HEAD: &str = concat!(
    "SELECT ",
    state_columns!(),
    ", ",
    version_columns!(),
    " FROM state AS s LEFT JOIN state_version AS v ON v.state = s.id AND v.version = s.head \
      WHERE s.project = $1 AND s.name = $2"
);

/// A version and all that it builds on, newest first.
const CHAIN: &str = concat!(
    "WITH RECURSIVE chain (state, version, base) AS ( \
       SELECT v.state, v.version, v.base FROM state AS s JOIN state_version AS v ON v.state = s.id \
         WHERE s.project = $1 AND s.name = $2 AND v.version = $3 \
       UNION ALL \
       SELECT v.state, v.version, v.base FROM chain AS c \
         JOIN state_version AS v ON v.state = c.state AND v.version = c.base) ",
    version_sql!(
        "JOIN chain AS c ON c.state = v.state AND c.version = v.version ORDER BY v.version DESC"
    )
);

impl Store {
    /// The newest version, without its bytes.
    pub async fn state_head(&self, state: &StateName) -> Result<Option<StateVersion>, StoreError> {
        self.check_current(state)?;
        let row = self.db.fetch_optional(HEAD, &name_args(state)).await?;
        let head = row.as_ref().map(StoredVersion::read).transpose()?;
        Ok(head.map(|head| head.version))
    }

    /// The newest version and its bytes, shared with other readers.
    pub async fn state_head_bytes(
        &self,
        state: &StateName,
    ) -> Result<Option<(StateVersion, Arc<Vec<u8>>)>, StoreError> {
        self.check_current(state)?;
        let row = self.db.fetch_optional(HEAD, &name_args(state)).await?;
        let head = row.as_ref().map(StoredVersion::read).transpose()?;
        let Some(stored) = head else {
            return Ok(None);
        };
        self.lock_cache.set_head(&stored);
        let body = self.content(&stored).await?.body;
        Ok(Some((stored.version, body)))
    }

    /// Oldest first.
    pub async fn state_version_list(
        &self,
        state: &StateName,
    ) -> Result<Vec<StateVersion>, StoreError> {
        self.check_current(state)?;
        let rows = self.db.fetch_all(ALL, &name_args(state)).await?;
        rows.iter()
            .map(|row| StoredVersion::read(row).map(|stored| stored.version))
            .collect()
    }

    pub async fn state_version_get(
        &self,
        state: &StateName,
        version: i64,
    ) -> Result<Option<StateVersion>, StoreError> {
        self.check_current(state)?;
        Ok(self
            .stored(state, version)
            .await?
            .map(|stored| stored.version))
    }

    /// The bytes of a version, verified against its digest.
    pub async fn state_version_read(&self, version: &StateVersion) -> Result<Vec<u8>, StoreError> {
        let bytes = self.state_version_bytes(version).await?;
        Ok(Arc::unwrap_or_clone(bytes))
    }

    /// The same, shared with other readers: nothing is copied.
    pub async fn state_version_bytes(
        &self,
        version: &StateVersion,
    ) -> Result<Arc<Vec<u8>>, StoreError> {
        let (body, _) = self.state_version_content(version).await?;
        Ok(body)
    }

    /// The bytes of a version, and the paths in them that contain secrets.
    pub async fn state_version_content(
        &self,
        version: &StateVersion,
    ) -> Result<(Arc<Vec<u8>>, Arc<SecretPaths>), StoreError> {
        let stored = self.stored(&version.state, version.version).await?;
        let stored = stored.ok_or_else(|| StoreError::Row {
            found: "nothing".to_owned(),
            expected: "a version of a state",
        })?;
        let content = self.content(&stored).await?;
        Ok((content.body, content.secret_paths))
    }

    async fn content(&self, stored: &StoredVersion) -> Result<Content, StoreError> {
        if let Some(content) = self.recent.get(&stored.blob_digest) {
            return Ok(content);
        }
        let _turn = self.turn(stored.version.size).await;
        self.content_in_turn(stored).await
    }

    /// For callers that hold the permit for a body of this size.
    async fn content_in_turn(&self, stored: &StoredVersion) -> Result<Content, StoreError> {
        if let Some(content) = self.recent.get(&stored.blob_digest) {
            return Ok(content);
        }
        let state = &stored.version.state;
        let mut chain = vec![stored.clone()];
        if stored.base.is_some() {
            let mut args = name_args(state).to_vec();
            args.push(stored.version.version.into());
            let rows = self.db.fetch_all(CHAIN, &args).await?;
            let rows: Result<Vec<StoredVersion>, _> =
                rows.iter().skip(1).map(StoredVersion::read).collect();
            chain.extend(rows?);
        }
        // Reuses a cached body.
        let known =
            |(at, link): (usize, &StoredVersion)| Some((at, self.recent.get(&link.blob_digest)?));
        let base = match chain.iter().enumerate().skip(1).find_map(known) {
            Some((at, content)) => {
                chain.truncate(at);
                Some(content.body)
            }
            None => None,
        };
        let (keys, blobs) = (self.keys.clone(), self.blobs.clone());
        let size = usize::try_from(stored.version.size).unwrap_or(usize::MAX);
        let read = move || {
            let newest = &chain[0];
            let key = keys.get(&KeyScope::State(newest.version.state.clone()))?;
            let content = blob::read_chain(&blobs, &key, &chain, base)?;
            newest.check_content(&keys, &blobs, &content.body)?;
            Ok(content)
        };
        let content = self.nearby(size, read).await?;
        self.recent.put(*stored.blob_digest, &content);
        Ok(content)
    }

    /// The digester by which bodies are compared; creates the project's key on first use.
    async fn state_digester(&self) -> Result<KeyedDigester, StoreError> {
        if self.keys.known(&KeyScope::Project).is_some() {
            return self.keys.digester("state");
        }
        self.keyed_digester("state").await
    }

    /// A permit: only a few large bodies are worked on at a time.
    async fn turn(&self, size: u64) -> Option<OwnedSemaphorePermit> {
        if size <= LARGE {
            return None;
        }
        self.large.clone().acquire_owned().await.ok()
    }

    /// Oldest first.
    pub(crate) async fn stored_all(
        &self,
        state: &StateName,
    ) -> Result<Vec<StoredVersion>, StoreError> {
        let rows = self.db.fetch_all(ALL, &name_args(state)).await?;
        rows.iter().map(StoredVersion::read).collect()
    }

    async fn stored(
        &self,
        state: &StateName,
        version: i64,
    ) -> Result<Option<StoredVersion>, StoreError> {
        let mut args = name_args(state).to_vec();
        args.push(version.into());
        let row = self.db.fetch_optional(ONE, &args).await?;
        row.as_ref().map(StoredVersion::read).transpose()
    }
}

impl StoredVersion {
    fn read(row: &Row) -> Result<Self, StoreError> {
        let contents = row.text(8)?;
        let contents = Contents::ALL
            .into_iter()
            .find(|known| known.as_str() == contents)
            .ok_or_else(|| unknown(contents, "a kind of contents"))?;
        let mark = row.opt_text(9)?;
        let mark = mark
            .map(|mark| {
                let known = VersionMark::ALL
                    .into_iter()
                    .find(|known| known.as_str() == mark);
                known.ok_or_else(|| unknown(mark, "a mark"))
            })
            .transpose()?;
        let version = StateVersion {
            state: StateName::new(row.text(0)?, row.text(1)?),
            version: row.int(2)?,
            serial: from_integer(row.int(3)?)?,
            lineage: row.text(4)?.to_owned(),
            content: row.text(5)?.to_owned(),
            size: from_integer(row.int(6)?)?,
            parent: row.opt_int(7)?,
            contents,
            mark,
            run: row.opt_int(10)?.map(RunId),
            created_at: read_time(row.int(11)?)?,
            actor: Actor::from_text(row.text(14)?),
        };
        let digest = row.bytes(13)?.try_into();
        Ok(Self {
            version,
            place: FrameLocation::parse(row.text(12)?)?,
            blob_digest: Box::new(digest.map_err(|_| unknown("other bytes", "a digest"))?),
            base: row.opt_int(15)?,
            depth: row.int(16)?,
        })
    }

    pub(crate) fn check_content(
        &self,
        keys: &Keys,
        blobs: &Blobs,
        body: &[u8],
    ) -> Result<(), StoreError> {
        if keys.keyed_digest("state", body)? == self.version.content {
            Ok(())
        } else {
            Err(self.damaged(blobs, UnsealError::Content))
        }
    }
}

fn unknown(found: &str, expected: &'static str) -> StoreError {
    StoreError::Row {
        found: found.to_owned(),
        expected,
    }
}

fn from_integer(number: i64) -> Result<u64, StoreError> {
    u64::try_from(number).map_err(|_| unknown(&number.to_string(), "a natural number"))
}

#[cfg(test)]
mod tests;
