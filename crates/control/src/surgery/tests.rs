//! Changes by hand, on a home without a project.

use std::path::PathBuf;

use store::Writer;

use super::*;
use crate::home::{Home, Opened, StorePlace};
use crate::keys::KeySource;

struct Place {
    control: Control,
    _dir: tempfile::TempDir,
}

impl Place {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key = KeySource::File(dir.path().join("key"));
        let home = dir.path().join("home");
        let home = Home::at(
            StorePlace::Directory(home.clone()),
            home,
            key,
            "p".to_owned(),
        );
        let Opened { store, home, .. } = home.open().await.unwrap();
        let control = Control {
            store,
            home,
            program: PathBuf::new(),
            cache: PathBuf::new(),
        };
        Self { control, _dir: dir }
    }

    async fn write(&self, serial: u64) {
        let (state, writer) = (network(), Writer::default());
        let store = &self.control.store;
        let written = store.state_version_append(&state, &writer, body(serial));
        written.await.unwrap();
    }

    async fn delete(&self) {
        let store = &self.control.store;
        store.state_delete(&network(), None, "ci").await.unwrap();
    }
}

fn network() -> StateName {
    StateName::new("p", "network")
}

fn body(serial: u64) -> Vec<u8> {
    format!(r#"{{"version":4,"serial":{serial},"lineage":"l","outputs":{{}},"resources":[]}}"#)
        .into_bytes()
}

fn reason() -> Reason {
    Reason {
        actor: "me".to_owned(),
        text: "because".to_owned(),
    }
}

#[tokio::test]
async fn equal_bytes_decide_nothing() {
    let place = Place::new().await;
    let (control, state) = (&place.control, network());
    place.write(1).await;
    let why = "its serial is taken".to_owned();
    let kept = control
        .store
        .kept_aside_record(&state, RunId(7), why, body(9));
    kept.await.unwrap();
    let waiting = async || control.store.kept_aside_list(&state).await.unwrap().len();

    let same = push(control, &state, body(1), false).await.unwrap();
    let done = carry_out(control, same, &reason()).await.unwrap();
    assert!(matches!(done, Done::Same(_)));
    assert_eq!(waiting().await, 1);

    let other = push(control, &state, body(2), false).await.unwrap();
    let done = carry_out(control, other, &reason()).await.unwrap();
    assert!(matches!(done, Done::Wrote(_)));
    assert_eq!(waiting().await, 0);
}

#[tokio::test]
async fn a_deleted_state_is_brought_back_under_the_next_serial() {
    let place = Place::new().await;
    let (control, state) = (&place.control, network());
    let nothing = rollback(control, &state, Target::Version(1)).await;
    assert!(matches!(nothing, Err(SurgeryError::NoState { .. })));
    place.write(7).await;
    place.delete().await;
    let back = rollback(control, &state, Target::Version(1)).await.unwrap();
    let Done::Wrote(version) = carry_out(control, back, &reason()).await.unwrap() else {
        panic!("it was deleted");
    };
    assert_eq!((version.version, version.serial), (2, 8));
    assert_eq!((version.lineage.as_str(), version.parent), ("l", None));
    let records = control.store.break_glass_list(&state).await.unwrap();
    let acts: Vec<Act> = records.iter().map(|one| one.act).collect();
    assert_eq!(acts, [Act::StateDeleted, Act::StateRolledBack]);
}

#[tokio::test]
async fn a_used_serial_needs_force_and_gets_the_next() {
    let place = Place::new().await;
    let (control, state) = (&place.control, network());
    place.write(7).await;
    place.delete().await;
    let used = push(control, &state, body(3), false).await.unwrap();
    let refused = carry_out(control, used, &reason()).await.unwrap_err();
    assert_eq!(
        refused.hint().as_deref(),
        Some("`--force` gives it the next serial")
    );
    let forced = push(control, &state, body(3), true).await.unwrap();
    let Done::Wrote(version) = carry_out(control, forced, &reason()).await.unwrap() else {
        panic!("it was deleted");
    };
    assert_eq!((version.serial, version.mark), (8, Some(Mark::Forced)));
}

#[tokio::test]
async fn a_refused_write_is_brought_back_by_its_number() {
    let place = Place::new().await;
    let (control, state) = (&place.control, network());
    place.write(7).await;
    let (store, writer) = (&control.store, Writer::default());
    let late = Writer {
        lock_id: Some("gone".to_owned()),
        ..writer
    };
    let refused = store.state_version_append(&state, &late, body(8)).await;
    assert!(refused.is_err());
    let number = store.refusal_list(&state).await.unwrap()[0].id;
    let other = push_refused(control, &state, number + 1, false).await;
    assert!(matches!(other, Err(SurgeryError::NothingRefused { .. })));
    let back = push_refused(control, &state, number, false).await.unwrap();
    let done = carry_out(control, back, &reason()).await.unwrap();
    assert!(matches!(done, Done::Wrote(version) if version.serial == 8));
}
