//! Whether the home can take a write: asked by those who decide where requests go.

use crate::{Store, StoreError, blocking};

impl Store {
    /// The database gives its one writer's place, and the place of blobs can be listed.
    pub async fn check_ready(&self) -> Result<(), StoreError> {
        drop(self.db.begin_write().await?);
        let blobs = self.blobs.clone();
        blocking(move || blobs.list("keys").map(drop)).await
    }
}
