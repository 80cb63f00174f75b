//! The server as a whole: all its routes, and the limits around them.
//!
//! Not here: connections (`http`), what is done with states (`state`).

use std::sync::Arc;

use axum::Router;
use axum::extract::{Extension, Request, State};
use axum::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, get};
use control::state::client_access::StateService;
use model::base::error::one_line;
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;
use tower_http::limit::RequestBodyLimitLayer;

use crate::http::{
    AccessLog, ApiError, BodyBudget, HttpServer, Limits, Metrics, PeerAddress, SignInLimit, Tls,
    log_responses,
};
use crate::state::{self, StateApi};

/// Bytes of large request bodies that may be in memory at once.
const BODY_MEMORY: usize = 32 * 1024 * 1024;

/// Requests for pages have no body; a small one is ignored.
const PAGE_BODY_LIMIT: usize = 64 * 1024;

/// Serves every state of a home to clients with a token.
#[derive(Debug)]
pub struct StateServer {
    service: Arc<StateService>,
    limits: Limits,
    has_bare_paths: bool,
}

/// The data of the server's own pages.
struct Pages {
    service: Arc<StateService>,
    metrics: Arc<Metrics>,
}

impl StateServer {
    pub fn new(service: StateService, limits: Limits) -> Self {
        Self {
            service: Arc::new(service),
            limits,
            has_bare_paths: false,
        }
    }

    /// Whether `/<name>` names a state, too.
    #[must_use]
    pub fn with_bare_paths(self, has_bare_paths: bool) -> Self {
        Self {
            has_bare_paths,
            ..self
        }
    }

    /// Serves until `end` resolves, then finishes the requests that have begun.
    pub async fn serve(
        self,
        listener: TcpListener,
        tls: Option<Arc<Tls>>,
        end: impl Future<Output = ()>,
    ) {
        let (limits, tasks) = (self.limits, TaskTracker::new());
        let metrics = Arc::new(Metrics::default());
        let router = self.router(&metrics, tasks.clone());
        let server = HttpServer {
            router,
            tls,
            limits,
            metrics,
            tasks,
        };
        server.serve(listener, end).await;
    }

    /// Every route, with what a caller needs for it.
    fn router(self, metrics: &Arc<Metrics>, tasks: TaskTracker) -> Router {
        let pages = Arc::new(Pages {
            service: Arc::clone(&self.service),
            metrics: Arc::clone(metrics),
        });
        let bodies = BodyBudget::new(self.limits.body, BODY_MEMORY);
        let states = StateApi {
            bodies: bodies.spooled_in(self.service.work()),
            service: self.service,
            failed_sign_ins: SignInLimit::default(),
            has_bare_paths: self.has_bare_paths,
            tasks,
        };
        let router = Router::new()
            .route("/healthz", public(get(|| async { "ok\n" })))
            .route("/readyz", public(get(ready)))
            .route("/metrics", public(get(metrics_page)))
            .with_state(pages)
            .merge(state::routes(states)) // a token
            .fallback(unknown_path); // everyone
        log_responses(router, Arc::clone(metrics))
    }
}

/// A page that needs no token. A wrong method gets 403, as everywhere.
fn public<S: Clone + Send + Sync + 'static>(page: MethodRouter<S>) -> MethodRouter<S> {
    page.fallback(|| async { ApiError::forbidden() })
        .layer(RequestBodyLimitLayer::new(PAGE_BODY_LIMIT))
}

async fn ready(State(pages): State<Arc<Pages>>) -> Result<&'static str, ApiError> {
    match pages.service.check_ready().await {
        Ok(()) => Ok("ready\n"),
        Err(err) => {
            tracing::error!(error = %one_line(&err), "not ready");
            Err(ApiError::unavailable())
        }
    }
}

async fn metrics_page(State(pages): State<Arc<Pages>>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, kind)], pages.metrics.render()).into_response()
}

async fn unknown_path(
    Extension(PeerAddress(peer)): Extension<PeerAddress>,
    request: Request,
) -> Response {
    let entry = AccessLog::unknown_path(peer, request.uri().path());
    let status = if may_be_engine(request.headers()) {
        StatusCode::FORBIDDEN
    } else {
        StatusCode::NOT_FOUND
    };
    (Extension(entry), status).into_response()
}

/// Whether the client may be an engine. An engine with a wrong address must not get 404: it would conclude
/// that there is no state and create everything again. Engines send credentials but, unlike browsers and
/// scripts, no `Accept`.
fn may_be_engine(headers: &HeaderMap) -> bool {
    headers.contains_key(AUTHORIZATION) || !headers.contains_key(ACCEPT)
}
