//! How long a home keeps what it has.

use control::state::client_access::ClientAccess;
use control::state::queries;
use control::state::queries::retention_job::{RetentionReport, run_retention};
use control::state::queries::versions::versions;
use control::state::surgery;
use jiff::{SignedDuration, Timestamp};
use model::state::retention::RetentionPolicy;

use crate::states::{a, body, store, value, written};
use crate::world::World;

const DAY: SignedDuration = SignedDuration::from_hours(24);

fn newest(count: usize) -> RetentionPolicy {
    RetentionPolicy {
        max_count: Some(count),
        max_age: None,
    }
}

/// One round, as a server of this home runs it at this time.
async fn clean(world: &World, policy: &RetentionPolicy, now: Timestamp) -> RetentionReport {
    run_retention(&store(world).await, policy, now)
        .await
        .unwrap()
}

async fn many() -> (World, ClientAccess) {
    let values: Vec<String> = (1..=40).map(|it| it.to_string()).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    written(&values).await
}

#[tokio::test]
async fn old_versions_go_and_the_newest_stays() {
    let (world, _) = many().await;
    let report = clean(&world, &newest(1), Timestamp::now()).await;
    assert!(!report.versions.is_empty());
    assert_eq!(value(&world).await, "40");
}

#[tokio::test]
async fn a_version_that_went_is_no_longer_in_the_history() {
    let (world, _) = many().await;
    let report = clean(&world, &newest(1), Timestamp::now()).await;
    let left = versions(&world.control, &a(&world)).await.unwrap();
    assert_eq!(left.len(), 40 - report.versions.len());
}

#[tokio::test]
async fn what_stays_can_still_be_read_in_full() {
    let (world, _) = many().await;
    clean(&world, &newest(3), Timestamp::now()).await;
    let found = queries::integrity::verify(&world.control, None)
        .await
        .unwrap();
    assert_eq!(found.damages.len(), 0, "{:?}", found.damages);
}

#[tokio::test]
async fn without_limits_every_version_stays() {
    let (world, _) = written(&["1", "2", "3"]).await;
    let later = Timestamp::now() + DAY * 3650;
    let report = clean(&world, &RetentionPolicy::default(), later).await;
    assert!(report.versions.is_empty());
}

#[tokio::test]
async fn a_refused_body_is_kept_for_a_month() {
    let (world, client) = written(&["1", "2"]).await;
    client.write(None, body(1, "late")).await.unwrap_err();
    let number = queries::refusals(&world.control, None).await.unwrap()[0].id;
    clean(
        &world,
        &RetentionPolicy::default(),
        Timestamp::now() + DAY * 29,
    )
    .await;
    let kept = surgery::push_refused(&world.control, &a(&world), number, true).await;
    assert!(kept.is_ok());
}

#[tokio::test]
async fn a_refused_body_is_gone_after_a_month() {
    let (world, client) = written(&["1", "2"]).await;
    client.write(None, body(1, "late")).await.unwrap_err();
    let number = queries::refusals(&world.control, None).await.unwrap()[0].id;
    clean(
        &world,
        &RetentionPolicy::default(),
        Timestamp::now() + DAY * 31,
    )
    .await;
    let gone = surgery::push_refused(&world.control, &a(&world), number, true).await;
    let why = format!("there is no refused write {number} of state `demo/a`");
    assert_eq!(gone.unwrap_err().to_string(), why);
}
