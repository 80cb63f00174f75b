//! Sealed plan views, for people who approve on another machine that shares the home. In a local home, the file beside
//! the run is enough.
//!
//! Not here: sealing and reading them (`control::changeset::prepare`).

use model::base::ids::RunId;

use crate::{Store, StoreError};

/// Larger views stay on the machine that made them.
const LARGEST: usize = 16 * 1024 * 1024;

impl Store {
    /// Stores the view of a run's newest plan if other machines share the home.
    pub async fn plan_view_keep(&self, run: RunId, sealed: &[u8]) -> Result<(), StoreError> {
        const KEEP: &str = "INSERT INTO plan_view (run, sealed) VALUES ($1, $2) \
            ON CONFLICT (run) DO UPDATE SET sealed = EXCLUDED.sealed";
        const FORGET: &str = "DELETE FROM plan_view WHERE run = $1";
        if !self.db.is_shared() {
            return Ok(());
        }
        if sealed.len() > LARGEST {
            // An older view must not be taken for it.
            self.db.execute(FORGET, &[run.into()]).await?;
        } else {
            let args = [run.into(), sealed.to_vec().into()];
            self.db.execute(KEEP, &args).await?;
        }
        Ok(())
    }

    pub async fn plan_view_get(&self, run: RunId) -> Result<Option<Vec<u8>>, StoreError> {
        const SELECT: &str = "SELECT sealed FROM plan_view WHERE run = $1";
        let row = self.db.fetch_optional(SELECT, &[run.into()]).await?;
        Ok(row
            .map(|row| row.bytes(0).map(<[u8]>::to_vec))
            .transpose()?)
    }
}
