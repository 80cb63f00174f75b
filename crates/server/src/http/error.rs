//! The one place where errors get a status code.
//!
//! Engines act on the number. 404 on a GET means "there is no state, create everything", a redirect on a POST loses the
//! state, and a request that gets 5xx or 429 is sent again.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use control::state::run_access::StateAccessError;
use model::base::error::one_line;
use model::state::HeldLock;
use model::state::lock::LockInfo;

use super::access_log::RefusalReason;
use super::body::BodyError;

/// A response that refuses a request.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    /// Both engines read the body of a conflict as the holder's lock.
    lock: Option<Box<LockInfo>>,
    header: Option<(HeaderName, &'static str)>,
    /// For the log: clients show only the status code.
    reason: Option<String>,
}

impl ApiError {
    /// For every request without a valid token, whether the state exists or not.
    pub(crate) fn unauthorised() -> Self {
        Self {
            header: Some((WWW_AUTHENTICATE, "Basic realm=\"terrane\"")),
            ..Self::new(StatusCode::UNAUTHORIZED)
        }
    }

    /// Also for an unknown path or method: 404 would mean that there is no state.
    pub(crate) fn forbidden() -> Self {
        Self::new(StatusCode::FORBIDDEN)
    }

    pub(crate) fn bad_request() -> Self {
        Self::new(StatusCode::BAD_REQUEST)
    }

    /// The address sent too many wrong tokens. Clients wait and try again.
    pub(crate) fn too_many_failures() -> Self {
        Self {
            header: Some((RETRY_AFTER, "10")),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS)
        }
    }

    fn new(status: StatusCode) -> Self {
        Self {
            status,
            lock: None,
            header: None,
            reason: None,
        }
    }

    pub(crate) fn because(self, reason: String) -> Self {
        let reason = Some(reason);
        Self { reason, ..self }
    }

    fn locked(holder: &HeldLock) -> Self {
        Self {
            lock: Some(Box::new(lock_info(holder))),
            ..Self::new(StatusCode::LOCKED)
        }
    }

    /// Engines expect a lock with an id even if no client holds one, and stop waiting without it. So the
    /// reason replaces the holder, where engines show it.
    fn conflict(reason: &str, holder: Option<&HeldLock>) -> Self {
        let explained = || LockInfo {
            id: "none".to_owned(),
            operation: reason.to_owned(),
            info: reason.to_owned(),
            who: "terrane".to_owned(),
            created: "0001-01-01T00:00:00Z".to_owned(),
            ..LockInfo::default()
        };
        let lock = holder.map_or_else(explained, lock_info);
        Self {
            lock: Some(Box::new(lock)),
            ..Self::new(StatusCode::CONFLICT)
        }
    }

    /// The engine sends the request again; every operation may be repeated.
    pub(crate) fn unavailable() -> Self {
        Self {
            header: Some((RETRY_AFTER, "1")),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE)
        }
    }
}

impl From<StateAccessError> for ApiError {
    fn from(err: StateAccessError) -> Self {
        use StateAccessError as E;
        let reason = one_line(&err);
        let answer = match &err {
            E::Forbidden { .. } | E::Denied { .. } => Self::forbidden(),
            E::Locked { holder, .. } => Self::locked(holder),
            E::NotYours { holder, .. } => Self::conflict(&err.to_string(), Some(holder)),
            E::Moved { .. } | E::LockEnded { .. } => Self::conflict(&err.to_string(), None),
            E::Refused { source, holder, .. } => {
                Self::conflict(&source.to_string(), holder.as_deref())
            }
            E::Invalid { .. } => Self::bad_request(),
            E::Contended { .. } | E::Store { .. } => {
                tracing::error!(error = %one_line(&err), "cannot carry out a request");
                return Self::unavailable(); // logged above
            }
        };
        answer.because(reason)
    }
}

/// The holder's lock in a form that engines can parse: they refuse an empty time, which a script may have sent.
fn lock_info(holder: &HeldLock) -> LockInfo {
    let mut info = holder.info.clone();
    if info.created.is_empty() {
        info.created = holder.since.to_string();
    }
    info
}

impl From<BodyError> for ApiError {
    fn from(err: BodyError) -> Self {
        let reason = one_line(&err);
        let answer = match err {
            BodyError::TooLarge { .. } => Self::new(StatusCode::PAYLOAD_TOO_LARGE),
            BodyError::Stalled { .. } | BodyError::TooSlow => {
                Self::new(StatusCode::REQUEST_TIMEOUT)
            }
            BodyError::Incomplete | BodyError::WrongMd5 => Self::bad_request(),
            BodyError::Busy { .. } | BodyError::Spool(_) => Self::unavailable(),
        };
        answer.because(reason)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status;
        if let Some(reason) = self.reason {
            response.extensions_mut().insert(RefusalReason(reason));
        }
        if let Some((name, value)) = self.header {
            response
                .headers_mut()
                .insert(name, HeaderValue::from_static(value));
        }
        if let Some(lock) = self.lock {
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, json);
            *response.body_mut() = Body::from(lock.to_json());
        }
        response
    }
}
