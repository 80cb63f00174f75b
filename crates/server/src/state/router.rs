//! The state routes of the server: which paths they have, who sent a request, and what it may do.
//!
//! Not here: the protocol (`protocol`), what a token allows (`control`).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Extension, Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use axum::{Router, body::Body};
use control::state::client_access::StateService;
use model::base::error::one_line;
use model::state::token::Token;
use tokio_util::task::TaskTracker;

use super::path::StatePath;
use super::protocol::{self, Access, Operation, RequestContext};
use crate::http::{
    AccessLog, ApiError, BodyBudget, LogSubject, PeerAddress, SignInLimit, credential,
};

/// Where states are served: terrane's own path, that of a Cloudflare worker, and GitLab's.
const PATHS: &[&str] = &[
    "/state/{*state}",
    "/tfstate/states/{*state}",
    "/api/v4/projects/{*state}",
];
/// With `--bare-paths`.
const BARE_PATHS: &[&str] = &["/{state}", "/{state}/lock"];

/// What the state routes share.
#[derive(Debug)]
pub(crate) struct StateApi {
    pub(crate) service: Arc<StateService>,
    pub(crate) bodies: BodyBudget,
    pub(crate) failed_sign_ins: SignInLimit,
    pub(crate) has_bare_paths: bool,
    /// Operations that finish even if their client is gone.
    pub(crate) tasks: TaskTracker,
}

/// Every state route needs a token; the operation determines the scope (`Operation::scope`).
pub(crate) fn routes(api: StateApi) -> Router {
    let bare = if api.has_bare_paths { BARE_PATHS } else { &[] };
    let paths = PATHS.iter().chain(bare);
    paths
        .fold(Router::new(), |router, path| {
            router.route(path, any(handle))
        })
        .with_state(Arc::new(api))
}

async fn handle(
    State(api): State<Arc<StateApi>>,
    Extension(PeerAddress(peer)): Extension<PeerAddress>,
    request: Request,
) -> Response {
    let path = request.uri().path();
    let Some(path) = StatePath::parse(path, api.has_bare_paths) else {
        let entry = AccessLog::unknown_path(peer, path);
        return (Extension(entry), ApiError::forbidden()).into_response();
    };
    let operation = Operation::of(request.method(), path.is_lock);
    let mut entry = AccessLog {
        peer,
        route: path.shape.as_str(),
        method: operation.map_or("other", Operation::as_str),
        subject: LogSubject::State(path.state.clone()),
        token: None,
    };
    let answered = async {
        let token = authenticate(&api, peer, request.headers()).await?;
        entry.token = Some(Arc::clone(&token));
        let operation = operation.ok_or_else(ApiError::forbidden)?;
        let access = Access::Client(api.service.access(token, path.state));
        operate(&api, access, operation, request, peer).await
    };
    let answered = answered.await;
    (Extension(entry), answered).into_response()
}

/// Finishes a write that has arrived completely even if its client is gone, since an engine may be killed
/// right after it sent its last state.
async fn operate(
    api: &Arc<StateApi>,
    access: Access,
    operation: Operation,
    request: Request,
    peer: IpAddr,
) -> Result<Response, ApiError> {
    let work = {
        let api = Arc::clone(api);
        let (head, body): (_, Body) = request.into_parts();
        async move {
            let context = RequestContext {
                bodies: &api.bodies,
                is_remote: !peer.to_canonical().is_loopback(),
            };
            protocol::answer(&access, operation, &head, body, context).await
        }
    };
    match operation {
        Operation::Read => work.await,
        Operation::Write | Operation::Lock | Operation::Unlock | Operation::Delete => {
            let finished = api.tasks.spawn(work).await;
            finished.unwrap_or_else(|_| Err(ApiError::unavailable()))
        }
    }
}

async fn authenticate(
    api: &StateApi,
    peer: IpAddr,
    headers: &HeaderMap,
) -> Result<Arc<Token>, ApiError> {
    let Some(secret) = credential(headers) else {
        return Err(ApiError::unauthorised());
    };
    let (failures, now) = (&api.failed_sign_ins, Instant::now());
    let is_exceeded = failures.is_exceeded(peer, now);
    match api.service.tokens().find(&secret, !is_exceeded).await {
        Ok(Some(token)) => Ok(token),
        Ok(None) if is_exceeded => Err(ApiError::too_many_failures()),
        Ok(None) => {
            failures.record_failure(peer, now);
            Err(ApiError::unauthorised())
        }
        Err(err) => {
            tracing::error!(error = %one_line(&err), "cannot read the tokens");
            Err(ApiError::unavailable())
        }
    }
}
