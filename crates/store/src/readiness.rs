//! Whether the home can take a write: asked by those who decide where requests go.

use crate::{Store, StoreError, blocking};

impl Store {
    /// The database gives its one writer's place, and the directory of blobs is there.
    pub async fn check_ready(&self) -> Result<(), StoreError> {
        drop(self.db.begin_write().await?);
        let path = self.disk.path("");
        blocking(move || match std::fs::read_dir(&path) {
            Ok(_) => Ok(()),
            Err(source) => Err(StoreError::File {
                deed: "list",
                path,
                source,
            }),
        })
        .await
    }
}
