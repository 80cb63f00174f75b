//! What the tests of this crate share.

use std::path::Path;

use model::lock::LockInfo;
use model::state::StateName;

use crate::{Keyring, Store};

/// A home of its own, gone at the end of the test.
pub(crate) struct TestHome {
    dir: tempfile::TempDir,
}

impl TestHome {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// As a process of its own would open it.
    pub(crate) async fn open(&self) -> Store {
        let keyring = Keyring::open_or_create(&self.path().join("config/master.key")).unwrap();
        Store::open(&self.path().join("home"), keyring)
            .await
            .unwrap()
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

/// A state with one resource, told apart by its serial.
pub(crate) fn body(serial: u64) -> Vec<u8> {
    format!(
        r#"{{"version":4,"serial":{serial},"lineage":"l","outputs":{{}},"resources":[{serial}]}}"#
    )
    .into_bytes()
}
