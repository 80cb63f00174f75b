//! The one place where errors get a status code.
//!
//! Engines act on the number: 404 on a GET means "there is no state, create everything", a redirect
//! on a POST loses the state, 5xx and 429 are sent again. So what is meant is said exactly.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use control::state::StateAccessError;
use model::lock::LockInfo;
use model::state::HeldLock;

use crate::body::TakeError;

/// An answer that is not what was asked for.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    /// Both engines read a conflict's body as the holder's lock.
    lock: Option<Box<LockInfo>>,
    header: Option<(HeaderName, &'static str)>,
    /// For the log: clients show a number and nothing else.
    reason: Option<String>,
}

/// Why a request was refused, on its way to the log.
#[derive(Clone)]
pub(crate) struct Reason(pub(crate) String);

impl ApiError {
    /// 404 would mean that there is no state, so a stranger gets 401, whatever it asks for.
    pub(crate) fn unauthorised() -> Self {
        Self {
            header: Some((WWW_AUTHENTICATE, "Basic realm=\"terrane\"")),
            ..Self::new(StatusCode::UNAUTHORIZED)
        }
    }

    /// For a path or a method that is not there: 404 would mean that there is no state.
    pub(crate) fn forbidden() -> Self {
        Self::new(StatusCode::FORBIDDEN)
    }

    pub(crate) fn bad_request() -> Self {
        Self::new(StatusCode::BAD_REQUEST)
    }

    /// Too many wrong tokens from there: the client waits, then tries again.
    pub(crate) fn too_many() -> Self {
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
            lock: Some(Box::new(described(holder))),
            ..Self::new(StatusCode::LOCKED)
        }
    }

    /// A conflict without a holder still needs a lock with an id, or the engines stop waiting
    /// where they should not; so the reason is where they show it.
    fn conflict(reason: &str, holder: Option<&HeldLock>) -> Self {
        let explained = || LockInfo {
            id: "none".to_owned(),
            operation: reason.to_owned(),
            info: reason.to_owned(),
            who: "terrane".to_owned(),
            created: "0001-01-01T00:00:00Z".to_owned(),
            ..LockInfo::default()
        };
        let lock = holder.map_or_else(explained, described);
        Self {
            lock: Some(Box::new(lock)),
            ..Self::new(StatusCode::CONFLICT)
        }
    }

    /// The engine sends it again: all our deeds may be repeated.
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
        let reason = chain(&err);
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
                tracing::error!(error = %chain(&err), "a request could not be carried out");
                return Self::unavailable(); // said just now
            }
        };
        answer.because(reason)
    }
}

/// The lock of a holder as engines can read it: a script may have left out when it was made, and an empty text is no time
/// to them.
fn described(holder: &HeldLock) -> LockInfo {
    let mut info = holder.info.clone();
    if info.created.is_empty() {
        info.created = holder.since.to_string();
    }
    info
}

/// An error and its causes on one line, for the log.
pub(crate) fn chain(err: &dyn std::error::Error) -> String {
    let mut text = err.to_string();
    let mut cause = err.source();
    while let Some(err) = cause {
        text += ": ";
        text += &err.to_string();
        cause = err.source();
    }
    text
}

impl From<TakeError> for ApiError {
    fn from(err: TakeError) -> Self {
        let reason = chain(&err);
        let answer = match err {
            TakeError::TooLarge { .. } => Self::new(StatusCode::PAYLOAD_TOO_LARGE),
            TakeError::Slow { .. } | TakeError::Trickled => Self::new(StatusCode::REQUEST_TIMEOUT),
            TakeError::BrokeOff | TakeError::OtherBytes => Self::bad_request(),
            TakeError::Busy { .. } | TakeError::Aside(_) => Self::unavailable(),
        };
        answer.because(reason)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status;
        if let Some(reason) = self.reason {
            response.extensions_mut().insert(Reason(reason));
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
