//! What comes from the side of whoever asked: environment variables and files. It travels to runners
//! over an inherited pipe, in memory only, and never into the store. Services that keep secrets are asked in the
//! asker's name, with what its environment says, where a value is needed.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::ops::Deref;
use std::path::Path;

use drivers::process::Environment;
use drivers::secrets::{self, Reference, SecretError, Sources, Surroundings};
use model::project::{Context, Input, Needs};
use model::run::RunSpec;
use model::secret::{Secret, is_secret_variable};
use model::stage::inputs;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use crate::facts::place_inputs;
use crate::home::{Home, StorePlace};
use crate::keys::KeySource;

/// No `Debug`: it holds secrets.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Asker {
    env: Wiped,
    /// Contents of `file:`, `sops:` and `dotenv:` secrets, by reference.
    files: Wiped,
    /// What services answered; asked again in each process.
    #[serde(skip)]
    sources: Sources,
    /// The master keys, unless they lie in a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// Where the store is, unless it is a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    store: Option<serde_json::Value>,
}

/// Texts that are overwritten when they go.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
struct Wiped(BTreeMap<String, String>);

impl Drop for Wiped {
    fn drop(&mut self) {
        self.0.values_mut().for_each(Zeroize::zeroize);
    }
}

impl Deref for Wiped {
    type Target = BTreeMap<String, String>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

#[derive(Debug, thiserror::Error)]
pub enum GatherError {
    #[error("stack `{stack}` needs the environment variable `{name}`, which is not set")]
    Unset { stack: String, name: String },
    #[error("stack `{stack}` needs the secret `{reference}`")]
    Secret {
        stack: String,
        reference: String,
        source: Box<SecretError>,
    },
}

impl Asker {
    /// One who is right here: all of its environment can be had.
    pub(crate) fn of_environment(env: &BTreeMap<String, String>) -> Self {
        Self {
            env: Wiped(env.clone()),
            ..Self::default()
        }
    }

    /// Takes what the given runs can need, and nothing else, out of a whole environment. What is
    /// missing is found here, before anything runs.
    pub fn gather(
        env: &BTreeMap<String, String>,
        root: &Path,
        specs: &[RunSpec],
    ) -> Result<Self, GatherError> {
        let base = drivers::process::engine_environment(env, true);
        let mut asker = Self::default();
        for name in base.names() {
            asker.take(env, name);
        }
        for spec in specs {
            let stack = spec.stack.name.to_string();
            for pattern in spec.contexts.iter().flat_map(|context| &context.pass_env) {
                for name in env.keys().filter(|name| matches_name(pattern, name)) {
                    // Not even `*` hands our master key to an engine.
                    if name.starts_with("TERRANE_KEY") {
                        continue;
                    }
                    asker.take(env, name);
                }
            }
            for needs in needs_of(spec).chain(later_needs_of(spec)) {
                for name in &needs.env {
                    if !asker.take(env, name) {
                        return Err(GatherError::Unset {
                            stack,
                            name: name.clone(),
                        });
                    }
                }
                for name in &needs.env_if_set {
                    asker.take(env, name);
                }
                for reference in &needs.secrets {
                    asker.take_secret(env, root, &stack, reference)?;
                }
            }
            // What is missing to leave a former place stops nobody.
            for needs in former_needs_of(spec) {
                for name in needs.env.iter().chain(&needs.env_if_set) {
                    asker.take(env, name);
                }
                for reference in &needs.secrets {
                    drop(asker.take_secret(env, root, &stack, reference));
                }
            }
        }
        Ok(asker)
    }

    /// What was handed on over a pipe.
    pub fn receive(mut from: impl Read) -> io::Result<Self> {
        let mut bytes = Zeroizing::new(Vec::new());
        from.read_to_end(&mut bytes)?;
        Ok(serde_json::from_slice(&bytes)?)
    }

    /// To be handed on over a pipe.
    pub(crate) fn to_bytes(&self) -> serde_json::Result<Zeroizing<Vec<u8>>> {
        serde_json::to_vec(self).map(Zeroizing::new)
    }

    /// Only what every engine gets, whoever asked.
    #[must_use]
    pub fn bare(&self) -> Self {
        let base = drivers::process::engine_environment(&self.env, true);
        let mut bare = Self::default();
        for name in base.names() {
            bare.take(&self.env, name);
        }
        bare
    }

    pub fn env(&self) -> &BTreeMap<String, String> {
        &self.env
    }

    pub fn file(&self, reference: &str) -> Option<Secret> {
        self.files.get(reference).map(Secret::new)
    }

    /// Resolves a reference in the asker's name; nothing if it belongs to the asker's machine and was not brought along.
    /// `env` is what a command sees.
    pub(crate) async fn secret(
        &self,
        reference: &str,
        root: &Path,
        env: &Environment,
    ) -> Result<Option<Secret>, SecretError> {
        let parsed = reference.parse::<Reference>()?;
        match &parsed {
            Reference::Env(name) => Ok(self.env.get(name).map(Secret::new)),
            Reference::File(_) | Reference::Sops { .. } | Reference::Dotenv { .. } => {
                Ok(self.file(reference))
            }
            Reference::Command(_)
            | Reference::Vault { .. }
            | Reference::AzureKeyVault { .. }
            | Reference::AwsSecretsManager { .. }
            | Reference::AwsSsm { .. } => {
                let around = Surroundings {
                    asker: &self.env,
                    root,
                    env,
                    sources: &self.sources,
                };
                secrets::resolve(&parsed, around).await.map(Some)
            }
        }
    }

    /// The secrets among what was taken, as far as they are known before they are needed.
    pub(crate) fn secrets(&self, specs: &[RunSpec]) -> Vec<Secret> {
        let references = specs.iter().flat_map(needs_of);
        let references = references.flat_map(|needs| &needs.secrets);
        let names = references.filter_map(|reference| reference.strip_prefix("env:"));
        let values = names.filter_map(|name| self.env.get(name));
        let values = values.chain(self.files.values()).map(Secret::new);
        values.chain(self.named_secrets()).collect()
    }

    /// Variables whose name says that they hold a secret: tokens, passwords, keys.
    pub(crate) fn named_secrets(&self) -> impl Iterator<Item = Secret> {
        let named = self.env.iter().filter(|(name, _)| is_secret_variable(name));
        named.map(|(_, value)| Secret::new(value))
    }

    /// What opens the home, if it was handed over.
    pub fn key(&self) -> Option<KeySource> {
        self.key
            .as_ref()
            .map(|key| KeySource::Text(Secret::new(key)))
    }

    /// Where the home's store is, if it was handed over.
    pub fn store(&self) -> Option<StorePlace> {
        self.store.as_ref().and_then(StorePlace::from_values)
    }

    /// With what leads to the home and opens it, where neither is a file that another process can read.
    pub(crate) fn with_home(&self, home: &Home) -> Self {
        let mut with = self.clone();
        with.key = match home.key() {
            KeySource::Text(text) => Some(text.expose().to_owned()),
            KeySource::File(_) | KeySource::Age { .. } | KeySource::Command { .. } => None,
        };
        with.store = home.store().to_values();
        with
    }

    /// What `pass_env` of a context takes over.
    pub fn passed<'a>(&'a self, context: &'a Context) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.env
            .iter()
            .filter(|(name, _)| {
                context
                    .pass_env
                    .iter()
                    .any(|pattern| matches_name(pattern, name))
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
        stack: &str,
        reference: &str,
    ) -> Result<(), GatherError> {
        let failed = |source| GatherError::Secret {
            stack: stack.to_owned(),
            reference: reference.to_owned(),
            source: Box::new(source),
        };
        let parsed = reference.parse::<Reference>().map_err(failed)?;
        // Where its service is, and who asks.
        for name in parsed.settings() {
            self.take(env, name);
        }
        if let Reference::Env(name) = parsed {
            return if self.take(env, &name) {
                Ok(())
            } else {
                Err(GatherError::Unset {
                    stack: stack.to_owned(),
                    name,
                })
            };
        }
        let read = secrets::read_of_asker(&parsed, env, root).map_err(failed)?;
        // The rest is had where it is needed.
        if let Some(secret) = read {
            let text = secret.expose().to_owned();
            self.files.0.insert(reference.to_owned(), text);
        }
        Ok(())
    }
}

/// What runs take from the side of whoever asked for them, if anything: nobody else's value will do.
pub(crate) fn wants(specs: &[RunSpec]) -> Option<&str> {
    specs.iter().find_map(|spec| {
        let passed = spec.contexts.iter().flat_map(|context| &context.pass_env);
        let needed = needs_of(spec)
            .chain(later_needs_of(spec))
            .flat_map(|needs| {
                let secrets = needs.secrets.iter();
                // A command is run where it is needed.
                let secrets = secrets.filter(|reference| !reference.starts_with("command:"));
                needs.env.iter().chain(&needs.env_if_set).chain(secrets)
            });
        passed.chain(needed).map(String::as_str).next()
    })
}

/// Whether some of its values come from outside the project and the states.
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

/// What the stages after its apply need from elsewhere, if they are to follow.
fn later_needs_of(spec: &RunSpec) -> impl Iterator<Item = &Needs> {
    let wanted = !spec.stages_after().is_empty();
    let blocks = spec.stack.stages.blocks().filter(move |_| wanted);
    let places = place_inputs(&spec.facts).filter(move |_| wanted);
    let inputs = blocks.flat_map(|block| inputs(std::slice::from_ref(block)));
    inputs.chain(places).filter_map(|input| match input {
        Input::Known(_) => None,
        Input::Expression(expression) => Some(&expression.needs),
    })
}

/// What it takes to reach the places where its facts stand from before.
fn former_needs_of(spec: &RunSpec) -> impl Iterator<Item = &Needs> {
    let wanted = !spec.stages_after().is_empty();
    let standing = spec.standing.iter().filter(move |_| wanted);
    let inputs = standing.flat_map(model::facts::Standing::inputs);
    inputs.filter_map(|input| match input {
        Input::Known(_) => None,
        Input::Expression(expression) => Some(&expression.needs),
    })
}

/// Everything a run's values need from elsewhere.
fn needs_of(spec: &RunSpec) -> impl Iterator<Item = &Needs> {
    let inputs = spec.stack.inputs.values();
    let contexts = spec.contexts.iter().flat_map(Context::inputs);
    let backend = match &spec.target.backend {
        model::project::Backend::Terrane => None,
        model::project::Backend::Engine { settings, .. } => Some(settings.values()),
    };
    inputs
        .chain(contexts)
        .chain(backend.into_iter().flatten())
        .filter_map(|input| match input {
            Input::Known(_) => None,
            Input::Expression(expression) => Some(&expression.needs),
        })
}

/// The names that every engine gets of this environment, and those that are always set.
pub fn engine_names(env: &BTreeMap<String, String>, open_target: bool) -> Vec<String> {
    let base = drivers::process::engine_environment(env, open_target);
    base.names().map(str::to_owned).collect()
}

/// `*` stands for any characters, as in `ACTIONS_ID_TOKEN_*`.
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
