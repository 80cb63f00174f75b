//! The state server on a free port, and clients of it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use control::Control;
use control::access::tokens::{self, TokenRequest};
use control::state::client_access::StateService;
use model::base::actor::Actor;
use model::state::token::TokenScope;
use server::StateServer;
use server::http::{Limits, Tls};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::endpoint::{Home, basic, exchange};

/// Serves until it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    end: oneshot::Sender<()>,
    served: tokio::task::JoinHandle<()>,
}

/// A client with a token.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
}

impl Home {
    pub(crate) async fn serve(&self) -> Server {
        self.serve_with(None, Limits::default()).await
    }

    /// With a limit of so many bytes for a state.
    pub(crate) async fn serve_states_up_to(&self, body: usize) -> Server {
        let limits = Limits {
            body,
            ..Limits::default()
        };
        self.serve_with(None, limits).await
    }

    pub(crate) async fn serve_with(&self, tls: Option<Arc<Tls>>, limits: Limits) -> Server {
        start(StateServer::new(self.service(), limits), tls).await
    }

    /// With states at `/<name>`, too.
    pub(crate) async fn serve_bare_paths(&self) -> Server {
        let server = StateServer::new(self.service(), Limits::default());
        start(server.with_bare_paths(true), None).await
    }

    fn service(&self) -> StateService {
        StateService::new(self.control())
    }

    pub(crate) fn control(&self) -> Control {
        let root = self.path().join("home");
        let home = control::home::Home::at(
            control::home::HomeLocation::Directory(root.clone()),
            root,
            control::home::master_keys::KeySource::File(self.path().join("master.key")),
            String::new(),
        );
        Control::new(self.store.clone(), home, PathBuf::new(), PathBuf::new())
    }

    /// The secret of a new token.
    pub(crate) async fn token(&self, name: &str, scope: TokenScope, states: &str) -> String {
        let wish = TokenRequest {
            name: name.to_owned(),
            states: states.parse().unwrap(),
            scope,
            lifetime: None,
        };
        let secret = tokens::create(&self.control(), &Actor::named("test"), &wish)
            .await
            .unwrap();
        secret.expose().to_owned()
    }

    /// A client whose token has that scope for all states.
    pub(crate) async fn client(&self, server: &Server, scope: TokenScope) -> Client {
        Client {
            address: server.address,
            token: self.token(scope.as_str(), scope, "**").await,
        }
    }
}

async fn start(server: StateServer, tls: Option<Arc<Tls>>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (end, ended) = oneshot::channel::<()>();
    let served = tokio::spawn(server.serve(listener, tls, async {
        let _ = ended.await;
    }));
    Server {
        address,
        end,
        served,
    }
}

impl Server {
    /// Stops the server and waits until it has finished.
    pub(crate) async fn end(self) {
        drop(self.end);
        self.served.await.unwrap();
    }

    pub(crate) async fn stranger(&self, request: &str) -> (String, String, String) {
        exchange(self.address, request, "", "").await
    }
}

impl Client {
    /// Sends one request; returns `status` or `status body`.
    pub(crate) async fn ask(&self, request: &str, body: &str) -> String {
        let length = format!("Content-Length: {}\r\n", body.len());
        self.send(request, &length, body).await
    }

    pub(crate) async fn send(&self, request: &str, headers: &str, body: &str) -> String {
        let headers = basic(&self.token) + headers;
        let (status, _, body) = exchange(self.address, request, &headers, body).await;
        format!("{status} {body}").trim_end().to_owned()
    }

    /// The environment of an engine that stores its state there.
    pub(crate) fn environment(&self, path: &str) -> Vec<(&'static str, String)> {
        let url = format!("http://{}{path}", self.address);
        vec![
            ("TF_HTTP_ADDRESS", url.clone()),
            ("TF_HTTP_LOCK_ADDRESS", url.clone()),
            ("TF_HTTP_UNLOCK_ADDRESS", url),
            ("TF_HTTP_USERNAME", "anybody".to_owned()),
            ("TF_HTTP_PASSWORD", self.token.clone()),
        ]
    }
}
