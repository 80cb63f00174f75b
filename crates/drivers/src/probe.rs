//! Probes for gates: names, ports, certificates, pages, sign-ins. Each probe is limited in time and bytes, follows
//! no redirect to another scheme, and leaves no connection open.
//!
//! Not here: gate settings and the meaning of a result (`model::stage::gate`), clusters (`kubernetes`), when to probe
//! again (`control::stage::gates`).

pub mod dns;
pub mod http;
pub mod oidc;
pub mod tcp;
#[cfg(test)]
mod tests;
pub mod tls;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use model::base::duration::seconds;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// How many full bodies may be in memory at once; each may be as long as `model::stage::gate::BODY_LIMIT`.
const WHOLE_BODIES: usize = 20;

/// Shared by all probes: the system's root certificates, an HTTP client, and permits for long bodies.
#[derive(Clone, Debug)]
pub struct Probes {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    roots: OnceLock<Arc<RootCertStore>>,
    client: OnceLock<reqwest::Client>,
    bodies: Semaphore,
}

impl Default for Probes {
    fn default() -> Self {
        Self::new()
    }
}

impl Probes {
    pub fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                roots: OnceLock::new(),
                client: OnceLock::new(),
                bodies: Semaphore::new(WHOLE_BODIES),
            }),
        }
    }

    /// The trusted roots: a gate's own CA alone, or else the system's.
    fn roots(&self, ca: Option<&str>) -> Result<Arc<RootCertStore>, String> {
        if let Some(ca) = ca {
            let mut roots = RootCertStore::empty();
            for one in CertificateDer::pem_slice_iter(ca.as_bytes()) {
                let one = one.map_err(|err| format!("`ca` cannot be read: {err}"))?;
                let added = roots.add(one);
                added.map_err(|err| format!("`ca` holds no usable certificate: {err}"))?;
            }
            return Ok(Arc::new(roots));
        }
        let roots = self.shared.roots.get_or_init(|| {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            Arc::new(roots)
        });
        Ok(Arc::clone(roots))
    }
}

/// The time at which a probe ends.
#[derive(Clone, Copy, Debug)]
struct Deadline {
    limit: Duration,
    at: Instant,
}

impl Deadline {
    fn after(limit: Duration) -> Self {
        Self {
            limit,
            at: Instant::now() + limit,
        }
    }

    fn left(self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// `nothing within 10 s`
    fn words(self) -> String {
        format!("nothing within {}", seconds(self.limit))
    }
}

/// A short description of a connection error.
fn io_words(err: &std::io::Error) -> String {
    use std::io::ErrorKind as Kind;
    let words = match err.kind() {
        Kind::ConnectionRefused => "connection refused",
        Kind::ConnectionReset => "connection reset",
        Kind::TimedOut => "timed out",
        Kind::HostUnreachable => "host unreachable",
        Kind::NetworkUnreachable => "network unreachable",
        Kind::UnexpectedEof => "it hung up",
        _ => return err.to_string(),
    };
    words.to_owned()
}
