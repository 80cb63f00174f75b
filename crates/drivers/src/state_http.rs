//! A running HTTP backend of somebody else's, as the engines speak to one: read, lock, write, unlock.
//!
//! Not here: our own endpoint (`server`), and what is done with a state (`control`).

use std::time::Duration;

use model::lock::LockInfo;
use model::secret::Secret;
use reqwest::{Method, StatusCode};

/// An address and who we are there.
#[derive(Clone, Debug)]
pub struct HttpBackend {
    client: reqwest::Client,
    address: String,
    /// `USER:PASSWORD`, or a token alone.
    credential: Option<Secret>,
    /// So long a lock is waited for, and that it is given up.
    patience: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum HttpBackendError {
    #[error("could not make a client")]
    Client(#[source] reqwest::Error),
    #[error("could not {deed} the state at `{address}`")]
    Send {
        deed: &'static str,
        address: String,
        source: reqwest::Error,
    },
    #[error("the state at `{address}` is locked by {holder}")]
    Locked { address: String, holder: String },
    #[error("could not {deed} the state at `{address}`: it answered {status}")]
    Status {
        deed: &'static str,
        address: String,
        status: u16,
    },
}

/// A backend that says nothing for so long is not waited for.
const PATIENCE: Duration = Duration::from_mins(1);

impl HttpBackend {
    pub fn new(address: &str, credential: Option<Secret>) -> Result<Self, HttpBackendError> {
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
            patience: PATIENCE,
        })
    }

    /// Nothing if there is no state.
    pub async fn read(&self) -> Result<Option<Vec<u8>>, HttpBackendError> {
        let deed = "read";
        let request = self.request(Method::GET, &self.address);
        let answer = self.send(deed, request).await?;
        match answer.status() {
            StatusCode::NOT_FOUND | StatusCode::NO_CONTENT => return Ok(None),
            StatusCode::OK => {}
            status => return Err(self.status(deed, status)),
        }
        let body = answer
            .bytes()
            .await
            .map_err(|source| self.broken(deed, source))?;
        Ok(Some(body.to_vec()).filter(|body| !body.trim_ascii().is_empty()))
    }

    pub async fn lock(&self, info: &LockInfo) -> Result<(), HttpBackendError> {
        let deed = "lock";
        let request = self
            .request(method("LOCK"), &self.address)
            .timeout(self.patience)
            .body(info.to_json());
        let answer = self.send(deed, request).await?;
        match answer.status() {
            StatusCode::OK => Ok(()),
            StatusCode::LOCKED | StatusCode::CONFLICT => {
                let body = answer.bytes().await.unwrap_or_default();
                let holder = LockInfo::from_json(&body)
                    .map_or_else(|_| "somebody".to_owned(), |info| info.to_string());
                Err(HttpBackendError::Locked {
                    address: nameable(&self.address),
                    holder,
                })
            }
            status => Err(self.status(deed, status)),
        }
    }

    /// Writes under a lock of ours.
    pub async fn write(&self, lock: &str, body: Vec<u8>) -> Result<(), HttpBackendError> {
        let deed = "write";
        let mark = if self.address.contains('?') { '&' } else { '?' };
        let address = format!("{}{mark}ID={lock}", self.address);
        let request = self.request(Method::POST, &address).body(body);
        let answer = self.send(deed, request).await?;
        match answer.status() {
            StatusCode::OK | StatusCode::CREATED | StatusCode::NO_CONTENT => Ok(()),
            status => Err(self.status(deed, status)),
        }
    }

    pub async fn unlock(&self, info: &LockInfo) -> Result<(), HttpBackendError> {
        let deed = "unlock";
        let request = self
            .request(method("UNLOCK"), &self.address)
            .timeout(self.patience)
            .body(info.to_json());
        let answer = self.send(deed, request).await?;
        match answer.status() {
            StatusCode::OK => Ok(()),
            status => Err(self.status(deed, status)),
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
        deed: &'static str,
        request: reqwest::RequestBuilder,
    ) -> Result<reqwest::Response, HttpBackendError> {
        request
            .send()
            .await
            .map_err(|source| self.broken(deed, source))
    }

    fn broken(&self, deed: &'static str, source: reqwest::Error) -> HttpBackendError {
        HttpBackendError::Send {
            deed,
            address: nameable(&self.address),
            source: source.without_url(),
        }
    }

    fn status(&self, deed: &'static str, status: StatusCode) -> HttpBackendError {
        HttpBackendError::Status {
            deed,
            address: nameable(&self.address),
            status: status.as_u16(),
        }
    }
}

/// An address as it may be shown: neither who asks there nor what is asked with it, which may hold a password or a token.
pub fn nameable(address: &str) -> String {
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

/// Words that HTTP itself does not know.
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
        let mut backend = HttpBackend::new(&address, None).unwrap();
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
    fn an_address_is_shown_without_what_opens_it() {
        for (address, shown) in [
            ("http://u:p@h:1/state/a", "http://h:1/state/a"),
            ("https://token@h/a?token=x#y", "https://h/a"),
            ("https://u:p@w@h", "https://h"),
            ("https://h/a@b", "https://h/a@b"),
        ] {
            assert_eq!(nameable(address), shown);
        }
    }
}
