//! The gates of a stack, with the values that its state and the asker's environment give them.

use std::collections::BTreeMap;

use model::config::resolve::{self, ResolveError, StageValues};
use model::diagnostic::Location;
use model::gate::{Asked, Gate, RecordKind, SettingError};
use model::masking::Mask;
use model::project::{Project, Stack};
use model::secret::Secret;
use model::stage::Ask;
use model::state::resources::Document;
use serde_json::Value;
use store::StoreError;

use crate::outputs::{self, Output, OutputsError};
use crate::{Control, changesets};

/// What is ready to be looked at.
#[derive(Debug)]
pub struct StackGates {
    pub gates: Vec<Gate>,
    /// Hides what the stack's state marks as sensitive.
    pub mask: Mask,
}

#[derive(Debug, thiserror::Error)]
pub enum StackGatesError {
    #[error("could not read the outputs of the stack")]
    Outputs(#[source] OutputsError),
    #[error("could not read the state of the stack")]
    State(#[source] StoreError),
    /// All that is wrong with the gates, none of which was looked at.
    #[error("the gates of stack `{stack}` cannot be looked at")]
    Settings {
        stack: String,
        problems: Vec<Problem>,
        /// It has no state yet, which explains the rest.
        never_applied: bool,
    },
}

/// One thing that is wrong with a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub message: String,
    pub hint: Option<String>,
    pub at: Location,
}

/// The gates of a stack as it was last applied. `env` is the asker's.
pub async fn of_stack(
    control: &Control,
    project: &Project,
    stack: &Stack,
    env: &BTreeMap<String, String>,
) -> Result<StackGates, StackGatesError> {
    let is_ours = changesets::is_ours(project, &stack.name);
    let outputs = outputs::of_state(control, &stack.state, is_ours).await;
    let outputs = outputs.map_err(StackGatesError::Outputs)?;
    let document = document(control, stack, is_ours).await;
    let document = document.map_err(StackGatesError::State)?;
    let known = Known {
        env,
        outputs,
        document,
    };
    let mut problems = Vec::new();
    let mut blocks = Vec::new();
    for block in &stack.stages.gates {
        match resolve::resolve(block, &known) {
            Ok(resolved) => blocks.extend(resolved),
            Err(err) => problems.push(Problem::unresolved(&block.name, &block.at, &err)),
        }
    }
    let gates = Gate::read_all(&blocks).unwrap_or_else(|wrong| {
        problems.extend(wrong.into_iter().map(Problem::from));
        Vec::new()
    });
    if !problems.is_empty() {
        return Err(StackGatesError::Settings {
            stack: stack.name.to_string(),
            problems,
            never_applied: known.document.is_none() && known.outputs.is_empty(),
        });
    }
    Ok(StackGates {
        gates,
        mask: known.mask(),
    })
}

impl Problem {
    fn unresolved(gate: &str, at: &Location, err: &ResolveError) -> Self {
        let source = std::error::Error::source(err).map(|source| format!(": {source}"));
        Self {
            message: format!("gate `{gate}`: {err}{}", source.unwrap_or_default()),
            hint: None,
            at: at.clone(),
        }
    }
}

impl From<SettingError> for Problem {
    fn from(err: SettingError) -> Self {
        Self {
            message: err.to_string(),
            hint: err.hint,
            at: err.at,
        }
    }
}

struct Known<'a> {
    env: &'a BTreeMap<String, String>,
    outputs: BTreeMap<String, Output>,
    document: Option<Document>,
}

impl Known<'_> {
    fn mask(&self) -> Mask {
        self.document.as_ref().map(Document::mask).unwrap_or_default()
    }
}

impl StageValues for Known<'_> {
    fn output(&self, key: &str) -> Option<(Value, bool)> {
        let output = self.outputs.get(key)?;
        Some((output.value.clone(), output.sensitive))
    }

    fn resource(&self, address: &str) -> Option<(Value, bool)> {
        let mut instances = self.document.as_ref()?.instances.iter();
        let instance = instances.find(|instance| instance.address == address)?;
        let is_sensitive = has_marks(&instance.sensitive);
        Some((instance.attributes.clone(), is_sensitive))
    }

    fn env(&self, name: &str) -> Option<String> {
        self.env.get(name).cloned()
    }

    fn secret(&self, _: &str) -> Option<Secret> {
        None
    }

    /// What changes while a gate waits is asked at each look, not here.
    fn answer(&self, ask: &Ask) -> Option<Value> {
        asked(ask).map(|asked| asked.to_value())
    }
}

/// What a gate asks for itself, at each look.
pub fn asked(ask: &Ask) -> Option<Asked> {
    match ask {
        Ask::Dns { name, record } => Some(Asked::Dns {
            name: name.clone(),
            record: RecordKind::read(record)?,
        }),
        Ask::Kubernetes { object, field } => Some(Asked::Kubernetes {
            object: object.clone(),
            field: field.clone(),
        }),
        Ask::Fact { .. } => None,
    }
}

fn has_marks(marks: &Value) -> bool {
    match marks {
        Value::Bool(mark) => *mark,
        Value::Array(items) => items.iter().any(has_marks),
        Value::Object(fields) => fields.values().any(has_marks),
        Value::Null | Value::Number(_) | Value::String(_) => false,
    }
}

async fn document(
    control: &Control,
    stack: &Stack,
    is_ours: bool,
) -> Result<Option<Document>, StoreError> {
    let state = control.state_name(&stack.state);
    let head = control.store.state_head(&state).await?;
    let Some(head) = head.filter(|head| head.is_copy() != is_ours) else {
        return Ok(None);
    };
    let body = control.store.state_version_read(&head).await?;
    Ok(Document::read(&body).ok())
}
