//! The values for a run's engine: variables from contexts and inputs, environment from contexts. They exist
//! only in memory, in the engine's environment and in one file with mode 0600.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use drivers::process::{Environment, engine_environment};
use model::backend::{BY_ENVIRONMENT, credential_variable, in_clear, one_environment};
use model::config::stored_expression::{self, Values};
use model::ids::StackName;
use model::masking::{Mask, is_short};
use model::plan::placeholders::words;
use model::preview::{PartialValues, UnknownVariables};
use model::project::{Backend, Input, Needs};
use model::run::RunSpec;
use model::secret::Secret;
use serde_json::{Map, Value};

use super::deadline::Deadline;
use super::planned_outputs::PlannedOutputs;
use super::{Failure, StageJob};
use crate::Control;
use crate::changeset::up_to_date;
use crate::run::keyed_digests::{DigestPurpose, digester};
use crate::secrets::caller_env::{self, CallerEnv};
use crate::stage::values::{text_of, with_contexts};
use crate::state::outputs::OutputsError;
use crate::state::{outputs, secret_paths};

mod contexts;

pub(super) use contexts::ReadyHook;

pub(super) struct Inputs {
    pub(super) variables: Map<String, Value>,
    pub(super) environment: Environment,
    /// Masks the secrets that the engine gets, and the token of its state endpoint.
    pub(super) mask: Mask,
    pub(super) hidden: Vec<Secret>,
    /// Also masks the stack's own sensitive outputs. Used for logs and errors.
    pub(super) log_mask: Mask,
    pub(super) own_outputs: Vec<Secret>,
    /// Files of contexts, by path from the stack's directory.
    pub(super) files: BTreeMap<String, Secret>,
    pub(super) hooks: Vec<ReadyHook>,
    /// A keyed digest: equal values can be recognised, but no value can be guessed.
    pub(super) digest: String,
    /// The same for each input.
    pub(super) each: BTreeMap<String, String>,
    /// A keyed digest of the values from other stacks only.
    pub(super) consumed: String,
    /// Settings of an engine backend, by name.
    pub(super) backend: BTreeMap<String, String>,
    /// Variables that have no value yet.
    pub(super) unknown: UnknownVariables,
    /// The known parts of those variables.
    pub(super) partly: PartialValues,
    /// References of secrets that are too short or too common to be masked in free text.
    short: Vec<String>,
}

impl Inputs {
    /// Also hides these values of the stack's sensitive outputs in logs and errors.
    pub(super) fn hide_outputs(&mut self, outputs: Vec<Secret>, token: &Secret) {
        self.own_outputs.extend(outputs);
        let hidden = self.hidden.iter().chain(&self.own_outputs);
        self.log_mask = Mask::with_token(&hidden.cloned().collect::<Vec<_>>(), token);
    }

    /// Warns about secrets that cannot be masked, or refuses them if the project sets `strict_secrets`.
    pub(super) fn check_short(&self, job: &StageJob<'_>) -> Result<(), Failure> {
        check_short(job, &self.short, "the engine says")
    }
}

/// Warns about secrets that cannot be masked, or refuses them if the project sets `strict_secrets`. `said`
/// names the output that may contain them.
pub(super) fn check_short(job: &StageJob<'_>, short: &[String], said: &str) -> Result<(), Failure> {
    if short.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = short.iter().map(|name| format!("`{name}`")).collect();
    let names = names.join(", ");
    if job.spec.strict_secrets {
        let failure = Failure::new(format!("too short or too common to be masked: {names}"));
        let hint = "use longer values, or take `strict_secrets` out of the `project` block";
        return Err(failure.hint(hint).refused());
    }
    job.warn(&format!(
        "{names}: too short or too common to be masked in what {said}"
    ));
    Ok(())
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

/// What hooks need in a stage without an engine.
pub(super) struct HookValues {
    pub(super) environment: Environment,
    pub(super) files: BTreeMap<String, Secret>,
    pub(super) hooks: Vec<ReadyHook>,
    pub(super) hidden: Vec<Secret>,
}

/// The values from contexts, without any input or variable of the stack.
pub(super) async fn for_hooks(job: &StageJob<'_>) -> Result<HookValues, Failure> {
    let mut bare = job.spec.clone();
    bare.stack.inputs.clear();
    for context in &mut bare.contexts {
        context.vars.clear();
    }
    let known = resolve(job.control, &bare, job.asker, &PlannedOutputs::default()).await?;
    let environment = environment(&bare, job.asker, &known)?;
    let files = contexts::files(&bare, &known)?;
    let hooks = contexts::hooks(&bare, &known)?;
    let mut hidden = known.hidden.into_inner();
    hidden.extend(sensitive_outputs(job.control, job.spec).await?);
    Ok(HookValues {
        environment,
        files,
        hooks,
        hidden,
    })
}

/// Evaluates everything the run needs. Stronger sources override weaker ones.
pub(super) async fn gather(job: &StageJob<'_>, limit: Option<Deadline>) -> Result<Inputs, Failure> {
    gather_ahead(job, &PlannedOutputs::default(), limit).await
}

/// The same before upstream stacks are applied, with the values that their plans contain.
pub(super) async fn gather_ahead(
    job: &StageJob<'_>,
    ahead: &PlannedOutputs,
    limit: Option<Deadline>,
) -> Result<Inputs, Failure> {
    let spec = job.spec;
    let resolving = resolve(job.control, spec, job.asker, ahead);
    let known = job.unless_stopped(limit, resolving).await?;
    if !spec.no_state {
        let state = job.control.state_name(&spec.stack.state);
        let earlier = secret_paths::earlier_secrets(job.control, &state).await;
        let earlier =
            earlier.map_err(|err| Failure::because("could not read what to hide", &err))?;
        known.hidden.borrow_mut().extend(earlier);
    }
    let mut environment = environment(spec, job.asker, &known)?;
    let Variables {
        values: variables,
        unknown,
        partly,
    } = variables(spec, &known)?;
    let backend = settings(spec, job.asker, &known, &mut environment)?;
    for (name, declared) in &spec.variables {
        if let (true, Some(value)) = (declared.sensitive, variables.get(name)) {
            known.hide(value);
        }
    }
    let files = contexts::files(spec, &known)?;
    let hooks = contexts::hooks(spec, &known)?;
    let digester = digester(job.control, job.run, spec, DigestPurpose::Inputs).await;
    let digester = digester.map_err(|err| Failure::because("could not digest the inputs", &err))?;
    let given = with_environment(&variables, spec, &environment);
    let digest = digester.digest(canonical(&given, &files).as_bytes());
    let values = given.iter().map(|(name, value)| (name, value.clone()));
    let contents = files.iter();
    let contents = contents.map(|(path, content)| (path, Value::from(content.expose())));
    // Each digest includes the name, so that equal values of two inputs do not look equal.
    let each = values.chain(contents).map(|(name, value)| {
        let pair = Value::from(vec![Value::from(name.as_str()), value]);
        (name.clone(), digester.digest(pair.to_string().as_bytes()))
    });
    let each = each.collect();
    let consumed = up_to_date::consumed(spec)
        .into_iter()
        .filter_map(|(stack, output)| {
            let (value, _) = known.output(&stack, &output)?;
            Some(((stack, output), value))
        });
    let consumed = up_to_date::digest(job.control, &consumed.collect())
        .await
        .map_err(|err| Failure::because("could not digest the inputs", &err))?;
    let short = short_secrets(job, &known);
    let hidden = known.hidden.into_inner();
    let own_outputs = sensitive_outputs(job.control, spec).await?;
    let mut inputs = Inputs {
        short,
        variables,
        files,
        hooks,
        environment,
        mask: Mask::with_token(&hidden, &job.token),
        log_mask: Mask::default(),
        own_outputs: Vec::new(),
        hidden,
        digest,
        each,
        consumed,
        backend,
        unknown,
        partly,
    };
    inputs.hide_outputs(own_outputs, &job.token);
    Ok(inputs)
}

/// The values of the stack's own outputs that its state marks as sensitive. Empty for a state that only its
/// engine can read.
async fn sensitive_outputs(control: &Control, spec: &RunSpec) -> Result<Vec<Secret>, Failure> {
    if spec.no_state {
        return Ok(Vec::new());
    }
    let is_ours = spec.target.backend == Backend::Terrane;
    let found = match outputs::of_state(control, &spec.stack.state, is_ours).await {
        Err(OutputsError::Encrypted { .. } | OutputsError::Opaque { .. }) => BTreeMap::new(),
        found => found.map_err(|err| Failure::because("could not read what to hide", &err))?,
    };
    let mut secrets = Vec::new();
    for output in found.values().filter(|output| output.sensitive) {
        collect_secrets(&output.value, &mut secrets);
    }
    Ok(secrets)
}

/// Adds every string and number in a sensitive value to the secrets that are masked.
pub(super) fn collect_secrets(value: &Value, secrets: &mut Vec<Secret>) {
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

/// The values of the module's variables, and which of them are not known yet.
struct Variables {
    values: Map<String, Value>,
    unknown: UnknownVariables,
    partly: PartialValues,
}

fn variables(spec: &RunSpec, known: &FetchedValues<'_>) -> Result<Variables, Failure> {
    let mut variables = Map::new();
    for context in &spec.contexts {
        for (name, input) in &context.vars {
            if spec.variables.contains_key(name) {
                let what = format!("variable `{name}` of context `{}`", context.name);
                variables.insert(name.clone(), known.evaluate(input, &what)?);
            }
        }
    }
    let (mut unknown, mut partly) = (UnknownVariables::new(), PartialValues::new());
    for (name, input) in &spec.stack.inputs {
        let after = known.awaited(input);
        if !after.is_empty() {
            variables.remove(name);
            unknown.insert(name.clone(), after);
            let known = known.partly(input).map(|value| (name.clone(), value));
            partly.extend(known);
            continue;
        }
        let value = known.evaluate(input, &format!("input `{name}`"))?;
        variables.insert(name.clone(), value);
    }
    Ok(Variables {
        values: variables,
        unknown,
        partly,
    })
}

/// The secrets that are too short to be masked. Secrets of later stages are included if the requester
/// supplied them.
fn short_secrets(job: &StageJob<'_>, known: &FetchedValues<'_>) -> Vec<String> {
    let later = caller_env::later_secrets_of(job.spec);
    let later = later.filter_map(|it| Some((it.to_owned(), job.asker.at_hand(it)?)));
    let mut all: BTreeMap<String, Secret> = later.collect();
    all.extend(known.secrets.clone());
    let short = all.into_iter().filter(|(_, secret)| is_short(secret));
    short.map(|(reference, _)| reference).collect()
}

/// Adds the values that variables of the module take from the environment: `TF_VAR_NAME`.
fn with_environment(
    variables: &Map<String, Value>,
    spec: &RunSpec,
    environment: &Environment,
) -> Map<String, Value> {
    let mut given = variables.clone();
    for name in spec.variables.keys() {
        let value = environment.get(&format!("TF_VAR_{name}"));
        if let (Some(value), false) = (value, given.contains_key(name)) {
            given.insert(name.clone(), Value::from(value.expose()));
        }
    }
    given
}

/// All input values of the stack, in a form that is equal for equal values.
fn canonical(variables: &Map<String, Value>, files: &BTreeMap<String, Secret>) -> String {
    let mut text = Value::Object(variables.clone()).to_string();
    for (path, content) in files {
        // Quoted, so that no content can look like another entry.
        let pair = Value::from(vec![path.as_str(), content.expose()]);
        text.push_str(&pair.to_string());
    }
    text
}

fn environment(
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
fn settings(
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
                "a credential in `{name}` of backend `{kind}` would lie in clear beside every plan"
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
                    "`path` of backend `local` is `{text}`, which would be lost with the copy of the source that the engine works in"
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
struct FetchedValues<'a> {
    env: &'a BTreeMap<String, String>,
    outputs: BTreeMap<StackName, BTreeMap<String, (Value, bool)>>,
    /// Outputs that are not known before their stack is applied.
    unknown: BTreeSet<(StackName, String)>,
    /// The parts of those outputs that plans contain.
    partly: BTreeMap<(StackName, String), Value>,
    secrets: BTreeMap<String, Secret>,
    hidden: RefCell<Vec<Secret>>,
}

impl FetchedValues<'_> {
    /// The stacks that must be applied before this input has a value.
    fn awaited(&self, input: &Input) -> BTreeSet<StackName> {
        let Input::Expression(expression) = input else {
            return BTreeSet::new();
        };
        let outputs = expression.needs.outputs.intersection(&self.unknown);
        outputs.map(|(stack, _)| stack.clone()).collect()
    }

    /// The known part of an input that is partly unknown. Only for a plain reference to an output or to a
    /// part of it: the result of a function is not known.
    fn partly(&self, input: &Input) -> Option<Value> {
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

    fn evaluate(&self, input: &Input, what: &str) -> Result<Value, Failure> {
        let evaluated = stored_expression::evaluate(input, self)
            .map_err(|err| Failure::because(&format!("could not work out {what}"), &err))?;
        if evaluated.sensitive {
            self.hide(&evaluated.value);
        }
        Ok(evaluated.value)
    }

    fn hide(&self, value: &Value) {
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

async fn resolve<'a>(
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
            "needs the secret `{reference}` from the asker's side"
        ))
        .hint("run the same command again where it is set")
    })
}
