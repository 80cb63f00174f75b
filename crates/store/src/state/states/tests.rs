//! Deleted states, and states that only runs write.

use super::*;
use crate::testing::{TestHome, body, lock_info, network};
use crate::{AcquireLockError, AppendError, Appended, StateWriter};
use model::state::secret_paths::SecretPaths;
use model::state::{ExpectedHead, PushRefusal};

#[tokio::test]
async fn a_deleted_state_is_hidden_and_its_versions_stay() {
    let home = TestHome::new();
    let store = home.open().await;
    let append = |serial| {
        let (store, writer) = (store.clone(), StateWriter::default());
        async move {
            store
                .state_version_append(&network(), &writer, body(serial))
                .await
        }
    };
    append(7).await.unwrap();
    store
        .state_delete(&network(), None, &Actor::named("ci"))
        .await
        .unwrap();
    store
        .state_delete(&network(), None, &Actor::named("ci"))
        .await
        .unwrap();
    assert_eq!(store.state_head(&network()).await.unwrap(), None);
    let row = store.state_get(&network()).await.unwrap().unwrap();
    assert!(row.deleted_at.is_some());

    let records = store.break_glass_list(&network()).await.unwrap();
    let told: Vec<_> = records
        .iter()
        .map(|one| (one.act, one.actor.name.as_str(), one.detail.as_str()))
        .collect();
    let detail = "version 1 (serial 7) was the newest";
    assert_eq!(
        told,
        [(BreakGlassAction::StateDeleted, "ci", detail)],
        "once"
    );

    // No serial stands for two contents; another life may start with any. Versions are counted on.
    let used = append(7).await.unwrap_err();
    let AppendError::Refused { source, .. } = used else {
        panic!("{used:?}");
    };
    let (serial, last) = (7, 7);
    assert_eq!(source, PushRefusal::SerialUsed { serial, last });
    let other = String::from_utf8(body(1)).unwrap();
    let other = other.replace(r#""lineage":"l""#, r#""lineage":"other""#);
    let (state, writer) = (network(), StateWriter::default());
    let written = store.state_version_append(&state, &writer, other.into_bytes());
    let Appended::New(version) = written.await.unwrap() else {
        panic!("these bytes are new");
    };
    assert_eq!((version.version, version.parent), (2, None));
    let versions = store.state_version_list(&network()).await.unwrap();
    assert_eq!(versions.len(), 2);
}

#[tokio::test]
async fn a_deleted_state_comes_back_under_its_next_serial() {
    let home = TestHome::new();
    let store = home.open().await;
    let (state, writer) = (network(), StateWriter::default());
    for serial in [7, 8] {
        let written = store.state_version_append(&state, &writer, body(serial));
        written.await.unwrap();
        store
            .state_delete(&state, None, &Actor::named("ci"))
            .await
            .unwrap();
    }
    let written = store.state_version_append(&state, &writer, body(9));
    assert!(matches!(written.await, Ok(Appended::New(_))));
}

/// What was looked at before may not hold any more when the head moves.
#[tokio::test]
async fn who_is_not_a_run_is_kept_out_by_the_statement_itself() {
    let home = TestHome::new();
    let store = home.open().await;
    let state = network();
    let client = StateWriter {
        outsider: true,
        ..StateWriter::default()
    };
    let write = |serial| store.state_version_append(&state, &client, body(serial));
    write(1).await.unwrap();
    store.state_reserve_for_runs(&state).await.unwrap();
    let refused = write(2).await.unwrap_err();
    let AppendError::Refused { source, .. } = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(source, PushRefusal::RunsOnly);
    let info = lock_info("a");
    let refused = store.lock_acquire_outside(&state, &info).await;
    assert!(matches!(refused, Err(AcquireLockError::RunsOnly { .. })));
    let refused = store.state_delete(&state, None, &Actor::named("ci")).await;
    assert!(matches!(refused, Err(DeleteStateError::RunsOnly { .. })));

    // A run is not kept out, and nobody is when the target is open again.
    let run = Some(RunId(1));
    let locked = store.lock_acquire(&state, &info, run, ExpectedHead::Any);
    locked.await.unwrap();
    store.lock_release(&state, "a").await.unwrap();
    let reserved = store.state_list_reserved(&state.project).await.unwrap();
    assert_eq!(reserved, std::slice::from_ref(&state));
    store.state_open_to_others(&state).await.unwrap();
    write(2).await.unwrap();
}

#[tokio::test]
async fn a_state_that_somebody_else_locked_is_not_deleted() {
    let home = TestHome::new();
    let store = home.open().await;
    let (state, writer) = (network(), StateWriter::default());
    let written = store.state_version_append(&state, &writer, body(1));
    written.await.unwrap();
    let info = lock_info("a");
    let locked = store.lock_acquire(&state, &info, None, ExpectedHead::Any);
    locked.await.unwrap();

    for id in [None, Some("b")] {
        let refused = store
            .state_delete(&network(), id, &Actor::named("ci"))
            .await
            .unwrap_err();
        assert!(matches!(refused, DeleteStateError::Held { .. }), "{id:?}");
    }
    assert!(store.state_head(&network()).await.unwrap().is_some());
    store
        .state_delete(&network(), Some("a"), &Actor::named("ci"))
        .await
        .unwrap();
    assert_eq!(store.state_head(&network()).await.unwrap(), None);
}

/// Whoever is refused is told the id of the lock.
#[tokio::test]
async fn the_id_of_a_runs_lock_lets_nobody_else_write_or_delete() {
    let home = TestHome::new();
    let store = home.open().await;
    let (state, writer, run) = (network(), StateWriter::default(), Some(RunId(7)));
    let written = store.state_version_append(&state, &writer, body(1));
    written.await.unwrap();
    let info = lock_info("a");
    let locked = store.lock_acquire(&state, &info, run, ExpectedHead::Any);
    locked.await.unwrap();

    let client = StateWriter {
        lock_id: Some("a".to_owned()),
        outsider: true,
        surgery: true,
        ..writer
    };
    let refused = store.state_version_append(&state, &client, body(2)).await;
    let Err(AppendError::Refused { source, holder, .. }) = refused else {
        panic!("{refused:?}");
    };
    let (id, by) = ("a".to_owned(), RunId(7));
    assert_eq!(source, PushRefusal::LockOfRun { id, run: by });
    assert_eq!(holder.and_then(|holder| holder.run), run);
    let refused = store
        .state_delete(&state, Some("a"), &Actor::named("ci"))
        .await;
    assert!(matches!(refused, Err(DeleteStateError::Held { .. })));

    // The run itself goes on.
    let own = StateWriter { run, ..client };
    let written = store.state_version_append(&state, &own, body(2)).await;
    assert!(matches!(written, Ok(Appended::New(version)) if version.version == 2));
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
    let (state, writer) = (network(), StateWriter::default());
    let written = store.state_version_append(&state, &writer, body(1));
    written.await.unwrap();
    let refused = store
        .state_delete(&state, Some("gone"), &Actor::named("ci"))
        .await;
    assert!(matches!(refused, Err(DeleteStateError::Ended { .. })));
    assert!(store.state_head(&state).await.unwrap().is_some());
    store
        .state_delete(&state, None, &Actor::named("ci"))
        .await
        .unwrap();
    store
        .state_delete(&state, Some("gone"), &Actor::named("ci"))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_copy_of_what_lives_elsewhere_is_not_deleted() {
    let home = TestHome::new();
    let store = home.open().await;
    let kept = store
        .state_copy_keep(&network(), None, body(1), SecretPaths::default())
        .await;
    kept.unwrap();
    let refused = store
        .state_delete(&network(), None, &Actor::named("ci"))
        .await;
    assert!(
        matches!(refused, Err(DeleteStateError::Copy { .. })),
        "{refused:?}"
    );
    assert!(store.state_head(&network()).await.unwrap().is_some());
    let records = store.break_glass_list(&network()).await.unwrap();
    assert!(records.is_empty());
}
