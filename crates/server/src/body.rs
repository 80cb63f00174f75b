//! Taking a request's body: whole, no larger than allowed, no slower than bearable, and the bytes its
//! sender meant. A body has its room in memory while it comes fast; one that is slow is put aside, sealed on the disk, until
//! all of it is there, so that its sender costs others nothing.
//!
//! Not here: what a body says (`wire`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, EXPECT};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use control::state_service::{Scratch, work};
use http_body_util::BodyExt as _;
use md5::{Digest as _, Md5};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) const CONTENT_MD5: &str = "content-md5";

/// A lock is seven short strings.
const LOCK_LIMIT: usize = 64 * 1024;

/// Nobody waits longer than this for the next piece of a body.
pub(crate) const IDLE: Duration = Duration::from_mins(2);

/// On the average a body comes faster than this, in bytes a second; the first minutes are free.
const SLOWEST: u64 = 16 * 1024;

/// So long a large body may keep its room while nothing more of it comes, and so many bytes have to come a second: a
/// sender that is slower has it on the disk.
const PAUSE: Duration = Duration::from_millis(500);
const PACE: u64 = 8 * 1024 * 1024;

/// So long a large body waits for others to be done.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Of smaller bodies only the number is counted.
const SMALL: usize = 64 * 1024;

/// What is counted is counted in pieces of this size.
const PIECE: usize = 1024;

/// How long a sender may go on with a body that nobody wants, so that it hears the answer.
const LINGER: Duration = Duration::from_secs(5);

/// So many bodies come in at a time, small ones and beginnings of large ones: many requests may share a connection.
const BODIES: usize = 1000;

/// How much there is room for: one body, and all of them together.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    limit: usize,
    idle: Duration,
    bodies: Arc<Semaphore>,
    /// One body larger than all of it waits until it is alone.
    memory: Arc<Semaphore>,
    pieces: u32,
    /// Where slow bodies, and those that do not say their length, lie until they are whole; nothing where a single
    /// sender sends one at a time.
    aside: Option<PathBuf>,
}

/// A body that came whole, and the room it takes until it is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) bytes: Bytes,
    _turn: OwnedSemaphorePermit,
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
    #[error("it came slower than {} KB a second", SLOWEST / 1024)]
    Trickled,
    #[error("it came slowly, and could not be put aside")]
    Aside(#[source] io::Error),
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
            bodies: Arc::new(Semaphore::new(BODIES)),
            memory: Arc::new(Semaphore::new(pieces as usize)),
            pieces,
            aside: None,
        }
    }

    /// Slow bodies are put aside in this directory.
    #[must_use]
    pub(crate) fn aside(self, dir: &Path) -> Self {
        let aside = Some(dir.to_owned());
        Self { aside, ..self }
    }

    /// A state, of which there may be many large ones at a time.
    pub(crate) async fn state(&self, headers: &HeaderMap, body: Body) -> Result<Taken, TakeError> {
        let length = declared_length(headers);
        if length.is_some_and(|length| length > self.limit) {
            turn_away(headers, body);
            return Err(TakeError::TooLarge { limit: self.limit });
        }
        let turn = self.turn().await?;
        let mut pieces = Pieces::new(body, self.limit, self.idle);
        pieces.bytes.reserve_exact(length.unwrap_or(0).min(SMALL));
        // What is small is not counted, whatever it said it would be.
        while pieces.bytes.len() <= SMALL {
            if !pieces.more(self.idle).await? {
                let bytes = checked(headers, pieces.bytes).await?;
                return Ok(Taken {
                    bytes,
                    _turn: turn,
                    _room: None,
                });
            }
        }
        let (bytes, room) = match (length, &self.aside) {
            (Some(length), Some(dir)) => {
                let room = self.take(length, &mut pieces).await?;
                if pieces.all_in_time(length).await? {
                    (pieces.bytes, room)
                } else {
                    self.put_aside(pieces, Some(room), dir).await?
                }
            }
            (None, Some(dir)) => self.put_aside(pieces, None, dir).await?,
            (length, None) => {
                // Without a word of how long it is, it may become as long as any.
                let length = length.unwrap_or(self.limit);
                let room = self.take(length, &mut pieces).await?;
                while pieces.more(self.idle).await? {}
                (pieces.bytes, room)
            }
        };
        let bytes = checked(headers, bytes).await?;
        Ok(Taken {
            bytes,
            _turn: turn,
            _room: Some(room),
        })
    }

    /// A lock's description, or nothing.
    pub(crate) async fn lock(&self, headers: &HeaderMap, body: Body) -> Result<Bytes, TakeError> {
        let length = declared_length(headers);
        if length.is_some_and(|length| length > LOCK_LIMIT) {
            turn_away(headers, body);
            return Err(TakeError::TooLarge { limit: LOCK_LIMIT });
        }
        let _turn = self.turn().await?;
        let mut pieces = Pieces::new(body, LOCK_LIMIT, self.idle);
        while pieces.more(self.idle).await? {}
        checked(headers, pieces.bytes).await
    }

    /// Takes the rest of a body to the disk as it comes, then all of it back when there is room.
    async fn put_aside(
        &self,
        mut pieces: Pieces,
        room: Option<OwnedSemaphorePermit>,
        dir: &Path,
    ) -> Result<(Vec<u8>, OwnedSemaphorePermit), TakeError> {
        let mut scratch = Scratch::new(dir).map_err(TakeError::Aside)?;
        scratch = aside(scratch, std::mem::take(&mut pieces.bytes)).await?;
        drop(room);
        while pieces.more(self.idle).await? {
            if pieces.bytes.len() > SMALL {
                scratch = aside(scratch, std::mem::take(&mut pieces.bytes)).await?;
            }
        }
        scratch = aside(scratch, std::mem::take(&mut pieces.bytes)).await?;
        let room = self.take(scratch.length(), &mut pieces).await?;
        let read = tokio::task::spawn_blocking(move || scratch.read()).await;
        let bytes = read.map_err(|_| TakeError::BrokeOff)?;
        Ok((bytes.map_err(TakeError::Aside)?, room))
    }

    async fn turn(&self) -> Result<OwnedSemaphorePermit, TakeError> {
        self.wait(&self.bodies, 1).await
    }

    /// The sender's time does not count meanwhile.
    async fn take(
        &self,
        bytes: usize,
        pieces: &mut Pieces,
    ) -> Result<OwnedSemaphorePermit, TakeError> {
        let begun = Instant::now();
        let room = self.wait(&self.memory, self.pieces_of(bytes)).await;
        pieces.begun += begun.elapsed();
        room
    }

    /// Nobody waits for ever, and an engine sends it again.
    async fn wait(
        &self,
        of: &Arc<Semaphore>,
        count: u32,
    ) -> Result<OwnedSemaphorePermit, TakeError> {
        let waited = self.idle.min(LONGEST_WAIT);
        let got = Arc::clone(of).acquire_many_owned(count);
        let got = tokio::time::timeout(waited, got).await;
        let busy = TakeError::Busy { waited };
        // It is closed by nobody.
        got.ok().and_then(Result::ok).ok_or(busy)
    }

    fn pieces_of(&self, bytes: usize) -> u32 {
        let pieces = u32::try_from(bytes.div_ceil(PIECE)).unwrap_or(u32::MAX);
        pieces.min(self.pieces)
    }
}

/// Seals what came; off the threads that serve others.
async fn aside(mut scratch: Scratch, bytes: Vec<u8>) -> Result<Scratch, TakeError> {
    let added = tokio::task::spawn_blocking(move || scratch.add(&bytes).map(|()| scratch)).await;
    let added = added.map_err(|_| TakeError::BrokeOff)?;
    added.map_err(TakeError::Aside)
}

/// A body as it comes in.
struct Pieces {
    body: Body,
    /// What came and was not put aside.
    bytes: Vec<u8>,
    /// How much came, put aside or not.
    came: usize,
    limit: usize,
    idle: Duration,
    begun: Instant,
}

impl Pieces {
    fn new(body: Body, limit: usize, idle: Duration) -> Self {
        Self {
            body,
            bytes: Vec::new(),
            came: 0,
            limit,
            idle,
            begun: Instant::now(),
        }
    }

    /// Takes the rest of a body that has its room; false if it comes too slowly to keep it.
    async fn all_in_time(&mut self, length: usize) -> Result<bool, TakeError> {
        let missing = length.saturating_sub(self.bytes.len());
        self.bytes.reserve_exact(missing);
        let end = Instant::now() + 2 * PAUSE + Duration::from_secs(length as u64 / PACE);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.more(left.min(PAUSE).min(self.idle)).await {
                Ok(true) => {}
                Ok(false) => return Ok(true),
                Err(TakeError::Slow { .. }) => return Ok(false),
                Err(err) => return Err(err),
            }
        }
    }

    /// Takes the next piece, if it comes within `patience`; false after the last one.
    async fn more(&mut self, patience: Duration) -> Result<bool, TakeError> {
        let allowed = 2 * self.idle + Duration::from_secs(self.came as u64 / SLOWEST);
        if self.begun.elapsed() > allowed {
            return Err(TakeError::Trickled);
        }
        let next = tokio::time::timeout(patience, self.body.frame()).await;
        let frame = match next.map_err(|_| TakeError::Slow { idle: patience })? {
            None => return Ok(false),
            Some(Err(_)) => return Err(TakeError::BrokeOff),
            Some(Ok(frame)) => frame,
        };
        let Ok(data) = frame.into_data() else {
            return Ok(true); // trailers say nothing that we need
        };
        self.came += data.len();
        if self.came > self.limit {
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

/// The bytes, if they are those that the sender meant.
async fn checked(headers: &HeaderMap, bytes: Vec<u8>) -> Result<Bytes, TakeError> {
    let bytes = Bytes::from(bytes);
    let Some(sent) = headers.get(CONTENT_MD5) else {
        return Ok(bytes);
    };
    let hashed = bytes.clone();
    let sum = work(bytes.len() as u64, move || md5_of(&hashed)).await;
    let sum = sum.ok_or(TakeError::BrokeOff)?;
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

/// Who asks first whether to send it need not be asked to: reading would do that.
fn turn_away(headers: &HeaderMap, body: Body) {
    if !headers.contains_key(EXPECT) {
        linger(body);
    }
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
        let dir = tempfile::tempdir().unwrap();
        let room = Room::new(1 << 20, 256 * 1024, IDLE).aside(dir.path());
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
        let dir = tempfile::tempdir().unwrap();
        let room = Room::new(1 << 20, 128 * 1024, IDLE).aside(dir.path());
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

    /// Many requests may share a connection, so the number of connections bounds nothing.
    #[tokio::test]
    async fn small_bodies_take_room_together() {
        let room = Room::new(1 << 20, 1 << 20, Duration::from_millis(1));
        let small = || Body::from("0123456789");
        let mut held = Vec::new();
        for _ in 0..BODIES {
            held.push(room.state(&with_length(10), small()).await.unwrap());
        }
        let refused = room.state(&with_length(10), small()).await.unwrap_err();
        assert!(matches!(refused, TakeError::Busy { .. }), "{refused}");
        let refused = room.lock(&with_length(10), small()).await.unwrap_err();
        assert!(matches!(refused, TakeError::Busy { .. }), "{refused}");
        drop(held.pop());
        drop(room.lock(&with_length(10), small()).await.unwrap());
    }

    #[tokio::test]
    async fn a_body_that_stops_coming_is_given_up() {
        let room = Room::new(1 << 20, 1 << 20, Duration::from_millis(1));
        let err = room.state(&HeaderMap::new(), Body::new(Stalled)).await;
        assert_eq!(err.unwrap_err().to_string(), "nothing came for 0 s");
    }

    /// A body that says it is large, and stops after its beginning, keeps no room from others.
    #[tokio::test]
    async fn a_slow_body_costs_others_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let room = Room::new(64 << 20, 256 * 1024, IDLE).aside(dir.path());
        let (feed, slow) = fed();
        let taking = {
            let room = room.clone();
            tokio::spawn(async move { room.state(&with_length(200 * 1024), slow).await })
        };
        feed.send(vec![1; 100 * 1024]).unwrap();
        while room.memory.available_permits() != 56 {
            tokio::task::yield_now().await;
        }
        let other = Body::from(vec![0; 250 * 1024]);
        let other = room.state(&with_length(250 * 1024), other).await.unwrap();
        assert_eq!(other.bytes.len(), 250 * 1024);
        drop(other);
        feed.send(vec![2; 100 * 1024]).unwrap();
        drop(feed);
        let slow = taking.await.unwrap().unwrap();
        let expected = [vec![1; 100 * 1024], vec![2; 100 * 1024]].concat();
        assert_eq!(slow.bytes, expected);
        assert_eq!(room.memory.available_permits(), 56);
    }

    /// It never stops for long, and never ends.
    #[tokio::test]
    async fn a_body_that_trickles_is_given_up() {
        let second = Duration::from_secs(1);
        for (came, is_given_up) in [(1, true), (2 * SLOWEST, false)] {
            let (feed, body) = fed();
            feed.send(vec![1]).unwrap();
            let mut pieces = Pieces::new(body, 1 << 20, Duration::from_millis(1));
            pieces.begun -= second;
            pieces.came = usize::try_from(came).unwrap();
            match pieces.more(IDLE).await {
                Ok(is_more) => assert!(is_more && !is_given_up, "after {came} bytes"),
                Err(err) => {
                    assert_eq!(err.to_string(), "it came slower than 16 KB a second");
                    assert!(is_given_up, "after {came} bytes");
                }
            }
        }
    }

    /// A body that comes as it is fed.
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
