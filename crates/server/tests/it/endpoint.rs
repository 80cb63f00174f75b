//! A home, and endpoints that serve a state of it.

use std::net::SocketAddr;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use control::state::run_access::StateAccess;
use model::base::ids::RunId;
use model::base::secret::Secret;
use model::state::{ExpectedHead, StateName};
use server::http::RunToken;
use server::state::RunEndpoint;
use store::{Keyring, Store};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

pub(crate) struct Home {
    dir: tempfile::TempDir,
    pub(crate) store: Store,
}

/// Serves until it is dropped.
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    pub(crate) environment: Vec<(&'static str, Secret)>,
    token: RunToken,
    end: oneshot::Sender<()>,
    served: tokio::task::JoinHandle<()>,
}

pub(crate) fn network() -> StateName {
    StateName::new("p", "network")
}

impl Home {
    pub(crate) async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let keyring = Keyring::open_or_create(&dir.path().join("master.key")).unwrap();
        let store = Store::open(&dir.path().join("home"), keyring)
            .await
            .unwrap();
        Self { dir, store }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) async fn plan(&self, run: i64) -> Endpoint {
        let access = StateAccess::for_plan(self.store.clone(), network(), RunId(run)).await;
        serve(access.unwrap(), None).await
    }

    pub(crate) async fn apply(&self, run: i64) -> Endpoint {
        self.apply_expecting(run, ExpectedHead::Any).await
    }

    pub(crate) async fn apply_expecting(&self, run: i64, expected: ExpectedHead) -> Endpoint {
        let (store, run) = (self.store.clone(), RunId(run));
        serve(
            StateAccess::for_apply(store, network(), run, expected, true),
            None,
        )
        .await
    }

    pub(crate) async fn apply_limited(&self, run: i64, limit: usize) -> Endpoint {
        let (store, run) = (self.store.clone(), RunId(run));
        let access = StateAccess::for_apply(store, network(), run, ExpectedHead::Any, true);
        serve(access, Some(limit)).await
    }

    /// The newest state, or nothing.
    pub(crate) async fn head(&self) -> Option<serde_json::Value> {
        let head = self.store.state_head(&network()).await.unwrap()?;
        let body = self.store.state_version_read(&head).await.unwrap();
        Some(serde_json::from_slice(&body).unwrap())
    }

    pub(crate) async fn lock_holder(&self) -> Option<String> {
        let row = self.store.state_get(&network()).await.unwrap()?;
        row.lock.map(|lock| lock.info.id)
    }

    /// The first refusal, as soon as it is there.
    pub(crate) async fn refusal(&self) -> String {
        loop {
            if let Some(first) = self.refusals().await.into_iter().next() {
                return first;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Every refusal so far: what was asked, and why not.
    pub(crate) async fn refusals(&self) -> Vec<String> {
        let refusals = self.store.refusal_list(&network()).await.unwrap();
        refusals
            .iter()
            .map(|refusal| format!("{}: {}", refusal.method, refusal.reason))
            .collect()
    }
}

async fn serve(access: StateAccess, limit: Option<usize>) -> Endpoint {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let token = RunToken::new(Secret::new("a token of this test"));
    let mut endpoint = RunEndpoint::new(access, token.clone());
    if let Some(limit) = limit {
        endpoint = endpoint.with_body_limit(limit);
    }
    let environment = endpoint.environment(address);
    let (end, ended) = oneshot::channel::<()>();
    let served = tokio::spawn(endpoint.serve(listener, async {
        let _ = ended.await;
    }));
    Endpoint {
        address,
        environment,
        token,
        end,
        served,
    }
}

impl Endpoint {
    /// Sends one request; returns `status` or `status body`.
    pub(crate) async fn ask(&self, request: &str, body: &str) -> String {
        let length = format!("Content-Length: {}\r\n", body.len());
        self.send(request, &(self.credentials() + &length), body)
            .await
    }

    /// Sends a request and goes away.
    pub(crate) async fn abandon(&self, request: &str, headers: &str, body: &str) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let head = format!("{request} HTTP/1.1\r\nHost: here\r\n{headers}\r\n{body}");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        // Until the other side has seen it.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }

    pub(crate) async fn end(self) {
        drop(self.end);
        self.served.await.unwrap();
    }

    pub(crate) fn credentials(&self) -> String {
        basic(self.token.secret().expose())
    }

    /// As it is, for requests no client would make.
    pub(crate) async fn send(&self, request: &str, headers: &str, body: &str) -> String {
        let (status, _, body) = self.exchange(request, headers, body).await;
        format!("{status} {body}").trim_end().to_owned()
    }

    pub(crate) async fn exchange(
        &self,
        request: &str,
        headers: &str,
        body: &str,
    ) -> (String, String, String) {
        exchange(self.address, request, headers, body).await
    }
}

/// One request on a connection of its own: the answer's status, head and body.
pub(crate) async fn exchange(
    address: SocketAddr,
    request: &str,
    headers: &str,
    body: &str,
) -> (String, String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("{request} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n{headers}\r\n");
    // The other side may have answered and gone already: that is what is tested.
    let _ = stream.write_all(head.as_bytes()).await;
    let _ = stream.write_all(body.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).unwrap_or("no answer").to_owned();
    (status, head.to_ascii_lowercase(), body.to_owned())
}

pub(crate) fn basic(token: &str) -> String {
    let basic = BASE64.encode(format!("run:{token}"));
    format!("Authorization: Basic {basic}\r\n")
}
