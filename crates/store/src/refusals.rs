//! What was refused, and why. Engines show a status code and nothing else, so the reason is kept
//! here, and a refused state too: even a mistake can be recovered.

use jiff::Timestamp;
use model::ids::RunId;
use model::state::StateName;

use crate::blobs::file_error;
use crate::db::{Row, Value};
use crate::delta::{compress, decompress};
use crate::keys::Scope;
use crate::sealing::UnsealError;
use crate::states::{name_args, read_time};
use crate::{Store, StoreError, blocking};

pub(crate) const DIR: &str = "refused";
pub(crate) const PURPOSE: &str = "refused state";

/// What is to be remembered about a refusal.
#[derive(Clone, Debug)]
pub struct NewRefusal<'a> {
    pub state: &'a StateName,
    /// What was asked for: `LOCK`, `POST`, `adopt`, …
    pub deed: &'a str,
    pub reason: String,
    pub run: Option<RunId>,
    pub lock_id: Option<&'a str>,
    pub body: Option<Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub id: i64,
    pub state: StateName,
    pub deed: String,
    pub reason: String,
    pub run: Option<RunId>,
    pub lock_id: Option<String>,
    /// Where the refused bytes are, sealed, in the home.
    pub kept: Option<String>,
    pub at: Timestamp,
}

macro_rules! refusal_sql {
    ($rest:literal) => {
        concat!(
            "SELECT id, project, state, deed, reason, run, lock_id, kept, at FROM refusal ",
            $rest
        )
    };
}

mod decisions;

pub use decisions::{Decider, Decision};

impl Store {
    /// Remembers a refusal; a body is durable before its row.
    pub async fn refusal_record(&self, refused: NewRefusal<'_>) -> Result<Refusal, StoreError> {
        const INSERT: &str = "INSERT INTO refusal \
            (project, state, deed, reason, run, lock_id, kept, at) \
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
            RETURNING id, project, state, deed, reason, run, lock_id, kept, at";
        let kept = match refused.body {
            None => None,
            Some(body) => Some(self.refusal_keep(refused.state, body).await?),
        };
        let kept_as = kept.clone();
        let mut args: Vec<Value> = name_args(refused.state).to_vec();
        args.extend([
            refused.deed.into(),
            refused.reason.into(),
            refused.run.into(),
            refused.lock_id.into(),
            kept.into(),
            Timestamp::now().into(),
        ]);
        let mut tx = self.db.begin_write().await?;
        let row = tx
            .fetch_optional(INSERT, &args)
            .await?
            .ok_or(StoreError::Interrupted)?;
        if let Some(kept) = &kept_as
            && !tx.blob_intent_take(kept).await?
        {
            return Err(StoreError::Interrupted);
        }
        tx.commit().await?;
        Refusal::read(&row)
    }

    /// Newest last.
    pub async fn refusal_list(&self, state: &StateName) -> Result<Vec<Refusal>, StoreError> {
        let sql = refusal_sql!("WHERE project = $1 AND state = $2 ORDER BY id");
        let rows = self.db.fetch_all(sql, &name_args(state)).await?;
        rows.iter().map(Refusal::read).collect()
    }

    /// Of all states, newest last.
    pub async fn refusal_list_all(&self) -> Result<Vec<Refusal>, StoreError> {
        let rows = self.db.fetch_all(refusal_sql!("ORDER BY id"), &[]).await?;
        rows.iter().map(Refusal::read).collect()
    }

    /// Newest last.
    pub async fn refusal_list_run(&self, run: RunId) -> Result<Vec<Refusal>, StoreError> {
        let sql = refusal_sql!("WHERE run = $1 ORDER BY id");
        let rows = self.db.fetch_all(sql, &[run.into()]).await?;
        rows.iter().map(Refusal::read).collect()
    }

    /// Those whose bytes are still there, newest last.
    pub async fn refusal_list_kept(&self) -> Result<Vec<Refusal>, StoreError> {
        let sql = refusal_sql!("WHERE kept IS NOT NULL ORDER BY id");
        let rows = self.db.fetch_all(sql, &[]).await?;
        rows.iter().map(Refusal::read).collect()
    }

    pub async fn refusal_get(&self, id: i64) -> Result<Option<Refusal>, StoreError> {
        let sql = refusal_sql!("WHERE id = $1");
        let row = self.db.fetch_optional(sql, &[id.into()]).await?;
        row.as_ref().map(Refusal::read).transpose()
    }

    /// The bytes that were refused, if they were kept.
    pub async fn refusal_body(&self, refusal: &Refusal) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(kept) = refusal.kept.clone() else {
            return Ok(None);
        };
        let blobs = self.blobs.clone();
        let sealed = blocking(move || blobs.read(&kept)).await?;
        let scope = Scope::State(refusal.state.clone());
        let packed = self.unseal(scope, PURPOSE, sealed).await?;
        blocking(move || unpack(&packed)).await.map(Some)
    }

    async fn refusal_keep(&self, state: &StateName, body: Vec<u8>) -> Result<String, StoreError> {
        let scope = Scope::State(state.clone());
        let at = Timestamp::now().as_microsecond();
        let random = uuid::Uuid::new_v4().simple().to_string();
        let name = format!("{DIR}/{}/{at}-{}.piece", scope.dir(), &random[..8]);
        let packed = blocking(move || pack(&body)).await?;
        let sealed = self.seal(scope, PURPOSE, packed).await?;
        let (blobs, own) = (self.blobs.clone(), name.clone());
        self.blob_intend(&name).await?;
        blocking(move || blobs.write_new(&own, &sealed)).await?;
        Ok(name)
    }
}

/// Its size first: what is refused may be anything, and nobody says elsewhere how long it was.
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

impl Refusal {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.int(0)?,
            state: StateName::new(row.text(1)?, row.text(2)?),
            deed: row.text(3)?.to_owned(),
            reason: row.text(4)?.to_owned(),
            run: row.opt_int(5)?.map(RunId),
            lock_id: row.opt_text(6)?.map(str::to_owned),
            kept: row.opt_text(7)?.map(str::to_owned),
            at: read_time(row.int(8)?)?,
        })
    }
}
