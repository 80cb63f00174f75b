//! Whether a connection is alive: who holds one open with half a request keeps others from being accepted.
//!
//! Not here: pauses between requests, and bodies; each has its own limit (`serve`, `body`).

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// So long the head of a request may take: from the start of a connection, or from the first byte after a request before it.
pub(crate) const FIRST: Duration = Duration::from_secs(15);

/// So long somebody may take nothing of an answer.
const PATIENCE: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(crate) struct Pulse {
    /// Whether what comes between two requests is the head of the next one. In HTTP/2 it may be anything.
    in_turn: bool,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    /// Requests that are not answered yet.
    under_way: usize,
    /// Since when a head is awaited that has begun.
    begun: Option<Instant>,
    /// When something came or went last.
    last: Instant,
    /// Whether something waits to be taken by the other side.
    is_full: bool,
}

/// A request, until it is answered.
#[derive(Debug)]
pub(crate) struct Beat(Arc<Pulse>);

/// A stream that tells when something comes.
#[derive(Debug)]
pub(crate) struct Felt<S> {
    stream: S,
    pulse: Arc<Pulse>,
}

impl Pulse {
    pub(crate) fn new(in_turn: bool) -> Self {
        let now = Mutex::new(Now {
            under_way: 0,
            begun: Some(Instant::now()),
            last: Instant::now(),
            is_full: false,
        });
        Self { in_turn, now }
    }

    /// A head is whole.
    pub(crate) fn heard(pulse: &Arc<Self>) -> Beat {
        pulse.change(|now| {
            now.under_way += 1;
            now.begun = None;
        });
        Beat(Arc::clone(pulse))
    }

    /// Returns when a head has taken too long.
    pub(crate) async fn is_overdue(&self) {
        loop {
            let begun = self.change(|now| now.begun);
            let waited = begun.map_or(Duration::ZERO, |begun| begun.elapsed());
            match FIRST.checked_sub(waited) {
                None | Some(Duration::ZERO) => return,
                Some(left) => tokio::time::sleep(left).await,
            }
        }
    }

    /// How long nothing has come or gone; nothing while a request is under way, or its answer on its way to somebody who
    /// takes it.
    pub(crate) fn still(&self) -> Option<Duration> {
        self.change(|now| {
            let still = now.last.elapsed();
            let is_taken = now.is_full && still < PATIENCE;
            (now.under_way == 0 && !is_taken).then_some(still)
        })
    }

    fn felt(&self) {
        self.change(|now| {
            now.last = Instant::now();
            if self.in_turn && now.under_way == 0 && now.begun.is_none() {
                now.begun = Some(now.last);
            }
        });
    }

    /// Something went.
    fn sent(&self) {
        self.change(|now| {
            now.last = Instant::now();
            now.is_full = false;
        });
    }

    /// Something cannot go yet.
    fn waits(&self) {
        self.change(|now| now.is_full = true);
    }

    fn change<T>(&self, deed: impl FnOnce(&mut Now) -> T) -> T {
        deed(&mut self.now.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Beat {
    fn drop(&mut self) {
        self.0.change(|now| {
            now.under_way -= 1;
            now.begun = None;
            now.last = Instant::now();
        });
    }
}

impl<S> Felt<S> {
    pub(crate) fn new(stream: S, pulse: Arc<Pulse>) -> Self {
        Self { stream, pulse }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Felt<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.pulse.felt();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Felt<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if written.is_ready() {
            self.pulse.sent();
        } else {
            self.pulse.waits();
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        if written.is_ready() {
            self.pulse.sent();
        } else {
            self.pulse.waits();
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits_for_a_head(pulse: &Pulse) -> bool {
        pulse.change(|now| now.begun.is_some())
    }

    #[test]
    fn a_head_is_awaited_from_its_first_byte() {
        let pulse = Arc::new(Pulse::new(true));
        assert!(waits_for_a_head(&pulse), "the first one from the start");
        let beat = Pulse::heard(&pulse);
        pulse.felt();
        assert!(!waits_for_a_head(&pulse), "that was its body");
        drop(beat);
        assert!(!waits_for_a_head(&pulse), "a pause is none");
        pulse.felt();
        assert!(waits_for_a_head(&pulse));
        drop(Pulse::heard(&pulse));
        assert!(!waits_for_a_head(&pulse));
    }

    #[test]
    fn frames_of_http_2_are_no_heads() {
        let pulse = Arc::new(Pulse::new(false));
        drop(Pulse::heard(&pulse));
        pulse.felt();
        assert!(!waits_for_a_head(&pulse));
    }
}
