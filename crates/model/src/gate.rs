//! Gates: probes that must pass before a stack counts as done. What each kind is told, what a look at the
//! world showed, what that means, and when to look again; all as values.
//!
//! Not here: looking (`drivers::probe`, `drivers::kubernetes`), and in which order (`control::stage::gates`).

mod asked;
mod brief;
mod cluster;
mod command;
mod dns;
mod equal;
mod http;
mod oidc;
mod order;
mod redact;
mod schedule;
mod settings;
mod tcp;
#[cfg(test)]
mod tests;
mod tls;
mod verdict;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::diagnostic::Location;
use crate::masking::Mask;
use crate::stage::{ResolvedBlock, StageBlock};

pub use asked::{Asked, NotAsked};
pub use cluster::{AgentGate, ClusterSeen, KubernetesGate, ObjectSeen, Want};
pub use command::{CommandGate, CommandSeen};
pub use dns::{DnsAnswer, DnsGate, DnsSeen, NameSeen, RecordKind};
pub use equal::{EqualGate, EqualSeen, Labelled, ValueSeen};
pub use http::{BODY_LIMIT, HttpAnswer, HttpGate, HttpSeen, Unanswered, excerpt};
pub use oidc::{Discovery, KeySeen, OidcGate, OidcSeen, withheld_query};
pub use order::{Standing, Stop};
pub use redact::mask_report;
pub use schedule::{Next, Schedule};
pub use settings::SettingError;
pub use tcp::{TcpGate, TcpSeen};
pub use tls::{CertificateSeen, Connection, Handshake, TlsGate, TlsSeen, Trust};
pub use verdict::{GateReport, Look, Miss, Verdict};

/// One gate, all of it known. Held in memory only: settings may be secrets.
#[derive(Clone, Debug)]
pub struct Gate {
    /// `NAME`, or `NAME-KEY` of a `for_each`.
    pub name: String,
    /// The name as the block has it: `after` may mean all of a `for_each` by it.
    pub group: String,
    pub probe: Probe,
    pub schedule: Schedule,
    /// Names of gates or of groups that must have passed before.
    pub after: Vec<String>,
    /// Hides what its settings hold of secrets.
    pub mask: Mask,
    /// What it compares is a secret too short to be masked: only the verdict is kept.
    pub unmaskable: bool,
    pub at: Location,
}

/// What to look at, one variant for each kind.
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
    /// It could not be set up: a value that it needs is not there. Looking at it says so.
    Unready {
        kind: &'static str,
        why: String,
    },
}

/// What a look found, kept for passes too. Never a secret, never more than a few kilobytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Evidence {
    Dns(DnsSeen),
    Tls(TlsSeen),
    Tcp(TcpSeen),
    Http(HttpSeen),
    Oidc(OidcSeen),
    Kubernetes(ClusterSeen),
    Argocd(ClusterSeen),
    Flux(ClusterSeen),
    Equal(EqualSeen),
    Command(CommandSeen),
}

impl Gate {
    /// Reads the gates of a stack, or says everything that is wrong with them.
    pub fn read_all(blocks: &[ResolvedBlock]) -> Result<Vec<Self>, Vec<SettingError>> {
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

    /// Reads one gate. One that its values do not allow is unready, and in nobody else's way.
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

    /// A gate of which nothing but this is known.
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

    /// What is wrong with the order in which gates want to be looked at, and with their names.
    pub fn check_order(gates: &[Self]) -> Vec<SettingError> {
        order::check(gates)
    }

    /// What is wrong with a gate by what its block says itself, whatever the values will be that come later.
    pub fn check_known(block: &StageBlock) -> Vec<SettingError> {
        settings::check_known(block)
    }

    /// `dns`, `tls`, …, as the project file says it.
    pub fn kind(&self) -> &'static str {
        self.probe.kind()
    }

    /// How long one look may take, with this much left of the gate's time.
    pub fn look_limit(&self, left: Duration) -> Duration {
        let most = match &self.probe {
            Probe::Dns(_) | Probe::Tls(_) | Probe::Tcp(_) | Probe::Http(_) => 10,
            // Several requests, one after the other.
            Probe::Oidc(_) | Probe::Equal(_) => 20,
            Probe::Kubernetes(_) | Probe::Argocd(_) | Probe::Flux(_) => 30,
            // A program knows best how long it takes.
            Probe::Command(_) | Probe::Unready { .. } => return left,
        };
        left.min(Duration::from_secs(most))
    }

    /// Whether a look with this limit had less time than a look has at the gate's beginning: near the end. What a
    /// program needs nobody knows; ten seconds are not little.
    pub fn is_short(&self, limit: Duration) -> bool {
        let usual = self.look_limit(self.schedule.timeout);
        limit < usual.min(Duration::from_secs(10))
    }

    /// Commands that show a person the same.
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

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/:@%+=,".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
