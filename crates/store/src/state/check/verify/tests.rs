//! What is damaged is found and named; what is not is not.

use model::base::actor::Actor;
use std::fs;

use super::*;
use crate::testing::{TestHome, append, body, network, wide};
use crate::{Keyring, OpenStoreError};

/// Four versions of a wide state: one whole, three differences.
async fn four(home: &TestHome) -> Vec<StoredVersion> {
    let store = home.open().await;
    for serial in 1..=4 {
        let pushed = append(&store, network(), wide(50, serial));
        pushed.await.unwrap();
    }
    store.stored_all(&network()).await.unwrap()
}

async fn damages(home: &TestHome) -> Vec<String> {
    let verified = home.open().await.state_verify(None).await.unwrap();
    let line = |damage: &Damage| {
        let cause = std::error::Error::source(&damage.error).unwrap();
        let head = if damage.is_head { ", the head" } else { "" };
        format!("version {}{head}: {cause}", damage.version.unwrap())
    };
    verified.damages.iter().map(line).collect()
}

#[tokio::test]
async fn a_sound_home() {
    let home = TestHome::new();
    let stored = four(&home).await;
    let depths: Vec<i64> = stored.iter().map(|stored| stored.depth).collect();
    assert_eq!(depths, [0, 1, 2, 3]);
    let store = home.open().await;
    let refused = append(&store, network(), wide(50, 1));
    refused.await.unwrap_err();
    let verified = store.state_verify(Some(&network())).await.unwrap();
    assert!(verified.damages.is_empty(), "{:?}", verified.damages);
    assert_eq!((verified.states, verified.versions), (1, 4));
    assert_eq!(verified.refused.len(), 1);
    assert!(verified.stored_bytes * 2 < verified.plain_bytes);
    let other = StateName::new("p", "other");
    assert_eq!(store.state_verify(Some(&other)).await.unwrap().states, 0);
}

#[tokio::test]
async fn a_damaged_frame_takes_what_builds_on_it_along() {
    let home = TestHome::new();
    let stored = four(&home).await;
    let segment = home.path().join("home/segments/1.seg");
    let mut bytes = fs::read(&segment).unwrap();
    let at = stored[2].place.offset + stored[2].place.length / 2;
    bytes[usize::try_from(at).unwrap()] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    assert_eq!(
        damages(&home).await,
        [
            "version 3: there is no complete frame at its location",
            "version 4, the head: it builds on version 3, which cannot be read",
        ]
    );
    let verified = home.open().await.state_verify(None).await.unwrap();
    assert_eq!(verified.damages[1].readable, Some(2));
    // The next write does not stumble over it.
    let store = home.open().await;
    let pushed = append(&store, network(), wide(50, 5));
    pushed.await.unwrap();
    assert_eq!(damages(&home).await.len(), 2);
}

#[tokio::test]
async fn a_row_that_was_changed() {
    let home = TestHome::new();
    four(&home).await;
    let store = home.open().await;
    let change = "UPDATE state_version SET serial = 9 WHERE version = $1";
    store.db.execute(change, &[4.into()]).await.unwrap();
    let lost = "DELETE FROM state_version WHERE version = $1";
    store.db.execute(lost, &[3.into()]).await.unwrap();
    assert_eq!(
        damages(&home).await,
        [
            "version 4, the head: it is version 4 of state `p/network`, not version 4 of state `p/network`"
        ]
    );
}

/// New tables would serve old states as if there were none.
#[tokio::test]
async fn without_its_tables_a_home_is_not_opened() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("home");
    let keyring = Keyring::generate().unwrap();
    let store = Store::open(&root, keyring.clone()).await.unwrap();
    let pushed = append(&store, network(), body(1));
    pushed.await.unwrap();
    drop(store);
    for file in ["terrane.db", "terrane.db-wal", "terrane.db-shm"] {
        let _ = fs::remove_file(root.join(file));
    }
    let refused = Store::open(&root, keyring).await;
    assert!(matches!(refused, Err(OpenStoreError::TablesGone { .. })));
}

#[tokio::test]
async fn a_head_that_is_not_the_newest_is_found_and_mended() {
    let home = TestHome::new();
    let store = home.open().await;
    for serial in 1..=4 {
        append(&store, network(), wide(50, serial)).await.unwrap();
    }
    let old = "UPDATE state SET head = 2";
    store.db.execute(old, &[]).await.unwrap();
    let verified = store.state_verify(None).await.unwrap();
    let [damage] = verified.damages.as_slice() else {
        panic!("{:?}", verified.damages);
    };
    assert!(matches!(damage.error, StoreError::OldHead { .. }));
    assert_eq!(damage.version, Some(2));
    let rebuilt = store.rebuild().await.unwrap();
    assert_eq!((rebuilt.heads, rebuilt.versions), (1, 0));
    let verified = store.state_verify(None).await.unwrap();
    assert!(verified.damages.is_empty(), "{:?}", verified.damages);
}

#[tokio::test]
async fn a_head_that_is_missing_is_found_and_mended() {
    let home = TestHome::new();
    let store = home.open().await;
    for serial in 1..=4 {
        append(&store, network(), wide(50, serial)).await.unwrap();
    }
    let none = "UPDATE state SET head = NULL";
    store.db.execute(none, &[]).await.unwrap();
    let verified = store.state_verify(None).await.unwrap();
    let [damage] = verified.damages.as_slice() else {
        panic!("{:?}", verified.damages);
    };
    assert!(matches!(damage.error, StoreError::NoHead { .. }));
    assert_eq!(damage.version, Some(4));
    let rebuilt = store.rebuild().await.unwrap();
    assert_eq!((rebuilt.heads, rebuilt.versions), (1, 0));
    let verified = store.state_verify(None).await.unwrap();
    assert!(verified.damages.is_empty(), "{:?}", verified.damages);
    // One that somebody deleted has none, and that is no damage.
    store
        .state_delete(&network(), None, &Actor::named("ci"))
        .await
        .unwrap();
    let verified = store.state_verify(None).await.unwrap();
    assert!(verified.damages.is_empty(), "{:?}", verified.damages);
    assert_eq!(store.rebuild().await.unwrap().heads, 0);
}

/// Once for the key, not once for each version that it seals.
#[tokio::test]
async fn a_key_that_is_gone_is_named_once() {
    let home = TestHome::new();
    let stored = four(&home).await;
    let dir = crate::blob::state_dir(&network());
    fs::remove_file(home.path().join(format!("home/keys/{dir}/1"))).unwrap();
    let verified = home.open().await.state_verify(None).await.unwrap();
    let [damage] = verified.damages.as_slice() else {
        panic!("{:?}", verified.damages);
    };
    assert_eq!(damage.versions, stored.len());
    assert_eq!(verified.versions, stored.len());
}

/// Without the tables nothing would say that the newest version was acknowledged, and it would be left out.
#[tokio::test]
async fn a_damaged_marker_is_found_and_written_again() {
    let home = TestHome::new();
    let newest = four(&home).await.pop().unwrap();
    let segment = home.path().join("home/segments/1.seg");
    let mut bytes = fs::read(&segment).unwrap();
    if bytes.last() == Some(&0) {
        return; // one in 256 looks as if a crash had torn it
    }
    let end = newest.place.offset + newest.place.length;
    let marker = usize::try_from(end).unwrap();
    for at in [marker + 60, bytes.len() - 40] {
        bytes[at] ^= 1;
        fs::write(&segment, &bytes).unwrap();
        bytes[at] ^= 1;
        let store = home.open().await;
        let verified = store.state_verify(None).await.unwrap();
        let [damage] = &verified.damages[..] else {
            panic!("{at}: {:?}", verified.damages)
        };
        assert!(matches!(damage.error, StoreError::Unmarked { .. }));
        store.rebuild().await.unwrap();
        let verified = store.state_verify(None).await.unwrap();
        assert!(verified.damages.is_empty(), "{:?}", verified.damages);
    }
}
