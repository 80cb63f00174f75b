//! Resolves secret references in the stage that needs them. Values are never stored and never part of an
//! error.
//!
//! `env:`, `file:`, `sops:` and `dotenv:` are read on the requester's machine. A command is run, and a
//! service queried ([`SecretSources`]), where the value is needed, with the credentials in the caller's
//! environment.

mod aws;
mod azure;
mod error;
mod http;
mod local;
mod reference;
mod sources;
mod vault;

use std::collections::BTreeMap;
use std::path::Path;

use model::base::secret::Secret;

pub use error::{ExchangeError, SecretError};
pub use reference::SecretReference;
pub use sources::SecretSources;

use crate::process::Environment;

/// Enough for any key or certificate chain; also the limit of an answer.
const LARGEST: usize = 1 << 20;

/// What resolving may use.
#[derive(Clone, Copy, Debug)]
pub struct SecretContext<'a> {
    /// The caller's environment.
    pub asker: &'a BTreeMap<String, String>,
    /// The project's root.
    pub root: &'a Path,
    /// The environment of a command.
    pub env: &'a Environment,
    /// Cached answers of services for this caller.
    pub sources: &'a SecretSources,
}

/// Resolves a reference on this machine.
pub async fn resolve(
    reference: &SecretReference,
    around: SecretContext<'_>,
) -> Result<Secret, SecretError> {
    if let Some(secret) = read_from_caller(reference, around.asker, around.root)? {
        return Ok(secret);
    }
    match reference {
        SecretReference::Command(words) => local::run_command(words, around.root, around.env).await,
        elsewhere => around.sources.read(elsewhere, around.asker).await,
    }
}

/// Reads a secret that is on the caller's machine, which must be this one; `None` for other sources.
pub fn read_from_caller(
    reference: &SecretReference,
    asker: &BTreeMap<String, String>,
    root: &Path,
) -> Result<Option<Secret>, SecretError> {
    let home = asker.get("HOME").map(Path::new);
    let read = match reference {
        SecretReference::Env(name) => match asker.get(name) {
            // A CI job sees an empty value if the secret is not set.
            Some(value) if value.is_empty() => Err(SecretError::NoValue {
                origin: format!("`env:{name}`"),
            }),
            Some(value) => Ok(Secret::new(value)),
            None => Err(SecretError::Unset { name: name.clone() }),
        },
        SecretReference::File(path) => local::read_file(path, root, home),
        SecretReference::Sops { path, key } => local::read_sops(path, key, root, asker),
        SecretReference::Dotenv { path, name } => local::read_dotenv(path, name, root, home),
        SecretReference::Command(_)
        | SecretReference::Vault { .. }
        | SecretReference::AzureKeyVault { .. }
        | SecretReference::AwsSecretsManager { .. }
        | SecretReference::AwsSsm { .. } => return Ok(None),
    };
    read.map(Some)
}

#[cfg(test)]
mod tests;
