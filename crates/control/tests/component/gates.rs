//! Gates after an apply: which stacks wait for them, and how a run continues after one did not pass.

use control::changeset::prepare::ChangeSetRequest;
use model::base::ids::ChangeSetId;
use model::run::Stage;
use model::run::changeset::Action;
use model::run::exception::Exceptions;
use serde_json::json;
use testkit::write_program;

use crate::world::{World, stack};

const GATE: &str =
    "gate \"command\" \"smoke\" {\n    run = [\"./smoke.sh\"]\n    failures = 1\n  }";

/// `a` with a gate, and `b` that takes a value of `a`. The gate passes if `is_good`.
async fn world(lines_of_b: &str, is_good: bool) -> World {
    let lines_of_b = format!("inputs = {{ up = stack.a.output.id }}\n  {lines_of_b}");
    let world = World::new(&(stack("a", GATE) + &stack("b", &lines_of_b))).await;
    world.script(
        "a",
        &json!({"resources": {"r": "1"}, "outputs": {"id": "@r"}}),
    );
    world.script("b", &json!({"resources": {"r": "${var.up}"}}));
    let mended = world.root().join("../mended");
    let text = format!(
        "#!/bin/sh\necho 'nobody answers'\ntest -e '{}'\n",
        mended.display()
    );
    write_program(&world.root().join("smoke.sh"), &text);
    if is_good {
        mend(&world);
    }
    world
}

fn mend(world: &World) {
    std::fs::write(world.root().join("../mended"), "").unwrap();
}

/// The world after an apply whose gate did not pass.
async fn not_verified() -> (World, ChangeSetId) {
    let mut world = world("", false).await;
    let set = world.auto_apply(&[]).await;
    (world, set)
}

fn skipping(gate: &str) -> Exceptions {
    Exceptions {
        skip_gates: vec![gate.parse().unwrap()],
        reinstall: false,
        reason: "the probe is wrong".to_owned(),
    }
}

#[tokio::test]
async fn a_stack_whose_gate_passes_is_applied_and_dependents_go_on() {
    let mut world = world("", true).await;
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a applied, b applied");
}

#[tokio::test]
async fn a_stack_whose_gate_does_not_pass_blocks_its_dependents() {
    let (world, set) = not_verified().await;
    assert_eq!(
        world.summary(set).await,
        "stopped: a not verified, b skipped"
    );
    assert_eq!(world.serial("a").await, 1);
    assert_eq!(world.serial("b").await, 0);
}

#[tokio::test]
async fn a_gate_that_does_not_pass_is_stored_with_what_it_said() {
    let (world, set) = not_verified().await;
    let problem = world.problem(set, "a").await;
    assert_eq!(problem.stage, Stage::Verifying);
    assert!(
        problem.message.starts_with("0 of 1 gate passed"),
        "{}",
        problem.message
    );
    assert!(problem.message.contains("nobody answers"));
}

#[tokio::test]
async fn a_dependent_that_waits_only_for_the_apply_goes_on() {
    let mut world = world("wait = \"applied\"", false).await;
    let set = world.auto_apply(&[]).await;
    assert_eq!(
        world.summary(set).await,
        "stopped: a not verified, b applied"
    );
}

#[tokio::test]
async fn a_retry_looks_at_the_gate_again_and_dependents_go_on() {
    let (mut world, set) = not_verified().await;
    mend(&world);
    world.retry(set, "a", true).await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied, b applied");
    assert_eq!(world.serial("a").await, 1);
}

#[tokio::test]
async fn a_resume_looks_at_the_gate_again() {
    let (mut world, set) = not_verified().await;
    mend(&world);
    world.resume(set, true).await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied, b applied");
    assert_eq!(world.serial("a").await, 1);
}

#[tokio::test]
async fn a_retry_while_the_gate_is_still_bad_does_not_let_dependents_on() {
    let (mut world, set) = not_verified().await;
    world.retry(set, "a", true).await.unwrap();
    assert_eq!(
        world.summary(set).await,
        "stopped: a not verified, b skipped"
    );
}

#[tokio::test]
async fn a_gate_is_not_looked_at_again_on_a_state_that_changed_since() {
    let (mut world, set) = not_verified().await;
    mend(&world);
    world.script(
        "a",
        &json!({"resources": {"r": "!2"}, "outputs": {"id": "@r"}}),
    );
    world.auto_apply(&["a"]).await;
    let refused = world.retry(set, "a", true).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the state of stack `a` has changed since run r1: it was serial 1, now it is serial 2"
    );
}

#[tokio::test]
async fn a_dependent_alone_is_not_applied_while_the_gate_is_bad() {
    let (mut world, _) = not_verified().await;
    let request = world.request(Action::Apply, &["b"]);
    let refused = world.begin(&request).await.unwrap_err().to_string();
    assert!(
        refused.starts_with("cannot apply stack `b`: its dependency `a` is applied, not verified"),
        "{refused}"
    );
}

#[tokio::test]
async fn the_next_apply_of_an_unchanged_stack_looks_at_its_gate() {
    let (mut world, _) = not_verified().await;
    mend(&world);
    let set = world.auto_apply(&["a"]).await;
    assert_eq!(world.summary(set).await, "finished: a unchanged");
    let set = world.auto_apply(&["b"]).await;
    assert_eq!(world.summary(set).await, "finished: b applied");
}

#[tokio::test]
async fn a_plan_looks_at_no_gate() {
    let mut world = world("", false).await;
    let set = world.plan(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a planned, b deferred");
}

#[tokio::test]
async fn a_gate_that_is_skipped_with_a_reason_lets_dependents_on() {
    let mut world = world("", false).await;
    let request = world.request(Action::Apply, &[]);
    let set = world
        .start(&ChangeSetRequest {
            auto_approve: true,
            exceptions: Some(skipping("a/smoke")),
            ..request
        })
        .await;
    assert_eq!(world.summary(set).await, "finished: a applied, b applied");
}

#[tokio::test]
async fn a_gate_that_no_stack_has_is_not_skipped() {
    let mut world = world("", false).await;
    let mut request = world.request(Action::Apply, &[]);
    request.exceptions = Some(skipping("a/smoek"));
    let refused = world.begin(&request).await.unwrap_err();
    assert_eq!(refused.to_string(), "there is no gate `a/smoek` here");
}

#[tokio::test]
async fn a_gate_gets_the_outputs_of_its_stack() {
    let gate = "gate \"command\" \"smoke\" {\n    run = [\"./smoke.sh\"]\n    env = { ID = output.id }\n    failures = 1\n  }";
    let mut world = World::new(&stack("a", gate)).await;
    world.script(
        "a",
        &json!({"resources": {"r": "1"}, "outputs": {"id": "@r"}}),
    );
    write_program(
        &world.root().join("smoke.sh"),
        "#!/bin/sh\ntest \"$ID\" = id-of-r\n",
    );
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a applied");
}

#[tokio::test]
async fn gates_after_another_one_wait_for_it() {
    let gates = format!(
        "{GATE}\n  gate \"command\" \"second\" {{\n    run = [\"./smoke.sh\"]\n    failures = 1\n    after = [\"smoke\"]\n  }}"
    );
    let mut world = World::new(&stack("a", &gates)).await;
    world.script("a", &json!({"resources": {"r": "1"}}));
    write_program(&world.root().join("smoke.sh"), "#!/bin/sh\nexit 1\n");
    let set = world.auto_apply(&[]).await;
    let message = world.problem(set, "a").await.message;
    assert!(message.starts_with("0 of 2 gates passed"), "{message}");
    assert_eq!(message.matches("exit code 1").count(), 1, "{message}");
}

#[tokio::test]
async fn a_gate_for_a_destroy_is_looked_at_only_then() {
    let gate = "gate \"command\" \"gone\" {\n    when = \"destroyed\"\n    run = [\"./gone.sh\"]\n    failures = 1\n  }";
    let mut world = World::new(&stack("a", gate)).await;
    world.script("a", &json!({"resources": {"r": "1"}}));
    write_program(&world.root().join("gone.sh"), "#!/bin/sh\nexit 1\n");
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a applied");
    let set = world.destroy(&[]).await;
    assert_eq!(world.summary(set).await, "stopped: a not verified");
}
