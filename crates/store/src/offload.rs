//! Runs work that takes a while on other threads, so that the threads that serve requests stay free.
//!
//! Not here: how many large bodies are worked on at once (`state::versions`).

use std::thread;

use tokio::sync::oneshot;

use crate::StoreError;

/// Up to this size, work takes less time than waking another thread.
pub(crate) const SMALL: u64 = 32 * 1024;

/// Bodies above this size take tens of milliseconds; only a few are worked on at a time.
pub(crate) const LARGE: u64 = 1024 * 1024;

/// The nice value of work on a large body: lock requests must not wait for it.
#[cfg(target_os = "linux")]
const LOW_PRIORITY: i32 = 10;

/// Runs CPU-bound work on `size` bytes. `None` if it panicked.
pub async fn offload<T: Send + 'static>(
    size: u64,
    operation: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if size <= SMALL {
        Some(operation())
    } else if size <= LARGE {
        tokio::task::spawn_blocking(operation).await.ok()
    } else {
        at_low_priority(operation).await
    }
}

/// Uses a new thread: a thread may lower its priority but not raise it again.
async fn at_low_priority<T: Send + 'static>(
    operation: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (tell, told) = oneshot::channel();
    let begun = thread::Builder::new().spawn(move || {
        // Not allowed everywhere; the work is done either way.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::setpriority_process(None, LOW_PRIORITY);
        // The caller may be gone.
        drop(tell.send(operation()));
    });
    begun.ok()?;
    told.await.ok()
}

pub(crate) async fn try_offload<T: Send + 'static>(
    size: u64,
    operation: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let done = offload(size, operation).await;
    done.ok_or(StoreError::Interrupted)?
}

/// Runs work that waits for a disk or the network.
pub(crate) async fn blocking<T: Send + 'static>(
    operation: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(operation)
        .await
        .map_err(|_| StoreError::Interrupted)?
}
