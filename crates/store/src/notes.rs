//! What must stay hidden in a state and no version that is kept says: where secrets of runs stand, and values that were
//! sensitive in another home, or in a version that was let go of. The tables have it for who asks; the same lies in sealed
//! pieces beside the versions, so that tables that are made again from the files know it, too.
//!
//! A piece is only ever added: equal ones have one name.

use std::collections::{BTreeMap, BTreeSet};

use model::secret::Secret;
use model::state::StateName;
use model::state::hidden::Place;
use serde::Deserialize;

use crate::blob::state_of_dir;
use crate::crypto::UnsealError;
use crate::key::data_keys::Scope;
use crate::key::sealing::open_piece;
use crate::state::index::BROUGHT;
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
        let key = self.data_key(&scope).await?;
        let sealed = self.seal(scope.clone(), PURPOSE, plain).await?;
        let blobs = self.blobs.clone();
        let opens = move |there: &[u8]| open_piece(&key, &scope, PURPOSE, there.to_vec()).is_ok();
        blocking(move || {
            let is_new = blobs.write_new(&name, &sealed)?;
            if !is_new && !blobs.read(&name).is_ok_and(|there| opens(&there)) {
                // What else has this name was damaged since.
                blobs.write(&name, &sealed)?;
            }
            Ok(())
        })
        .await
    }

    /// Tells the tables, and the files what only the tables know. Says which pieces do not open: nothing of their states is
    /// shown until they do.
    pub(crate) async fn notes_rebuild(
        &self,
        known: &[StateName],
    ) -> Result<Vec<(StateName, StoreError)>, StoreError> {
        self.notes_complete().await?;
        let (mut unread, mut states) = (Vec::new(), BTreeSet::from_iter(known.to_vec()));
        for (state, piece) in self.notes_read(known).await? {
            states.insert(state.clone());
            match piece {
                Ok(piece) => {
                    self.hidden_note(&state, &piece.places).await?;
                    self.secrets_note(&state, BROUGHT, &piece.secrets).await?;
                }
                Err(error) => unread.push((state, error)),
            }
        }
        for state in states {
            let is_unknown = unread.iter().any(|(of, _)| *of == state);
            self.hidden_set_unknown(&state, is_unknown).await?;
        }
        Ok(unread)
    }

    /// Writes down what only the tables know. Says of which states.
    pub async fn notes_complete(&self) -> Result<Vec<StateName>, StoreError> {
        let mut completed = Vec::new();
        for (state, Piece { places, secrets }) in self.notes_missing().await? {
            if !places.is_empty() {
                self.notes_keep_places(&state, &places).await?;
            }
            self.notes_keep_secrets(&state, &secrets).await?;
            completed.push(state);
        }
        Ok(completed)
    }

    /// Puts the pieces aside that do not open, and whose key is gone for good.
    pub(crate) async fn notes_give_up(&self, state: &StateName) -> Result<(), StoreError> {
        let (keys, blobs) = (self.keys.clone(), self.blobs.clone());
        let scope = Scope::State(state.clone());
        blocking(move || {
            let key = keys.get(&scope)?;
            let dir = format!("{DIR}/{}", scope.dir());
            for name in blobs.list(&dir)? {
                let file = format!("{dir}/{name}");
                let sealed = blobs.read(&file)?;
                if open_piece(&key, &scope, PURPOSE, sealed.clone()).is_err() {
                    blobs.write(&format!("lost/{file}"), &sealed)?;
                    blobs.remove(&file)?;
                }
            }
            Ok(())
        })
        .await?;
        self.hidden_set_unknown(state, false).await
    }

    /// What is wrong with the files: they do not open, or do not say what the tables do.
    pub(crate) async fn notes_verify(&self) -> Result<Vec<(StateName, StoreError)>, StoreError> {
        let known: Vec<StateName> = self
            .state_list()
            .await?
            .into_iter()
            .map(|it| it.name)
            .collect();
        let mut wrong = Vec::new();
        for (state, piece) in self.notes_read(&known).await? {
            if let Err(error) = piece {
                wrong.push((state, error));
            }
        }
        for (state, _) in self.notes_missing().await? {
            let dir = format!("{DIR}/{}", Scope::State(state.clone()).dir());
            let path = self.blobs.path(&dir);
            wrong.push((state, StoreError::NotNoted { path }));
        }
        Ok(wrong)
    }

    /// What the tables know and no file says. Of a state whose key does not open nothing can be told.
    async fn notes_missing(&self) -> Result<BTreeMap<StateName, Piece>, StoreError> {
        let mut tables: BTreeMap<StateName, Piece> = BTreeMap::new();
        for (state, place) in self.hidden_list_all().await? {
            tables.entry(state).or_default().places.insert(place);
        }
        for (state, secrets) in self.secrets_of_no_version().await? {
            tables.entry(state).or_default().secrets.extend(secrets);
        }
        if tables.is_empty() {
            return Ok(tables);
        }
        let known: Vec<StateName> = tables.keys().cloned().collect();
        for (state, piece) in self.notes_read(&known).await? {
            if let (Some(left), Ok(piece)) = (tables.get_mut(&state), piece) {
                left.places.retain(|place| !piece.places.contains(place));
                left.secrets
                    .retain(|secret| !piece.secrets.contains(secret));
            }
        }
        tables.retain(|_, left| !left.places.is_empty() || !left.secrets.is_empty());
        let keys = self.keys.clone();
        blocking(move || {
            tables.retain(|state, _| keys.get(&Scope::State(state.clone())).is_ok());
            Ok(tables)
        })
        .await
    }

    async fn notes_read(
        &self,
        known: &[StateName],
    ) -> Result<Vec<(StateName, Result<Piece, StoreError>)>, StoreError> {
        let (keys, blobs, known) = (self.keys.clone(), self.blobs.clone(), known.to_vec());
        blocking(move || {
            let mut found = Vec::new();
            for dir in blobs.list(DIR)? {
                let mut named = known.iter();
                let named = named.find(|state| Scope::State((*state).clone()).dir() == dir);
                let Some(state) = named.cloned().or_else(|| state_of_dir(&dir)) else {
                    continue;
                };
                let scope = Scope::State(state.clone());
                for name in blobs.list(&format!("{DIR}/{dir}"))? {
                    let file = format!("{DIR}/{dir}/{name}");
                    let read = || {
                        let (key, sealed) = (keys.get(&scope)?, blobs.read(&file)?);
                        let damaged = |source| StoreError::Unseal {
                            path: blobs.path(&file),
                            source,
                        };
                        let plain = match open_piece(&key, &scope, PURPOSE, sealed) {
                            Err(StoreError::Unseal { source, .. }) => return Err(damaged(source)),
                            opened => opened?,
                        };
                        serde_json::from_slice(&plain).map_err(|_| damaged(UnsealError::Content))
                    };
                    found.push((state.clone(), read()));
                }
            }
            Ok(found)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

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

        let pieces = pieces(&home);
        assert_eq!(pieces.len(), 3);
        fs::write(&pieces[0], "damaged").unwrap();
        forget("DELETE FROM hidden").await;
        forget("DELETE FROM state_index_secret").await;
        let unread = store.rebuild().await.unwrap().notes_unread;
        let named = format!("could not read `{}`", pieces[0].display());
        assert_eq!(unread[0].1.to_string(), named);
        // Nobody knows what is secret: all is.
        let shown = async || store.hidden_list_to_show(&state, None).await.unwrap();
        assert!(shown().await.contains(&Place::everything()));
        let kept = store.hidden_list(&state, None).await.unwrap();
        assert!(!kept.contains(&Place::everything()), "it is no place");
        fs::remove_file(&pieces[0]).unwrap();
        assert!(store.rebuild().await.unwrap().notes_unread.is_empty());
        assert!(!shown().await.contains(&Place::everything()));
    }

    fn pieces(home: &TestHome) -> Vec<PathBuf> {
        let dir = home.path().join("home/notes");
        let dir = fs::read_dir(dir).unwrap().next().unwrap().unwrap().path();
        let pieces = fs::read_dir(dir).unwrap().flatten();
        pieces.map(|piece| piece.path()).collect()
    }

    /// Also of a home from before there were notes.
    #[tokio::test]
    async fn what_only_the_tables_know_is_named_and_written_down() {
        let home = TestHome::new();
        let (store, state) = (home.open().await, network());
        append(&store, state.clone(), body(1)).await.unwrap();
        let places = BTreeSet::from([Place::value("output.url", "a")]);
        store.hidden_add(&state, &places).await.unwrap();
        let brought = [Secret::new("from-elsewhere")];
        let added = store.state_index_secrets_add(&state, BROUGHT, &brought);
        added.await.unwrap();
        let wrong = async || {
            let verified = store.state_verify(None).await.unwrap();
            let damages = verified
                .damages
                .iter()
                .map(|it| (it.is_note, it.is_not_noted()));
            damages.collect::<Vec<_>>()
        };
        assert_eq!(wrong().await, []);
        let before = pieces(&home);
        fs::write(&before[0], "damaged").unwrap();
        fs::remove_file(&before[1]).unwrap();
        // One does not open, and neither says what it said.
        assert_eq!(wrong().await, [(true, false), (true, true)]);
        assert_eq!(store.notes_complete().await.unwrap(), [state]);
        assert_eq!(wrong().await, []);
        assert_eq!(pieces(&home).len(), 2);
    }
}
