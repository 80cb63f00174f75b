//! Shared code of this crate's tests. All tests run on each kind of store: `TERRANE_TEST_STORE` is empty
//! (SQLite in CLI mode), `serving` or `postgres`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use model::base::secret::Secret;
use model::state::StateName;
use model::state::lock::LockInfo;
use model::state::retention::RetentionPolicy;

use crate::blob::Blobs;
use crate::blob::segments::Segments;
use crate::{
    AppendError, Appended, BlobLocation, DatabaseLocation, Keyring, OpenMode, RemovedVersion,
    StateWriter, Store, StoreError,
};

/// A separate home, removed at the end of the test.
pub(crate) struct TestHome {
    dir: tempfile::TempDir,
    small_segments: bool,
    database: Option<Secret>,
}

impl TestHome {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            small_segments: false,
            database: (kind() == "postgres")
                .then(|| Secret::new(testkit::Postgres::start().database())),
        }
    }

    /// Segments that are full after a few versions.
    pub(crate) fn with_small_segments(self) -> Self {
        Self {
            small_segments: true,
            ..self
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Opens the home as a separate process would.
    pub(crate) async fn open(&self) -> Store {
        let keyring = Keyring::open_or_create(&self.path().join("config/master.key")).unwrap();
        let root = self.path().join("home");
        let file = root.join("terrane.db");
        let tables = match &self.database {
            Some(database) => DatabaseLocation::Postgres(database),
            None => DatabaseLocation::File(&file),
        };
        let how = match kind().as_str() {
            "serving" => OpenMode::Server,
            _ => OpenMode::Cli,
        };
        let blobs = BlobLocation::Directory(&root);
        let mut store = Store::open_with(tables, blobs, keyring, how).await.unwrap();
        if self.small_segments
            && let Blobs::Disk(disk) = &mut store.blobs
        {
            let segments = Segments::new(&root, disk.watch.clone());
            disk.segments = Arc::new(segments.with_full(16 * 1024));
        }
        store
    }

    /// Deletes the tables but not the files. False if the tables are not in the home.
    pub(crate) fn lose_tables(&self) -> bool {
        let [database, log, shared] = self.tables();
        let was_there = fs::remove_file(database).is_ok();
        let _ = (fs::remove_file(log), fs::remove_file(shared));
        was_there
    }

    /// The files of SQLite in a home. Only the first remains after the store is dropped.
    fn tables(&self) -> [PathBuf; 3] {
        let files = ["terrane.db", "terrane.db-wal", "terrane.db-shm"];
        files.map(|name| self.path().join("home").join(name))
    }
}

/// A copy of the database. Only for a home on SQLite.
pub(crate) struct Backup(Vec<u8>);

impl Backup {
    pub(crate) fn of(home: &TestHome) -> Option<Self> {
        let [database, ..] = home.tables();
        fs::read(database).ok().map(Self)
    }

    pub(crate) fn restore(&self, home: &TestHome) {
        let [database, ..] = home.tables();
        fs::write(database, &self.0).unwrap();
    }
}

fn kind() -> String {
    std::env::var("TERRANE_TEST_STORE").unwrap_or_default()
}

/// A write without a lock.
pub(crate) async fn append(
    store: &Store,
    state: StateName,
    body: Vec<u8>,
) -> Result<Appended, AppendError> {
    let writer = StateWriter::default();
    let appended = store.state_version_append(&state, &writer, body).await;
    markers_are_written(store).await;
    appended
}

/// Waits for the markers of a server, which are written in the background. Needed before reading the files.
pub(crate) async fn markers_are_written(store: &Store) {
    if let Blobs::Disk(disk) = &store.blobs
        && let Some(appends) = disk.appends()
    {
        appends.settle().await;
    }
}

pub(crate) fn network() -> StateName {
    StateName::new("p", "network")
}

pub(crate) fn lock_info(id: &str) -> LockInfo {
    LockInfo {
        id: id.to_owned(),
        operation: "OperationTypeApply".to_owned(),
        who: "me@here".to_owned(),
        ..LockInfo::default()
    }
}

/// A state with one resource, identified by its serial.
pub(crate) fn body(serial: u64) -> Vec<u8> {
    format!(
        r#"{{"version":4,"serial":{serial},"lineage":"l","outputs":{{}},"resources":[{serial}]}}"#
    )
    .into_bytes()
}

/// A state with this many resources, as an engine writes it. One attribute depends on the serial.
pub(crate) fn wide(resources: u64, serial: u64) -> Vec<u8> {
    let resource = |n: u64| {
        // Random-looking digits, so that the body does not compress better than a real one.
        let mixed = |salt: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23) ^ salt;
        let changed = if n == serial % resources { serial } else { 0 };
        serde_json::json!({
            "mode": "managed", "type": "example_instance", "name": format!("instance_{n}"),
            "provider": "provider[\"registry.example.io/example/example\"]",
            "instances": [{
                "schema_version": 1,
                "attributes": {
                    "id": format!("i-{:016x}{:016x}", mixed(1), mixed(2)),
                    "arn": format!("arn:example:compute:eu-1:{:012}:instance/i-{:016x}", mixed(3) % 1_000_000_000_000, mixed(4)),
                    "private_ip": format!("10.{}.{}.{}", n / 65_536, n / 256 % 256, n % 256),
                    "tags": { "Name": format!("instance-{n}"), "revision": changed, "managed_by": "terrane" },
                    "user_data": format!("{:016x}{:016x}{:016x}{:016x}", mixed(5), mixed(6), mixed(7), mixed(8)),
                    "root_block_device": [{ "volume_size": 20 + n % 80, "volume_type": "gp3", "encrypted": true, "delete_on_termination": true }],
                    "timeouts": null,
                },
                "sensitive_attributes": [],
                "private": format!("{:016x}", mixed(9)),
                "dependencies": ["example_network.main", "example_subnet.private"],
            }],
        })
    };
    let state = serde_json::json!({
        "version": 4, "terraform_version": "1.11.4", "serial": serial, "lineage": "l",
        "outputs": {}, "resources": (0..resources).map(resource).collect::<Vec<_>>(), "check_results": null,
    });
    serde_json::to_vec_pretty(&state).unwrap()
}

/// Removes everything that the policy allows to remove.
pub(crate) async fn expire(
    store: &Store,
    policy: &RetentionPolicy,
    now: Timestamp,
) -> Result<Vec<RemovedVersion>, StoreError> {
    let mut removed = Vec::new();
    for state in store.state_list().await? {
        removed.extend(store.retention_apply(&state, policy, now).await?);
    }
    Ok(removed)
}
