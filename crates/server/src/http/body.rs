//! Reads request bodies: complete, within limits of size, speed and memory, and checked against their Content-MD5.
//!
//! Not here: what a body contains (`state::protocol`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, EXPECT};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use control::state::spool::{SpoolFile, offload};
use http_body_util::BodyExt as _;
use md5::{Digest as _, Md5};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) const CONTENT_MD5: &str = "content-md5";

/// A lock description is seven short strings.
const LOCK_LIMIT: usize = 64 * 1024;

/// A body of which nothing arrives for this long is given up.
const STALL_TIMEOUT: Duration = Duration::from_mins(2);

/// A body must arrive faster than this on average, in bytes per second, after twice the stall timeout.
const MIN_SPEED: u64 = 16 * 1024;

/// A large upload that stalls for this long, or is slower than this many bytes per second, is spooled to disk.
const SPOOL_AFTER_STALL: Duration = Duration::from_millis(500);
const SPOOL_BELOW_SPEED: u64 = 8 * 1024 * 1024;

/// A body waits at most this long for others to free memory.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Smaller bodies need no memory permit.
const SMALL: usize = 64 * 1024;

/// One memory permit is for this many bytes.
const MEMORY_UNIT: usize = 1024;

/// Bodies that are read at a time. HTTP/2 puts many requests on one connection, so limits of connections do not bound them.
const MAX_BODIES: usize = 1000;

/// After a refusal, the rest of a body is read for this long, so that its sender gets the response.
const LINGER: Duration = Duration::from_secs(5);

/// How many bytes one request body may have, and all of them together may hold in memory.
#[derive(Clone, Debug)]
pub(crate) struct BodyBudget {
    limit: usize,
    stall_timeout: Duration,
    slots: Arc<Semaphore>,
    memory: Arc<Semaphore>,
    memory_permits: u32,
    /// Without one, large bodies are neither counted nor spooled.
    spool_dir: Option<PathBuf>,
}

/// A complete body of a state. It holds its share of the budget until it is dropped.
#[derive(Debug)]
pub(crate) struct StateBody {
    pub(crate) bytes: Bytes,
    _slot: OwnedSemaphorePermit,
    _memory: Option<OwnedSemaphorePermit>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the body is larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("the body ended early")]
    Incomplete,
    #[error("no part of the body arrived for {} s", after.as_secs())]
    Stalled { after: Duration },
    #[error("the body arrived at less than {} KB/s", MIN_SPEED / 1024)]
    TooSlow,
    #[error("cannot spool the body to disk")]
    Spool(#[source] io::Error),
    #[error("the body does not match its Content-MD5")]
    WrongMd5,
    #[error("the server was too busy to read the body for {} s", waited.as_secs())]
    Busy { waited: Duration },
}

impl BodyBudget {
    /// For bodies of up to `limit` bytes, of which `memory` bytes may be in memory at a time. A body larger than that waits
    /// until it is the only one.
    pub(crate) fn new(limit: usize, memory: usize) -> Self {
        let memory_permits = u32::try_from(memory / MEMORY_UNIT).unwrap_or(u32::MAX);
        let memory_permits = memory_permits.max(1);
        Self {
            limit,
            stall_timeout: STALL_TIMEOUT,
            slots: Arc::new(Semaphore::new(MAX_BODIES)),
            memory: Arc::new(Semaphore::new(memory_permits as usize)),
            memory_permits,
            spool_dir: None,
        }
    }

    /// For a single client, which sends one state at a time.
    pub(crate) fn unshared(limit: usize) -> Self {
        Self::new(limit, limit)
    }

    /// Slow bodies are spooled in this directory.
    #[must_use]
    pub(crate) fn spooled_in(self, dir: &Path) -> Self {
        let spool_dir = Some(dir.to_owned());
        Self { spool_dir, ..self }
    }

    pub(crate) async fn read_state(
        &self,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<StateBody, BodyError> {
        let length = match declared_length(headers, self.limit) {
            Ok(length) => length,
            Err(err) => return Err(discard(headers, body, err)),
        };
        let slot = self.acquire(&self.slots, 1).await?;
        let mut reader = BodyReader::new(body, self.limit, self.stall_timeout);
        reader.bytes.reserve_exact(length.unwrap_or(0).min(SMALL));
        let mut is_complete = false;
        while !is_complete && (reader.bytes.len() <= SMALL || self.spool_dir.is_none()) {
            is_complete = !reader.read_part(self.stall_timeout).await?;
        }
        let (bytes, memory) = match &self.spool_dir {
            Some(dir) if !is_complete => {
                let (bytes, memory) = self.read_large(reader, length, dir).await?;
                (bytes, Some(memory))
            }
            _ => (reader.bytes, None),
        };
        Ok(StateBody {
            bytes: verified(headers, bytes).await?,
            _slot: slot,
            _memory: memory,
        })
    }

    /// A lock description, or nothing.
    pub(crate) async fn read_lock(
        &self,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Bytes, BodyError> {
        if let Err(err) = declared_length(headers, LOCK_LIMIT) {
            return Err(discard(headers, body, err));
        }
        let _slot = self.acquire(&self.slots, 1).await?;
        let mut reader = BodyReader::new(body, LOCK_LIMIT, self.stall_timeout);
        while reader.read_part(self.stall_timeout).await? {}
        verified(headers, reader.bytes).await
    }

    /// Reads a body into memory while it arrives fast. If it is slow, or does not declare its length, it is spooled to disk,
    /// encrypted, and takes no memory until it is complete.
    async fn read_large(
        &self,
        mut reader: BodyReader,
        length: Option<usize>,
        spool_dir: &Path,
    ) -> Result<(Vec<u8>, OwnedSemaphorePermit), BodyError> {
        let mut reserved = None;
        if let Some(length) = length {
            let memory = self.reserve(length, &mut reader).await?;
            if reader.read_fast(length).await? {
                return Ok((reader.bytes, memory));
            }
            reserved = Some(memory);
        }
        let spool = SpoolFile::new(spool_dir).map_err(BodyError::Spool)?;
        let mut spool = append(spool, &mut reader).await?;
        drop(reserved);
        while reader.read_part(self.stall_timeout).await? {
            if reader.bytes.len() > SMALL {
                spool = append(spool, &mut reader).await?;
            }
        }
        let spool = append(spool, &mut reader).await?;
        let memory = self.reserve(spool.length(), &mut reader).await?;
        let bytes = tokio::task::spawn_blocking(move || spool.read()).await;
        let bytes = bytes.map_err(|_| BodyError::Incomplete)?;
        Ok((bytes.map_err(BodyError::Spool)?, memory))
    }

    /// Waits for memory. That time does not count as the sender's.
    async fn reserve(
        &self,
        bytes: usize,
        reader: &mut BodyReader,
    ) -> Result<OwnedSemaphorePermit, BodyError> {
        let begun = Instant::now();
        let permits = u32::try_from(bytes.div_ceil(MEMORY_UNIT)).unwrap_or(u32::MAX);
        let permits = permits.min(self.memory_permits);
        let memory = self.acquire(&self.memory, permits).await;
        reader.begun += begun.elapsed();
        memory
    }

    /// A body that waits too long is refused; engines send it again.
    async fn acquire(
        &self,
        semaphore: &Arc<Semaphore>,
        permits: u32,
    ) -> Result<OwnedSemaphorePermit, BodyError> {
        let waited = self.stall_timeout.min(MAX_WAIT);
        let acquired = Arc::clone(semaphore).acquire_many_owned(permits);
        let acquired = tokio::time::timeout(waited, acquired).await;
        // The semaphores are never closed.
        let busy = BodyError::Busy { waited };
        acquired.ok().and_then(Result::ok).ok_or(busy)
    }
}

/// Encrypts what has been read and appends it to the spool file.
async fn append(mut spool: SpoolFile, reader: &mut BodyReader) -> Result<SpoolFile, BodyError> {
    let bytes = std::mem::take(&mut reader.bytes);
    let added = tokio::task::spawn_blocking(move || spool.add(&bytes).map(|()| spool)).await;
    let added = added.map_err(|_| BodyError::Incomplete)?;
    added.map_err(BodyError::Spool)
}

struct BodyReader {
    body: Body,
    /// What was read and not spooled.
    bytes: Vec<u8>,
    /// How many bytes were read, spooled or not.
    total: usize,
    limit: usize,
    stall_timeout: Duration,
    begun: Instant,
}

impl BodyReader {
    fn new(body: Body, limit: usize, stall_timeout: Duration) -> Self {
        Self {
            body,
            bytes: Vec::new(),
            total: 0,
            limit,
            stall_timeout,
            begun: Instant::now(),
        }
    }

    /// Reads the rest of a body; returns false if it arrives too slowly to stay in memory.
    async fn read_fast(&mut self, length: usize) -> Result<bool, BodyError> {
        let missing = length.saturating_sub(self.bytes.len());
        self.bytes.reserve_exact(missing);
        let allowed = Duration::from_secs(length as u64 / SPOOL_BELOW_SPEED);
        let end = Instant::now() + 2 * SPOOL_AFTER_STALL + allowed;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let timeout = left.min(SPOOL_AFTER_STALL).min(self.stall_timeout);
            match self.read_part(timeout).await {
                Ok(true) => {}
                Ok(false) => return Ok(true),
                Err(BodyError::Stalled { .. }) => return Ok(false),
                Err(err) => return Err(err),
            }
        }
    }

    /// Reads the next part, if it arrives before the timeout; returns false at the end of the body.
    async fn read_part(&mut self, timeout: Duration) -> Result<bool, BodyError> {
        let allowed = 2 * self.stall_timeout + Duration::from_secs(self.total as u64 / MIN_SPEED);
        if self.begun.elapsed() > allowed {
            return Err(BodyError::TooSlow);
        }
        let next = tokio::time::timeout(timeout, self.body.frame()).await;
        let frame = match next.map_err(|_| BodyError::Stalled { after: timeout })? {
            None => return Ok(false),
            Some(Err(_)) => return Err(BodyError::Incomplete),
            Some(Ok(frame)) => frame,
        };
        let Ok(data) = frame.into_data() else {
            return Ok(true); // trailers are ignored
        };
        self.total += data.len();
        if self.total > self.limit {
            linger(std::mem::take(&mut self.body));
            return Err(BodyError::TooLarge { limit: self.limit });
        }
        self.bytes.extend_from_slice(&data);
        Ok(true)
    }
}

/// The value of a Content-MD5 header.
pub(crate) fn content_md5(bytes: &[u8]) -> String {
    BASE64.encode(Md5::digest(bytes))
}

/// The bytes, if they match the Content-MD5 that the client sent.
async fn verified(headers: &HeaderMap, bytes: Vec<u8>) -> Result<Bytes, BodyError> {
    let bytes = Bytes::from(bytes);
    let Some(sent) = headers.get(CONTENT_MD5) else {
        return Ok(bytes);
    };
    let hashed = bytes.clone();
    let md5 = offload(bytes.len() as u64, move || content_md5(&hashed)).await;
    let md5 = md5.ok_or(BodyError::Incomplete)?;
    if sent.as_bytes() == md5.as_bytes() {
        Ok(bytes)
    } else {
        Err(BodyError::WrongMd5)
    }
}

/// The length that a body declares, if it does and is not too large.
fn declared_length(headers: &HeaderMap, limit: usize) -> Result<Option<usize>, BodyError> {
    let length = headers.get(CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    match length {
        Some(length) if length > limit => Err(BodyError::TooLarge { limit }),
        length => Ok(length),
    }
}

/// Ends a request whose body is not needed. A client that sent `Expect` has not started to send it; reading
/// would request it.
fn discard(headers: &HeaderMap, body: Body, err: BodyError) -> BodyError {
    if !headers.contains_key(EXPECT) {
        linger(body);
    }
    err
}

/// Continues reading for a moment: if the connection is closed while the client still sends, the response is
/// lost.
fn linger(mut body: Body) {
    tokio::spawn(tokio::time::timeout(LINGER, async move {
        while let Some(Ok(_)) = body.frame().await {}
    }));
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::*;

    fn with_length(length: usize) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_LENGTH, length.into());
        headers
    }

    /// A budget that never waits.
    fn impatient(memory: usize) -> BodyBudget {
        BodyBudget {
            stall_timeout: Duration::from_millis(1),
            ..BodyBudget::new(1 << 20, memory)
        }
    }

    #[tokio::test]
    async fn large_bodies_take_memory_until_they_are_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let budget = BodyBudget::new(1 << 20, 256 * 1024).spooled_in(dir.path());
        let free = || budget.memory.available_permits();
        let body = || Body::from(vec![0; 100 * 1024]);
        let sized = budget
            .read_state(&with_length(100 * 1024), body())
            .await
            .unwrap();
        assert_eq!(free(), 156);
        let grown = budget.read_state(&HeaderMap::new(), body()).await.unwrap();
        assert_eq!(free(), 56);
        drop((sized, grown));
        assert_eq!(free(), 256);
        let small = budget
            .read_state(&with_length(10), Body::from("0123456789"))
            .await;
        assert_eq!(free(), 256);
        drop(small);
    }

    #[tokio::test]
    async fn a_body_larger_than_the_budget_waits_until_it_is_alone() {
        let dir = tempfile::tempdir().unwrap();
        let budget = BodyBudget::new(1 << 20, 128 * 1024).spooled_in(dir.path());
        let large = Body::from(vec![0; 1 << 20]);
        let first = budget.read_state(&HeaderMap::new(), large).await.unwrap();
        assert_eq!(budget.memory.available_permits(), 0);
        let second = with_length(100 * 1024);
        let second = budget.read_state(&second, Body::from(vec![0; 100 * 1024]));
        tokio::pin!(second);
        let waits =
            std::future::poll_fn(|context| Poll::Ready(second.as_mut().poll(context).is_pending()));
        assert!(waits.await);
        drop(first);
        assert_eq!(second.await.unwrap().bytes.len(), 100 * 1024);
    }

    #[tokio::test]
    async fn a_body_that_waits_too_long_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let budget = impatient(128 * 1024).spooled_in(dir.path());
        let body = || Body::from(vec![0; 128 * 1024]);
        let held = budget
            .read_state(&with_length(128 * 1024), body())
            .await
            .unwrap();
        for headers in [with_length(128 * 1024), HeaderMap::new()] {
            let refused = budget.read_state(&headers, body()).await;
            let refused = refused.unwrap_err();
            assert!(matches!(refused, BodyError::Busy { .. }), "{refused}");
        }
        drop(held);
        // A refused body holds no memory.
        drop(budget.read_state(&HeaderMap::new(), body()).await.unwrap());
        assert_eq!(budget.memory.available_permits(), 128);
    }

    #[tokio::test]
    async fn the_number_of_small_bodies_is_bounded() {
        let budget = impatient(1 << 20);
        let small = || Body::from("0123456789");
        let mut held = Vec::new();
        for _ in 0..MAX_BODIES {
            held.push(budget.read_state(&with_length(10), small()).await.unwrap());
        }
        let refused = budget
            .read_state(&with_length(10), small())
            .await
            .unwrap_err();
        assert!(matches!(refused, BodyError::Busy { .. }), "{refused}");
        let refused = budget
            .read_lock(&with_length(10), small())
            .await
            .unwrap_err();
        assert!(matches!(refused, BodyError::Busy { .. }), "{refused}");
        drop(held.pop());
        drop(budget.read_lock(&with_length(10), small()).await.unwrap());
    }

    #[tokio::test]
    async fn a_body_that_stalls_is_given_up() {
        let budget = impatient(1 << 20);
        let err = budget
            .read_state(&HeaderMap::new(), Body::new(Stalled))
            .await;
        assert_eq!(
            err.unwrap_err().to_string(),
            "no part of the body arrived for 0 s"
        );
    }

    /// A body that declares a large size and stalls after its beginning is spooled.
    #[tokio::test]
    async fn a_slow_body_takes_no_memory_from_others() {
        let dir = tempfile::tempdir().unwrap();
        let budget = BodyBudget::new(64 << 20, 256 * 1024).spooled_in(dir.path());
        let (feed, slow) = fed();
        let taking = {
            let budget = budget.clone();
            tokio::spawn(async move { budget.read_state(&with_length(200 * 1024), slow).await })
        };
        feed.send(vec![1; 100 * 1024]).unwrap();
        while budget.memory.available_permits() != 56 {
            tokio::task::yield_now().await;
        }
        let other = Body::from(vec![0; 250 * 1024]);
        let other = budget
            .read_state(&with_length(250 * 1024), other)
            .await
            .unwrap();
        assert_eq!(other.bytes.len(), 250 * 1024);
        drop(other);
        feed.send(vec![2; 100 * 1024]).unwrap();
        drop(feed);
        let slow = taking.await.unwrap().unwrap();
        let expected = [vec![1; 100 * 1024], vec![2; 100 * 1024]].concat();
        assert_eq!(slow.bytes, expected);
        assert_eq!(budget.memory.available_permits(), 56);
    }

    /// It never stalls for long, and never ends.
    #[tokio::test]
    async fn a_body_that_trickles_is_given_up() {
        let second = Duration::from_secs(1);
        for (came, is_given_up) in [(1, true), (2 * MIN_SPEED, false)] {
            let (feed, body) = fed();
            feed.send(vec![1]).unwrap();
            let mut reader = BodyReader::new(body, 1 << 20, Duration::from_millis(1));
            reader.begun -= second;
            reader.total = usize::try_from(came).unwrap();
            match reader.read_part(STALL_TIMEOUT).await {
                Ok(is_more) => assert!(is_more && !is_given_up, "after {came} bytes"),
                Err(err) => {
                    assert_eq!(err.to_string(), "the body arrived at less than 16 KB/s");
                    assert!(is_given_up, "after {came} bytes");
                }
            }
        }
    }

    /// A body whose parts the test sends.
    fn fed() -> (tokio::sync::mpsc::UnboundedSender<Vec<u8>>, Body) {
        let (feed, fed) = tokio::sync::mpsc::unbounded_channel();
        (feed, Body::new(Fed(fed)))
    }

    struct Fed(tokio::sync::mpsc::UnboundedReceiver<Vec<u8>>);

    impl hyper::body::Body for Fed {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
            let piece = self.0.poll_recv(context);
            piece.map(|piece| piece.map(|piece| Ok(hyper::body::Frame::data(piece.into()))))
        }
    }

    /// A body of which nothing ever arrives.
    struct Stalled;

    impl hyper::body::Body for Stalled {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
            Poll::Pending
        }
    }
}
