//! The power goes at any step, and takes with it what was not synced. What was acknowledged is still there.

use std::collections::BTreeMap;

use model::state::StateFacts;
use testkit::{SeededRng, seed};

use super::*;
use crate::recover;
use crate::testing::{TestHome, wide};
use crate::{Acknowledgement, Keyring, RecoveredItem, StateWriter};

#[tokio::test]
async fn what_was_acknowledged_outlives_any_crash() {
    let mut dice = SeededRng::new(seed());
    let home = TestHome::new();
    let mut acknowledged: BTreeMap<StateName, u64> = BTreeMap::new();
    for _ in 0..60 {
        let store = home.open().await;
        let Blobs::Disk(disk) = &store.blobs else {
            panic!("a home on disk is meant")
        };
        disk.watch
            .die_after(usize::try_from(dice.roll(25)).unwrap());
        loop {
            let state = StateName::new("p", format!("s{}", dice.roll(4)));
            let serial = match store.state_head(&state).await.unwrap() {
                Some(head) => head.serial + 1,
                None => 1,
            };
            let body = wide(dice.roll(30), serial);
            let writer = StateWriter::default();
            match store.state_version_append(&state, &writer, body).await {
                Ok(_) => acknowledged.insert(state, serial),
                Err(AppendError::Store { .. }) => break,
                Err(err) => panic!("{err}, {dice}"),
            };
        }
        disk.watch.lose_unsynced(|sides| dice.roll(sides));
        drop(store);
        check(&home, &acknowledged, &dice).await;
    }
    check_recovery(&home, &acknowledged, &dice);
}

async fn check(home: &TestHome, acknowledged: &BTreeMap<StateName, u64>, dice: &SeededRng) {
    let store = home.open().await;
    let verified = store.state_verify(None).await.unwrap();
    assert!(
        verified.damages.is_empty(),
        "{:?}, {dice}",
        verified.damages
    );
    for (state, serial) in acknowledged {
        let head = store.state_head(state).await.unwrap();
        let head = head.unwrap_or_else(|| panic!("{state} is gone, {dice}"));
        // One more may have been stored and not answered.
        assert!(
            (*serial..=serial + 1).contains(&head.serial),
            "{state}, {dice}"
        );
    }
}

/// The files alone say the same.
fn check_recovery(home: &TestHome, acknowledged: &BTreeMap<StateName, u64>, dice: &SeededRng) {
    let keyring = Keyring::open_or_create(&home.path().join("config/master.key")).unwrap();
    let mut found: BTreeMap<(StateName, u64), Acknowledgement> = BTreeMap::new();
    let each = |recovered| match recovered {
        RecoveredItem::Version {
            version,
            standing,
            body,
            ..
        } => {
            let facts = StateFacts::read(&body.unwrap()).unwrap();
            assert_eq!(facts.serial, version.serial, "{dice}");
            // Those that count come first.
            let key = (version.state, version.serial);
            found.entry(key).or_insert(standing);
        }
        RecoveredItem::Lost { state, version, .. } => {
            panic!("version {version} of `{state}` is lost, {dice}")
        }
        RecoveredItem::Refused { .. } | RecoveredItem::Artifacts { .. } => {
            panic!("nothing was refused, and no stack wrote a file, {dice}")
        }
    };
    recover(&home.path().join("home"), keyring, each).unwrap();
    for (state, newest) in acknowledged {
        for serial in 1..=*newest {
            let standing = found.get(&(state.clone(), serial)).copied();
            // Nothing follows the newest one, and its marker need not have been synced.
            let expected: &[_] = if serial < *newest {
                &[Some(Acknowledgement::Acknowledged)]
            } else {
                &[
                    Some(Acknowledgement::Acknowledged),
                    Some(Acknowledgement::NotProvable),
                ]
            };
            assert!(
                expected.contains(&standing),
                "{state} {serial}: {standing:?}, {dice}"
            );
        }
    }
}
