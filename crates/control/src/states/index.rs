//! Brings the index of a state up to date: whoever asks reads the versions that nobody has read yet.

use std::collections::BTreeSet;

use model::secret::Secret;
use model::state::history::{Holdings, holdings, step};
use model::state::leaves::FORMAT;
use model::state::{StateName, StateVersion};
use serde_json::{Value, json};

use super::ask::{AskStateError, Digests, look_into, store_failed};
use crate::Control;

/// Reads what is new. Doing it twice is doing it once; whoever comes second starts from there. Where nothing can be
/// written, it is done for this process alone.
pub(super) async fn update(
    control: &Control,
    state: &StateName,
    digests: &Digests,
) -> Result<(), AskStateError> {
    match try_update(control, state, digests).await {
        Err(AskStateError::Store { source, .. })
            if control.store.state_index_in_memory(&source).await =>
        {
            try_update(control, state, digests).await
        }
        done => done,
    }
}

async fn try_update(
    control: &Control,
    state: &StateName,
    digests: &Digests,
) -> Result<(), AskStateError> {
    let store = &control.store;
    let failed = &store_failed("index", state);
    // Digests of another key are digests of other values.
    let mark = digests.short(&Value::from("the key of this index"));
    'again: loop {
        // What is noted as hidden by now is so in versions that were read before.
        let hidden = store.hidden_list(state, Some(0)).await.map_err(failed)?;
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
        let known = store.state_index_secrets(state).await.map_err(failed)?;
        let digest = |secret: &Secret| digests.whole(&Value::from(secret.expose()));
        let mut known: BTreeSet<String> = known.iter().map(digest).collect();
        for version in left {
            let (after, opaque) = match look_into(control, version).await? {
                Ok(document) => {
                    let mut secrets = document.sensitive_values();
                    secrets.retain(|secret| known.insert(digest(secret)));
                    let kept = store.state_index_secrets_add(version, &secrets);
                    kept.await.map_err(failed)?;
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
pub(super) async fn secrets(
    control: &Control,
    state: &StateName,
    digests: &Digests,
) -> Result<Vec<Secret>, AskStateError> {
    let failed = &store_failed("index", state);
    if update(control, state, digests).await.is_ok() {
        let found = control.store.state_index_secrets(state).await;
        return found.map_err(failed);
    }
    let mut found = Vec::new();
    let versions = control.store.state_version_list(state).await;
    for version in versions.map_err(failed)? {
        if let Ok(Ok(document)) = look_into(control, &version).await {
            found.extend(document.sensitive_values());
        }
    }
    Ok(found)
}
