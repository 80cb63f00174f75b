//! The values a run's engine gets: variables from contexts and inputs, environment from contexts. They
//! exist here in memory, in the engine's environment and in one 0600 file, and nowhere else.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use drivers::process::{Environment, engine_environment};
use drivers::secrets::{self, Reference};
use model::config::eval::{self, Values};
use model::digits;
use model::ids::StackName;
use model::masking::Mask;
use model::project::{Input, Needs};
use model::secret::Secret;
use serde_json::{Map, Value};

use super::engine::Caller;
use super::workspace::Scratch;
use super::{Failure, Job};
use crate::outputs;

pub(super) struct Inputs {
    pub(super) variables: Map<String, Value>,
    pub(super) environment: Environment,
    pub(super) mask: Mask,
    hidden: Vec<Secret>,
    /// Keyed: equal values can be recognised, none can be guessed.
    pub(super) digest: String,
    /// Settings of an engine backend, by name.
    pub(super) backend: BTreeMap<String, String>,
}

impl Inputs {
    /// What is masked in all that an engine says: its values, and the key to its state. It is noted, too,
    /// for whoever has to do that in our place.
    pub(super) fn hide(&self, caller: &Caller<'_>, scratch: &Scratch) -> Result<Mask, Failure> {
        scratch.write_hidden(&self.hidden)?;
        let all: Vec<Secret> = self.hidden.iter().chain(caller.token()).cloned().collect();
        Ok(Mask::new(&all))
    }
}

/// Evaluates everything the run needs, in the order in which the stronger overrides the weaker.
pub(super) async fn gather(job: &Job<'_>) -> Result<Inputs, Failure> {
    let spec = job.spec;
    let known = resolve(job).await?;
    let mut environment = engine_environment(job.asker.env(), spec.target.is_open());
    let mut variables = Map::new();
    for context in &spec.contexts {
        for (name, value) in job.asker.passed(context) {
            environment.set(name, value);
        }
        for (name, input) in &context.env {
            let value =
                known.evaluate(input, &format!("`{name}` of context `{}`", context.name))?;
            environment.set_secret(name.clone(), Secret::new(text_of(&value)));
        }
        for (name, input) in &context.vars {
            if spec.variables.contains_key(name) {
                let what = format!("variable `{name}` of context `{}`", context.name);
                variables.insert(name.clone(), known.evaluate(input, &what)?);
            }
        }
    }
    for (name, input) in &spec.stack.inputs {
        let value = known.evaluate(input, &format!("input `{name}`"))?;
        variables.insert(name.clone(), value);
    }
    let backend = match &spec.target.backend {
        model::project::Backend::Terrane => BTreeMap::new(),
        model::project::Backend::Engine { settings, .. } => settings
            .iter()
            .map(|(name, input)| {
                let value = known.evaluate(input, &format!("backend setting `{name}`"))?;
                Ok((name.clone(), text_of(&value)))
            })
            .collect::<Result<_, Failure>>()?,
    };
    for (name, declared) in &spec.variables {
        if let (true, Some(value)) = (declared.sensitive, variables.get(name)) {
            known.hide(value);
        }
    }
    let canonical = Value::Object(variables.clone()).to_string();
    let digest = job
        .control
        .store
        .keyed_digest("inputs", canonical.into_bytes())
        .await
        .map_err(|err| Failure::because("could not digest the inputs", &err))?;
    let hidden = known.hidden.into_inner();
    Ok(Inputs {
        variables,
        environment,
        mask: Mask::new(&hidden),
        hidden,
        digest,
        backend,
    })
}

/// Values from elsewhere, fetched before evaluation, which itself touches nothing.
struct Known<'a> {
    env: &'a BTreeMap<String, String>,
    outputs: BTreeMap<StackName, BTreeMap<String, (Value, bool)>>,
    secrets: BTreeMap<String, Secret>,
    hidden: RefCell<Vec<Secret>>,
}

impl Known<'_> {
    fn evaluate(&self, input: &Input, what: &str) -> Result<Value, Failure> {
        let evaluated = eval::evaluate(input, self)
            .map_err(|err| Failure::because(&format!("could not work out {what}"), &err))?;
        if evaluated.sensitive {
            self.hide(&evaluated.value);
        }
        Ok(evaluated.value)
    }

    /// Every text and number in a sensitive value is masked wherever it turns up.
    fn hide(&self, value: &Value) {
        match value {
            Value::String(text) => self.hidden.borrow_mut().push(Secret::new(text)),
            Value::Array(items) => items.iter().for_each(|item| self.hide(item)),
            Value::Object(fields) => fields.values().for_each(|field| self.hide(field)),
            Value::Number(number) => {
                let digits = number.to_string();
                self.hidden.borrow_mut().push(Secret::new(digits));
            }
            Value::Null | Value::Bool(_) => {}
        }
    }
}

impl Values for Known<'_> {
    fn output(&self, stack: &StackName, key: &str) -> Option<(Value, bool)> {
        self.outputs.get(stack)?.get(key).cloned()
    }

    fn env(&self, name: &str) -> Option<String> {
        self.env.get(name).cloned()
    }

    fn secret(&self, reference: &str) -> Option<Secret> {
        self.secrets.get(reference).cloned()
    }
}

async fn resolve<'a>(job: &Job<'a>) -> Result<Known<'a>, Failure> {
    let spec = job.spec;
    let mut known = Known {
        env: job.asker.env(),
        outputs: BTreeMap::new(),
        secrets: BTreeMap::new(),
        hidden: RefCell::new(Vec::new()),
    };
    let inputs = spec.stack.inputs.values();
    let contexts = spec
        .contexts
        .iter()
        .flat_map(|context| context.env.values().chain(context.vars.values()));
    for input in inputs.chain(contexts) {
        let Input::Expression(expression) = input else {
            continue;
        };
        let Needs {
            outputs,
            secrets,
            env: _,
            env_if_set: _,
        } = &expression.needs;
        for (stack, _) in outputs {
            if !known.outputs.contains_key(stack) {
                let Some(state) = spec.output_states.get(stack) else {
                    continue;
                };
                let found = outputs::of_state(job.control, &state.name, state.is_ours).await;
                let values = found.map_err(|err| {
                    Failure::because(&format!("could not read the outputs of `{stack}`"), &err)
                })?;
                let declared = outputs::declared(job.control, stack).await;
                let declared = declared.map_err(|err| {
                    Failure::because(&format!("could not read the outputs of `{stack}`"), &err)
                })?;
                let nulls = declared
                    .into_iter()
                    .map(|name| (name, (Value::Null, false)));
                let stored = values.into_iter();
                let stored = stored.map(|(name, output)| (name, (output.value, output.sensitive)));
                known
                    .outputs
                    .insert(stack.clone(), nulls.chain(stored).collect());
            }
        }
        for reference in secrets {
            if !known.secrets.contains_key(reference) {
                let secret = secret(job, reference).await?;
                known.hidden.borrow_mut().push(secret.clone());
                known.secrets.insert(reference.clone(), secret);
            }
        }
    }
    Ok(known)
}

async fn secret(job: &Job<'_>, reference: &str) -> Result<Secret, Failure> {
    let failed = |err: secrets::SecretError| {
        Failure::because(&format!("could not resolve the secret `{reference}`"), &err)
    };
    match reference.parse::<Reference>().map_err(failed)? {
        Reference::Env(name) => job.asker.env().get(&name).map(Secret::new),
        Reference::File(_) => job.asker.file(reference),
        Reference::Command(words) => {
            let env = engine_environment(job.asker.env(), job.spec.target.is_open());
            let root = Path::new(&job.spec.root);
            return secrets::run_command(&words, root, &env)
                .await
                .map_err(failed);
        }
    }
    .ok_or_else(|| {
        Failure::new(format!(
            "needs the secret `{reference}` from the asker's side"
        ))
        .hint("run the same command again where it is set")
    })
}

/// As an environment variable or a backend setting holds it.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            digits::write(value)
        }
    }
}
