//! Letting go of what is old: versions by age and count, refused pieces by age. Rows go first; bytes follow by
//! the sweeper.
//!
//! Not here: which versions may go (`model::retention`).

use std::collections::BTreeSet;

use jiff::Timestamp;
use model::retention::{RetentionPolicy, VersionAge, expired};
use model::state::StateName;

use crate::blobs::Blobs;
use crate::db::{Row, Tx};
use crate::segments::Place;
use crate::states::read_time;
use crate::{Store, StoreError};

/// A version that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovedVersion {
    pub state: StateName,
    pub version: i64,
}

impl Store {
    /// Removes the versions of all states that `policy` lets go of. Their bytes go when the sweeper comes.
    pub async fn retention_apply(
        &self,
        policy: &RetentionPolicy,
        now: Timestamp,
    ) -> Result<Vec<RemovedVersion>, StoreError> {
        let mut removed = Vec::new();
        for state in self.state_list().await? {
            let mut tx = self.db.begin_write().await?;
            let gone = tx.versions_expire(state.id, policy, now).await?;
            if gone.is_empty() {
                continue;
            }
            if let Blobs::Bucket(_) = &self.blobs {
                tx.blobs_release(gone.iter().map(|(_, place)| place.object.as_str()))
                    .await?;
            }
            tx.commit().await?;
            removed.extend(gone.into_iter().map(|(version, _)| RemovedVersion {
                state: state.name.clone(),
                version,
            }));
        }
        Ok(removed)
    }

    /// Keeps a version from retention until then.
    pub async fn state_version_pin(
        &self,
        state: &StateName,
        version: i64,
        until: Option<Timestamp>,
    ) -> Result<bool, StoreError> {
        const PIN: &str = "UPDATE state_version SET pinned_until = $4 WHERE version = $3 \
            AND state = (SELECT id FROM state WHERE project = $1 AND name = $2)";
        let mut args = crate::states::name_args(state).to_vec();
        args.extend([version.into(), until.map(Timestamp::as_microsecond).into()]);
        Ok(self.db.execute(PIN, &args).await? > 0)
    }

    /// Lets go of refused pieces from before `cutoff`; why they were refused stays on record. One that waits for a
    /// person's decision stays, and its time begins with that. Says how many.
    pub async fn refusal_expire(&self, cutoff: Timestamp) -> Result<usize, StoreError> {
        const EXPIRED: &str = "SELECT id, kept FROM refusal \
            WHERE kept IS NOT NULL AND COALESCE(decided_at, at) < $1 \
                AND (deed <> 'adopt' OR decision IS NOT NULL) ORDER BY id";
        const FORGET: &str = "UPDATE refusal SET kept = NULL WHERE id = $1";
        let mut tx = self.db.begin_write().await?;
        let rows = tx.fetch_all(EXPIRED, &[cutoff.into()]).await?;
        for row in &rows {
            tx.execute(FORGET, &[row.int(0)?.into()]).await?;
            tx.blob_condemn(row.text(1)?).await?;
        }
        tx.commit().await?;
        Ok(rows.len())
    }
}

impl Tx {
    async fn versions_expire(
        &mut self,
        state: i64,
        policy: &RetentionPolicy,
        now: Timestamp,
    ) -> Result<Vec<(i64, Place)>, StoreError> {
        const ALL: &str = "SELECT version, created_at, pinned_until, base, blob \
            FROM state_version WHERE state = $1 ORDER BY version";
        const DELETE: &str = "DELETE FROM state_version WHERE state = $1 AND version = $2";
        let rows = self.fetch_all(ALL, &[state.into()]).await?;
        let ages: Result<Vec<_>, _> = rows.iter().map(read_age).collect();
        let going: BTreeSet<i64> = expired(&ages?, policy, now).into_iter().collect();
        let mut gone = Vec::new();
        for row in &rows {
            let version = row.int(0)?;
            if going.contains(&version) {
                self.execute(DELETE, &[state.into(), version.into()])
                    .await?;
                gone.push((version, Place::parse(row.text(4)?)?));
            }
        }
        Ok(gone)
    }

    /// Condemns those objects that no version names any more.
    async fn blobs_release(
        &mut self,
        objects: impl Iterator<Item = &str>,
    ) -> Result<(), StoreError> {
        // A place begins with its object, and `@` and what follows it sort between these two.
        const NAMED: &str = "SELECT 1 FROM state_version WHERE blob >= $1 AND blob < $2 LIMIT 1";
        for object in objects.collect::<BTreeSet<_>>() {
            let range = [format!("{object}@").into(), format!("{object}A").into()];
            if self.fetch_optional(NAMED, &range).await?.is_none() {
                self.blob_condemn(object).await?;
            }
        }
        Ok(())
    }

    /// What the sweeper may remove as soon as it comes: it is as old as the world.
    async fn blob_condemn(&mut self, object: &str) -> Result<(), StoreError> {
        self.blob_let_go(object, Timestamp::UNIX_EPOCH).await
    }

    /// What the sweeper may remove when it is as long ago as an upload that came to nothing.
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

fn read_age(row: &Row) -> Result<VersionAge, StoreError> {
    Ok(VersionAge {
        version: row.int(0)?,
        created_at: read_time(row.int(1)?)?,
        pinned_until: row.opt_int(2)?.map(read_time).transpose()?,
        base: row.opt_int(3)?,
    })
}
