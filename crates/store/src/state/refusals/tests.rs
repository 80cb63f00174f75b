//! Whoever goes on sending what is refused fills no disk, and the last thing it sent is kept.

use jiff::SignedDuration;
use model::state::retention::REFUSED_COUNT;

use super::*;
use crate::testing::{TestHome, body, network};

async fn refuse(store: &Store, body: Option<Vec<u8>>) -> RefusedRequest {
    let refused = NewRefusal {
        state: &network(),
        method: "POST",
        reason: "locked".to_owned(),
        run: None,
        lock_id: None,
        body,
    };
    store.refusal_record(refused).await.unwrap()
}

fn pieces(home: &TestHome) -> usize {
    let dirs = std::fs::read_dir(home.path().join("home/refused")).unwrap();
    dirs.map(|dir| std::fs::read_dir(dir.unwrap().path()).unwrap().count())
        .sum()
}

#[tokio::test]
async fn equal_bodies_are_kept_once() {
    let home = TestHome::new();
    let store = home.open().await;
    let first = refuse(&store, Some(body(1))).await;
    let again = refuse(&store, Some(body(1))).await;
    let other = refuse(&store, Some(body(2))).await;
    assert_eq!(first.kept, again.kept);
    assert_ne!(first.kept, other.kept);
    assert_eq!(store.refusal_body(&again).await.unwrap(), Some(body(1)));
    assert_eq!(store.refusal_body(&other).await.unwrap(), Some(body(2)));
}

#[tokio::test]
async fn the_newest_are_kept_and_the_rest_is_said_to_be_gone() {
    let home = TestHome::new();
    let store = home.open().await;
    let mut all = Vec::new();
    for serial in 1..=REFUSED_COUNT as u64 + 3 {
        all.push(refuse(&store, Some(body(serial))).await);
    }
    let verified = store.state_verify(None).await.unwrap();
    assert_eq!(verified.refused.len(), REFUSED_COUNT);
    assert_eq!(verified.let_go.get(&network()), Some(&3));
    let newest = all.last().unwrap();
    assert!(store.refusal_body(newest).await.unwrap().is_some());
    let oldest = store.refusal_get(all[0].id).await.unwrap().unwrap();
    assert_eq!(oldest.kept, None);
    assert!(oldest.let_go.is_some());
    // No sweeper has come yet, and to a home without a server none does.
    if home.path().join("home/refused").exists() {
        assert_eq!(pieces(&home), REFUSED_COUNT);
    }
}

#[tokio::test]
async fn what_was_let_go_of_just_now_is_kept_when_it_comes_again() {
    let home = TestHome::new();
    let store = home.open().await;
    let first = refuse(&store, Some(body(1))).await;
    let later = Timestamp::now() + SignedDuration::from_hours(1);
    assert_eq!(store.refusal_expire(later).await.unwrap(), 1);
    let again = refuse(&store, Some(body(1))).await;
    store.blobs_sweep(later).await.unwrap();
    assert_eq!(store.refusal_body(&again).await.unwrap(), Some(body(1)));
    let first = store.refusal_get(first.id).await.unwrap().unwrap();
    assert_eq!(first.kept, None);
}

#[tokio::test]
async fn reasons_do_not_pile_up_either() {
    let home = TestHome::new();
    let store = home.open().await;
    let kept = refuse(&store, Some(body(1))).await;
    for _ in 0..1005 {
        refuse(&store, None).await;
    }
    assert_eq!(store.refusals_forget().await.unwrap(), 5);
    assert_eq!(store.refusals_forget().await.unwrap(), 0);
    let left = store.refusal_list(&network()).await.unwrap();
    assert_eq!(left.len(), 1001);
    assert_eq!(left[0].id, kept.id);
}
