//! Whether the home can be written to, for load balancers.
//!
//! Not here: the endpoint (`server`).

use crate::blob::Blobs;
use crate::{Store, StoreError, blocking};

impl Store {
    /// Checks that the database accepts a writer, a disk accepts bytes, and a bucket can be listed.
    pub async fn check_ready(&self) -> Result<(), StoreError> {
        drop(self.db.begin_write().await?);
        let blobs = self.blobs.clone();
        blocking(move || match &blobs {
            Blobs::Disk(disk) => disk.check_room(),
            Blobs::Bucket(bucket) => bucket.list("keys").map(drop),
        })
        .await
    }

    /// Whether a bucket holds any wrapped key, of this master key or another.
    pub async fn has_keys(&self) -> Result<bool, StoreError> {
        let blobs = self.blobs.clone();
        blocking(move || match &blobs {
            Blobs::Disk(_) => Ok(false),
            Blobs::Bucket(bucket) => bucket.list("keys").map(|keys| !keys.is_empty()),
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::TestHome;

    #[tokio::test]
    async fn a_full_disk_is_not_ready() {
        let home = TestHome::new();
        let store = home.open().await;
        store.check_ready().await.unwrap();
        let probe = home.path().join("home/.ready");
        std::fs::remove_file(&probe).unwrap();
        std::os::unix::fs::symlink("/dev/full", &probe).unwrap();
        let full = store.check_ready().await.unwrap_err();
        let cause = std::error::Error::source(&full).unwrap().to_string();
        assert_eq!(cause, "No space left on device (os error 28)");
    }
}
