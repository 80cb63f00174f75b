//! Work that takes a while, off the threads that serve others.
//!
//! Not here: how many large bodies are worked on at once (`state_versions`).

use std::thread;

use tokio::sync::oneshot;

use crate::StoreError;

/// Work on so few bytes is done sooner than another thread has woken up.
pub(crate) const SMALL: u64 = 32 * 1024;

/// Bodies above this take tens of milliseconds, and wait for one another.
pub(crate) const LARGE: u64 = 1024 * 1024;

/// How far work on a large body stands back: who asks for a lock meanwhile must not wait for its slices.
#[cfg(target_os = "linux")]
const STANDS_BACK: i32 = 10;

/// Work on `size` bytes that neither waits for a disk nor for a network. None if it broke off.
pub async fn work<T: Send + 'static>(
    size: u64,
    deed: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if size <= SMALL {
        Some(deed())
    } else if size <= LARGE {
        tokio::task::spawn_blocking(deed).await.ok()
    } else {
        standing_back(deed).await
    }
}

/// On a thread of its own: a thread that once stood back may not come forward again.
async fn standing_back<T: Send + 'static>(deed: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (tell, told) = oneshot::channel();
    let begun = thread::Builder::new().spawn(move || {
        // Where it is not allowed, it is done at once.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::setpriority_process(None, STANDS_BACK);
        // Who asked may be gone.
        drop(tell.send(deed()));
    });
    begun.ok()?;
    told.await.ok()
}

pub(crate) async fn working<T: Send + 'static>(
    size: u64,
    deed: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let worked = work(size, deed).await;
    worked.ok_or(StoreError::Interrupted)?
}

/// Whatever waits for a disk or a network.
pub(crate) async fn blocking<T: Send + 'static>(
    deed: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(deed)
        .await
        .map_err(|_| StoreError::Interrupted)?
}
