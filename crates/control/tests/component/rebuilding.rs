//! A home that lost its database, its newest versions, or its key.

use std::path::PathBuf;

use control::home::master_keys::{self, KeySource, KeysError};
use control::home::{Home, HomeLocation};
use control::state::queries;
use control::state::queries::recover::{AcceptedLoss, HomeRebuild, RebuildError, into_home};
use control::{Control, ProcessKind};

use crate::states::{a, body, client, damage, home, open_acts, open_again, reason, value, written};
use crate::world::World;

/// Only the files of the versions and the key are left.
fn lose_database(world: &World) {
    let home = world.root().with_file_name("home");
    for name in ["terrane.db", "terrane.db-wal", "terrane.db-shm"] {
        drop(std::fs::remove_file(home.join(name)));
    }
}

async fn rebuild(world: &World, accepted: &[AcceptedLoss]) -> Result<HomeRebuild, RebuildError> {
    let why = reason("the disk died");
    into_home(&world.control.home, accepted, Some(&why)).await
}

#[tokio::test]
async fn a_home_without_its_database_gets_its_states_back_from_the_files() {
    let (mut world, _) = written(&["1", "2"]).await;
    lose_database(&world);
    let done = rebuild(&world, &[]).await.unwrap().rebuilt;
    assert_eq!(
        (done.states.len(), done.versions, done.lost.len()),
        (1, 2, 0)
    );
    open_again(&mut world).await;
    assert_eq!(value(&world).await, "2");
}

#[tokio::test]
async fn a_stack_continues_in_a_rebuilt_home() {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    lose_database(&world);
    rebuild(&world, &[]).await.unwrap();
    open_again(&mut world).await;
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a unchanged");
}

#[tokio::test]
async fn a_whole_home_is_rebuilt_into_itself() {
    let (world, _) = written(&["1", "2"]).await;
    let done = rebuild(&world, &[]).await.unwrap().rebuilt;
    assert_eq!((done.versions, done.lost.len()), (0, 0));
    assert_eq!(value(&world).await, "2");
}

#[tokio::test]
async fn a_home_is_not_rebuilt_without_its_key() {
    let (world, _) = written(&["1"]).await;
    let refused = into_home(&home(&world, "gone"), &[], None)
        .await
        .unwrap_err();
    assert!(matches!(refused, RebuildError::NoKey { .. }), "{refused}");
    assert!(!world.root().with_file_name("gone").exists());
}

#[tokio::test]
async fn a_home_that_does_not_exist_is_not_rebuilt() {
    let world = World::single().await;
    let nowhere = world.root().with_file_name("nowhere");
    let key = KeySource::File(world.root().with_file_name("key"));
    let place = HomeLocation::Directory(nowhere.clone());
    let home = Home::at(place, nowhere.clone(), key, "demo".to_owned());
    let refused = into_home(&home, &[], None).await.unwrap_err();
    assert!(matches!(refused, RebuildError::NoHome { .. }), "{refused}");
    assert!(!nowhere.exists());
}

#[tokio::test]
async fn nothing_is_given_up_where_nothing_is_lost() {
    let (world, _) = written(&["1", "2"]).await;
    let refused = rebuild(&world, &[loss(1)]).await.unwrap_err();
    assert_eq!(refused.to_string(), "state `a` has no lost version");
}

fn loss(version: i64) -> AcceptedLoss {
    AcceptedLoss {
        state: "a".to_owned(),
        version,
    }
}

#[tokio::test]
async fn a_newest_version_that_cannot_be_read_is_reported_as_lost() {
    let (world, _) = written(&["1", "2"]).await;
    damage(&world);
    lose_database(&world);
    let done = rebuild(&world, &[]).await.unwrap().rebuilt;
    assert_eq!((done.lost[0].acknowledged, done.lost[0].readable), (2, 1));
}

#[tokio::test]
async fn a_person_continues_from_an_older_version_on_the_record() {
    let (mut world, _) = written(&["1", "2"]).await;
    damage(&world);
    lose_database(&world);
    let done = rebuild(&world, &[loss(1)]).await.unwrap();
    assert_eq!(done.went_on.len(), 1);
    open_again(&mut world).await;
    assert_eq!(value(&world).await, "1");
    assert_eq!(
        open_acts(&world).await[0].reason.as_deref(),
        Some("the disk died")
    );
}

#[tokio::test]
async fn a_version_after_a_loss_has_a_serial_that_no_lost_version_had() {
    let (world, _) = written(&["1", "2"]).await;
    damage(&world);
    lose_database(&world);
    let done = rebuild(&world, &[loss(1)]).await.unwrap();
    let version = &done.went_on[0];
    assert!(version.serial > 2 && version.version > 2, "{version:?}");
}

#[tokio::test]
async fn states_are_read_and_written_after_the_master_key_was_rotated() {
    let (mut world, _) = written(&["1"]).await;
    master_keys::rotate(&world.control, None).await.unwrap();
    open_again(&mut world).await;
    assert_eq!(value(&world).await, "1");
    let client = client(&world, "later", model::state::token::TokenScope::Write).await;
    client.write(None, body(2, "2")).await.unwrap();
    assert_eq!(value(&world).await, "2");
}

#[tokio::test]
async fn after_a_rotation_only_the_new_key_wraps_data_keys() {
    let (mut world, _) = written(&["1"]).await;
    let old = master_keys::list(&world.control).await.unwrap().remove(0);
    let rotated = master_keys::rotate(&world.control, None).await.unwrap();
    assert_eq!(
        (rotated.old, rotated.rewrapped),
        (vec![old.id], old.data_keys)
    );
    open_again(&mut world).await;
    let keys = master_keys::list(&world.control).await.unwrap();
    assert_eq!(
        (keys[0].id.as_str(), keys[0].wraps),
        (rotated.new.as_str(), true)
    );
    assert_eq!(keys[1].data_keys, 0);
}

#[tokio::test]
async fn the_key_in_use_is_not_the_place_for_a_new_one() {
    let (world, _) = written(&["1"]).await;
    let copy = world.root().with_file_name("copy");
    std::fs::copy(world.root().with_file_name("key"), &copy).unwrap();
    let refused = master_keys::rotate(&world.control, Some(&copy)).await;
    assert!(matches!(refused, Err(KeysError::InUse { .. })));
}

#[tokio::test]
async fn a_home_with_states_is_not_opened_without_its_key() {
    let (world, _) = written(&["1"]).await;
    let cache = world.control.cache.clone();
    let opened = Control::open(
        home(&world, "gone"),
        ProcessKind::Client,
        PathBuf::new(),
        cache,
    )
    .await;
    let refused = opened.unwrap_err().to_string();
    assert!(
        refused.contains("contains states sealed with it"),
        "{refused}"
    );
    assert!(!world.root().with_file_name("gone").exists());
}

#[tokio::test]
async fn verification_of_a_rebuilt_home_finds_no_damage() {
    let (mut world, _) = written(&["1", "2"]).await;
    lose_database(&world);
    rebuild(&world, &[]).await.unwrap();
    open_again(&mut world).await;
    let found = queries::integrity::verify(&world.control, Some(&a(&world)))
        .await
        .unwrap();
    assert_eq!((found.versions, found.damages.len()), (2, 0));
}
