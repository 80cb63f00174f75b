//! Secrets are in no log, error or stored problem of a run.

use control::changeset::cancel_requests::CancelRequest;
use control::changeset::prepare;
use control::run::logs::RunLog;
use control::schedule::cancel;
use model::base::actor::Actor;
use model::base::ids::ChangeSetId;
use model::run::changeset::Action;
use serde_json::json;
use testkit::write_program;

use crate::world::{World, stack};

const SECRET: &str = "open-sesame-4711";

const CONTEXT: &str =
    "context \"db\" {\n  autoattach = [\"*\"]\n  vars = { password = secret(\"env:DB_PASS\") }\n";

/// A stack `a` that gets the secret as a variable, with these lines in its context.
async fn world(lines: &str) -> World {
    let mut world = World::new(&format!("{CONTEXT}{lines}}}\n{}", stack("a", ""))).await;
    world.env.insert("DB_PASS".to_owned(), SECRET.to_owned());
    world
}

/// Everything that is stored of a run for people: its events and its log.
async fn stored(world: &World, set: ChangeSetId, stack: &str) -> String {
    let run = world.run(set, stack).await.id;
    let events = world.control.run_events(run).await.unwrap();
    let log = RunLog::new(&world.control.home, run, None, None).finish();
    let log: Vec<String> = log.into_iter().map(|line| line.text).collect();
    let warnings = std::fs::read_to_string(world.control.home.run_warnings(run));
    let warnings = warnings.unwrap_or_default();
    let text = format!("{events:?}\n{}\n{warnings}", log.join("\n"));
    assert!(!text.contains(SECRET), "{text}");
    text
}

#[tokio::test]
async fn a_secret_is_not_in_the_error_of_a_plan() {
    let mut world = world("").await;
    world.script(
        "a",
        &json!({"resources": {"r": "${var.password}"}, "plan_error": format!("cannot sign in with {SECRET}")}),
    );
    let set = world.plan(&[]).await;
    assert_eq!(
        world.problem(set, "a").await.brief(),
        "cannot sign in with (secret)"
    );
    stored(&world, set, "a").await;
}

#[tokio::test]
async fn a_secret_is_not_in_the_error_of_an_apply() {
    let mut world = world("").await;
    world.script(
        "a",
        &json!({"resources": {SECRET: "${var.password}"}, "apply_error_at": SECRET}),
    );
    let set = world.auto_apply(&[]).await;
    let said = stored(&world, set, "a").await;
    assert!(said.contains("cannot change `(secret)`"), "{said}");
}

#[tokio::test]
async fn a_secret_is_not_in_the_error_of_an_apply_that_was_confirmed_later() {
    let mut world = world("").await;
    world.script(
        "a",
        &json!({"resources": {SECRET: "${var.password}"}, "apply_error_at": SECRET}),
    );
    let set = world.apply(&[]).await;
    world.confirm(set, "alice").await.unwrap();
    let said = stored(&world, set, "a").await;
    assert!(said.contains("cannot change `(secret)`"), "{said}");
}

#[tokio::test]
async fn a_sensitive_output_of_an_upstream_is_not_in_an_error() {
    let mut world = World::chain(&["a", "b"]).await;
    world.script(
        "a",
        &json!({"resources": {"r": "1"}, "outputs": {"id": SECRET}, "sensitive": ["id"]}),
    );
    world.script(
        "b",
        &json!({"resources": {"r": "${var.up}"}, "plan_error": format!("cannot sign in with {SECRET}")}),
    );
    let set = world.auto_apply(&[]).await;
    assert_eq!(
        world.problem(set, "b").await.brief(),
        "cannot sign in with (secret)"
    );
    stored(&world, set, "a").await;
    stored(&world, set, "b").await;
}

#[tokio::test]
async fn a_sensitive_value_that_only_the_plan_of_an_upstream_has_is_not_in_a_preview() {
    let mut world = World::chain(&["a", "b"]).await;
    world.script(
        "a",
        &json!({"resources": {"r": "1"}, "outputs": {"id": SECRET}, "sensitive": ["id"]}),
    );
    world.script(
        "b",
        &json!({"resources": {"r": "${var.up}"}, "plan_error": format!("cannot sign in with {SECRET}")}),
    );
    let set = world.plan(&[]).await;
    let said = stored(&world, set, "b").await;
    assert!(said.contains("cannot sign in with (secret)"), "{said}");
}

#[tokio::test]
async fn an_own_sensitive_output_is_not_in_an_error() {
    let mut world = World::single().await;
    let outputs = json!({"id": SECRET});
    world.script(
        "a",
        &json!({"resources": {"r": "1"}, "outputs": outputs, "sensitive": ["id"]}),
    );
    world.auto_apply(&[]).await;
    world.script(
        "a",
        &json!({"resources": {SECRET: "1"}, "outputs": outputs, "sensitive": ["id"], "apply_error_at": SECRET}),
    );
    let set = world.auto_apply(&[]).await;
    let said = stored(&world, set, "a").await;
    assert!(said.contains("cannot change `(secret)`"), "{said}");
}

#[tokio::test]
async fn an_own_sensitive_output_that_only_the_plan_has_is_not_in_an_error() {
    let mut world = World::single().await;
    world.script(
        "a",
        &json!({"resources": {"r": "1"}, "outputs": {"id": SECRET}, "sensitive": ["id"]}),
    );
    let event =
        json!({"@level": "error", "@message": format!("cannot change `{SECRET}`"), "type": "log"});
    world.before_engine(&format!(
        "test \"$1\" = apply && printf '%s\\n' '{event}' && exit 1"
    ));
    let set = world.apply(&[]).await;
    world.confirm(set, "alice").await.unwrap();
    let said = stored(&world, set, "a").await;
    assert!(said.contains("cannot change `(secret)`"), "{said}");
}

#[tokio::test]
async fn a_secret_that_a_hook_prints_is_not_in_the_log() {
    let lines = "  env = { PASS = secret(\"env:DB_PASS\") }\n  hook \"before\" \"plan\" { run = [\"./login.sh\"] }\n";
    let mut world = world(lines).await;
    write_program(
        &world.root().join("login.sh"),
        "#!/bin/sh\necho \"signing in with $PASS\"\n",
    );
    world.script("a", &json!({"resources": {"r": "1"}}));
    let set = world.plan(&[]).await;
    let said = stored(&world, set, "a").await;
    assert!(said.contains("signing in with (secret)"), "{said}");
}

#[tokio::test]
async fn a_secret_that_a_failing_hook_prints_is_not_in_the_problem() {
    let lines = "  env = { PASS = secret(\"env:DB_PASS\") }\n  hook \"after\" \"apply\" { run = [\"./login.sh\"] }\n";
    let mut world = world(lines).await;
    write_program(
        &world.root().join("login.sh"),
        "#!/bin/sh\necho \"cannot sign in with $PASS\"\nexit 1\n",
    );
    world.script("a", &json!({"resources": {"r": "1"}}));
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "stopped: a not done");
    let problem = world.problem(set, "a").await;
    assert_eq!(
        problem.diagnostics[0].detail,
        "cannot sign in with (secret)"
    );
    stored(&world, set, "a").await;
}

#[tokio::test]
async fn a_secret_that_a_gate_prints_is_not_in_the_problem() {
    let gate = "gate \"command\" \"smoke\" {\n    run = [\"./smoke.sh\"]\n    env = { PASS = secret(\"env:DB_PASS\") }\n    failures = 1\n  }";
    let mut world = World::new(&stack("a", gate)).await;
    world.env.insert("DB_PASS".to_owned(), SECRET.to_owned());
    world.script("a", &json!({"resources": {"r": "1"}}));
    write_program(
        &world.root().join("smoke.sh"),
        "#!/bin/sh\necho \"cannot sign in with $PASS\"\nexit 1\n",
    );
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "stopped: a not verified");
    let said = stored(&world, set, "a").await;
    assert!(said.contains("cannot sign in with (secret)"), "{said}");
}

#[tokio::test]
async fn a_sensitive_output_that_a_gate_prints_is_not_in_the_problem() {
    let gate = "gate \"command\" \"smoke\" {\n    run = [\"./smoke.sh\"]\n    env = { PASS = output.id }\n    failures = 1\n  }";
    let mut world = World::new(&stack("a", gate)).await;
    world.script(
        "a",
        &json!({"resources": {"r": "1"}, "outputs": {"id": SECRET}, "sensitive": ["id"]}),
    );
    write_program(
        &world.root().join("smoke.sh"),
        "#!/bin/sh\necho \"cannot sign in with $PASS\"\nexit 1\n",
    );
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "stopped: a not verified");
    let said = stored(&world, set, "a").await;
    assert!(said.contains("cannot sign in with (secret)"), "{said}");
}

#[tokio::test]
async fn a_secret_in_the_reason_of_a_cancel_is_not_stored() {
    let mut world = World::single().await;
    world.script(
        "a",
        &json!({"resources": {"r": "1"}, "outputs": {"id": SECRET}, "sensitive": ["id"]}),
    );
    world.auto_apply(&[]).await;
    world.script(
        "a",
        &json!({"resources": {"r": "2"}, "outputs": {"id": SECRET}, "sensitive": ["id"]}),
    );
    let set = world.apply(&[]).await;
    let wish = CancelRequest {
        by: Actor::named("bob"),
        reason: Some(format!("{SECRET} is wrong")),
    };
    cancel::cancel_set(&world.control, set, &wish)
        .await
        .unwrap();
    let said = stored(&world, set, "a").await;
    assert!(said.contains("is wrong"), "{said}");
}

#[tokio::test]
async fn a_secret_that_the_caller_does_not_have_is_named_before_anything_begins() {
    let mut world = world("").await;
    world.script("a", &json!({"resources": {"r": "${var.password}"}}));
    world.env.remove("DB_PASS");
    let request = world.request(Action::Plan, &[]);
    let refused = world.begin(&request).await.unwrap_err();
    let said = refused.to_string();
    assert!(
        said.starts_with("stack `a` needs") && said.contains("DB_PASS"),
        "{said}"
    );
}

#[tokio::test]
async fn a_variable_that_the_module_calls_sensitive_is_not_in_an_error() {
    let inputs = "inputs = { password = env(\"DB_USER\") }";
    let mut world = World::new(&stack("a", inputs)).await;
    world.env.insert("DB_USER".to_owned(), SECRET.to_owned());
    world.script(
        "a",
        &json!({"plan_error": format!("cannot sign in as {SECRET}")}),
    );
    world.write(
        "stacks/a/main.tf",
        "variable \"password\" {\n  sensitive = true\n}\n",
    );
    let set = world.plan(&[]).await;
    assert_eq!(
        world.problem(set, "a").await.brief(),
        "cannot sign in as (secret)"
    );
    stored(&world, set, "a").await;
}

#[tokio::test]
async fn a_secret_is_not_in_the_plan_that_people_see() {
    let mut world = world("").await;
    world.script("a", &json!({"resources": {"r": "${var.password}"}}));
    let set = world.apply(&[]).await;
    let run = world.run(set, "a").await;
    let plan = prepare::plan_view(&world.control, &run).await;
    let plan = serde_json::to_string(&plan.unwrap()).unwrap();
    assert!(!plan.contains(SECRET), "{plan}");
}
