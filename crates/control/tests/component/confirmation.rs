//! Confirming, discarding and rejecting: when each is possible, and what it does.

use model::base::ids::ChangeSetId;
use model::run::changeset::Action;

use crate::deciding::{refusal, world_of};
use crate::world::World;

#[tokio::test]
async fn a_finished_change_set_is_not_confirmed_again() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    world.confirm(set, "alice").await.unwrap();
    assert_eq!(
        refusal(world.confirm(set, "alice").await),
        "Refused: nothing was changed: change set `c1` is finished and cannot be confirmed"
    );
}

#[tokio::test]
async fn a_change_set_without_its_plans_is_not_confirmed() {
    let mut world = World::single().await;
    let request = world.request(Action::Apply, &[]);
    let set = world.begin(&request).await.unwrap();
    assert_eq!(
        refusal(world.confirm(set, "alice").await),
        "Refused: nothing was changed: change set `c1` is planning and cannot be confirmed"
    );
}

#[tokio::test]
async fn an_applying_change_set_is_not_confirmed_again() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    world.confirm_only(set).await.unwrap();
    assert_eq!(
        refusal(world.confirm_only(set).await),
        "Refused: nothing was changed: change set `c1` is applying and cannot be confirmed"
    );
}

#[tokio::test]
async fn a_queued_change_set_is_not_confirmed_again() {
    let mut world = World::single().await;
    let (first, second) = (world.apply(&[]).await, world.apply(&[]).await);
    world.confirm_only(first).await.unwrap();
    world.confirm_only(second).await.unwrap();
    assert_eq!(
        refusal(world.confirm_only(second).await),
        "Refused: nothing was changed: change set `c2` is queued and cannot be confirmed"
    );
}

#[tokio::test]
async fn a_discarded_change_set_is_not_confirmed() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    world.discard(set).await.unwrap();
    assert_eq!(
        refusal(world.confirm(set, "alice").await),
        "Refused: nothing was changed: change set `c1` is stopped and cannot be confirmed"
    );
}

#[tokio::test]
async fn a_plan_is_nothing_to_confirm() {
    let mut world = World::single().await;
    let set = world.plan(&[]).await;
    assert_eq!(
        refusal(world.confirm(set, "alice").await),
        "Refused: nothing was changed: change set `c1` is finished and cannot be confirmed"
    );
}

#[tokio::test]
async fn an_unknown_change_set_is_not_confirmed() {
    let mut world = World::single().await;
    let set = world.plan(&[]).await;
    let unknown = ChangeSetId(set.0 + 1);
    assert_eq!(
        refusal(world.confirm_as(unknown, "alice").await),
        "NotFound: there is no change set `c2`"
    );
}

#[tokio::test]
async fn a_discarded_change_set_applies_nothing() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    world.discard(set).await.unwrap();
    assert_eq!(world.summary(set).await, "stopped: a skipped");
}

#[tokio::test]
async fn a_discarded_change_set_shows_by_whom_and_why() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    world.discard(set).await.unwrap();
    assert_eq!(world.why(set).await, "discarded by `bob`: not today");
}

#[tokio::test]
async fn a_change_set_is_discarded_while_it_is_planned() {
    let mut world = World::single().await;
    let request = world.request(Action::Apply, &[]);
    let set = world.begin(&request).await.unwrap();
    world.discard(set).await.unwrap();
    assert_eq!(world.summary(set).await, "stopped: a skipped");
}

#[tokio::test]
async fn a_queued_change_set_is_discarded() {
    let mut world = World::single().await;
    let (first, second) = (world.apply(&[]).await, world.apply(&[]).await);
    world.confirm_only(first).await.unwrap();
    world.confirm_only(second).await.unwrap();
    world.discard(second).await.unwrap();
    assert_eq!(world.summary(second).await, "stopped: a skipped");
}

#[tokio::test]
async fn an_applying_change_set_is_not_discarded() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    world.confirm_only(set).await.unwrap();
    assert_eq!(
        refusal(world.discard(set).await),
        "Refused: nothing was changed: change set `c1` is applying and cannot be discarded"
    );
}

#[tokio::test]
async fn a_finished_change_set_is_not_discarded() {
    let mut world = World::single().await;
    let set = world.auto_apply(&[]).await;
    assert_eq!(
        refusal(world.discard(set).await),
        "Refused: nothing was changed: change set `c1` is finished and cannot be discarded"
    );
}

#[tokio::test]
async fn a_change_set_is_discarded_only_once() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    world.discard(set).await.unwrap();
    assert_eq!(
        refusal(world.discard(set).await),
        "Refused: nothing was changed: change set `c1` is stopped and cannot be discarded"
    );
}

#[tokio::test]
async fn a_rejected_change_set_applies_nothing() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    world.reject(set).await.unwrap();
    assert_eq!(world.summary(set).await, "stopped: a skipped");
}

#[tokio::test]
async fn a_rejected_change_set_shows_by_whom_and_why() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    world.reject(set).await.unwrap();
    assert_eq!(world.why(set).await, "rejected by `bob`: not today");
}

#[tokio::test]
async fn a_queued_change_set_is_rejected() {
    let mut world = World::single().await;
    let (first, second) = (world.apply(&[]).await, world.apply(&[]).await);
    world.confirm_only(first).await.unwrap();
    world.confirm_only(second).await.unwrap();
    world.reject(second).await.unwrap();
    assert_eq!(world.summary(second).await, "stopped: a skipped");
}

#[tokio::test]
async fn an_applying_change_set_is_not_rejected() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    world.confirm_only(set).await.unwrap();
    assert_eq!(
        refusal(world.reject(set).await),
        "Refused: nothing was changed: change set `c1` is applying and cannot be rejected"
    );
}

#[tokio::test]
async fn a_finished_change_set_is_not_rejected() {
    let mut world = World::single().await;
    let set = world.auto_apply(&[]).await;
    assert_eq!(
        refusal(world.reject(set).await),
        "Refused: nothing was changed: change set `c1` is finished and cannot be rejected"
    );
}

#[tokio::test]
async fn what_was_applied_before_a_rejection_stays() {
    let mut world = world_of("", &[("a", ""), ("b", "")]).await;
    let set = world.apply(&[]).await;
    world.hold("b").await;
    world.confirm(set, "alice").await.unwrap();
    world.reject(set).await.unwrap();
    assert_eq!(world.summary(set).await, "stopped: a applied, b skipped");
}

#[tokio::test]
async fn a_confirmed_plan_is_applied_although_the_source_changed_since() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    world.set_resource("a", "2");
    world.confirm(set, "alice").await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied");
}

#[tokio::test]
async fn the_change_of_the_source_after_a_plan_is_planned_next() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    world.set_resource("a", "2");
    world.confirm(set, "alice").await.unwrap();
    let next = world.apply(&[]).await;
    assert_eq!(
        world.summary(next).await,
        "awaiting confirmation: a planned"
    );
}

#[tokio::test]
async fn a_stack_that_applies_by_itself_needs_no_confirmation() {
    let mut world = world_of("", &[("a", "apply = \"auto\"")]).await;
    let set = world.apply(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a applied");
}

#[tokio::test]
async fn a_stack_that_applies_by_itself_waits_for_the_confirmation_of_another() {
    let mut world = world_of("", &[("a", "apply = \"auto\""), ("b", "")]).await;
    let set = world.apply(&[]).await;
    assert_eq!(
        world.summary(set).await,
        "awaiting confirmation: a planned, b planned"
    );
}

#[tokio::test]
async fn a_destroy_asks_although_the_stack_applies_by_itself() {
    let mut world = world_of("", &[("a", "apply = \"auto\"")]).await;
    world.apply(&[]).await;
    let request = world.request(Action::Destroy, &[]);
    let set = world.start(&request).await;
    assert_eq!(world.summary(set).await, "awaiting confirmation: a planned");
}

#[tokio::test]
async fn a_confirmed_destroy_destroys() {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    let request = world.request(Action::Destroy, &[]);
    let set = world.start(&request).await;
    world.confirm(set, "alice").await.unwrap();
    let next = world.plan(&[]).await;
    assert_eq!(world.summary(next).await, "finished: a planned");
}

#[tokio::test]
async fn a_destroy_that_is_confirmed_in_advance_asks_nothing() {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    let set = world.destroy(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a applied");
}

#[tokio::test]
async fn a_destroy_of_what_was_never_applied_finds_nothing_to_do() {
    let mut world = World::single().await;
    let request = world.request(Action::Destroy, &[]);
    let set = world.start(&request).await;
    assert_eq!(world.summary(set).await, "finished: a unchanged");
}

#[tokio::test]
async fn an_apply_without_changes_asks_nothing() {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    let set = world.apply(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a unchanged");
}

#[tokio::test]
async fn a_plan_applies_nothing_although_it_is_confirmed_in_advance() {
    let mut world = World::single().await;
    let request = world.auto_request(Action::Plan, &[]);
    let set = world.start(&request).await;
    assert_eq!(world.summary(set).await, "finished: a planned");
}
