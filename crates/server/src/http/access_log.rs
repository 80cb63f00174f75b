//! The access log: one line for each request for a state, and for each path that the server does not have. It names no
//! query, header or body.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use hyper::body::Body as _;
use model::state::StateName;
use model::state::token::Token;
use tower_http::trace::TraceLayer;
use tracing::Span;

use super::metrics::{Metrics, RequestLabels, StoredBytes};

/// What a handler records about its request: an extension of the response. Responses without it are counted
/// but not logged.
#[derive(Clone, Debug)]
pub(crate) struct AccessLog {
    pub(crate) peer: IpAddr,
    /// The kind of path, for metrics.
    pub(crate) route: &'static str,
    pub(crate) method: &'static str,
    pub(crate) subject: LogSubject,
    pub(crate) token: Option<Arc<Token>>,
}

/// The subject of a request.
#[derive(Clone, Debug)]
pub(crate) enum LogSubject {
    State(StateName),
    UnknownPath(String),
}

/// Why a request was refused: an extension of the response. Clients show only a status code.
#[derive(Clone, Debug)]
pub(crate) struct RefusalReason(pub(crate) String);

/// Counts and logs the responses of `router`.
pub(crate) fn log_responses(router: Router, metrics: Arc<Metrics>) -> Router {
    router.layer(
        TraceLayer::new_for_http()
            .make_span_with(|_: &Request| Span::none())
            .on_request(())
            .on_body_chunk(())
            .on_eos(())
            .on_failure(())
            .on_response(move |response: &Response, took: Duration, _: &Span| {
                let entry = response.extensions().get::<AccessLog>();
                count(&metrics, entry, response, took);
                if let Some(entry) = entry {
                    entry.write(response, took);
                }
            }),
    )
}

fn count(metrics: &Metrics, entry: Option<&AccessLog>, response: &Response, took: Duration) {
    let (route, method) = entry.map_or(("other", "other"), |entry| (entry.route, entry.method));
    let status = response.status().as_u16();
    let labels = RequestLabels {
        route,
        method,
        status,
    };
    metrics.request(&labels, took);
    if let Some(stored) = response.extensions().get::<StoredBytes>() {
        metrics.version_stored(*stored);
    }
    if method == "GET" && status == 200 {
        metrics.state_sent(size(response));
    }
}

fn size(response: &Response) -> u64 {
    response.body().size_hint().exact().unwrap_or(0)
}

impl AccessLog {
    pub(crate) fn unknown_path(peer: IpAddr, path: &str) -> Self {
        const MAX_CHARS: usize = 120;
        let path = path.chars().take(MAX_CHARS).filter(|c| !c.is_control());
        Self {
            peer,
            route: "other",
            method: "other",
            subject: LogSubject::UnknownPath(path.collect()),
            token: None,
        }
    }

    fn write(&self, response: &Response, took: Duration) {
        let status = response.status().as_u16();
        let state = match &self.subject {
            LogSubject::State(state) => state,
            LogSubject::UnknownPath(path) => {
                tracing::warn!(peer = %self.peer, path, status, "unknown path");
                return;
            }
        };
        let reason = response.extensions().get::<RefusalReason>();
        tracing::info!(
            peer = %self.peer,
            token = self.token.as_ref().map(|token| token.name.as_str()),
            method = self.method,
            route = self.route,
            %state,
            status,
            reason = reason.map(|RefusalReason(reason)| reason.as_str()),
            bytes = size(response),
            micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            "request"
        );
    }
}
