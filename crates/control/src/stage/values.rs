//! The values of the blocks that run after a stack's apply: outputs, resources, the requester's environment,
//! secrets, and results of queries such as published facts.
//!
//! Not here: what a block then does (`facts`, `bootstrap`, `gates`), when (`runner`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use drivers::process::Environment;
use drivers::secrets::{self, SecretError, SecretReference};
use model::base::exact_number;
use model::base::masking::{Mask, is_short};
use model::base::secret::{Secret, is_secret_variable};
use model::hcl::expression::ExternalQuery;
use model::hcl::expression::Input;
use model::hcl::stored_expression::{self, EvaluateError};
use model::project::config::resolve::{self, ResolveError, StageValues};
use model::project::{Context, Stack};
use model::stage::{ResolvedBlock, StageBlock, inputs};
use model::state::resources::StateDocument;
use serde_json::Value;
use store::StoreError;

use crate::Control;
use crate::secrets::caller_env::CallerEnv;
use crate::state::outputs::{self, OutputValue, OutputsError};
use crate::state::secret_paths;

/// Everything a stack's blocks may refer to. No `Debug`: it holds secrets.
pub struct StackValues {
    outputs: BTreeMap<String, OutputValue>,
    document: Option<StateDocument>,
    env: BTreeMap<String, String>,
    secrets: BTreeMap<String, Secret>,
    /// Secrets in the requester's environment.
    named: Vec<Secret>,
    answers: BTreeMap<ExternalQuery, Value>,
    /// Why a query has no answer.
    unanswered: BTreeMap<ExternalQuery, String>,
}

/// The requester whose environment and secrets are used, and the project.
pub struct CallerContext<'a> {
    pub asker: &'a CallerEnv,
    /// The project's root.
    pub root: &'a Path,
    /// The environment of programs that print a secret.
    pub env: &'a Environment,
}

#[derive(Debug, thiserror::Error)]
pub enum StageValuesError {
    #[error("cannot read the outputs of stack `{stack}`")]
    Outputs {
        stack: String,
        source: Box<OutputsError>,
    },
    #[error("cannot read the state of stack `{stack}`")]
    State { stack: String, source: StoreError },
    #[error("cannot resolve the secret `{reference}`")]
    Secret {
        reference: String,
        source: Box<SecretError>,
    },
    #[error("the secret `{reference}` must come from the user or job that made the request")]
    SecretElsewhere { reference: String },
    #[error("cannot evaluate {what}")]
    Context {
        what: String,
        source: Box<EvaluateError>,
    },
}

/// The environment of programs that work for a stack after its apply: gates, credential plugins of sinks.
#[derive(Clone, Debug)]
pub struct StageEnvironment {
    pub env: Environment,
    /// Secrets in it that must not be shown.
    pub hidden: Vec<Secret>,
}

impl StageEnvironment {
    /// The environment of `side` with the variables of the stack's contexts.
    pub async fn read(
        contexts: &[Context],
        side: &CallerContext<'_>,
    ) -> Result<Self, StageValuesError> {
        let mut values = StackValues::of_nothing(side);
        let inputs = contexts.iter().flat_map(|context| context.env.values());
        values.add_secrets(inputs, side).await?;
        let hidden: RefCell<Vec<Secret>> = RefCell::new(values.secrets.values().cloned().collect());
        let hide = |secret| hidden.borrow_mut().push(secret);
        let evaluate = |input: &Input, what: &str| -> Result<Value, StageValuesError> {
            let found = stored_expression::evaluate(input, &values);
            let found = found.map_err(|source| StageValuesError::Context {
                what: what.to_owned(),
                source: Box::new(source),
            })?;
            if found.sensitive {
                texts(&found.value, &mut hidden.borrow_mut());
            }
            Ok(found.value)
        };
        let env = with_contexts(side.env.clone(), contexts, side.asker, hide, evaluate)?;
        Ok(Self {
            env,
            hidden: hidden.into_inner(),
        })
    }

    /// Without any context.
    pub(crate) fn bare(env: Environment) -> Self {
        Self {
            env,
            hidden: Vec::new(),
        }
    }
}

/// Adds the variables of contexts to an environment; a later context overrides an earlier one.
pub(crate) fn with_contexts<E>(
    mut env: Environment,
    contexts: &[Context],
    asker: &CallerEnv,
    hide: impl Fn(Secret),
    evaluate: impl Fn(&Input, &str) -> Result<Value, E>,
) -> Result<Environment, E> {
    for context in contexts {
        for (name, value) in asker.passed(context) {
            if is_secret_variable(name) {
                hide(Secret::new(value));
            }
            env.set(name, value);
        }
        for (name, input) in &context.env {
            let value = evaluate(input, &format!("`{name}` of context `{}`", context.name))?;
            env.set_secret(name.clone(), Secret::new(text_of(&value)));
        }
    }
    Ok(env)
}

/// The text of a value in an environment variable or a backend setting.
pub(crate) fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            exact_number::write(value)
        }
    }
}

impl StackValues {
    /// Like [`Self::gather`], with outputs and resources as they were before a destroy.
    pub async fn gather_before_destroy(
        control: &Control,
        stack: &Stack,
        is_ours: bool,
        blocks: &[StageBlock],
        side: &CallerContext<'_>,
    ) -> Result<Self, StageValuesError> {
        let mut values = Self::gather(control, stack, is_ours, blocks, side).await?;
        if values.outputs.is_empty() {
            let before = outputs::before_destroy(control, &stack.state, is_ours).await;
            let before = before.map_err(|source| StageValuesError::Outputs {
                stack: stack.name.to_string(),
                source: Box::new(source),
            })?;
            if let Some((outputs, document)) = before {
                values.outputs = outputs;
                values.document = document;
            }
        }
        Ok(values)
    }

    /// Reads the values that the given blocks of a stack may need.
    pub async fn gather(
        control: &Control,
        stack: &Stack,
        is_ours: bool,
        blocks: &[StageBlock],
        side: &CallerContext<'_>,
    ) -> Result<Self, StageValuesError> {
        let name = || stack.name.to_string();
        let outputs = outputs::of_state(control, &stack.state, is_ours).await;
        let outputs = outputs.map_err(|source| StageValuesError::Outputs {
            stack: name(),
            source: Box::new(source),
        })?;
        let document = document(control, stack, is_ours).await;
        let document = document.map_err(|source| StageValuesError::State {
            stack: name(),
            source,
        })?;
        let mut values = Self {
            outputs,
            document,
            ..Self::of_nothing(side)
        };
        values.add_secrets(inputs(blocks).into_iter(), side).await?;
        Ok(values)
    }

    /// Without a stack: only the requester's environment and secrets.
    pub(crate) fn of_nothing(side: &CallerContext<'_>) -> Self {
        Self {
            outputs: BTreeMap::new(),
            document: None,
            env: side.asker.env().clone(),
            secrets: BTreeMap::new(),
            named: side.asker.named_secrets().collect(),
            answers: BTreeMap::new(),
            unanswered: BTreeMap::new(),
        }
    }

    /// Also reads the secrets that these values need.
    pub async fn add_secrets<'i>(
        &mut self,
        inputs: impl Iterator<Item = &'i Input>,
        side: &CallerContext<'_>,
    ) -> Result<(), StageValuesError> {
        for input in inputs {
            let Input::Expression(expression) = input else {
                continue;
            };
            for reference in &expression.needs.secrets {
                if !self.secrets.contains_key(reference) {
                    let secret = secret(reference, side).await?;
                    self.secrets.insert(reference.clone(), secret);
                }
            }
        }
        Ok(())
    }

    /// References of secrets that are too short or too common to be masked.
    pub(crate) fn short(&self) -> impl Iterator<Item = &str> {
        let short = self.secrets.iter().filter(|(_, secret)| is_short(secret));
        short.map(|(reference, _)| reference.as_str())
    }

    pub fn outputs(&self) -> &BTreeMap<String, OutputValue> {
        &self.outputs
    }

    pub fn answer_with(&mut self, ask: ExternalQuery, value: Value) {
        self.answers.insert(ask, value);
    }

    /// Records why a query has no answer.
    pub fn leave_unanswered(&mut self, ask: ExternalQuery, why: String) {
        self.unanswered.insert(ask, why);
    }

    pub fn unanswered(&self, ask: &ExternalQuery) -> Option<&str> {
        self.unanswered.get(ask).map(String::as_str)
    }

    /// The blocks with their values; `Asks` names the queries that must be answered first.
    pub fn resolve(&self, blocks: &[StageBlock]) -> Result<Vec<ResolvedBlock>, ResolveError> {
        let mut asks = Vec::new();
        let mut resolved = Vec::new();
        for block in blocks {
            match resolve::resolve(block, self) {
                Ok(blocks) => resolved.extend(blocks),
                Err(ResolveError::Asks { asks: more }) => asks.extend(more),
                Err(err) => return Err(err),
            }
        }
        if asks.is_empty() {
            return Ok(resolved);
        }
        asks.sort();
        asks.dedup();
        Err(ResolveError::Asks { asks })
    }

    /// Masks these secrets, those given, and sensitive outputs.
    pub fn mask(&self, more: &[Secret]) -> Mask {
        let hidden = self.secrets.values().chain(&self.named).chain(more);
        let mut hidden: Vec<Secret> = hidden.cloned().collect();
        for output in self.outputs.values().filter(|output| output.sensitive) {
            texts(&output.value, &mut hidden);
        }
        Mask::new(&hidden)
    }
}

impl StageValues for StackValues {
    fn output(&self, key: &str) -> Option<(Value, bool)> {
        let output = self.outputs.get(key)?;
        Some((output.value.clone(), output.sensitive))
    }

    fn resource(&self, address: &str) -> Option<(Value, bool)> {
        let mut instances = self.document.as_ref()?.instances.iter();
        let instance = instances.find(|instance| instance.address == address)?;
        let marks = instance.entry();
        let is_sensitive = marks.leaves.iter().any(|leaf| leaf.is_sensitive);
        Some((instance.attributes.clone(), is_sensitive))
    }

    fn env(&self, name: &str) -> Option<String> {
        self.env.get(name).cloned()
    }

    fn secret(&self, reference: &str) -> Option<Secret> {
        self.secrets.get(reference).cloned()
    }

    fn answer(&self, ask: &ExternalQuery) -> Option<Value> {
        self.answers.get(ask).cloned()
    }
}

/// The stack's state as a document; none if it cannot be read.
async fn document(
    control: &Control,
    stack: &Stack,
    is_ours: bool,
) -> Result<Option<StateDocument>, StoreError> {
    let state = control.state_name(&stack.state);
    let head = control.store.state_head(&state).await?;
    let Some(head) = head.filter(|head| head.is_copy() != is_ours) else {
        return Ok(None);
    };
    Ok(secret_paths::document(&control.store, &head).await?.ok())
}

async fn secret(reference: &str, side: &CallerContext<'_>) -> Result<Secret, StageValuesError> {
    let failed = |source: SecretError| StageValuesError::Secret {
        reference: reference.to_owned(),
        source: Box::new(source),
    };
    let found = side.asker.secret(reference, side.root, side.env).await;
    if let Some(secret) = found.map_err(failed)? {
        return Ok(secret);
    }
    // A run received its secrets from the requester; other commands read them here.
    let parsed = reference.parse().map_err(failed)?;
    let found = if let SecretReference::Env(_) = parsed {
        None
    } else {
        secrets::read_from_caller(&parsed, side.asker.env(), side.root).map_err(failed)?
    };
    found.ok_or_else(|| StageValuesError::SecretElsewhere {
        reference: reference.to_owned(),
    })
}

/// Collects every string and number in a sensitive value.
fn texts(value: &Value, found: &mut Vec<Secret>) {
    match value {
        Value::String(text) => found.push(Secret::new(text)),
        Value::Array(items) => items.iter().for_each(|item| texts(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| texts(field, found)),
        Value::Number(number) => found.push(Secret::new(number.to_string())),
        Value::Null | Value::Bool(_) => {}
    }
}
