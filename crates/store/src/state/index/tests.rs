//! Whatever a state went through, and whoever gave up in between: what was read version by version says
//! the same as all versions together.

use std::collections::BTreeMap;

use model::state::history::{IndexedObject, IndexedObjects, VersionChange, step};
use model::state::leaves::EntryKind;
use proptest::prelude::*;

use crate::testing::{TestHome, network};

const FORM: &str = "1 test";
const ADDRESSES: [&str; 3] = ["p", "q", "r"];

/// Few addresses, paths and values, so that things come, go, come back and stay as they are.
fn holdings() -> impl Strategy<Value = IndexedObjects> {
    let leaves = prop::collection::btree_map("[ab]", "[xyz]", 0..3);
    let all = prop::collection::btree_map(0..3_usize, leaves, 0..4);
    // An address says what kind it is of.
    all.prop_map(|all| {
        let held = |(n, leaves): (usize, BTreeMap<String, String>)| {
            let kind = EntryKind::ALL[n];
            let type_name = "t".to_owned();
            let holding = IndexedObject {
                kind,
                type_name,
                leaves,
            };
            (ADDRESSES[n].to_owned(), holding)
        };
        all.into_iter().map(held).collect()
    })
}

/// Versions with gaps between them, and after how many rows somebody else gave up before each.
fn histories() -> impl Strategy<Value = Vec<(i64, IndexedObjects, Option<usize>)>> {
    let version = (1..3_i64, holdings(), prop::option::of(0..6_usize));
    prop::collection::vec(version, 1..7).prop_map(|steps| {
        let mut number = 0;
        let count = |(gap, held, crash)| {
            number += gap;
            (number, held, crash)
        };
        steps.into_iter().map(count).collect()
    })
}

async fn check(history: Vec<(i64, IndexedObjects, Option<usize>)>) {
    let home = TestHome::new();
    let store = home.open().await;
    let state = network();
    store.state_ensure(&state).await.unwrap();
    let mut done = store.state_index_begin(&state, FORM).await.unwrap();
    assert_eq!(done, 0);
    let mut before = IndexedObjects::new();
    let mut since: BTreeMap<(String, String), (i64, String)> = BTreeMap::new();
    let mut counts = Vec::new();
    for (version, after, crash) in history {
        let did = step(&before, &after);
        if let Some(rows) = crash {
            let mut part = did.clone();
            part.changes.truncate(rows);
            part.appeared.truncate(rows);
            part.gone.truncate(rows);
            let moved = store.state_index_add(&state, -1, version, &part, &after, None);
            assert!(!moved.await.unwrap());
            assert_eq!(store.state_index_holdings(&state).await.unwrap(), before);
        }
        let moved = store.state_index_add(&state, done, version, &did, &after, None);
        assert!(moved.await.unwrap());
        done = version;
        // From scratch: the newest version in which a value became what it is.
        since.retain(|(address, path), _| {
            let held = after.get(address);
            held.is_some_and(|held| held.leaves.contains_key(path))
        });
        for (address, held) in &after {
            for (path, digest) in &held.leaves {
                let known = since.entry((address.clone(), path.clone()));
                let known = known.or_insert((version, digest.clone()));
                if known.1 != *digest {
                    *known = (version, digest.clone());
                }
            }
        }
        counts.push((version, did.counts));
        assert_eq!(store.state_index_holdings(&state).await.unwrap(), after);
        before = after;
    }
    for address in ADDRESSES {
        let seen = store
            .state_index_last_changes(&state, address, i64::MAX)
            .await;
        let seen: Vec<_> = seen
            .unwrap()
            .into_iter()
            .map(|it| (it.path, it.version, it.digest))
            .collect();
        let expected: Vec<_> = since
            .iter()
            .filter(|it| it.0.0 == address)
            .map(|((_, path), (version, digest))| (path.clone(), *version, digest.clone()))
            .collect();
        assert_eq!(seen, expected, "{address}");
    }
    let versions = store.state_index_versions(&state).await.unwrap();
    let versions: Vec<_> = versions.iter().map(|it| (it.version, it.counts)).collect();
    assert_eq!(versions, counts);
    assert_eq!(store.state_index_begin(&state, FORM).await.unwrap(), done);
    // Another form starts again.
    assert_eq!(store.state_index_begin(&state, "2").await.unwrap(), 0);
    assert_eq!(store.state_index_entries(&state).await.unwrap(), []);
    assert_eq!(store.state_index_versions(&state).await.unwrap(), []);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_index_says_what_all_versions_say(history in histories()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(check(history));
    }
}

#[tokio::test]
async fn who_comes_second_looks_again() {
    let home = TestHome::new();
    let store = home.open().await;
    let state = network();
    store.state_ensure(&state).await.unwrap();
    store.state_index_begin(&state, FORM).await.unwrap();
    let (nothing, held) = (VersionChange::default(), IndexedObjects::new());
    let add = || store.state_index_add(&state, 0, 1, &nothing, &held, None);
    assert!(add().await.unwrap());
    assert!(!add().await.unwrap());
}
