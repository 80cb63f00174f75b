//! One run that is tried again, with those that waited for it.

use control::run::logs;
use model::base::ids::ChangeSetId;
use serde_json::json;

use crate::failures::unrelated;
use crate::world::{World, stack};

/// `a` failed and `b` was skipped because of it; `x` failed by itself.
async fn two_failures() -> (World, ChangeSetId) {
    let blocks =
        stack("a", "") + &stack("b", "inputs = { up = stack.a.output.id }") + &stack("x", "");
    let mut world = World::new(&blocks).await;
    let failing = json!({"resources": {"r": "1"}, "outputs": {"id": "@r"}, "apply_error_at": "r"});
    world.script("a", &failing);
    world.script("b", &json!({"resources": {"r": "${var.up}"}}));
    world.script("x", &failing);
    let set = world.auto_apply(&[]).await;
    world.script(
        "a",
        &json!({"resources": {"r": "1"}, "outputs": {"id": "@r"}}),
    );
    (world, set)
}

/// The states of the runs, by stack.
async fn states(world: &World, set: ChangeSetId) -> String {
    let mut states = Vec::new();
    for name in ["a", "b", "x"] {
        states.push(format!(
            "{name} {}",
            world.run(set, name).await.state.word()
        ));
    }
    states.join(", ")
}

#[tokio::test]
async fn a_retry_repeats_one_run_and_those_that_were_skipped_because_of_it() {
    let (mut world, set) = two_failures().await;
    assert_eq!(states(&world, set).await, "a failed, b skipped, x failed");
    world.retry(set, "a", true).await.unwrap();
    assert_eq!(states(&world, set).await, "a applied, b applied, x failed");
}

#[tokio::test]
async fn a_retry_asks_about_its_plan() {
    let (mut world, set) = two_failures().await;
    world.retry(set, "a", false).await.unwrap();
    assert_eq!(states(&world, set).await, "a planned, b deferred, x failed");
}

#[tokio::test]
async fn a_skipped_run_is_not_retried_without_the_one_that_failed() {
    let (mut world, set) = two_failures().await;
    let refused = world.retry(set, "b", true).await.unwrap_err();
    let said = refused.to_string();
    assert!(
        said.ends_with("it was skipped because of stack `a`; retry that stack's run"),
        "{said}"
    );
}

#[tokio::test]
async fn an_applied_run_is_not_retried() {
    let mut world = unrelated(&["a", "b"]).await;
    world.script("b", &json!({"plan_error": "no such region"}));
    let set = world.auto_apply(&[]).await;
    let refused = world.retry(set, "a", true).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot retry run `r1`: it is applied, and only unsuccessful runs are retried"
    );
}

#[tokio::test]
async fn a_run_of_a_change_set_that_is_not_stopped_is_not_retried() {
    let mut world = unrelated(&["a", "b"]).await;
    world.script("a", &json!({"plan_error": "no such region"}));
    let set = world.apply(&[]).await;
    let refused = world.retry(set, "a", true).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot resume change set `c1`: it is awaiting confirmation, not stopped"
    );
}

#[tokio::test]
async fn a_retry_without_a_fix_fails_again() {
    let mut world = World::single().await;
    world.script("a", &json!({"plan_error": "no such region"}));
    let set = world.auto_apply(&[]).await;
    world.retry(set, "a", true).await.unwrap();
    assert_eq!(world.summary(set).await, "stopped: a failed");
}

#[tokio::test]
async fn a_retry_keeps_the_log_of_the_attempt_before() {
    let mut world = World::single().await;
    world.script("a", &json!({"plan_error": "no such region"}));
    let set = world.auto_apply(&[]).await;
    let run = world.run(set, "a").await.id;
    world.script("a", &json!({"resources": {"r": "1"}}));
    world.retry(set, "a", true).await.unwrap();
    assert_eq!(logs::attempts(&world.control.home, run), 2);
    let first = logs::RunLog::new(&world.control.home, run, None, Some(1)).finish();
    assert!(
        first
            .iter()
            .any(|line| line.text.contains("no such region"))
    );
}

#[tokio::test]
async fn a_retried_run_is_planned_from_the_source_as_it_is_now() {
    let mut world = World::single().await;
    world.script("a", &json!({"plan_error": "no such region"}));
    let set = world.auto_apply(&[]).await;
    let before = world.set(set).await.request.source;
    world.script("a", &json!({"resources": {"r": "1"}}));
    world.retry(set, "a", true).await.unwrap();
    assert_ne!(world.set(set).await.request.source, before);
}
