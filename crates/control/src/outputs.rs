//! The outputs a stack last applied: read from its state where that is ours, from what the engine told
//! us after the last apply where it is not.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use model::state::Output;
use store::{Scope, StateError, UnsealError};

use crate::Control;
use crate::home::make_private;

#[derive(Debug, thiserror::Error)]
pub enum OutputsError {
    #[error("could not read the state `{state}`")]
    State { state: String, source: StateError },
    #[error("could not read the outputs kept for `{state}`")]
    Kept { state: String, source: io::Error },
    #[error("could not open the outputs kept for `{state}`")]
    Open { state: String, source: UnsealError },
    #[error("could not seal the outputs of `{state}`")]
    Seal { state: String, source: store::SealError },
    #[error("could not understand the outputs of `{state}`")]
    Parse { state: String, source: serde_json::Error },
    #[error("the state `{state}` cannot be read: {why}")]
    Opaque { state: String, why: String },
}

/// Empty if it was never applied.
pub async fn of_state(
    control: &Control,
    state: &str,
) -> Result<BTreeMap<String, Output>, OutputsError> {
    let wrong = |source| OutputsError::State { state: state.to_owned(), source };
    if let Some(head) = control.store.state_head(state).await.map_err(wrong)? {
        let body = control.store.state_version_read(&head).await.map_err(wrong)?;
        return model::state::outputs(&body).map_err(|err| OutputsError::Opaque {
            state: state.to_owned(),
            why: err.to_string(),
        });
    }
    kept(control, state)
}

fn kept(control: &Control, state: &str) -> Result<BTreeMap<String, Output>, OutputsError> {
    let path = kept_path(control, state);
    let sealed = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(source) => return Err(OutputsError::Kept { state: state.to_owned(), source }),
    };
    let plain = control
        .store
        .unseal(Scope::Project, &format!("outputs {state}"), &sealed)
        .map_err(|source| OutputsError::Open { state: state.to_owned(), source })?;
    serde_json::from_slice(&plain)
        .map_err(|source| OutputsError::Parse { state: state.to_owned(), source })
}

/// Keeps what `output -json` printed into `printed`, sealed.
pub(crate) fn remember(
    control: &Control,
    state: &str,
    printed: &Path,
) -> Result<(), OutputsError> {
    let wrong = |source| OutputsError::Kept { state: state.to_owned(), source };
    let plain = std::fs::read(printed).map_err(wrong)?;
    let sealed = control
        .store
        .seal(Scope::Project, &format!("outputs {state}"), &plain)
        .map_err(|source| OutputsError::Seal { state: state.to_owned(), source })?;
    let path = kept_path(control, state);
    if let Some(dir) = path.parent() {
        make_private(dir).map_err(wrong)?;
    }
    std::fs::write(path, sealed).map_err(wrong)
}

fn kept_path(control: &Control, state: &str) -> PathBuf {
    control.home.root().join("outputs").join(state)
}
