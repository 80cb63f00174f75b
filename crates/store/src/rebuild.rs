//! Writing into the tables what the files know and they do not: all of it, if the database is gone; what came since,
//! if it is an older copy. Only what was provably acknowledged becomes a version again.
//!
//! What only tables know does not come back: locks, runs, tokens, refusals, and that a state was deleted.
//!
//! Not here: getting bodies back without tables (`recover`).

use std::collections::{BTreeMap, HashMap, HashSet};

use model::state::{StateName, StateVersion};

use crate::behind::Behind;
use crate::blobs::Blobs;
use crate::db::Tx;
use crate::keys::{Keys, Scope};
use crate::sealing::{header_line, hex, open_file};
use crate::segments::frame::{Digest, scan};
use crate::segments::{DIR, Place};
use crate::state_versions::NewVersion;
use crate::state_versions::blob::{BlobHeader, Encoding, Header, MarkerHeader};
use crate::{Store, StoreError, blocking};

/// What came back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// States that have versions now which the tables did not know.
    pub states: Vec<StateName>,
    pub versions: usize,
    /// How many states are served by their newest version again.
    pub heads: u64,
    /// States whose artifacts the tables know again.
    pub artifacts: usize,
    /// Later ones of which nothing says that they were acknowledged: still files, and no versions.
    pub unproven: Vec<StateVersion>,
    /// Acknowledged, and builds on what is gone.
    pub broken: Vec<StateVersion>,
}

/// A version's frame, as it lies among the blobs.
struct Written {
    version: StateVersion,
    place: Place,
    digest: Digest,
    encoding: Encoding,
    parent: Option<String>,
}

/// All frames of versions that are genuine, and those of them that were acknowledged.
#[derive(Default)]
struct Files {
    written: BTreeMap<StateName, Vec<Written>>,
    proven: HashSet<String>,
}

impl Store {
    /// Adds the versions that the tables lack and moves heads to the newest. Doing it twice is doing it once.
    pub async fn rebuild(&self) -> Result<Rebuilt, StoreError> {
        let files = self.files_read().await?;
        let mut rebuilt = Rebuilt::default();
        for (state, written) in files.written {
            let row = self.state_ensure(&state).await?;
            let mut tx = self.db.begin_write().await?;
            let before = rebuilt.versions;
            tx.state_rebuild(row.id, written, &files.proven, &mut rebuilt)
                .await?;
            tx.commit().await?;
            if rebuilt.versions > before {
                rebuilt.states.push(state);
            }
        }
        rebuilt.artifacts = self.artifacts_rebuild().await?;
        Ok(rebuilt)
    }

    /// The states of which the files know more than the tables, by a look at all of them.
    pub(crate) async fn behind_all(&self) -> Result<BTreeMap<StateName, Behind>, StoreError> {
        let files = self.files_read().await?;
        let mut behind = BTreeMap::new();
        for (state, written) in files.written {
            let known = self.stored_all(&state).await?;
            let known = known.last().map_or(0, |stored| stored.version.version);
            let mut news: Vec<&StateVersion> = written
                .iter()
                .filter(|one| files.proven.contains(&hex(&one.digest)))
                .map(|one| &one.version)
                .filter(|version| version.version > known)
                .collect();
            news.sort_by_key(|version| version.version);
            if let (Some(first), Some(last)) = (news.first(), news.last()) {
                let (since, acknowledged) = (Some(first.created_at), last.version);
                behind.insert(
                    state,
                    Behind {
                        known,
                        acknowledged,
                        since,
                    },
                );
            }
        }
        Ok(behind)
    }

    async fn files_read(&self) -> Result<Files, StoreError> {
        self.blobs_settle().await?;
        let (keys, blobs) = (self.keys.clone(), self.blobs.clone());
        blocking(move || Files::read(&blobs, &keys)).await
    }
}

impl Files {
    fn read(blobs: &Blobs, keys: &Keys) -> Result<Self, StoreError> {
        let mut files = Self::default();
        for name in blobs.list(DIR)? {
            let bytes = blobs.read(&format!("{DIR}/{name}"))?;
            let object = format!("{DIR}/{}", name.strip_suffix(".seg").unwrap_or(&name));
            for found in scan(&bytes) {
                let header = header_line(found.sealed).ok().and_then(Header::parse);
                match header {
                    Some(Header::Version(header)) => {
                        let scope = Scope::State(header.version.state.clone());
                        let Ok(key) = keys.get(&scope) else { continue };
                        let opened = open_file::<BlobHeader>(&key.key, found.sealed.to_vec());
                        let Ok((header, _)) = opened else { continue };
                        // Whoever wrote it had seen the one before as the newest.
                        files.proven.extend(header.parent_digest.clone());
                        let written = Written {
                            place: Place {
                                object: object.clone(),
                                offset: found.offset as u64,
                                length: found.length as u64,
                            },
                            digest: found.digest,
                            encoding: header.encoding,
                            parent: header.parent_digest,
                            version: header.version,
                        };
                        let state = written.version.state.clone();
                        files.written.entry(state).or_default().push(written);
                    }
                    Some(Header::Marker(marker)) => {
                        let scope = Scope::State(marker.state.clone());
                        let opened = keys.get(&scope).ok().is_some_and(|key| {
                            open_file::<MarkerHeader>(&key.key, found.sealed.to_vec()).is_ok()
                        });
                        if opened {
                            files.proven.insert(marker.digest);
                        }
                    }
                    None => {}
                }
            }
        }
        Ok(files)
    }
}

impl Tx {
    async fn state_rebuild(
        &mut self,
        state: i64,
        mut written: Vec<Written>,
        proven: &HashSet<String>,
        rebuilt: &mut Rebuilt,
    ) -> Result<(), StoreError> {
        const KNOWN: &str = "SELECT version, blob_digest, depth FROM state_version WHERE state = $1 ORDER BY version";
        // The lock stays as it is: who holds it looks at the head before it writes.
        const MOVE: &str = "UPDATE state SET head = $2 WHERE id = $1";
        // One that was deleted has none.
        const RAISE: &str = "UPDATE state SET head = $2 WHERE id = $1 \
            AND (head < $2 OR (head IS NULL AND deleted_at IS NULL AND $2 > 0))";
        let mut newest = 0;
        // By digest: which version, and how many differences lead to a whole one.
        let mut known: HashMap<String, (i64, i64)> = HashMap::new();
        for row in self.fetch_all(KNOWN, &[state.into()]).await? {
            newest = row.int(0)?;
            known.insert(hex(row.bytes(1)?), (newest, row.int(2)?));
        }
        let (last_known, mut unproven) = (newest, Vec::new());
        written.sort_by_key(|one| one.version.version);
        for one in written {
            let digest = hex(&one.digest);
            if one.version.version <= newest || known.contains_key(&digest) {
                continue;
            }
            if !proven.contains(&digest) {
                unproven.push(one.version);
                continue;
            }
            let base = one.parent.as_ref().and_then(|parent| known.get(parent));
            let (base, depth) = match (one.encoding, base) {
                (Encoding::Whole, _) => (None, 0),
                (Encoding::Delta, Some((base, depth))) => (Some(*base), depth + 1),
                (Encoding::Delta, None) => {
                    rebuilt.broken.push(one.version);
                    continue;
                }
            };
            let row = NewVersion {
                state,
                version: &one.version,
                place: &one.place,
                digest: &one.digest,
                lock_id: None,
                base,
                depth,
            };
            self.version_insert(&row).await?;
            // An older copy may still say that nothing came of it.
            self.blob_intent_take(&one.place.object).await?;
            newest = one.version.version;
            known.insert(digest, (newest, depth));
            rebuilt.versions += 1;
        }
        // One before the newest was not acknowledged: another of its number was, or none.
        unproven.retain(|version: &StateVersion| version.version > newest);
        rebuilt.unproven.append(&mut unproven);
        if newest > last_known {
            self.execute(MOVE, &[state.into(), newest.into()]).await?;
        } else {
            let moved = self.execute(RAISE, &[state.into(), newest.into()]).await?;
            rebuilt.heads += moved;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
