//! The state server: every state of a home, for everybody with a token.
//!
//! Not here: connections (`serve`), the protocol (`wire`), what a token may do (`control`).

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use control::state_service::StateService;
use hyper::body::{Body as _, Incoming};
use model::state::StateName;
use model::token::Token;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::auth;
use crate::body::{IDLE, Room};
use crate::error::{ApiError, Reason, chain};
use crate::failures::Failures;
use crate::guests::Guest;
use crate::metrics::{Labels, Metrics};
use crate::routes::{self, Route, StatePath};
use crate::serve;
use crate::tls::Tls;
use crate::wire::{self, Access, Deed, Setting, VersionMade};

/// Bodies of states that may be in memory at once, all together.
const MEMORY: usize = 32 * 1024 * 1024;

/// At most so many connections at a time.
pub const CONNECTIONS: usize = 1000;

#[derive(Debug)]
pub struct StateServer {
    service: StateService,
    room: Room,
    failures: Failures,
    pub(crate) metrics: Metrics,
    connections: usize,
    per_address: Option<usize>,
}

/// A server and its deeds in flight.
pub(crate) struct Serving {
    pub(crate) server: StateServer,
    busy: mpsc::Sender<Infallible>,
}

/// One request, as the log tells it: no query, no header, no body.
struct Story {
    peer: SocketAddr,
    path: String,
    route: &'static str,
    deed: &'static str,
    state: Option<StateName>,
    token: Option<Arc<Token>>,
}

impl StateServer {
    /// States larger than `body_limit` are refused before they are read.
    pub fn new(service: StateService, body_limit: usize) -> Self {
        let room = Room::new(body_limit, MEMORY, IDLE).aside(service.work());
        Self {
            service,
            room,
            failures: Failures::default(),
            metrics: Metrics::default(),
            connections: CONNECTIONS,
            per_address: None,
        }
    }

    /// No more connections than these, all together and from one address of another machine.
    #[must_use]
    pub fn limited_to(self, connections: usize, per_address: usize) -> Self {
        Self {
            connections,
            per_address: Some(per_address),
            ..self
        }
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections
    }

    pub(crate) fn per_address(&self) -> Option<usize> {
        self.per_address
    }

    /// Answers until `end` comes, then finishes what it has begun.
    pub async fn serve(
        self,
        listener: TcpListener,
        tls: Option<Arc<Tls>>,
        end: impl Future<Output = ()>,
    ) {
        let (busy, mut idle) = mpsc::channel(1);
        let serving = Arc::new(Serving { server: self, busy });
        serve::connections(listener, tls, serving, end).await;
        // Nothing is ever sent: this ends when the last deed that holds a sender has ended.
        let None::<Infallible> = idle.recv().await;
    }
}

impl Serving {
    pub(crate) async fn answer(
        self: Arc<Self>,
        peer: SocketAddr,
        request: Request<Incoming>,
    ) -> Response {
        let begun = Instant::now();
        let mut story = Story {
            peer,
            path: String::new(),
            route: "other",
            deed: "other",
            state: None,
            token: None,
        };
        let answered = match routes::route(request.uri().path()) {
            Some(Route::State(path)) => self.state(path, request, &mut story).await,
            Some(Route::Health) => asked(request.method(), || "ok\n".into_response()),
            Some(Route::Ready) => self.readiness().await,
            Some(Route::Metrics) => asked(request.method(), || self.metrics_page()),
            None => {
                story.path = shown(request.uri().path());
                Err(ApiError::forbidden())
            }
        };
        let response = answered.into_response();
        self.tell(&story, &response, begun.elapsed());
        response
    }

    async fn state(
        self: &Arc<Self>,
        path: StatePath,
        request: Request<Incoming>,
        story: &mut Story,
    ) -> Result<Response, ApiError> {
        let deed = Deed::of(request.method(), path.is_lock);
        story.route = path.shape.as_str();
        story.deed = deed.map_or("other", Deed::as_str);
        story.state = Some(path.state.clone());
        let token = self.authorise(story.peer, request.headers()).await?;
        story.token = Some(Arc::clone(&token));
        if let Some(guest) = request.extensions().get::<Arc<Guest>>() {
            guest.is_known();
        }
        let deed = deed.ok_or_else(ApiError::forbidden)?;
        let access = Access::Client(self.server.service.access(token, path.state));
        let is_remote = !story.peer.ip().to_canonical().is_loopback();
        self.carry_out(access, deed, request, is_remote).await
    }

    /// A request that came whole is carried through even if its sender is gone: an engine that was
    /// killed after its last write has written.
    async fn carry_out(
        self: &Arc<Self>,
        access: Access,
        deed: Deed,
        request: Request<Incoming>,
        is_remote: bool,
    ) -> Result<Response, ApiError> {
        let (head, body) = request.into_parts();
        let serving = Arc::clone(self);
        let work = async move {
            let busy = serving.busy.clone();
            let room = &serving.server.room;
            let setting = Setting { room, is_remote };
            let answered = wire::answer(&access, deed, &head, Body::new(body), setting).await;
            drop(busy);
            answered
        };
        match deed {
            Deed::Read => work.await,
            Deed::Write | Deed::Lock | Deed::Unlock | Deed::Delete => tokio::spawn(work)
                .await
                .unwrap_or_else(|_| Err(ApiError::unavailable())),
        }
    }

    async fn authorise(
        &self,
        peer: SocketAddr,
        headers: &HeaderMap,
    ) -> Result<Arc<Token>, ApiError> {
        let Some(secret) = auth::credential(headers) else {
            return Err(ApiError::unauthorised());
        };
        let (failures, now) = (&self.server.failures, Instant::now());
        let too_many = failures.are_too_many(peer.ip(), now);
        match self.server.service.tokens().find(&secret, !too_many).await {
            Ok(Some(token)) => Ok(token),
            Ok(None) if too_many => Err(ApiError::too_many()),
            Ok(None) => {
                failures.note(peer.ip(), now);
                Err(ApiError::unauthorised())
            }
            Err(err) => {
                tracing::error!(error = %chain(&err), "tokens could not be read");
                Err(ApiError::unavailable())
            }
        }
    }

    async fn readiness(&self) -> Result<Response, ApiError> {
        match self.server.service.check_ready().await {
            Ok(()) => Ok("ready\n".into_response()),
            Err(err) => {
                tracing::error!(error = %chain(&err), "not ready");
                Err(ApiError::unavailable())
            }
        }
    }

    fn metrics_page(&self) -> Response {
        let kind = (CONTENT_TYPE, "text/plain; version=0.0.4");
        ([kind], self.server.metrics.render()).into_response()
    }

    fn tell(&self, story: &Story, response: &Response, took: Duration) {
        let metrics = &self.server.metrics;
        let status = response.status();
        let Story { route, deed, .. } = *story;
        let labels = Labels {
            route,
            deed,
            status: status.as_u16(),
        };
        metrics.request(labels, took);
        if let Some(made) = response.extensions().get::<VersionMade>() {
            metrics.stored(made.bytes);
        }
        let Some(state) = &story.state else {
            if status == StatusCode::FORBIDDEN {
                tracing::warn!(
                    peer = %story.peer.ip(),
                    path = story.path,
                    "refused: the path names no state, or the method does nothing there"
                );
            }
            return;
        };
        let bytes = response.body().size_hint().exact().unwrap_or(0);
        if deed == Deed::Read.as_str() && status == StatusCode::OK {
            metrics.sent(bytes);
        }
        let reason = response.extensions().get::<Reason>();
        tracing::info!(
            peer = %story.peer.ip(),
            token = story.token.as_ref().map(|token| token.name.as_str()),
            deed,
            route,
            %state,
            status = status.as_u16(),
            reason = reason.map(|Reason(reason)| reason.as_str()),
            bytes,
            micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            "request"
        );
    }
}

/// The start of a path, as it may stand in a log.
fn shown(path: &str) -> String {
    const MOST: usize = 120;
    path.chars()
        .take(MOST)
        .filter(|c| !c.is_control())
        .collect()
}

/// A page that is there to be looked at.
fn asked(method: &Method, page: impl FnOnce() -> Response) -> Result<Response, ApiError> {
    if method == Method::GET || method == Method::HEAD {
        Ok(page())
    } else {
        Err(ApiError::forbidden())
    }
}
