//! The outputs that a stack last applied: from its state in terrane's backend, else from the newest copy of
//! its state. For a state that the client encrypts, the engine reported them to a run.

use std::collections::{BTreeMap, BTreeSet};

use model::base::error::{Explain, NextStep, advice};
use model::base::exact_number;
use model::base::ids::StackName;
use model::base::masking::Mask;
use model::run::OutputState;
use model::state::resources::StateDocument;
use model::state::secret_paths::SecretPaths;
use model::state::{Contents, StateVersion};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use store::{ChangeSetError, StoreError};

use crate::Control;
use crate::state::secret_paths;

#[derive(Debug, thiserror::Error)]
pub enum OutputsError {
    #[error("could not read the state `{state}`")]
    State { state: String, source: StoreError },
    #[error("cannot read the last apply of stack `{stack}`")]
    History {
        stack: StackName,
        source: ChangeSetError,
    },
    #[error("cannot parse the outputs of `{state}`")]
    Parse {
        state: String,
        source: serde_json::Error,
    },
    #[error("cannot read the state `{state}`: {why}")]
    Opaque { state: String, why: String },
    #[error("the engine has encrypted the state `{state}`, and its outputs were not read yet")]
    Encrypted { state: String },
}

impl Explain for OutputsError {
    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::Encrypted { .. } => {
                vec![advice("a plan of that stack reads them through the engine")]
            }
            _ => Vec::new(),
        }
    }
}

/// One output as a value for computations.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputValue {
    /// As `model::base::exact_number` reads it: numbers keep all digits on the way to a dependent.
    pub value: Value,
    pub sensitive: bool,
}

/// The outputs of a state; empty if it was never applied. `is_ours`: the state is now in terrane's own
/// backend. Versions from a time when it was elsewhere do not count, and vice versa.
pub async fn of_state(
    control: &Control,
    state: &str,
    is_ours: bool,
) -> Result<BTreeMap<String, OutputValue>, OutputsError> {
    let wrong = |source| OutputsError::State {
        state: state.to_owned(),
        source,
    };
    let name = control.state_name(state);
    let head = control.store.state_head(&name).await;
    match head.map_err(wrong)? {
        Some(head) if head.is_copy() != is_ours => of_version(control, &head).await,
        _ => Ok(BTreeMap::new()),
    }
}

/// Maximum number of versions to search; a destroy writes one every few seconds.
const BACK: usize = 200;

/// The last outputs of a state, and the state that contained them, if everything is destroyed now.
pub(crate) async fn before_destroy(
    control: &Control,
    state: &str,
    is_ours: bool,
) -> Result<Option<(BTreeMap<String, OutputValue>, Option<StateDocument>)>, OutputsError> {
    let wrong = |source| OutputsError::State {
        state: state.to_owned(),
        source,
    };
    let versions = control
        .store
        .state_version_list(&control.state_name(state))
        .await;
    let mut versions = versions.map_err(wrong)?;
    versions.retain(|version| version.is_copy() != is_ours && may_have_outputs(version.contents));
    versions.sort_by_key(|version| std::cmp::Reverse(version.version));
    for version in versions.iter().take(BACK) {
        let outputs = match of_version(control, version).await {
            Err(OutputsError::Encrypted { .. }) => continue, // an intermediate version that no run has read
            outputs => outputs?,
        };
        if !outputs.is_empty() {
            let document = secret_paths::document(&control.store, version).await;
            return Ok(Some((outputs, document.map_err(wrong)?.ok())));
        }
    }
    Ok(None)
}

fn may_have_outputs(contents: Contents) -> bool {
    match contents {
        Contents::Encrypted | Contents::Resources | Contents::OutputsOnly => true,
        Contents::Nothing => false,
    }
}

/// The outputs in one version of a state. An output that contains a secret is sensitive, whatever the module
/// declares.
pub(crate) async fn of_version(
    control: &Control,
    version: &StateVersion,
) -> Result<BTreeMap<String, OutputValue>, OutputsError> {
    let state = &version.state.name;
    let opened = opened(control, version).await?;
    let content = control.store.state_version_content(version).await;
    let (body, paths) = content.map_err(|source| OutputsError::State {
        state: state.clone(),
        source,
    })?;
    let body = opened.as_ref().unwrap_or(&body);
    let known = model::state::outputs(body).map_err(|err| OutputsError::Opaque {
        state: state.clone(),
        why: err.to_string(),
    })?;
    let read = |(name, output): (String, model::state::StateOutput)| {
        let sensitive = output.sensitive || paths.has_output(&name);
        Ok((name, exact(state, &output.value, sensitive)?))
    };
    known.into_iter().map(read).collect()
}

/// The outputs that a run read through the engine from a client-encrypted version; `None` if the version is
/// not encrypted.
async fn opened(
    control: &Control,
    version: &StateVersion,
) -> Result<Option<Vec<u8>>, OutputsError> {
    if version.contents != Contents::Encrypted {
        return Ok(None);
    }
    let state = version.state.name.clone();
    match control.store.outputs_get(version).await {
        Ok(Some(body)) => Ok(Some(body)),
        Ok(None) => Err(OutputsError::Encrypted { state }),
        Err(source) => Err(OutputsError::State { state, source }),
    }
}

/// Whether a run has to read the outputs of this version through the engine.
pub(crate) async fn are_unread(
    control: &Control,
    version: &StateVersion,
) -> Result<bool, OutputsError> {
    match opened(control, version).await {
        Ok(_) => Ok(false),
        Err(OutputsError::Encrypted { .. }) => Ok(true),
        Err(err) => Err(err),
    }
}

/// Stores the result of the engine's `output -json` for a client-encrypted version. An output that contains a
/// secret of the run is stored as sensitive.
pub(crate) async fn keep_opened(
    control: &Control,
    version: &StateVersion,
    said: &[u8],
    mask: &Mask,
) -> Result<(), OutputsError> {
    let state = || version.state.name.clone();
    let unclear = |source| OutputsError::Parse {
        state: state(),
        source,
    };
    let mut outputs: BTreeMap<String, EngineOutput<'_>> =
        serde_json::from_slice(said).map_err(unclear)?;
    let body = as_state(&outputs).map_err(unclear)?;
    let paths = SecretPaths::find(&body, mask);
    for (name, output) in &mut outputs {
        output.sensitive |= paths.has_output(name);
    }
    let body = as_state(&outputs).map_err(unclear)?;
    let kept = control.store.outputs_keep(version, body).await;
    kept.map_err(|source| OutputsError::State {
        state: state(),
        source,
    })
}

fn as_state(outputs: &BTreeMap<String, EngineOutput<'_>>) -> serde_json::Result<Vec<u8>> {
    #[derive(Serialize)]
    struct State<'a> {
        version: u32,
        outputs: &'a BTreeMap<String, EngineOutput<'a>>,
    }
    let version = 4;
    serde_json::to_vec(&State { version, outputs })
}

/// One output in the format of the engine's `output -json`.
#[derive(Deserialize, Serialize)]
struct EngineOutput<'a> {
    #[serde(default)]
    sensitive: bool,
    #[serde(borrow, rename = "type")]
    value_type: &'a RawValue,
    #[serde(borrow)]
    value: &'a RawValue,
}

/// The outputs of a stack as its dependents see them: a declared output that is not in its state is null.
pub(crate) async fn with_nulls(
    control: &Control,
    stack: &StackName,
    state: &OutputState,
) -> Result<BTreeMap<String, OutputValue>, OutputsError> {
    let stored = of_state(control, &state.name, state.is_ours).await?;
    let null = OutputValue {
        value: Value::Null,
        sensitive: false,
    };
    let nulls = declared(control, stack, state)
        .await?
        .into_iter()
        .map(|name| (name, null.clone()));
    Ok(nulls.chain(stored).collect())
}

/// The outputs that a stack declared when it last completely matched its source. One that its state lacked
/// then is null, because engines store no null. One that was in the state then and is not now was removed,
/// for example by a partial destroy.
async fn declared(
    control: &Control,
    stack: &StackName,
    state: &OutputState,
) -> Result<BTreeSet<String>, OutputsError> {
    let settled = control
        .store
        .run_settled_outputs(control.home.project(), stack)
        .await;
    let settled = settled.map_err(|source| OutputsError::History {
        stack: stack.clone(),
        source,
    })?;
    let Some(settled) = settled else {
        return Ok(BTreeSet::new());
    };
    let wrong = |source| OutputsError::State {
        state: state.name.clone(),
        source,
    };
    let (store, name) = (&control.store, control.state_name(&state.name));
    let is_of_then = |version: &StateVersion| {
        if state.is_ours {
            i64::try_from(version.serial).ok() == settled.serial
        } else {
            // A copy is stored when it is first seen.
            version.is_copy() && version.created_at <= settled.at
        }
    };
    let head = store.state_head(&name).await.map_err(wrong)?;
    if head.as_ref().is_none_or(is_of_then) {
        return Ok(settled.outputs);
    }
    let versions = store.state_version_list(&name).await.map_err(wrong)?;
    let then = versions.iter().filter(|version| is_of_then(version));
    let Some(then) = then.max_by_key(|version| version.version) else {
        return Ok(BTreeSet::new()); // no longer known
    };
    let held = of_version(control, then).await?;
    let mut nulls = settled.outputs;
    nulls.retain(|output| !held.contains_key(output));
    Ok(nulls)
}

fn exact(state: &str, value: &RawValue, sensitive: bool) -> Result<OutputValue, OutputsError> {
    let value = exact_number::read(value.get()).map_err(|source| OutputsError::Parse {
        state: state.to_owned(),
        source,
    })?;
    Ok(OutputValue { value, sensitive })
}
