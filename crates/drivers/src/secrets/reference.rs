//! Parses secret references, and lists the variables that each kind uses.

use crate::process::split_words;
use std::str::FromStr;

use super::SecretError;

/// The location of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretReference {
    /// `env:NAME`.
    Env(String),
    /// `file:PATH`, as written: `~/` is the caller's home, a relative path starts at the project's root.
    File(String),
    /// `sops:FILE#KEY.PATH`: a value of an encrypted file, with a path as in `File`.
    Sops { path: String, key: String },
    /// `dotenv:FILE#NAME`: a line of a file of variables, with a path as in `File`.
    Dotenv { path: String, name: String },
    /// `command:PROGRAM ARGS`: a program and its arguments; no shell.
    Command(Vec<String>),
    /// `vault:MOUNT/PATH#KEY`: a field of a secret in a KV store, version 2.
    Vault {
        mount: String,
        path: String,
        key: String,
    },
    /// `azure-keyvault:VAULT/NAME[/VERSION]`; the vault by name or by host.
    AzureKeyVault {
        vault: String,
        name: String,
        version: Option<String>,
    },
    /// `aws-secretsmanager:NAME[#KEY]`; without a key, the whole text.
    AwsSecretsManager { name: String, key: Option<String> },
    /// `aws-ssm:NAME`.
    AwsSsm { name: String },
}

/// Variables that a GitHub job uses to request its identity token.
const GITHUB: [&str; 2] = [
    "ACTIONS_ID_TOKEN_REQUEST_URL",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
];

const VAULT: [&str; 11] = [
    "VAULT_ADDR",
    "VAULT_NAMESPACE",
    "VAULT_CACERT",
    "VAULT_TOKEN",
    "VAULT_ROLE_ID",
    "VAULT_SECRET_ID",
    "VAULT_ROLE",
    "VAULT_JWT",
    "VAULT_JWT_AUDIENCE",
    "VAULT_AUTH_PATH",
    "VAULT_K8S_TOKEN_FILE",
];

const AZURE: [&str; 13] = [
    "AZURE_TENANT_ID",
    "AZURE_CLIENT_ID",
    "AZURE_CLIENT_SECRET",
    "AZURE_FEDERATED_TOKEN_FILE",
    "AZURE_AUTHORITY_HOST",
    "AZURE_POD_IDENTITY_AUTHORITY_HOST",
    "AZURE_CONFIG_DIR",
    "ARM_TENANT_ID",
    "ARM_CLIENT_ID",
    "ARM_CLIENT_SECRET",
    "ARM_OIDC_TOKEN",
    "IDENTITY_ENDPOINT",
    "IDENTITY_HEADER",
];

const AWS: [&str; 22] = [
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_EC2_METADATA_DISABLED",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    "AWS_PROFILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_CONFIG_FILE",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_CA_BUNDLE",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_STS",
    "AWS_ENDPOINT_URL_SSM",
    "AWS_ENDPOINT_URL_SECRETS_MANAGER",
];

impl SecretReference {
    /// Variables of the caller's environment that configure the source and the login; besides `PATH`, `HOME` and
    /// the proxy variables, which every stage has.
    pub fn settings(&self) -> Vec<&'static str> {
        let own: &[&'static str] = match self {
            Self::Env(_)
            | Self::File(_)
            | Self::Sops { .. }
            | Self::Dotenv { .. }
            | Self::Command(_) => return Vec::new(),
            Self::Vault { .. } => &VAULT,
            Self::AzureKeyVault { .. } => &AZURE,
            Self::AwsSecretsManager { .. } | Self::AwsSsm { .. } => &AWS,
        };
        [own, &GITHUB, &["SSL_CERT_FILE"]].concat()
    }
}

impl FromStr for SecretReference {
    type Err = SecretError;

    fn from_str(raw: &str) -> Result<Self, Self::Err> {
        let reference = || raw.to_owned();
        // A text that is no reference may be the secret itself, so the error does not repeat it.
        let (source, rest) = raw.split_once(':').ok_or(SecretError::NoSource)?;
        let shape = |shape: &'static str| SecretError::Shape {
            reference: reference(),
            shape,
        };
        let read = match source {
            "env" => Self::Env(rest.to_owned()),
            "file" => Self::File(rest.to_owned()),
            "sops" => {
                let (path, key) = pair(rest, '#').ok_or_else(|| shape("sops:FILE#KEY.PATH"))?;
                Self::Sops { path, key }
            }
            "dotenv" => {
                let (path, name) = pair(rest, '#').ok_or_else(|| shape("dotenv:FILE#NAME"))?;
                Self::Dotenv { path, name }
            }
            "command" => {
                let words = split_words(rest).ok_or_else(|| SecretError::OpenQuote {
                    reference: reference(),
                })?;
                Self::Command(words)
            }
            "vault" => {
                let shape = || shape("vault:MOUNT/PATH#KEY");
                let (place, key) = pair(rest, '#').ok_or_else(shape)?;
                let (mount, path) = pair(place.trim_matches('/'), '/').ok_or_else(shape)?;
                Self::Vault { mount, path, key }
            }
            "azure-keyvault" => {
                let parts: Vec<&str> = rest.split('/').collect();
                let (vault, name, version) = match parts[..] {
                    [vault, name] => (vault, name, None),
                    [vault, name, version] => (vault, name, Some(version)),
                    _ => return Err(shape("azure-keyvault:VAULT/NAME")),
                };
                if parts.iter().any(|part| part.is_empty()) {
                    return Err(shape("azure-keyvault:VAULT/NAME"));
                }
                Self::AzureKeyVault {
                    vault: vault.to_owned(),
                    name: name.to_owned(),
                    version: version.map(str::to_owned),
                }
            }
            "aws-secretsmanager" => {
                let (name, key) = match rest.split_once('#') {
                    None => (rest, None),
                    Some((name, key)) => (name, Some(key.to_owned())),
                };
                if name.is_empty() || key.as_ref().is_some_and(String::is_empty) {
                    return Err(shape("aws-secretsmanager:NAME#KEY"));
                }
                Self::AwsSecretsManager {
                    name: name.to_owned(),
                    key,
                }
            }
            "aws-ssm" => Self::AwsSsm {
                name: rest.to_owned(),
            },
            _ => return Err(SecretError::NoSource),
        };
        if rest.trim().is_empty() {
            return Err(SecretError::Empty {
                reference: reference(),
            });
        }
        Ok(read)
    }
}

/// Splits into two non-empty parts.
fn pair(text: &str, separator: char) -> Option<(String, String)> {
    let (left, right) = text.split_once(separator)?;
    let is_whole = !left.is_empty() && !right.is_empty();
    is_whole.then(|| (left.to_owned(), right.to_owned()))
}
