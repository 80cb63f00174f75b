//! The values for a run's engine: variables from contexts and inputs, environment from contexts. They exist
//! only in memory, in the engine's environment and in one file with mode 0600.

use std::collections::BTreeMap;

use drivers::process::Environment;
use model::base::masking::{Mask, is_short};
use model::base::secret::Secret;
use model::hcl::stored_expression::Values;
use model::project::Backend;
use model::run::RunSpec;
use model::run::preview::{PartialValues, UnknownVariables};
use serde_json::{Map, Value};

use super::deadline::Deadline;
use super::{Failure, StageJob};
use crate::Control;
use crate::changeset::up_to_date;
use crate::run::keyed_digests::{DigestPurpose, digester};
use crate::secrets::caller_env;
use crate::state::outputs::OutputsError;
use crate::state::{outputs, secret_paths};
use crate::values::{
    FetchedValues, PlannedOutputs, collect_secrets, environment, resolve, settings,
};

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
        check_short(job, &self.short, "the engine's output")
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
        let hint = "use longer values, or remove `strict_secrets` from the `project` block";
        return Err(failure.hint(hint).refused());
    }
    job.warn(&format!(
        "{names}: too short or too common to be masked in {said}"
    ));
    Ok(())
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
            earlier.map_err(|err| Failure::because("could not read the values to mask", &err))?;
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
        found => {
            found.map_err(|err| Failure::because("could not read the values to mask", &err))?
        }
    };
    let mut secrets = Vec::new();
    for output in found.values().filter(|output| output.sensitive) {
        collect_secrets(&output.value, &mut secrets);
    }
    Ok(secrets)
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
