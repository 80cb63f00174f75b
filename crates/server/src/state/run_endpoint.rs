//! The state endpoint of one run: the HTTP backend of OpenTofu and Terraform on loopback, while the run's engine runs.
//!
//! It serves one client that is trusted with one state, and its CPU time counts as terrane's own. So it has neither a router
//! nor limits of its own.
//!
//! Not here: the protocol (`protocol`), what a run may do (`control::state::run_access`).

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse as _, Response};
use control::state::run_access::StateAccess;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use model::base::secret::Secret;
use tokio::net::TcpListener;
use tokio::task::JoinError;
use tokio_util::task::TaskTracker;

use super::protocol::{self, Access, Operation, RequestContext};
use crate::http::{ApiError, BodyBudget, DEFAULT_BODY_LIMIT, RunToken, pause_after};

const PATH: &str = "/state";

/// The server that one run's engine connects to.
#[derive(Clone, Debug)]
pub struct RunEndpoint {
    access: Access,
    token: RunToken,
    bodies: BodyBudget,
}

impl RunEndpoint {
    pub fn new(access: StateAccess, token: RunToken) -> Self {
        Self {
            access: Access::Run(access),
            token,
            bodies: BodyBudget::unshared(DEFAULT_BODY_LIMIT),
        }
    }

    #[must_use]
    pub fn with_body_limit(self, bytes: usize) -> Self {
        Self {
            bodies: BodyBudget::unshared(bytes),
            ..self
        }
    }

    /// The engine's environment: in a file, the token could be read by others.
    pub fn environment(&self, address: SocketAddr) -> Vec<(&'static str, Secret)> {
        let url = Secret::new(format!("http://{address}{PATH}"));
        vec![
            ("TF_HTTP_ADDRESS", url.clone()),
            ("TF_HTTP_LOCK_ADDRESS", url.clone()),
            ("TF_HTTP_UNLOCK_ADDRESS", url),
            ("TF_HTTP_USERNAME", Secret::new("run")),
            ("TF_HTTP_PASSWORD", self.token.secret().clone()),
        ]
    }

    /// Serves until `end` resolves, then finishes the requests that have begun.
    pub async fn serve(self, listener: TcpListener, end: impl Future<Output = ()>) {
        let (endpoint, operations) = (Arc::new(self), TaskTracker::new());
        let connections = GracefulShutdown::new();
        let mut end = pin!(end);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = &mut end => break,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(err) => {
                    pause_after(&err).await;
                    continue;
                }
            };
            // Responses are small, and the engine waits for them: do not delay them (Nagle's algorithm).
            let _ = stream.set_nodelay(true);
            let (endpoint, operations) = (Arc::clone(&endpoint), operations.clone());
            let service = service_fn(move |request: Request<Incoming>| {
                let endpoint = Arc::clone(&endpoint);
                let request = request.map(Body::new);
                // Once a write has arrived completely, it is finished even if its engine is gone.
                let answered = operations.spawn(async move { endpoint.answer(request).await });
                async move { Ok::<_, Infallible>(response(answered.await)) }
            });
            // Engines use HTTP/1.1 where there is no TLS.
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connections.watch(connection));
        }
        drop(listener);
        connections.shutdown().await;
        operations.close();
        operations.wait().await;
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response, ApiError> {
        if request.uri().path() != PATH {
            return Err(ApiError::forbidden());
        }
        if !self.token.admits(request.headers()) {
            return Err(ApiError::unauthorised());
        }
        let (head, body) = request.into_parts();
        let operation = Operation::of(&head.method, false).ok_or_else(ApiError::forbidden)?;
        let context = RequestContext {
            bodies: &self.bodies,
            is_remote: false,
        };
        protocol::answer(&self.access, operation, &head, body, context).await
    }
}

fn response(answered: Result<Result<Response, ApiError>, JoinError>) -> Response {
    match answered {
        Ok(answered) => answered.into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
