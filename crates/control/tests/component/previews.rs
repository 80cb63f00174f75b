//! Dependents whose values come later: previewed, then planned with the real values.

use model::base::ids::ChangeSetId;
use model::run::{Outcome, Preview, RunEvent, RunState};
use serde_json::json;

use crate::world::World;

/// How many values a run still awaits, and its preview.
async fn preview(world: &World, set: ChangeSetId, stack: &str) -> (usize, Preview) {
    match world.run(set, stack).await.state {
        RunState::Deferred { on, preview }
        | RunState::Finished {
            outcome: Outcome::Deferred { on, preview },
            ..
        } => (on.iter().map(|on| on.outputs.len()).sum(), preview),
        state => panic!("`{stack}` is not deferred: {state:?}"),
    }
}

/// `a` and `b`, applied. Then `a` is changed, so that its output is another one that is unknown until the apply.
async fn changed_upstream() -> World {
    let mut world = World::chain(&["a", "b"]).await;
    world.auto_apply(&[]).await;
    world.script(
        "a",
        &json!({"resources": {"r": "1", "s": "1"}, "outputs": {"id": "@s"}}),
    );
    world
}

#[tokio::test]
async fn a_stack_that_needs_a_value_that_does_not_exist_is_previewed() {
    let mut world = World::chain(&["a", "b"]).await;
    let set = world.apply(&[]).await;
    assert_eq!(
        world.summary(set).await,
        "awaiting confirmation: a planned, b deferred"
    );
    let (awaited, preview) = preview(&world, set, "b").await;
    let Preview::Planned { plan } = preview else {
        panic!("no preview");
    };
    assert_eq!((awaited, plan.counts.create), (1, 1));
}

#[tokio::test]
async fn a_whole_chain_is_previewed() {
    let mut world = World::chain(&["a", "b", "c"]).await;
    let set = world.plan(&[]).await;
    assert_eq!(
        world.summary(set).await,
        "finished: a planned, b deferred, c deferred"
    );
}

#[tokio::test]
async fn a_value_that_the_plan_of_the_upstream_has_is_not_awaited() {
    let mut world = World::chain(&["a", "b"]).await;
    world.script(
        "a",
        &json!({"resources": {"r": "1"}, "outputs": {"id": "seven"}}),
    );
    let set = world.plan(&[]).await;
    let (awaited, preview) = preview(&world, set, "b").await;
    assert_eq!(awaited, 0);
    assert!(matches!(preview, Preview::Planned { .. }), "{preview:?}");
}

#[tokio::test]
async fn a_confirmed_preview_is_applied_with_the_real_value() {
    let mut world = World::chain(&["a", "b"]).await;
    let set = world.apply(&[]).await;
    world.confirm(set, "alice").await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied, b applied");
}

#[tokio::test]
async fn a_confirmed_chain_of_previews_is_applied() {
    let mut world = World::chain(&["a", "b", "c"]).await;
    let set = world.apply(&[]).await;
    world.confirm(set, "alice").await.unwrap();
    assert_eq!(
        world.summary(set).await,
        "finished: a applied, b applied, c applied"
    );
}

#[tokio::test]
async fn an_update_with_a_value_that_comes_later_is_confirmed_once() {
    let mut world = changed_upstream().await;
    let set = world.apply(&[]).await;
    assert_eq!(
        world.summary(set).await,
        "awaiting confirmation: a planned, b deferred"
    );
    world.confirm(set, "alice").await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied, b applied");
    assert_eq!(world.serial("b").await, 2);
}

#[tokio::test]
async fn a_plan_that_differs_from_its_preview_is_asked_about() {
    let mut world = changed_upstream().await;
    let set = world.apply(&[]).await;
    // Another change set gives `b` a resource that the source of the first one does not have.
    let own = world.read("stacks/b/script.json");
    world.script(
        "b",
        &json!({"resources": {"r": "${var.up}", "s": "1"}, "outputs": {"id": "@r"}}),
    );
    world.auto_apply(&["b"]).await;
    world.write("stacks/b/script.json", &own);
    world.confirm(set, "alice").await.unwrap();
    assert_eq!(
        world.summary(set).await,
        "awaiting confirmation: a applied, b planned"
    );
    let run = world.run(set, "b").await.id;
    let events = world.control.run_events(run).await.unwrap();
    let new = events.into_iter().rev().find_map(|(_, event)| match event {
        RunEvent::PlanFinished { new, .. } => Some(new),
        _ => None,
    });
    let new = new.unwrap();
    assert!(new[0].contains("terraform_data.s"), "{new:?}");
}

#[tokio::test]
async fn a_plan_that_differs_from_its_preview_is_applied_once_it_is_confirmed_too() {
    let mut world = changed_upstream().await;
    let set = world.apply(&[]).await;
    let own = world.read("stacks/b/script.json");
    world.script(
        "b",
        &json!({"resources": {"r": "${var.up}", "s": "1"}, "outputs": {"id": "@r"}}),
    );
    world.auto_apply(&["b"]).await;
    world.write("stacks/b/script.json", &own);
    world.confirm(set, "alice").await.unwrap();
    world.confirm(set, "alice").await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied, b applied");
}

#[tokio::test]
async fn an_auto_approved_apply_makes_no_previews() {
    let mut world = World::chain(&["a", "b"]).await;
    let set = world.auto_apply(&[]).await;
    let run = world.run(set, "b").await.id;
    let events = world.control.run_events(run).await.unwrap();
    let is_preview = |event: &RunEvent| matches!(event, RunEvent::PreviewStarted { .. });
    assert!(!events.iter().any(|(_, event)| is_preview(event)));
}

#[tokio::test]
async fn a_preview_that_is_impossible_fails_no_run() {
    let mut world = World::chain(&["a", "b"]).await;
    world.script(
        "b",
        &json!({"resources": {"r": "${var.up}"}, "plan_error": "Invalid for_each argument"}),
    );
    let set = world.plan(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a planned, b deferred");
    let (_, preview) = preview(&world, set, "b").await;
    let Preview::Impossible { why } = preview else {
        panic!("{preview:?}");
    };
    assert_eq!(why, "invalid for_each argument");
}

#[tokio::test]
async fn a_preview_that_is_impossible_is_tried_with_the_real_value() {
    let mut world = World::chain(&["a", "b"]).await;
    world.script(
        "b",
        &json!({"resources": {"r": "${var.up}"}, "plan_error": "Invalid for_each argument"}),
    );
    let set = world.apply(&[]).await;
    world.confirm(set, "alice").await.unwrap();
    assert_eq!(world.summary(set).await, "stopped: a applied, b failed");
}

#[tokio::test]
async fn a_preview_in_which_nothing_changes_says_so() {
    let mut world = World::chain(&["a", "b"]).await;
    // `b` takes the value and does nothing with it.
    let module = "variable \"up\" {}\nresource \"terraform_data\" \"r\" {}\n";
    world.script("b", &json!({"resources": {"r": "1"}}));
    world.write("stacks/b/main.tf", module);
    world.auto_apply(&[]).await;
    world.script(
        "a",
        &json!({"resources": {"r": "1", "s": "1"}, "outputs": {"id": "@s"}}),
    );
    let set = world.plan(&[]).await;
    let (_, preview) = preview(&world, set, "b").await;
    assert_eq!(preview, Preview::Unchanged);
}

#[tokio::test]
async fn a_preview_leaves_no_state() {
    let mut world = World::chain(&["a", "b"]).await;
    world.plan(&[]).await;
    assert_eq!((world.serial("a").await, world.serial("b").await), (0, 0));
}
