//! Back to an older version of a state, and what follows from it.

use control::state::surgery::{self, RollbackTarget};
use jiff::Timestamp;
use model::base::error::Explain as _;
use model::state::VersionMark;

use crate::states::{a, body, damage, lock, open_again, reason, roll_back, value, written, wrote};
use crate::world::World;

async fn refused(world: &World, to: RollbackTarget) -> String {
    let proposal = surgery::rollback(&world.control, &a(world), to).await;
    proposal.unwrap_err().to_string()
}

#[tokio::test]
async fn a_rollback_gives_the_older_content_the_next_serial() {
    let (world, _) = written(&["1", "2"]).await;
    let version = roll_back(&world, 1).await;
    assert_eq!(
        (version.serial, version.mark),
        (3, Some(VersionMark::RolledBack))
    );
    assert_eq!(value(&world).await, "1");
}

#[tokio::test]
async fn a_rollback_to_a_time_takes_the_newest_version_of_then() {
    let (world, _) = written(&["1", "2", "3"]).await;
    let versions = control::state::queries::versions::versions(&world.control, &a(&world)).await;
    let then = RollbackTarget::Time(versions.unwrap()[1].version.created_at);
    let proposal = surgery::rollback(&world.control, &a(&world), then).await;
    assert_eq!(proposal.unwrap().older, Some(2));
}

#[tokio::test]
async fn a_rollback_to_the_newest_version_is_refused() {
    let (world, _) = written(&["1"]).await;
    let why = refused(&world, RollbackTarget::Version(1)).await;
    assert_eq!(why, "version 1 is already the newest of state `demo/a`");
}

#[tokio::test]
async fn a_rollback_to_an_unknown_version_is_refused() {
    let (world, _) = written(&["1"]).await;
    let why = refused(&world, RollbackTarget::Version(5)).await;
    assert_eq!(why, "state `demo/a` has no version 5");
}

#[tokio::test]
async fn a_rollback_to_a_time_before_the_state_is_refused() {
    let (world, _) = written(&["1"]).await;
    let why = refused(&world, RollbackTarget::Time(Timestamp::UNIX_EPOCH)).await;
    assert!(
        why.starts_with("state `demo/a` had no version on 1970-01-01"),
        "{why}"
    );
}

#[tokio::test]
async fn a_proposal_names_what_would_change_and_no_values() {
    let (world, _) = written(&["one", "two"]).await;
    let to = RollbackTarget::Version(1);
    let proposal = surgery::rollback(&world.control, &a(&world), to)
        .await
        .unwrap();
    let summary = proposal.summary.unwrap();
    assert_eq!(summary.changed[0].attributes, ["value"]);
    assert!(!format!("{summary:?}").contains("one"));
}

#[tokio::test]
async fn a_proposal_that_is_not_carried_out_changes_nothing() {
    let (world, _) = written(&["1", "2"]).await;
    let to = RollbackTarget::Version(1);
    surgery::rollback(&world.control, &a(&world), to)
        .await
        .unwrap();
    assert_eq!(value(&world).await, "2");
}

#[tokio::test]
async fn a_rollback_that_was_shown_for_another_version_is_not_carried_out() {
    let (world, client) = written(&["1", "2"]).await;
    let to = RollbackTarget::Version(1);
    let proposal = surgery::rollback(&world.control, &a(&world), to)
        .await
        .unwrap();
    client.write(None, body(3, "3")).await.unwrap();
    let done = surgery::carry_out(&world.control, proposal, &reason("late")).await;
    assert_eq!(
        done.unwrap_err().to_string(),
        "state `demo/a` has changed in the meantime"
    );
    assert_eq!(value(&world).await, "3");
}

#[tokio::test]
async fn a_locked_state_is_not_rolled_back() {
    let (world, client) = written(&["1", "2"]).await;
    let to = RollbackTarget::Version(1);
    let proposal = surgery::rollback(&world.control, &a(&world), to)
        .await
        .unwrap();
    client.lock(&lock("x")).await.unwrap();
    let done = surgery::carry_out(&world.control, proposal, &reason("late")).await;
    let refused = done.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "state `demo/a` is locked by bob@laptop (apply), lock `x`"
    );
    assert_eq!(refused.next_steps().len(), 2);
}

#[tokio::test]
async fn a_rollback_leaves_the_state_unlocked() {
    let (world, client) = written(&["1", "2"]).await;
    roll_back(&world, 1).await;
    client.lock(&lock("x")).await.unwrap();
}

#[tokio::test]
async fn a_deleted_state_comes_back_by_a_rollback() {
    let (mut world, client) = written(&["1"]).await;
    client.delete(None).await.unwrap();
    let version = roll_back(&world, 1).await;
    assert_eq!(version.serial, 2);
    let set = world.plan(&[]).await;
    assert_eq!(
        world.summary(set).await,
        "finished: a planned",
        "only the output is new"
    );
}

#[tokio::test]
async fn the_next_apply_changes_back_what_a_rollback_forgot() {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    world.script("a", &serde_json::json!({"resources": {"r": "2"}}));
    world.auto_apply(&[]).await;
    roll_back(&world, 1).await;
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a applied");
    assert_eq!(value(&world).await, "2");
}

#[tokio::test]
async fn a_plan_from_before_a_rollback_is_not_applied() {
    let (mut world, _) = written(&["x", "y"]).await;
    let set = world.apply(&[]).await;
    roll_back(&world, 1).await;
    world.confirm(set, "alice").await.unwrap();
    assert_eq!(value(&world).await, "x");
    let why = world.problem(set, "a").await.message;
    let moved =
        "this plan may no longer be applied: the state moved after it was made (serial 2, now 3)";
    assert_eq!(why.lines().next(), Some(moved));
    assert_eq!(
        why.lines().nth(1),
        Some("serial 3 was written by `alice` less than a minute ago")
    );
}

#[tokio::test]
async fn a_rollback_can_be_taken_back() {
    let (world, _) = written(&["1", "2"]).await;
    roll_back(&world, 1).await;
    roll_back(&world, 2).await;
    assert_eq!(value(&world).await, "2");
}

#[tokio::test]
async fn a_serial_selects_one_version() {
    let (world, _) = written(&["1", "2", "3"]).await;
    let to = RollbackTarget::Serial(2);
    let proposal = surgery::rollback(&world.control, &a(&world), to)
        .await
        .unwrap();
    let done = surgery::carry_out(&world.control, proposal, &reason("it was wrong")).await;
    assert_eq!(wrote(done).serial, 4);
    assert_eq!(value(&world).await, "2");
}

#[tokio::test]
async fn a_newest_version_that_cannot_be_read_is_replaced_by_a_rollback() {
    let (mut world, _) = written(&["1", "2"]).await;
    damage(&world);
    open_again(&mut world).await;
    let to = RollbackTarget::Version(1);
    let proposal = surgery::rollback(&world.control, &a(&world), to)
        .await
        .unwrap();
    assert!(proposal.unread.is_some() && proposal.summary.is_none());
    surgery::carry_out(&world.control, proposal, &reason("a broken disk"))
        .await
        .unwrap();
    assert_eq!(value(&world).await, "1");
}

#[tokio::test]
async fn a_state_that_cannot_be_read_is_not_planned_as_empty() {
    let (mut world, _) = written(&["1", "2"]).await;
    damage(&world);
    open_again(&mut world).await;
    let set = world.plan(&[]).await;
    assert_eq!(world.summary(set).await, "stopped: a failed");
}
