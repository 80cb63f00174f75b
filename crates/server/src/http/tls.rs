//! TLS from files. A renewed certificate is loaded without a restart; if it is unusable, the previous one
//! stays in use and the reason is logged.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use model::base::error::{Explain, one_line};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

/// The files are checked for changes at most this often.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Where certificate and key are, in PEM format.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Clients must present a certificate that one of these has signed.
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
    /// Time and size of each file when it was last read, usable or not.
    stamps: Vec<Option<(SystemTime, u64)>>,
    checked: Instant,
}

#[derive(Debug, thiserror::Error)]
pub enum LoadTlsError {
    #[error("cannot read {what} from `{}`", path.display())]
    Pem {
        what: &'static str,
        path: PathBuf,
        source: pem::Error,
    },
    #[error("`{}` contains no certificate", path.display())]
    Empty { path: PathBuf },
    #[error("cannot use certificate and key")]
    Pair(#[source] rustls::Error),
    #[error("cannot use the certificates in `{}`", path.display())]
    Root {
        path: PathBuf,
        source: rustls::Error,
    },
    #[error("cannot check clients against `{}`", path.display())]
    Verifier {
        path: PathBuf,
        source: VerifierBuilderError,
    },
}

impl Explain for LoadTlsError {}

impl Tls {
    pub fn load(files: TlsFiles) -> Result<Self, LoadTlsError> {
        // Stamps first: a change in between is noticed at the next check.
        let stamps = files.stamps();
        let loaded = Loaded {
            config: Arc::new(files.read()?),
            stamps,
            checked: Instant::now(),
        };
        Ok(Self {
            files,
            loaded: Mutex::new(loaded),
        })
    }

    /// Reads the files again, whether they have changed or not.
    pub fn reload(&self) {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.stamps.clear();
        self.reload_if_changed(&mut loaded);
    }

    /// The configuration for a new connection.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if loaded.checked.elapsed() >= CHECK_INTERVAL {
            self.reload_if_changed(&mut loaded);
        }
        Arc::clone(&loaded.config)
    }

    fn reload_if_changed(&self, loaded: &mut Loaded) {
        loaded.checked = Instant::now();
        let stamps = self.files.stamps();
        if stamps == loaded.stamps {
            return;
        }
        loaded.stamps = stamps;
        match self.files.read() {
            Ok(config) => {
                loaded.config = Arc::new(config);
                tracing::info!("certificate reloaded");
            }
            Err(err) => {
                tracing::error!(error = %one_line(&err), "cannot use the new certificate; the previous one stays in use");
            }
        }
    }
}

impl TlsFiles {
    fn stamps(&self) -> Vec<Option<(SystemTime, u64)>> {
        let paths = [
            Some(&self.certificate),
            Some(&self.key),
            self.client_ca.as_ref(),
        ];
        let stamp = |path: &PathBuf| {
            let metadata = fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        };
        paths.into_iter().flatten().map(stamp).collect()
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
