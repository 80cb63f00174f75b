//! Secret paths of versions: found when a version is written, applied when a version is shown.
//!
//! Not here: how they are found and inherited (`model::state::secret_paths`), where they are stored
//! (`store`).

use model::base::ids::RunId;
use model::base::masking::Mask;
use model::base::secret::Secret;
use model::state::resources::{OpaqueState, StateDocument};
use model::state::secret_paths::SecretPaths;
use model::state::{StateName, StateVersion};
use store::{Store, StoreError};

use crate::Control;
use crate::run::logs::hidden_in;

/// The content of a version, with its secret paths marked as sensitive; or why it cannot be read.
pub(crate) async fn document(
    store: &Store,
    version: &StateVersion,
) -> Result<Result<StateDocument, OpaqueState>, StoreError> {
    let (body, paths) = store.state_version_content(version).await?;
    Ok(StateDocument::read(&body).map(|document| document.with_secret_paths(&paths)))
}

/// The values at the secret paths of the newest version. A secret that was changed at its source is still
/// secret, so a run masks the old value too.
pub(crate) async fn earlier_secrets(
    control: &Control,
    state: &StateName,
) -> Result<Vec<Secret>, StoreError> {
    let Some(head) = control.store.state_head(state).await? else {
        return Ok(Vec::new());
    };
    let (body, paths) = control.store.state_version_content(&head).await?;
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    let document = StateDocument::read(&body).ok();
    Ok(document.map_or_else(Vec::new, |document| document.values_at(&paths)))
}

/// The secret paths in the state that an earlier run left. The run's hidden values are known until its
/// directory is cleaned up.
pub(crate) fn of_earlier_run(control: &Control, run: RunId, body: &[u8]) -> SecretPaths {
    let mask: Option<Mask> = hidden_in(&control.home, run);
    mask.map_or_else(SecretPaths::default, |mask| SecretPaths::find(body, &mask))
}
