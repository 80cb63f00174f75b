//! Where the secrets of runs stand in states: noted by who holds them while the state is read and written, heeded by
//! everybody who shows it later, without any secret.
//!
//! A place counts until another value stands there which is none of the run's secrets; for older versions it
//! counts for good. No write fails because of it: what could not be noted is noted with the next one, or by the next plan.

use std::collections::BTreeSet;

use model::ids::RunId;
use model::masking::Mask;
use model::secret::Secret;
use model::state::hidden::Place;
use model::state::resources::{Document, Opaque};
use model::state::{StateName, StateVersion};
use store::{Appended, Store, StoreError};
use tokio::sync::Mutex;

use crate::Control;
use crate::runner::hidden_in;

/// What a version holds, with the places of secrets hidden; or why that cannot be known.
pub(crate) async fn document(
    store: &Store,
    version: &StateVersion,
) -> Result<Result<Document, Opaque>, StoreError> {
    let bytes = store.state_version_bytes(version).await?;
    let hidden = store
        .hidden_list_to_show(&version.state, Some(version.version))
        .await?;
    Ok(Document::read(&bytes).map(|document| document.hiding(&hidden)))
}

/// What stands now where secrets of earlier runs stood: a secret that was changed at its source is one still, in all that
/// an engine says of the state before.
pub(crate) async fn earlier(
    control: &Control,
    state: &StateName,
) -> Result<Vec<Secret>, StoreError> {
    let places = control.store.hidden_list(state, None).await?;
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let head = control.store.state_head_bytes(state).await?;
    let document = head.and_then(|(_, body)| Document::read(&body).ok());
    Ok(document.map_or_else(Vec::new, |document| document.standing_at(&places)))
}

/// Notes where secrets will stand that stand in the state now, for a writer who has none: an address may be another one.
/// As all notes, it fails no write.
pub(crate) async fn follow(store: &Store, state: &StateName, body: &[u8]) {
    let Ok(places) = store.hidden_list(state, Some(0)).await else {
        return;
    };
    if places.is_empty() {
        return;
    }
    let Ok(Some((_, head))) = store.state_head_bytes(state).await else {
        return;
    };
    let Ok(document) = Document::read(&head) else {
        return;
    };
    let mask = Mask::new(&document.standing_at(&places));
    if let Some(hidden) = HiddenPlaces::new(store.clone(), state.clone(), &mask) {
        drop(hidden.note(body).await);
    }
}

/// Notes where the secrets of a run stand in what it could not deliver, as long as it has not been tidied up after.
pub(crate) async fn note_of_run(control: &Control, state: &StateName, run: RunId, body: &[u8]) {
    follow(&control.store, state, body).await;
    let Some(mask) = hidden_in(&control.home, run) else {
        return;
    };
    if let Some(hidden) = HiddenPlaces::new(control.store.clone(), state.clone(), &mask) {
        drop(hidden.note(body).await);
    }
}

/// One run's secrets and one state.
#[derive(Debug)]
pub(crate) struct HiddenPlaces {
    store: Store,
    state: StateName,
    mask: Mask,
    /// Those that are noted; none: not asked yet.
    known: Mutex<Option<BTreeSet<Place>>>,
}

/// Places that something else stands at, once the write is through.
#[derive(Debug, Default)]
pub(crate) struct Ending(BTreeSet<Place>);

impl HiddenPlaces {
    /// None if there is nothing to look for.
    pub(crate) fn new(store: Store, state: StateName, mask: &Mask) -> Option<Self> {
        mask.looks_for_something().then(|| Self {
            store,
            state,
            mask: mask.clone(),
            known: Mutex::default(),
        })
    }

    /// Notes where secrets stand in a version that is there.
    pub(crate) async fn note(&self, body: &[u8]) -> Result<(), StoreError> {
        if self.mask.may_be_in(body)
            && let Ok(document) = Document::read(body)
        {
            self.add(&document).await?;
        }
        Ok(())
    }

    /// Notes where secrets will stand, before they do; says which places will hold none any more.
    pub(crate) async fn note_change(&self, body: &[u8]) -> Ending {
        self.try_note_change(body).await.unwrap_or_default()
    }

    async fn try_note_change(&self, body: &[u8]) -> Result<Ending, StoreError> {
        let has_secrets = self.mask.may_be_in(body);
        if !has_secrets && self.known().await?.is_empty() {
            return Ok(Ending::default());
        }
        let Ok(after) = Document::read(body) else {
            return Ok(Ending::default());
        };
        let found = self.add(&after).await?;
        let mut left = &self.known().await? - &found;
        if left.is_empty() {
            return Ok(Ending::default());
        }
        let Some((_, before)) = self.store.state_head_bytes(&self.state).await? else {
            return Ok(Ending::default());
        };
        let Ok(before) = Document::read(&before) else {
            return Ok(Ending::default());
        };
        // What this run does not know may be a secret of another: only what changes is a secret no more.
        left.retain(|place| {
            if place.path.is_none() {
                return !after.has_entry(place);
            }
            let old = before.at(place);
            after.at(place).iter().all(|value| !old.contains(value))
        });
        Ok(Ending(left))
    }

    pub(crate) async fn settle(&self, ending: Ending, appended: &Appended) {
        let Appended::New(version) = appended else {
            return;
        };
        if ending.0.is_empty() {
            return;
        }
        let ended = self
            .store
            .hidden_end(&self.state, &ending.0, version.version)
            .await;
        if ended.is_ok() {
            *self.known.lock().await = None;
        }
    }

    async fn add(&self, document: &Document) -> Result<BTreeSet<Place>, StoreError> {
        let found = document.places(&self.mask);
        let new = &found - &self.known().await?;
        if !new.is_empty() {
            self.store.hidden_add(&self.state, &new).await?;
            if let Some(known) = &mut *self.known.lock().await {
                known.extend(new);
            }
        }
        Ok(found)
    }

    async fn known(&self) -> Result<BTreeSet<Place>, StoreError> {
        let mut known = self.known.lock().await;
        if let Some(known) = &*known {
            return Ok(known.clone());
        }
        let listed = self.store.hidden_list(&self.state, None).await?;
        *known = Some(listed.clone());
        Ok(listed)
    }
}
