//! A branch that facts are published to: a `facts` block with its values known.

use std::collections::BTreeMap;
use std::path::Path;

use drivers::git::{Git, GitError};
use model::base::error::{Explain, NextStep, advice};
use model::base::ids::StackName;
use model::base::secret::Secret;
use model::hcl::expression::Input;
use model::hcl::stored_expression::{EvaluateError, Values, evaluate};
use model::project::config::resolve::StageValues;
use model::stage::facts::{BranchOwnership, FactsBranch, SensitiveFacts};
use serde_json::Value;

use crate::stage::values::StackValues;

/// The branch, if the block names none.
const BRANCH: &str = "facts";

/// Where facts go. Only the credential is a secret.
#[derive(Clone, Debug)]
pub struct Destination {
    pub name: String,
    /// A Git remote or a path, which starts at the project's root.
    pub repository: String,
    pub branch: String,
    pub owns: BranchOwnership,
    pub on_sensitive: SensitiveFacts,
    /// Whether every value is encrypted.
    pub encrypt_all: bool,
    pub credential: Option<Secret>,
    /// The block it was read from.
    pub declared: FactsBranch,
}

#[derive(Debug, thiserror::Error)]
pub enum ReadDestinationError {
    #[error("cannot evaluate `{attribute}` of `facts \"{place}\"`")]
    Value {
        place: String,
        attribute: &'static str,
        source: EvaluateError,
    },
    #[error("`{attribute}` of `facts \"{place}\"` is not a string")]
    NotText {
        place: String,
        attribute: &'static str,
    },
    #[error("`facts \"{place}\"` names no repository, and the project has no remote `origin`")]
    NoRemote { place: String },
}

/// The project's own repository, if one of these blocks names none.
pub fn own_remote<'p>(
    asker: &BTreeMap<String, String>,
    root: &Path,
    places: impl IntoIterator<Item = &'p FactsBranch>,
) -> Result<Option<String>, GitError> {
    if places.into_iter().all(|place| place.repository.is_some()) {
        return Ok(None);
    }
    match Git::new(asker).repository(root)? {
        Some(repository) => repository.remote_url("origin"),
        None => Ok(None),
    }
}

impl Explain for ReadDestinationError {
    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::NoRemote { .. } => {
                vec![advice("set `repository = \"…\"`: a Git remote or a path")]
            }
            Self::Value { .. } | Self::NotText { .. } => Vec::new(),
        }
    }
}

impl Destination {
    /// `own_remote` is the project's own repository, where the block names none.
    pub fn read(
        place: &FactsBranch,
        values: &dyn Values,
        own_remote: Option<&str>,
    ) -> Result<Self, ReadDestinationError> {
        let text = |attribute: &'static str, input: &Option<Input>| {
            let Some(input) = input else {
                return Ok(None);
            };
            let evaluated =
                evaluate(input, values).map_err(|source| ReadDestinationError::Value {
                    place: place.name.clone(),
                    attribute,
                    source,
                })?;
            match evaluated.value {
                Value::String(text) => Ok(Some(text)),
                Value::Null => Ok(None),
                Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                    Err(ReadDestinationError::NotText {
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
            repository: repository.ok_or_else(|| ReadDestinationError::NoRemote {
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
        places: &BTreeMap<String, FactsBranch>,
        values: &dyn Values,
        own_remote: Option<&str>,
    ) -> Result<BTreeMap<String, Self>, ReadDestinationError> {
        let read = |(name, place): (&String, &FactsBranch)| {
            Ok((name.clone(), Self::read(place, values, own_remote)?))
        };
        places.iter().map(read).collect()
    }
}

/// A `facts` block takes environment and secrets from the same source as the blocks of a stack.
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
