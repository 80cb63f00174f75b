//! Sealing small pieces with a data key, each for one purpose, and keyed digests.
//!
//! Not here: the cipher (`crypto`), where keys come from (`data_keys`).

use std::sync::Arc;

use aws_lc_rs::hmac;
use model::base::secret::Secret;
use serde::{Deserialize, Serialize};

use crate::crypto::{UnsealError, hex, open_file, seal_file, unhex};
use crate::db::name_args;
use crate::key::data_keys::{DataKey, KeyError, KeyScope, Keys};
use crate::{Store, StoreError};

/// Keyed digests: they show whether two values are equal, and nothing else without the key. Short secrets cannot be
/// guessed from them.
#[derive(Clone, Debug)]
pub struct KeyedDigester {
    key: hmac::Key,
    own: Secret,
}

/// The first line of a sealed piece.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct PieceHeader {
    terrane: String,
    format: u32,
    scope: String,
    key: u32,
    purpose: String,
}

impl Store {
    /// Seals a piece for `purpose`; it opens for the same scope and purpose only.
    pub async fn seal(
        &self,
        scope: KeyScope,
        purpose: &str,
        plain: Vec<u8>,
    ) -> Result<Vec<u8>, StoreError> {
        let (key, purpose) = (self.data_key(&scope).await?, purpose.to_owned());
        self.nearby(plain.len(), move || {
            let header = PieceHeader::new(&scope, key.generation, purpose);
            Ok(seal_file(&key.key, &header, &plain).ok_or(KeyError::Random)?)
        })
        .await
    }

    pub async fn unseal(
        &self,
        scope: KeyScope,
        purpose: &str,
        sealed: Vec<u8>,
    ) -> Result<Vec<u8>, StoreError> {
        let (keys, purpose) = (self.keys.clone(), purpose.to_owned());
        self.nearby(sealed.len(), move || {
            let key = keys.get(&scope)?;
            open_piece(&key, &scope, &purpose, sealed)
        })
        .await
    }

    /// Creates the key of this scope if it is new, so that later calls need not wait for the disk.
    pub async fn seal_prepare(&self, scope: &KeyScope) -> Result<(), StoreError> {
        self.data_key(scope).await.map(drop)
    }

    /// The data key, created on first use. A missing key that was used before is not replaced: that would hide the
    /// loss.
    pub(crate) async fn data_key(&self, scope: &KeyScope) -> Result<Arc<DataKey>, StoreError> {
        const USED: &str = "SELECT 1 FROM state AS s JOIN state_version AS v ON v.state = s.id \
            WHERE s.project = $1 AND s.name = $2 LIMIT 1";
        if let Some(key) = self.keys.known(scope) {
            return Ok(key);
        }
        let (keys, own) = (self.keys.clone(), scope.clone());
        if let Some(key) = self.nearby(0, move || keys.lookup(&own)).await? {
            return Ok(key);
        }
        let (keys, own) = (self.keys.clone(), scope.clone());
        let used = match scope {
            KeyScope::Project => false,
            KeyScope::State(state) => {
                let found = self.db.fetch_optional(USED, &name_args(state)).await?;
                found.is_some()
            }
        };
        if used {
            self.nearby(0, move || keys.get(&own)).await
        } else {
            self.nearby(0, move || keys.get_or_create(&own)).await
        }
    }

    /// One digest of `keyed_digester`.
    pub async fn keyed_digest(&self, purpose: &str, bytes: Vec<u8>) -> Result<String, StoreError> {
        let (keys, purpose, size) = (self.keys.clone(), purpose.to_owned(), bytes.len());
        let digest = move || keys.keyed_digest(&purpose, &bytes);
        self.nearby(size, digest).await
    }

    /// For many digests of one purpose, without waiting for each.
    pub async fn keyed_digester(&self, purpose: &'static str) -> Result<KeyedDigester, StoreError> {
        let keys = self.keys.clone();
        self.nearby(0, move || keys.digester(purpose)).await
    }
}

impl KeyedDigester {
    /// The digester that `to_secret` described, to compare digests in another home.
    pub fn from_secret(text: &Secret) -> Option<Self> {
        let own = unhex(text.expose())?;
        Some(Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, &own),
            own: text.clone(),
        })
    }

    pub fn to_secret(&self) -> &Secret {
        &self.own
    }

    pub fn digest(&self, bytes: &[u8]) -> String {
        hex(hmac::sign(&self.key, bytes).as_ref())
    }
}

impl Keys {
    pub(crate) fn digester(&self, purpose: &str) -> Result<KeyedDigester, StoreError> {
        let project = self.get_or_create(&KeyScope::Project)?;
        let root = hmac::Key::new(hmac::HMAC_SHA256, project.key.bytes());
        // Each purpose has its own key: equal values have different digests for different purposes.
        let own = hmac::sign(
            &root,
            format!("terrane keyed digest 1: {purpose}").as_bytes(),
        );
        Ok(KeyedDigester {
            key: hmac::Key::new(hmac::HMAC_SHA256, own.as_ref()),
            own: Secret::new(hex(own.as_ref())),
        })
    }

    pub(crate) fn keyed_digest(&self, purpose: &str, bytes: &[u8]) -> Result<String, StoreError> {
        Ok(self.digester(purpose)?.digest(bytes))
    }
}

impl PieceHeader {
    fn new(scope: &KeyScope, key: u32, purpose: String) -> Self {
        Self {
            terrane: "piece".to_owned(),
            format: 1,
            scope: scope.dir(),
            key,
            purpose,
        }
    }
}

/// Opens a piece that was sealed for this scope and purpose.
pub(crate) fn open_piece(
    key: &DataKey,
    scope: &KeyScope,
    purpose: &str,
    sealed: Vec<u8>,
) -> Result<Vec<u8>, StoreError> {
    let expected = PieceHeader::new(scope, key.generation, purpose.to_owned());
    open_file::<PieceHeader>(&key.key, sealed)
        .and_then(|(found, plain)| {
            if found == expected {
                return Ok(plain);
            }
            let (found, expected) = (found.purpose, expected.purpose);
            Err(UnsealError::Other { found, expected })
        })
        .map_err(|source| StoreError::Unseal {
            path: scope.dir().into(),
            source,
        })
}

#[cfg(test)]
mod tests;
