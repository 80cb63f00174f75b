//! Brings the index of a state up to date: whoever asks reads the versions that nobody has read yet.

use std::collections::BTreeSet;

use model::secret::Secret;
use model::state::history::{Holdings, holdings, step};
use model::state::leaves::FORMAT;
use model::state::resources::Document;
use model::state::{StateName, StateVersion};
use serde_json::{Value, json};
use store::{Store, StoreError};

use super::ask::{AskStateError, Digests, look_into, store_failed};
use crate::hidden;

/// Reads what is new. Doing it twice is doing it once; whoever comes second starts from there. Where nothing can be
/// written, it is done for this process alone.
pub(super) async fn update(
    store: &Store,
    state: &StateName,
    digests: &Digests,
) -> Result<(), AskStateError> {
    match try_update(store, state, digests).await {
        Err(AskStateError::Store { source, .. }) if store.state_index_in_memory(&source).await => {
            try_update(store, state, digests).await
        }
        done => done,
    }
}

async fn try_update(
    store: &Store,
    state: &StateName,
    digests: &Digests,
) -> Result<(), AskStateError> {
    let failed = &store_failed("index", state);
    // Digests of another key are digests of other values.
    let mark = digests.short(&Value::from("the key of this index"));
    'again: loop {
        // What is noted as hidden by now is so in versions that were read before.
        let hidden = store.hidden_list_to_show(state, Some(0)).await;
        let hidden = hidden.map_err(failed)?;
        let hidden = digests.short(&json!(hidden));
        let form = format!("{FORMAT} {mark} {hidden}");
        let mut done = store
            .state_index_begin(state, &form)
            .await
            .map_err(failed)?;
        let versions = store.state_version_list(state).await.map_err(failed)?;
        let is_new = |version: &&StateVersion| version.version > done;
        let left: Vec<&StateVersion> = versions.iter().filter(is_new).collect();
        if left.is_empty() {
            return Ok(());
        }
        let mut before = store.state_index_holdings(state).await.map_err(failed)?;
        let mut known = Known::of(store, state, digests).await.map_err(failed)?;
        for version in left {
            let (after, opaque) = match look_into(store, version).await? {
                Ok(document) => {
                    let learned = known.learn(version, &document).await;
                    learned.map_err(failed)?;
                    (holdings(&document, |value| digests.whole(value)), None)
                }
                // Nothing is known: what was there before counts as still there.
                Err(opaque) => (Holdings::clone(&before), Some(opaque.to_string())),
            };
            let did = step(&before, &after);
            let opaque = opaque.as_deref();
            let added = store.state_index_add(state, done, version.version, &did, &after, opaque);
            if !added.await.map_err(failed)? {
                continue 'again;
            }
            done = version.version;
            before = after;
        }
    }
}

/// What was sensitive in any version, whatever its place holds now. A version that is damaged hides no other.
pub(crate) async fn secrets(
    store: &Store,
    state: &StateName,
    digests: &Digests,
) -> Result<Vec<Secret>, AskStateError> {
    let failed = &store_failed("index", state);
    let updated = update(store, state, digests).await;
    let mut found = store.state_index_secrets(state).await.map_err(failed)?;
    if updated.is_ok() {
        return Ok(found);
    }
    let versions = store.state_version_list(state).await;
    for version in versions.map_err(failed)? {
        if let Ok(Ok(document)) = look_into(store, &version).await {
            found.extend(document.sensitive_values());
        }
    }
    Ok(found)
}

/// Learns what is sensitive in versions before they go, though nobody may ever have asked about them. Says which of them
/// are read; one that is damaged beyond reading counts as such.
pub(super) async fn learn_before_they_go(
    store: &Store,
    state: &StateName,
    versions: &[StateVersion],
    digests: &Digests,
) -> Result<BTreeSet<i64>, StoreError> {
    let mut known = Known::of(store, state, digests).await?;
    let (mut read, mut sensitive) = (BTreeSet::new(), Vec::new());
    for version in versions {
        match hidden::document(store, version).await {
            Ok(Ok(document)) => {
                sensitive.extend(document.sensitive_values());
                known.learn(version, &document).await?;
            }
            Ok(Err(_)) | Err(StoreError::Unseal { .. }) => {}
            // Somebody may bring it back, or the key to it.
            Err(_) => continue,
        }
        read.insert(version.version);
    }
    store.notes_keep_secrets(state, &sensitive).await?;
    Ok(read)
}

/// What is known to be sensitive in a state, by digest.
struct Known<'a> {
    store: &'a Store,
    digests: &'a Digests,
    values: BTreeSet<String>,
}

impl<'a> Known<'a> {
    async fn of(
        store: &'a Store,
        state: &StateName,
        digests: &'a Digests,
    ) -> Result<Self, StoreError> {
        let secrets = store.state_index_secrets(state).await?;
        let values = secrets.iter().map(|secret| digest(digests, secret));
        Ok(Self {
            store,
            digests,
            values: values.collect(),
        })
    }

    async fn learn(
        &mut self,
        version: &StateVersion,
        document: &Document,
    ) -> Result<(), StoreError> {
        let mut secrets = document.sensitive_values();
        secrets.retain(|secret| self.values.insert(digest(self.digests, secret)));
        let store = self.store;
        let kept = store.state_index_secrets_add(&version.state, version.version, &secrets);
        kept.await
    }
}

fn digest(digests: &Digests, secret: &Secret) -> String {
    digests.whole(&Value::from(secret.expose()))
}
