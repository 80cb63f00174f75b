//! What nobody needs goes; what somebody needs stays, whatever else happens.

use jiff::SignedDuration;
use model::base::actor::Actor;
use model::base::ids::RunId;
use model::state::retention::RetentionPolicy;

use super::*;
use crate::testing::{Backup, TestHome, append, expire, network, wide};
use crate::{Appended, Decider, Decision};

async fn push(store: &Store, serial: u64) {
    let pushed = append(store, network(), wide(40, serial));
    assert!(matches!(pushed.await.unwrap(), Appended::New(_)));
}

async fn versions(store: &Store) -> Vec<i64> {
    let versions = store.state_version_list(&network()).await.unwrap();
    versions.iter().map(|version| version.version).collect()
}

fn later() -> Timestamp {
    Timestamp::now() + SignedDuration::from_hours(1)
}

fn newest(count: usize) -> RetentionPolicy {
    RetentionPolicy {
        max_count: Some(count),
        ..RetentionPolicy::default()
    }
}

/// Everything readable, nothing damaged.
async fn check_sound(store: &Store) {
    let verified = store.state_verify(None).await.unwrap();
    assert!(verified.damages.is_empty(), "{:?}", verified.damages);
}

#[tokio::test]
async fn retention_keeps_what_the_kept_ones_need() {
    let home = TestHome::new();
    let store = home.open().await;
    for serial in 1..=40 {
        push(&store, serial).await;
    }
    let removed = expire(&store, &newest(3), Timestamp::now()).await;
    // Chains are whole at 1, 18 and 35, so 35 to 37 stay for 38.
    assert_eq!(removed.unwrap().len(), 34);
    let fresh = home.open().await;
    assert_eq!(versions(&fresh).await, [35, 36, 37, 38, 39, 40]);
    check_sound(&fresh).await;
    push(&fresh, 41).await;
    check_sound(&home.open().await).await;
}

#[tokio::test]
async fn a_pinned_version_stays() {
    let home = TestHome::new();
    let store = home.open().await;
    push(&store, 1).await;
    push(&store, 2).await;
    let empty = br#"{"version":4,"serial":3,"lineage":"l","resources":[]}"#.to_vec();
    let emptied = append(&store, network(), empty);
    emptied.await.unwrap();
    push(&store, 4).await;
    let soon = Timestamp::now() + SignedDuration::from_hours(89 * 24);
    expire(&store, &newest(1), soon).await.unwrap();
    // 3 lost its resources, 2 is the last that had them and builds on 1.
    assert_eq!(versions(&store).await, [1, 2, 3, 4]);
    assert!(
        store
            .state_version_pin(&network(), 1, Some(later()))
            .await
            .unwrap()
    );
    let late = Timestamp::now() + SignedDuration::from_hours(91 * 24);
    expire(&store, &newest(1), late).await.unwrap();
    assert_eq!(versions(&store).await, [4]);
}

#[tokio::test]
async fn a_segment_goes_when_nothing_in_it_is_needed() {
    let home = TestHome::new().with_small_segments();
    let store = home.open().await;
    for serial in 1..=60 {
        push(&store, serial).await;
    }
    let Blobs::Disk(disk) = &store.blobs else {
        panic!()
    };
    let before = disk.segments.numbers().unwrap();
    assert!(before.len() > 3, "{before:?}");
    assert_eq!(store.blobs_sweep(later()).await.unwrap().removed, 0);
    expire(&store, &newest(1), later()).await.unwrap();
    let young = Timestamp::now() - SignedDuration::from_hours(1);
    assert_eq!(store.blobs_sweep(young).await.unwrap().removed, 0);
    let swept = store.blobs_sweep(later()).await.unwrap();
    assert!(swept.removed > 0 && swept.dead_bytes > 0, "{swept:?}");
    let after = disk.segments.numbers().unwrap();
    assert_eq!(before.len() - after.len(), swept.removed);
    check_sound(&home.open().await).await;
    push(&store, 61).await;
    check_sound(&home.open().await).await;
}

/// Tables from an older backup know nothing of what came since: it is not theirs to remove.
#[tokio::test]
async fn versions_that_the_tables_do_not_know_stay() {
    let home = TestHome::new().with_small_segments();
    let store = home.open().await;
    push(&store, 1).await;
    drop(store);
    let Some(backup) = Backup::of(&home) else {
        return; // the tables are elsewhere
    };
    let store = home.open().await;
    for serial in 2..=60 {
        push(&store, serial).await;
    }
    drop(store);
    backup.restore(&home);
    let store = home.open().await;
    expire(&store, &newest(1), later()).await.unwrap();
    assert_eq!(store.blobs_sweep(later()).await.unwrap().removed, 0);
    assert_eq!(store.rebuild().await.unwrap().versions, 59);
    drop(store);
    let store = home.open().await;
    assert_eq!(versions(&store).await.len(), 60);
    check_sound(&store).await;
}

#[tokio::test]
async fn refused_pieces_go_after_their_time() {
    let home = TestHome::new();
    let store = home.open().await;
    push(&store, 2).await;
    let refused = append(&store, network(), wide(40, 1));
    refused.await.unwrap_err();
    let [refusal] = &store.refusal_list(&network()).await.unwrap()[..] else {
        panic!()
    };
    let piece = store.blobs.path(refusal.kept.as_ref().unwrap());
    assert_eq!(
        store
            .refusal_expire(Timestamp::now() - SignedDuration::from_hours(1))
            .await
            .unwrap(),
        0
    );
    assert!(piece.exists());
    assert_eq!(store.refusal_expire(later()).await.unwrap(), 1);
    store.blobs_sweep(later()).await.unwrap();
    assert!(!piece.exists());
    let left = &store.refusal_list(&network()).await.unwrap()[0];
    assert_eq!(
        (left.kept.as_ref(), left.reason.as_str()),
        (None, refusal.reason.as_str())
    );
}

#[tokio::test]
async fn what_waits_for_a_decision_does_not_go() {
    let home = TestHome::new();
    let store = home.open().await;
    let why = "its serial is not after the head's".to_owned();
    let state = network();
    let kept = store.quarantine_record(&state, RunId(7), why, wide(40, 1));
    let kept = kept.await.unwrap();
    assert_eq!(store.refusal_expire(later()).await.unwrap(), 0);
    let decider = Decider {
        actor: &Actor::named("me@here"),
        reason: "made again",
    };
    let waiting = [kept.clone()];
    let decided = store.quarantine_decide(&waiting, Decision::Discarded, decider);
    assert_eq!(decided.await.unwrap(), 1);
    let before = Timestamp::now() - SignedDuration::from_hours(1);
    assert_eq!(store.refusal_expire(before).await.unwrap(), 0);
    assert!(store.refusal_body(&kept).await.unwrap().is_some());
    assert_eq!(store.refusal_expire(later()).await.unwrap(), 1);
}
