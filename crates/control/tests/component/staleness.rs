//! Plans that no longer fit, what a resume finds, and which stacks have nothing to plan.

use control::changeset::prepare::{self, ChangeSetRequest};
use model::base::error::Explain as _;
use model::base::ids::ChangeSetId;
use model::run::changeset::{Action, Reopen};
use serde_json::json;

use crate::deciding::{no_start, world_of};
use crate::world::World;

#[tokio::test]
async fn a_plan_is_not_applied_after_the_state_moved() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    world.auto_apply(&[]).await;
    world.confirm(set, "alice").await.unwrap();
    assert_eq!(world.summary(set).await, "stopped: a failed");
}

#[tokio::test]
async fn a_plan_that_no_longer_fits_names_what_changed() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    world.auto_apply(&[]).await;
    world.confirm(set, "alice").await.unwrap();
    assert_eq!(
        world.why_run(set, "a").await,
        "this plan may no longer be applied: the state moved after it was made (no state, now serial 1)"
    );
}

#[tokio::test]
async fn a_stale_plan_changes_nothing() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    world.auto_apply(&[]).await;
    world.confirm(set, "alice").await.unwrap();
    assert_eq!(world.serial("a").await, 1);
}

#[tokio::test]
async fn a_resume_plans_a_stale_stack_again() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    world.auto_apply(&[]).await;
    world.confirm(set, "alice").await.unwrap();
    world.resume(set, false).await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a unchanged");
}

#[tokio::test]
async fn a_dependent_whose_value_stays_the_same_is_unchanged() {
    let mut world = applied_chain().await;
    world.script(
        "a",
        &json!({"resources": {"r": "!2"}, "outputs": {"id": "@r"}}),
    );
    let set = world.apply(&[]).await;
    world.confirm(set, "alice").await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied, b unchanged");
}

#[tokio::test]
async fn a_discarded_change_set_is_not_resumed_without_its_name() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    world.discard(set).await.unwrap();
    assert_eq!(
        world.newest_stopped().await,
        "NotFound: nothing to resume: no change set is stopped"
    );
}

#[tokio::test]
async fn a_change_set_that_awaits_confirmation_is_confirmed_and_not_resumed() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    let refused = world.resume(set, false).await.unwrap_err();
    assert_eq!(
        refused.next_steps()[0].to_string(),
        "`terrane run confirm c1` applies it"
    );
}

#[tokio::test]
async fn a_change_set_that_does_not_exist_is_not_resumed() {
    let mut world = World::single().await;
    let unknown = ChangeSetId(9);
    assert_eq!(
        no_start(world.resume(unknown, false).await),
        "NotFound: there is no change set `c9`"
    );
}

#[tokio::test]
async fn a_newer_change_set_that_awaits_confirmation_hides_a_stopped_one() {
    let mut world = World::single().await;
    world.script(
        "a",
        &json!({"resources": {"r": "1"}, "apply_error_at": "r"}),
    );
    world.auto_apply(&[]).await;
    world.apply(&[]).await;
    assert_eq!(
        world.newest_stopped().await,
        "Refused: change set c2 awaits confirmation and is newer than the stopped change set c1"
    );
}

#[tokio::test]
async fn without_a_stopped_change_set_the_one_that_waits_is_named() {
    let mut world = World::single().await;
    world.apply(&[]).await;
    assert_eq!(
        world.newest_stopped().await,
        "Refused: there is no stopped change set to resume; change set c1 awaits confirmation"
    );
}

/// Stacks `a` and `b`, both applied; `b` takes the output `id` of `a`.
async fn applied_chain() -> World {
    let mut world = World::chain(&["a", "b"]).await;
    world.auto_apply(&[]).await;
    world
}

#[tokio::test]
async fn a_dependent_that_is_named_is_planned_in_any_case() {
    let mut world = applied_chain().await;
    let request = world.auto_request(Action::Apply, &[]);
    let set = world
        .start(&ChangeSetRequest {
            in_any_case: request.stacks.clone(),
            ..request
        })
        .await;
    assert_eq!(
        world.summary(set).await,
        "finished: a unchanged, b unchanged"
    );
}

#[tokio::test]
async fn a_dependent_whose_source_changed_is_planned() {
    let mut world = applied_chain().await;
    world.script("b", &json!({"resources": {"r": "${var.up}-x"}}));
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a unchanged, b applied");
}

#[tokio::test]
async fn a_dependent_is_applied_if_the_value_that_it_takes_changes() {
    let mut world = applied_chain().await;
    world.script(
        "a",
        &json!({"resources": {"r": "1"}, "outputs": {"id": "another"}}),
    );
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a applied, b applied");
}

#[tokio::test]
async fn a_dependent_catches_up_with_an_upstream_that_was_applied_alone() {
    let mut world = applied_chain().await;
    world.script(
        "a",
        &json!({"resources": {"r": "1"}, "outputs": {"id": "another"}}),
    );
    world.auto_apply(&["a"]).await;
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a unchanged, b applied");
}

#[tokio::test]
async fn a_stack_that_comes_after_another_is_planned_if_that_one_changed() {
    let mut world = world_of("", &[("a", ""), ("b", "after = [stack.a]")]).await;
    world.auto_apply(&[]).await;
    world.set_resource("a", "2");
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a applied, b unchanged");
}

#[tokio::test]
async fn a_stack_that_comes_after_an_unchanged_one_is_untouched() {
    let mut world = world_of("", &[("a", ""), ("b", "after = [stack.a]")]).await;
    world.auto_apply(&[]).await;
    let set = world.auto_apply(&[]).await;
    assert_eq!(
        world.summary(set).await,
        "finished: a unchanged, b untouched"
    );
}

#[tokio::test]
async fn a_dependent_that_takes_a_value_of_the_environment_is_always_planned() {
    let lines = "after = [stack.a]\n inputs = { v = env(\"V\") }";
    let mut world = world_of("", &[("a", ""), ("b", lines)]).await;
    world.set_resource("b", "${var.v}");
    world.env.insert("V".to_owned(), "1".to_owned());
    world.auto_apply(&[]).await;
    let set = world.auto_apply(&[]).await;
    assert_eq!(
        world.summary(set).await,
        "finished: a unchanged, b unchanged"
    );
}

#[tokio::test]
async fn a_destroyed_dependent_is_planned_again() {
    let mut world = applied_chain().await;
    world.destroy(&["b"]).await;
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a unchanged, b applied");
}

#[tokio::test]
async fn an_untouched_stack_says_why() {
    let mut world = applied_chain().await;
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.why_run(set, "b").await, "nothing it consumes changes");
}

impl World {
    /// Why no change set is resumed if none is named.
    async fn newest_stopped(&self) -> String {
        let (_, project) = self.open();
        let found = prepare::find_stopped(&self.control, &project, None, Reopen::rest());
        no_start(found.await)
    }
}

#[tokio::test]
async fn a_dependent_is_untouched_if_only_another_output_changes() {
    let mut world = applied_chain().await;
    world.script(
        "a",
        &json!({"resources": {"r": "1"}, "outputs": {"id": "@r", "other": "2"}}),
    );
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a applied, b untouched");
}

#[tokio::test]
async fn a_dependent_is_untouched_if_the_value_that_it_takes_stays() {
    let mut world = applied_chain().await;
    world.script(
        "a",
        &json!({"resources": {"r": "2"}, "outputs": {"id": "@r"}}),
    );
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a applied, b untouched");
}
