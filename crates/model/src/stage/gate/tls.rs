//! `gate "tls"`: a certificate is valid.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::settings::Reader;
use super::tcp::host_port;
use super::{CheckResult, Evidence, GateMismatch, quoted};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsGate {
    pub host: String,
    pub port: u16,
    /// Connect to this address instead of the host's: `host` or `host:port`.
    pub address: Option<String>,
    pub valid_for: Duration,
    /// A part of the name of an issuer in the chain.
    pub issuer: Option<String>,
    /// Used instead of the system's roots.
    pub ca: Option<String>,
    /// The offered protocols; one of them must be negotiated.
    pub alpn: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsEvidence {
    pub host: String,
    /// The address of the connection, or the intended one.
    pub address: String,
    #[serde(flatten)]
    pub handshake: Handshake,
}

/// How far the handshake got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "handshake", rename_all = "kebab-case")]
pub enum Handshake {
    NoListener {
        why: String,
    },
    /// The server responds, but not with TLS.
    NotTls,
    /// The server refused, with this alert.
    Refused {
        alert: String,
    },
    /// The server closed the connection or sent nothing before its certificate.
    Silent {
        why: String,
    },
    Done(TlsConnection),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsConnection {
    pub version: String,
    pub cipher: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alpn: Option<String>,
    /// As presented, the server's own first.
    pub chain: Vec<CertificateEvidence>,
    pub trust: Trust,
    pub covers_host: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateEvidence {
    pub subject: String,
    pub issuer: String,
    /// The names and addresses that it covers.
    pub names: Vec<String>,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    /// SHA-256, in hexadecimal.
    pub fingerprint: String,
}

/// Whether the chain leads to a trusted root. Validity times are checked separately.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "trust", rename_all = "kebab-case")]
pub enum Trust {
    Trusted,
    SelfSigned,
    UnknownIssuer,
    Broken { why: String },
}

impl TlsGate {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let host = reader.required_text("host");
        if host.contains(['/', '*']) || host.contains(char::is_whitespace) {
            let shown = reader.shown("host", &host);
            reader.wrong("host", &format!("must be a host name, not {shown}"));
        }
        Self {
            host,
            port: reader.port("port").unwrap_or(443),
            address: reader.text("address"),
            valid_for: reader.duration("valid_for").unwrap_or_default(),
            issuer: reader.text("issuer"),
            ca: reader.pem("ca"),
            alpn: reader.texts("alpn"),
        }
    }

    /// `host:port` to connect to.
    pub fn place(&self) -> String {
        match &self.address {
            None => host_port(&self.host, self.port),
            Some(address) => match super::dns::split_port(address) {
                (_, Some(_)) => address.clone(),
                (host, None) => host_port(host, self.port),
            },
        }
    }

    pub fn judge(&self, seen: TlsEvidence, now: Timestamp) -> CheckResult {
        let certificate = "a valid certificate";
        let at = |what: &str| format!("{what} at {}", seen.address);
        let misses = match &seen.handshake {
            Handshake::NoListener { why } => {
                let seen = at(&format!("no listener ({why})"));
                vec![GateMismatch::new(&self.host, certificate, seen)]
            }
            Handshake::NotTls => {
                vec![
                    GateMismatch::new(&self.host, certificate, at("something that is not TLS"))
                        .also("a port for plain text, or a proxy's own protocol"),
                ]
            }
            Handshake::Refused { alert } => {
                let seen = at(&format!("the handshake refused: `{alert}`"));
                let miss = GateMismatch::new(&self.host, certificate, seen);
                vec![match alert.as_str() {
                    "UnrecognizedName" | "InternalError" | "HandshakeFailure" => {
                        miss.also("often: the server has no certificate for this host yet")
                    }
                    "NoApplicationProtocol" => miss.also("it speaks none of `alpn`"),
                    _ => miss,
                }]
            }
            Handshake::Silent { why } => {
                let seen = at(&format!("no certificate ({why})"));
                vec![GateMismatch::new(&self.host, certificate, seen)]
            }
            Handshake::Done(connection) => self.misses(connection, now),
        };
        CheckResult::judged(Evidence::Tls(seen), misses)
    }

    fn misses(&self, connection: &TlsConnection, now: Timestamp) -> Vec<GateMismatch> {
        let mut misses = Vec::new();
        let Some(leaf) = connection.chain.first() else {
            return vec![GateMismatch::new(
                &self.host,
                "a certificate",
                "none was shown",
            )];
        };
        if let Some(who) = leaf.is_placeholder() {
            let seen = format!("a placeholder of {who}: `{}`", leaf.subject);
            return vec![
                GateMismatch::new("certificate", format!("one for `{}`", self.host), seen)
                    .also("the real one is not ready, or not attached to this listener"),
            ];
        }
        let by = match &self.ca {
            Some(_) => "the certificates of `ca`",
            None => "a root that this system trusts",
        };
        let untrusted = match &connection.trust {
            Trust::Trusted => None,
            Trust::SelfSigned => Some("it signed itself".to_owned()),
            Trust::UnknownIssuer => {
                let last = connection.chain.last().unwrap_or(leaf);
                let alone = if connection.chain.len() == 1 {
                    "; it is shown without any intermediate certificate"
                } else {
                    ""
                };
                Some(format!("unknown issuer `{}`{alone}", last.issuer))
            }
            Trust::Broken { why } => Some(why.clone()),
        };
        if let Some(seen) = untrusted {
            misses.push(GateMismatch::new("chain", format!("signed by {by}"), seen));
        }
        if !connection.covers_host {
            let names = if leaf.names.is_empty() {
                "no names".to_owned()
            } else {
                leaf.names.join(", ")
            };
            misses.push(GateMismatch::new("host name", &self.host, names));
        }
        misses.extend(
            connection
                .chain
                .iter()
                .filter_map(|one| self.out_of_time(one, now)),
        );
        if let Some(wanted) = &self.issuer {
            let wanted_folded = wanted.to_lowercase();
            let mut chain = connection.chain.iter();
            if !chain.any(|one| one.issuer.to_lowercase().contains(&wanted_folded)) {
                misses.push(GateMismatch::new("issuer", wanted, &leaf.issuer));
            }
        }
        if !self.alpn.is_empty() {
            let chosen = connection.alpn.as_deref();
            if !chosen.is_some_and(|chosen| self.alpn.iter().any(|word| word == chosen)) {
                let seen = chosen.unwrap_or("no protocol chosen");
                misses.push(GateMismatch::new("alpn", self.alpn.join(" or "), seen));
            }
        }
        misses
    }

    fn out_of_time(&self, one: &CertificateEvidence, now: Timestamp) -> Option<GateMismatch> {
        let wanted = SignedDuration::try_from(self.valid_for).unwrap_or(SignedDuration::MAX);
        let left = one.not_after.duration_since(now);
        let subject = format!("validity of `{}`", one.subject);
        let until = format!("until {}", seconds(one.not_after));
        let at_least = if self.valid_for.is_zero() {
            "valid now".to_owned()
        } else {
            format!("valid for {} more", span(wanted))
        };
        if one.not_before > now {
            let seen = format!("not valid before {}", seconds(one.not_before));
            return Some(GateMismatch::new(subject, at_least, seen));
        }
        if left <= SignedDuration::ZERO {
            let seen = format!("expired {} ago, on {}", span(-left), seconds(one.not_after));
            return Some(GateMismatch::new(subject, at_least, seen));
        }
        (left < wanted)
            .then(|| GateMismatch::new(subject, at_least, format!("{} left, {until}", span(left))))
    }

    pub(super) fn look_further(&self) -> Vec<String> {
        let place = quoted(&self.place());
        let host = quoted(&self.host);
        vec![format!(
            "openssl s_client -connect {place} -servername {host} -showcerts </dev/null"
        )]
    }
}

impl CertificateEvidence {
    /// The product whose placeholder it is: controllers present one until the real certificate exists.
    fn is_placeholder(&self) -> Option<&'static str> {
        let known = [
            (
                "Kubernetes Ingress Controller Fake Certificate",
                "ingress-nginx",
            ),
            ("TRAEFIK DEFAULT CERT", "Traefik"),
            ("cert-manager.local", "cert-manager"),
        ];
        let names = [&self.subject, &self.issuer];
        known
            .into_iter()
            .find(|(words, _)| names.iter().any(|name| name.contains(words)))
            .map(|(_, who)| who)
    }
}

/// Truncated to seconds.
fn seconds(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second())
        .unwrap_or(at)
        .to_string()
}

/// `12 d`, `36 h`, `50 m`, `7 s`.
fn span(length: SignedDuration) -> String {
    let seconds = length.as_secs();
    match seconds {
        172_800.. => format!("{} d", seconds / 86_400),
        7200.. => format!("{} h", seconds / 3600),
        120.. => format!("{} m", seconds / 60),
        _ => format!("{seconds} s"),
    }
}
