//! The environment variables and files of the caller. They are sent to runners over an inherited pipe, in
//! memory only, and never stored. Secret services are queried where a value is needed, with the caller's
//! environment.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Read};
use std::ops::Deref;
use std::path::Path;

use drivers::process::Environment;
use drivers::secrets::{self, SecretContext, SecretError, SecretReference, SecretSources};
use model::base::diagnostic::Location;
use model::base::error::{Explain, NextStep, advice, chain};
use model::base::secret::{Secret, is_secret_variable};
use model::hcl::expression::{Input, Needs};
use model::project::context::{STATE_VARIABLES, refused_variable};
use model::project::{Backend, Context, Target};
use model::run::RunSpec;
use model::stage::facts::FactsBranch;
use model::stage::inputs;
use serde::{Deserialize, Serialize};
use store::{Store, StoreError};
use zeroize::{Zeroize, Zeroizing};

use crate::home::master_keys::KeySource;
use crate::home::{Home, HomeLocation};

/// No `Debug`: contains secrets.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct CallerEnv {
    env: ZeroizedMap,
    /// Contents of `file:`, `sops:` and `dotenv:` secrets, by reference.
    files: ZeroizedMap,
    /// Answers of secret services; each process queries them again.
    #[serde(skip)]
    sources: SecretSources,
    /// The master keys, unless they are in a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// Where the store is, unless it is a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    store: Option<serde_json::Value>,
}

/// Texts that are overwritten in memory when they are dropped.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
struct ZeroizedMap(BTreeMap<String, String>);

impl Drop for ZeroizedMap {
    fn drop(&mut self) {
        self.0.values_mut().for_each(Zeroize::zeroize);
    }
}

impl Deref for ZeroizedMap {
    type Target = BTreeMap<String, String>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// All values that the caller lacks, so that the user can fix them in one go.
#[derive(Debug)]
pub struct MissingValuesError(Vec<MissingValue>);

/// One value that a stack needs.
#[derive(Debug)]
struct MissingValue {
    stack: String,
    what: String,
    /// Where the project file requires it.
    at: Option<Location>,
    /// `None` if it is an environment variable that is not set.
    cause: Option<SecretError>,
    hint: Option<String>,
}

impl fmt::Display for MissingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stack `{}` needs {}", self.stack, self.what)?;
        match &self.at {
            Some(at) => write!(f, ", which {}:{} names", at.file, at.line),
            None => Ok(()),
        }
    }
}

impl fmt::Display for MissingValuesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = &self.0[..] {
            return only.fmt(f);
        }
        write!(f, "{} values are missing", self.0.len())?;
        for missing in &self.0 {
            write!(f, "\n{missing}")?;
            for why in missing.cause.iter().flat_map(|cause| chain(cause)) {
                write!(f, ": {why}")?;
            }
            if let Some(hint) = &missing.hint {
                write!(f, " ({hint})")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for MissingValuesError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let [only] = &self.0[..] else {
            return None;
        };
        let cause = only.cause.as_ref()?;
        Some(cause)
    }
}

impl Explain for MissingValuesError {
    fn next_steps(&self) -> Vec<NextStep> {
        match &self.0[..] {
            [only] => only.hint.clone().map(advice).into_iter().collect(),
            _ => Vec::new(),
        }
    }
}

impl CallerEnv {
    /// A caller in this process, whose whole environment is available.
    pub(crate) fn of_environment(env: &BTreeMap<String, String>) -> Self {
        Self {
            env: ZeroizedMap(env.clone()),
            ..Self::default()
        }
    }

    /// Takes only what the given runs may need out of the environment. Missing values are found here, before
    /// anything runs.
    pub fn gather(
        env: &BTreeMap<String, String>,
        root: &Path,
        specs: &[RunSpec],
        places: &BTreeMap<String, Location>,
    ) -> Result<Self, MissingValuesError> {
        let base = drivers::process::engine_environment(env, true);
        let mut asker = Self::default();
        let mut missing: BTreeMap<String, MissingValue> = BTreeMap::new();
        for name in base.names() {
            asker.take(env, name);
        }
        for spec in specs {
            let stack = spec.stack.name.to_string();
            for pattern in spec.contexts.iter().flat_map(|context| &context.pass_env) {
                for name in env.keys().filter(|name| matches_name(pattern, name)) {
                    if may_pass(name) {
                        asker.take(env, name);
                    }
                }
            }
            for needs in needs_of(spec).chain(later_needs_of(spec)) {
                for name in &needs.env {
                    if !asker.take(env, name) {
                        let one = || MissingValue::variable(&stack, name);
                        missing.entry(format!("env:{name}")).or_insert_with(one);
                    }
                }
                for name in &needs.env_if_set {
                    asker.take(env, name);
                }
                for reference in &needs.secrets {
                    if missing.contains_key(reference) {
                        continue;
                    }
                    if let Err(cause) = asker.take_secret(env, root, reference) {
                        let one = MissingValue::secret(&stack, reference, places, cause);
                        missing.insert(reference.clone(), one);
                    }
                }
            }
        }
        let mut missing: Vec<MissingValue> = missing.into_values().collect();
        missing.sort_by_key(|one| one.at.clone());
        if missing.is_empty() {
            Ok(asker)
        } else {
            Err(MissingValuesError(missing))
        }
    }

    /// Reads what another process sent over a pipe.
    pub fn receive(mut from: impl Read) -> io::Result<Self> {
        let mut bytes = Zeroizing::new(Vec::new());
        from.read_to_end(&mut bytes)?;
        Ok(serde_json::from_slice(&bytes)?)
    }

    /// The bytes to send over a pipe.
    pub(crate) fn to_bytes(&self) -> serde_json::Result<Zeroizing<Vec<u8>>> {
        serde_json::to_vec(self).map(Zeroizing::new)
    }

    /// Only the variables that every engine receives.
    #[must_use]
    pub fn bare(&self) -> Self {
        let base = drivers::process::engine_environment(&self.env, true);
        let mut bare = Self::default();
        for name in base.names() {
            bare.take(&self.env, name);
        }
        bare
    }

    /// Keyed digest of the values that are specific to this caller; `None` if there are none.
    pub(crate) async fn digest(&self, store: &Store) -> Result<Option<String>, StoreError> {
        let base = drivers::process::engine_environment(&self.env, true);
        let base: BTreeSet<&str> = base.names().collect();
        let own: BTreeMap<&String, &String> = self
            .env
            .iter()
            .filter(|(name, _)| !base.contains(name.as_str()))
            .collect();
        if own.is_empty() && self.files.is_empty() {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        for (name, value) in own.into_iter().chain(&*self.files) {
            append(&mut bytes, [name, value]);
        }
        store.keyed_digest("asked with", bytes).await.map(Some)
    }

    /// Keyed digest of the caller's values that the plan of a run uses; `None` if it uses none. Values that
    /// only give access, such as credentials, are excluded: each caller has its own.
    pub(crate) async fn digest_for(
        &self,
        store: &Store,
        spec: &RunSpec,
    ) -> Result<Option<String>, StoreError> {
        let mut taken: BTreeMap<String, Option<Secret>> = BTreeMap::new();
        for needs in planned_needs_of(spec) {
            for name in needs.env.iter().chain(&needs.env_if_set) {
                let value = self.env.get(name).map(Secret::new);
                taken.insert(format!("env:{name}"), value);
            }
            let brought = needs.secrets.iter().filter(|it| is_brought(it));
            taken.extend(brought.map(|it| (it.clone(), self.at_hand(it))));
        }
        let patterns: Vec<&String> = spec.contexts.iter().flat_map(|it| &it.pass_env).collect();
        let passed = self.env.iter().filter(|(name, _)| {
            is_variable(name) && patterns.iter().any(|pattern| matches_name(pattern, name))
        });
        taken.extend(passed.map(|(name, value)| (format!("env:{name}"), Some(Secret::new(value)))));
        if taken.is_empty() {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        for (name, value) in &taken {
            let value = value.as_ref().map_or("", Secret::expose);
            append(&mut bytes, [name, value]);
        }
        store.keyed_digest("planned with", bytes).await.map(Some)
    }

    /// Records in each spec the digest of the caller's values that the run uses.
    pub(crate) async fn sign(
        &self,
        store: &Store,
        specs: &mut [RunSpec],
    ) -> Result<(), StoreError> {
        for spec in specs {
            spec.asked_with = self.digest_for(store, spec).await?;
        }
        Ok(())
    }

    pub fn env(&self) -> &BTreeMap<String, String> {
        &self.env
    }

    pub fn file(&self, reference: &str) -> Option<Secret> {
        self.files.get(reference).map(Secret::new)
    }

    /// Resolves a reference for the caller. `None` if the value is on the caller's machine and was not sent
    /// along. `env` is the environment for commands.
    pub(crate) async fn secret(
        &self,
        reference: &str,
        root: &Path,
        env: &Environment,
    ) -> Result<Option<Secret>, SecretError> {
        let parsed = reference.parse::<SecretReference>()?;
        match &parsed {
            SecretReference::Env(name) => Ok(self.env.get(name).map(Secret::new)),
            SecretReference::File(_)
            | SecretReference::Sops { .. }
            | SecretReference::Dotenv { .. } => Ok(self.file(reference)),
            SecretReference::Command(_)
            | SecretReference::Vault { .. }
            | SecretReference::AzureKeyVault { .. }
            | SecretReference::AwsSecretsManager { .. }
            | SecretReference::AwsSsm { .. } => {
                let around = SecretContext {
                    asker: &self.env,
                    root,
                    env,
                    sources: &self.sources,
                };
                secrets::resolve(&parsed, around).await.map(Some)
            }
        }
    }

    /// A secret that the caller sent along; `None` if it comes from elsewhere.
    pub(crate) fn at_hand(&self, reference: &str) -> Option<Secret> {
        match reference.parse::<SecretReference>().ok()? {
            SecretReference::Env(name) => self.env.get(&name).map(Secret::new),
            _ => self.file(reference),
        }
    }

    /// The secrets among the caller's values, as far as they are known in advance.
    pub(crate) fn secrets(&self, specs: &[RunSpec]) -> Vec<Secret> {
        let references = specs.iter().flat_map(needs_of);
        let references = references.flat_map(|needs| &needs.secrets);
        let names = references.filter_map(|reference| reference.strip_prefix("env:"));
        let values = names.filter_map(|name| self.env.get(name));
        let values = values.chain(self.files.values()).map(Secret::new);
        values.chain(self.named_secrets()).collect()
    }

    /// Values of variables whose names indicate a secret: tokens, passwords, keys.
    pub(crate) fn named_secrets(&self) -> impl Iterator<Item = Secret> {
        let named = self.env.iter().filter(|(name, _)| is_secret_variable(name));
        named.map(|(_, value)| Secret::new(value))
    }

    /// The master key of the home, if it was sent along.
    pub fn key(&self) -> Option<KeySource> {
        self.key
            .as_ref()
            .map(|key| KeySource::text(Secret::new(key)))
    }

    /// The location of the home's store, if it was sent along.
    pub fn store(&self) -> Option<HomeLocation> {
        self.store.as_ref().and_then(HomeLocation::from_values)
    }

    /// Adds the location and the key of the home, unless another process can read them from files.
    pub(crate) fn with_home(&self, home: &Home) -> Self {
        let mut with = self.clone();
        with.key = match home.key() {
            KeySource::Text { key, .. } => Some(key.expose().to_owned()),
            KeySource::File(_) | KeySource::Age { .. } | KeySource::Command { .. } => None,
        };
        with.store = home.store().to_values();
        with
    }

    /// The variables that match `pass_env` of a context.
    pub fn passed<'a>(&'a self, context: &'a Context) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.env
            .iter()
            .filter(|(name, _)| {
                let mut patterns = context.pass_env.iter();
                may_pass(name) && patterns.any(|pattern| matches_name(pattern, name))
            })
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    fn take(&mut self, env: &BTreeMap<String, String>, name: &str) -> bool {
        let Some(value) = env.get(name) else {
            return false;
        };
        self.env.0.insert(name.to_owned(), value.clone());
        true
    }

    fn take_secret(
        &mut self,
        env: &BTreeMap<String, String>,
        root: &Path,
        reference: &str,
    ) -> Result<(), SecretError> {
        let parsed = reference.parse::<SecretReference>()?;
        // The variables with the service's address and the login.
        for name in parsed.settings() {
            self.take(env, name);
        }
        if let SecretReference::Env(name) = parsed {
            let is_set = self.take(env, &name);
            return is_set.then_some(()).ok_or(SecretError::Unset { name });
        }
        // Other references are resolved where they are needed.
        if let Some(secret) = secrets::read_from_caller(&parsed, env, root)? {
            let text = secret.expose().to_owned();
            self.files.0.insert(reference.to_owned(), text);
        }
        Ok(())
    }
}

impl MissingValue {
    fn variable(stack: &str, name: &str) -> Self {
        Self {
            stack: stack.to_owned(),
            what: format!("the environment variable `{name}`, which is not set"),
            at: None,
            cause: None,
            hint: Some(format!("set it: `export {name}=…`")),
        }
    }

    fn secret(
        stack: &str,
        reference: &str,
        places: &BTreeMap<String, Location>,
        cause: SecretError,
    ) -> Self {
        Self {
            stack: stack.to_owned(),
            what: format!("the secret `{reference}`"),
            at: places.get(reference).cloned(),
            hint: cause.hint(),
            cause: Some(cause),
        }
    }
}

/// The secret references of a run, including those of its stages.
pub(crate) fn secrets_of(spec: &RunSpec) -> impl Iterator<Item = &str> {
    let needs = needs_of(spec).chain(later_needs_of(spec));
    needs.flat_map(|needs| needs.secrets.iter().map(String::as_str))
}

/// The secret references that only the stages after the apply need.
pub(crate) fn later_secrets_of(spec: &RunSpec) -> impl Iterator<Item = &str> {
    later_needs_of(spec).flat_map(|needs| needs.secrets.iter().map(String::as_str))
}

/// Appends each text with its length, so that different pairs never produce the same bytes.
fn append(bytes: &mut Vec<u8>, pair: [&str; 2]) {
    for text in pair {
        bytes.extend(text.len().to_le_bytes());
        bytes.extend(text.as_bytes());
    }
}

/// Whether the caller sends the secret along. Commands and services are called where the value is needed.
fn is_brought(reference: &str) -> bool {
    match reference.parse() {
        Ok(
            SecretReference::Env(_)
            | SecretReference::File(_)
            | SecretReference::Sops { .. }
            | SecretReference::Dotenv { .. },
        ) => true,
        Ok(
            SecretReference::Command(_)
            | SecretReference::Vault { .. }
            | SecretReference::AzureKeyVault { .. }
            | SecretReference::AwsSecretsManager { .. }
            | SecretReference::AwsSsm { .. },
        )
        | Err(_) => false,
    }
}

/// The first value that runs need from their caller, if any; values of another caller cannot replace it.
pub(crate) fn wants(specs: &[RunSpec]) -> Option<&str> {
    specs.iter().find_map(|spec| {
        let passed = spec.contexts.iter().flat_map(|context| &context.pass_env);
        let needed = needs_of(spec)
            .chain(later_needs_of(spec))
            .flat_map(|needs| {
                let secrets = needs.secrets.iter();
                // A command runs where its value is needed.
                let secrets = secrets.filter(|reference| !reference.starts_with("command:"));
                needs.env.iter().chain(&needs.env_if_set).chain(secrets)
            });
        passed.chain(needed).map(String::as_str).next()
    })
}

/// Whether some values come from outside the project and the states.
pub(crate) fn takes_secrets_or_environment(spec: &RunSpec) -> bool {
    let passes = spec
        .contexts
        .iter()
        .any(|context| !context.pass_env.is_empty());
    passes
        || needs_of(spec).any(|needs| {
            !needs.secrets.is_empty() || !needs.env.is_empty() || !needs.env_if_set.is_empty()
        })
}

/// External values that the stages after the apply need, if there are any.
fn later_needs_of(spec: &RunSpec) -> impl Iterator<Item = &Needs> {
    let wanted = !spec.stages_after().is_empty();
    let blocks = spec.stack.stages.blocks().filter(move |_| wanted);
    let places = spec.facts.values().flat_map(FactsBranch::inputs);
    let places = places.filter(move |_| wanted);
    let inputs = blocks.flat_map(|block| inputs(std::slice::from_ref(block)));
    inputs.chain(places).filter_map(|input| match input {
        Input::Known(_) => None,
        Input::Expression(expression) => Some(&expression.needs),
    })
}

/// All external values that a run needs.
fn needs_of(spec: &RunSpec) -> impl Iterator<Item = &Needs> {
    let inputs = spec.stack.inputs.values();
    let contexts = spec.contexts.iter().flat_map(Context::inputs);
    let backend = match &spec.target.backend {
        Backend::Terrane => None,
        Backend::Engine { settings, .. } => Some(settings.values()),
    };
    inputs
        .chain(contexts)
        .chain(backend.into_iter().flatten())
        .filter_map(|input| match input {
            Input::Known(_) => None,
            Input::Expression(expression) => Some(&expression.needs),
        })
}

/// Whether the engine reads the variable as an input of the module.
fn is_variable(name: &str) -> bool {
    name.starts_with("TF_VAR_")
}

/// External values that the plan depends on: inputs, and variables and files of contexts.
fn planned_needs_of(spec: &RunSpec) -> impl Iterator<Item = &Needs> {
    let contexts = spec.contexts.iter();
    let contexts = contexts.flat_map(|context| {
        let variables = context.env.iter().filter(|(name, _)| is_variable(name));
        let variables = variables.map(|(_, value)| value);
        let others = context.vars.values().chain(context.files.values());
        variables.chain(others)
    });
    let inputs = spec.stack.inputs.values().chain(contexts);
    inputs.filter_map(|input| match input {
        Input::Known(_) => None,
        Input::Expression(expression) => Some(&expression.needs),
    })
}

/// The names of the variables that every engine of a target receives from this environment, and of those that
/// are always set.
pub fn engine_names(env: &BTreeMap<String, String>, target: &Target) -> Vec<String> {
    let base = drivers::process::engine_environment(env, target.is_open());
    let state = match target.backend {
        Backend::Terrane => &STATE_VARIABLES[..],
        Backend::Engine { .. } => &[],
    };
    let mut names: Vec<String> = base.names().map(str::to_owned).collect();
    names.extend(state.iter().map(|name| (*name).to_owned()));
    names.sort();
    names
}

/// Whether a pattern of `pass_env` may match a variable. Even `*` never passes the master key to an engine,
/// nor variables that contexts must not set.
pub fn may_pass(name: &str) -> bool {
    !name.starts_with("TERRANE_KEY") && refused_variable(name).is_none()
}

/// `*` matches any characters, as in `ACTIONS_ID_TOKEN_*`.
pub fn matches_name(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => name.strip_prefix(head).is_some_and(|rest| {
            (0..=rest.len())
                .filter(|at| rest.is_char_boundary(*at))
                .any(|at| matches_name(tail, &rest[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_by_star() {
        assert!(matches_name("ACTIONS_*", "ACTIONS_TOKEN"));
        assert!(matches_name("*_TOKEN", "A_TOKEN"));
        assert!(matches_name("A*C*E", "ABCDE"));
        assert!(!matches_name("A", "AB"));
        assert!(!matches_name("A*C", "AB"));
    }
}
