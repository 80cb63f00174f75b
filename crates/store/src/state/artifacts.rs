//! Artifacts, the files that stacks write: for each state one sealed piece with all of them, and a row that names it.
//! A new set only replaces the one that its writer saw.
//!
//! A set without files is stored, too: rebuilding the database must not find an older one.
//!
//! Not here: which files, and when (`control::runner`).

use jiff::Timestamp;
use model::base::error::{ErrorKind, Explain};
use model::base::ids::RunId;
use model::stage::artifact::ArtifactSet;
use model::state::StateName;

use crate::blob::Blobs;
use crate::crypto::UnsealError;
use crate::db::{Row, Tx};
use crate::db::{name_args, read_time};
use crate::key::data_keys::{KeyScope, Keys};
use crate::key::sealing::open_piece;
use crate::state::refusals::{pack, unpack};
use crate::{Store, StoreError, blocking};

mod rebuild;
#[cfg(test)]
mod tests;

pub(crate) use rebuild::newest;

const DIR: &str = "artifacts";
const PURPOSE: &str = "artifacts";

/// The set of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredArtifacts {
    pub state: StateName,
    /// The path of the sealed piece in the home; every set has its own.
    pub kept: String,
    pub files: u64,
    pub run: Option<RunId>,
    pub at: Timestamp,
}

#[derive(Debug, thiserror::Error)]
pub enum KeepArtifactsError {
    #[error("another run has stored artifacts of state `{state}` since")]
    Moved { state: StateName },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Explain for KeepArtifactsError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Store(source) => source.kind(),
            Self::Moved { .. } => ErrorKind::Refused,
        }
    }
}

macro_rules! artifacts_sql {
    ($rest:literal) => {
        concat!(
            "SELECT project, state, kept, files, run, at FROM artifact_set ",
            $rest
        )
    };
}

impl Store {
    /// Makes a set the current one if `seen` still is. Durable when this returns.
    pub async fn artifacts_keep(
        &self,
        state: &StateName,
        seen: Option<&str>,
        set: &ArtifactSet,
        run: Option<RunId>,
    ) -> Result<StoredArtifacts, KeepArtifactsError> {
        self.state_ensure(state).await?;
        let at = Timestamp::now();
        let kept = self.artifacts_write(state, set, at).await?;
        let new = StoredArtifacts {
            state: state.clone(),
            kept,
            files: set.len() as u64,
            run,
            at,
        };
        let mut tx = self.db.begin_write().await.map_err(StoreError::from)?;
        if !tx.artifacts_move(seen, &new).await? {
            return Err(KeepArtifactsError::Moved {
                state: state.clone(),
            });
        }
        if !tx.blob_intent_take(&new.kept).await? {
            return Err(StoreError::Interrupted.into()); // the sweeper was first
        }
        if let Some(seen) = seen {
            // Marked for removal now and removed a day later: a copy of the home in progress may still need it.
            tx.blob_let_go(seen, at).await?;
        }
        tx.commit().await.map_err(StoreError::from)?;
        Ok(new)
    }

    /// The set of a state, if any.
    pub async fn artifacts_get(
        &self,
        state: &StateName,
    ) -> Result<Option<StoredArtifacts>, StoreError> {
        let sql = artifacts_sql!("WHERE project = $1 AND state = $2");
        let row = self.db.fetch_optional(sql, &name_args(state)).await?;
        row.as_ref().map(StoredArtifacts::read).transpose()
    }

    /// The sets of all states.
    pub async fn artifacts_list(&self) -> Result<Vec<StoredArtifacts>, StoreError> {
        let sql = artifacts_sql!("ORDER BY project, state");
        let rows = self.db.fetch_all(sql, &[]).await?;
        rows.iter().map(StoredArtifacts::read).collect()
    }

    pub async fn artifacts_read(&self, kept: &StoredArtifacts) -> Result<ArtifactSet, StoreError> {
        let (keys, blobs) = (self.keys.clone(), self.blobs.clone());
        let (state, name) = (kept.state.clone(), kept.kept.clone());
        blocking(move || open(&keys, &blobs, &state, &name)).await
    }

    async fn artifacts_write(
        &self,
        state: &StateName,
        set: &ArtifactSet,
        at: Timestamp,
    ) -> Result<String, StoreError> {
        let scope = KeyScope::State(state.clone());
        let random = uuid::Uuid::new_v4().simple().to_string();
        let at = at.as_microsecond();
        let name = format!("{DIR}/{}/{at}-{}.piece", scope.dir(), &random[..8]);
        let bytes = set.to_bytes();
        let packed = blocking(move || pack(&bytes)).await?;
        let sealed = self.seal(scope, PURPOSE, packed).await?;
        let (blobs, own) = (self.blobs.clone(), name.clone());
        self.blob_intend(&name).await?;
        blocking(move || blobs.write_new(&own, &sealed)).await?;
        Ok(name)
    }
}

impl Tx {
    /// False if another set is current than the one that was seen.
    async fn artifacts_move(
        &mut self,
        seen: Option<&str>,
        new: &StoredArtifacts,
    ) -> Result<bool, StoreError> {
        const FIRST: &str = "INSERT INTO artifact_set (project, state, kept, files, run, at) \
            VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (project, state) DO NOTHING";
        const NEXT: &str = "UPDATE artifact_set SET kept = $3, files = $4, run = $5, at = $6 \
            WHERE project = $1 AND state = $2 AND kept = $7";
        let mut args = name_args(&new.state).to_vec();
        args.extend([
            new.kept.as_str().into(),
            i64::try_from(new.files).unwrap_or(i64::MAX).into(),
            new.run.into(),
            new.at.into(),
        ]);
        let moved = match seen {
            None => self.execute(FIRST, &args).await?,
            Some(seen) => {
                args.push(seen.into());
                self.execute(NEXT, &args).await?
            }
        };
        Ok(moved > 0)
    }
}

/// Opens a piece. Needs the key of its state, but no database.
pub(crate) fn open(
    keys: &Keys,
    blobs: &Blobs,
    state: &StateName,
    name: &str,
) -> Result<ArtifactSet, StoreError> {
    let scope = KeyScope::State(state.clone());
    let (key, sealed) = (keys.get(&scope)?, blobs.read(name)?);
    let damaged = |_| StoreError::Unseal {
        path: blobs.path(name),
        source: UnsealError::Content,
    };
    let packed = open_piece(&key, &scope, PURPOSE, sealed)?;
    ArtifactSet::from_bytes(&unpack(&packed)?).map_err(damaged)
}

impl StoredArtifacts {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            state: StateName::new(row.text(0)?, row.text(1)?),
            kept: row.text(2)?.to_owned(),
            files: u64::try_from(row.int(3)?).unwrap_or_default(),
            run: row.opt_int(4)?.map(RunId),
            at: read_time(row.int(5)?)?,
        })
    }
}
