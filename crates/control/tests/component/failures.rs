//! What a failure leaves: its message, what was made before it, and the stacks that are skipped because of it.

use control::state::quarantine;
use control::state::redact_reason::BreakGlassReason;
use model::base::actor::Actor;
use model::base::ids::ChangeSetId;
use model::run::changeset::Action;
use model::run::{Outcome, RunState, Stage};
use serde_json::json;

use crate::world::{World, stack};

/// Stacks of these names without any dependency.
pub(crate) async fn unrelated(names: &[&str]) -> World {
    let blocks: String = names.iter().map(|name| stack(name, "")).collect();
    let world = World::new(&blocks).await;
    for name in names {
        world.script(name, &json!({"resources": {"r": "1"}}));
    }
    world
}

/// Why a run was skipped.
pub(crate) async fn skipped(world: &World, set: ChangeSetId, stack: &str) -> String {
    match world.run(set, stack).await.state {
        RunState::Finished {
            outcome: Outcome::Skipped { because },
            ..
        } => because.words(),
        state => panic!("`{stack}` was not skipped: {state:?}"),
    }
}

#[tokio::test]
async fn a_failed_init_ends_the_run_with_the_words_of_the_engine() {
    let mut world = World::single().await;
    let event = json!({"type": "diagnostic", "@level": "error", "@message": "no such provider",
        "diagnostic": {"severity": "error", "summary": "no such provider", "detail": ""}});
    world.before_engine(&format!(
        "test \"$1\" = init && printf '%s\\n' '{event}' && exit 1"
    ));
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "stopped: a failed");
    let problem = world.problem(set, "a").await;
    assert_eq!(problem.brief(), "no such provider");
    assert!(
        problem.message.starts_with("could not initialise"),
        "{problem:?}"
    );
}

#[tokio::test]
async fn a_failed_plan_is_stored_with_the_words_of_the_engine() {
    let mut world = World::single().await;
    world.script("a", &json!({"plan_error": "no such region"}));
    let set = world.plan(&[]).await;
    assert_eq!(world.summary(set).await, "stopped: a failed");
    let problem = world.problem(set, "a").await;
    assert_eq!(
        (problem.stage, problem.brief()),
        (Stage::Planning, "no such region")
    );
}

#[tokio::test]
async fn a_failure_of_one_stack_skips_its_dependents_with_the_reason() {
    let mut world = World::chain(&["a", "b", "c"]).await;
    world.script(
        "a",
        &json!({"outputs": {"id": "1"}, "plan_error": "no such region"}),
    );
    let set = world.apply(&[]).await;
    assert_eq!(
        world.summary(set).await,
        "stopped: a failed, b skipped, c skipped"
    );
    assert_eq!(skipped(&world, set, "b").await, "`a` did not succeed");
    assert_eq!(
        skipped(&world, set, "c").await,
        "`a` did not succeed (through `b`)"
    );
}

#[tokio::test]
async fn stacks_that_do_not_depend_on_a_failed_one_are_applied() {
    let mut world = unrelated(&["a", "b"]).await;
    world.script("a", &json!({"plan_error": "no such region"}));
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "stopped: a failed, b applied");
}

#[tokio::test]
async fn a_failed_plan_does_not_keep_other_plans_from_being_confirmed() {
    let mut world = unrelated(&["a", "b"]).await;
    world.script("a", &json!({"plan_error": "no such region"}));
    let set = world.apply(&[]).await;
    assert_eq!(
        world.summary(set).await,
        "awaiting confirmation: a failed, b planned"
    );
    world.confirm(set, "alice").await.unwrap();
    assert_eq!(world.summary(set).await, "stopped: a failed, b applied");
}

#[tokio::test]
async fn what_a_failed_apply_made_is_in_the_state() {
    let mut world = World::single().await;
    let resources = json!({"r": "1", "s": "2", "t": "3"});
    world.script("a", &json!({"resources": resources, "apply_error_at": "s"}));
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "stopped: a failed");
    assert_eq!(world.problem(set, "a").await.serial, Some(1));

    world.script("a", &json!({"resources": resources}));
    let next = world.plan(&[]).await;
    let RunState::Finished {
        outcome: Outcome::Planned { plan },
        ..
    } = world.run(next, "a").await.state
    else {
        panic!("not planned");
    };
    assert_eq!(plan.counts.create, 2, "only `s` and `t` are left");
}

#[tokio::test]
async fn a_failed_apply_of_a_dependent_keeps_its_upstream() {
    let mut world = World::chain(&["a", "b"]).await;
    world.script(
        "b",
        &json!({"resources": {"r": "${var.up}"}, "apply_error_at": "r"}),
    );
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "stopped: a applied, b failed");
    assert_eq!(world.serial("a").await, 1);
}

#[tokio::test]
async fn an_engine_that_dies_leaves_a_note_of_what_it_was_working_on() {
    let mut world = World::single().await;
    world.script("a", &json!({"resources": {"r": "1"}, "crash_at": "r"}));
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "stopped: a failed");
    let left = world.problem(set, "a").await.left.unwrap();
    assert_eq!(left.underway[0].address, "terraform_data.r");
}

#[tokio::test]
async fn an_engine_that_dies_leaves_no_lock_behind() {
    let mut world = World::single().await;
    world.script("a", &json!({"resources": {"r": "1"}, "crash_at": "r"}));
    world.auto_apply(&[]).await;
    world.script("a", &json!({"resources": {"r": "1"}}));
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a applied");
}

#[tokio::test]
async fn a_state_that_the_engine_could_not_deliver_is_stored() {
    let mut world = World::single().await;
    keep_back(&world, "own");
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "stopped: a failed");
    assert_eq!(world.serial("a").await, 1);
    let hint = world.problem(set, "a").await.hint.unwrap();
    assert!(hint.contains("was found and kept as serial 1"), "{hint}");
}

/// Makes the engine end in each apply with a state that it could not deliver.
fn keep_back(world: &World, lineage: &str) {
    let state = json!({"version": 4, "terraform_version": "1.11.14", "serial": 2, "lineage": lineage,
        "outputs": {}, "resources": [{"mode": "managed", "type": "terraform_data", "name": "r",
            "provider": "provider[\"terraform.io/builtin/terraform\"]",
            "instances": [{"schema_version": 0, "attributes": {"id": "id-of-r", "value": "2"}}]}]});
    world.before_engine(&format!(
        "test \"$1\" = apply && printf '%s' '{state}' > errored.tfstate && exit 1"
    ));
}

/// A stack with a stored state and a quarantined one.
async fn quarantined() -> (World, ChangeSetId) {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    world.script("a", &json!({"resources": {"r": "2"}}));
    keep_back(&world, "another");
    let set = world.auto_apply(&[]).await;
    world.before_engine("");
    (world, set)
}

#[tokio::test]
async fn an_undelivered_state_of_another_lineage_is_quarantined() {
    let (world, set) = quarantined().await;
    assert_eq!(world.serial("a").await, 1);
    let hint = world.problem(set, "a").await.hint.unwrap();
    assert!(hint.contains("quarantined"), "{hint}");
}

#[tokio::test]
async fn a_stack_with_a_quarantined_state_is_not_applied() {
    let (mut world, _) = quarantined().await;
    let request = world.request(Action::Apply, &[]);
    let refused = world.begin(&request).await.unwrap_err();
    assert_eq!(refused.to_string(), "cannot apply stack `a` now");
}

#[tokio::test]
async fn a_stack_with_a_quarantined_state_is_planned() {
    let (mut world, _) = quarantined().await;
    let set = world.plan(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a planned");
}

#[tokio::test]
async fn a_stack_is_applied_again_after_its_quarantined_state_was_discarded() {
    let (mut world, set) = quarantined().await;
    let reason = BreakGlassReason {
        actor: Actor::named("alice"),
        text: "it is of another stack".to_owned(),
    };
    let run = world.run(set, "a").await.id;
    quarantine::discard(&world.control, run, &reason)
        .await
        .unwrap();
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a applied");
}

#[tokio::test]
async fn nothing_is_discarded_of_a_run_that_left_nothing() {
    let mut world = World::single().await;
    let set = world.auto_apply(&[]).await;
    let reason = BreakGlassReason {
        actor: Actor::named("alice"),
        text: "to be sure".to_owned(),
    };
    let run = world.run(set, "a").await.id;
    let refused = quarantine::discard(&world.control, run, &reason).await;
    assert_eq!(
        refused.unwrap_err().to_string(),
        "run r1 left no quarantined state"
    );
}
