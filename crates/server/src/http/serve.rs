//! Connections: accepts them within limits, secures them with TLS, serves HTTP/1.1 or HTTP/2 on them, and
//! finishes running requests at shutdown.
//!
//! Not here: how a request is handled (the router).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use super::limits::{AddressLimit, Limits};
use super::metrics::Metrics;
use super::tls::Tls;

const TLS_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A client that takes no byte of its response for this long is disconnected.
const WRITE_TIMEOUT: Duration = Duration::from_mins(1);

const MAX_HEADERS: usize = 100;
const MAX_HEADER_BYTES: u32 = 64 * 1024;

/// The client's address, as an extension of every request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerAddress(pub(crate) IpAddr);

pub(crate) struct HttpServer {
    pub(crate) router: Router,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) limits: Limits,
    pub(crate) metrics: Arc<Metrics>,
    /// Connections, and whatever a handler finishes even if its client is gone.
    pub(crate) tasks: TaskTracker,
}

impl HttpServer {
    /// Serves until `end` resolves, then finishes the requests that have begun.
    pub(crate) async fn serve(self, listener: TcpListener, end: impl Future<Output = ()>) {
        let open = Arc::new(Semaphore::new(self.limits.connections));
        let addresses = Arc::new(AddressLimit::new(self.limits.connections_per_address));
        let connection = Connection {
            router: self.router,
            protocol: protocol(self.limits.idle_timeout),
            idle_timeout: self.limits.idle_timeout,
            shutdown: CancellationToken::new(),
        };
        let mut end = pin!(end);
        loop {
            // At the limit, new connections wait in the listener's backlog.
            let next = async {
                let permit = Arc::clone(&open).acquire_owned().await;
                (permit, listener.accept().await)
            };
            let (permit, accepted) = tokio::select! {
                next = next => next,
                () = &mut end => break,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(err) => {
                    pause_after(&err).await;
                    continue;
                }
            };
            // Drop the connection when its address is over its limit; engines retry.
            let Some(slot) = AddressLimit::admit(&addresses, peer.ip()) else {
                continue;
            };
            self.metrics.connection_opened();
            let (connection, tls) = (connection.clone(), self.tls.clone());
            self.tasks.spawn(async move {
                connection.accept(stream, peer, tls).await;
                drop((permit, slot));
            });
        }
        drop(listener);
        connection.shutdown.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// The settings of every connection.
#[derive(Clone)]
struct Connection {
    router: Router,
    protocol: auto::Builder<TokioExecutor>,
    idle_timeout: Duration,
    shutdown: CancellationToken,
}

impl Connection {
    async fn accept(self, stream: TcpStream, peer: SocketAddr, tls: Option<Arc<Tls>>) {
        // Responses are small, and the client waits for them: do not delay them (Nagle's algorithm).
        let _ = stream.set_nodelay(true);
        let Some(tls) = tls else {
            return self.serve(stream, peer, false).await;
        };
        let handshake = TlsAcceptor::from(tls.config()).accept(stream);
        match timeout(TLS_HANDSHAKE_TIMEOUT, handshake).await {
            Ok(Ok(stream)) => {
                let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                self.serve(stream, peer, is_h2).await;
            }
            Ok(Err(err)) => tracing::debug!(%peer, error = %err, "TLS handshake failed"),
            Err(_) => tracing::debug!(%peer, "TLS handshake timed out"),
        }
    }

    async fn serve(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: SocketAddr,
        is_h2: bool,
    ) {
        let protocol = if is_h2 {
            self.protocol.http2_only()
        } else {
            self.protocol.http1_only()
        };
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(WRITE_TIMEOUT));
        let requests = Arc::new(Requests::default());
        let (router, counted) = (self.router, Arc::clone(&requests));
        let service = service_fn(move |request: Request<Incoming>| {
            let running = Requests::begin(&counted);
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(PeerAddress(peer.ip()));
            let response = router.clone().oneshot(request);
            async move {
                let response = response.await;
                drop(running);
                response
            }
        });
        let connection = protocol.serve_connection(TokioIo::new(Box::pin(stream)), service);
        let mut connection = pin!(connection);
        let mut is_shutting_down = false;
        loop {
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(err) = ended {
                        tracing::debug!(%peer, error = %err, "connection failed");
                    }
                    return;
                }
                () = self.shutdown.cancelled(), if !is_shutting_down => {
                    is_shutting_down = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = requests.idle(self.idle_timeout) => {
                    // Without a request HTTP/2 may still wait for its preface, which no graceful shutdown ends.
                    if requests.total() == 0 {
                        return tracing::debug!(%peer, "closing connection: no request in time");
                    }
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// Counts the requests of one connection.
#[derive(Debug, Default)]
struct Requests {
    running: AtomicUsize,
    total: AtomicU64,
}

/// A request that runs until this is dropped.
struct Running(Arc<Requests>);

impl Requests {
    fn begin(requests: &Arc<Self>) -> Running {
        requests.running.fetch_add(1, Relaxed);
        requests.total.fetch_add(1, Relaxed);
        Running(Arc::clone(requests))
    }

    fn total(&self) -> u64 {
        self.total.load(Relaxed)
    }

    /// Returns when no request has run for `limit`, at most twice that later. It samples, so that a request costs two
    /// additions and no timer.
    async fn idle(&self, limit: Duration) {
        let sample = || (self.running.load(Relaxed) == 0).then(|| self.total());
        let mut last = sample();
        loop {
            sleep(limit).await;
            let now = sample();
            if now.is_some() && now == last {
                return;
            }
            last = now;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Relaxed);
    }
}

/// In HTTP/1.1 the header timeout also covers the pause before a request.
fn protocol(header_timeout: Duration) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_headers(MAX_HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(30))
        .max_concurrent_streams(64)
        .max_header_list_size(MAX_HEADER_BYTES)
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(1 << 22);
    builder
}

/// Waits a moment after a failed accept: without free file descriptors, trying again at once would only use the CPU.
pub(crate) async fn pause_after(err: &io::Error) {
    if err.kind() != io::ErrorKind::ConnectionAborted {
        tracing::error!(error = %err, "cannot accept a connection");
        sleep(Duration::from_millis(100)).await;
    }
}
