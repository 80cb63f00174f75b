//! Copies of states that live in a backend of the engine.
//!
//! Not here: reading them there (`control::changeset::backends`).

use std::sync::Arc;

use model::base::ids::RunId;
use model::state::secret_paths::SecretPaths;
use model::state::{StateName, VersionMark};

use super::append::{AppendError, Appended, StateWrite, StateWriter};
use crate::Store;

impl Store {
    /// Stores `body` as the newest copy of a state that lives elsewhere. Equal bytes are stored once.
    pub async fn state_copy_keep(
        &self,
        state: &StateName,
        run: Option<RunId>,
        body: Vec<u8>,
        secret_paths: SecretPaths,
    ) -> Result<Appended, AppendError> {
        let write = StateWrite {
            state: state.clone(),
            writer: StateWriter {
                secret_paths: Some(secret_paths),
                ..StateWriter::default()
            },
            run,
            mark: Some(VersionMark::Copy),
            record: None,
            body: Arc::new(body),
        };
        self.append(write).await
    }
}

#[cfg(test)]
mod tests {
    use model::state::ExpectedHead;

    use super::*;
    use crate::testing::{TestHome, body, lock_info, network};

    async fn keep(store: &Store, body: Vec<u8>) -> String {
        let (state, paths) = (network(), SecretPaths::default());
        match store.state_copy_keep(&state, None, body, paths).await {
            Ok(Appended::New(version)) => format!("version {}", version.version),
            Ok(Appended::Same(version)) => format!("same as version {}", version.version),
            Err(err) => std::error::Error::source(&err).unwrap().to_string(),
        }
    }

    #[tokio::test]
    async fn what_was_seen_is_kept_once_and_marked() {
        let home = TestHome::new();
        let store = home.open().await;
        assert_eq!(keep(&store, body(7)).await, "version 1");
        assert_eq!(keep(&store, body(7)).await, "same as version 1");
        // An older state was restored there: the copy follows.
        assert_eq!(keep(&store, body(3)).await, "version 2");
        let head = store.state_head(&network()).await.unwrap().unwrap();
        assert_eq!((head.is_copy(), head.serial), (true, 3));
    }

    #[tokio::test]
    async fn nobody_writes_over_a_copy_but_who_brings_the_state_here() {
        let home = TestHome::new();
        let store = home.open().await;
        keep(&store, body(7)).await;
        let plain = StateWriter::default();
        let refused = store
            .state_version_append(&network(), &plain, body(8))
            .await;
        assert!(refused.is_err());

        let mut info = lock_info("import");
        info.operation = "migration destination state".to_owned();
        let state = network();
        let locked = store.lock_acquire(&state, &info, None, ExpectedHead::Any);
        locked.await.unwrap();
        let writer = StateWriter {
            lock_id: Some(info.id.clone()),
            surgery: true,
            ..StateWriter::default()
        };
        // The same bytes as the copy, but a new version: the state lives here now.
        let here = store
            .state_version_append(&network(), &writer, body(7))
            .await;
        assert!(matches!(here, Ok(Appended::New(version)) if !version.is_copy()));
    }
}
