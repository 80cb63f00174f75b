//! Changes by hand, on a home without a project.

use model::base::actor::Actor;
use std::path::PathBuf;

use model::state::retention::RetentionPolicy;
use store::StateWriter;

use super::*;
use crate::home::master_keys::KeySource;
use crate::home::{Home, HomeLocation, OpenedHome};

pub(crate) struct Place {
    pub(crate) control: Control,
    _dir: tempfile::TempDir,
}

impl Place {
    pub(crate) async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key = KeySource::File(dir.path().join("key"));
        let home = dir.path().join("home");
        let home = Home::at(
            HomeLocation::Directory(home.clone()),
            home,
            key,
            "p".to_owned(),
        );
        let OpenedHome { store, home, .. } = home.open().await.unwrap();
        let control = Control::new(store, home, PathBuf::new(), PathBuf::new());
        Self { control, _dir: dir }
    }

    async fn write(&self, serial: u64) {
        self.write_body(body(serial)).await;
    }

    pub(crate) async fn write_body(&self, body: Vec<u8>) {
        let (state, writer) = (network(), StateWriter::default());
        let store = &self.control.store;
        let written = store.state_version_append(&state, &writer, body);
        written.await.unwrap();
    }

    /// As `state push -force` of a client with the right to it.
    async fn force(&self, body: Vec<u8>) {
        let (state, store) = (network(), &self.control.store);
        let info = manual_lock(&reason(), Timestamp::now());
        let locked = store.lock_acquire(&state, &info, None, ExpectedHead::Any);
        locked.await.unwrap();
        let writer = StateWriter {
            lock_id: Some(info.id.clone()),
            surgery: true,
            ..StateWriter::default()
        };
        let written = store.state_version_append(&state, &writer, body);
        written.await.unwrap();
        store.lock_release(&state, &info.id).await.unwrap();
    }

    /// The serial that what was proposed is stored under, and was shown with.
    async fn serial_of(&self, proposal: SurgeryProposal) -> u64 {
        let shown = proposal.serial;
        let done = carry_out(&self.control, proposal, &reason()).await.unwrap();
        let SurgeryOutcome::Wrote(version) = done else {
            panic!("{done:?}");
        };
        assert_eq!(version.serial, shown);
        shown
    }

    /// The versions that stay if only the newest is to.
    pub(crate) async fn let_go_of_all_but_one(&self) -> Vec<i64> {
        let store = &self.control.store;
        let row = store.state_get(&network()).await.unwrap().unwrap();
        let policy = RetentionPolicy {
            max_count: Some(1),
            ..RetentionPolicy::default()
        };
        let gone = store.retention_apply(&row, &policy, Timestamp::now());
        gone.await.unwrap();
        let left = store.state_version_list(&network()).await.unwrap();
        left.iter().map(|version| version.version).collect()
    }

    async fn delete(&self) {
        let store = &self.control.store;
        store
            .state_delete(&network(), None, &Actor::named("ci"))
            .await
            .unwrap();
    }
}

pub(crate) fn network() -> StateName {
    StateName::new("p", "network")
}

fn body(serial: u64) -> Vec<u8> {
    format!(r#"{{"version":4,"serial":{serial},"lineage":"l","outputs":{{}},"resources":[]}}"#)
        .into_bytes()
}

/// A state with one resource, of this value.
pub(crate) fn full(serial: u64, value: &str) -> Vec<u8> {
    format!(
        r#"{{"version":4,"serial":{serial},"lineage":"l","outputs":{{}},"resources":[{{"mode":"managed","type":"x","name":"y","provider":"p","instances":[{{"attributes":{{"a":"{value}"}}}}]}}]}}"#
    )
    .into_bytes()
}

fn reason() -> BreakGlassReason {
    BreakGlassReason {
        actor: Actor::named("me"),
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
        .quarantine_record(&state, RunId(7), why, body(9));
    kept.await.unwrap();
    let waiting = async || control.store.quarantine_list(&state).await.unwrap().len();

    let same = push(control, &state, body(1), false).await.unwrap();
    let done = carry_out(control, same, &reason()).await.unwrap();
    assert!(matches!(done, SurgeryOutcome::Same(_)));
    assert_eq!(waiting().await, 1);

    let other = push(control, &state, body(2), false).await.unwrap();
    let done = carry_out(control, other, &reason()).await.unwrap();
    assert!(matches!(done, SurgeryOutcome::Wrote(_)));
    assert_eq!(waiting().await, 0);
}

#[tokio::test]
async fn a_deleted_state_is_brought_back_under_the_next_serial() {
    let place = Place::new().await;
    let (control, state) = (&place.control, network());
    let nothing = rollback(control, &state, RollbackTarget::Version(1)).await;
    assert!(matches!(nothing, Err(SurgeryError::NoState { .. })));
    place.write(7).await;
    place.delete().await;
    let back = rollback(control, &state, RollbackTarget::Version(1))
        .await
        .unwrap();
    let SurgeryOutcome::Wrote(version) = carry_out(control, back, &reason()).await.unwrap() else {
        panic!("it was deleted");
    };
    assert_eq!((version.version, version.serial), (2, 8));
    assert_eq!((version.lineage.as_str(), version.parent), ("l", None));
    let records = control.store.break_glass_list(&state).await.unwrap();
    let acts: Vec<BreakGlassAction> = records.iter().map(|one| one.act).collect();
    assert_eq!(
        acts,
        [
            BreakGlassAction::StateDeleted,
            BreakGlassAction::StateRolledBack
        ]
    );
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
    let SurgeryOutcome::Wrote(version) = carry_out(control, forced, &reason()).await.unwrap()
    else {
        panic!("it was deleted");
    };
    assert_eq!(
        (version.serial, version.mark),
        (8, Some(VersionMark::Forced))
    );
}

/// Serials 3 and 4 were used, and plans may have been made from what had them.
#[tokio::test]
async fn no_deed_by_hand_uses_a_serial_again() {
    for action in ["rm", "push", "rollback"] {
        let place = Place::new().await;
        let (control, state) = (&place.control, network());
        for serial in 1..=4 {
            place.write_body(full(serial, &format!("v{serial}"))).await;
        }
        place.force(full(2, "v1")).await;
        let back = |version| rollback(control, &state, RollbackTarget::Version(version));
        let proposal = match action {
            "rm" => take_out(control, &state, &["x.y".to_owned()]).await,
            "push" => push(control, &state, full(3, "by hand"), true).await,
            _ => back(2).await,
        };
        let serial = place.serial_of(proposal.unwrap()).await;
        assert_eq!(serial, 5, "{action}");
        let serial = place.serial_of(back(3).await.unwrap()).await;
        assert_eq!(serial, 6, "after {action}");
    }
}

#[tokio::test]
async fn a_lineage_that_comes_back_goes_on_where_it_was() {
    let place = Place::new().await;
    let (control, state) = (&place.control, network());
    place.write_body(full(7, "v")).await;
    let other = String::from_utf8(full(3, "other")).unwrap();
    let other = other.replace(r#""lineage":"l""#, r#""lineage":"m""#);
    let other = push(control, &state, other.into_bytes(), true).await;
    assert_eq!(place.serial_of(other.unwrap()).await, 3, "it is new here");
    let back = push(control, &state, full(5, "w"), true).await;
    assert_eq!(place.serial_of(back.unwrap()).await, 8);
}

#[tokio::test]
async fn a_serial_that_two_contents_have_names_neither() {
    let place = Place::new().await;
    let (control, state) = (&place.control, network());
    for serial in 1..=3 {
        place.write_body(full(serial, &format!("v{serial}"))).await;
    }
    place.force(full(2, "other")).await;
    let back = rollback(control, &state, RollbackTarget::Serial(2)).await;
    let refused = back.unwrap_err();
    let said = "several versions of state `p/network` have serial 2: 2, 4";
    assert_eq!(refused.to_string(), said);
    let hint = "name one of them by its number: `--to 2`";
    assert_eq!(refused.hint().as_deref(), Some(hint));
    let one = rollback(control, &state, RollbackTarget::Serial(3))
        .await
        .unwrap();
    assert_eq!((one.older, one.serial), (Some(3), 4));
}

#[tokio::test]
async fn a_refused_write_is_brought_back_by_its_number() {
    let place = Place::new().await;
    let (control, state) = (&place.control, network());
    place.write(7).await;
    let (store, writer) = (&control.store, StateWriter::default());
    let late = StateWriter {
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
    assert!(matches!(done, SurgeryOutcome::Wrote(version) if version.serial == 8));
}

#[tokio::test]
async fn a_state_emptied_by_hand_is_kept_with_what_it_was() {
    for action in ["rm", "push", "rollback"] {
        let place = Place::new().await;
        let (control, state) = (&place.control, network());
        place.write(1).await;
        place.write_body(full(2, "v")).await;
        let proposal = match action {
            "rm" => take_out(control, &state, &["x.y".to_owned()]).await,
            "push" => push(control, &state, body(2), true).await,
            _ => rollback(control, &state, RollbackTarget::Version(1)).await,
        };
        let done = carry_out(control, proposal.unwrap(), &reason()).await;
        assert!(matches!(done.unwrap(), SurgeryOutcome::Wrote(_)));
        for serial in 4..40 {
            place.write_body(full(serial, "v")).await;
        }
        let left = place.let_go_of_all_but_one().await;
        assert!(left.contains(&2) && left.contains(&3), "{action}: {left:?}");
        assert!(!left.contains(&30), "{action}: {left:?}");
    }
}
