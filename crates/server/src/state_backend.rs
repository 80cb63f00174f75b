//! The state endpoint of one run: the HTTP backend of OpenTofu and Terraform, on loopback, for as
//! long as the run's engine lives.
//!
//! No redirect, no body on a granted lock, no 404 but for "there is no state": each of these loses
//! state or a lock in clients of the field.
//!
//! Not here: what a run may do (`control::state`), status codes (`error`).

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Query, Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, ETAG};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use axum::serve::ListenerExt as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use control::state::{StateAccess, StateAccessError};
use http_body_util::LengthLimitError;
use md5::{Digest as _, Md5};
use model::lock::LockInfo;
use model::secret::Secret;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::auth::RunToken;
use crate::error::ApiError;

const PATH: &str = "/state";
const CONTENT_MD5: &str = "content-md5";

/// Larger states are refused before they are read.
pub const DEFAULT_BODY_LIMIT: usize = 512 * 1024 * 1024;

/// A lock is seven short strings.
const LOCK_LIMIT: usize = 64 * 1024;

/// What one run's engine talks to.
#[derive(Clone, Debug)]
pub struct RunEndpoint {
    access: StateAccess,
    token: RunToken,
    body_limit: usize,
}

/// An endpoint and its deeds in flight.
struct Serving {
    endpoint: RunEndpoint,
    busy: mpsc::Sender<Infallible>,
}

#[derive(Deserialize)]
struct UpdateQuery {
    #[serde(rename = "ID")]
    id: Option<String>,
}

impl RunEndpoint {
    pub fn new(access: StateAccess, token: RunToken) -> Self {
        Self {
            access,
            token,
            body_limit: DEFAULT_BODY_LIMIT,
        }
    }

    #[must_use]
    pub fn with_body_limit(self, bytes: usize) -> Self {
        Self {
            body_limit: bytes,
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
    pub async fn serve(
        self,
        listener: TcpListener,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let listener = listener.tap_io(|stream| {
            // Answers are small and awaited; without this they wait for one another's receipts.
            let _ = stream.set_nodelay(true);
        });
        let (busy, mut idle) = mpsc::channel(1);
        let router = Router::new()
            .route(PATH, any(answer))
            .fallback(async || ApiError::forbidden())
            .with_state(Arc::new(Serving {
                endpoint: self,
                busy,
            }));
        axum::serve(listener, router)
            .with_graceful_shutdown(end)
            .await?;
        // Nothing is ever sent: this ends when the last deed that holds a sender has ended.
        let None::<Infallible> = idle.recv().await;
        Ok(())
    }

    async fn answer(&self, request: Request) -> Result<Response, ApiError> {
        if !self.token.admits(request.headers()) {
            return Err(ApiError::unauthorised());
        }
        let (head, body) = request.into_parts();
        match head.method.as_str() {
            "GET" => self.read().await,
            "POST" | "PUT" => self.write(&head.uri, &head.headers, body).await,
            "LOCK" => self.lock(&head.headers, body).await,
            "UNLOCK" => self.unlock(&head.headers, body).await,
            "DELETE" => Err(self
                .access
                .forbid("DELETE", "a run deletes no state")
                .await?
                .into()),
            _ => Err(ApiError::forbidden()),
        }
    }

    async fn read(&self) -> Result<Response, ApiError> {
        let Some((version, body)) = self.access.read().await? else {
            return Ok(StatusCode::NOT_FOUND.into_response());
        };
        let headers = [
            (CONTENT_TYPE, "application/json".to_owned()),
            (CACHE_CONTROL, "no-store".to_owned()),
            (ETAG, format!("\"{}\"", version.content)),
        ];
        Ok((headers, [(CONTENT_MD5, md5_of(&body))], body).into_response())
    }

    async fn write(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Response, ApiError> {
        let Ok(Query(query)) = Query::<UpdateQuery>::try_from_uri(uri) else {
            return Err(self.refuse("POST", "its query is not readable").await?);
        };
        let body = self.take(headers, body, self.body_limit, "POST").await?;
        self.access.write(query.id, Vec::from(body)).await?;
        Ok(StatusCode::OK.into_response())
    }

    async fn lock(&self, headers: &HeaderMap, body: Body) -> Result<Response, ApiError> {
        let body = self.take(headers, body, LOCK_LIMIT, "LOCK").await?;
        let Ok(info) = LockInfo::from_json(&body) else {
            return Err(self.refuse("LOCK", "its body is not a lock").await?);
        };
        self.access.lock(&info).await?;
        // Empty: a body is not read, and costs the engine its connection.
        Ok(StatusCode::OK.into_response())
    }

    async fn unlock(&self, headers: &HeaderMap, body: Body) -> Result<Response, ApiError> {
        let body = self.take(headers, body, LOCK_LIMIT, "UNLOCK").await?;
        if body.is_empty() {
            let why = "an UNLOCK without an id breaks whatever lock there is";
            return Err(self.access.forbid("UNLOCK", why).await?.into());
        }
        let Ok(info) = LockInfo::from_json(&body) else {
            return Err(self.refuse("UNLOCK", "its body is not a lock").await?);
        };
        self.access.unlock(&info.id).await?;
        Ok(StatusCode::OK.into_response())
    }

    /// The whole body, as it was sent.
    async fn take(
        &self,
        headers: &HeaderMap,
        body: Body,
        limit: usize,
        deed: &'static str,
    ) -> Result<Bytes, ApiError> {
        let length = headers
            .get(CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok());
        let length = length.and_then(|value| value.parse::<u64>().ok());
        if length.is_some_and(|length| length > limit as u64) {
            return Err(self.too_large(deed, limit).await?);
        }
        let bytes = match to_bytes(body, limit).await {
            Ok(bytes) => bytes,
            Err(err) if is_too_long(&err) => return Err(self.too_large(deed, limit).await?),
            Err(_) => return Err(self.refuse(deed, "it broke off").await?),
        };
        match headers.get(CONTENT_MD5) {
            Some(sent) if sent.as_bytes() != md5_of(&bytes).as_bytes() => Err(self
                .refuse(deed, "its bytes are not those of its Content-MD5")
                .await?),
            _ => Ok(bytes),
        }
    }

    async fn too_large(
        &self,
        deed: &'static str,
        limit: usize,
    ) -> Result<ApiError, StateAccessError> {
        self.access
            .record(deed, format!("it is larger than {limit} bytes"), None)
            .await?;
        Ok(ApiError::too_large())
    }

    async fn refuse(
        &self,
        deed: &'static str,
        why: &'static str,
    ) -> Result<ApiError, StateAccessError> {
        self.access.record(deed, why.to_owned(), None).await?;
        Ok(ApiError::bad_request())
    }
}

/// A request that came whole is carried through even if its sender is gone: an engine that was
/// killed after its last write has written.
async fn answer(State(serving): State<Arc<Serving>>, request: Request) -> Response {
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

/// Whether a body that did not say its length went over the limit.
fn is_too_long(err: &axum::Error) -> bool {
    let source = std::error::Error::source(err);
    source
        .and_then(|source| source.downcast_ref::<LengthLimitError>())
        .is_some()
}

fn md5_of(bytes: &[u8]) -> String {
    BASE64.encode(Md5::digest(bytes))
}
