//! `gate "tcp"`: a port accepts connections.

use serde::{Deserialize, Serialize};

use super::dns::split_port;
use super::settings::Reader;
use super::{CheckResult, Evidence, GateMismatch, quoted};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpGate {
    pub host: String,
    pub port: u16,
    /// The port must not accept connections.
    pub absent: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpEvidence {
    /// `host:port` as configured in the gate.
    pub address: String,
    /// The address of the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// Why there was no connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

impl TcpGate {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let address = reader.required_text("address");
        let (host, port) = split_port(&address);
        let port = port
            .and_then(|port| port.parse().ok())
            .filter(|port| *port > 0);
        if !address.is_empty() && (port.is_none() || host.is_empty()) {
            let shown = reader.shown("address", &address);
            reader.wrong("address", &format!("must be `host:port`, not {shown}"));
        }
        Self {
            host: host.to_owned(),
            port: port.unwrap_or_default(),
            absent: reader.flag("absent"),
        }
    }

    /// `host:port`
    pub fn address(&self) -> String {
        host_port(&self.host, self.port)
    }

    pub fn judge(&self, seen: TcpEvidence) -> CheckResult {
        let miss = match (&seen.failed, self.absent) {
            (Some(why), false) => Some(GateMismatch::new(&seen.address, "a listener", why)),
            (None, true) => {
                let seen_there = match seen.peer.as_deref() {
                    Some(peer) if peer != seen.address => format!("{peer} listens"),
                    _ => "somebody listens".to_owned(),
                };
                Some(GateMismatch::new(&seen.address, "no listener", seen_there))
            }
            (Some(_), true) | (None, false) => None,
        };
        let misses = miss.into_iter().collect();
        CheckResult::judged(Evidence::Tcp(seen), misses)
    }

    pub(super) fn look_further(&self) -> Vec<String> {
        vec![format!("nc -vz {} {}", quoted(&self.host), self.port)]
    }
}

pub(super) fn host_port(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}
