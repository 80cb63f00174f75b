//! The outputs a stack last applied: read from its state where that is ours, from what the engine told
//! us after the last apply where it is not.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use model::digits;
use model::ids::StackName;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use store::{ChangeSetError, Scope, StoreError};

use crate::Control;
use crate::home::make_private;

#[derive(Debug, thiserror::Error)]
pub enum OutputsError {
    #[error("could not read the state `{state}`")]
    State { state: String, source: StoreError },
    #[error("could not read what was last applied of stack `{stack}`")]
    History {
        stack: StackName,
        source: ChangeSetError,
    },
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
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// As `model::digits` reads it: no digit is lost on the way to a dependent.
    pub value: Value,
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
            Ok((name, exact(state, &output.value, output.sensitive)?))
        };
        return known.into_iter().map(read).collect();
    }
    Ok(BTreeMap::new())
}

/// The outputs that a stack declared when all of it was last as its source says. One of them that its
/// state does not hold is null: engines store no null.
pub(crate) async fn declared(
    control: &Control,
    stack: &StackName,
) -> Result<BTreeSet<String>, OutputsError> {
    let last = control.store.run_last_settled(stack).await;
    let last = last.map_err(|source| OutputsError::History {
        stack: stack.clone(),
        source,
    })?;
    let last = last.filter(|spec| !spec.destroy && !spec.refresh_only);
    Ok(last.map(|spec| spec.outputs).unwrap_or_default())
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
    let kept: BTreeMap<String, Kept> =
        serde_json::from_slice(&plain).map_err(|source| OutputsError::Parse {
            state: state.to_owned(),
            source,
        })?;
    kept.into_iter()
        .map(|(name, kept)| Ok((name, exact(state, &kept.value, kept.sensitive)?)))
        .collect()
}

/// As `output -json` prints it.
#[derive(Deserialize)]
struct Kept {
    value: Box<RawValue>,
    #[serde(default)]
    sensitive: bool,
}

fn exact(state: &str, value: &RawValue, sensitive: bool) -> Result<Output, OutputsError> {
    let value = digits::read(value.get()).map_err(|source| OutputsError::Parse {
        state: state.to_owned(),
        source,
    })?;
    Ok(Output { value, sensitive })
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
    write_durably(&path, &sealed).map_err(wrong)
}

/// Whole or not at all, and still there after a crash: dependents have no other source.
fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    make_private(dir)?;
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    io::Write::write_all(&mut file, bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    std::fs::File::open(dir)?.sync_all()
}

fn kept_path(control: &Control, state: &str) -> PathBuf {
    control.home.work().join("outputs").join(state)
}
