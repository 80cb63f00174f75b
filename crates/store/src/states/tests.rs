//! Deleted states, and states that only runs write.

use super::*;
use crate::testing::{TestHome, body, lock_info, network};
use crate::{Appended, Writer};
use model::state::ExpectedHead;

#[tokio::test]
async fn a_deleted_state_is_hidden_and_its_versions_stay() {
    let home = TestHome::new();
    let store = home.open().await;
    let append = |serial| {
        let (store, writer) = (store.clone(), Writer::default());
        async move {
            store
                .state_version_append(&network(), &writer, body(serial))
                .await
        }
    };
    append(7).await.unwrap();
    store.state_delete(&network(), None).await.unwrap();
    store.state_delete(&network(), None).await.unwrap();
    assert_eq!(store.state_head(&network()).await.unwrap(), None);
    let row = store.state_get(&network()).await.unwrap().unwrap();
    assert!(row.deleted_at.is_some());

    // Another life may start with any serial; versions are counted on.
    let Appended::New(version) = append(1).await.unwrap() else {
        panic!("these bytes are new");
    };
    assert_eq!((version.version, version.parent), (2, None));
    let versions = store.state_version_list(&network()).await.unwrap();
    assert_eq!(versions.len(), 2);
}

#[tokio::test]
async fn a_state_that_somebody_else_locked_is_not_deleted() {
    let home = TestHome::new();
    let store = home.open().await;
    let (state, writer) = (network(), Writer::default());
    let written = store.state_version_append(&state, &writer, body(1));
    written.await.unwrap();
    let info = lock_info("a");
    let locked = store.lock_acquire(&state, &info, None, ExpectedHead::Any);
    locked.await.unwrap();

    for id in [None, Some("b")] {
        let refused = store.state_delete(&network(), id).await.unwrap_err();
        assert!(matches!(refused, DeleteStateError::Held { .. }), "{id:?}");
    }
    assert!(store.state_head(&network()).await.unwrap().is_some());
    store.state_delete(&network(), Some("a")).await.unwrap();
    assert_eq!(store.state_head(&network()).await.unwrap(), None);
}

#[tokio::test]
async fn a_state_is_reserved_for_runs_before_it_exists() {
    let home = TestHome::new();
    let store = home.open().await;
    store.state_reserve_for_runs(&network()).await.unwrap();
    store.state_reserve_for_runs(&network()).await.unwrap();
    let row = store.state_get(&network()).await.unwrap().unwrap();
    assert!(row.runs_only);
}

#[tokio::test]
async fn a_lock_that_ended_deletes_nothing() {
    let home = TestHome::new();
    let store = home.open().await;
    let (state, writer) = (network(), Writer::default());
    let written = store.state_version_append(&state, &writer, body(1));
    written.await.unwrap();
    let refused = store.state_delete(&state, Some("gone")).await;
    assert!(matches!(refused, Err(DeleteStateError::Ended { .. })));
    assert!(store.state_head(&state).await.unwrap().is_some());
    store.state_delete(&state, None).await.unwrap();
    store.state_delete(&state, Some("gone")).await.unwrap();
}
