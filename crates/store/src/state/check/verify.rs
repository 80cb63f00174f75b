//! Reads and checks everything that is stored: every frame, chain, digest, key and artifact.
//!
//! Not here: repairs. Damage is reported, and a person decides.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::state::{RefusedRequest, StateName, StateVersion};

use crate::crypto::{UnsealError, hex};
use crate::key::data_keys::KeyScope;
use crate::state::states::StateRow;
use crate::state::versions::StoredVersion;
use crate::state::versions::blob::{self, Encoding, OpenedBlob};
use crate::{Store, StoreError, blocking};

/// The result of checking the states of a home.
#[derive(Debug, Default)]
pub struct VerifyReport {
    pub states: usize,
    pub versions: usize,
    /// Size of all versions, uncompressed.
    pub plain_bytes: u64,
    /// Size of all versions as stored.
    pub stored_bytes: u64,
    /// Number of artifact files.
    pub artifacts: u64,
    pub damages: Vec<Damage>,
    /// Refused writes whose bodies are stored.
    pub refused: Vec<RefusedRequest>,
    /// How many refused writes of each state were deleted.
    pub let_go: BTreeMap<StateName, usize>,
}

/// One thing that is not as it was stored.
#[derive(Debug)]
pub struct Damage {
    pub state: StateName,
    /// `None` for artifacts.
    pub version: Option<i64>,
    /// How many versions it concerns: all of the state if the key is damaged.
    pub versions: usize,
    /// Whether it is the state's newest version.
    pub is_head: bool,
    /// The newest version before it that can be read.
    pub readable: Option<i64>,
    pub error: StoreError,
}

/// The result of checking one version.
struct CheckedVersion {
    body: Result<Arc<Vec<u8>>, StoreError>,
    parent_digest: Option<String>,
}

impl Store {
    /// Reads every version of one state, or of all, from where it is stored.
    pub async fn state_verify(&self, only: Option<&StateName>) -> Result<VerifyReport, StoreError> {
        let mut verified = VerifyReport::default();
        for row in self.state_list().await? {
            if only.is_some_and(|only| *only != row.name) {
                continue;
            }
            self.verify_state(&row, &mut verified).await?;
        }
        for (state, error) in self.files_compare().await? {
            let (version, known) = match &error {
                StoreError::Stale { stale, .. } => (stale.acknowledged, stale.known),
                StoreError::Lost(lost) => (lost.acknowledged, lost.readable),
                StoreError::Rival(rival) => (rival.version.version, rival.newest.version),
                StoreError::Unmarked { version, .. } => (*version, *version),
                _ => continue,
            };
            if only.is_none_or(|only| *only == state) {
                verified.damages.push(Damage {
                    version: Some(version),
                    versions: 1,
                    is_head: !matches!(error, StoreError::Rival(_)),
                    readable: (known > 0).then_some(known),
                    error,
                    state,
                });
            }
        }
        for kept in self.artifacts_list().await? {
            if only.is_none_or(|only| *only == kept.state) {
                verified.artifacts += kept.files;
                if let Err(error) = self.artifacts_read(&kept).await {
                    verified.damages.push(Damage {
                        state: kept.state,
                        version: None,
                        versions: 0,
                        is_head: false,
                        readable: None,
                        error,
                    });
                }
            }
        }
        for refusal in self.refusal_list_kept().await? {
            if only.is_none_or(|only| *only == refusal.state) {
                verified.refused.push(refusal);
            }
        }
        for state in self.refusal_list_let_go().await? {
            if only.is_none_or(|only| *only == state) {
                *verified.let_go.entry(state).or_default() += 1;
            }
        }
        Ok(verified)
    }

    async fn verify_state(
        &self,
        row: &StateRow,
        verified: &mut VerifyReport,
    ) -> Result<(), StoreError> {
        verified.states += 1;
        let all = self.stored_all(&row.name).await?;
        let last = all.last().map(|stored| stored.version.version);
        if let Err(error) = self.verify_key(&row.name).await
            && last.is_some()
        {
            verified.versions += all.len();
            verified.damages.push(Damage {
                state: row.name.clone(),
                version: last,
                versions: all.len(),
                is_head: true,
                readable: None,
                error,
            });
            return Ok(());
        }
        let mut readable = None;
        let mut before: Option<(i64, Arc<Vec<u8>>)> = None;
        for stored in &all {
            let version = stored.version.version;
            let mut damaged = |error| {
                verified.damages.push(Damage {
                    state: row.name.clone(),
                    version: Some(version),
                    versions: 1,
                    is_head: row.head == Some(version),
                    readable,
                    error,
                });
            };
            let base = before
                .take()
                .filter(|(known, _)| stored.base == Some(*known));
            let checked = self
                .verify_version(stored, base.map(|(_, body)| body))
                .await?;
            if let Some(parent) = all.iter().find(|one| stored.is_child_of(one))
                && checked.body.is_ok()
                && checked.parent_digest != Some(hex(&parent.blob_digest[..]))
            {
                damaged(stored.damaged(&self.blobs, UnsealError::Parent));
            }
            match checked.body {
                Ok(body) => {
                    verified.plain_bytes += body.len() as u64;
                    readable = Some(version);
                    before = Some((version, body));
                }
                Err(error) => damaged(error),
            }
            verified.versions += 1;
            verified.stored_bytes += stored.place.length;
        }
        self.verify_head(row, &all, readable, verified).await
    }

    /// Checks that the head is the newest version.
    async fn verify_head(
        &self,
        row: &StateRow,
        all: &[StoredVersion],
        readable: Option<i64>,
        verified: &mut VerifyReport,
    ) -> Result<(), StoreError> {
        let last = all.last().map(|stored| stored.version.version);
        let of_head = |head: i64, error: StoreError| Damage {
            state: row.name.clone(),
            version: Some(head),
            versions: 1,
            is_head: true,
            readable,
            error,
        };
        if let Some(head) = row.head
            && all.iter().all(|stored| stored.version.version != head)
        {
            let error = StoreError::Row {
                found: "nothing".to_owned(),
                expected: "the newest version",
            };
            verified.damages.push(of_head(head, error));
        }
        // Read again: another process may have written meanwhile.
        let now = self.state_get(&row.name).await?;
        match (now, last) {
            (
                Some(StateRow {
                    head: Some(head), ..
                }),
                Some(newest),
            ) if head < newest => {
                let error = StoreError::OldHead { head, newest };
                verified.damages.push(of_head(head, error));
            }
            (
                Some(StateRow {
                    head: None,
                    deleted_at: None,
                    ..
                }),
                Some(newest),
            ) => {
                let error = StoreError::NoHead { newest };
                verified.damages.push(of_head(newest, error));
            }
            _ => {}
        }
        Ok(())
    }

    /// Without its key no version of a state can be read, and one error for all of them is enough.
    async fn verify_key(&self, state: &StateName) -> Result<(), StoreError> {
        let (keys, scope) = (self.keys.clone(), KeyScope::State(state.clone()));
        blocking(move || {
            keys.get(&KeyScope::Project)?;
            keys.get(&scope).map(drop)
        })
        .await
    }

    async fn verify_version(
        &self,
        stored: &StoredVersion,
        base: Option<Arc<Vec<u8>>>,
    ) -> Result<CheckedVersion, StoreError> {
        let (keys, blobs, own) = (self.keys.clone(), self.blobs.clone(), stored.clone());
        blocking(move || {
            let mut parent_digest = None;
            let mut read = || {
                let key = keys.get(&KeyScope::State(own.version.state.clone()))?;
                let OpenedBlob { header, packed, .. } = blob::open(&blobs, &key, &own)?;
                parent_digest = header.parent_digest;
                let base = match (header.encoding, &base) {
                    (Encoding::Whole, _) => None,
                    (Encoding::Delta, Some(base)) => Some(base.as_slice()),
                    (Encoding::Delta, None) => {
                        let base = own.base.unwrap_or_default();
                        return Err(own.damaged(&blobs, UnsealError::Base { base }));
                    }
                };
                let body = own.unpack(&blobs, &packed, base)?;
                own.check_content(&keys, &blobs, &body)?;
                Ok(Arc::new(body))
            };
            let body = read();
            Ok(CheckedVersion {
                body,
                parent_digest,
            })
        })
        .await
    }
}

impl StoredVersion {
    fn is_child_of(&self, other: &Self) -> bool {
        let StateVersion { parent, .. } = self.version;
        parent == Some(other.version.version)
    }
}

#[cfg(test)]
mod tests;
