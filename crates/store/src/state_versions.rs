//! Versions of a state: every accepted write, sealed in a file of its own, durable before the head
//! moves to it.
//!
//! Not here: which write may follow (`model::state::check_push`), asked before the file is written
//! and again in the transaction that moves the head.

use model::ids::RunId;
use model::state::{Contents, Mark, StateName, StateVersion};

use crate::db::Row;
use crate::states::{name_args, read_time};
use crate::{Store, StoreError, blocking};

mod adopt;
mod append;
mod blob;
mod copy;

pub use adopt::{AdoptError, Adopted};
pub use append::{AppendError, Appended, Writer};

/// A version and its file.
struct Stored {
    version: StateVersion,
    blob: String,
    blob_digest: Vec<u8>,
}

macro_rules! version_sql {
    ($rest:literal) => {
        concat!(
            "SELECT s.project, s.name, v.version, v.serial, v.lineage, v.content, v.size, \
             v.parent, v.contents, v.mark, v.run, v.created_at, v.blob, v.blob_digest \
             FROM state AS s JOIN state_version AS v ON v.state = s.id ",
            $rest
        )
    };
}

const HEAD: &str = version_sql!("WHERE s.project = $1 AND s.name = $2 AND v.version = s.head");
const ONE: &str = version_sql!("WHERE s.project = $1 AND s.name = $2 AND v.version = $3");

impl Store {
    /// The newest version, without its bytes.
    pub async fn state_head(&self, state: &StateName) -> Result<Option<StateVersion>, StoreError> {
        let row = self.db.fetch_optional(HEAD, &name_args(state)).await?;
        Ok(row
            .as_ref()
            .map(Stored::read)
            .transpose()?
            .map(|stored| stored.version))
    }

    /// Oldest first.
    pub async fn state_version_list(
        &self,
        state: &StateName,
    ) -> Result<Vec<StateVersion>, StoreError> {
        let sql = version_sql!("WHERE s.project = $1 AND s.name = $2 ORDER BY v.version");
        let rows = self.db.fetch_all(sql, &name_args(state)).await?;
        rows.iter()
            .map(|row| Stored::read(row).map(|stored| stored.version))
            .collect()
    }

    pub async fn state_version_get(
        &self,
        state: &StateName,
        version: i64,
    ) -> Result<Option<StateVersion>, StoreError> {
        Ok(self
            .stored(state, version)
            .await?
            .map(|stored| stored.version))
    }

    /// The bytes of a version, checked to be the ones that were accepted.
    pub async fn state_version_read(&self, version: &StateVersion) -> Result<Vec<u8>, StoreError> {
        let stored = self.stored(&version.state, version.version).await?;
        let stored = stored.ok_or_else(|| StoreError::Row {
            found: "nothing".to_owned(),
            expected: "a version of a state",
        })?;
        let (keys, disk) = (self.keys.clone(), self.disk.clone());
        blocking(move || blob::read(&keys, &disk, &stored)).await
    }

    async fn stored(&self, state: &StateName, version: i64) -> Result<Option<Stored>, StoreError> {
        let mut args = name_args(state).to_vec();
        args.push(version.into());
        let row = self.db.fetch_optional(ONE, &args).await?;
        row.as_ref().map(Stored::read).transpose()
    }
}

impl Stored {
    fn read(row: &Row) -> Result<Self, StoreError> {
        let contents = row.text(8)?;
        let contents = Contents::ALL
            .into_iter()
            .find(|known| known.as_str() == contents)
            .ok_or_else(|| unknown(contents, "a kind of contents"))?;
        let mark = row.opt_text(9)?;
        let mark = mark
            .map(|mark| {
                let known = Mark::ALL.into_iter().find(|known| known.as_str() == mark);
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
        };
        let (blob, blob_digest) = (row.text(12)?.to_owned(), row.bytes(13)?.to_owned());
        Ok(Self {
            version,
            blob,
            blob_digest,
        })
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
