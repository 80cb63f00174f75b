//! Errors of a cluster, with the server's own message where it may be shown.

use std::fmt::Write as _;
use std::time::Duration;

use model::base::duration::seconds;
use model::base::error::{Explain, NextStep, advice};
use model::base::masking;
use model::stage::kubernetes::{KubeconfigError, ObjectRef};
use serde::Deserialize;

use crate::process::CaptureError;

#[derive(Debug, thiserror::Error)]
pub enum KubernetesError {
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    #[error("cannot use `{attribute}` of the kubeconfig")]
    Credential {
        attribute: &'static str,
        source: Option<reqwest::Error>,
    },
    #[error("could not find the address of `{host}`")]
    Address {
        host: String,
        source: std::io::Error,
    },
    #[error("the credential plugin `{program}` is not on PATH")]
    NoPlugin {
        program: String,
        install: Option<String>,
    },
    #[error("cannot run the credential plugin `{program}`")]
    Plugin {
        program: String,
        source: CaptureError,
    },
    #[error("the credential plugin `{program}` did not answer within {}; the cluster was not contacted", seconds(*limit))]
    PluginHung { program: String, limit: Duration },
    #[error("the credential plugin `{program}` failed: {said}")]
    PluginFailed { program: String, said: String },
    #[error("the credential plugin `{program}` returned no credential")]
    NoCredential { program: String },
    #[error("could not {action} at `{server}`")]
    Send {
        action: String,
        server: String,
        source: reqwest::Error,
    },
    #[error("could not {action}: {message}")]
    Status {
        action: String,
        code: u16,
        /// The reason, such as `Forbidden`.
        reason: String,
        message: String,
    },
    #[error("could not {action}: {}", shown(conflicts))]
    Conflict {
        action: String,
        conflicts: Vec<Conflict>,
    },
    #[error("could not {action}: the answer has more than {limit} bytes")]
    TooLong { action: String, limit: usize },
    #[error("could not {action}: the response is not a Kubernetes response")]
    Answer { action: String },
    #[error("the cluster has no kind `{kind}`")]
    UnknownKind { kind: String },
    #[error("`{kind}` is the name of several kinds: {}", groups.join(", "))]
    Ambiguous { kind: String, groups: Vec<String> },
    #[error("`{kind}` is namespaced, but no namespace is given")]
    NoNamespace { kind: String },
    #[error("`{text}` is not `KIND/NAMESPACE/NAME` or `KIND/NAME`")]
    NotNamed { text: String },
    #[error("`{text}` is not a valid name pattern")]
    Pattern { text: String },
    #[error("a manifest has no kind or no name")]
    NoObject,
}

/// A field that another manager owns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    pub manager: String,
    pub field: String,
}

impl KubernetesError {
    /// Whether a retry may help: the server is not reachable yet, or busy, or starting.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Send { .. } | Self::Address { .. } => true,
            Self::Status { code, .. } => *code == 429 || *code >= 500,
            _ => false,
        }
    }

    /// Whether no server answered. A busy server, or one with an untrusted certificate, did answer.
    pub fn is_silence(&self) -> bool {
        match self {
            Self::Send { source, .. } => !is_tls(source),
            Self::Address { .. } => true,
            _ => false,
        }
    }

    pub(super) fn unknown(object: &ObjectRef) -> Self {
        Self::UnknownKind {
            kind: format!("{} of {}", object.kind, object.api_version),
        }
    }
}

impl Explain for KubernetesError {
    fn next_steps(&self) -> Vec<NextStep> {
        let text = match self {
            Self::Kubeconfig(err) => return err.next_steps(),
            Self::NoPlugin { install, .. } => install.clone().unwrap_or_else(|| {
                "install it, or provide a kubeconfig with a token or a certificate".to_owned()
            }),
            Self::Ambiguous { groups, .. } => match groups.first() {
                Some(group) => format!("name one of them, such as `{group}`"),
                None => return Vec::new(),
            },
            Self::PluginHung { .. } => {
                "run it in a terminal: it may be waiting for a login".to_owned()
            }
            Self::UnknownKind { .. } => {
                "check that its CustomResourceDefinition is installed".to_owned()
            }
            Self::Status { code: 401, .. } => {
                "the cluster rejects the credential of the kubeconfig".to_owned()
            }
            Self::Status { code: 403, .. } => {
                "the user of the kubeconfig lacks this permission".to_owned()
            }
            _ => return Vec::new(),
        };
        vec![advice(text)]
    }
}

/// Whether a TLS failure is among the causes. An `io::Error` hides the error that it wraps.
fn is_tls(err: &(dyn std::error::Error + 'static)) -> bool {
    let hidden = err.downcast_ref::<std::io::Error>();
    let hidden = hidden.and_then(std::io::Error::get_ref);
    let cause = match hidden {
        Some(hidden) => Some(hidden as &(dyn std::error::Error + 'static)),
        None => err.source(),
    };
    err.is::<rustls::Error>() || cause.is_some_and(is_tls)
}

fn shown(conflicts: &[Conflict]) -> String {
    let mut text = String::new();
    for (index, conflict) in conflicts.iter().enumerate() {
        if index > 0 {
            text.push_str(", ");
        }
        let _ = write!(
            text,
            "`{}` is held by `{}`",
            conflict.field, conflict.manager
        );
    }
    text
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    message: String,
    reason: String,
    details: Details,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Details {
    causes: Vec<Cause>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Cause {
    reason: String,
    message: String,
    field: String,
}

pub(super) fn refused(action: &str, code: u16, body: &[u8], is_secret: bool) -> KubernetesError {
    let status: Status = serde_json::from_slice(body).unwrap_or_default();
    let causes = &status.details.causes;
    let conflicts: Vec<Conflict> = causes
        .iter()
        .filter(|cause| cause.reason == "FieldManagerConflict")
        .map(|cause| Conflict {
            manager: manager_in(&cause.message),
            field: cause.field.trim_start_matches('.').to_owned(),
        })
        .collect();
    if code == 409 && !conflicts.is_empty() {
        return KubernetesError::Conflict {
            action: action.to_owned(),
            conflicts,
        };
    }
    let message = if is_secret {
        let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
        if fields.is_empty() {
            format!("it answered {code} {}", status.reason)
        } else {
            let fields = fields.join(", ");
            format!("it answered {code} {} about {fields}", status.reason)
        }
    } else if status.message.is_empty() {
        format!("it answered {code}")
    } else {
        cut(&status.message)
    };
    KubernetesError::Status {
        action: action.to_owned(),
        code,
        reason: status.reason,
        message: message.trim_end().to_owned(),
    }
}

/// `conflict with "NAME" using apps/v1 at …`, or `conflict with "NAME"`.
fn manager_in(message: &str) -> String {
    let mut parts = message.split('"');
    parts.next();
    parts.next().unwrap_or("somebody else").to_owned()
}

fn cut(text: &str) -> String {
    masking::cut(text, 600)
}
