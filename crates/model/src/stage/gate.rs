//! Gates: checks that must pass before a stack counts as done. The settings of each kind, the evidence of a check, its
//! verdict, and when to check again; all as values.
//!
//! Not here: executing checks (`drivers::probe`, `drivers::kubernetes`), and their order (`control::stage::gates`).

mod cluster;
mod command;
mod dns;
mod equal;
mod http;
mod oidc;
mod order;
mod query;
mod redact;
mod schedule;
mod settings;
mod summary;
mod tcp;
#[cfg(test)]
mod tests;
mod tls;
mod verdict;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::diagnostic::Location;
use crate::base::masking::Mask;
use crate::stage::{ResolvedBlock, StageBlock};

pub use cluster::{AgentGate, ClusterEvidence, KubernetesGate, ObjectEvidence, ObjectRequirement};
pub use command::{CommandEvidence, CommandGate};
pub use dns::{DnsAnswer, DnsEvidence, DnsGate, DnsNameEvidence, RecordKind};
pub use equal::{EqualEvidence, EqualGate, LabelledValue, ValueEvidence};
pub use http::{BODY_LIMIT, HttpEvidence, HttpFailure, HttpGate, HttpReply, excerpt};
pub use oidc::{Discovery, OidcEvidence, OidcGate, OidcKey, withheld_query};
pub use order::{BlockingGate, GateReadiness};
pub use query::{ProbeQuery, ProbeQueryError};
pub use redact::mask_report;
pub use schedule::{NextCheck, Schedule};
pub use settings::GateSettingError;
pub use tcp::{TcpEvidence, TcpGate};
pub use tls::{CertificateEvidence, Handshake, TlsConnection, TlsEvidence, TlsGate, Trust};
pub use verdict::{CheckResult, GateMismatch, GateReport, GateVerdict};

/// A gate with all its values known. Kept in memory only, since settings may be secret.
#[derive(Clone, Debug)]
pub struct Gate {
    /// `NAME`, or `NAME-KEY` of a `for_each`.
    pub name: String,
    /// The name in the block. `after` may refer to all gates of a `for_each` by it.
    pub group: String,
    pub probe: Probe,
    pub schedule: Schedule,
    /// Names of gates or groups that must pass first.
    pub after: Vec<String>,
    /// Masks the secrets in its settings.
    pub mask: Mask,
    /// A compared value is a secret that is too short to mask, so only the verdict is kept.
    pub unmaskable: bool,
    pub at: Location,
}

/// What to check, with one variant per kind.
#[derive(Clone, Debug)]
pub enum Probe {
    Dns(DnsGate),
    Tls(TlsGate),
    Tcp(TcpGate),
    Http(HttpGate),
    Oidc(OidcGate),
    Kubernetes(KubernetesGate),
    Argocd(AgentGate),
    Flux(AgentGate),
    Equal(EqualGate),
    Command(CommandGate),
    /// A required value is missing, so it could not be set up. Its check reports this.
    Unready {
        kind: &'static str,
        why: String,
    },
}

/// The findings of a check, also kept if it passes. Never a secret, and at most a few kilobytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Evidence {
    Dns(DnsEvidence),
    Tls(TlsEvidence),
    Tcp(TcpEvidence),
    Http(HttpEvidence),
    Oidc(OidcEvidence),
    Kubernetes(ClusterEvidence),
    Argocd(ClusterEvidence),
    Flux(ClusterEvidence),
    Equal(EqualEvidence),
    Command(CommandEvidence),
}

impl Gate {
    /// Reads the gates of a stack, or returns all errors in them.
    pub fn read_all(blocks: &[ResolvedBlock]) -> Result<Vec<Self>, Vec<GateSettingError>> {
        let mut gates = Vec::new();
        let mut wrong = Vec::new();
        for block in blocks {
            match settings::read(block) {
                Ok(gate) => gates.push(gate),
                Err(errors) => wrong.extend(errors),
            }
        }
        if wrong.is_empty() {
            wrong.extend(order::check(&gates));
        }
        if wrong.is_empty() {
            Ok(gates)
        } else {
            Err(wrong)
        }
    }

    /// Reads one gate. With invalid values it becomes unready, without affecting other gates.
    pub fn read(block: &ResolvedBlock) -> Self {
        settings::read(block).unwrap_or_else(|wrong| {
            let words = wrong.into_iter().map(|it| match it.hint {
                Some(hint) => format!("{} ({hint})", it.message),
                None => it.message,
            });
            let why = words.collect::<Vec<_>>().join("; ");
            Self {
                group: settings::group(block),
                ..Self::unready(&block.kind, &block.name, block.at.clone(), why)
            }
        })
    }

    /// A gate of which only the name and the error are known.
    pub fn unready(kind: &str, name: &str, at: Location, why: String) -> Self {
        let mut kinds = settings::KINDS.into_iter();
        Self {
            name: name.to_owned(),
            group: name.to_owned(),
            probe: Probe::Unready {
                kind: kinds.find(|known| *known == kind).unwrap_or("unknown"),
                why,
            },
            schedule: Schedule::default().once(),
            after: Vec::new(),
            mask: Mask::default(),
            unmaskable: false,
            at,
        }
    }

    /// Errors in the order and the names of gates.
    pub fn check_order(gates: &[Self]) -> Vec<GateSettingError> {
        order::check(gates)
    }

    /// Errors that are visible in the block itself, whatever the later values are.
    pub fn check_known(block: &StageBlock) -> Vec<GateSettingError> {
        settings::check_known(block)
    }

    /// `dns`, `tls`, …, as in the project file.
    pub fn kind(&self) -> &'static str {
        self.probe.kind()
    }

    /// The time limit of one check, given the rest of the gate's time.
    pub fn look_limit(&self, left: Duration) -> Duration {
        let most = match &self.probe {
            Probe::Dns(_) | Probe::Tls(_) | Probe::Tcp(_) | Probe::Http(_) => 10,
            // Several requests in sequence.
            Probe::Oidc(_) | Probe::Equal(_) => 20,
            Probe::Kubernetes(_) | Probe::Argocd(_) | Probe::Flux(_) => 30,
            // The duration of a program is unknown.
            Probe::Command(_) | Probe::Unready { .. } => return left,
        };
        left.min(Duration::from_secs(most))
    }

    /// Whether this limit is shorter than usual, because the gate's time is nearly over. Ten seconds are always enough,
    /// also for programs.
    pub fn is_short(&self, limit: Duration) -> bool {
        let usual = self.look_limit(self.schedule.timeout);
        limit < usual.min(Duration::from_secs(10))
    }

    /// Commands with which a person can reproduce the check.
    pub fn look_further(&self) -> Vec<String> {
        let commands = match &self.probe {
            Probe::Dns(gate) => gate.look_further(),
            Probe::Tls(gate) => gate.look_further(),
            Probe::Tcp(gate) => gate.look_further(),
            Probe::Http(gate) => gate.look_further(),
            Probe::Oidc(gate) => gate.look_further(),
            Probe::Kubernetes(gate) => gate.look_further(),
            Probe::Argocd(gate) => gate.look_further("applications.argoproj.io"),
            Probe::Flux(gate) => gate.look_further(
                "kustomizations.kustomize.toolkit.fluxcd.io,helmreleases.helm.toolkit.fluxcd.io",
            ),
            Probe::Equal(gate) => gate.look_further(),
            Probe::Command(gate) => gate.look_further(),
            Probe::Unready { .. } => Vec::new(),
        };
        let masked = commands.iter().map(|line| self.mask.mask_text(line));
        masked.collect()
    }
}

impl Probe {
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Dns(_) => "dns",
            Self::Tls(_) => "tls",
            Self::Tcp(_) => "tcp",
            Self::Http(_) => "http",
            Self::Oidc(_) => "oidc",
            Self::Kubernetes(_) => "kubernetes",
            Self::Argocd(_) => "argocd",
            Self::Flux(_) => "flux",
            Self::Equal(_) => "equal",
            Self::Command(_) => "command",
            Self::Unready { kind, .. } => kind,
        }
    }
}

/// A word quoted for a shell.
fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/:@%+=,".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
