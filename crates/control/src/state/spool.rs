//! What a server needs to take in large bodies: a thread for work on them, and a file for those that arrive slowly.
//!
//! Not here: when a body is spooled (`server`), encrypting the file and running threads (`store`).

use std::io;
use std::path::Path;

use store::ScratchFile;

/// Bytes of a request on disk, encrypted with a key that exists only in memory.
#[derive(Debug)]
pub struct SpoolFile(ScratchFile);

impl SpoolFile {
    /// The directory must exist.
    pub fn new(dir: &Path) -> io::Result<Self> {
        ScratchFile::new(dir).map(Self)
    }

    pub fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.add(bytes)
    }

    pub fn length(&self) -> usize {
        self.0.length()
    }

    /// Everything that was added.
    pub fn read(self) -> io::Result<Vec<u8>> {
        self.0.read()
    }
}

/// Runs CPU-bound work on `size` bytes where it does not delay other requests. `None` if it panicked.
pub async fn offload<T: Send + 'static>(
    size: u64,
    operation: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    store::offload(size, operation).await
}
