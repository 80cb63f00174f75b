//! Outputs of states: which are sensitive, what dependents get, what a version inherits.

use std::collections::BTreeMap;

use control::state::outputs::{self, OutputValue};
use control::state::queries::blame::blame;
use model::plan::PlanValue;
use model::state::version_ref::VersionRef;
use serde_json::{Value, json};

use crate::states::{a, client, roll_back};
use crate::world::{World, stack};

async fn outputs_of(world: &World, state: &str) -> BTreeMap<String, OutputValue> {
    outputs::of_state(&world.control, state, true)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_state_that_was_never_applied_has_no_outputs() {
    let world = World::single().await;
    assert_eq!(outputs_of(&world, "a").await, BTreeMap::new());
}

#[tokio::test]
async fn a_plan_gives_no_outputs() {
    let mut world = World::single().await;
    world.plan(&[]).await;
    assert_eq!(outputs_of(&world, "a").await, BTreeMap::new());
}

#[tokio::test]
async fn the_outputs_are_those_of_the_last_apply() {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    let outputs = outputs_of(&world, "a").await;
    assert_eq!(
        (&outputs["id"].value, outputs["id"].sensitive),
        (&json!("id-of-r"), false)
    );
}

#[tokio::test]
async fn an_output_that_the_module_declares_sensitive_is_sensitive() {
    let mut world = World::single().await;
    world.script(
        "a",
        &json!({"outputs": {"id": "x", "login": "correct-horse"}, "sensitive": ["login"]}),
    );
    world.auto_apply(&[]).await;
    let outputs = outputs_of(&world, "a").await;
    assert!(outputs["login"].sensitive && !outputs["id"].sensitive);
}

#[tokio::test]
async fn a_dependent_waits_for_outputs_that_do_not_exist_yet() {
    let mut world = World::chain(&["a", "b"]).await;
    let set = world.plan(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a planned, b deferred");
}

#[tokio::test]
async fn a_dependent_alone_is_refused_before_its_upstream_is_applied() {
    let mut world = World::chain(&["a", "b"]).await;
    let request = world.request(model::run::changeset::Action::Apply, &["b"]);
    let refused = world.begin(&request).await.unwrap_err();
    let why = "stack `b` needs output `id` of `a`, which does not exist yet";
    assert_eq!(refused.to_string(), why);
}

#[tokio::test]
async fn a_dependent_gets_the_output_of_the_state_and_not_of_the_source() {
    let mut world = World::chain(&["a", "b"]).await;
    world.script(
        "a",
        &json!({"resources": {"r": "1"}, "outputs": {"id": "old"}}),
    );
    world.auto_apply(&[]).await;
    world.script(
        "a",
        &json!({"resources": {"r": "1"}, "outputs": {"id": "new"}}),
    );
    let set = world.auto_apply(&["b"]).await;
    assert_eq!(world.summary(set).await, "finished: b unchanged");
}

/// A project whose context gives the secret of the asker to variable `token` of stack `a`.
async fn with_secret(script: &Value) -> World {
    let context = "context \"api\" {\n  autoattach = [\"target:local\"]\n  vars = { token = secret(\"env:API_TOKEN\") }\n}\n";
    let mut world = World::new(&format!("{context}{}", stack("a", ""))).await;
    world
        .env
        .insert("API_TOKEN".to_owned(), "tok-5f0c2a9e71".to_owned());
    world.script("a", script);
    world
}

fn with_token(other: &str) -> Value {
    json!({"resources": {"r": "${var.token}", "s": other}, "outputs": {"plain": other, "token": "${var.token}"}})
}

async fn shown(world: &World, address: &str) -> PlanValue {
    let (state, head) = (a(world), VersionRef::Head);
    let asked = blame(&world.control, &state, head, address, None, false)
        .await
        .unwrap();
    let lines = &asked.objects[0].lines;
    let line = lines.iter().find(|line| line.path != "id").unwrap();
    line.value.clone()
}

fn is_masked(value: &PlanValue) -> bool {
    matches!(value, PlanValue::Masked { .. } | PlanValue::Sensitive)
}

#[tokio::test]
async fn a_secret_in_a_state_is_masked_although_the_module_does_not_mark_it() {
    let mut world = with_secret(&with_token("x")).await;
    world.auto_apply(&[]).await;
    assert!(is_masked(&shown(&world, "terraform_data.r").await));
    assert_eq!(
        shown(&world, "terraform_data.s").await,
        PlanValue::Known(json!("x"))
    );
}

#[tokio::test]
async fn an_output_that_contains_a_secret_is_sensitive() {
    let mut world = with_secret(&with_token("x")).await;
    world.auto_apply(&[]).await;
    let outputs = outputs_of(&world, "a").await;
    assert!(outputs["token"].sensitive && !outputs["plain"].sensitive);
}

#[tokio::test]
async fn a_rollback_inherits_what_is_secret() {
    let mut world = with_secret(&with_token("x")).await;
    world.auto_apply(&[]).await;
    world.script("a", &with_token("y"));
    world.auto_apply(&[]).await;
    roll_back(&world, 1).await;
    assert!(is_masked(&shown(&world, "terraform_data.r").await));
    assert!(outputs_of(&world, "a").await["token"].sensitive);
}

#[tokio::test]
async fn an_edited_state_inherits_what_is_secret() {
    let mut world = with_secret(&with_token("x")).await;
    world.auto_apply(&[]).await;
    let addresses = ["terraform_data.s".to_owned()];
    let proposal = control::state::surgery::take_out(&world.control, &a(&world), &addresses).await;
    let why = crate::states::reason("by hand");
    control::state::surgery::carry_out(&world.control, proposal.unwrap(), &why)
        .await
        .unwrap();
    assert!(is_masked(&shown(&world, "terraform_data.r").await));
}

#[tokio::test]
async fn a_later_run_without_the_secret_keeps_its_old_value_masked() {
    let mut world = with_secret(&with_token("x")).await;
    world.auto_apply(&[]).await;
    world.script(
        "a",
        &json!({"resources": {"r": "tok-5f0c2a9e71", "s": "y"}}),
    );
    world.auto_apply(&[]).await;
    assert!(is_masked(&shown(&world, "terraform_data.r").await));
}

#[tokio::test]
async fn a_value_that_replaces_a_secret_is_shown() {
    let mut world = with_secret(&with_token("x")).await;
    world.auto_apply(&[]).await;
    world.script("a", &json!({"resources": {"r": "public", "s": "x"}}));
    world.auto_apply(&[]).await;
    assert_eq!(
        shown(&world, "terraform_data.r").await,
        PlanValue::Known(json!("public"))
    );
}

#[tokio::test]
async fn a_write_of_a_client_inherits_what_is_secret() {
    let mut world = with_secret(&with_token("x")).await;
    world.auto_apply(&[]).await;
    let client = client(&world, "ci", model::state::token::TokenScope::Write).await;
    let (_, bytes) = client.read().await.unwrap().unwrap();
    let next = String::from_utf8_lossy(&bytes).replace(r#""serial":1"#, r#""serial":2"#);
    client.write(None, next.into_bytes()).await.unwrap();
    assert!(is_masked(&shown(&world, "terraform_data.r").await));
}
