//! What must stay hidden in a state and no version that is kept says: where secrets of runs stand, and values that were
//! sensitive in another home, or in a version that was let go of. The tables have it for who asks; the same lies in sealed
//! pieces beside the versions, so that tables that are made again from the files know it, too.
//!
//! A piece is only ever added: equal ones have one name.

use std::collections::BTreeSet;

use model::secret::Secret;
use model::state::StateName;
use model::state::hidden::Place;
use serde::Deserialize;

use crate::blobs::state_of_dir;
use crate::keys::Scope;
use crate::sealing::open_piece;
use crate::state_index::BROUGHT;
use crate::{Store, StoreError, blocking};

const DIR: &str = "notes";
const PURPOSE: &str = "what is hidden in a state";

#[derive(Debug, Default, Deserialize)]
struct Piece {
    #[serde(default)]
    places: BTreeSet<Place>,
    #[serde(default)]
    secrets: Vec<Secret>,
}

impl Store {
    /// Durable when this returns.
    pub(crate) async fn notes_keep_places(
        &self,
        state: &StateName,
        places: &BTreeSet<Place>,
    ) -> Result<(), StoreError> {
        let piece = serde_json::json!({ "places": places });
        self.notes_keep(state, &piece).await
    }

    /// The same for values.
    pub async fn notes_keep_secrets(
        &self,
        state: &StateName,
        secrets: &[Secret],
    ) -> Result<(), StoreError> {
        let secrets: BTreeSet<&str> = secrets.iter().map(Secret::expose).collect();
        if secrets.is_empty() {
            return Ok(());
        }
        let piece = serde_json::json!({ "secrets": secrets });
        self.notes_keep(state, &piece).await
    }

    async fn notes_keep(
        &self,
        state: &StateName,
        piece: &serde_json::Value,
    ) -> Result<(), StoreError> {
        let plain = serde_json::to_vec(piece).unwrap_or_default();
        let scope = Scope::State(state.clone());
        let digest = self.keyed_digest(PURPOSE, plain.clone()).await?;
        let name = format!("{DIR}/{}/{}.piece", scope.dir(), &digest[..32]);
        let sealed = self.seal(scope, PURPOSE, plain).await?;
        let blobs = self.blobs.clone();
        blocking(move || blobs.write_new(&name, &sealed).map(drop)).await
    }

    /// Tells the tables. Says which pieces do not open.
    pub(crate) async fn notes_rebuild(
        &self,
        known: &[StateName],
    ) -> Result<Vec<(StateName, StoreError)>, StoreError> {
        let (keys, blobs, known) = (self.keys.clone(), self.blobs.clone(), known.to_vec());
        let found = blocking(move || {
            let mut found = Vec::new();
            for dir in blobs.list(DIR)? {
                let mut named = known.iter();
                let named = named.find(|state| Scope::State((*state).clone()).dir() == dir);
                let Some(state) = named.cloned().or_else(|| state_of_dir(&dir)) else {
                    continue;
                };
                let scope = Scope::State(state.clone());
                for name in blobs.list(&format!("{DIR}/{dir}"))? {
                    let read = || {
                        let sealed = blobs.read(&format!("{DIR}/{dir}/{name}"))?;
                        open_piece(&*keys.get(&scope)?, &scope, PURPOSE, sealed)
                    };
                    found.push((state.clone(), read()));
                }
            }
            Ok(found)
        });
        let mut unread = Vec::new();
        for (state, piece) in found.await? {
            let piece = piece.and_then(|plain| {
                serde_json::from_slice::<Piece>(&plain).map_err(|_| StoreError::Row {
                    found: format!("{DIR}/{}", Scope::State(state.clone()).dir()),
                    expected: "notes of what is hidden",
                })
            });
            match piece {
                Ok(piece) => {
                    self.hidden_note(&state, &piece.places).await?;
                    self.secrets_note(&state, BROUGHT, &piece.secrets).await?;
                }
                Err(error) => unread.push((state, error)),
            }
        }
        Ok(unread)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::testing::{TestHome, append, body, network};

    #[tokio::test]
    async fn tables_that_are_made_again_hide_what_the_old_ones_did() {
        let home = TestHome::new();
        let (store, state) = (home.open().await, network());
        append(&store, state.clone(), body(1)).await.unwrap();
        let places = BTreeSet::from([Place::value("output.url", "a")]);
        store.hidden_add(&state, &places).await.unwrap();
        let brought = [Secret::new("from-elsewhere")];
        let added = store.state_index_secrets_add(&state, BROUGHT, &brought);
        added.await.unwrap();
        // Twice is once.
        let gone = [Secret::new("of-a-version-that-went")];
        store.notes_keep_secrets(&state, &gone).await.unwrap();
        store.notes_keep_secrets(&state, &gone).await.unwrap();
        let forget = async |sql| store.db.execute(sql, &[]).await.unwrap();
        forget("DELETE FROM hidden").await;
        forget("DELETE FROM state_index_secret").await;

        assert!(store.rebuild().await.unwrap().notes_unread.is_empty());
        assert_eq!(store.hidden_list(&state, None).await.unwrap(), places);
        let mut known = store.state_index_secrets(&state).await.unwrap();
        known.sort_by(|a, b| a.expose().cmp(b.expose()));
        assert_eq!(known, [&brought[..], &gone].concat());

        let dir = home.path().join("home/notes");
        let dir = fs::read_dir(dir).unwrap().next().unwrap().unwrap().path();
        let pieces: Vec<_> = fs::read_dir(dir).unwrap().flatten().collect();
        assert_eq!(pieces.len(), 3);
        fs::write(pieces[0].path(), "damaged").unwrap();
        let unread = store.rebuild().await.unwrap().notes_unread;
        assert_eq!(unread.len(), 1);
    }
}
