//! From a request to applied stacks: order, confirmation, what is not planned, what fails.

use model::run::changeset::Action;
use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn an_apply_waits_for_a_confirmation_and_then_applies() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    assert_eq!(world.summary(set).await, "awaiting confirmation: a planned");
    assert_eq!(world.serial("a").await, 0);
    world.confirm(set, "alice").await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied");
    assert_eq!(world.serial("a").await, 1);
}

#[tokio::test]
async fn a_plan_changes_nothing() {
    let mut world = World::single().await;
    let set = world.plan(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a planned");
    assert_eq!(world.serial("a").await, 0);
}

#[tokio::test]
async fn dependents_get_the_values_of_their_upstreams() {
    let mut world = World::chain(&["a", "b", "c"]).await;
    let set = world.auto_apply(&[]).await;
    assert_eq!(
        world.summary(set).await,
        "finished: a applied, b applied, c applied"
    );
}

#[tokio::test]
async fn a_second_apply_changes_nothing() {
    let mut world = World::chain(&["a", "b"]).await;
    world.auto_apply(&[]).await;
    let set = world.auto_apply(&[]).await;
    assert_eq!(
        world.summary(set).await,
        "finished: a unchanged, b untouched"
    );
}

#[tokio::test]
async fn dependents_of_a_failed_stack_are_skipped() {
    let mut world = World::chain(&["a", "b"]).await;
    world.script(
        "a",
        &json!({"resources": {"r": "1"}, "outputs": {"id": "@r"}, "apply_error_at": "r"}),
    );
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "stopped: a failed, b skipped");
}

#[tokio::test]
async fn a_destroy_removes_dependents_first() {
    let mut world = World::chain(&["a", "b"]).await;
    world.auto_apply(&[]).await;
    let request = world.request(Action::Destroy, &["a"]);
    let refused = world.begin(&request).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "stack `b` still depends on `a`: it is applied, and not part of this destroy"
    );
    let set = world.destroy(&[]).await;
    assert_eq!(world.summary(set).await, "finished: b applied, a applied");
}
