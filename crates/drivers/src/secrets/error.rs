//! Errors of secret references: the action, the cause, the next step. Never a value or a credential.

use std::io;
use std::path::PathBuf;

use model::base::error::{Explain, NextStep, advice};
use model::project::identity::UntrustedAddress;

use super::LARGEST;
use crate::process::{CaptureError, Exit};
use crate::sops::{DecryptError, IdentityError};

#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error(
        "this is not a secret reference: it begins with none of `env:`, `file:`, `sops:`, `dotenv:`, `command:`, `vault:`, `azure-keyvault:`, `aws-secretsmanager:`, `aws-ssm:`"
    )]
    NoSource,
    #[error("`{reference}` has nothing after its `:`")]
    Empty { reference: String },
    #[error("`{reference}` is not written as `{shape}`")]
    Shape {
        reference: String,
        shape: &'static str,
    },
    #[error("`{reference}` has an unclosed quote")]
    OpenQuote { reference: String },
    #[error("the environment variable `{name}` is not set")]
    Unset { name: String },
    #[error("there is no secret file `{}`", path.display())]
    NoFile { path: PathBuf },
    #[error("could not read the secret file `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("`{path}` begins with `~`, and `HOME` is not set")]
    NoHome { path: String },
    #[error("the secret file `{}` is larger than {LARGEST} bytes", path.display())]
    TooLarge { path: PathBuf },
    #[error("the secret from {origin} is not UTF-8")]
    NotText { origin: String },
    #[error("the secret from {origin} is empty")]
    NoValue { origin: String },
    #[error("cannot determine the format of `{path}` from its name")]
    Format { path: String },
    #[error("could not read the private keys for `{path}`")]
    Identities {
        path: String,
        source: Box<IdentityError>,
    },
    #[error("could not decrypt `{path}`")]
    Decrypt {
        path: String,
        source: Box<DecryptError>,
    },
    #[error("`{path}` has no value at `{key}`")]
    NoSuchValue {
        path: String,
        key: String,
        /// A similar name.
        near: Option<String>,
    },
    #[error("line {line} of `{path}` is not `NAME=VALUE`")]
    Line { path: String, line: usize },
    #[error("could not run the secret command `{program}`")]
    Run {
        program: String,
        source: CaptureError,
    },
    #[error("the secret command `{program}` ended with {exit}{}", .said.as_deref().map(|said| format!(": {said}")).unwrap_or_default())]
    Failed {
        program: String,
        exit: Exit,
        /// The end of standard error, without anything that the program printed.
        said: Option<String>,
    },
    #[error("could not {action}")]
    Exchange {
        action: String,
        source: ExchangeError,
        remedy: Option<String>,
    },
    #[error("cannot read `{key}` of `{place}`: it is not a JSON object")]
    NoFields { place: String, key: String },
    #[error("`{place}` has no `{key}`")]
    NoField { place: String, key: String },
    #[error("cannot find {who}: `{name}` is not set")]
    NoPlace {
        who: &'static str,
        name: &'static str,
    },
    #[error("cannot log in to {who}: no login method is configured")]
    NoLogin {
        who: &'static str,
        ways: &'static str,
    },
    #[error("the profile `{profile}` of `{path}` has no keys")]
    NoProfile { profile: String, path: String },
    #[error(
        "`{vault}` is not an Azure key vault: give its name, or its host below `vault.azure.net`"
    )]
    NotAVault { vault: String },
}

/// Why one request failed.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    #[error("cannot create an HTTP client")]
    Client(#[source] reqwest::Error),
    #[error("could not read the certificates that `{name}` names")]
    Certificates { name: &'static str },
    #[error("its address contains a user name or a password")]
    Credentials,
    #[error(transparent)]
    Place(#[from] UntrustedAddress),
    #[error("cannot reach `{place}`")]
    Send {
        place: String,
        source: reqwest::Error,
    },
    #[error("`{place}` answered {status}{}", .said.as_deref().map(|said| format!(": {said}")).unwrap_or_default())]
    Status {
        place: String,
        status: u16,
        /// The service's own message, without anything that was sent to it.
        said: Option<String>,
    },
    #[error("`{place}` answered more than {LARGEST} bytes")]
    TooLong { place: String },
    /// The parser's error is left out: it may quote the document.
    #[error("cannot parse the response of `{place}`")]
    Document { place: String },
    #[error("cannot get the token of this CI job")]
    Job(#[source] crate::oidc::FetchError),
}

impl ExchangeError {
    /// The HTTP status, if the service refused the request.
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            Self::Client(_)
            | Self::Certificates { .. }
            | Self::Credentials
            | Self::Place(_)
            | Self::Send { .. }
            | Self::TooLong { .. }
            | Self::Document { .. }
            | Self::Job(_) => None,
        }
    }
}

impl Explain for SecretError {
    fn next_steps(&self) -> Vec<NextStep> {
        vec![advice(match self {
            Self::Unset { name } => format!("set it: `export {name}=…`"),
            Self::NoPlace { name, .. } => format!("set it: `export {name}=…`"),
            Self::NoLogin { ways, .. } => (*ways).to_owned(),
            Self::Exchange {
                remedy: Some(remedy),
                ..
            } => remedy.clone(),
            Self::Decrypt { source, .. } => return source.next_steps(),
            Self::NoProfile { .. } => {
                "`aws configure export-credentials --format env` prints keys for the environment"
                    .to_owned()
            }
            Self::NoSuchValue {
                near: Some(near), ..
            } => format!("did you mean `{near}`?"),
            _ => return Vec::new(),
        })]
    }
}
