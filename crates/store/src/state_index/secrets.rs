//! What was sensitive in any version of a state. A secret that was changed may still stand in another text: whoever shows
//! the state has to know it, and would else read all versions for that.
//!
//! The values are sealed with the state's own key, as its versions are.

use model::secret::Secret;
use model::state::{StateName, StateVersion};

use crate::keys::Scope;
use crate::states::name_args;
use crate::{Store, StoreError};

impl Store {
    /// Every value that was sensitive in a version that was read.
    pub async fn state_index_secrets(&self, state: &StateName) -> Result<Vec<Secret>, StoreError> {
        const SELECT: &str = "SELECT h.version, h.sealed FROM state_index_secret AS h \
            JOIN state_index AS i ON i.state = h.state JOIN state AS s ON s.id = h.state \
            WHERE s.project = $1 AND s.name = $2 AND h.version <= i.version";
        let mut found = Vec::new();
        for row in self.db.fetch_all(SELECT, &name_args(state)).await? {
            let (version, sealed) = (row.int(0)?, row.bytes(1)?.to_vec());
            let scope = Scope::State(state.clone());
            let plain = self.unseal(scope, &purpose(version), sealed).await?;
            let values: Vec<Secret> =
                serde_json::from_slice(&plain).map_err(|_| StoreError::Row {
                    found: format!("what was sealed for version {version}"),
                    expected: "a list of values",
                })?;
            found.extend(values);
        }
        Ok(found)
    }

    /// Keeps what is sensitive in a version and in none before it. It counts when the version does.
    pub async fn state_index_secrets_add(
        &self,
        version: &StateVersion,
        secrets: &[Secret],
    ) -> Result<(), StoreError> {
        const UPSERT: &str = "INSERT INTO state_index_secret (state, version, sealed) \
            SELECT id, $3, $4 FROM state WHERE project = $1 AND name = $2 \
            ON CONFLICT (state, version) DO UPDATE SET sealed = EXCLUDED.sealed";
        if secrets.is_empty() {
            return Ok(());
        }
        let values: Vec<&str> = secrets.iter().map(Secret::expose).collect();
        let plain = serde_json::to_vec(&values).unwrap_or_default();
        let scope = Scope::State(version.state.clone());
        let sealed = self.seal(scope, &purpose(version.version), plain).await?;
        let mut args = name_args(&version.state).to_vec();
        args.extend([version.version.into(), sealed.into()]);
        self.db.execute(UPSERT, &args).await?;
        Ok(())
    }
}

fn purpose(version: i64) -> String {
    format!("what version {version} brought that is sensitive")
}

#[cfg(test)]
mod tests {
    use model::state::history::{Holdings, Step};

    use super::*;
    use crate::Appended;
    use crate::testing::{TestHome, append, body, network};

    #[tokio::test]
    async fn what_was_sensitive_is_known_when_its_version_is_read() {
        let home = TestHome::new();
        let (store, state) = (home.open().await, network());
        let appended = append(&store, state.clone(), body(1)).await.unwrap();
        let (Appended::New(version) | Appended::Same(version)) = appended;
        assert_eq!(store.state_index_begin(&state, "1").await.unwrap(), 0);
        let secrets = [Secret::new("first-secret"), Secret::new("\u{e4}\"\n")];
        store
            .state_index_secrets_add(&version, &secrets)
            .await
            .unwrap();
        let known = async || store.state_index_secrets(&state).await.unwrap();
        assert_eq!(known().await, [], "its version does not count yet");
        let (step, held) = (Step::default(), Holdings::new());
        let added = store.state_index_add(&state, 0, version.version, &step, &held, None);
        assert!(added.await.unwrap());
        assert_eq!(known().await, secrets);
        // With another form all is learned anew.
        assert_eq!(store.state_index_begin(&state, "2").await.unwrap(), 0);
        assert_eq!(known().await, []);
    }
}
