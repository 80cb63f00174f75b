//! Holds a running HTTP backend with a lock. An interrupted process unlocks the backend before it ends.
//!
//! Not here: the requests (`drivers::state_http`), what is done under the lock (`transfer`).

use std::pin::pin;
use std::time::Duration;

use drivers::state_http::{HttpBackend, HttpBackendError};
pub use drivers::state_http::{Locking, Method};
use model::base::error::{Explain, NextStep};
use model::state::lock::LockInfo;
use tokio::signal::unix::{SignalKind, signal};

/// How long an interrupted process waits for the answer to its lock request.
const LAST_ANSWER: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum HttpLockError {
    #[error(transparent)]
    Http(#[from] HttpBackendError),
    #[error("interrupted: nothing was written")]
    Interrupted,
    /// The lock is, or may be, still there.
    #[error("interrupted before the backend reported whether it is locked")]
    Unanswered,
    #[error("cannot unlock the backend")]
    LeftLocked { source: Box<HttpLockError> },
}

impl HttpLockError {
    /// Whether an interruption caused it.
    pub fn is_interruption(&self) -> bool {
        match self {
            Self::Interrupted | Self::Unanswered => true,
            Self::LeftLocked { source } => source.is_interruption(),
            Self::Http(_) => false,
        }
    }
}

impl Explain for HttpLockError {
    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::Http(err) => err.next_steps(),
            Self::LeftLocked { source } => source.next_steps(),
            Self::Interrupted | Self::Unanswered => Vec::new(),
        }
    }
}

/// Locks and reads the backend. If that fails, it is unlocked again.
pub(crate) async fn lock_and_read(
    http: &HttpBackend,
    lock: &LockInfo,
) -> Result<Option<Vec<u8>>, HttpLockError> {
    let mut told_to_stop = pin!(told_to_stop());
    let mut locking = pin!(http.lock(lock));
    tokio::select! {
        locked = &mut locking => locked?,
        () = &mut told_to_stop => {
            // Giving up now would leave it unknown whether we hold the lock.
            return match tokio::time::timeout(LAST_ANSWER, locking).await {
                Ok(Ok(())) => Err(free(http, lock, HttpLockError::Interrupted).await),
                Ok(Err(_)) => Err(HttpLockError::Interrupted),
                Err(_) => Err(HttpLockError::LeftLocked { source: Box::new(HttpLockError::Unanswered) }),
            };
        }
    }
    let read = tokio::select! {
        read = http.read() => read.map_err(HttpLockError::Http),
        () = &mut told_to_stop => Err(HttpLockError::Interrupted),
    };
    match read {
        Ok(body) => Ok(body),
        Err(failed) => Err(free(http, lock, failed).await),
    }
}

/// Unlocks the backend after a failure, and reports it if that fails too.
async fn free(http: &HttpBackend, lock: &LockInfo, failed: HttpLockError) -> HttpLockError {
    match http.unlock(lock).await {
        Ok(()) => failed,
        Err(_) => HttpLockError::LeftLocked {
            source: Box::new(failed),
        },
    }
}

/// Completes on SIGINT or SIGTERM. From the call on, these signals do not end the process, so current work
/// can complete.
pub(crate) fn told_to_stop() -> impl Future<Output = ()> {
    let interrupt = signal(SignalKind::interrupt());
    let terminate = signal(SignalKind::terminate());
    async move {
        let (Ok(mut interrupt), Ok(mut terminate)) = (interrupt, terminate) else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}
