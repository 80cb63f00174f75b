//! A stopped change set that goes on: what is planned again, and what is kept.

use control::decision::stop;
use control::state::redact_reason::BreakGlassReason;
use model::base::actor::Actor;
use model::base::ids::ChangeSetId;
use serde_json::{Value, json};

use crate::world::World;

/// `a` applied and `b` failed, and the project as it is then.
async fn half_done() -> (World, ChangeSetId) {
    let mut world = World::chain(&["a", "b"]).await;
    world.script("a", &good("!1"));
    world.script("b", &failing("${var.up}"));
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "stopped: a applied, b failed");
    (world, set)
}

fn failing(value: &str) -> Value {
    json!({"resources": {"r": value}, "apply_error_at": "r"})
}

fn good(value: &str) -> Value {
    json!({"resources": {"r": value}, "outputs": {"id": "@r"}})
}

fn reason() -> BreakGlassReason {
    BreakGlassReason {
        actor: Actor::named("bob"),
        text: "wrong branch".to_owned(),
    }
}

#[tokio::test]
async fn a_resume_applies_what_is_left() {
    let (mut world, set) = half_done().await;
    world.script("b", &good("${var.up}"));
    world.resume(set, true).await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied, b applied");
}

#[tokio::test]
async fn a_resume_keeps_what_is_applied() {
    let (mut world, set) = half_done().await;
    let run = world.run(set, "a").await.id;
    let before = world.control.run_events(run).await.unwrap().len();
    world.script("b", &good("${var.up}"));
    world.resume(set, true).await.unwrap();
    assert_eq!(world.control.run_events(run).await.unwrap().len(), before);
    assert_eq!(world.serial("a").await, 1);
}

#[tokio::test]
async fn a_resume_plans_an_applied_stack_again_whose_source_changed() {
    let (mut world, set) = half_done().await;
    world.script("a", &good("!2"));
    world.script("b", &good("${var.up}"));
    world.resume(set, true).await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied, b applied");
    assert_eq!(world.serial("a").await, 2);
}

#[tokio::test]
async fn a_resume_plans_an_applied_stack_again_whose_state_changed() {
    let (mut world, set) = half_done().await;
    let own = world.read("stacks/a/script.json");
    world.script("a", &good("!2"));
    world.auto_apply(&["a"]).await;
    world.write("stacks/a/script.json", &own);
    world.script("b", &good("${var.up}"));
    world.resume(set, true).await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied, b applied");
    assert_eq!(world.serial("a").await, 3);
}

#[tokio::test]
async fn a_resume_asks_about_its_plans() {
    let (mut world, set) = half_done().await;
    world.script("b", &good("${var.up}"));
    world.resume(set, false).await.unwrap();
    assert_eq!(
        world.summary(set).await,
        "awaiting confirmation: a applied, b planned"
    );
}

#[tokio::test]
async fn a_resume_without_a_fix_fails_again_and_can_be_repeated() {
    let (mut world, set) = half_done().await;
    world.resume(set, true).await.unwrap();
    assert_eq!(world.summary(set).await, "stopped: a applied, b failed");
    world.script("b", &good("${var.up}"));
    world.resume(set, true).await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied, b applied");
}

#[tokio::test]
async fn a_resume_goes_on_from_what_a_failed_apply_made() {
    let mut world = World::single().await;
    let resources = json!({"r": "1", "s": "2"});
    world.script("a", &json!({"resources": resources, "apply_error_at": "s"}));
    let set = world.auto_apply(&[]).await;
    world.script("a", &json!({"resources": resources}));
    world.resume(set, true).await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied");
    assert_eq!(world.serial("a").await, 2);
}

#[tokio::test]
async fn a_change_set_that_awaits_a_confirmation_is_not_resumed() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    let refused = world.resume(set, true).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot resume change set `c1`: it is awaiting confirmation, not stopped"
    );
}

#[tokio::test]
async fn a_finished_change_set_is_not_resumed() {
    let mut world = World::single().await;
    let set = world.auto_apply(&[]).await;
    let refused = world.resume(set, true).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot resume change set `c1`: it is finished, not stopped"
    );
}

#[tokio::test]
async fn a_destroy_is_not_resumed() {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    world.script("a", &failing("1"));
    let set = world.destroy(&[]).await;
    assert_eq!(world.summary(set).await, "stopped: a failed");
    let refused = world.resume(set, true).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot resume change set `c2`: it destroys stacks"
    );
}

#[tokio::test]
async fn a_resume_is_refused_if_a_failed_stack_is_gone_from_the_project() {
    let (mut world, set) = half_done().await;
    let file = world.read("terrane.hcl");
    let (kept, _) = file.split_once("stack \"b\"").unwrap();
    let kept = kept.to_owned();
    world.write("terrane.hcl", &kept);
    let refused = world.resume(set, true).await.unwrap_err();
    assert_eq!(refused.to_string(), "stack `b` is no longer in the project");
}

#[tokio::test]
async fn a_discarded_change_set_is_resumed_and_asks_again() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    stop::discard(&world.control, set, reason()).await.unwrap();
    assert_eq!(world.summary(set).await, "stopped: a skipped");
    world.resume(set, false).await.unwrap();
    assert_eq!(world.summary(set).await, "awaiting confirmation: a planned");
}

#[tokio::test]
async fn a_rejected_change_set_is_not_resumed() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    stop::reject(&world.control, set, reason()).await.unwrap();
    let refused = world.resume(set, false).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "change set `c1` was rejected by `bob`: wrong branch"
    );
}

#[tokio::test]
async fn an_applied_change_set_is_not_discarded() {
    let mut world = World::single().await;
    let set = world.auto_apply(&[]).await;
    let refused = stop::discard(&world.control, set, reason()).await;
    assert!(refused.is_err());
    assert_eq!(world.summary(set).await, "finished: a applied");
}
