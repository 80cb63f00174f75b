//! Every version kept, durable before it is acknowledged.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use model::state::lock::LockInfo;
use model::state::{ExpectedHead, QuarantineReason, StateFacts};

use super::append::StateWrite;
use super::*;
use crate::blob::durability::SyncWatch;
use crate::blob::segments::frame;
use crate::key::data_keys::KeyError;
use crate::testing::{TestHome, append, body, lock_info, markers_are_written, network};

mod bars;
mod crashes;
mod secret_paths;

fn holding(id: &str) -> StateWriter {
    StateWriter {
        lock_id: Some(id.to_owned()),
        ..StateWriter::default()
    }
}

async fn lock(store: &Store, info: &LockInfo, run: Option<RunId>) {
    store
        .lock_acquire(&network(), info, run, ExpectedHead::Any)
        .await
        .unwrap();
}

async fn push(store: &Store, writer: &StateWriter, body: Vec<u8>) -> String {
    let appended = store.state_version_append(&network(), writer, body).await;
    markers_are_written(store).await;
    match appended {
        Ok(Appended::New(version)) => format!("version {}", version.version),
        Ok(Appended::Same(version)) => format!("same as version {}", version.version),
        Err(err) => std::error::Error::source(&err).unwrap().to_string(),
    }
}

fn segment(home: &TestHome) -> PathBuf {
    home.path().join("home/segments/1.seg")
}

/// The first lines of all frames.
fn headers(home: &TestHome) -> Vec<serde_json::Value> {
    let bytes = fs::read(segment(home)).unwrap();
    frame::scan(&bytes)
        .map(|found| {
            let line = crate::crypto::header_line(found.sealed).unwrap();
            serde_json::from_slice(line).unwrap()
        })
        .collect()
}

/// How many frames of versions there are, whether a row names them or not.
fn frames(home: &TestHome) -> usize {
    let headers = headers(home);
    let versions = headers
        .iter()
        .filter(|header| header["terrane"] == "state version");
    versions.count()
}

fn watch(store: &Store) -> &SyncWatch {
    match &store.blobs {
        Blobs::Disk(disk) => &disk.watch,
        Blobs::Bucket(_) => panic!("a home on disk is meant"),
    }
}

#[tokio::test]
async fn every_version_is_kept_and_read_back() {
    let home = TestHome::new();
    let store = home.open().await;
    for serial in 1..=3 {
        push(&store, &StateWriter::default(), body(serial)).await;
    }
    let again = home.open().await;
    let versions = again.state_version_list(&network()).await.unwrap();
    assert_eq!(
        again.state_head(&network()).await.unwrap().as_ref(),
        versions.last()
    );
    for (serial, version) in (1..).zip(&versions) {
        assert_eq!(
            again.state_version_read(version).await.unwrap(),
            body(serial)
        );
    }
    let parents: Vec<_> = versions.iter().map(|version| version.parent).collect();
    assert_eq!(parents, [None, Some(1), Some(2)]);
    assert_eq!(
        again
            .state_head(&StateName::new("p", "other"))
            .await
            .unwrap(),
        None
    );
}

#[tokio::test]
async fn the_head_moves_after_the_frame_is_durable() {
    let home = TestHome::new();
    let store = home.open().await;
    push(&store, &StateWriter::default(), body(1)).await; // makes the keys and the segment
    watch(&store).steps();
    push(&store, &StateWriter::default(), body(2)).await;
    // The last one is the marker.
    let expected = ["append", "sync file", "commit", "append"];
    assert_eq!(watch(&store).steps(), expected);
}

#[tokio::test]
async fn keys_and_segment_are_durable_before_what_they_hold() {
    let home = TestHome::new();
    let store = home.open().await;
    push(&store, &StateWriter::default(), body(1)).await;
    // Its directory, and `keys` with the first.
    let dir = ["name"];
    let key = ["sync file", "name", "sync directory", "sync directory"];
    let parent = ["sync directory"];
    let segment = ["name", "sync directory"];
    let frame = ["append", "sync file", "commit", "append"];
    let first = [&dir[..], &dir, &key, &parent].concat();
    let expected = [&first[..], &dir, &key, &segment, &frame].concat();
    assert_eq!(watch(&store).steps(), expected);
}

#[tokio::test]
async fn a_file_that_cannot_be_written_moves_nothing() {
    let home = TestHome::new();
    let store = home.open().await;
    push(&store, &StateWriter::default(), body(1)).await;
    let segments = home.path().join("home/segments");
    fs::remove_dir_all(&segments).unwrap();
    fs::write(&segments, "in the way").unwrap();
    let err = store
        .state_version_append(&network(), &StateWriter::default(), body(2))
        .await
        .unwrap_err();
    assert!(matches!(err, AppendError::Store { .. }), "{err:?}");
    assert_eq!(
        store.state_head(&network()).await.unwrap().unwrap().version,
        1
    );
}

#[tokio::test]
async fn a_full_disk_is_a_refused_write() {
    let home = TestHome::new();
    push(&home.open().await, &StateWriter::default(), body(1)).await;
    let full = home.path().join("home/segments/2.seg");
    std::os::unix::fs::symlink("/dev/full", &full).unwrap();
    let store = home.open().await;
    let err = append(&store, network(), body(2)).await.unwrap_err();
    let mut chain = vec![err.to_string()];
    let mut next = std::error::Error::source(&err);
    while let Some(cause) = next {
        chain.push(cause.to_string());
        next = cause.source();
    }
    let place = home.path().join("home/segments").display().to_string();
    insta::assert_snapshot!(chain.join("\n").replace(&place, "SEGMENTS"), @"
    could not store a version of state `p/network`
    could not write to `SEGMENTS`
    No space left on device (os error 28)
    ");
    fs::remove_file(full).unwrap();
    assert_eq!(
        push(&home.open().await, &StateWriter::default(), body(2)).await,
        "version 2"
    );
}

#[tokio::test]
async fn a_version_says_who_wrote_it() {
    let home = TestHome::new();
    let store = home.open().await;
    lock(&store, &lock_info("a"), None).await;
    push(&store, &holding("a"), body(1)).await;
    let writer = StateWriter {
        actor: Some(Actor::named("ci@example.io")),
        ..holding("a")
    };
    push(&store, &writer, body(2)).await;
    let versions = home
        .open()
        .await
        .state_version_list(&network())
        .await
        .unwrap();
    let actors: Vec<_> = versions
        .iter()
        .map(|version| version.actor.name.as_str())
        .collect();
    assert_eq!(actors, ["me@here", "ci@example.io"]);
}

#[tokio::test]
async fn large_bodies_wait_for_their_turn_and_get_it() {
    let home = TestHome::new();
    let store = home.open().await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..6 {
        let store = store.clone();
        tasks.spawn(async move {
            let state = StateName::new("p", format!("s{number}"));
            for serial in 1..=3 {
                let body = crate::testing::wide(1200, serial);
                assert!(body.len() as u64 > LARGE);
                append(&store, state.clone(), body).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    let verified = home.open().await.state_verify(None).await.unwrap();
    assert!(verified.damages.is_empty() && verified.versions == 18);
    assert!(verified.stored_bytes * 20 < verified.plain_bytes);
}

#[tokio::test]
async fn a_write_that_follows_nothing_costs_others_nothing() {
    let home = TestHome::new();
    let store = home.open().await;
    let mut ready = Vec::new();
    for name in ["a", "b", "a"] {
        let write = StateWrite {
            state: StateName::new("p", name),
            writer: StateWriter::default(),
            run: None,
            mark: None,
            record: None,
            body: Arc::new(body(1)),
        };
        store.state_ensure(&write.state).await.unwrap();
        let facts = StateFacts::read(&write.body).unwrap();
        let content = store.keys.keyed_digest("state", &write.body).unwrap();
        let mut tx = store.db.begin_write().await.unwrap();
        let seen = tx.head_snapshot(&write).await.unwrap();
        drop(tx);
        let version = seen.next(&write, &facts, &content, None);
        let one = store.encode(write, seen, version).await.unwrap();
        ready.push(Arc::new(one));
    }
    // At once, as a server's clients write: either of the two that follow nothing may be first.
    let (a, b, again) = tokio::join!(
        store.commit(&ready[0]),
        store.commit(&ready[1]),
        store.commit(&ready[2])
    );
    let (a, b, again) = (a.unwrap(), b.unwrap(), again.unwrap());
    assert!(b && a != again, "moved: a {a}, b {b}, a again {again}");
    let verified = home.open().await.state_verify(None).await.unwrap();
    assert!(
        verified.damages.is_empty() && verified.versions == 2,
        "{verified:?}"
    );
}

#[tokio::test]
async fn a_repeated_write_is_no_new_version() {
    let home = TestHome::new();
    let store = home.open().await;
    lock(&store, &lock_info("a"), None).await;
    assert_eq!(push(&store, &holding("a"), body(1)).await, "version 1");
    assert_eq!(
        push(&store, &holding("a"), body(1)).await,
        "same as version 1"
    );
    store.lock_release(&network(), "a").await.unwrap();
    assert_eq!(
        push(&store, &holding("a"), body(1)).await,
        "same as version 1"
    );
    assert_eq!(frames(&home), 1);
}

#[tokio::test]
async fn writes_are_fenced() {
    let home = TestHome::new();
    let store = home.open().await;
    lock(&store, &lock_info("a"), None).await;
    assert_eq!(push(&store, &holding("a"), body(1)).await, "version 1");
    let locked = "the state is locked by lock `a`, and this write does not carry it";
    assert_eq!(push(&store, &StateWriter::default(), body(2)).await, locked);
    store
        .lock_break_recorded(&network(), Some("a"), &Actor::named("me@here"), None)
        .await
        .unwrap();
    lock(&store, &lock_info("b"), None).await;
    let lost = "the write carries lock `a`, which is not held any more";
    assert_eq!(push(&store, &holding("a"), body(2)).await, lost);
    assert_eq!(push(&store, &holding("b"), body(2)).await, "version 2");
    store.lock_release(&network(), "b").await.unwrap();
    assert_eq!(push(&store, &holding("a"), body(3)).await, lost);
    assert_eq!(
        push(&store, &StateWriter::default(), body(3)).await,
        "version 3"
    );
}

#[tokio::test]
async fn a_lock_lost_while_the_file_was_written_is_lost() {
    let home = TestHome::new();
    let store = home.open().await;
    lock(&store, &lock_info("a"), None).await;
    let write = StateWrite {
        state: network(),
        writer: holding("a"),
        run: None,
        mark: None,
        record: None,
        body: Arc::new(body(1)),
    };
    let facts = StateFacts::read(&write.body).unwrap();
    let mut tx = store.db.begin_write().await.unwrap();
    let seen = tx.head_snapshot(&write).await.unwrap();
    drop(tx);
    let version = seen.next(&write, &facts, "digest", None);
    let ready = store.encode(write, seen, version).await.unwrap();
    store
        .lock_break_recorded(&network(), Some("a"), &Actor::named("me@here"), None)
        .await
        .unwrap();
    assert!(!store.commit(&Arc::new(ready)).await.unwrap());
    // The same id again is another lock: it was ended, so it cannot come back.
    assert!(store.state_head(&network()).await.unwrap().is_none());
}

/// Whatever was decided before: the statement that moves the head looks at who took the lock.
#[tokio::test]
async fn the_lock_of_a_run_moves_the_head_for_that_run_only() {
    let home = TestHome::new();
    let store = home.open().await;
    let run = Some(RunId(7));
    lock(&store, &lock_info("a"), run).await;
    for (by, moves) in [(None, false), (Some(RunId(8)), false), (run, true)] {
        let writer = StateWriter {
            run: by,
            ..holding("a")
        };
        let write = StateWrite {
            state: network(),
            writer,
            run: by,
            mark: None,
            record: None,
            body: Arc::new(body(1)),
        };
        let facts = StateFacts::read(&write.body).unwrap();
        let mut tx = store.db.begin_write().await.unwrap();
        let seen = tx.head_snapshot(&write).await.unwrap();
        drop(tx);
        let version = seen.next(&write, &facts, "digest", None);
        let ready = store.encode(write, seen, version).await.unwrap();
        let moved = store.commit(&Arc::new(ready)).await.unwrap();
        assert_eq!(moved, moves, "{by:?}");
    }
}

#[tokio::test]
async fn of_many_writers_without_a_lock_each_serial_is_one_content() {
    let home = TestHome::new();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..16 {
        let store = home.open().await;
        tasks.spawn(async move {
            let body =
                format!(r#"{{"version":4,"serial":1,"lineage":"l","resources":[{number}]}}"#);
            let pushed = push(&store, &StateWriter::default(), body.clone().into_bytes()).await;
            (pushed == "version 1").then_some(body)
        });
    }
    let won: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    let store = home.open().await;
    let head = store.state_head(&network()).await.unwrap().unwrap();
    let read = store.state_version_read(&head).await.unwrap();
    assert_eq!(won, [String::from_utf8(read).unwrap()]);
}

#[tokio::test]
async fn what_is_refused_is_recorded_and_kept() {
    let home = TestHome::new();
    let store = home.open().await;
    push(&store, &StateWriter::default(), body(7)).await;
    push(&store, &holding("gone"), body(8)).await;
    push(&store, &StateWriter::default(), b"<html>".to_vec()).await;
    let refusals = store.refusal_list(&network()).await.unwrap();
    let told: Vec<_> = refusals
        .iter()
        .map(|refusal| refusal.reason.as_str())
        .collect();
    assert_eq!(
        told,
        [
            "the write carries lock `gone`, which is not held any more",
            "this is not a JSON object"
        ]
    );
    assert_eq!(refusals[0].lock_id.as_deref(), Some("gone"));
    assert_eq!(
        store.refusal_body(&refusals[0]).await.unwrap().unwrap(),
        body(8)
    );
    let kept = fs::read(
        home.path()
            .join("home")
            .join(refusals[1].kept.as_ref().unwrap()),
    );
    assert!(
        !String::from_utf8_lossy(&kept.unwrap()).contains("<html>"),
        "sealed"
    );
}

#[tokio::test]
async fn nothing_readable_lies_on_the_disk() {
    let home = TestHome::new();
    let store = home.open().await;
    let secret = br#"{"version":4,"serial":1,"lineage":"l","resources":["hunter2"]}"#.to_vec();
    push(&store, &StateWriter::default(), secret).await;
    let mut dirs = vec![home.path().join("home")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                let found = String::from_utf8_lossy(&fs::read(&path).unwrap()).contains("hunter2");
                assert!(!found, "{}", path.display());
            }
        }
    }
}

/// Writes two versions, does something to the segment, and reads the first as another process would.
async fn damaged(operation: impl FnOnce(&mut Vec<u8>, &[StoredVersion])) -> String {
    let home = TestHome::new();
    let store = home.open().await;
    push(&store, &StateWriter::default(), body(1)).await;
    push(&store, &StateWriter::default(), body(2)).await;
    let mut stored = Vec::new();
    for version in [1, 2] {
        stored.push(store.stored(&network(), version).await.unwrap().unwrap());
    }
    let mut bytes = fs::read(segment(&home)).unwrap();
    operation(&mut bytes, &stored);
    fs::write(segment(&home), bytes).unwrap();
    let store = home.open().await;
    match store.state_version_read(&stored[0].version).await {
        Ok(_) => "read".to_owned(),
        Err(err) => std::error::Error::source(&err).unwrap().to_string(),
    }
}

fn range(stored: &StoredVersion) -> std::ops::Range<usize> {
    let place = |number: u64| usize::try_from(number).unwrap();
    let start = place(stored.place.offset);
    start..start + place(stored.place.length)
}

#[tokio::test]
async fn damage_is_found() {
    let no_frame = "there is no complete frame at its location";
    assert_eq!(damaged(|_, _| {}).await, "read");
    let cut = damaged(|bytes, stored| bytes.truncate(range(&stored[0]).end - 1));
    assert_eq!(cut.await, "unexpected end of file");
    let flipped = damaged(|bytes, stored| bytes[range(&stored[0]).end - 40] ^= 1);
    assert_eq!(flipped.await, no_frame);
    let moved = damaged(|bytes, _| bytes.insert(0, b'x'));
    assert_eq!(moved.await, no_frame);
}

/// A frame whose own digest is right, as one who can write files could make it.
async fn forged(operation: impl FnOnce(&mut Vec<u8>)) -> String {
    damaged(|bytes, stored| {
        let range = range(&stored[0]);
        let (mut sealed, _) = frame::open(bytes[range.clone()].to_vec()).unwrap();
        operation(&mut sealed);
        bytes.splice(range, frame::wrap(&sealed));
    })
    .await
}

#[tokio::test]
async fn a_forged_frame_does_not_open() {
    let changed = "it was changed, or sealed for something else";
    let flipped = forged(|sealed| *sealed.last_mut().unwrap() ^= 1);
    assert_eq!(flipped.await, changed);
    let renumbered = forged(|sealed| {
        let text = b"\"serial\":1";
        let found = sealed.windows(text.len()).position(|window| window == text);
        sealed[found.unwrap() + text.len() - 1] = b'9';
    });
    assert_eq!(renumbered.await, changed);
}

/// Writes versions 1 and 2, puts the place of one frame into the row of version 1, and reads that.
async fn replayed(other: &StateName) -> String {
    let home = TestHome::new();
    let store = home.open().await;
    for state in BTreeSet::from([network(), other.clone()]) {
        for serial in [1, 2] {
            let pushed = append(&store, state.clone(), body(serial));
            pushed.await.unwrap();
        }
    }
    let target = store.stored(&network(), 1).await.unwrap().unwrap();
    let source = store.stored(other, 2).await.unwrap().unwrap();
    let swap = "UPDATE state_version SET blob = $1, blob_digest = $2 WHERE blob = $3";
    let args = [
        source.place.to_string().into(),
        source.blob_digest.to_vec().into(),
        target.place.to_string().into(),
    ];
    store.db.execute(swap, &args).await.unwrap();
    let store = home.open().await;
    let err = store.state_version_read(&target.version).await.unwrap_err();
    std::error::Error::source(&err).unwrap().to_string()
}

#[tokio::test]
async fn a_frame_cannot_stand_for_another() {
    assert_eq!(
        replayed(&network()).await,
        "it is version 2 of state `p/network`, not version 1 of state `p/network`"
    );
    assert_eq!(
        replayed(&StateName::new("p", "other")).await,
        "it was changed, or sealed for something else"
    );
}

#[tokio::test]
async fn a_lost_key_of_a_state_is_not_replaced() {
    let home = TestHome::new();
    push(&home.open().await, &StateWriter::default(), body(1)).await;
    fs::remove_dir_all(home.path().join("home/keys/p~network")).unwrap();
    let store = home.open().await;
    let sealed = store
        .seal(KeyScope::State(network()), "plan", Vec::new())
        .await;
    let err = sealed.unwrap_err();
    assert!(
        matches!(err, StoreError::Key(KeyError::Lost { .. })),
        "{err:?}"
    );
    let other = KeyScope::State(StateName::new("p", "other"));
    store.seal(other, "plan", Vec::new()).await.unwrap();
}

#[tokio::test]
async fn the_first_line_of_a_file_keeps_its_form() {
    let home = TestHome::new();
    let store = home.open().await;
    push(&store, &StateWriter::default(), body(1)).await;
    push(&store, &StateWriter::default(), body(2)).await;
    let mut header = headers(&home)[2].clone();
    for varies in ["content", "parent_digest", "created_at"] {
        assert!(header[varies].is_string(), "{varies}");
        header[varies] = "…".into();
    }
    // Old files outlive old code: a diff here needs code that reads both forms.
    insta::assert_snapshot!(serde_json::to_string_pretty(&header).unwrap(), @r#"
    {
      "terrane": "state version",
      "format": 2,
      "key": 1,
      "encoding": "delta",
      "parent_digest": "…",
      "state": {
        "project": "p",
        "name": "network"
      },
      "version": 2,
      "serial": 2,
      "lineage": "l",
      "content": "…",
      "size": 67,
      "parent": 1,
      "contents": "resources",
      "mark": null,
      "run": null,
      "created_at": "…",
      "actor": ""
    }
    "#);
    let mut marker = headers(&home)[3].clone();
    assert_eq!(marker["digest"].as_str().unwrap().len(), 64);
    marker["digest"] = "…".into();
    let expected = r#"{"terrane":"marker","format":1,"key":1,"state":{"project":"p","name":"network"},"version":2,"digest":"…"}"#;
    assert_eq!(marker.to_string(), expected);
}

#[tokio::test]
async fn a_runs_leftover_is_adopted_once() {
    let home = TestHome::new();
    let store = home.open().await;
    let run = RunId(44);
    lock(&store, &lock_info("a"), Some(run)).await;
    let file = br#"{"version":4,"serial":0,"lineage":"","resources":[1]}"#.to_vec();
    let adopted = store
        .state_adopt(&network(), run, file.clone(), false, SecretPaths::default())
        .await
        .unwrap();
    let Adopted::New(version) = adopted else {
        panic!("{adopted:?}")
    };
    assert_eq!((version.serial, version.run), (1, Some(run)));
    assert_eq!(version.mark, Some(VersionMark::Adopted));
    assert_ne!(version.lineage, "");
    let again = store
        .state_adopt(&network(), run, file, false, SecretPaths::default())
        .await
        .unwrap();
    assert_eq!(again, Adopted::Nothing);
}

#[tokio::test]
async fn a_leftover_that_does_not_fit_is_kept_aside() {
    let home = TestHome::new();
    let store = home.open().await;
    push(&store, &StateWriter::default(), body(7)).await;
    let adopted = store
        .state_adopt(
            &network(),
            RunId(44),
            body(3),
            false,
            SecretPaths::default(),
        )
        .await
        .unwrap();
    let Adopted::KeptAside { why, kept } = adopted else {
        panic!("{adopted:?}")
    };
    assert_eq!(why.to_string(), "its serial 3 is not after the head's 7");
    let refusals = store.refusal_list_run(RunId(44)).await.unwrap();
    assert_eq!(refusals[0].kept, kept);
    assert_eq!(
        store.refusal_body(&refusals[0]).await.unwrap().unwrap(),
        body(3)
    );
}

#[tokio::test]
async fn a_leftover_is_kept_aside_while_somebody_else_holds_the_lock() {
    let home = TestHome::new();
    let store = home.open().await;
    lock(&store, &lock_info("b"), Some(RunId(45))).await;
    let state = network();
    let adopt = || store.state_adopt(&state, RunId(44), body(1), false, SecretPaths::default());
    let adopted = adopt().await.unwrap();
    let why = "the state is locked by lock `b`, and this write does not carry it";
    let Adopted::KeptAside {
        why: QuarantineReason::Refused(said),
        ..
    } = &adopted
    else {
        panic!("{adopted:?}")
    };
    assert_eq!(said, why);
    assert_eq!(adopt().await.unwrap(), adopted, "once");
    // On record, and seen by every machine that shares the home.
    let waiting = home.open().await.quarantine_list(&network()).await.unwrap();
    assert_eq!(waiting.len(), 1);
    assert_eq!(waiting[0].run, Some(RunId(44)));
    assert_eq!(
        store.refusal_body(&waiting[0]).await.unwrap(),
        Some(body(1))
    );
}

/// What is refused is sealed with the state's key; the home must still take the next write.
#[tokio::test]
async fn a_home_whose_first_write_is_refused_takes_the_next() {
    let home = TestHome::new();
    let store = home.open().await;
    let (state, writer) = (network(), StateWriter::default());
    let refused = store.state_version_append(&state, &writer, b"{".to_vec());
    assert!(matches!(
        refused.await.unwrap_err(),
        AppendError::Invalid { .. }
    ));
    let written = store.state_version_append(&state, &writer, body(1));
    written.await.unwrap();
}
