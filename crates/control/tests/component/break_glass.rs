//! Records of what bypassed the rules: what opens them, what closes them, what they say.

use model::base::actor::Actor;
use std::collections::BTreeSet;

use control::changeset::restrictions::{self, ClosedBy, Restrictions};
use control::state::queries::version::record_reveal;
use control::state::redact_reason;
use control::state::surgery::{self, RollbackTarget};
use model::base::ids::BreakGlassId;
use model::state::break_glass::{BreakGlass, BreakGlassAction};
use serde_json::json;

use crate::states::{a, client, client_of, open_acts, reason, roll_back, written};
use crate::world::{World, stack};

/// Stack `a` with two versions, rolled back to the first one.
async fn rolled_back() -> World {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    world.script("a", &json!({"resources": {"r": "2"}}));
    world.auto_apply(&[]).await;
    roll_back(&world, 1).await;
    world
}

#[tokio::test]
async fn a_rollback_keeps_its_record_open_until_the_next_apply() {
    let mut world = rolled_back().await;
    assert_eq!(open_acts(&world).await.len(), 1);
    world.auto_apply(&[]).await;
    assert_eq!(open_acts(&world).await, []);
}

#[tokio::test]
async fn a_record_says_who_did_what_and_why() {
    let world = rolled_back().await;
    let acts = open_acts(&world).await;
    assert_eq!(
        (acts[0].act, acts[0].actor.name.as_str()),
        (BreakGlassAction::StateRolledBack, "alice")
    );
    assert_eq!(acts[0].reason.as_deref(), Some("it was wrong"));
    assert_eq!(
        acts[0].detail,
        "version 3: content of version 1 (serial 1) again"
    );
}

#[tokio::test]
async fn a_plan_closes_no_record() {
    let mut world = rolled_back().await;
    world.plan(&[]).await;
    assert_eq!(open_acts(&world).await.len(), 1);
}

#[tokio::test]
async fn a_failed_apply_closes_no_record() {
    let mut world = rolled_back().await;
    world.script(
        "a",
        &json!({"resources": {"r": "2"}, "apply_error_at": "r"}),
    );
    world.auto_apply(&[]).await;
    assert_eq!(open_acts(&world).await.len(), 1);
}

#[tokio::test]
async fn an_apply_of_another_stack_closes_no_record() {
    let mut world = World::new(&(stack("a", "") + &stack("b", ""))).await;
    for name in ["a", "b"] {
        world.script(name, &json!({"resources": {"r": "1"}}));
    }
    world.auto_apply(&[]).await;
    world.script("a", &json!({"resources": {"r": "2"}}));
    world.auto_apply(&["a"]).await;
    roll_back(&world, 1).await;
    world.auto_apply(&["b"]).await;
    assert_eq!(open_acts(&world).await.len(), 1);
}

#[tokio::test]
async fn a_destroy_closes_the_record() {
    let mut world = rolled_back().await;
    world.destroy(&[]).await;
    assert_eq!(open_acts(&world).await, []);
}

#[tokio::test]
async fn an_apply_that_changes_nothing_closes_the_record_too() {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    record_reveal(
        &world.control,
        &a(&world),
        &Actor::named("alice"),
        "an audit",
        "all".to_owned(),
    )
    .await
    .unwrap();
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a unchanged");
    assert_eq!(open_acts(&world).await, []);
}

#[tokio::test]
async fn shown_secrets_are_recorded_with_what_was_shown() {
    let (world, _) = written(&["1"]).await;
    record_reveal(
        &world.control,
        &a(&world),
        &Actor::named("alice"),
        "an audit",
        "version 1".to_owned(),
    )
    .await
    .unwrap();
    let acts = open_acts(&world).await;
    assert_eq!(
        (acts[0].act, acts[0].detail.as_str()),
        (BreakGlassAction::Revealed, "version 1")
    );
}

/// A client deleted the state; its protocol has no place for a reason.
async fn deleted() -> (World, BreakGlass) {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    let client = client(&world, "ci", model::state::token::TokenScope::Write).await;
    client.delete(None).await.unwrap();
    let act = open_acts(&world).await.remove(0);
    (world, act)
}

async fn explain(world: &World, act: &BreakGlass, text: &str) -> Result<BreakGlass, String> {
    let (_, project) = world.open();
    let id = BreakGlassId(act.id);
    let explained = restrictions::explain(&world.control, Some(&project), id, &reason(text)).await;
    explained.map_err(|err| err.to_string())
}

#[tokio::test]
async fn a_record_without_a_reason_stays_open_after_an_apply() {
    let (mut world, act) = deleted().await;
    assert_eq!(
        (act.act, act.reason),
        (BreakGlassAction::StateDeleted, None)
    );
    world.auto_apply(&[]).await;
    assert_eq!(open_acts(&world).await.len(), 1);
}

#[tokio::test]
async fn a_reason_that_comes_later_lets_the_next_apply_close_the_record() {
    let (mut world, act) = deleted().await;
    explain(&world, &act, "a wrong path").await.unwrap();
    assert_eq!(open_acts(&world).await.len(), 1);
    world.auto_apply(&[]).await;
    assert_eq!(open_acts(&world).await, []);
}

#[tokio::test]
async fn a_record_is_explained_once() {
    let (world, act) = deleted().await;
    explain(&world, &act, "a wrong path").await.unwrap();
    let again = explain(&world, &act, "another story").await.unwrap_err();
    assert_eq!(
        again,
        format!("record `b{}` already has a reason: a wrong path", act.id)
    );
}

#[tokio::test]
async fn a_closed_record_is_not_explained() {
    let mut world = rolled_back().await;
    let act = open_acts(&world).await.remove(0);
    world.auto_apply(&[]).await;
    let refused = explain(&world, &act, "late").await.unwrap_err();
    assert!(
        refused.starts_with(&format!("record `b{}` was closed on ", act.id)),
        "{refused}"
    );
}

#[tokio::test]
async fn an_unknown_record_is_not_explained() {
    let (world, act) = deleted().await;
    let unknown = BreakGlass { id: 77, ..act };
    let refused = explain(&world, &unknown, "late").await.unwrap_err();
    assert_eq!(refused, "there is no break-glass record `b77`");
}

#[tokio::test]
async fn the_record_of_a_state_without_a_stack_is_closed_by_its_explanation() {
    let (world, act) = deleted().await;
    let file = world.read("terrane.hcl");
    let without = file.split("stack \"a\"").next().unwrap();
    world.write("terrane.hcl", &format!("{without}{}", stack("b", "")));
    world.script("b", &json!({}));
    explain(&world, &act, "the stack is gone").await.unwrap();
    assert_eq!(open_acts(&world).await, []);
}

#[tokio::test]
async fn what_closes_a_record_depends_on_its_reason() {
    let (world, act) = deleted().await;
    let (_, project) = world.open();
    let closing = async |act: &BreakGlass| {
        let open = Restrictions::read(&world.control).await.unwrap();
        open.closing(act, Some(&project))
    };
    assert_eq!(closing(&act).await, ClosedBy::ReasonThenRun);
    let explained = explain(&world, &act, "a wrong path").await.unwrap();
    assert_eq!(closing(&explained).await, ClosedBy::Run);
}

#[tokio::test]
async fn restrictions_of_one_stack_leave_out_those_of_others() {
    let world = rolled_back().await;
    let (_, project) = world.open();
    let open = Restrictions::read(&world.control).await.unwrap();
    let of_b = BTreeSet::from(["b".parse().unwrap()]);
    assert!(open.clone().on(&world.control, &project, &of_b).is_empty());
    let of_a = BTreeSet::from(["a".parse().unwrap()]);
    assert!(!open.on(&world.control, &project, &of_a).is_empty());
}

#[tokio::test]
async fn records_of_other_projects_are_counted_and_not_listed() {
    let (world, _) = written(&["1"]).await;
    let other = model::state::StateName::new("shop", "web");
    record_reveal(
        &world.control,
        &other,
        &Actor::named("bob"),
        "an audit",
        String::new(),
    )
    .await
    .unwrap();
    let open = Restrictions::read(&world.control).await.unwrap();
    assert_eq!((open.acts.len(), open.outside), (0, 1));
}

#[tokio::test]
async fn a_reason_is_stored_without_sensitive_values_of_the_state() {
    let mut world = World::single().await;
    let script = |value: &str| json!({"resources": {"r": value}, "outputs": {"login": "correct-horse"}, "sensitive": ["login"]});
    world.script("a", &script("1"));
    world.auto_apply(&[]).await;
    world.script("a", &script("2"));
    world.auto_apply(&[]).await;
    let to = RollbackTarget::Version(1);
    let proposal = surgery::rollback(&world.control, &a(&world), to)
        .await
        .unwrap();
    let why = reason("correct-horse leaked");
    surgery::carry_out(&world.control, proposal, &why)
        .await
        .unwrap();
    let acts = open_acts(&world).await;
    assert_eq!(acts[0].reason.as_deref(), Some("(secret) leaked"));
}

#[tokio::test]
async fn a_reason_is_stored_without_secrets_of_the_environment() {
    let mut world = World::single().await;
    world
        .env
        .insert("DB_PASSWORD".to_owned(), "hunter2-hunter2".to_owned());
    let (open, _) = world.open();
    let text =
        redact_reason::without_secrets_here(Some(&open), &world.env, "tried hunter2-hunter2");
    assert_eq!(text, "tried (secret)");
}

#[tokio::test]
async fn a_reason_that_comes_later_is_stored_without_secrets_too() {
    let mut world = World::single().await;
    let script = json!({"resources": {"r": "1"}, "outputs": {"login": "correct-horse"}, "sensitive": ["login"]});
    world.script("a", &script);
    world.auto_apply(&[]).await;
    let client = client_of(
        &world,
        "ci",
        model::state::token::TokenScope::Write,
        "demo/*",
    )
    .await;
    client.lock(&crate::states::lock("x")).await.unwrap();
    client.unlock(None).await.unwrap();
    let act = open_acts(&world).await.remove(0);
    let explained = explain(&world, &act, "correct-horse leaked").await.unwrap();
    assert_eq!(explained.reason.as_deref(), Some("(secret) leaked"));
}
