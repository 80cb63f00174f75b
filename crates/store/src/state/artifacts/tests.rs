//! One set a state: the newest, sealed, and never lost with the tables.

use std::fs;

use jiff::SignedDuration;
use model::stage::artifact::Artifact;

use super::*;
use crate::recover;
use crate::testing::{TestHome, append, body, network};
use crate::{BlobLocation, DatabaseLocation, Keyring, RecoveredItem};

const SECRET: &str = "client-key-data: c2VjcmV0";

fn set(files: &[(&str, &str)]) -> ArtifactSet {
    let mut set = ArtifactSet::default();
    for (path, content) in files {
        let file = Artifact::new(0o600, content.as_bytes().to_vec());
        set.add(path, file).unwrap();
    }
    set
}

async fn keep(store: &Store, seen: Option<&StoredArtifacts>, set: &ArtifactSet) -> StoredArtifacts {
    let seen = seen.map(|seen| seen.kept.as_str());
    let state = network();
    let kept = store.artifacts_keep(&state, seen, set, Some(RunId(7)));
    kept.await.unwrap()
}

#[tokio::test]
async fn a_set_is_read_as_it_was_kept_and_lies_there_sealed() {
    let home = TestHome::new();
    let store = home.open().await;
    assert_eq!(store.artifacts_get(&network()).await.unwrap(), None);
    let first = set(&[("kubeconfig", SECRET), ("out/talosconfig", "context: a")]);
    let kept = keep(&store, None, &first).await;
    let other = home.open().await;
    let seen = other.artifacts_get(&network()).await.unwrap().unwrap();
    assert_eq!((seen.files, seen.run), (2, Some(RunId(7))));
    assert_eq!(other.artifacts_read(&seen).await.unwrap(), first);
    let bytes = fs::read(store.blobs.path(&kept.kept)).unwrap();
    let holds = |text: &str| bytes.windows(text.len()).any(|at| at == text.as_bytes());
    assert!(!holds(SECRET) && !holds("kubeconfig"));
    // It opens as nothing else.
    let scope = KeyScope::State(network());
    assert!(store.unseal(scope, "refused state", bytes).await.is_err());
}

#[tokio::test]
async fn a_set_replaces_the_one_that_was_seen_and_no_other() {
    let home = TestHome::new();
    let store = home.open().await;
    let state = network();
    let late = async |seen: Option<&StoredArtifacts>| {
        let (seen, set) = (seen.map(|seen| seen.kept.as_str()), set(&[("a", "late")]));
        let kept = store.artifacts_keep(&state, seen, &set, None).await;
        matches!(kept, Err(KeepArtifactsError::Moved { .. }))
    };
    let first = keep(&store, None, &set(&[("a", "1")])).await;
    assert!(late(None).await);
    let second = keep(&store, Some(&first), &set(&[("a", "2")])).await;
    assert!(late(Some(&first)).await);
    assert_eq!(
        store.artifacts_read(&second).await.unwrap(),
        set(&[("a", "2")])
    );
    // What is not needed any more goes, a day later.
    let day = SignedDuration::from_hours(24);
    store.blobs_sweep(Timestamp::now() - day).await.unwrap();
    assert!(store.blobs.path(&first.kept).exists());
    store.blobs_sweep(Timestamp::now() + day).await.unwrap();
    assert!(!store.blobs.path(&first.kept).exists());
    assert!(store.artifacts_read(&second).await.is_ok());
    let dir = second.kept.rsplit_once('/').unwrap().0;
    assert_eq!(store.blobs.list(dir).unwrap().len(), 1);
}

#[tokio::test]
async fn sets_outlive_the_database() {
    let home = TestHome::new();
    let store = home.open().await;
    append(&store, network(), body(1)).await.unwrap();
    let first = keep(&store, None, &set(&[("a", "1"), ("b", "1")])).await;
    let second = keep(&store, Some(&first), &set(&[("a", "2")])).await;
    drop(store);

    let keyring = || Keyring::open(&home.path().join("config/master.key")).unwrap();
    let mut found = Vec::new();
    recover(&home.path().join("home"), keyring(), |recovered| {
        if let RecoveredItem::Artifacts { state, set } = recovered {
            found.push((state, set.unwrap()));
        }
    })
    .unwrap();
    assert_eq!(found, [(network(), set(&[("a", "2")]))]);

    let (root, file) = (
        home.path().join("home"),
        home.path().join("home/terrane.db"),
    );
    if !home.lose_tables() {
        return; // the tables are elsewhere
    }
    let (tables, blobs) = (
        DatabaseLocation::File(&file),
        BlobLocation::Directory(&root),
    );
    let store = Store::open_to_rebuild(tables, blobs, keyring());
    let store = store.await.unwrap();
    assert_eq!(store.rebuild().await.unwrap().artifacts, 1);
    assert_eq!(store.rebuild().await.unwrap().artifacts, 0);
    let again = store.artifacts_get(&network()).await.unwrap().unwrap();
    assert_eq!(again.kept, second.kept);
    assert_eq!(
        store.artifacts_read(&again).await.unwrap(),
        set(&[("a", "2")])
    );
}

/// A killed writer leaves a piece that the tables do not know, and its intent.
#[tokio::test]
async fn a_piece_that_came_to_nothing_is_not_taken_for_the_newest() {
    let home = TestHome::new();
    let store = home.open().await;
    let kept = keep(&store, None, &set(&[("a", "1")])).await;
    let late = set(&[("a", "never acknowledged")]);
    let state = network();
    let name = store.artifacts_write(&state, &late, Timestamp::now());
    let name = name.await.unwrap();
    assert!(name > kept.kept);
    assert_eq!(store.artifacts_rebuild().await.unwrap(), 0);
    let seen = store.artifacts_get(&network()).await.unwrap().unwrap();
    assert_eq!(seen.kept, kept.kept);
}

#[tokio::test]
async fn a_damaged_set_is_named() {
    let home = TestHome::new();
    let store = home.open().await;
    append(&store, network(), body(1)).await.unwrap();
    let kept = keep(&store, None, &set(&[("a", "1")])).await;
    let verified = store.state_verify(None).await.unwrap();
    assert_eq!((verified.artifacts, verified.damages.len()), (1, 0));
    let path = store.blobs.path(&kept.kept);
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    let verified = store.state_verify(None).await.unwrap();
    let [damage] = &verified.damages[..] else {
        panic!("{:?}", verified.damages)
    };
    assert_eq!((&damage.state, damage.version), (&network(), None));
}
