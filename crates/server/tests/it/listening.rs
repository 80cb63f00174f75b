//! The state server on a free port, and clients of it.

use std::net::SocketAddr;
use std::sync::Arc;

use control::state_service::StateService;
use control::tokens::{self, TokenWish};
use model::token::TokenScope;
use server::service::{CONNECTIONS, StateServer};
use server::tls::Tls;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::endpoint::{Home, basic, exchange};

/// Serves until it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    end: oneshot::Sender<()>,
    served: tokio::task::JoinHandle<()>,
}

/// One who knows a token.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
}

impl Home {
    pub(crate) async fn serve(&self) -> Server {
        self.serve_with(None, 1024 * 1024 * 1024).await
    }

    pub(crate) async fn serve_with(&self, tls: Option<Arc<Tls>>, limit: usize) -> Server {
        self.serve_at_most(tls, limit, CONNECTIONS).await
    }

    pub(crate) async fn serve_at_most(
        &self,
        tls: Option<Arc<Tls>>,
        limit: usize,
        connections: usize,
    ) -> Server {
        let root = self.path().join("home");
        let home = control::home::Home::at(
            control::home::StorePlace::Directory(root.clone()),
            root,
            control::keys::KeySource::File(self.path().join("master.key")),
            String::new(),
        );
        let server = StateServer::new(StateService::new(self.store.clone(), home), limit)
            .limited_to(connections, connections);
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

    /// The secret of a new token.
    pub(crate) async fn token(&self, name: &str, scope: TokenScope, states: &str) -> String {
        let wish = TokenWish {
            name: name.to_owned(),
            states: states.parse().unwrap(),
            scope,
            lifetime: None,
        };
        let secret = tokens::create(&self.store, &wish).await.unwrap();
        secret.expose().to_owned()
    }

    /// Somebody with a token of that scope for all states.
    pub(crate) async fn client(&self, server: &Server, scope: TokenScope) -> Client {
        Client {
            address: server.address,
            token: self.token(scope.as_str(), scope, "**").await,
        }
    }
}

impl Server {
    /// Waits until everything that has begun is done.
    pub(crate) async fn end(self) {
        drop(self.end);
        self.served.await.unwrap();
    }

    pub(crate) async fn stranger(&self, request: &str) -> (String, String, String) {
        exchange(self.address, request, "", "").await
    }
}

impl Client {
    /// One request, told as `status` or `status body`.
    pub(crate) async fn ask(&self, request: &str, body: &str) -> String {
        let length = format!("Content-Length: {}\r\n", body.len());
        self.send(request, &length, body).await
    }

    pub(crate) async fn send(&self, request: &str, headers: &str, body: &str) -> String {
        let headers = basic(&self.token) + headers;
        let (status, _, body) = exchange(self.address, request, &headers, body).await;
        format!("{status} {body}").trim_end().to_owned()
    }

    /// What an engine needs to keep its state there.
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
