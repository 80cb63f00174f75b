//! What every route shares: connections, TLS, limits, request bodies, credentials, errors, metrics and the access log.
//!
//! Not here: routes. `state_server` lists them all.

mod access_log;
mod auth;
mod body;
mod error;
mod limits;
mod metrics;
mod serve;
mod tls;

pub use auth::RunToken;
pub use limits::Limits;
pub use tls::{LoadTlsError, Tls, TlsFiles};

pub(crate) use access_log::{AccessLog, LogSubject, log_responses};
pub(crate) use auth::credential;
pub(crate) use body::{BodyBudget, BodyError, CONTENT_MD5, content_md5};
pub(crate) use error::ApiError;
pub(crate) use limits::{DEFAULT_BODY_LIMIT, SignInLimit};
pub(crate) use metrics::{Metrics, StoredBytes};
pub(crate) use serve::{HttpServer, PeerAddress, pause_after};
