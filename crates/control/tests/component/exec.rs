//! Engine commands that a person runs on a stack.

use control::changeset::prepare::ChangeSetRequest;
use control::runner;
use model::base::ids::ChangeSetId;
use model::run::changeset::Action;
use model::run::exec::{Exec, ExecKind};
use serde_json::json;

use crate::endpoint::serve;
use crate::world::World;

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn request(world: &World, line: &str) -> ChangeSetRequest {
    let request = world.request(Action::Exec, &["a"]);
    let exec = Exec::parse(&words(line), Some("cleaning up".to_owned())).unwrap();
    ChangeSetRequest {
        in_any_case: request.stacks.clone(),
        auto_approve: exec.kind == ExecKind::Write,
        exec: Some(exec),
        ..request
    }
}

/// Makes the engine know `state rm terraform_data.r` for a state of this serial.
async fn can_remove(world: &World, serial: u64) {
    let head = world.head("a").await.unwrap();
    let plan = json!({"state": {"lineage": head.lineage, "serial": serial},
        "plan": {"resource_changes": [{"name": "r", "address": "terraform_data.r", "scripted": "delete",
            "change": {"after": null}}], "output_changes": {}}});
    world.before_engine(&format!(
        "test \"$1 $2\" = 'state rm' && printf '%s' '{plan}' > rm.plan && set -- apply rm.plan"
    ));
}

/// Runs a command that writes.
async fn write(world: &mut World, line: &str) -> ChangeSetId {
    let request = request(world, line);
    world.start(&request).await
}

/// Runs the command as on the user's terminal; returns whether it succeeded.
async fn attend(world: &World, set: ChangeSetId) -> bool {
    let caller = world.caller();
    let exit = Box::pin(runner::attend(&world.control, set, &caller, serve)).await;
    exit.unwrap().success()
}

#[tokio::test]
async fn a_command_that_reads_changes_nothing() {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    let request = request(&world, "state list");
    let set = world.begin(&request).await.unwrap();
    assert!(attend(&world, set).await);
    assert_eq!(world.summary(set).await, "finished: a unchanged");
    assert_eq!(world.serial("a").await, 1);
}

#[tokio::test]
async fn a_command_that_reads_does_not_wait_for_an_apply() {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    world.script(
        "a",
        &json!({"resources": {"r": "2"}, "outputs": {"id": "@r"}}),
    );
    let apply = world.request(Action::Apply, &[]);
    let apply = ChangeSetRequest {
        auto_approve: true,
        ..apply
    };
    let apply = world.begin(&apply).await.unwrap();
    world.step(apply).await;
    let request = request(&world, "state list");
    let set = world.begin(&request).await.unwrap();
    assert!(attend(&world, set).await);
    world.carry_out().await;
    assert_eq!(world.summary(apply).await, "finished: a applied");
}

#[tokio::test]
async fn a_command_that_reads_and_fails_ends_its_change_set() {
    let mut world = World::single().await;
    let request = request(&world, "graph");
    let set = world.begin(&request).await.unwrap();
    assert!(!attend(&world, set).await);
    assert_eq!(world.summary(set).await, "stopped: a failed");
}

#[tokio::test]
async fn a_command_that_writes_is_a_run_with_a_new_state() {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    can_remove(&world, 1).await;
    let set = write(&mut world, "state rm terraform_data.r").await;
    assert_eq!(world.summary(set).await, "finished: a applied");
    assert_eq!(world.serial("a").await, 2);
    let run = world.run(set, "a").await.id;
    assert_eq!(world.head("a").await.unwrap().run, Some(run));
}

#[tokio::test]
async fn the_next_plan_sees_what_a_command_changed() {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    can_remove(&world, 1).await;
    write(&mut world, "state rm terraform_data.r").await;
    let set = world.plan(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a planned");
}

#[tokio::test]
async fn a_command_that_fails_leaves_the_exit_code_of_the_engine() {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    let set = write(&mut world, "taint terraform_data.r").await;
    assert_eq!(world.summary(set).await, "stopped: a failed");
    let run = world.run(set, "a").await.id;
    let code = std::fs::read_to_string(runner::exit_file(&world.control.home, run));
    assert_eq!(code.unwrap(), "1");
}

#[tokio::test]
async fn a_command_that_failed_is_not_repeated() {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    let set = write(&mut world, "taint terraform_data.r").await;
    let refused = world.resume(set, true).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "change set c2 runs an engine command, which is not retried automatically"
    );
}

#[tokio::test]
async fn a_plan_that_waits_is_void_once_a_command_changed_the_state() {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    world.script(
        "a",
        &json!({"resources": {"r": "2"}, "outputs": {"id": "@r"}}),
    );
    let set = world.apply(&[]).await;
    can_remove(&world, 1).await;
    write(&mut world, "state rm terraform_data.r").await;
    world.confirm(set, "alice").await.unwrap();
    assert_eq!(world.summary(set).await, "stopped: a failed");
    let problem = world.problem(set, "a").await;
    assert!(problem.refused);
    assert!(
        problem
            .message
            .starts_with("this plan may no longer be applied: the state moved"),
        "{}",
        problem.message
    );
}

#[tokio::test]
async fn commands_that_terrane_has_itself_are_refused() {
    for line in [
        "plan",
        "apply",
        "destroy",
        "init",
        "force-unlock 1",
        "state push x",
    ] {
        let refused = Exec::parse(&words(line), None).unwrap_err().to_string();
        assert!(
            refused.contains("is not passed on to the engine"),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn a_command_that_edits_the_state_needs_a_reason() {
    let refused = Exec::parse(&words("state rm terraform_data.r"), None).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot run `state rm`: it changes the state directly, which requires a reason"
    );
}

#[tokio::test]
async fn a_command_waits_for_the_apply_of_another() {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    world.script(
        "a",
        &json!({"resources": {"r": "2"}, "outputs": {"id": "@r"}}),
    );
    let apply = world.request(Action::Apply, &[]);
    let apply = ChangeSetRequest {
        auto_approve: true,
        ..apply
    };
    let apply = world.begin(&apply).await.unwrap();
    world.step(apply).await;
    can_remove(&world, 2).await;
    let request = request(&world, "state rm terraform_data.r");
    let set = world.begin(&request).await.unwrap();
    world.step(set).await;
    assert_eq!(world.set(set).await.status.word(), "queued");
    world.carry_out().await;
    world.drive(set).await;
    assert_eq!(world.summary(set).await, "finished: a applied");
    assert_eq!(world.serial("a").await, 3);
}
