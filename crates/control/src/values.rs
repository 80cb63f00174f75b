//! The values that an engine gets for a stack: outputs of other stacks, environment, secrets and contexts. They exist only
//! in memory.
//!
//! Not here: what a run does with them (`runner::inputs`).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io};

use drivers::process::{Environment, engine_environment};
use model::base::ids::StackName;
use model::base::secret::Secret;
use model::hcl::expression::{Input, Needs};
use model::hcl::stored_expression::{self, Values};
use model::plan::PlannedOutput;
use model::plan::placeholders::words;
use model::project::Backend;
use model::project::backend::{BY_ENVIRONMENT, credential_variable, in_clear, one_environment};
use model::run::RunSpec;
use serde_json::{Value, json};

use crate::Control;
use crate::home::OVERRIDE_FILE;
use crate::run::failure::Failure;
use crate::secrets::caller_env::CallerEnv;
use crate::stage::values::{text_of, with_contexts};
use crate::state::outputs;

/// Planned outputs by stack and name. An output that is not in the map is as it was last applied.
#[derive(Debug, Default)]
pub(crate) struct PlannedOutputs(pub(crate) BTreeMap<(StackName, String), PlannedOutput>);

impl PlannedOutputs {
    pub(crate) fn get(&self, stack: &StackName, output: &str) -> Option<&PlannedOutput> {
        self.0.get(&(stack.clone(), output.to_owned()))
    }
}

/// How the engine reaches its backend.
pub(crate) struct BackendValues {
    pub(crate) environment: Environment,
    /// For `-backend-config`, by name.
    pub(crate) settings: BTreeMap<String, String>,
    /// The secrets among these values.
    pub(crate) hidden: Vec<Secret>,
}

/// What a call needs to reach the stack's backend. Inputs of the stack are not evaluated.
pub(crate) async fn for_backend(
    control: &Control,
    spec: &RunSpec,
    asker: &CallerEnv,
) -> Result<BackendValues, Failure> {
    let mut bare = spec.clone();
    bare.stack.inputs.clear();
    for context in &mut bare.contexts {
        context.vars.clear();
        context.files.clear();
        context.hooks.clear();
    }
    let known = resolve(control, &bare, asker, &PlannedOutputs::default()).await?;
    let mut environment = environment(&bare, asker, &known)?;
    let settings = settings(&bare, asker, &known, &mut environment)?;
    Ok(BackendValues {
        environment,
        settings,
        hidden: known.hidden.into_inner(),
    })
}

/// Writes an override file that selects the engine's backend. Everything else is passed by environment or by
/// `-backend-config`. The file is not part of the source's digest.
///
/// The file would replace the module's own block with all its settings. If that block already has the
/// target's backend type, it stays.
pub(crate) fn write_override(dir: &Path, spec: &RunSpec) -> io::Result<()> {
    let path = dir.join(OVERRIDE_FILE);
    let kind = match &spec.target.backend {
        Backend::Terrane => "http",
        Backend::Engine { kind, .. } if spec.own_backend.as_ref() == Some(kind) => {
            return match fs::remove_file(path) {
                Err(err) if err.kind() != io::ErrorKind::NotFound => Err(err),
                _ => Ok(()),
            };
        }
        Backend::Engine { kind, .. } => kind,
    };
    let text = json!({ "terraform": { "backend": { kind: {} } } }).to_string();
    if fs::read_to_string(&path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    fs::write(path, text)
}

pub(crate) fn environment(
    spec: &RunSpec,
    asker: &CallerEnv,
    known: &FetchedValues<'_>,
) -> Result<Environment, Failure> {
    let base = engine_environment(asker.env(), spec.target.is_open());
    let hide = |secret| known.hidden.borrow_mut().push(secret);
    let evaluate = |input: &Input, what: &str| known.evaluate(input, what);
    with_contexts(base, &spec.contexts, asker, hide, evaluate)
}

/// The settings for `-backend-config`. Credentials go into the environment instead.
pub(crate) fn settings(
    spec: &RunSpec,
    asker: &CallerEnv,
    known: &FetchedValues<'_>,
    environment: &mut Environment,
) -> Result<BTreeMap<String, String>, Failure> {
    let Backend::Engine { kind, settings } = &spec.target.backend else {
        return Ok(BTreeMap::new());
    };
    let mut names = BTreeMap::new();
    for (name, input) in settings {
        let value = known.evaluate(input, &format!("backend setting `{name}`"))?;
        if in_clear(kind, name, &value) {
            let failure = Failure::new(format!(
                "a credential in `{name}` of backend `{kind}` would be stored in plain text with each plan"
            ));
            return Err(failure.hint(BY_ENVIRONMENT).refused());
        }
        let text = text_of(&value);
        match credential_variable(kind, name) {
            Some(variable) => {
                known.hidden.borrow_mut().push(Secret::new(&text));
                if let Some(context) = gives_another(spec, asker, known, variable, &text)? {
                    let failure = Failure::new(format!(
                        "`{variable}` has two values: `{name}` of backend `{kind}`, and context `{context}`"
                    ));
                    return Err(failure.hint(one_environment(kind, name)).refused());
                }
                environment.set_secret(variable.to_owned(), Secret::new(text));
            }
            // The engine works in a copy of the source, and the copy is removed.
            None if kind == "local" && name == "path" && !text.starts_with('/') => {
                let failure = Failure::new(format!(
                    "`path` of backend `local` is `{text}`, which would be lost with the engine's copy of the source"
                ));
                return Err(failure.hint("it must begin with `/`").refused());
            }
            None => {
                names.insert(name.clone(), text);
            }
        }
    }
    Ok(names)
}

/// The context whose value for this variable takes effect, if it differs from `value`.
fn gives_another<'a>(
    spec: &'a RunSpec,
    asker: &CallerEnv,
    known: &FetchedValues<'_>,
    variable: &str,
    value: &str,
) -> Result<Option<&'a str>, Failure> {
    let mut found = None;
    for context in &spec.contexts {
        let mut passed = asker.passed(context);
        let given = match context.env.get(variable) {
            Some(input) => {
                let what = format!("`{variable}` of context `{}`", context.name);
                Some(text_of(&known.evaluate(input, &what)?))
            }
            None => passed
                .find(|(name, _)| *name == variable)
                .map(|(_, value)| value.to_owned()),
        };
        // Engines and providers ignore an empty value. CI systems set one if the variable is missing.
        if let Some(given) = given.filter(|given| !given.is_empty()) {
            found = (given != value).then_some(context.name.as_str());
        }
    }
    Ok(found)
}

/// Values from other sources, fetched before evaluation. Evaluation itself reads nothing from outside.
pub(crate) struct FetchedValues<'a> {
    pub(crate) env: &'a BTreeMap<String, String>,
    pub(crate) outputs: BTreeMap<StackName, BTreeMap<String, (Value, bool)>>,
    /// Outputs that are not known before their stack is applied.
    pub(crate) unknown: BTreeSet<(StackName, String)>,
    /// The parts of those outputs that plans contain.
    pub(crate) partly: BTreeMap<(StackName, String), Value>,
    pub(crate) secrets: BTreeMap<String, Secret>,
    pub(crate) hidden: RefCell<Vec<Secret>>,
}

impl FetchedValues<'_> {
    /// The stacks that must be applied before this input has a value.
    pub(crate) fn awaited(&self, input: &Input) -> BTreeSet<StackName> {
        let Input::Expression(expression) = input else {
            return BTreeSet::new();
        };
        let outputs = expression.needs.outputs.intersection(&self.unknown);
        outputs.map(|(stack, _)| stack.clone()).collect()
    }

    /// The known part of an input that is partly unknown. Only for a plain reference to an output or to a
    /// part of it: the result of a function is not known.
    pub(crate) fn partly(&self, input: &Input) -> Option<Value> {
        let Input::Expression(expression) = input else {
            return None;
        };
        let mut outputs = expression.needs.outputs.iter();
        let (Some(one), None) = (outputs.next(), outputs.next()) else {
            return None;
        };
        let value = self.partly.get(one)?;
        if !stored_expression::is_plain_reference(expression) {
            return None;
        }
        let taken =
            stored_expression::evaluate(input, &PartialOutput { known: self, value }).ok()?;
        (!taken.sensitive && words(&taken.value).is_none()).then_some(taken.value)
    }

    pub(crate) fn evaluate(&self, input: &Input, what: &str) -> Result<Value, Failure> {
        let evaluated = stored_expression::evaluate(input, self)
            .map_err(|err| Failure::because(&format!("could not work out {what}"), &err))?;
        if evaluated.sensitive {
            self.hide(&evaluated.value);
        }
        Ok(evaluated.value)
    }

    pub(crate) fn hide(&self, value: &Value) {
        collect_secrets(value, &mut self.hidden.borrow_mut());
    }
}

/// Provides an output's partly known value from a plan, in place of the applied value.
struct PartialOutput<'a> {
    known: &'a FetchedValues<'a>,
    value: &'a Value,
}

impl Values for PartialOutput<'_> {
    fn output(&self, _stack: &StackName, _key: &str) -> Option<(Value, bool)> {
        Some((self.value.clone(), false))
    }

    fn env(&self, name: &str) -> Option<String> {
        self.known.env(name)
    }

    fn secret(&self, reference: &str) -> Option<Secret> {
        self.known.secret(reference)
    }
}

impl Values for FetchedValues<'_> {
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

pub(crate) async fn resolve<'a>(
    control: &Control,
    spec: &RunSpec,
    asker: &'a CallerEnv,
    ahead: &PlannedOutputs,
) -> Result<FetchedValues<'a>, Failure> {
    let mut known = FetchedValues {
        env: asker.env(),
        outputs: BTreeMap::new(),
        unknown: BTreeSet::new(),
        partly: BTreeMap::new(),
        secrets: BTreeMap::new(),
        hidden: RefCell::new(Vec::new()),
    };
    let inputs = spec.stack.inputs.values();
    let contexts = spec.contexts.iter();
    let contexts = contexts.flat_map(|context| context.inputs_for(&spec.variables));
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
                let found = outputs::with_nulls(control, stack, state).await;
                let values = found.map_err(|err| {
                    Failure::explained(&format!("cannot read the outputs of `{stack}`"), &err)
                })?;
                let values = values
                    .into_iter()
                    .map(|(name, output)| (name, (output.value, output.sensitive)));
                known.outputs.insert(stack.clone(), values.collect());
            }
        }
        for (stack, name) in outputs {
            let applied = known.outputs.get(stack);
            let is_there = applied.is_some_and(|outputs| outputs.contains_key(name));
            let key = || (stack.clone(), name.clone());
            let planned = ahead.get(stack, name);
            let partly = planned.and_then(|it| it.partly.clone());
            known.partly.extend(partly.map(|value| (key(), value)));
            match planned.map(|it| (&it.value, it.sensitive)) {
                None if spec.no_state && !is_there => {
                    known.unknown.insert((stack.clone(), name.clone()));
                }
                None => {}
                Some((None, _)) => {
                    known.unknown.insert((stack.clone(), name.clone()));
                }
                Some((Some(value), sensitive)) => {
                    let outputs = known.outputs.entry(stack.clone()).or_default();
                    outputs.insert(name.clone(), (value.clone(), sensitive));
                }
            }
        }
        for reference in secrets {
            if !known.secrets.contains_key(reference) {
                let secret = secret(spec, asker, reference).await?;
                known.hidden.borrow_mut().push(secret.clone());
                known.secrets.insert(reference.clone(), secret);
            }
        }
    }
    Ok(known)
}

async fn secret(spec: &RunSpec, asker: &CallerEnv, reference: &str) -> Result<Secret, Failure> {
    let env = engine_environment(asker.env(), spec.target.is_open());
    let found = asker.secret(reference, Path::new(&spec.root), &env).await;
    let found = found.map_err(|err| {
        Failure::explained(&format!("cannot resolve the secret `{reference}`"), &err)
    })?;
    found.ok_or_else(|| {
        Failure::new(format!(
            "cannot resolve the secret `{reference}`: the client that started the run does not have it"
        ))
        .hint("run the same command again where it is set")
    })
}

/// Adds every string and number in a sensitive value to the secrets that are masked.
pub(crate) fn collect_secrets(value: &Value, secrets: &mut Vec<Secret>) {
    match value {
        Value::String(text) => secrets.push(Secret::new(text)),
        Value::Array(items) => items.iter().for_each(|item| collect_secrets(item, secrets)),
        Value::Object(fields) => fields
            .values()
            .for_each(|field| collect_secrets(field, secrets)),
        Value::Number(number) => secrets.push(Secret::new(number.to_string())),
        Value::Null | Value::Bool(_) => {}
    }
}
