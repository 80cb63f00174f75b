//! Tables from files.

use std::fs;
use std::path::Path;

use super::*;
use crate::blob::segments::frame::scan;
use crate::testing::{TestHome, append, body, network, wide};
use crate::{BlobLocation, DatabaseLocation, Keyring};

async fn to_rebuild(home: &Path) -> Store {
    let keyring = Keyring::open(&home.join("config/master.key")).unwrap();
    let (root, file) = (home.join("home"), home.join("home/terrane.db"));
    let (tables, blobs) = (
        DatabaseLocation::File(&file),
        BlobLocation::Directory(&root),
    );
    Store::open_to_rebuild(tables, blobs, keyring)
        .await
        .unwrap()
}

#[tokio::test]
async fn all_versions_come_back_and_can_be_built_on() {
    let home = TestHome::new().with_small_segments();
    let other = StateName::new("", "Über all");
    let store = home.open().await;
    for serial in 1..=20 {
        let written = append(&store, network(), wide(40, serial));
        written.await.unwrap();
    }
    append(&store, other.clone(), body(5)).await.unwrap();
    let versions = store.state_version_list(&network()).await.unwrap();
    drop(store);
    if !home.lose_tables() {
        return; // the tables are elsewhere
    }

    let store = to_rebuild(home.path()).await;
    let rebuilt = store.rebuild().await.unwrap();
    assert_eq!(rebuilt.states, [other.clone(), network()]);
    assert_eq!((rebuilt.versions, rebuilt.unproven.len()), (21, 0));
    let again = store.rebuild().await.unwrap();
    assert_eq!((again.states.len(), again.versions, again.heads), (0, 0, 0));
    drop(store);

    let store = home.open().await;
    let again = store.state_version_list(&network()).await.unwrap();
    assert_eq!(again, versions);
    assert!(store.state_verify(None).await.unwrap().damages.is_empty());
    append(&store, network(), wide(40, 21)).await.unwrap();
    let head = store.state_head(&network()).await.unwrap().unwrap();
    let bytes = store.state_version_read(&head).await.unwrap();
    assert_eq!((head.version, bytes), (21, wide(40, 21)));
}

#[tokio::test]
async fn what_nothing_says_was_acknowledged_is_named_and_left() {
    let home = TestHome::new();
    let store = home.open().await;
    append(&store, network(), body(1)).await.unwrap();
    let segment = home.path().join("home/segments/1.seg");
    append(&store, network(), body(2)).await.unwrap();
    drop(store);
    // Without its marker.
    let bytes = fs::read(&segment).unwrap();
    let last = scan(&bytes).last().unwrap().offset;
    fs::write(&segment, &bytes[..last]).unwrap();
    if !home.lose_tables() {
        return; // the tables are elsewhere
    }
    let store = to_rebuild(home.path()).await;
    let rebuilt = store.rebuild().await.unwrap();
    let unproven: Vec<i64> = rebuilt.unproven.iter().map(|one| one.version).collect();
    assert_eq!((rebuilt.versions, unproven), (1, vec![2]));
    let head = store.state_head(&network()).await.unwrap().unwrap();
    assert_eq!(head.version, 1);
}

/// Changes one byte of what the frame of a version holds.
fn damage(segment: &Path, version: i64) {
    let mut bytes = fs::read(segment).unwrap();
    let is_it = |sealed: &[u8]| match header_line(sealed).ok().and_then(Header::parse) {
        Some(Header::Version(header)) => header.version.version == version,
        Some(Header::Marker(_)) | None => false,
    };
    let end = {
        let mut frames = scan(&bytes);
        let found = frames.find(|found| is_it(found.sealed)).unwrap();
        found.offset + found.length
    };
    bytes[end - 40] ^= 1;
    fs::write(segment, bytes).unwrap();
}

#[tokio::test]
async fn an_acknowledged_version_that_does_not_open_is_named() {
    // Damaged, and the newest that is left; later ones build on it.
    for (damaged, left) in [(5, 4), (3, 2)] {
        let home = TestHome::new();
        let store = home.open().await;
        for serial in 1..=5 {
            let written = append(&store, network(), wide(40, serial));
            written.await.unwrap();
        }
        drop(store);
        if !home.lose_tables() {
            return; // the tables are elsewhere
        }
        damage(&home.path().join("home/segments/1.seg"), damaged);
        let store = to_rebuild(home.path()).await;
        for again in [false, true] {
            let rebuilt = store.rebuild().await.unwrap();
            let lost = &rebuilt.lost[0];
            assert_eq!((lost.acknowledged, lost.readable), (5, left), "{again}");
            assert_eq!(lost.serial, 6);
        }
        drop(store);
        let verified = home.open().await.state_verify(None).await.unwrap();
        let error = &verified.damages[0].error;
        assert!(matches!(error, StoreError::Lost(_)), "{error}");
    }
}
