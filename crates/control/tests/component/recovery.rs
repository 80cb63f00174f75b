//! Runs whose runner died: planned again, or ended as unknown and never repeated by themselves.

use std::path::{Path, PathBuf};

use control::run::lock::RunLock;
use model::base::ids::ChangeSetId;
use model::run::changeset::Action;
use model::run::{Outcome, RunState};
use serde_json::{Value, json};
use testkit::write_program;

use crate::failures::unrelated;
use crate::world::{World, stack};

/// Confirms. No runner carries out what follows.
async fn confirm_only(world: &World, set: ChangeSetId) {
    world.confirm_as(set, "alice").await.unwrap();
}

/// A change set of `a` whose runner died in its apply.
async fn lost_in_apply(world: &mut World) -> ChangeSetId {
    let set = world.apply(&[]).await;
    confirm_only(world, set).await;
    world.lose_next();
    world.recover(set).await;
    world.drive(set).await;
    set
}

/// A hook of every stack that hangs as long as the test wants: [`hang`].
pub(crate) fn hanging(when: &str, stage: &str) -> String {
    format!(
        "context \"hanging\" {{\n  autoattach = [\"*\"]\n  hook \"{when}\" \"{stage}\" {{ run = [\"./hang.sh\"] }}\n}}\n"
    )
}

/// Starts the change set and kills its runner in the hook of [`hanging`].
pub(crate) async fn lose_in_hook(world: &mut World, set: ChangeSetId) {
    let (hangs, began) = (world.root().join("../hangs"), world.root().join("../began"));
    std::fs::write(&hangs, "").unwrap();
    world.step(set).await;
    let claimed = world.claimed.try_recv().expect("a claimed run");
    tokio::select! {
        () = world.carry_out_one(claimed) => panic!("the runner lived on"),
        () = exists(&began) => {}
    }
    std::fs::remove_file(hangs).unwrap();
    for run in world.runs(set).await {
        while RunLock::is_held(&world.control.home, run.id) {
            tokio::task::yield_now().await;
        }
    }
    world.recover(set).await;
}

async fn exists(path: &Path) {
    while !path.exists() {
        tokio::task::yield_now().await;
    }
}

/// The program that [`hanging`] names.
pub(crate) fn write_hang(world: &World) {
    let place = world.root().join("..");
    let place = place.display();
    let text = format!("#!/bin/sh\nwhile test -e '{place}/hangs'; do : > '{place}/began'; done\n");
    write_program(&world.root().join("hang.sh"), &text);
}

/// The directory in which the engine of `a` worked.
fn engine_dir(world: &World) -> PathBuf {
    let slots = world.control.home.work().join("slots");
    let slot = std::fs::read_dir(slots).unwrap().next().unwrap().unwrap();
    slot.path().join("0/stacks/a")
}

/// A state as an engine leaves it that could not deliver it.
fn leave_state(world: &World, lineage: &str, serial: u64) {
    let state = json!({"version": 4, "terraform_version": "1.11.14", "serial": serial, "lineage": lineage,
        "outputs": {}, "resources": [{"mode": "managed", "type": "terraform_data", "name": "r",
            "provider": "provider[\"terraform.io/builtin/terraform\"]",
            "instances": [{"schema_version": 0, "attributes": {"id": "id-of-r", "value": "2"}}]}]});
    std::fs::write(engine_dir(world).join("errored.tfstate"), state.to_string()).unwrap();
}

/// Applies `a`, changes it, and loses the runner of the next apply. Then the engine's state of this lineage and serial
/// is found.
async fn lost_with_a_state(lineage: Option<&str>, serial: u64) -> (World, ChangeSetId) {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    world.script("a", &json!({"resources": {"r": "2"}}));
    let set = world.apply(&[]).await;
    confirm_only(&world, set).await;
    world.lose_next();
    let own = world.head("a").await.unwrap().lineage;
    leave_state(&world, lineage.unwrap_or(&own), serial);
    world.recover(set).await;
    world.drive(set).await;
    (world, set)
}

/// What became of the state that a lost run left.
async fn kept(world: &World, set: ChangeSetId) -> String {
    match world.run(set, "a").await.state {
        RunState::Finished {
            outcome: Outcome::Unknown { kept, .. },
            ..
        } => kept.unwrap_or_default(),
        state => panic!("not unknown: {state:?}"),
    }
}

#[tokio::test]
async fn a_run_whose_runner_died_before_its_plan_is_planned_again() {
    let mut world = World::single().await;
    let request = world.request(Action::Plan, &[]);
    let set = world.begin(&request).await.unwrap();
    world.step(set).await;
    world.lose_next();
    world.recover(set).await;
    assert_eq!(world.summary(set).await, "planning: a queued");
    world.drive(set).await;
    assert_eq!(world.summary(set).await, "finished: a planned");
}

#[tokio::test]
async fn a_run_whose_runner_died_while_planning_is_planned_again() {
    let mut world = World::new(&(hanging("before", "plan") + &stack("a", ""))).await;
    write_hang(&world);
    world.script("a", &json!({"resources": {"r": "1"}}));
    let request = world.request(Action::Apply, &[]);
    let set = world.begin(&request).await.unwrap();
    lose_in_hook(&mut world, set).await;
    world.drive(set).await;
    assert_eq!(world.summary(set).await, "awaiting confirmation: a planned");
}

#[tokio::test]
async fn a_preview_whose_runner_died_is_made_again() {
    let only_b = hanging("before", "plan").replace("\"*\"", "\"b\"");
    let inputs = "inputs = { up = stack.a.output.id }";
    let mut world = World::new(&(only_b + &stack("a", "") + &stack("b", inputs))).await;
    write_hang(&world);
    world.script(
        "a",
        &json!({"resources": {"r": "1"}, "outputs": {"id": "@r"}}),
    );
    world.script("b", &json!({"resources": {"r": "${var.up}"}}));
    let request = world.request(Action::Plan, &[]);
    let set = world.begin(&request).await.unwrap();
    lose_in_hook(&mut world, set).await;
    assert_eq!(world.summary(set).await, "planning: a planned, b queued");
    world.drive(set).await;
    assert_eq!(world.summary(set).await, "finished: a planned, b deferred");
}

#[tokio::test]
async fn a_run_whose_claim_is_still_held_is_left_alone() {
    let mut world = World::single().await;
    let request = world.request(Action::Plan, &[]);
    let set = world.begin(&request).await.unwrap();
    world.step(set).await;
    world.recover(set).await;
    assert_eq!(world.summary(set).await, "planning: a planning");
    world.carry_out().await;
    assert_eq!(world.summary(set).await, "finished: a planned");
}

#[tokio::test]
async fn a_run_whose_runner_died_in_an_apply_is_unknown() {
    let mut world = World::single().await;
    let set = lost_in_apply(&mut world).await;
    assert_eq!(world.summary(set).await, "stopped: a unknown");
}

#[tokio::test]
async fn a_run_whose_runner_died_in_an_apply_is_never_repeated_by_itself() {
    let mut world = World::single().await;
    let set = lost_in_apply(&mut world).await;
    world.recover(set).await;
    world.drive(set).await;
    assert_eq!(world.summary(set).await, "stopped: a unknown");
    assert_eq!(world.serial("a").await, 0);
}

#[tokio::test]
async fn dependents_of_an_unknown_run_are_skipped() {
    let mut world = World::chain(&["a", "b"]).await;
    let set = lost_in_apply(&mut world).await;
    assert_eq!(world.summary(set).await, "stopped: a unknown, b skipped");
}

#[tokio::test]
async fn other_stacks_go_on_when_a_runner_dies() {
    let mut world = unrelated(&["a", "b"]).await;
    let set = world.apply(&[]).await;
    confirm_only(&world, set).await;
    world.lose_next();
    world.recover(set).await;
    world.carry_out().await;
    assert_eq!(world.summary(set).await, "stopped: a unknown, b applied");
}

#[tokio::test]
async fn a_resume_after_an_unknown_end_asks() {
    let mut world = World::single().await;
    let set = lost_in_apply(&mut world).await;
    world.resume(set, false).await.unwrap();
    assert_eq!(world.summary(set).await, "awaiting confirmation: a planned");
}

#[tokio::test]
async fn a_resume_after_an_unknown_end_asks_though_it_was_approved_beforehand() {
    let mut world = World::single().await;
    let set = lost_in_apply(&mut world).await;
    world.resume(set, true).await.unwrap();
    assert_eq!(world.summary(set).await, "awaiting confirmation: a planned");
    assert_eq!(world.serial("a").await, 0);
}

#[tokio::test]
async fn a_retry_after_an_unknown_end_asks_though_it_was_approved_beforehand() {
    let mut world = World::single().await;
    let set = lost_in_apply(&mut world).await;
    world.retry(set, "a", true).await.unwrap();
    assert_eq!(world.summary(set).await, "awaiting confirmation: a planned");
    assert_eq!(world.serial("a").await, 0);
}

#[tokio::test]
async fn a_confirmation_after_an_unknown_end_applies() {
    let mut world = World::single().await;
    let set = lost_in_apply(&mut world).await;
    world.resume(set, false).await.unwrap();
    world.confirm(set, "alice").await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied");
}

#[tokio::test]
async fn an_auto_approved_run_whose_runner_died_is_asked_about() {
    let mut world = World::new(&(hanging("before", "apply") + &stack("a", ""))).await;
    write_hang(&world);
    world.script("a", &json!({"resources": {"r": "1"}}));
    let mut request = world.request(Action::Apply, &[]);
    request.auto_approve = true;
    let set = world.begin(&request).await.unwrap();
    lose_in_hook(&mut world, set).await;
    world.drive(set).await;
    assert_eq!(world.summary(set).await, "stopped: a unknown");
    world.resume(set, true).await.unwrap();
    assert_eq!(world.summary(set).await, "awaiting confirmation: a planned");
}

#[tokio::test]
async fn a_stack_that_is_applied_without_a_question_is_asked_about_after_its_runner_died() {
    let blocks = hanging("before", "apply") + &stack("a", "apply = \"auto\"");
    let mut world = World::new(&blocks).await;
    write_hang(&world);
    world.script("a", &json!({"resources": {"r": "1"}}));
    let request = world.request(Action::Apply, &[]);
    let set = world.begin(&request).await.unwrap();
    lose_in_hook(&mut world, set).await;
    world.drive(set).await;
    assert_eq!(world.summary(set).await, "stopped: a unknown");
    world.resume(set, false).await.unwrap();
    assert_eq!(world.summary(set).await, "awaiting confirmation: a planned");
}

#[tokio::test]
async fn a_second_lost_apply_is_asked_about_again() {
    let mut world = World::single().await;
    let set = lost_in_apply(&mut world).await;
    world.resume(set, true).await.unwrap();
    confirm_only(&world, set).await;
    world.lose_next();
    world.recover(set).await;
    world.drive(set).await;
    assert_eq!(world.summary(set).await, "stopped: a unknown");
    world.resume(set, true).await.unwrap();
    assert_eq!(world.summary(set).await, "awaiting confirmation: a planned");
}

#[tokio::test]
async fn an_unknown_end_frees_the_target_for_other_change_sets() {
    let mut world = World::single().await;
    lost_in_apply(&mut world).await;
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a applied");
}

#[tokio::test]
async fn a_state_that_a_lost_run_left_is_stored() {
    let (world, set) = lost_with_a_state(None, 2).await;
    assert_eq!(world.summary(set).await, "stopped: a unknown");
    assert_eq!(world.serial("a").await, 2);
    assert!(kept(&world, set).await.contains("kept as serial 2"));
}

#[tokio::test]
async fn a_state_that_a_lost_run_left_is_what_the_next_plan_sees() {
    let (mut world, _) = lost_with_a_state(None, 2).await;
    let set = world.plan(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a unchanged");
}

#[tokio::test]
async fn a_state_of_another_lineage_that_a_lost_run_left_is_quarantined() {
    let (mut world, set) = lost_with_a_state(Some("another"), 2).await;
    assert_eq!(world.serial("a").await, 1);
    assert!(kept(&world, set).await.contains("quarantined"));
    let request = world.request(Action::Apply, &[]);
    assert!(world.begin(&request).await.is_err());
}

#[tokio::test]
async fn a_state_that_is_not_newer_than_the_stored_one_is_quarantined() {
    let (world, set) = lost_with_a_state(None, 1).await;
    assert_eq!(world.serial("a").await, 1);
    let kept = kept(&world, set).await;
    assert!(
        kept.contains("its serial 1 is not after the head's 1"),
        "{kept}"
    );
}

#[tokio::test]
async fn a_resume_is_refused_while_the_state_of_a_lost_run_is_quarantined() {
    let (mut world, set) = lost_with_a_state(Some("another"), 2).await;
    let refused = world.resume(set, true).await.unwrap_err();
    assert_eq!(refused.to_string(), "cannot apply stack `a` now");
}

#[tokio::test]
async fn a_state_that_nobody_recovered_is_found_by_the_next_apply() {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    let lineage = world.head("a").await.unwrap().lineage;
    leave_state(&world, &lineage, 2);
    world.script("a", &json!({"resources": {"r": "3"}}));
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "stopped: a failed");
    assert_eq!(world.serial("a").await, 2);
    let problem = world.problem(set, "a").await;
    assert!(problem.refused);
    assert_eq!(
        problem.message,
        "an earlier run left a state here that could not be delivered"
    );
}

#[tokio::test]
async fn gates_are_looked_at_again_after_their_runner_died() {
    let gate = "gate \"command\" \"smoke\" { run = [\"./smoke.sh\"] }";
    let blocks = hanging("before", "verify") + &stack("a", gate);
    let mut world = World::new(&blocks).await;
    write_hang(&world);
    write_program(&world.root().join("smoke.sh"), "#!/bin/sh\nexit 0\n");
    world.script("a", &json!({"resources": {"r": "1"}}));
    let mut request = world.request(Action::Apply, &[]);
    request.auto_approve = true;
    let set = world.begin(&request).await.unwrap();
    lose_in_hook(&mut world, set).await;
    assert_eq!(world.summary(set).await, "applying: a applied");
    world.drive(set).await;
    assert_eq!(world.summary(set).await, "finished: a applied");
    assert_eq!(world.serial("a").await, 1);
}

#[tokio::test]
async fn the_events_of_a_run_name_its_lost_runner() {
    let mut world = World::single().await;
    let set = lost_in_apply(&mut world).await;
    let run = world.run(set, "a").await.id;
    let events = world.control.run_events(run).await.unwrap();
    let last = serde_json::to_value(&events.last().unwrap().1).unwrap();
    assert_eq!(last["event"], Value::from("runner_lost"));
}
