//! Every version kept, durable before it is acknowledged.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use model::lock::LockInfo;
use model::state::{ExpectedHead, StateFacts};

use super::append::Write;
use super::*;
use crate::blobs::Step;
use crate::testing::{TestHome, body, lock_info, network};

fn holding(id: &str) -> Writer {
    Writer {
        lock_id: Some(id.to_owned()),
        ..Writer::default()
    }
}

async fn lock(store: &Store, info: &LockInfo, run: Option<RunId>) {
    store
        .lock_acquire(&network(), info, run, ExpectedHead::Any)
        .await
        .unwrap();
}

async fn push(store: &Store, writer: &Writer, body: Vec<u8>) -> String {
    match store.state_version_append(&network(), writer, body).await {
        Ok(Appended::New(version)) => format!("version {}", version.version),
        Ok(Appended::Same(version)) => format!("same as version {}", version.version),
        Err(err) => std::error::Error::source(&err).unwrap().to_string(),
    }
}

fn files(home: &TestHome, dir: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(home.path().join("home").join(dir)).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[tokio::test]
async fn every_version_is_kept_and_read_back() {
    let home = TestHome::new();
    let store = home.open().await;
    for serial in 1..=3 {
        push(&store, &Writer::default(), body(serial)).await;
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
async fn the_head_moves_after_the_file_is_durable() {
    let home = TestHome::new();
    let store = home.open().await;
    push(&store, &Writer::default(), body(1)).await; // makes the keys
    store.disk.steps.lock().unwrap().clear();
    push(&store, &Writer::default(), body(2)).await;
    let steps = store.disk.steps.lock().unwrap().clone();
    assert_eq!(
        steps,
        [
            Step::FileSynced,
            Step::FilePlaced,
            Step::DirectorySynced,
            Step::HeadMoved
        ]
    );
}

#[tokio::test]
async fn the_key_is_durable_before_what_it_seals() {
    let home = TestHome::new();
    let store = home.open().await;
    push(&store, &Writer::default(), body(1)).await;
    let steps = store.disk.steps.lock().unwrap().clone();
    let one = [Step::FileSynced, Step::FilePlaced, Step::DirectorySynced];
    assert_eq!(steps, [&one[..], &one, &one, &[Step::HeadMoved]].concat());
}

#[tokio::test]
async fn a_file_that_cannot_be_written_moves_nothing() {
    let home = TestHome::new();
    let store = home.open().await;
    push(&store, &Writer::default(), body(1)).await;
    let states = home.path().join("home/states");
    fs::rename(&states, home.path().join("home/elsewhere")).unwrap();
    fs::write(&states, "in the way").unwrap();
    let err = store
        .state_version_append(&network(), &Writer::default(), body(2))
        .await
        .unwrap_err();
    assert!(matches!(err, AppendError::Store { .. }), "{err:?}");
    assert_eq!(
        store.state_head(&network()).await.unwrap().unwrap().version,
        1
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
    assert_eq!(files(&home, "states/p~network").len(), 1);
}

#[tokio::test]
async fn writes_are_fenced() {
    let home = TestHome::new();
    let store = home.open().await;
    lock(&store, &lock_info("a"), None).await;
    assert_eq!(push(&store, &holding("a"), body(1)).await, "version 1");
    let locked = "the state is locked by lock `a`, and this write does not carry it";
    assert_eq!(push(&store, &Writer::default(), body(2)).await, locked);
    store.lock_break(&network(), "a").await.unwrap();
    lock(&store, &lock_info("b"), None).await;
    let lost = "the write carries lock `a`, which is not held any more";
    assert_eq!(push(&store, &holding("a"), body(2)).await, lost);
    assert_eq!(push(&store, &holding("b"), body(2)).await, "version 2");
    store.lock_release(&network(), "b").await.unwrap();
    assert_eq!(push(&store, &holding("a"), body(3)).await, lost);
    assert_eq!(push(&store, &Writer::default(), body(3)).await, "version 3");
}

#[tokio::test]
async fn a_lock_lost_while_the_file_was_written_is_lost() {
    let home = TestHome::new();
    let store = home.open().await;
    lock(&store, &lock_info("a"), None).await;
    let writer = holding("a");
    let write = Write {
        state: &network(),
        writer: &writer,
        run: None,
        mark: None,
        body: Arc::new(body(1)),
    };
    let facts = StateFacts::read(&write.body).unwrap();
    let mut tx = store.db.begin_write().await.unwrap();
    let seen = tx.moment(&write).await.unwrap();
    drop(tx);
    let version = seen.next(&write, &facts, "digest", None);
    let new = store.write_blob(&seen, &version, &write).await.unwrap();
    store.lock_break(&network(), "a").await.unwrap();
    assert!(
        !store
            .move_head(&seen, &version, &new, &write, &facts)
            .await
            .unwrap()
    );
    // The same id again is another lock: it was ended, so it cannot come back.
    assert!(store.state_head(&network()).await.unwrap().is_none());
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
            let pushed = push(&store, &Writer::default(), body.clone().into_bytes()).await;
            (pushed == "version 1").then_some(body)
        });
    }
    let won: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    let store = home.open().await;
    let head = store.state_head(&network()).await.unwrap().unwrap();
    let read = store.state_version_read(&head).await.unwrap();
    assert_eq!(won, [String::from_utf8(read).unwrap()]);
    assert_eq!(
        files(&home, "states/p~network").len(),
        1,
        "no file without a row"
    );
}

#[tokio::test]
async fn what_is_refused_is_recorded_and_kept() {
    let home = TestHome::new();
    let store = home.open().await;
    push(&store, &Writer::default(), body(7)).await;
    push(&store, &holding("gone"), body(8)).await;
    push(&store, &Writer::default(), b"<html>".to_vec()).await;
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
    push(&store, &Writer::default(), secret).await;
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

/// Writes two versions, does something to their files, and reads the first.
async fn damaged(deed: impl FnOnce(&[PathBuf])) -> String {
    let home = TestHome::new();
    let store = home.open().await;
    push(&store, &Writer::default(), body(1)).await;
    push(&store, &Writer::default(), body(2)).await;
    deed(&files(&home, "states/p~network"));
    let version = store
        .state_version_get(&network(), 1)
        .await
        .unwrap()
        .unwrap();
    match store.state_version_read(&version).await {
        Ok(_) => "read".to_owned(),
        Err(err) => std::error::Error::source(&err).unwrap().to_string(),
    }
}

#[tokio::test]
async fn damage_is_found() {
    let changed = "it was changed, or sealed for something else";
    assert_eq!(damaged(|_| {}).await, "read");
    let cut = damaged(|files| {
        let file = fs::read(&files[0]).unwrap();
        fs::write(&files[0], &file[..file.len() - 1]).unwrap();
    });
    assert_eq!(cut.await, changed);
    let flipped = damaged(|files| {
        let mut file = fs::read(&files[0]).unwrap();
        *file.last_mut().unwrap() ^= 1;
        fs::write(&files[0], file).unwrap();
    });
    assert_eq!(flipped.await, changed);
    let renumbered = damaged(|files| {
        let file = fs::read(&files[0]).unwrap();
        let text = b"\"serial\":1";
        let at = file
            .windows(text.len())
            .position(|window| window == text)
            .unwrap();
        let mut file = file;
        file[at + text.len() - 1] = b'9';
        fs::write(&files[0], file).unwrap();
    });
    assert_eq!(renumbered.await, changed);
    let swapped = damaged(|files| {
        fs::copy(&files[1], &files[0]).unwrap();
    });
    let expected = "it is version 2 of state `p/network`, not version 1 of state `p/network`";
    assert_eq!(swapped.await, expected);
    let gone = damaged(|files| fs::remove_file(&files[0]).unwrap());
    assert!(gone.await.starts_with("No such file"));
}

#[tokio::test]
async fn a_version_of_another_state_does_not_open() {
    let home = TestHome::new();
    let store = home.open().await;
    push(&store, &Writer::default(), body(1)).await;
    let other = StateName::new("p", "other");
    store
        .state_version_append(&other, &Writer::default(), body(1))
        .await
        .unwrap();
    fs::copy(
        &files(&home, "states/p~other")[0],
        &files(&home, "states/p~network")[0],
    )
    .unwrap();
    let head = store.state_head(&network()).await.unwrap().unwrap();
    let err = store.state_version_read(&head).await.unwrap_err();
    assert!(matches!(err, StoreError::Unseal { .. }), "{err:?}");
}

#[tokio::test]
async fn the_first_line_of_a_file_keeps_its_form() {
    let home = TestHome::new();
    let store = home.open().await;
    push(&store, &Writer::default(), body(1)).await;
    push(&store, &Writer::default(), body(2)).await;
    let file = fs::read(&files(&home, "states/p~network")[1]).unwrap();
    let line = file.split(|byte| *byte == b'\n').next().unwrap();
    let mut header: serde_json::Value = serde_json::from_slice(line).unwrap();
    for varies in ["content", "parent_digest", "created_at"] {
        assert!(header[varies].is_string(), "{varies}");
        header[varies] = "…".into();
    }
    // Old files outlive old code: a diff here needs code that reads both forms.
    insta::assert_snapshot!(serde_json::to_string_pretty(&header).unwrap(), @r#"
    {
      "terrane": "state version",
      "format": 1,
      "key": 1,
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
      "created_at": "…"
    }
    "#);
}

#[tokio::test]
async fn a_runs_leftover_is_adopted_once() {
    let home = TestHome::new();
    let store = home.open().await;
    let run = RunId(44);
    lock(&store, &lock_info("a"), Some(run)).await;
    let file = br#"{"version":4,"serial":0,"lineage":"","resources":[1]}"#.to_vec();
    let adopted = store
        .state_adopt(&network(), run, file.clone(), false)
        .await
        .unwrap();
    let Adopted::New(version) = adopted else {
        panic!("{adopted:?}")
    };
    assert_eq!((version.serial, version.run), (1, Some(run)));
    assert_eq!(version.mark, Some(Mark::Adopted));
    assert_ne!(version.lineage, "");
    let again = store
        .state_adopt(&network(), run, file, false)
        .await
        .unwrap();
    assert_eq!(again, Adopted::Nothing);
}

#[tokio::test]
async fn a_leftover_that_does_not_fit_is_kept_aside() {
    let home = TestHome::new();
    let store = home.open().await;
    push(&store, &Writer::default(), body(7)).await;
    let adopted = store
        .state_adopt(&network(), RunId(44), body(3), false)
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
async fn a_leftover_waits_for_who_holds_the_lock_now() {
    let home = TestHome::new();
    let store = home.open().await;
    lock(&store, &lock_info("b"), Some(RunId(45))).await;
    let err = store
        .state_adopt(&network(), RunId(44), body(1), false)
        .await
        .unwrap_err();
    let AdoptError::Append {
        source: AppendError::Refused { holder, .. },
        ..
    } = err
    else {
        panic!("{err:?}")
    };
    assert_eq!(holder.unwrap().info.id, "b");
}

/// What is refused is sealed with the state's key; the home must still take the next write.
#[tokio::test]
async fn a_home_whose_first_write_is_refused_takes_the_next() {
    let home = TestHome::new();
    let store = home.open().await;
    let (state, writer) = (network(), Writer::default());
    let refused = store.state_version_append(&state, &writer, b"{".to_vec());
    assert!(matches!(
        refused.await.unwrap_err(),
        AppendError::Invalid { .. }
    ));
    let written = store.state_version_append(&state, &writer, body(1));
    written.await.unwrap();
}
