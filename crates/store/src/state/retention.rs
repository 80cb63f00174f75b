//! Removes what is old: versions by age and count, refused bodies by age, count and size. Rows are removed first; the
//! sweeper removes the bytes later.
//!
//! Not here: which versions may go (`model::state::retention`).

use std::collections::BTreeSet;

use jiff::Timestamp;
use model::state::StateName;
use model::state::retention::{RetentionPolicy, VersionAge, expired, refused_that_stay};

use crate::blob::Blobs;
use crate::blob::segments::FrameLocation;
use crate::db::{Row, Tx};
use crate::db::{name_args, read_time};
use crate::{StateRow, Store, StoreError};

/// How many refusals of a state are kept.
const REASONS: i64 = 1000;

const AGES: &str = "SELECT version, created_at, pinned_until, base, blob \
    FROM state_version WHERE state = $1 ORDER BY version";

/// A removed version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovedVersion {
    pub state: StateName,
    pub version: i64,
}

impl Store {
    /// Removes the versions of a state that `policy` allows to be removed. The sweeper removes their bytes later.
    pub async fn retention_apply(
        &self,
        state: &StateRow,
        policy: &RetentionPolicy,
        now: Timestamp,
    ) -> Result<Vec<RemovedVersion>, StoreError> {
        // Most states have nothing to remove: this read blocks no writer.
        let rows = self.db.fetch_all(AGES, &[state.id.into()]).await?;
        if going(&rows, policy, now)?.is_empty() {
            return Ok(Vec::new());
        }
        let mut tx = self.db.begin_write().await?;
        let gone = tx.versions_expire(state.id, policy, now).await?;
        if gone.is_empty() {
            return Ok(Vec::new());
        }
        if let Blobs::Bucket(_) = &self.blobs {
            tx.blobs_release(gone.iter().map(|(_, place)| place.object.as_str()))
                .await?;
        }
        tx.commit().await?;
        let removed = gone.into_iter().map(|(version, _)| RemovedVersion {
            state: state.name.clone(),
            version,
        });
        Ok(removed.collect())
    }

    /// Protects a version from retention until then.
    pub async fn state_version_pin(
        &self,
        state: &StateName,
        version: i64,
        until: Option<Timestamp>,
    ) -> Result<bool, StoreError> {
        const PIN: &str = "UPDATE state_version SET pinned_until = $4 WHERE version = $3 \
            AND state = (SELECT id FROM state WHERE project = $1 AND name = $2)";
        let mut args = name_args(state).to_vec();
        args.extend([version.into(), until.map(Timestamp::as_microsecond).into()]);
        Ok(self.db.execute(PIN, &args).await? > 0)
    }

    /// Marks refused bodies from before `cutoff` for removal; the reasons stay. A body that waits for a decision
    /// stays, and its age counts from the decision. Returns how many.
    pub async fn refusal_expire(&self, cutoff: Timestamp) -> Result<usize, StoreError> {
        const EXPIRED: &str = "SELECT kept FROM refusal WHERE kept IS NOT NULL GROUP BY kept \
            HAVING MAX(COALESCE(decided_at, at)) < $1 \
                AND MAX(CASE WHEN deed = 'adopt' AND decision IS NULL THEN id END) IS NULL";
        let mut tx = self.db.begin_write().await?;
        let rows = tx.fetch_all(EXPIRED, &[cutoff.into()]).await?;
        for row in &rows {
            tx.refused_let_go(row.text(0)?, Timestamp::now()).await?;
        }
        tx.commit().await?;
        Ok(rows.len())
    }

    /// Removes the reasons of all but the newest refusals of each state, so that a client that keeps sending
    /// requests does not fill the disk. Refusals of a run, and quarantined states, stay.
    pub async fn refusals_forget(&self) -> Result<u64, StoreError> {
        const MANY: &str = "SELECT project, state FROM refusal GROUP BY project, state \
            HAVING COUNT(*) > $1";
        const OLDEST: &str = "SELECT id FROM refusal WHERE project = $1 AND state = $2 \
            ORDER BY id DESC LIMIT 1 OFFSET $3";
        const FORGET: &str = "DELETE FROM refusal WHERE project = $1 AND state = $2 AND id <= $3 \
            AND kept IS NULL AND run IS NULL";
        let mut forgotten = 0;
        for row in self.db.fetch_all(MANY, &[REASONS.into()]).await? {
            let state = StateName::new(row.text(0)?, row.text(1)?);
            let mut args = name_args(&state).to_vec();
            args.push(REASONS.into());
            if let Some(oldest) = self.db.fetch_optional(OLDEST, &args).await? {
                args[2] = oldest.int(0)?.into();
                forgotten += self.db.execute(FORGET, &args).await?;
            }
        }
        Ok(forgotten)
    }
}

impl Tx {
    async fn versions_expire(
        &mut self,
        state: i64,
        policy: &RetentionPolicy,
        now: Timestamp,
    ) -> Result<Vec<(i64, FrameLocation)>, StoreError> {
        const DELETE: &str = "DELETE FROM state_version WHERE state = $1 AND version = $2";
        let rows = self.fetch_all(AGES, &[state.into()]).await?;
        let going = going(&rows, policy, now)?;
        let mut gone = Vec::new();
        for row in &rows {
            let version = row.int(0)?;
            if going.contains(&version) {
                self.execute(DELETE, &[state.into(), version.into()])
                    .await?;
                gone.push((version, FrameLocation::parse(row.text(4)?)?));
            }
        }
        Ok(gone)
    }

    /// Marks objects that no version names any more for removal.
    async fn blobs_release(
        &mut self,
        objects: impl Iterator<Item = &str>,
    ) -> Result<(), StoreError> {
        // A location begins with its object's name, and `@` and what follows sort between these two.
        const NAMED: &str = "SELECT 1 FROM state_version WHERE blob >= $1 AND blob < $2 LIMIT 1";
        for object in objects.collect::<BTreeSet<_>>() {
            let range = [format!("{object}@").into(), format!("{object}A").into()];
            if self.fetch_optional(NAMED, &range).await?.is_none() {
                self.blob_condemn(object).await?;
            }
        }
        Ok(())
    }

    /// Marks refused bodies of a state beyond the limit for removal. Those that wait for a decision do not count.
    pub(crate) async fn refusals_bound(
        &mut self,
        state: &StateName,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        const KEPT: &str = "SELECT kept, MAX(stored) FROM refusal \
            WHERE project = $1 AND state = $2 AND kept IS NOT NULL \
            GROUP BY kept HAVING MAX(CASE WHEN deed = 'adopt' AND decision IS NULL THEN id END) IS NULL \
            ORDER BY MAX(id) DESC";
        let rows = self.fetch_all(KEPT, &name_args(state)).await?;
        let sizes: Result<Vec<u64>, StoreError> = rows
            .iter()
            .map(|row| Ok(row.opt_int(1)?.unwrap_or(0).unsigned_abs()))
            .collect();
        let stay = refused_that_stay(&sizes?);
        for row in rows.iter().skip(stay) {
            self.refused_let_go(row.text(0)?, now).await?;
        }
        Ok(())
    }

    async fn refused_let_go(&mut self, kept: &str, now: Timestamp) -> Result<(), StoreError> {
        const FORGET: &str = "UPDATE refusal SET kept = NULL, let_go = $2 WHERE kept = $1";
        self.execute(FORGET, &[kept.into(), now.into()]).await?;
        self.blob_condemn(kept).await
    }

    /// Lets the sweeper remove an object at once.
    async fn blob_condemn(&mut self, object: &str) -> Result<(), StoreError> {
        self.blob_let_go(object, Timestamp::UNIX_EPOCH).await
    }

    /// Lets the sweeper remove an object as it removes an unfinished upload.
    pub(crate) async fn blob_let_go(
        &mut self,
        object: &str,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        const LET_GO: &str = "INSERT INTO blob_intent (object, at) VALUES ($1, $2) \
            ON CONFLICT (object) DO NOTHING";
        self.execute(LET_GO, &[object.into(), at.into()]).await?;
        Ok(())
    }
}

fn going(
    rows: &[Row],
    policy: &RetentionPolicy,
    now: Timestamp,
) -> Result<BTreeSet<i64>, StoreError> {
    let ages: Result<Vec<_>, _> = rows.iter().map(read_age).collect();
    Ok(expired(&ages?, policy, now).into_iter().collect())
}

fn read_age(row: &Row) -> Result<VersionAge, StoreError> {
    Ok(VersionAge {
        version: row.int(0)?,
        created_at: read_time(row.int(1)?)?,
        pinned_until: row.opt_int(2)?.map(read_time).transpose()?,
        base: row.opt_int(3)?,
    })
}
