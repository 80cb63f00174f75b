//! An older database is put in the place of the right one.

use model::base::actor::Actor;
use std::fs;

use super::*;
use crate::testing::{Backup, TestHome, append, body, lock_info, network, wide};
use crate::{BlobLocation, DatabaseLocation, Keyring, OpenMode};
use model::state::ExpectedHead;

async fn write(store: &Store, state: &StateName, serial: u64) {
    append(store, state.clone(), body(serial)).await.unwrap();
}

#[tokio::test]
async fn a_state_that_went_on_is_not_served_from_an_older_database() {
    let home = TestHome::new();
    let (state, other) = (network(), StateName::new("p", "other"));
    let store = home.open().await;
    write(&store, &state, 1).await;
    write(&store, &other, 1).await;
    drop(store);
    let Some(backup) = Backup::of(&home) else {
        return; // the tables are elsewhere
    };
    let store = home.open().await;
    write(&store, &state, 2).await;
    write(&store, &state, 3).await;
    drop(store);
    assert!(home.open().await.state_list_stale().is_empty());

    backup.restore(&home);
    let store = home.open().await;
    let said = store.state_head(&state).await.unwrap_err().to_string();
    let start = "version 3 of state `p/network` was acknowledged (the first one missing is from 20";
    assert!(said.starts_with(start), "{said}");
    let end = "but the database contains only version 1: it is older than the files; run `terrane state recover --into-home` to update it";
    assert!(said.ends_with(end), "{said}");
    assert!(append(&store, state.clone(), body(2)).await.is_err());
    let info = lock_info("a");
    let locked = store.lock_acquire(&state, &info, None, ExpectedHead::Any);
    assert!(locked.await.is_err());
    assert!(
        store
            .state_delete(&state, None, &Actor::named("ci"))
            .await
            .is_err()
    );
    // What did not move is served as ever.
    write(&store, &other, 2).await;
    let verified = store.state_verify(None).await.unwrap();
    assert_eq!(verified.damages.len(), 1);
    let error = &verified.damages[0].error;
    assert!(matches!(error, StoreError::Stale { .. }), "{error}");
    assert_eq!(verified.damages[0].version, Some(3));
}

/// As on a full disk, or in a home that is mounted to be read.
#[tokio::test]
async fn a_home_is_read_where_nothing_can_be_written() {
    let home = TestHome::new().with_small_segments();
    let store = home.open().await;
    if let Db::Postgres(_) = store.db {
        return; // there are no segments to look at
    }
    for serial in 1..=120 {
        let body = wide(2 + serial, serial);
        append(&store, network(), body).await.unwrap();
    }
    let full = "CREATE TRIGGER full BEFORE INSERT ON segment_seen \
        BEGIN SELECT RAISE(FAIL, 'database or disk is full'); END";
    store
        .db
        .execute("DELETE FROM segment_seen", &[])
        .await
        .unwrap();
    store.db.execute(full, &[]).await.unwrap();
    drop(store);
    let head = home.open().await.state_head(&network()).await.unwrap();
    assert_eq!(head.unwrap().serial, 120);
}

#[tokio::test]
async fn a_look_remembers_how_far_it_came() {
    let home = TestHome::new().with_small_segments();
    let store = home.open().await;
    for serial in 1..=120 {
        let body = wide(2 + serial, serial);
        append(&store, network(), body).await.unwrap();
    }
    let seen = async |store: &Store| {
        let sql = "SELECT segment, length FROM segment_seen";
        let row = store.db.fetch_optional(sql, &[]).await.unwrap();
        row.map(|row| (row.int(0).unwrap(), row.int(1).unwrap()))
    };
    assert_eq!(seen(&store).await, None);
    let store = home.open().await;
    let Blobs::Disk(disk) = &store.blobs else {
        panic!("it is a directory");
    };
    let end = end_of(disk).unwrap().unwrap();
    let expected = (end.segment.cast_signed(), end.length.cast_signed());
    assert_eq!(seen(&store).await, Some(expected));
}

fn whole_first() -> Position {
    Position {
        segment: 1,
        length: u64::MAX,
    }
}

#[tokio::test]
async fn a_torn_frame_is_stepped_over() {
    let home = TestHome::new();
    let store = home.open().await;
    write(&store, &network(), 1).await;
    let Blobs::Disk(disk) = &store.blobs else {
        panic!("it is a directory");
    };
    let path = disk.segments.path(1);
    let whole = fs::read(&path).unwrap();
    let found_in = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let (found, _) = summarize(disk, Position::default(), whole_first()).unwrap();
        let found = found.get(&network());
        found.map(|found| (found.written.len(), found.acknowledged))
    };
    assert_eq!(found_in(&whole), Some((1, 1)), "a version and its marker");
    for cut in [1, 10, 30, 200, whole.len() - 1] {
        let torn = [&whole[..cut], &whole].concat();
        assert_eq!(found_in(&torn), Some((1, 1)), "{cut}");
    }
    assert_eq!(found_in(&whole[..whole.len() - 1]), Some((1, 0)));
    assert_eq!(found_in(&whole[..10]), None);
}

#[tokio::test]
async fn segments_that_are_gone_are_not_made_anew() {
    let home = TestHome::new();
    let store = home.open().await;
    write(&store, &network(), 1).await;
    let dir = home.path().join("home/segments");
    fs::remove_dir_all(&dir).unwrap();
    assert!(append(&store, network(), body(2)).await.is_err());
    assert!(!dir.exists());
    drop(store);
    let keyring = Keyring::open_or_create(&home.path().join("config/master.key")).unwrap();
    let file = home.path().join("home/terrane.db");
    if !file.exists() {
        return; // the tables are elsewhere
    }
    let root = home.path().join("home");
    let (tables, blobs) = (
        DatabaseLocation::File(&file),
        BlobLocation::Directory(&root),
    );
    let opened = Store::open_with(tables, blobs, keyring, OpenMode::Cli).await;
    assert!(
        matches!(opened, Err(OpenStoreError::BlobsGone { .. })),
        "{opened:?}"
    );
}
