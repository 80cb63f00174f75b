//! TLS from files, which may change while the server runs: a renewed certificate is taken up without a
//! restart. If what is there now cannot be used, what was loaded before stays in force, and the log says
//! so.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

use crate::error::chain;

/// Files are looked at no more often than this.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Where certificate and key are, as PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Clients must show a certificate that one of these has signed.
    pub client_ca: Option<PathBuf>,
}

#[derive(Debug)]
pub struct Tls {
    files: TlsFiles,
    loaded: Mutex<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    config: Arc<ServerConfig>,
    /// What the files looked like when they were last read, whether they could be used or not.
    seen: Vec<Option<(SystemTime, u64)>>,
    looked: Instant,
}

#[derive(Debug, thiserror::Error)]
pub enum LoadTlsError {
    #[error("could not read {what} from `{}`", path.display())]
    Pem {
        what: &'static str,
        path: PathBuf,
        source: pem::Error,
    },
    #[error("there is no certificate in `{}`", path.display())]
    Empty { path: PathBuf },
    #[error("certificate and key cannot be used")]
    Pair(#[source] rustls::Error),
    #[error("the certificates in `{}` cannot be used", path.display())]
    Root {
        path: PathBuf,
        source: rustls::Error,
    },
    #[error("clients cannot be checked against `{}`", path.display())]
    Verifier {
        path: PathBuf,
        source: VerifierBuilderError,
    },
}

impl Tls {
    pub fn load(files: TlsFiles) -> Result<Self, LoadTlsError> {
        // First the look, then the reading: a change in between is seen the next time.
        let seen = files.look();
        let loaded = Loaded {
            config: Arc::new(files.read()?),
            seen,
            looked: Instant::now(),
        };
        Ok(Self {
            files,
            loaded: Mutex::new(loaded),
        })
    }

    /// Reads the files again, changed or not.
    pub fn reload(&self) {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.seen.clear();
        self.look_again(&mut loaded);
    }

    /// For the next connection.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if loaded.looked.elapsed() >= LOOK_AGAIN {
            self.look_again(&mut loaded);
        }
        Arc::clone(&loaded.config)
    }

    fn look_again(&self, loaded: &mut Loaded) {
        loaded.looked = Instant::now();
        let seen = self.files.look();
        if seen == loaded.seen {
            return;
        }
        loaded.seen = seen;
        match self.files.read() {
            Ok(config) => {
                loaded.config = Arc::new(config);
                tracing::info!("certificate loaded again");
            }
            Err(err) => {
                tracing::error!(error = %chain(&err), "the new certificate cannot be used, the old one stays");
            }
        }
    }
}

impl TlsFiles {
    fn look(&self) -> Vec<Option<(SystemTime, u64)>> {
        let paths = [
            Some(&self.certificate),
            Some(&self.key),
            self.client_ca.as_ref(),
        ];
        let look = |path: &PathBuf| {
            let metadata = fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        };
        paths.into_iter().flatten().map(look).collect()
    }

    fn read(&self) -> Result<ServerConfig, LoadTlsError> {
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key);
        let key = key.map_err(|source| LoadTlsError::Pem {
            what: "the key",
            path: self.key.clone(),
            source,
        })?;
        let provider = Arc::new(default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(LoadTlsError::Pair)?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(roots(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = verifier.build().map_err(|source| LoadTlsError::Verifier {
                    path: path.clone(),
                    source,
                })?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(LoadTlsError::Pair)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, LoadTlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let found: Vec<_> = read.map_err(|source| LoadTlsError::Pem {
        what: "certificates",
        path: path.to_owned(),
        source,
    })?;
    if found.is_empty() {
        return Err(LoadTlsError::Empty {
            path: path.to_owned(),
        });
    }
    Ok(found)
}

fn roots(path: &Path) -> Result<RootCertStore, LoadTlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|source| LoadTlsError::Root {
                path: path.to_owned(),
                source,
            })?;
    }
    Ok(roots)
}
