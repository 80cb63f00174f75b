//! The environment of child processes, and its base for engines.
//!
//! | names | when |
//! |---|---|
//! | `PATH` `HOME` `TMPDIR` | if the caller's environment has them |
//! | `LANG` `LANGUAGE` `LC_*` | if the caller's environment has them |
//! | `HTTP_PROXY` `HTTPS_PROXY` `NO_PROXY` `ALL_PROXY`, in both cases | if the caller's environment has them |
//! | `SSH_AUTH_SOCK` `DOCKER_HOST` `KUBECONFIG` | on targets of `anyone`, if the caller's environment has them |
//! | `TF_IN_AUTOMATION=1` `TF_INPUT=0` `CHECKPOINT_DISABLE=1` | always |
//! | `TF_PLUGIN_CACHE_DIR` | only during an `init` that fetches providers (`engine::PluginCache`) |
//! | what contexts and `pass_env` give | added by `control` |
//!
//! Nothing else is passed on, in particular not the caller's `TF_*`, `AWS_*`, `ARM_*` and tokens.

use std::collections::BTreeMap;
use std::fmt;

use model::base::secret::Secret;

/// The environment of a child process. Nothing is inherited from our own. Every value counts as a secret, so
/// `Debug` shows only names.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<String, Secret>);

impl Environment {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) -> &mut Self {
        self.set_secret(name, Secret::new(value))
    }

    pub fn set_secret(&mut self, name: impl Into<String>, value: Secret) -> &mut Self {
        self.0.insert(name.into(), value);
        self
    }

    pub fn get(&self, name: &str) -> Option<&Secret> {
        self.0.get(name)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub(super) fn exposed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.expose()))
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let pairs = pairs.into_iter();
        Self(
            pairs
                .map(|(name, value)| (name.into(), Secret::new(value)))
                .collect(),
        )
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

const ALWAYS_TAKEN: [&str; 5] = ["PATH", "HOME", "TMPDIR", "LANG", "LANGUAGE"];
const PROXY: [&str; 4] = ["http_proxy", "https_proxy", "no_proxy", "all_proxy"];
const TAKEN_ON_OPEN_TARGETS: [&str; 3] = ["SSH_AUTH_SOCK", "DOCKER_HOST", "KUBECONFIG"];
const ALWAYS_SET: [(&str, &str); 3] = [
    ("TF_IN_AUTOMATION", "1"),
    ("TF_INPUT", "0"),
    ("CHECKPOINT_DISABLE", "1"),
];

/// The base of an engine's environment, before contexts: see the table of this module. `open_target` is a target
/// whose writers are `anyone`.
pub fn engine_environment(asker: &BTreeMap<String, String>, open_target: bool) -> Environment {
    let taken = |name: &str| {
        ALWAYS_TAKEN.contains(&name)
            || name.starts_with("LC_")
            || PROXY.contains(&name)
            || PROXY.iter().any(|proxy| proxy.to_ascii_uppercase() == name)
            || (open_target && TAKEN_ON_OPEN_TARGETS.contains(&name))
    };
    let mut env: Environment = asker
        .iter()
        .filter(|(name, _)| taken(name))
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    for (name, value) in ALWAYS_SET {
        env.set(name, value);
    }
    env
}
