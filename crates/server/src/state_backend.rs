//! The state endpoint of one run: the HTTP backend of OpenTofu and Terraform, on loopback, for as
//! long as the run's engine lives.
//!
//! Not here: the protocol (`wire`), what a run may do (`control::state`).

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse as _, Response};
use control::state::StateAccess;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use model::secret::Secret;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::auth::RunToken;
use crate::body::{IDLE, Room};
use crate::error::ApiError;
use crate::serve::pause_after;
use crate::wire::{self, Access, Deed, Setting};

const PATH: &str = "/state";

/// Larger states are refused before they are read.
pub const DEFAULT_BODY_LIMIT: usize = 512 * 1024 * 1024;

/// What one run's engine talks to.
#[derive(Clone, Debug)]
pub struct RunEndpoint {
    access: Access,
    token: RunToken,
    room: Room,
}

/// An endpoint and its deeds in flight.
struct Serving {
    endpoint: RunEndpoint,
    busy: mpsc::Sender<Infallible>,
}

impl RunEndpoint {
    pub fn new(access: StateAccess, token: RunToken) -> Self {
        Self {
            access: Access::Run(access),
            token,
            room: room(DEFAULT_BODY_LIMIT),
        }
    }

    #[must_use]
    pub fn with_body_limit(self, bytes: usize) -> Self {
        Self {
            room: room(bytes),
            ..self
        }
    }

    /// What the engine needs in its environment, so that nothing of it lands in a file.
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

    /// Answers until `end` comes, then finishes what it has begun.
    pub async fn serve(self, listener: TcpListener, end: impl Future<Output = ()>) {
        let (busy, mut idle) = mpsc::channel(1);
        let serving = Arc::new(Serving {
            endpoint: self,
            busy,
        });
        let graceful = GracefulShutdown::new();
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
            // Answers are small and awaited; without this they wait for one another's receipts.
            let _ = stream.set_nodelay(true);
            let serving = Arc::clone(&serving);
            let service = service_fn(move |request: Request<Incoming>| {
                let answered = answer(Arc::clone(&serving), request.map(Body::new));
                async { Ok::<_, Infallible>(answered.await) }
            });
            // Engines speak HTTP/1.1 where there is no TLS.
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(graceful.watch(connection));
        }
        drop(listener);
        drop(serving);
        graceful.shutdown().await;
        // Nothing is ever sent: this ends when the last deed that holds a sender has ended.
        let None::<Infallible> = idle.recv().await;
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response, ApiError> {
        if request.uri().path() != PATH {
            return Err(ApiError::forbidden());
        }
        if !self.token.admits(request.headers()) {
            return Err(ApiError::unauthorised());
        }
        let (head, body) = request.into_parts();
        let deed = Deed::of(&head.method, false).ok_or_else(ApiError::forbidden)?;
        let setting = Setting {
            room: &self.room,
            is_remote: false,
        };
        wire::answer(&self.access, deed, &head, body, setting).await
    }
}

/// An engine writes one state at a time: there is room for it.
fn room(limit: usize) -> Room {
    Room::new(limit, limit, IDLE)
}

/// A request that came whole is carried through even if its sender is gone: an engine that was
/// killed after its last write has written.
async fn answer(serving: Arc<Serving>, request: Request<Body>) -> Response {
    let deed = tokio::spawn(async move {
        let busy = serving.busy.clone();
        let answered = serving.endpoint.answer(request).await;
        drop(busy);
        answered
    });
    match deed.await {
        Ok(answered) => answered.into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
