//! Connections: accepted, secured, served by HTTP/1.1 or HTTP/2, and ended without losing what is under
//! way.
//!
//! Not here: what is answered (`service`).

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::guests::{Guest, Guests};
use crate::idle::Idle;
use crate::peers::Peers;
use crate::pulse::{FIRST, Felt, Pulse};
use crate::service::Serving;
use crate::tls::Tls;

const HANDSHAKE: Duration = Duration::from_secs(10);

/// For the pause before a request. Engines close an idle connection after 90 s; if
/// we closed first, a request could meet the end of its connection.
const HEAD: Duration = Duration::from_mins(2);

/// How many headers, and how many bytes of them, a request may have.
const HEADERS: usize = 100;
const HEADER_BYTES: usize = 64 * 1024;

/// Serves until `end` comes, then finishes what has begun.
pub(crate) async fn connections(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    serving: Arc<Serving>,
    end: impl Future<Output = ()>,
) {
    let protocol = protocol();
    let graceful = GracefulShutdown::new();
    // The next ones wait to be accepted.
    let connections = serving.server.connections();
    let places = Arc::new(Semaphore::new(connections));
    let guests = Arc::new(Guests::new(connections / 2));
    let idle = Arc::new(Idle::default());
    let peers = Arc::new(Peers::new(serving.server.per_address()));
    let mut end = pin!(end);
    loop {
        let accepted = async {
            let place = idle.place(&places).await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            accepted = accepted => accepted,
            () = &mut end => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(err) => {
                pause_after(&err).await;
                continue;
            }
        };
        // Closed at once: an engine tries again, and whoever means no good takes nobody's place.
        let Some(seat) = Peers::admit(&peers, peer.ip()) else {
            continue;
        };
        tokio::select! {
            () = guests.room() => {}
            () = &mut end => break,
        }
        serving.server.metrics.connection();
        let connection = Connection {
            peer,
            guest: Arc::new(Guests::admit(&guests)),
            idle: Arc::clone(&idle),
            protocol: protocol.clone(),
            serving: Arc::clone(&serving),
            watcher: graceful.watcher(),
        };
        let tls = tls.clone();
        tokio::spawn(async move {
            connection.serve(stream, tls).await;
            drop((place, seat));
        });
    }
    drop(listener);
    drop(serving);
    graceful.shutdown().await;
}

struct Connection {
    peer: SocketAddr,
    guest: Arc<Guest>,
    idle: Arc<Idle>,
    protocol: auto::Builder<TokioExecutor>,
    serving: Arc<Serving>,
    watcher: Watcher,
}

impl Connection {
    async fn serve(self, stream: TcpStream, tls: Option<Arc<Tls>>) {
        // Answers are small and awaited; without this they wait for one another's receipts.
        let _ = stream.set_nodelay(true);
        let Some(tls) = tls else {
            return self.speak(stream, false).await;
        };
        let secured = TlsAcceptor::from(tls.config()).accept(stream);
        let secured = tokio::select! {
            secured = timeout(HANDSHAKE, secured) => secured,
            () = self.guest.has_to_go() => return,
        };
        match secured {
            Ok(Ok(stream)) => {
                let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                self.speak(stream, is_h2).await;
            }
            Ok(Err(err)) => tracing::debug!(peer = %self.peer, error = %err, "no TLS"),
            Err(_) => tracing::debug!(peer = %self.peer, "no TLS in time"),
        }
    }

    async fn speak(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        is_h2: bool,
    ) {
        let Self {
            peer,
            guest,
            idle,
            protocol,
            serving,
            watcher,
        } = self;
        let protocol = if is_h2 {
            protocol.http2_only()
        } else {
            protocol.http1_only()
        };
        let pulse = Arc::new(Pulse::new(!is_h2));
        let stay = Idle::enter(&idle, &pulse);
        let felt = Arc::clone(&pulse);
        let asking = Arc::clone(&guest);
        let service = service_fn(move |mut request: Request<Incoming>| {
            let beat = Pulse::heard(&felt);
            request.extensions_mut().insert(Arc::clone(&asking));
            let serving = Arc::clone(&serving);
            async move {
                let answer = serving.answer(peer, request).await;
                drop(beat);
                Ok::<_, Infallible>(answer)
            }
        });
        let stream = TokioIo::new(Felt::new(stream, Arc::clone(&pulse)));
        let connection = protocol.serve_connection(stream, service);
        let connection = watcher.watch(connection.into_owned());
        let ended = tokio::select! {
            ended = connection => ended,
            () = pulse.is_overdue() => {
                return tracing::debug!(%peer, "no whole head of a request in {} s", FIRST.as_secs());
            }
            () = guest.has_to_go() => {
                return tracing::debug!(%peer, "no token, and others want its place");
            }
            () = stay.has_to_go() => {
                return tracing::debug!(%peer, "it was still, and others want its place");
            }
        };
        if let Err(err) = ended {
            tracing::debug!(%peer, error = %err, "a connection broke");
        }
    }
}

fn protocol() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_headers(HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(30))
        .max_concurrent_streams(64)
        .max_header_list_size(u32::try_from(HEADER_BYTES).unwrap_or(u32::MAX))
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(1 << 22);
    builder
}

/// Without descriptors left, trying again at once would only burn the processor that could free some.
pub(crate) async fn pause_after(err: &io::Error) {
    if err.kind() != io::ErrorKind::ConnectionAborted {
        tracing::error!(error = %err, "could not accept a connection");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
