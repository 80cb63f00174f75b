//! Plans other than the usual: only a refresh, from an older state, without a state, of a destroy.

use control::changeset::prepare::ChangeSetRequest;
use model::base::ids::ChangeSetId;
use model::plan::PlanCounts;
use model::run::changeset::Action;
use model::run::{Outcome, RunState};
use serde_json::json;

use crate::world::World;

/// An applied stack whose resource became `9` outside.
async fn drifted() -> World {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    world.script(
        "a",
        &json!({"resources": {"r": "1"}, "outputs": {"id": "@r"}, "drift": {"r": "9"}}),
    );
    world
}

async fn refresh(world: &mut World, action: Action) -> ChangeSetId {
    let request = world.request(action, &[]);
    world
        .start(&ChangeSetRequest {
            refresh_only: true,
            auto_approve: true,
            ..request
        })
        .await
}

async fn counts(world: &World, set: ChangeSetId) -> PlanCounts {
    match world.run(set, "a").await.state {
        RunState::Finished {
            outcome: Outcome::Planned { plan },
            ..
        } => plan.counts,
        state => panic!("not planned: {state:?}"),
    }
}

#[tokio::test]
async fn a_refresh_shows_what_changed_outside() {
    let mut world = drifted().await;
    let set = refresh(&mut world, Action::Plan).await;
    assert_eq!(world.summary(set).await, "finished: a planned");
    assert_eq!(world.serial("a").await, 1);
}

#[tokio::test]
async fn a_refresh_without_a_change_outside_is_unchanged() {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    let set = refresh(&mut world, Action::Plan).await;
    assert_eq!(world.summary(set).await, "finished: a unchanged");
}

#[tokio::test]
async fn an_applied_refresh_stores_what_changed_outside() {
    let mut world = drifted().await;
    let set = refresh(&mut world, Action::Apply).await;
    assert_eq!(world.summary(set).await, "finished: a applied");
    assert_eq!(world.serial("a").await, 2);
    // The stored value is the one from outside, so the source's own value is a change now.
    let set = world.plan(&[]).await;
    assert_eq!(counts(&world, set).await.update, 1);
}

#[tokio::test]
async fn a_refresh_does_not_apply_the_source() {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    world.script(
        "a",
        &json!({"resources": {"r": "2", "s": "2"}, "outputs": {"id": "@r"}}),
    );
    let set = refresh(&mut world, Action::Apply).await;
    assert_eq!(world.summary(set).await, "finished: a unchanged");
    assert_eq!(world.serial("a").await, 1);
}

#[tokio::test]
async fn a_plan_from_an_older_state_sees_that_state() {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    let older = world.head("a").await.unwrap().version;
    world.script(
        "a",
        &json!({"resources": {"r": "2"}, "outputs": {"id": "@r"}}),
    );
    world.auto_apply(&[]).await;
    let request = world.request(Action::Plan, &[]);
    let set = world
        .start(&ChangeSetRequest {
            pinned: Some(older),
            ..request
        })
        .await;
    assert_eq!(counts(&world, set).await.update, 1);
    let set = world.plan(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a unchanged");
}

#[tokio::test]
async fn a_plan_without_state_shows_everything_as_new() {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    let mut request = world.request(Action::Plan, &[]);
    request.no_state = true;
    let set = world.start(&request).await;
    assert_eq!(counts(&world, set).await.create, 1);
}

#[tokio::test]
async fn a_plan_without_state_needs_no_upstream_that_is_applied() {
    let mut world = World::chain(&["a", "b"]).await;
    let mut request = world.request(Action::Plan, &["b"]);
    request.no_state = true;
    let set = world.start(&request).await;
    assert_eq!(world.summary(set).await, "finished: b planned");
}

#[tokio::test]
async fn a_plan_of_a_destroy_changes_nothing() {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    let mut request = world.request(Action::Plan, &[]);
    request.destroy = true;
    let set = world.start(&request).await;
    assert_eq!(counts(&world, set).await.delete, 1);
    assert_eq!(world.serial("a").await, 1);
}

#[tokio::test]
async fn a_plan_of_a_destroy_of_what_was_never_applied_is_unchanged() {
    let mut world = World::single().await;
    let mut request = world.request(Action::Plan, &[]);
    request.destroy = true;
    let set = world.start(&request).await;
    assert_eq!(world.summary(set).await, "finished: a unchanged");
}

#[tokio::test]
async fn a_destroy_of_what_was_destroyed_is_unchanged() {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    world.destroy(&[]).await;
    let set = world.destroy(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a unchanged");
}
