//! Updates the index of a state: a query reads the versions that are not indexed yet.

use model::state::history::{IndexedObjects, holdings, step};
use model::state::leaves::FORMAT;
use model::state::{StateName, StateVersion};
use serde_json::Value;
use store::Store;

use super::version::{AskStateError, ValueDigests, read_document, store_failed};

/// Indexes new versions. It is idempotent; a second process continues where the first one stopped. If nothing
/// can be written, the index is in memory, for this process only.
pub(super) async fn update(
    store: &Store,
    state: &StateName,
    digests: &ValueDigests,
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
    digests: &ValueDigests,
) -> Result<(), AskStateError> {
    let failed = &store_failed("index", state);
    // Digests made with another key cannot be compared, so the form includes a digest of this key.
    let mark = digests.short(&Value::from("the key of this index"));
    let form = format!("{FORMAT} {mark}");
    'again: loop {
        let begun = store.state_index_begin(state, &form).await;
        let mut done = begun.map_err(failed)?;
        let versions = store.state_version_list(state).await.map_err(failed)?;
        let is_new = |version: &&StateVersion| version.version > done;
        let left: Vec<&StateVersion> = versions.iter().filter(is_new).collect();
        if left.is_empty() {
            return Ok(());
        }
        let mut before = store.state_index_holdings(state).await.map_err(failed)?;
        for version in left {
            let (after, opaque) = match read_document(store, version).await? {
                Ok(document) => (holdings(&document, |value| digests.whole(value)), None),
                // The content is unknown, so the previous content counts as still there.
                Err(opaque) => (IndexedObjects::clone(&before), Some(opaque.to_string())),
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
