//! What was sensitive in any version of a state. A secret that was changed may still stand in another text: whoever shows
//! the state has to know it, and would else read all versions for that.
//!
//! The values are sealed with the state's own key, as its versions are.

use model::secret::Secret;
use model::state::StateName;

use crate::db::Value;
use crate::db::name_args;
use crate::key::data_keys::Scope;
use crate::{Store, StoreError};

/// Of no version here: they came along with the state from another home.
pub const BROUGHT: i64 = 0;

impl Store {
    /// Every value that was sensitive in a version that was read, or came along. They outlive their versions, and all else
    /// that was learned: what was sensitive once stays so.
    pub async fn state_index_secrets(&self, state: &StateName) -> Result<Vec<Secret>, StoreError> {
        const SELECT: &str = "SELECT h.version, h.sealed FROM state_index_secret AS h \
            JOIN state AS s ON s.id = h.state WHERE s.project = $1 AND s.name = $2";
        let mut found = Vec::new();
        for row in self.db.fetch_all(SELECT, &name_args(state)).await? {
            let sealed = row.bytes(1)?.to_vec();
            found.extend(self.secrets_open(state, row.int(0)?, sealed).await?);
        }
        Ok(found)
    }

    /// The same of what no version says that is kept. What was sealed with a key that is gone is left out.
    pub(crate) async fn secrets_of_no_version(
        &self,
    ) -> Result<Vec<(StateName, Vec<Secret>)>, StoreError> {
        const SELECT: &str = "SELECT s.project, s.name, h.version, h.sealed \
            FROM state_index_secret AS h JOIN state AS s ON s.id = h.state \
            LEFT JOIN state_version AS v ON v.state = h.state AND v.version = h.version \
            WHERE v.version IS NULL ORDER BY s.project, s.name";
        let mut found = Vec::new();
        for row in self.db.fetch_all(SELECT, &[]).await? {
            let state = StateName::new(row.text(0)?, row.text(1)?);
            let opened = self.secrets_open(&state, row.int(2)?, row.bytes(3)?.to_vec());
            if let Ok(secrets) = opened.await {
                found.push((state, secrets));
            }
        }
        Ok(found)
    }

    /// Keeps what is sensitive in a version and in none before it, beside what is kept of it already.
    pub async fn state_index_secrets_add(
        &self,
        state: &StateName,
        version: i64,
        secrets: &[Secret],
    ) -> Result<(), StoreError> {
        if version == BROUGHT {
            // No version says it: the tables must not be all that does.
            self.notes_keep_secrets(state, secrets).await?;
        }
        self.secrets_note(state, version, secrets).await
    }

    pub(crate) async fn secrets_note(
        &self,
        state: &StateName,
        version: i64,
        secrets: &[Secret],
    ) -> Result<(), StoreError> {
        const FIND: &str = "SELECT h.sealed FROM state_index_secret AS h \
            JOIN state AS s ON s.id = h.state \
            WHERE s.project = $1 AND s.name = $2 AND h.version = $3";
        const INSERT: &str = "INSERT INTO state_index_secret (state, version, sealed) \
            SELECT id, $3, $4 FROM state WHERE project = $1 AND name = $2 \
            ON CONFLICT (state, version) DO NOTHING";
        const CHANGE: &str = "UPDATE state_index_secret SET sealed = $4 \
            WHERE version = $3 AND sealed = $5 \
            AND state = (SELECT id FROM state WHERE project = $1 AND name = $2)";
        if secrets.is_empty() {
            return Ok(());
        }
        self.state_ensure(state).await?;
        let mut args = name_args(state).to_vec();
        args.push(version.into());
        loop {
            let row = self.db.fetch_optional(FIND, &args).await?;
            let before = row
                .map(|row| row.bytes(0).map(<[u8]>::to_vec))
                .transpose()?;
            let mut all = match before.clone() {
                Some(sealed) => self.secrets_open(state, version, sealed).await?,
                None => Vec::new(),
            };
            let known = all.len();
            for secret in secrets {
                if !all.contains(secret) {
                    all.push(secret.clone());
                }
            }
            if all.len() == known {
                return Ok(());
            }
            let values: Vec<&str> = all.iter().map(Secret::expose).collect();
            let plain = serde_json::to_vec(&values).unwrap_or_default();
            let scope = Scope::State(state.clone());
            let sealed = self.seal(scope, &purpose(version), plain).await?;
            let mut args = args.clone();
            args.push(sealed.into());
            let sql = if before.is_some() { CHANGE } else { INSERT };
            args.extend(before.map(Value::from));
            // Nothing is done if somebody else was first: then what they kept is kept, too.
            if self.db.execute(sql, &args).await? > 0 {
                return Ok(());
            }
        }
    }

    async fn secrets_open(
        &self,
        state: &StateName,
        version: i64,
        sealed: Vec<u8>,
    ) -> Result<Vec<Secret>, StoreError> {
        let scope = Scope::State(state.clone());
        let plain = self.unseal(scope, &purpose(version), sealed).await?;
        serde_json::from_slice(&plain).map_err(|_| StoreError::Row {
            found: format!("what was sealed for version {version}"),
            expected: "a list of values",
        })
    }
}

fn purpose(version: i64) -> String {
    format!("what version {version} brought that is sensitive")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Appended;
    use crate::testing::{TestHome, append, body, network};

    #[tokio::test]
    async fn what_was_sensitive_is_known_for_good() {
        let home = TestHome::new();
        let (store, state) = (home.open().await, network());
        let appended = append(&store, state.clone(), body(1)).await.unwrap();
        let (Appended::New(version) | Appended::Same(version)) = appended;
        assert_eq!(store.state_index_begin(&state, "1").await.unwrap(), 0);
        let secrets = [Secret::new("first-secret"), Secret::new("\u{e4}\"\n")];
        let add = async |version, secrets: &[Secret]| {
            let added = store.state_index_secrets_add(&state, version, secrets);
            added.await.unwrap();
        };
        add(version.version, &secrets[..1]).await;
        add(version.version, &secrets[1..]).await;
        add(version.version, &secrets[..1]).await;
        let known = async || store.state_index_secrets(&state).await.unwrap();
        assert_eq!(known().await, secrets);
        // With another form all else is learned anew: by then a version may be gone.
        assert_eq!(store.state_index_begin(&state, "2").await.unwrap(), 0);
        assert_eq!(known().await, secrets);
        add(BROUGHT, &[Secret::new("from-elsewhere")]).await;
        assert_eq!(known().await.len(), 3);
    }
}
