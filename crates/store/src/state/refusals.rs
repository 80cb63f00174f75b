//! Refused requests and their reasons. Engines only show a status code, so the reason is stored here, and a refused
//! state as well: even a mistake can be recovered. Equal bodies are stored once.
//!
//! Not here: how many are kept, and for how long (`retention`).

use jiff::Timestamp;
use model::base::ids::RunId;
use model::state::{RefusedRequest, StateName};

use crate::blob::delta::{compress, decompress};
use crate::blob::files::file_error;
use crate::crypto::UnsealError;
use crate::db::{Row, Tx, Value};
use crate::db::{name_args, read_time};
use crate::key::data_keys::KeyScope;
use crate::{Store, StoreError, blocking};

pub(crate) const DIR: &str = "refused";
pub(crate) const PURPOSE: &str = "refused state";

/// A refusal to be recorded.
#[derive(Clone, Debug)]
pub struct NewRefusal<'a> {
    pub state: &'a StateName,
    /// What was requested: `LOCK`, `POST`, `adopt`, …
    pub method: &'a str,
    pub reason: String,
    pub run: Option<RunId>,
    pub lock_id: Option<&'a str>,
    pub body: Option<Vec<u8>>,
}

/// A stored body whose row is about to follow.
struct RefusedBody {
    name: String,
    content: String,
    stored: i64,
}

macro_rules! refusal_sql {
    ($rest:literal) => {
        concat!(
            "SELECT id, project, state, deed, reason, run, lock_id, kept, at, let_go FROM refusal ",
            $rest
        )
    };
}

mod decisions;

pub use decisions::{Decider, Decision};

impl Store {
    /// Records a refusal; a body is durable before its row.
    pub async fn refusal_record(
        &self,
        refused: NewRefusal<'_>,
    ) -> Result<RefusedRequest, StoreError> {
        const INSERT: &str = "INSERT INTO refusal \
            (project, state, deed, reason, run, lock_id, kept, at, content, stored) \
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) \
            RETURNING id, project, state, deed, reason, run, lock_id, kept, at, let_go";
        let piece = match refused.body {
            None => None,
            Some(body) => Some(
                self.refusal_keep(refused.state, refused.method, body)
                    .await?,
            ),
        };
        let now = Timestamp::now();
        let mut args: Vec<Value> = name_args(refused.state).to_vec();
        args.extend([
            refused.method.into(),
            refused.reason.into(),
            refused.run.into(),
            refused.lock_id.into(),
            piece.as_ref().map(|piece| piece.name.clone()).into(),
            now.into(),
            piece.as_ref().map(|piece| piece.content.clone()).into(),
            piece.as_ref().map(|piece| piece.stored).into(),
        ]);
        let mut tx = self.db.begin_write().await?;
        if let Some(piece) = &piece {
            // A body that was just marked for removal is used again, unless the sweeper was first.
            let is_named = tx.refusal_names(&piece.name).await?;
            if !is_named && !tx.blob_intent_take(&piece.name).await? {
                return Err(StoreError::Interrupted);
            }
        }
        let row = tx
            .fetch_optional(INSERT, &args)
            .await?
            .ok_or(StoreError::Interrupted)?;
        if piece.is_some() {
            tx.refusals_bound(refused.state, now).await?;
        }
        tx.commit().await?;
        if piece.is_some() {
            // What cannot be removed now is removed with the next one, or by the sweeper.
            drop(self.refused_sweep().await);
        }
        read_refusal(&row)
    }

    /// Newest last.
    pub async fn refusal_list(&self, state: &StateName) -> Result<Vec<RefusedRequest>, StoreError> {
        let sql = refusal_sql!("WHERE project = $1 AND state = $2 ORDER BY id");
        let rows = self.db.fetch_all(sql, &name_args(state)).await?;
        rows.iter().map(read_refusal).collect()
    }

    /// Of all states, newest last.
    pub async fn refusal_list_all(&self) -> Result<Vec<RefusedRequest>, StoreError> {
        let rows = self.db.fetch_all(refusal_sql!("ORDER BY id"), &[]).await?;
        rows.iter().map(read_refusal).collect()
    }

    /// Newest last.
    pub async fn refusal_list_run(&self, run: RunId) -> Result<Vec<RefusedRequest>, StoreError> {
        let sql = refusal_sql!("WHERE run = $1 ORDER BY id");
        let rows = self.db.fetch_all(sql, &[run.into()]).await?;
        rows.iter().map(read_refusal).collect()
    }

    /// Those whose bodies still exist, newest last.
    pub async fn refusal_list_kept(&self) -> Result<Vec<RefusedRequest>, StoreError> {
        let sql = refusal_sql!("WHERE kept IS NOT NULL ORDER BY id");
        let rows = self.db.fetch_all(sql, &[]).await?;
        rows.iter().map(read_refusal).collect()
    }

    /// The states of those whose bodies were marked for removal, one entry each.
    pub(crate) async fn refusal_list_let_go(&self) -> Result<Vec<StateName>, StoreError> {
        const SQL: &str = "SELECT project, state FROM refusal WHERE let_go IS NOT NULL";
        let rows = self.db.fetch_all(SQL, &[]).await?;
        rows.iter()
            .map(|row| Ok(StateName::new(row.text(0)?, row.text(1)?)))
            .collect()
    }

    pub async fn refusal_get(&self, id: i64) -> Result<Option<RefusedRequest>, StoreError> {
        let sql = refusal_sql!("WHERE id = $1");
        let row = self.db.fetch_optional(sql, &[id.into()]).await?;
        row.as_ref().map(read_refusal).transpose()
    }

    /// The refused body, if it was stored.
    pub async fn refusal_body(
        &self,
        refusal: &RefusedRequest,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(kept) = refusal.kept.clone() else {
            return Ok(None);
        };
        let blobs = self.blobs.clone();
        let sealed = blocking(move || blobs.read(&kept)).await?;
        let scope = KeyScope::State(refusal.state.clone());
        let packed = self.unseal(scope, PURPOSE, sealed).await?;
        blocking(move || unpack(&packed)).await.map(Some)
    }

    /// Stores a body unless the state has an equal one. One that waits for a decision gets its own.
    async fn refusal_keep(
        &self,
        state: &StateName,
        method: &str,
        body: Vec<u8>,
    ) -> Result<RefusedBody, StoreError> {
        const EQUAL: &str = "SELECT kept, stored FROM refusal WHERE project = $1 AND state = $2 \
            AND content = $3 AND kept IS NOT NULL AND stored IS NOT NULL AND deed <> $4 LIMIT 1";
        let digester = self.keyed_digester(PURPOSE).await?;
        let (content, packed) =
            blocking(move || Ok((digester.digest(&body), pack(&body)?))).await?;
        if method != decisions::ADOPT {
            let mut args = name_args(state).to_vec();
            args.extend([content.as_str().into(), decisions::ADOPT.into()]);
            if let Some(row) = self.db.fetch_optional(EQUAL, &args).await? {
                return Ok(RefusedBody {
                    name: row.text(0)?.to_owned(),
                    stored: row.int(1)?,
                    content,
                });
            }
        }
        let scope = KeyScope::State(state.clone());
        let at = Timestamp::now().as_microsecond();
        let random = uuid::Uuid::new_v4().simple().to_string();
        let name = format!("{DIR}/{}/{at}-{}.piece", scope.dir(), &random[..8]);
        let sealed = self.seal(scope, PURPOSE, packed).await?;
        let stored = i64::try_from(sealed.len()).unwrap_or(i64::MAX);
        let (blobs, own) = (self.blobs.clone(), name.clone());
        self.blob_intend(&name).await?;
        blocking(move || blobs.write_new(&own, &sealed)).await?;
        Ok(RefusedBody {
            name,
            content,
            stored,
        })
    }
}

impl Tx {
    async fn refusal_names(&mut self, kept: &str) -> Result<bool, StoreError> {
        const NAMED: &str = "SELECT 1 FROM refusal WHERE kept = $1 LIMIT 1";
        Ok(self.fetch_optional(NAMED, &[kept.into()]).await?.is_some())
    }
}

/// Begins with its size: a refused body may be anything, and its size is stored nowhere else.
pub(crate) fn pack(body: &[u8]) -> Result<Vec<u8>, StoreError> {
    let mut packed = (body.len() as u64).to_le_bytes().to_vec();
    let failed = |source| file_error("compress a piece for", DIR.into(), source);
    packed.extend(compress(body, None).map_err(failed)?);
    Ok(packed)
}

pub(crate) fn unpack(packed: &[u8]) -> Result<Vec<u8>, StoreError> {
    let unpacked = || {
        let (size, rest) = packed.split_first_chunk::<8>()?;
        let size = usize::try_from(u64::from_le_bytes(*size)).ok()?;
        decompress(rest, None, size)
    };
    unpacked().ok_or_else(|| StoreError::Unseal {
        path: DIR.into(),
        source: UnsealError::Content,
    })
}

fn read_refusal(row: &Row) -> Result<RefusedRequest, StoreError> {
    Ok(RefusedRequest {
        id: row.int(0)?,
        state: StateName::new(row.text(1)?, row.text(2)?),
        method: row.text(3)?.to_owned(),
        reason: row.text(4)?.to_owned(),
        run: row.opt_int(5)?.map(RunId),
        lock_id: row.opt_text(6)?.map(str::to_owned),
        kept: row.opt_text(7)?.map(str::to_owned),
        at: read_time(row.int(8)?)?,
        let_go: row.opt_int(9)?.map(read_time).transpose()?,
    })
}

#[cfg(test)]
mod tests;
