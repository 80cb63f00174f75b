//! Turns a kubeconfig into a connection: certificates, server names, and the current credential.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use model::base::secret::Secret;
use model::stage::kubernetes::{ClusterCredentials, Kubeconfig};
use reqwest::{Certificate, Identity, redirect};
use tokio::sync::Mutex;

use super::plugin::{self, PluginCredential};
use super::{KubernetesClient, KubernetesError, MAX_ANSWER, PATIENCE};
use crate::process::Environment;

pub(super) struct Connection {
    config: Kubeconfig,
    /// The base address of requests: the server, or the name that its certificate must have.
    address: String,
    host_header: Option<String>,
    resolved: Option<(String, Vec<std::net::SocketAddr>)>,
    env: Environment,
    dir: PathBuf,
    held: Mutex<Option<CachedClient>>,
    /// Set while a plugin runs, and still set if the caller gave up waiting for it.
    waits_for_plugin: AtomicBool,
}

/// A client, and the expiry of its credential.
struct CachedClient {
    client: reqwest::Client,
    token: Option<Secret>,
    until: Option<Timestamp>,
}

impl KubernetesClient {
    /// Prepares a connection from a kubeconfig. No request is sent. A credential plugin runs when first needed,
    /// with this environment and in this directory.
    pub async fn new(
        config: Kubeconfig,
        env: &Environment,
        dir: impl Into<PathBuf>,
    ) -> Result<Self, KubernetesError> {
        let connection = Connection::new(config, env.clone(), dir.into()).await?;
        // Report invalid certificates here, not at the first request.
        if !connection.has_plugin() {
            connection.ready(false).await?;
        }
        Ok(Self {
            connection: std::sync::Arc::new(connection),
            known: std::sync::Arc::default(),
            max_answer: MAX_ANSWER,
        })
    }
}

impl Connection {
    async fn new(
        config: Kubeconfig,
        env: Environment,
        dir: PathBuf,
    ) -> Result<Self, KubernetesError> {
        let mut connection = Self {
            address: config.server.clone(),
            host_header: None,
            resolved: None,
            held: Mutex::new(None),
            waits_for_plugin: AtomicBool::new(false),
            config,
            env,
            dir,
        };
        connection.rename().await?;
        Ok(connection)
    }

    /// `tls-server-name`: this name is sent and verified, but the connection still goes to the server's address.
    async fn rename(&mut self) -> Result<(), KubernetesError> {
        let Some(name) = self.config.server_name.clone() else {
            return Ok(());
        };
        let unusable = || KubernetesError::Credential {
            attribute: "tls-server-name",
            source: None,
        };
        let server: reqwest::Url = self.config.server.parse().map_err(|_| unusable())?;
        let host = server.host_str().unwrap_or_default().to_owned();
        if host == name {
            return Ok(());
        }
        let port = server.port_or_known_default().unwrap_or(443);
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let addresses = tokio::net::lookup_host((bare, port)).await;
        let addresses = addresses.map_err(|source| KubernetesError::Address {
            host: host.clone(),
            source,
        })?;
        let mut renamed = server;
        // An IP address cannot be sent as a server name.
        if name.parse::<std::net::IpAddr>().is_ok() || renamed.set_host(Some(&name)).is_err() {
            return Err(unusable());
        }
        self.resolved = Some((name, addresses.collect()));
        let address = renamed.as_str().trim_end_matches('/');
        address.clone_into(&mut self.address);
        self.host_header = Some(format!("{host}:{port}"));
        Ok(())
    }

    pub(super) fn server(&self) -> &str {
        &self.config.server
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn host_header(&self) -> Option<&str> {
        self.host_header.as_deref()
    }

    pub(super) fn has_plugin(&self) -> bool {
        matches!(self.config.access, ClusterCredentials::Exec(_))
    }

    /// The error for a timeout that was spent waiting for the plugin and not for the server.
    pub(super) fn hung_plugin(&self, after: Duration) -> Option<KubernetesError> {
        match &self.config.access {
            ClusterCredentials::Exec(exec) if self.waits_for_plugin.load(Ordering::Relaxed) => {
                Some(plugin::hung(exec, after))
            }
            _ => None,
        }
    }

    /// A client with a valid credential; `anew` if the server refused the current one.
    pub(super) async fn ready(
        &self,
        anew: bool,
    ) -> Result<(reqwest::Client, Option<Secret>), KubernetesError> {
        let mut held = self.held.lock().await;
        self.waits_for_plugin.store(false, Ordering::Relaxed);
        if let Some(held) = held.as_ref()
            && !anew
            && held.until.is_none_or(|until| Timestamp::now() < until)
        {
            return Ok((held.client.clone(), held.token.clone()));
        }
        let credential = match &self.config.access {
            ClusterCredentials::Anonymous => PluginCredential::default(),
            ClusterCredentials::Token(token) => PluginCredential {
                token: Some(token.clone()),
                ..PluginCredential::default()
            },
            ClusterCredentials::Certificate { certificate, key } => PluginCredential {
                identity: Some((
                    decoded("client-certificate-data", certificate)?,
                    Secret::new(decoded("client-key-data", key.expose())?),
                )),
                ..PluginCredential::default()
            },
            ClusterCredentials::Exec(exec) => {
                self.waits_for_plugin.store(true, Ordering::Relaxed);
                let said = plugin::run(exec, &self.config, &self.env, &self.dir).await;
                self.waits_for_plugin.store(false, Ordering::Relaxed);
                said?
            }
        };
        let client = self.client(credential.identity.as_ref())?;
        let fresh = CachedClient {
            client: client.clone(),
            token: credential.token,
            until: credential.until,
        };
        let token = fresh.token.clone();
        *held = Some(fresh);
        Ok((client, token))
    }

    fn client(
        &self,
        identity: Option<&(String, Secret)>,
    ) -> Result<reqwest::Client, KubernetesError> {
        let unusable = |attribute: &'static str| {
            move |source| KubernetesError::Credential {
                attribute,
                source: Some(source),
            }
        };
        let mut builder = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .connect_timeout(PATIENCE / 3)
            .timeout(PATIENCE)
            .tls_danger_accept_invalid_certs(self.config.insecure)
            .user_agent(concat!("terrane/", env!("CARGO_PKG_VERSION")));
        if let (Some(authority), false) = (&self.config.authority, self.config.insecure) {
            let attribute = "certificate-authority-data";
            let pem = decoded(attribute, authority)?;
            let certificates = Certificate::from_pem_bundle(pem.as_bytes());
            let certificates = certificates.map_err(unusable(attribute))?;
            if certificates.is_empty() {
                return Err(KubernetesError::Credential {
                    attribute,
                    source: None,
                });
            }
            builder = builder.tls_certs_only(certificates);
        }
        if let Some((certificate, key)) = identity {
            let pem = Secret::new(format!("{certificate}\n{}", key.expose()));
            let identity = Identity::from_pem(pem.expose().as_bytes());
            builder = builder.identity(identity.map_err(unusable("client-key-data"))?);
        }
        if let Some((name, addresses)) = &self.resolved {
            builder = builder.resolve_to_addrs(name, addresses);
        }
        builder.build().map_err(unusable("server"))
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("server", &self.config.server)
            .finish_non_exhaustive()
    }
}

fn decoded(attribute: &'static str, text: &str) -> Result<String, KubernetesError> {
    let unusable = || KubernetesError::Credential {
        attribute,
        source: None,
    };
    let joined: String = text.split_whitespace().collect();
    let bytes = STANDARD.decode(joined).map_err(|_| unusable())?;
    String::from_utf8(bytes).map_err(|_| unusable())
}
