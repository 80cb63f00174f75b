//! A place that facts are written to: a `facts` block with everything in it known.

use std::collections::BTreeMap;
use std::path::Path;

use drivers::git::{Git, GitError};
use model::config::eval::{EvaluateError, Values, evaluate};
use model::config::resolve::StageValues;
use model::ids::StackName;
use model::project::{FactsPlace, Input, Owns, SensitiveFacts};
use model::secret::Secret;
use serde_json::Value;

use crate::stages::StackValues;

/// Where facts go if the block does not say.
const BRANCH: &str = "facts";

/// The credential is a secret; nothing else here is.
#[derive(Clone, Debug)]
pub struct Place {
    pub name: String,
    /// A Git remote or a path, which starts at the project's root.
    pub repository: String,
    pub branch: String,
    pub owns: Owns,
    pub on_sensitive: SensitiveFacts,
    /// Whether every value is encrypted.
    pub encrypt_all: bool,
    pub credential: Option<Secret>,
    /// The block it was read from.
    pub declared: FactsPlace,
}

#[derive(Debug, thiserror::Error)]
pub enum ReadPlaceError {
    #[error("`{attribute}` of `facts \"{place}\"` has no value")]
    Value {
        place: String,
        attribute: &'static str,
        source: EvaluateError,
    },
    #[error("`{attribute}` of `facts \"{place}\"` is not a text")]
    NotText {
        place: String,
        attribute: &'static str,
    },
    #[error("`facts \"{place}\"` names no repository, and the project has no remote `origin`")]
    NoRemote { place: String },
}

/// The project's own repository, for places that name none.
pub fn own_remote(
    asker: &BTreeMap<String, String>,
    root: &Path,
) -> Result<Option<String>, GitError> {
    match Git::new(asker).repository(root)? {
        Some(repository) => repository.remote_url("origin"),
        None => Ok(None),
    }
}

impl ReadPlaceError {
    /// The next step.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoRemote { .. } => {
                Some("say `repository = \"…\"`: a Git remote or a path".to_owned())
            }
            Self::Value { .. } | Self::NotText { .. } => None,
        }
    }
}

impl Place {
    /// `own_remote` is the project's own repository, where the block names none.
    pub fn read(
        place: &FactsPlace,
        values: &dyn Values,
        own_remote: Option<&str>,
    ) -> Result<Self, ReadPlaceError> {
        let text = |attribute: &'static str, input: &Option<Input>| {
            let Some(input) = input else {
                return Ok(None);
            };
            let evaluated = evaluate(input, values).map_err(|source| ReadPlaceError::Value {
                place: place.name.clone(),
                attribute,
                source,
            })?;
            match evaluated.value {
                Value::String(text) => Ok(Some(text)),
                Value::Null => Ok(None),
                Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                    Err(ReadPlaceError::NotText {
                        place: place.name.clone(),
                        attribute,
                    })
                }
            }
        };
        let repository = text("repository", &place.repository)?;
        let repository = repository.or_else(|| own_remote.map(str::to_owned));
        Ok(Self {
            name: place.name.clone(),
            repository: repository.ok_or_else(|| ReadPlaceError::NoRemote {
                place: place.name.clone(),
            })?,
            branch: text("branch", &place.branch)?.unwrap_or_else(|| BRANCH.to_owned()),
            owns: place.owns,
            on_sensitive: place.sensitive,
            encrypt_all: place.encrypt_all,
            credential: text("credential", &place.credential)?.map(Secret::new),
            declared: place.clone(),
        })
    }

    /// All places of a project.
    pub fn read_all(
        places: &BTreeMap<String, FactsPlace>,
        values: &dyn Values,
        own_remote: Option<&str>,
    ) -> Result<BTreeMap<String, Self>, ReadPlaceError> {
        let read = |(name, place): (&String, &FactsPlace)| {
            Ok((name.clone(), Self::read(place, values, own_remote)?))
        };
        places.iter().map(read).collect()
    }
}

/// A place takes environment and secrets from where the blocks of a stack take theirs.
impl Values for StackValues {
    fn output(&self, _stack: &StackName, _key: &str) -> Option<(Value, bool)> {
        None
    }

    fn env(&self, name: &str) -> Option<String> {
        StageValues::env(self, name)
    }

    fn secret(&self, reference: &str) -> Option<Secret> {
        StageValues::secret(self, reference)
    }
}
