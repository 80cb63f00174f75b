//! Taking a request's body: whole, no larger than allowed, no slower than bearable, and the bytes its
//! sender meant.
//!
//! Not here: what a body says (`wire`).

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_LENGTH;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http_body_util::BodyExt as _;
use md5::{Digest as _, Md5};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) const CONTENT_MD5: &str = "content-md5";

/// A lock is seven short strings.
const LOCK_LIMIT: usize = 64 * 1024;

/// Nobody waits longer than this for the next piece of a body.
pub(crate) const IDLE: Duration = Duration::from_mins(2);

/// So long a large body waits for others to be done.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Smaller bodies are not counted, and are hashed where they are: a thread of their own would cost more.
pub(crate) const SMALL: usize = 64 * 1024;

/// What is counted is counted in pieces of this size.
const PIECE: usize = 1024;

/// How long a sender may go on with a body that nobody wants, so that it hears the answer.
const LINGER: Duration = Duration::from_secs(5);

/// How much there is room for: one body, and all of them together.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    limit: usize,
    idle: Duration,
    /// For bodies that said their length; one larger than all of it waits until it is alone.
    memory: Arc<Semaphore>,
    pieces: u32,
    /// For bodies that did not say their length: they take room as they grow, so one at a time.
    growing: Arc<Semaphore>,
}

/// A body that came whole, and the room it takes until it is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) bytes: Bytes,
    _room: Option<OwnedSemaphorePermit>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum TakeError {
    #[error("it is larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("it broke off")]
    BrokeOff,
    #[error("nothing came for {} s", idle.as_secs())]
    Slow { idle: Duration },
    #[error("its bytes are not those of its Content-MD5")]
    OtherBytes,
    #[error("there was no room for it for {} s", waited.as_secs())]
    Busy { waited: Duration },
}

impl Room {
    /// Room for bodies of up to `limit` bytes, `memory` bytes of them at a time; who sends nothing for
    /// `idle` is given up.
    pub(crate) fn new(limit: usize, memory: usize, idle: Duration) -> Self {
        let pieces = u32::try_from(memory / PIECE).unwrap_or(u32::MAX).max(1);
        Self {
            limit,
            idle,
            memory: Arc::new(Semaphore::new(pieces as usize)),
            pieces,
            growing: Arc::new(Semaphore::new(1)),
        }
    }

    /// A state, of which there may be many large ones at a time.
    pub(crate) async fn state(&self, headers: &HeaderMap, body: Body) -> Result<Taken, TakeError> {
        let length = declared_length(headers);
        if length.is_some_and(|length| length > self.limit) {
            linger(body);
            return Err(TakeError::TooLarge { limit: self.limit });
        }
        let (growing, mut room) = match length {
            Some(length) if length <= SMALL => (None, None),
            Some(length) => (None, Some(self.take(length).await?)),
            None => (Arc::clone(&self.growing).acquire_owned().await.ok(), None),
        };
        let mut pieces = Pieces::new(body, self.limit, length, self.idle);
        while pieces.more().await? {
            if growing.is_some() {
                room = self.grow(room, pieces.bytes.len()).await?;
            }
        }
        let bytes = checked(headers, pieces.bytes).await?;
        Ok(Taken { bytes, _room: room })
    }

    /// A lock's description, or nothing.
    pub(crate) async fn lock(&self, headers: &HeaderMap, body: Body) -> Result<Bytes, TakeError> {
        let length = declared_length(headers);
        if length.is_some_and(|length| length > LOCK_LIMIT) {
            linger(body);
            return Err(TakeError::TooLarge { limit: LOCK_LIMIT });
        }
        let mut pieces = Pieces::new(body, LOCK_LIMIT, length, self.idle);
        while pieces.more().await? {}
        checked(headers, pieces.bytes).await
    }

    /// Bodies that grow may wait for one another: nobody waits for ever, and an engine sends it again.
    async fn take(&self, bytes: usize) -> Result<OwnedSemaphorePermit, TakeError> {
        let pieces = self.pieces_of(bytes);
        let waited = self.idle.min(LONGEST_WAIT);
        let room = Arc::clone(&self.memory).acquire_many_owned(pieces);
        let room = tokio::time::timeout(waited, room).await;
        let busy = TakeError::Busy { waited };
        // It is closed by nobody.
        room.ok().and_then(Result::ok).ok_or(busy)
    }

    async fn grow(
        &self,
        room: Option<OwnedSemaphorePermit>,
        bytes: usize,
    ) -> Result<Option<OwnedSemaphorePermit>, TakeError> {
        let has = room.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let lacks = (self.pieces_of(bytes) as usize).saturating_sub(has);
        if lacks == 0 {
            return Ok(room);
        }
        let more = self.take(lacks * PIECE).await?;
        Ok(Some(match room {
            None => more,
            Some(mut room) => {
                room.merge(more);
                room
            }
        }))
    }

    fn pieces_of(&self, bytes: usize) -> u32 {
        let pieces = u32::try_from(bytes.div_ceil(PIECE)).unwrap_or(u32::MAX);
        pieces.min(self.pieces)
    }
}

/// A body as it comes in.
struct Pieces {
    body: Body,
    bytes: Vec<u8>,
    limit: usize,
    idle: Duration,
}

impl Pieces {
    fn new(body: Body, limit: usize, length: Option<usize>, idle: Duration) -> Self {
        let bytes = Vec::with_capacity(length.unwrap_or(0).min(limit));
        Self {
            body,
            bytes,
            limit,
            idle,
        }
    }

    /// Takes the next piece; false after the last one.
    async fn more(&mut self) -> Result<bool, TakeError> {
        let next = tokio::time::timeout(self.idle, self.body.frame()).await;
        let frame = match next.map_err(|_| TakeError::Slow { idle: self.idle })? {
            None => return Ok(false),
            Some(Err(_)) => return Err(TakeError::BrokeOff),
            Some(Ok(frame)) => frame,
        };
        let Ok(data) = frame.into_data() else {
            return Ok(true); // trailers say nothing that we need
        };
        if self.bytes.len() + data.len() > self.limit {
            linger(std::mem::take(&mut self.body));
            return Err(TakeError::TooLarge { limit: self.limit });
        }
        self.bytes.extend_from_slice(&data);
        Ok(true)
    }
}

/// The MD5 as it travels in a header.
pub(crate) fn md5_of(bytes: &[u8]) -> String {
    BASE64.encode(Md5::digest(bytes))
}

/// The bytes, if they are those that the sender meant. Large ones are hashed off the threads that serve
/// others.
async fn checked(headers: &HeaderMap, bytes: Vec<u8>) -> Result<Bytes, TakeError> {
    let bytes = Bytes::from(bytes);
    let Some(sent) = headers.get(CONTENT_MD5) else {
        return Ok(bytes);
    };
    let sum = if bytes.len() <= SMALL {
        md5_of(&bytes)
    } else {
        let bytes = bytes.clone();
        let hashed = tokio::task::spawn_blocking(move || md5_of(&bytes)).await;
        hashed.map_err(|_| TakeError::BrokeOff)?
    };
    if sent.as_bytes() == sum.as_bytes() {
        Ok(bytes)
    } else {
        Err(TakeError::OtherBytes)
    }
}

fn declared_length(headers: &HeaderMap) -> Option<usize> {
    let length = headers.get(CONTENT_LENGTH)?.to_str().ok()?;
    length.parse().ok()
}

/// Goes on reading for a moment. A connection that is closed on a sender is reset, and the answer that
/// is under way is lost with it.
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

    #[tokio::test]
    async fn large_bodies_take_room_until_they_are_dropped() {
        let room = Room::new(1 << 20, 256 * 1024, IDLE);
        let free = || room.memory.available_permits();
        let body = || Body::from(vec![0; 100 * 1024]);
        let sized = room.state(&with_length(100 * 1024), body()).await.unwrap();
        assert_eq!(free(), 156);
        let grown = room.state(&HeaderMap::new(), body()).await.unwrap();
        assert_eq!(free(), 56);
        drop((sized, grown));
        assert_eq!(free(), 256);
        let small = room.state(&with_length(10), Body::from("0123456789")).await;
        assert_eq!(free(), 256);
        drop(small);
    }

    #[tokio::test]
    async fn a_body_larger_than_all_room_waits_until_it_is_alone() {
        let room = Room::new(1 << 20, 128 * 1024, IDLE);
        let large = Body::from(vec![0; 1 << 20]);
        let first = room.state(&HeaderMap::new(), large).await.unwrap();
        assert_eq!(room.memory.available_permits(), 0);
        let second = with_length(100 * 1024);
        let second = room.state(&second, Body::from(vec![0; 100 * 1024]));
        tokio::pin!(second);
        let waits =
            std::future::poll_fn(|context| Poll::Ready(second.as_mut().poll(context).is_pending()));
        assert!(waits.await);
        drop(first);
        assert_eq!(second.await.unwrap().bytes.len(), 100 * 1024);
    }

    #[tokio::test]
    async fn who_waits_for_room_in_vain_is_told_so() {
        let room = Room::new(1 << 20, 128 * 1024, Duration::from_millis(1));
        let body = || Body::from(vec![0; 128 * 1024]);
        let held = room.state(&with_length(128 * 1024), body()).await.unwrap();
        for headers in [with_length(128 * 1024), HeaderMap::new()] {
            let refused = room.state(&headers, body()).await;
            let refused = refused.unwrap_err();
            assert!(matches!(refused, TakeError::Busy { .. }), "{refused}");
        }
        drop(held);
        // What was given up holds nothing: there is room for all of it again.
        drop(room.state(&HeaderMap::new(), body()).await.unwrap());
        assert_eq!(room.memory.available_permits(), 128);
    }

    #[tokio::test]
    async fn a_body_that_stops_coming_is_given_up() {
        let room = Room::new(1 << 20, 1 << 20, Duration::from_millis(1));
        let err = room.state(&HeaderMap::new(), Body::new(Stalled)).await;
        assert_eq!(err.unwrap_err().to_string(), "nothing came for 0 s");
    }

    /// A body of which nothing ever comes.
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
