//! A client for an HTTP backend that terrane does not run, with the engines' protocol: read, lock, write, unlock.
//!
//! Not here: our own endpoint (`server`), and what is done with a state (`control`).

use std::sync::OnceLock;
use std::time::Duration;

use model::base::error::{Explain, NextStep, advice};
use model::base::secret::Secret;
use model::state::lock::LockInfo;
use reqwest::StatusCode;

pub use reqwest::Method;

/// An address and its credential.
#[derive(Debug)]
pub struct HttpBackend {
    client: reqwest::Client,
    address: String,
    /// `USER:PASSWORD`, or a token alone.
    credential: Option<Secret>,
    /// The lock methods to try, in order; empty if the backend has no locks.
    ways: Vec<LockMethod>,
    /// The lock method that worked.
    used: OnceLock<LockMethod>,
    /// Time limit for taking and for releasing a lock.
    patience: Duration,
}

/// What is known about the locks of a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Locking {
    /// Nothing: try the methods of known servers.
    #[default]
    Unknown,
    /// `LOCK` and `UNLOCK` at the state's own address, unless set otherwise.
    Said {
        address: Option<String>,
        lock: Option<Method>,
        unlock: Option<Method>,
    },
    /// It has no locks.
    Nowhere,
}

/// One lock method.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LockMethod {
    address: String,
    lock: Method,
    unlock: Method,
}

impl LockMethod {
    fn at(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            lock: method("LOCK"),
            unlock: method("UNLOCK"),
        }
    }

    fn all(address: &str, locking: Locking) -> Vec<Self> {
        let own = Self::at(address);
        match locking {
            Locking::Nowhere => Vec::new(),
            Locking::Said {
                address,
                lock,
                unlock,
            } => vec![Self {
                address: address.unwrap_or(own.address),
                lock: lock.unwrap_or(own.lock),
                unlock: unlock.unwrap_or(own.unlock),
            }],
            Locking::Unknown => {
                let mut beside = Self::at(&below(address, "/lock"));
                // On other servers, `POST` could create a state of that name.
                if is_gitlab(address) {
                    (beside.lock, beside.unlock) = (Method::POST, Method::DELETE);
                }
                vec![own, beside]
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum HttpBackendError {
    #[error("cannot create an HTTP client")]
    Client(#[source] reqwest::Error),
    #[error("could not {action} the state at `{address}`")]
    Send {
        action: &'static str,
        address: String,
        source: reqwest::Error,
    },
    #[error("the state at `{address}` is locked by {holder}")]
    Locked { address: String, holder: String },
    #[error("could not {action} the state at `{address}`: it answered {status}")]
    Status {
        action: &'static str,
        address: String,
        status: u16,
    },
}

impl Explain for HttpBackendError {
    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::Status {
                action: "lock",
                status,
                ..
            } if is_unknown_way(*status) => vec![advice(
                "`--lock-address URL` sets where it locks, `--lock-method` and `--unlock-method` how; use `--no-lock` if it has no locks",
            )],
            Self::Client(_) | Self::Send { .. } | Self::Locked { .. } | Self::Status { .. } => {
                Vec::new()
            }
        }
    }
}

/// Whether the server does not support the path or the method.
fn is_unknown_way(status: u16) -> bool {
    [404, 405, 501].contains(&status)
}

/// Time limit for an answer of the backend.
const PATIENCE: Duration = Duration::from_mins(1);

impl HttpBackend {
    pub fn new(
        address: &str,
        credential: Option<Secret>,
        locking: Locking,
    ) -> Result<Self, HttpBackendError> {
        // A redirect would turn a write into a read that looks like success.
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(30))
            .read_timeout(PATIENCE)
            .build()
            .map_err(HttpBackendError::Client)?;
        Ok(Self {
            client,
            address: address.to_owned(),
            credential,
            ways: LockMethod::all(address, locking),
            used: OnceLock::new(),
            patience: PATIENCE,
        })
    }

    /// `None` if there is no state.
    pub async fn read(&self) -> Result<Option<Vec<u8>>, HttpBackendError> {
        let action = "read";
        let request = self.request(Method::GET, &self.address);
        let answer = self.send(action, request).await?;
        match answer.status() {
            StatusCode::NOT_FOUND | StatusCode::NO_CONTENT => return Ok(None),
            StatusCode::OK => {}
            status => return Err(self.status(action, status)),
        }
        let body = answer
            .bytes()
            .await
            .map_err(|source| self.broken(action, source))?;
        Ok(Some(body.to_vec()).filter(|body| !body.trim_ascii().is_empty()))
    }

    /// Whether it can be locked, as far as is known.
    pub fn has_locks(&self) -> bool {
        !self.ways.is_empty()
    }

    /// The lock method, unless it is the usual one at the state's own address.
    pub fn locked_by(&self) -> Option<String> {
        let used = self.used.get()?;
        let is_usual = *used == LockMethod::at(&self.address);
        (!is_usual).then(|| format!("{} at `{}`", used.lock, strip_credentials(&used.address)))
    }

    /// Does nothing if the backend has no locks.
    pub async fn lock(&self, info: &LockInfo) -> Result<(), HttpBackendError> {
        let mut refused = Ok(());
        for way in &self.ways {
            match self.lock_by(way, info).await {
                Err(HttpBackendError::Status {
                    action,
                    address,
                    status,
                }) if is_unknown_way(status) => {
                    // Report the first refusal, which concerns the configured address.
                    refused = refused.and(Err(HttpBackendError::Status {
                        action,
                        address,
                        status,
                    }));
                }
                done => {
                    // Set once: a second lock uses the same method.
                    let _ = self.used.set(way.clone());
                    return done;
                }
            }
        }
        refused
    }

    async fn lock_by(&self, way: &LockMethod, info: &LockInfo) -> Result<(), HttpBackendError> {
        let action = "lock";
        let request = self
            .request(way.lock.clone(), &way.address)
            .timeout(self.patience)
            .body(info.to_json());
        let answer = self.send(action, request).await?;
        match answer.status() {
            StatusCode::OK | StatusCode::CREATED | StatusCode::NO_CONTENT => Ok(()),
            StatusCode::LOCKED | StatusCode::CONFLICT => {
                let body = answer.bytes().await.unwrap_or_default();
                let holder = LockInfo::from_json(&body)
                    .map_or_else(|_| "somebody".to_owned(), |info| info.to_string());
                Err(HttpBackendError::Locked {
                    address: strip_credentials(&self.address),
                    holder,
                })
            }
            status => Err(self.status(action, status)),
        }
    }

    /// Writes under our lock.
    pub async fn write(&self, lock: &str, body: Vec<u8>) -> Result<(), HttpBackendError> {
        let action = "write";
        let mark = if self.address.contains('?') { '&' } else { '?' };
        let address = format!("{}{mark}ID={lock}", self.address);
        let request = self.request(Method::POST, &address).body(body);
        let answer = self.send(action, request).await?;
        match answer.status() {
            StatusCode::OK | StatusCode::CREATED | StatusCode::NO_CONTENT => Ok(()),
            status => Err(self.status(action, status)),
        }
    }

    /// Uses the lock method that worked; else the first.
    pub async fn unlock(&self, info: &LockInfo) -> Result<(), HttpBackendError> {
        let action = "unlock";
        let Some(way) = self.used.get().or(self.ways.first()) else {
            return Ok(());
        };
        let request = self
            .request(way.unlock.clone(), &way.address)
            .timeout(self.patience)
            .body(info.to_json());
        let answer = self.send(action, request).await?;
        match answer.status() {
            StatusCode::OK | StatusCode::NO_CONTENT => Ok(()),
            status => Err(self.status(action, status)),
        }
    }

    fn request(&self, method: Method, address: &str) -> reqwest::RequestBuilder {
        let request = self
            .client
            .request(method, address)
            .header("Content-Type", "application/json");
        match self.credential.as_ref().map(Secret::expose) {
            None => request,
            Some(credential) => match credential.split_once(':') {
                Some((user, password)) => request.basic_auth(user, Some(password)),
                None => request.basic_auth("terrane", Some(credential)),
            },
        }
    }

    async fn send(
        &self,
        action: &'static str,
        request: reqwest::RequestBuilder,
    ) -> Result<reqwest::Response, HttpBackendError> {
        request
            .send()
            .await
            .map_err(|source| self.broken(action, source))
    }

    fn broken(&self, action: &'static str, source: reqwest::Error) -> HttpBackendError {
        HttpBackendError::Send {
            action,
            address: strip_credentials(&self.address),
            source: source.without_url(),
        }
    }

    fn status(&self, action: &'static str, status: StatusCode) -> HttpBackendError {
        HttpBackendError::Status {
            action,
            address: strip_credentials(&self.address),
            status: status.as_u16(),
        }
    }
}

/// An address without user, password and query, which may hold secrets.
pub fn strip_credentials(address: &str) -> String {
    let address = address.split(['?', '#']).next().unwrap_or_default();
    match address.split_once("://") {
        None => address.to_owned(),
        Some((scheme, rest)) => {
            let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let host = host.rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}{path}")
        }
    }
}

/// An address with a suffix added to its path.
fn below(address: &str, more: &str) -> String {
    let (path, rest) = address.split_at(address.find(['?', '#']).unwrap_or(address.len()));
    format!("{}{more}{rest}", path.trim_end_matches('/'))
}

/// Whether this is the address of a state in GitLab.
fn is_gitlab(address: &str) -> bool {
    let path = address.split(['?', '#']).next().unwrap_or_default();
    path.contains("/api/v4/projects/") && path.contains("/terraform/state/")
}

/// Methods that are not standard HTTP.
fn method(word: &'static str) -> Method {
    Method::from_bytes(word.as_bytes()).unwrap_or(Method::POST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_backend_that_says_nothing_is_not_waited_for_for_ever() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/state", silent.local_addr().unwrap());
        let mut backend = HttpBackend::new(&address, None, Locking::default()).unwrap();
        backend.patience = Duration::from_millis(50);
        let info = LockInfo::default();
        assert!(backend.lock(&info).await.is_err());
        let given_up = backend.unlock(&info).await.unwrap_err();
        let HttpBackendError::Send { source, .. } = given_up else {
            panic!("{given_up}")
        };
        assert!(source.is_timeout(), "{source}");
    }

    #[test]
    fn ways_to_lock() {
        let ways = |address: &str| -> Vec<String> {
            let all = LockMethod::all(address, Locking::Unknown).into_iter();
            all.map(|way| format!("{} {} {}", way.lock, way.unlock, way.address))
                .collect()
        };
        assert_eq!(
            ways("https://w/states/a?x=1"),
            [
                "LOCK UNLOCK https://w/states/a?x=1",
                "LOCK UNLOCK https://w/states/a/lock?x=1"
            ]
        );
        assert_eq!(
            ways("https://g/api/v4/projects/1/terraform/state/a")[1],
            "POST DELETE https://g/api/v4/projects/1/terraform/state/a/lock"
        );
    }

    #[test]
    fn an_address_is_shown_without_what_opens_it() {
        for (address, shown) in [
            ("http://u:p@h:1/state/a", "http://h:1/state/a"),
            ("https://token@h/a?token=x#y", "https://h/a"),
            ("https://u:p@w@h", "https://h"),
            ("https://h/a@b", "https://h/a@b"),
        ] {
            assert_eq!(strip_credentials(address), shown);
        }
    }
}
