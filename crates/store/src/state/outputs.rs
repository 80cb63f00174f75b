//! Outputs of states that the client encrypts, as the engine reported them to a run. They are stored sealed; if the
//! database is lost, the next plan reads them again.
//!
//! Not here: asking the engine (`control::runner`).

use model::state::StateVersion;

use crate::db::name_args;
use crate::key::data_keys::KeyScope;
use crate::{Store, StoreError};

const PURPOSE: &str = "outputs";

impl Store {
    /// Stores the outputs of an encrypted version, in the form of a state, and forgets those of removed versions.
    pub async fn outputs_keep(
        &self,
        version: &StateVersion,
        outputs: Vec<u8>,
    ) -> Result<(), StoreError> {
        const FORGET: &str = "DELETE FROM opened_outputs WHERE project = $1 AND name = $2 \
            AND content NOT IN (SELECT v.content FROM state_version AS v JOIN state AS s ON s.id = v.state \
                WHERE s.project = $1 AND s.name = $2)";
        const KEEP: &str = "INSERT INTO opened_outputs (project, name, content, sealed) VALUES ($1, $2, $3, $4) \
            ON CONFLICT (project, name, content) DO UPDATE SET sealed = EXCLUDED.sealed";
        let scope = KeyScope::State(version.state.clone());
        let sealed = self.seal(scope, PURPOSE, outputs).await?;
        let mut args = name_args(&version.state).to_vec();
        let mut tx = self.db.begin_write().await?;
        tx.execute(FORGET, &args).await?;
        args.extend([version.content.as_str().into(), sealed.into()]);
        tx.execute(KEEP, &args).await?;
        tx.commit().await?;
        Ok(())
    }

    /// The stored outputs of a version, in the form of a state; `None` if no run has read them yet.
    pub async fn outputs_get(&self, version: &StateVersion) -> Result<Option<Vec<u8>>, StoreError> {
        const SELECT: &str = "SELECT sealed FROM opened_outputs \
            WHERE project = $1 AND name = $2 AND content = $3";
        let mut args = name_args(&version.state).to_vec();
        args.push(version.content.as_str().into());
        let Some(row) = self.db.fetch_optional(SELECT, &args).await? else {
            return Ok(None);
        };
        let sealed = row.bytes(0)?.to_vec();
        let scope = KeyScope::State(version.state.clone());
        self.unseal(scope, PURPOSE, sealed).await.map(Some)
    }
}
