//! A shared home on a bucket: the one that `TERRANE_TEST_BUCKET` names (`s3://BUCKET`, with the service's usual
//! variables), else a directory that stands for one.

use model::base::actor::Actor;
use std::collections::BTreeMap;
use std::fs;

use jiff::{SignedDuration, Timestamp};
use model::stage::artifact::{Artifact, ArtifactSet};
use model::state::retention::RetentionPolicy;

use super::*;
use model::state::break_glass::BreakGlassAction;
use model::state::secret_paths::SecretPaths;
use model::state::{ExpectedHead, StateName, VersionMark};

use crate::blob::Blobs;

use crate::recover;
use crate::testing::{TestHome, append, expire, lock_info, network, wide};
use crate::{
    Acknowledgement, AppendError, BlobLocation, BreakGlassRecord, DatabaseLocation, Keyring,
    ManualWrite, OpenMode, OpenStoreError, RecoveredItem, StateWriter, Store, blocking,
};

async fn open(home: &TestHome) -> Store {
    let named = std::env::var("TERRANE_TEST_BUCKET");
    let url = match &named {
        // Each home has a prefix of its own.
        Ok(bucket) => format!("{bucket}{}", home.path().display()),
        Err(_) => local(home),
    };
    open_at(home, &url).await
}

fn local(home: &TestHome) -> String {
    format!("file://{}", home.path().join("bucket").display())
}

async fn open_at(home: &TestHome, url: &str) -> Store {
    open_for(home, url, OpenMode::Cli).await
}

async fn open_for(home: &TestHome, url: &str, how: OpenMode) -> Store {
    try_open(home, url, how).await.unwrap()
}

async fn try_open(home: &TestHome, url: &str, how: OpenMode) -> Result<Store, OpenStoreError> {
    let keyring = Keyring::open_or_create(&home.path().join("config/master.key")).unwrap();
    let settings: BTreeMap<String, String> = std::env::vars().collect();
    let blobs = BlobLocation::Bucket {
        url,
        settings: &settings,
    };
    let file = home.path().join("tables/terrane.db");
    let tables = DatabaseLocation::File(&file);
    Store::open_with(tables, blobs, keyring, how).await
}

async fn push(store: &Store, serial: u64) -> Result<(), AppendError> {
    let pushed = append(store, network(), wide(40, serial));
    pushed.await.map(drop)
}

async fn objects(store: &Store) -> usize {
    let blobs = store.blobs.clone();
    let listed = blocking(move || blobs.list("segments")).await;
    listed.unwrap().len()
}

async fn intents(store: &Store) -> usize {
    let rows = store
        .db
        .fetch_all("SELECT object FROM blob_intent", &[])
        .await;
    rows.unwrap().len()
}

fn later() -> Timestamp {
    Timestamp::now() + SignedDuration::from_hours(1)
}

#[tokio::test]
async fn versions_keys_and_refused_pieces_are_objects() {
    let home = TestHome::new();
    let store = open(&home).await;
    for serial in 1..=3 {
        push(&store, serial).await.unwrap();
    }
    push(&store, 1).await.unwrap_err();
    let again = open(&home).await;
    for version in again.state_version_list(&network()).await.unwrap() {
        let read = again.state_version_read(&version).await.unwrap();
        assert_eq!(read, wide(40, version.serial));
    }
    let verified = again.state_verify(None).await.unwrap();
    assert!(verified.damages.is_empty() && verified.refused.len() == 1);
    let refusal = &verified.refused[0];
    let kept = again.refusal_body(refusal).await.unwrap();
    assert_eq!(kept.unwrap(), wide(40, 1));
    assert_eq!((objects(&store).await, intents(&store).await), (3, 0));
    assert_eq!(store.blobs_sweep(later()).await.unwrap().removed, 0);
}

#[tokio::test]
async fn an_upload_that_came_to_nothing_is_swept() {
    let home = TestHome::new();
    let store = open(&home).await;
    push(&store, 1).await.unwrap();
    let frame = Arc::new(Frame {
        bytes: b"nobody's".to_vec(),
        digest: [0; 32],
    });
    let staged = store.blobs_stage(vec![frame]).await.unwrap();
    assert_eq!((objects(&store).await, intents(&store).await), (2, 1));
    let young = Timestamp::now() - SignedDuration::from_hours(1);
    assert_eq!(store.blobs_sweep(young).await.unwrap().removed, 0);
    assert_eq!(store.blobs_sweep(later()).await.unwrap().removed, 1);
    // Whoever comes back after the sweeper gets no version of it.
    let mut tx = store.db.begin_write().await.unwrap();
    assert!(!tx.blobs_claim(&store.blobs, &staged).await.unwrap());
    drop(tx);
    assert!(store.state_verify(None).await.unwrap().damages.is_empty());
}

/// A dump of a running server's tables names the uploads that it announced: what they became is not its to remove.
#[tokio::test]
async fn what_newer_tables_acknowledged_is_not_swept() {
    let home = TestHome::new();
    let store = open(&home).await;
    for serial in 1..=3 {
        push(&store, serial).await.unwrap();
    }
    store.blobs_settle().await.unwrap();
    let before = objects(&store).await;
    let sql = |sql: &'static str| store.db.execute(sql, &[]);
    sql(
        "INSERT INTO blob_intent (object, at) SELECT substr(blob, 1, instr(blob, '@') - 1), 0 \
         FROM state_version WHERE version = 3",
    )
    .await
    .unwrap();
    sql("UPDATE state SET head = (SELECT id FROM state_version WHERE version = 2)")
        .await
        .unwrap();
    sql("DELETE FROM state_version WHERE version = 3")
        .await
        .unwrap();
    assert_eq!(intents(&store).await, 1);
    assert_eq!(store.blobs_sweep(later()).await.unwrap().removed, 0);
    assert_eq!(objects(&store).await, before);
}

/// The restored tables went on with another version 2: the first one is the only copy of what was acknowledged.
#[tokio::test]
async fn what_newer_tables_wrote_is_not_swept_when_its_number_was_taken_again() {
    let home = TestHome::new();
    let url = local(&home);
    let store = open_for(&home, &url, OpenMode::Server).await;
    push(&store, 1).await.unwrap();
    let dump = Dump::of(&home, &store).await;
    push(&store, 2).await.unwrap();
    drop(store);
    dump.restore();
    let store = open_for(&home, &url, OpenMode::Server).await;
    for serial in 2..=3 {
        let other = append(&store, network(), wide(50, serial));
        other.await.unwrap();
    }
    store.blobs_sweep(later()).await.unwrap();
    let keyring = Keyring::open_or_create(&home.path().join("config/master.key")).unwrap();
    let mut found = Vec::new();
    let each = |recovered| {
        if let RecoveredItem::Version { body, .. } = recovered {
            found.push(body.unwrap());
        }
    };
    recover(&home.path().join("bucket"), keyring, each).unwrap();
    assert!(found.iter().any(|body| **body == wide(40, 2)), "it is gone");
    assert_eq!(found.len(), 4);
}

/// As two databases that went on beside each other leave it.
#[tokio::test]
async fn two_acknowledged_versions_of_one_number_are_named_until_a_person_decides() {
    let home = TestHome::new();
    let url = local(&home);
    let store = open_for(&home, &url, OpenMode::Server).await;
    push(&store, 1).await.unwrap();
    let dump = Dump::of(&home, &store).await;
    push(&store, 2).await.unwrap();
    let first = store.blobs.clone();
    drop(store);
    dump.restore();
    let store = open_for(&home, &url, OpenMode::Server).await;
    append(&store, network(), wide(50, 2)).await.unwrap();
    let verified = store.state_verify(None).await.unwrap();
    assert!(verified.damages.is_empty(), "{:?}", verified.damages);
    // The first server comes to say what it acknowledged.
    let Blobs::Bucket(bucket) = first else {
        panic!("it is a bucket")
    };
    let object = store.blob_next_name().await.unwrap();
    blocking(move || bucket.put_markers(&object)).await.unwrap();
    let verified = store.state_verify(None).await.unwrap();
    let StoreError::Rival(rival) = &verified.damages[0].error else {
        panic!("{:?}", verified.damages)
    };
    assert_eq!((rival.version.version, rival.newest.version), (2, 2));
    append(&store, network(), wide(50, 3)).await.unwrap();
    assert_eq!(store.rebuild().await.unwrap().rivals.len(), 1);
    drop(store);
    fs::remove_dir_all(home.path().join("tables")).unwrap();
    let store = open_to_rebuild(&home, &url).await;
    let rebuilt = store.rebuild().await.unwrap();
    assert_eq!((rebuilt.versions, rebuilt.rivals.len()), (3, 1));
    assert!(rebuilt.broken.is_empty(), "{:?}", rebuilt.broken);
    let (_, body) = store.state_head_bytes(&network()).await.unwrap().unwrap();
    assert_eq!(*body, wide(50, 3));
    settle(&store, 4, wide(50, 4)).await;
    let verified = store.state_verify(None).await.unwrap();
    assert!(verified.damages.is_empty(), "{:?}", verified.damages);
}

/// As a person who accepts a loss.
async fn settle(store: &Store, beyond: i64, body: Vec<u8>) {
    let (state, info) = (network(), lock_info("a"));
    let locked = store.lock_acquire(&state, &info, None, ExpectedHead::Any);
    locked.await.unwrap();
    let by_hand = ManualWrite {
        secret_paths: SecretPaths::default(),
        lock_id: "a".to_owned(),
        mark: Some(VersionMark::RolledBack),
        surgery: true,
        beyond,
        record: BreakGlassRecord {
            act: BreakGlassAction::StateRolledBack,
            actor: Actor::named("me"),
            reason: "compared".to_owned(),
            detail: String::new(),
        },
    };
    let settled = store.state_version_append_manual(&state, by_hand, body);
    settled.await.unwrap();
    store.lock_release(&state, "a").await.unwrap();
}

#[tokio::test]
async fn a_server_announces_many_uploads_at_once() {
    let home = TestHome::new();
    let store = open_for(&home, &local(&home), OpenMode::Server).await;
    for serial in 1..=20 {
        push(&store, serial).await.unwrap();
    }
    assert_eq!((objects(&store).await, intents(&store).await), (20, 12));
    // A clock that jumped: what is left, but for the name that the markers took, is taken for old. One write is refused,
    // the next announces anew.
    let swept = store.blobs_sweep(later()).await.unwrap();
    assert_eq!((swept.removed, intents(&store).await), (11, 0));
    push(&store, 21).await.unwrap_err();
    push(&store, 21).await.unwrap();
    assert!(store.state_verify(None).await.unwrap().damages.is_empty());
}

/// A replica with a slip in its prefix would acknowledge what nobody else can read.
#[tokio::test]
async fn another_prefix_than_the_databases_is_refused() {
    let home = TestHome::new();
    let (url, other) = (local(&home), format!("{}-other", local(&home)));
    let refused = async |why: &str| {
        let err = try_open(&home, &other, OpenMode::Cli).await.unwrap_err();
        assert!(
            matches!(err, OpenStoreError::OtherBlobs { .. }),
            "{why}: {err}"
        );
    };
    drop(open_at(&home, &url).await);
    refused("before the first write").await;
    let store = open_at(&home, &url).await;
    push(&store, 1).await.unwrap();

    // A home from before there were words is bound to the bucket that has its versions, and to no other.
    let forget = async || {
        store
            .db
            .execute("DELETE FROM blob_home", &[])
            .await
            .unwrap();
        drop(fs::remove_file(home.path().join("bucket/home")));
    };
    forget().await;
    // A directory that is empty is taken for one that is gone.
    let stranger = home.path().join("bucket-other/segments");
    fs::create_dir_all(&stranger).unwrap();
    fs::write(stranger.join("theirs"), "x").unwrap();
    refused("an older home").await;
    let one = || try_open(&home, &url, OpenMode::Cli);
    let (first, second, third) = tokio::join!(one(), one(), one());
    assert!([first, second, third].iter().all(Result::is_ok));
    refused("bound again").await;

    // Interrupted after the bucket had its word.
    store
        .db
        .execute("DELETE FROM blob_home", &[])
        .await
        .unwrap();
    drop(open_at(&home, &url).await);
    refused("bound after an interruption").await;
}

#[tokio::test]
async fn a_bucket_that_is_gone_is_a_refused_write() {
    let home = TestHome::new();
    let store = open_at(&home, &local(&home)).await;
    push(&store, 1).await.unwrap();
    let segments = home.path().join("bucket/segments");
    fs::rename(&segments, home.path().join("elsewhere")).unwrap();
    fs::write(&segments, "in the way").unwrap();
    let err = push(&store, 2).await.unwrap_err();
    assert!(matches!(err, AppendError::Store { .. }), "{err:?}");
    fs::remove_file(&segments).unwrap();
    fs::rename(home.path().join("elsewhere"), &segments).unwrap();
    let head = store.state_head(&network()).await.unwrap().unwrap();
    assert_eq!(head.version, 1);
    push(&store, 2).await.unwrap();
}

#[tokio::test]
async fn a_home_whose_bucket_does_not_answer_is_not_opened() {
    // A port that nobody listens on any more.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", port.local_addr().unwrap());
    drop(port);
    let settings: BTreeMap<String, String> = [
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_ACCESS_KEY_ID", "a"),
        ("AWS_SECRET_ACCESS_KEY", "b"),
        ("AWS_REGION", "auto"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    let home = TestHome::new();
    let keyring = Keyring::open_or_create(&home.path().join("config/master.key")).unwrap();
    let blobs = BlobLocation::Bucket {
        url: "s3://states",
        settings: &settings,
    };
    let file = home.path().join("terrane.db");
    let open = |blobs| {
        Store::open_with(
            DatabaseLocation::File(&file),
            blobs,
            keyring.clone(),
            OpenMode::Cli,
        )
    };
    let refused = async |tables: &str| match open(blobs).await {
        Err(OpenStoreError::Compare(StoreError::Object { .. })) => {}
        opened => panic!("{tables}: {opened:?}"),
    };
    refused("a new database").await;
    let elsewhere = open(BlobLocation::Directory(home.path())).await.unwrap();
    elsewhere.state_ensure(&network()).await.unwrap();
    refused("a database that knows a state").await;
}

/// Answers as a service does that lets an object be read and not the bucket be listed.
async fn reads_only(word: String) -> std::net::SocketAddr {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    const REFUSED: &str = "<Error><Code>AccessDenied</Code><Message>no</Message></Error>";
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(client.read_u8().await.unwrap());
            }
            let is_listing = String::from_utf8_lossy(&request).contains("list-type=2");
            let (status, body) = if is_listing {
                ("403 Forbidden", REFUSED)
            } else {
                ("200 OK", word.as_str())
            };
            let answer = format!(
                "HTTP/1.1 {status}\r\nLast-Modified: Tue, 17 Nov 2026 18:00:00 GMT\r\nETag: \"a\"\r\n\
                 Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            client.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    address
}

/// An older database would be served without anybody noticing.
#[tokio::test]
async fn a_bucket_that_may_be_read_and_not_listed_is_refused() {
    let home = TestHome::new();
    let store = open_at(&home, &local(&home)).await;
    push(&store, 1).await.unwrap();
    drop(store);
    let word = fs::read_to_string(home.path().join("bucket/home")).unwrap();
    let endpoint = format!("http://{}", reads_only(word).await);
    let settings: BTreeMap<String, String> = [
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_ACCESS_KEY_ID", "a"),
        ("AWS_SECRET_ACCESS_KEY", "b"),
        ("AWS_REGION", "auto"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    let keyring = Keyring::open_or_create(&home.path().join("config/master.key")).unwrap();
    let blobs = BlobLocation::Bucket {
        url: "s3://states",
        settings: &settings,
    };
    let file = home.path().join("tables/terrane.db");
    let opened =
        Store::open_with(DatabaseLocation::File(&file), blobs, keyring, OpenMode::Cli).await;
    assert!(
        matches!(opened, Err(OpenStoreError::NotListed { .. })),
        "{opened:?}"
    );
}

#[tokio::test]
async fn retention_removes_objects_that_no_version_names() {
    let home = TestHome::new();
    let store = open(&home).await;
    for serial in 1..=20 {
        push(&store, serial).await.unwrap();
    }
    let policy = RetentionPolicy {
        max_count: Some(1),
        ..RetentionPolicy::default()
    };
    let removed = expire(&store, &policy, Timestamp::now()).await.unwrap();
    assert_eq!(removed.len(), 17);
    assert_eq!(store.blobs_sweep(later()).await.unwrap().removed, 17);
    // Three versions, and the marker of the last one.
    assert_eq!(objects(&store).await, 4);
    assert!(
        open(&home)
            .await
            .state_verify(None)
            .await
            .unwrap()
            .damages
            .is_empty()
    );
}

#[tokio::test]
async fn a_copy_of_a_bucket_is_recovered_without_the_tables() {
    let home = TestHome::new();
    let store = open_at(&home, &local(&home)).await;
    for serial in 1..=3 {
        push(&store, serial).await.unwrap();
    }
    let found = || {
        let keyring = Keyring::open_or_create(&home.path().join("config/master.key")).unwrap();
        let mut found = Vec::new();
        let each = |recovered| match recovered {
            RecoveredItem::Version {
                standing,
                body,
                version,
                ..
            } => {
                assert_eq!(*body.unwrap(), wide(40, version.serial));
                found.push(standing);
            }
            RecoveredItem::Lost { .. }
            | RecoveredItem::Refused { .. }
            | RecoveredItem::Artifacts { .. } => {
                panic!("nothing was lost or refused, and no stack wrote a file")
            }
        };
        recover(&home.path().join("bucket"), keyring, each).unwrap();
        found
    };
    assert_eq!(
        found(),
        [
            Acknowledgement::Acknowledged,
            Acknowledgement::Acknowledged,
            Acknowledgement::NotProvable
        ]
    );
    store.blobs_settle().await.unwrap();
    assert_eq!(found(), [Acknowledgement::Acknowledged; 3]);
}

#[tokio::test]
async fn addresses() {
    let settings: Vec<(&str, &str)> = vec![
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:9"),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_ACCESS_KEY_ID", "a"),
        ("AWS_SECRET_ACCESS_KEY", "b"),
        ("AWS_REGION", "auto"),
        ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
        ("AZURE_STORAGE_ACCOUNT_KEY", "YQ=="),
        ("GOOGLE_SKIP_SIGNATURE", "true"),
        ("PATH", "/bin"),
    ];
    let open = |url: &str| Bucket::open(url, settings.iter().copied());
    for url in [
        "s3://states",
        "s3://states/a/b/",
        "az://states/a",
        "gs://states",
    ] {
        let bucket = open(url).unwrap();
        let expected = format!("{}/keys/x", url.trim_end_matches('/'));
        assert_eq!(bucket.path("keys/x"), PathBuf::from(expected));
    }
    for url in ["states", "s3:///a", "ftp://states", "file://host/dir"] {
        let err = open(url).unwrap_err();
        assert!(matches!(err, OpenBucketError::Url { .. }), "{url}: {err}");
    }
}

#[tokio::test]
async fn artifacts_are_objects_and_are_found_without_the_tables() {
    let home = TestHome::new();
    let store = open(&home).await;
    push(&store, 1).await.unwrap();
    let set = |text: &str| {
        let mut set = ArtifactSet::default();
        let file = Artifact::new(0o600, text.as_bytes().to_vec());
        set.add("kubeconfig", file).unwrap();
        set
    };
    let state = network();
    let first = set("first");
    let first = store.artifacts_keep(&state, None, &first, None).await;
    let first = first.unwrap().kept;
    let second = set("second");
    let kept = store.artifacts_keep(&state, Some(&first), &second, None);
    let kept = kept.await.unwrap();
    assert_eq!(intents(&store).await, 1, "the first, which may go");
    let forget = "DELETE FROM artifact_set";
    store.db.execute(forget, &[]).await.unwrap();
    assert_eq!(store.rebuild().await.unwrap().artifacts, 1);
    let again = store.artifacts_get(&state).await.unwrap().unwrap();
    assert_eq!(again.kept, kept.kept);
    assert_eq!(store.artifacts_read(&again).await.unwrap(), second);
    store.blobs_sweep(later()).await.unwrap();
    assert_eq!(store.artifacts_read(&again).await.unwrap(), second);
    let (keys, blobs) = (store.keys.clone(), store.blobs.clone());
    let gone =
        blocking(move || crate::state::artifacts::open(&keys, &blobs, &network(), &first)).await;
    assert!(gone.is_err());
}

/// The tables as they are now, put back later.
struct Dump(PathBuf, Vec<u8>);

impl Dump {
    async fn of(home: &TestHome, store: &Store) -> Self {
        let file = home.path().join("tables/terrane.db");
        let copy = home.path().join("dump.db");
        drop(fs::remove_file(&copy));
        let path = copy.to_str().unwrap().to_owned();
        let sql = "VACUUM INTO $1";
        store.db.execute(sql, &[path.into()]).await.unwrap();
        Self(file, fs::read(copy).unwrap())
    }

    fn restore(&self) {
        let Self(file, bytes) = self;
        for log in ["db-wal", "db-shm"] {
            drop(fs::remove_file(file.with_extension(log)));
        }
        fs::write(file, bytes).unwrap();
    }
}

async fn said(store: &Store) -> String {
    let head = store.state_head(&network()).await;
    head.map_or_else(
        |err| err.to_string(),
        |head| format!("{}", head.unwrap().version),
    )
}

/// As after a restore of last night's dump.
#[tokio::test]
async fn older_tables_beside_a_bucket_are_noticed() {
    let other = StateName::new("p", "other");
    // A server that is at work has announced the names of the next uploads when it is dumped.
    for (how, later) in [
        (OpenMode::Cli, 2),
        (OpenMode::Server, 2),
        (OpenMode::Server, 40),
    ] {
        let home = TestHome::new();
        let url = local(&home);
        let store = open_for(&home, &url, how).await;
        append(&store, other.clone(), wide(40, 1)).await.unwrap();
        push(&store, 1).await.unwrap();
        let dump = Dump::of(&home, &store).await;
        for serial in 2..=1 + later {
            push(&store, serial).await.unwrap();
        }
        store.blobs_settle().await.unwrap();
        drop(store);
        dump.restore();
        for again in [false, true] {
            let store = open_for(&home, &url, how).await;
            let said = said(&store).await;
            let start = format!(
                "version {} of state `p/network` was acknowledged",
                later + 1
            );
            assert!(said.starts_with(&start), "{how:?} {later} {again}: {said}");
            push(&store, 2).await.unwrap_err();
            store.state_check_all_current().unwrap_err();
            // What did not move is served as ever, and no name is used twice.
            let serial = 2 + u64::from(again);
            append(&store, other.clone(), wide(40, serial))
                .await
                .unwrap();
        }
        let store = open_to_rebuild(&home, &url).await;
        let rebuilt = store.rebuild().await.unwrap();
        assert_eq!((rebuilt.versions as u64, rebuilt.lost.len()), (later, 0));
        let store = open_for(&home, &url, how).await;
        push(&store, later + 2).await.unwrap();
        assert_eq!(said(&store).await, (later + 2).to_string());
        assert!(store.state_verify(None).await.unwrap().damages.is_empty());
    }
}

/// As after the end of the machine that the server and its database were on.
#[tokio::test]
async fn what_newer_tables_wrote_last_counts_though_they_died_before_they_said_so() {
    let home = TestHome::new();
    let url = local(&home);
    let store = open_for(&home, &url, OpenMode::Server).await;
    push(&store, 1).await.unwrap();
    let dump = Dump::of(&home, &store).await;
    for serial in 2..=41 {
        push(&store, serial).await.unwrap();
    }
    drop(store);
    dump.restore();
    let store = open_for(&home, &url, OpenMode::Server).await;
    let start = "version 41 of state `p/network` was acknowledged";
    let said = said(&store).await;
    assert!(said.starts_with(start), "served after a crash: {said}");
    push(&store, 2).await.unwrap_err();
    drop(store);
    let store = open_to_rebuild(&home, &url).await;
    let rebuilt = store.rebuild().await.unwrap();
    let unproven = rebuilt.unproven.len();
    assert_eq!((rebuilt.versions + unproven, rebuilt.lost.len()), (40, 0));
    assert!(unproven > 0, "all was said: this tests nothing");
    drop(store);
    // Whoever brought it back was told of those.
    let store = open_for(&home, &url, OpenMode::Server).await;
    let head = store.state_head(&network()).await.unwrap().unwrap();
    assert_eq!(head.version, 41 - i64::try_from(unproven).unwrap());
}

async fn open_to_rebuild(home: &TestHome, url: &str) -> Store {
    let keyring = Keyring::open_or_create(&home.path().join("config/master.key")).unwrap();
    let settings = BTreeMap::new();
    let blobs = BlobLocation::Bucket {
        url,
        settings: &settings,
    };
    let file = home.path().join("tables/terrane.db");
    let opened = Store::open_to_rebuild(DatabaseLocation::File(&file), blobs, keyring).await;
    opened.unwrap()
}

/// A job that ends leaves nobody behind who would say later what was acknowledged.
#[tokio::test]
async fn what_a_brief_process_wrote_is_marked_when_it_gives_up_its_lock() {
    let home = TestHome::new();
    let url = local(&home);
    let store = open_at(&home, &url).await;
    let dump = Dump::of(&home, &store).await;
    let (state, info) = (network(), lock_info("a"));
    let locked = store.lock_acquire(&state, &info, None, ExpectedHead::Any);
    locked.await.unwrap();
    let writer = StateWriter {
        lock_id: Some("a".to_owned()),
        ..StateWriter::default()
    };
    let written = store.state_version_append(&state, &writer, wide(40, 1));
    written.await.unwrap();
    store.lock_release(&state, "a").await.unwrap();
    drop(store);
    dump.restore();
    let opened = try_open(&home, &url, OpenMode::Cli).await;
    assert!(matches!(opened, Err(OpenStoreError::TablesEmpty { .. })));
    let store = open_to_rebuild(&home, &url).await;
    let rebuilt = store.rebuild().await.unwrap();
    assert_eq!((rebuilt.versions, rebuilt.unproven.len()), (1, 0));
}

/// Somebody else's tables gave the name out, and their object lies there.
#[tokio::test]
async fn a_name_that_is_taken_costs_no_write() {
    let home = TestHome::new();
    let store = open_for(&home, &local(&home), OpenMode::Server).await;
    push(&store, 1).await.unwrap();
    for number in 2..20 {
        let name = crate::blob::name_of(number);
        fs::write(home.path().join("bucket/segments").join(name), "x").unwrap();
    }
    push(&store, 2).await.unwrap();
    let head = store.state_head(&network()).await.unwrap().unwrap();
    assert_eq!(head.version, 2);
}

/// Its marker lies in the object of another state.
#[tokio::test]
async fn an_acknowledged_version_whose_object_is_gone_is_named_and_not_passed_over() {
    let home = TestHome::new();
    let url = local(&home);
    let store = open_at(&home, &url).await;
    for serial in 1..=3 {
        push(&store, serial).await.unwrap();
    }
    let other = StateName::new("p", "other");
    append(&store, other.clone(), wide(40, 1)).await.unwrap();
    store.blobs_settle().await.unwrap();
    let place = "SELECT blob FROM state_version WHERE version = 3";
    let row = store.db.fetch_optional(place, &[]).await.unwrap().unwrap();
    let place = FrameLocation::parse(row.text(0).unwrap()).unwrap();
    fs::remove_file(home.path().join("bucket").join(place.object)).unwrap();
    drop(store);
    fs::remove_dir_all(home.path().join("tables")).unwrap();
    for again in [false, true] {
        let store = open_to_rebuild(&home, &url).await;
        let rebuilt = store.rebuild().await.unwrap();
        let lost = &rebuilt.lost[0];
        assert_eq!((lost.acknowledged, lost.readable), (3, 1), "{again}");
        drop(store);
        let store = open_at(&home, &url).await;
        let said = said(&store).await;
        let start = "version 3 of state `p/network` was acknowledged";
        assert!(said.starts_with(start), "{again}: {said}");
        push(&store, 2).await.unwrap_err();
        store.state_head(&other).await.unwrap();
        let verified = store.state_verify(None).await.unwrap();
        let error = &verified.damages[0].error;
        assert!(matches!(error, StoreError::Lost(_)), "{error}");
    }
}
