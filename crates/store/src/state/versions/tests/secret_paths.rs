//! Tests: the secret paths of a version are in its frame, and nowhere else.

use model::state::secret_paths::SecretPath;

use super::*;
use crate::{BlobLocation, DatabaseLocation, Keyring};

/// A state with outputs of these names and values.
fn body(serial: u64, outputs: &[(&str, &str)]) -> Vec<u8> {
    let outputs: serde_json::Map<String, serde_json::Value> = outputs
        .iter()
        .map(|(name, value)| {
            let output = serde_json::json!({"value": value, "type": "string"});
            ((*name).to_owned(), output)
        })
        .collect();
    let state = serde_json::json!({
        "version": 4, "serial": serial, "lineage": "l", "outputs": outputs, "resources": [],
    });
    state.to_string().into_bytes()
}

fn paths(outputs: &[&str]) -> SecretPaths {
    let path = |name: &&str| SecretPath::value(&format!("output.{name}"), "");
    outputs.iter().map(path).collect()
}

async fn write(store: &Store, body: Vec<u8>, secret_paths: Option<SecretPaths>) -> StateVersion {
    let writer = StateWriter {
        secret_paths,
        ..StateWriter::default()
    };
    let appended = store.state_version_append(&network(), &writer, body).await;
    markers_are_written(store).await;
    let Appended::New(version) = appended.unwrap() else {
        panic!("nothing was written");
    };
    version
}

async fn to_rebuild(home: &TestHome) -> Store {
    let (root, file) = (
        home.path().join("home"),
        home.path().join("home/terrane.db"),
    );
    let keyring = Keyring::open(&home.path().join("config/master.key")).unwrap();
    let (tables, blobs) = (
        DatabaseLocation::File(&file),
        BlobLocation::Directory(&root),
    );
    let store = Store::open_to_rebuild(tables, blobs, keyring).await;
    store.unwrap()
}

async fn paths_of(store: &Store, version: i64) -> SecretPaths {
    let version = store.state_version_get(&network(), version).await;
    let version = version.unwrap().unwrap();
    let (_, paths) = store.state_version_content(&version).await.unwrap();
    paths.as_ref().clone()
}

#[tokio::test]
async fn a_version_keeps_its_paths_and_inherits_those_of_its_parent() {
    let home = TestHome::new();
    let store = home.open().await;
    let outputs = [("a", "first-secret"), ("b", "other-secret"), ("c", "plain")];
    write(&store, body(1, &outputs), Some(paths(&["a", "b"]))).await;
    // By a writer that knows no secret; one value is another.
    let outputs = [("a", "first-secret"), ("b", "changed"), ("c", "plain")];
    write(&store, body(2, &outputs), Some(SecretPaths::default())).await;
    // From elsewhere.
    write(&store, body(3, &outputs), None).await;
    drop(store);
    for lost in [false, true] {
        if lost && !home.lose_tables() {
            continue;
        }
        if lost {
            let store = to_rebuild(&home).await;
            assert_eq!(store.rebuild().await.unwrap().versions, 3);
        }
        let store = home.open().await;
        assert_eq!(paths_of(&store, 1).await, paths(&["a", "b"]));
        assert_eq!(paths_of(&store, 2).await, paths(&["a"]));
        assert_eq!(paths_of(&store, 3).await, SecretPaths::default());
        assert_eq!(store.state_verify(None).await.unwrap().damages.len(), 0);
    }
}

#[tokio::test]
async fn paths_are_sealed() {
    let home = TestHome::new();
    let store = home.open().await;
    let outputs = [("unusual_name", "first-secret")];
    write(&store, body(1, &outputs), Some(paths(&["unusual_name"]))).await;
    for entry in fs::read_dir(home.path().join("home/segments")).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        let name = b"unusual_name";
        assert!(!bytes.windows(name.len()).any(|part| part == name));
    }
}

#[tokio::test]
async fn a_frame_of_an_older_format_is_refused() {
    let home = TestHome::new();
    let store = home.open().await;
    let version = write(&store, body(1, &[("a", "b")]), None).await;
    let key = store.keys.get(&KeyScope::State(network())).unwrap();
    let header = serde_json::json!({
        "terrane": "state version", "format": 1, "key": 1, "encoding": "whole",
        "parent_digest": null, "state": version.state, "version": 1, "serial": 1, "lineage": "l",
        "content": version.content, "size": version.size, "parent": null,
        "contents": version.contents, "mark": null, "run": null,
        "created_at": version.created_at, "actor": "",
    });
    let sealed = crate::crypto::seal_file(&key.key, &header, b"packed").unwrap();
    let err = blob::OpenedBlob::open(&key, sealed).err().unwrap();
    let said = "it has the older format 1, which this terrane does not read";
    assert_eq!(err.to_string(), said);
}
