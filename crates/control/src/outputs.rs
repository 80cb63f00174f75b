//! The outputs a stack last applied: read from its state where that is ours, from what the engine told
//! us after the last apply where it is not.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;
use store::{Scope, StoreError};

use crate::Control;
use crate::home::make_private;

#[derive(Debug, thiserror::Error)]
pub enum OutputsError {
    #[error("could not read the state `{state}`")]
    State { state: String, source: StoreError },
    #[error("could not read the outputs kept for `{state}`")]
    Kept { state: String, source: io::Error },
    #[error("could not open the outputs kept for `{state}`")]
    Open { state: String, source: StoreError },
    #[error("could not seal the outputs of `{state}`")]
    Seal { state: String, source: StoreError },
    #[error("could not understand the outputs of `{state}`")]
    Parse {
        state: String,
        source: serde_json::Error,
    },
    #[error("the state `{state}` cannot be read: {why}")]
    Opaque { state: String, why: String },
}

/// One output, in a form that can be computed with.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Output {
    pub value: Value,
    #[serde(default)]
    pub sensitive: bool,
}

/// Empty if it was never applied. `is_ours`: the state is in terrane's own backend now, wherever it may
/// have been before.
pub async fn of_state(
    control: &Control,
    state: &str,
    is_ours: bool,
) -> Result<BTreeMap<String, Output>, OutputsError> {
    if !is_ours {
        return kept(control, state).await;
    }
    let wrong = |source| OutputsError::State {
        state: state.to_owned(),
        source,
    };
    if let Some(head) = control
        .store
        .state_head(&control.state_name(state))
        .await
        .map_err(wrong)?
    {
        let body = control
            .store
            .state_version_read(&head)
            .await
            .map_err(wrong)?;
        let known = model::state::outputs(&body).map_err(|err| OutputsError::Opaque {
            state: state.to_owned(),
            why: err.to_string(),
        })?;
        let read = |(name, output): (String, model::state::Output)| {
            let value =
                serde_json::from_str(output.value.get()).map_err(|source| OutputsError::Parse {
                    state: state.to_owned(),
                    source,
                })?;
            Ok((
                name,
                Output {
                    value,
                    sensitive: output.sensitive,
                },
            ))
        };
        return known.into_iter().map(read).collect();
    }
    Ok(BTreeMap::new())
}

async fn kept(control: &Control, state: &str) -> Result<BTreeMap<String, Output>, OutputsError> {
    let path = kept_path(control, state);
    let sealed = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(source) => {
            return Err(OutputsError::Kept {
                state: state.to_owned(),
                source,
            });
        }
    };
    let plain = control
        .store
        .unseal(Scope::Project, &format!("outputs {state}"), sealed)
        .await
        .map_err(|source| OutputsError::Open {
            state: state.to_owned(),
            source,
        })?;
    serde_json::from_slice(&plain).map_err(|source| OutputsError::Parse {
        state: state.to_owned(),
        source,
    })
}

/// Keeps what `output -json` printed into `printed`, sealed.
pub(crate) async fn remember(
    control: &Control,
    state: &str,
    printed: &Path,
) -> Result<(), OutputsError> {
    let wrong = |source| OutputsError::Kept {
        state: state.to_owned(),
        source,
    };
    let plain = std::fs::read(printed).map_err(wrong)?;
    let sealed = control
        .store
        .seal(Scope::Project, &format!("outputs {state}"), plain)
        .await
        .map_err(|source| OutputsError::Seal {
            state: state.to_owned(),
            source,
        })?;
    let path = kept_path(control, state);
    if let Some(dir) = path.parent() {
        make_private(dir).map_err(wrong)?;
    }
    std::fs::write(path, sealed).map_err(wrong)
}

fn kept_path(control: &Control, state: &str) -> PathBuf {
    control.home.work().join("outputs").join(state)
}
