//! Finds the artifacts of each state without the database: the newest piece counts, unless the database lists
//! it as unfinished.

use std::collections::BTreeSet;

use jiff::Timestamp;
use model::stage::artifact::ArtifactSet;
use model::state::StateName;

use super::{DIR, StoredArtifacts, open};
use crate::blob::{Blobs, state_of_dir};
use crate::key::data_keys::{KeyScope, Keys};
use crate::{Store, StoreError, blocking};

/// A stored piece.
pub(crate) struct FoundSet {
    pub(crate) state: StateName,
    pub(crate) name: String,
    pub(crate) set: Result<ArtifactSet, StoreError>,
}

impl Store {
    /// Returns how many sets were missing in the database.
    pub(crate) async fn artifacts_rebuild(&self) -> Result<usize, StoreError> {
        const UNFINISHED: &str = "SELECT object FROM blob_intent";
        let states = self.state_list().await?.into_iter().map(|row| row.name);
        let states: Vec<StateName> = states.collect();
        let mut unfinished = BTreeSet::new();
        for row in self.db.fetch_all(UNFINISHED, &[]).await? {
            unfinished.insert(row.text(0)?.to_owned());
        }
        let (keys, blobs) = (self.keys.clone(), self.blobs.clone());
        let counts = move |name: &str| !unfinished.contains(name);
        let found = blocking(move || newest(&keys, &blobs, &states, counts)).await?;
        let mut rebuilt = 0;
        for FoundSet { state, name, set } in found {
            // A piece that cannot be opened is reported by `state verify`, if it is in the database.
            let Ok(set) = set else { continue };
            let known = self.artifacts_get(&state).await?;
            let known = known.map(|known| known.kept);
            if known.as_ref().is_some_and(|known| *known >= name) {
                continue;
            }
            self.state_ensure(&state).await?;
            let new = StoredArtifacts {
                at: written_at(&name),
                files: set.len() as u64,
                kept: name,
                run: None,
                state,
            };
            let mut tx = self.db.begin_write().await?;
            if tx.artifacts_move(known.as_deref(), &new).await? {
                tx.commit().await?;
                rebuilt += 1;
            }
        }
        Ok(rebuilt)
    }
}

/// The newest piece of each state. A state whose name was too long for a directory is searched among `states`.
pub(crate) fn newest(
    keys: &Keys,
    blobs: &Blobs,
    states: &[StateName],
    counts: impl Fn(&str) -> bool,
) -> Result<Vec<FoundSet>, StoreError> {
    let mut found = Vec::new();
    for dir in blobs.list(DIR)? {
        let mut known = states.iter();
        let known = known.find(|state| KeyScope::State((*state).clone()).dir() == dir);
        let Some(state) = known.cloned().or_else(|| state_of_dir(&dir)) else {
            continue;
        };
        // Their names begin with the time.
        let pieces = blobs.list(&format!("{DIR}/{dir}"))?.into_iter();
        let pieces = pieces.map(|piece| format!("{DIR}/{dir}/{piece}"));
        if let Some(name) = pieces.filter(|name| counts(name)).max() {
            let set = open(keys, blobs, &state, &name);
            found.push(FoundSet { state, name, set });
        }
    }
    Ok(found)
}

fn written_at(name: &str) -> Timestamp {
    let file = name.rsplit_once('/').map_or(name, |(_, file)| file);
    let micros = file.split_once('-').and_then(|(at, _)| at.parse().ok());
    let at = micros.and_then(|micros| Timestamp::from_microsecond(micros).ok());
    at.unwrap_or_default()
}
