//! Change sets and runs that a person ends.

use control::changeset::cancel_requests::CancelRequest;
use control::schedule::cancel::{self, PendingCancel};
use control::schedule::scheduler::{self, UserCommand};
use control::state::redact_reason::BreakGlassReason;
use model::base::actor::Actor;
use model::base::ids::ChangeSetId;
use model::run::RunEvent;
use model::run::changeset::Action;

use crate::failures::{skipped, unrelated};
use crate::world::World;

fn wish() -> CancelRequest {
    CancelRequest {
        by: Actor::named("bob"),
        reason: Some("wrong branch".to_owned()),
    }
}

async fn confirm_only(world: &World, set: ChangeSetId) {
    world.confirm_as(set, "alice").await.unwrap();
}

#[tokio::test]
async fn a_change_set_that_awaits_a_confirmation_is_cancelled() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    cancel::cancel_set(&world.control, set, &wish())
        .await
        .unwrap();
    assert_eq!(world.summary(set).await, "stopped: a skipped");
    assert_eq!(
        skipped(&world, set, "a").await,
        "interrupted before it began"
    );
}

#[tokio::test]
async fn a_change_set_that_waits_for_its_target_is_cancelled() {
    let mut world = unrelated(&["a", "b"]).await;
    let first = world.apply(&["a"]).await;
    let second = world.apply(&["b"]).await;
    confirm_only(&world, first).await;
    confirm_only(&world, second).await;
    assert_eq!(world.summary(second).await, "queued: b planned");
    cancel::cancel_set(&world.control, second, &wish())
        .await
        .unwrap();
    assert_eq!(world.summary(second).await, "stopped: b skipped");
    world.carry_out().await;
    assert_eq!(world.summary(first).await, "finished: a applied");
}

#[tokio::test]
async fn an_apply_under_way_is_finished_and_the_rest_is_skipped() {
    let mut world = unrelated(&["a", "b"]).await;
    let mut request = world.request(Action::Apply, &[]);
    request.parallelism = 1;
    let set = world.start(&request).await;
    confirm_only(&world, set).await;
    cancel::cancel_set(&world.control, set, &wish())
        .await
        .unwrap();
    assert_eq!(
        world.summary(set).await,
        "interrupting: a applying, b skipped"
    );
    world.carry_out().await;
    assert_eq!(world.summary(set).await, "stopped: a applied, b skipped");
}

#[tokio::test]
async fn dependents_of_an_apply_under_way_are_skipped_by_a_cancel() {
    let mut world = World::chain(&["a", "b"]).await;
    let set = world.apply(&[]).await;
    confirm_only(&world, set).await;
    cancel::cancel_set(&world.control, set, &wish())
        .await
        .unwrap();
    world.carry_out().await;
    assert_eq!(world.summary(set).await, "stopped: a applied, b skipped");
}

#[tokio::test]
async fn a_cancelled_change_set_is_resumed() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    cancel::cancel_set(&world.control, set, &wish())
        .await
        .unwrap();
    world.resume(set, true).await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied");
}

#[tokio::test]
async fn a_cancelled_change_set_leaves_its_target_to_others() {
    let mut world = unrelated(&["a", "b"]).await;
    let first = world.apply(&["a"]).await;
    let second = world.apply(&["b"]).await;
    confirm_only(&world, first).await;
    confirm_only(&world, second).await;
    world.lose_next();
    cancel::cancel_set(&world.control, first, &wish())
        .await
        .unwrap();
    world.recover(first).await;
    world.drive(first).await;
    world.drive(second).await;
    assert_eq!(world.summary(second).await, "finished: b applied");
}

#[tokio::test]
async fn a_change_set_that_is_over_is_not_cancelled() {
    let mut world = World::single().await;
    let set = world.auto_apply(&[]).await;
    let refused = cancel::cancel_set(&world.control, set, &wish()).await;
    assert_eq!(
        refused.unwrap_err().to_string(),
        "change set c1 has already ended"
    );
}

#[tokio::test]
async fn an_interrupt_of_a_change_set_that_is_over_changes_nothing() {
    let mut world = World::single().await;
    let set = world.auto_apply(&[]).await;
    let by = "bob".to_owned();
    let say = Some(UserCommand::Interrupt {
        by: Actor::named(by),
    });
    let done = scheduler::advance(&world.control, set, say, &world.caller(), None).await;
    done.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied");
}

#[tokio::test]
async fn a_cancelled_change_set_cannot_be_confirmed() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    cancel::cancel_set(&world.control, set, &wish())
        .await
        .unwrap();
    assert!(world.confirm(set, "alice").await.is_err());
    assert_eq!(world.serial("a").await, 0);
}

#[tokio::test]
async fn a_run_names_who_cancelled_it_and_why() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    cancel::cancel_set(&world.control, set, &wish())
        .await
        .unwrap();
    let run = world.run(set, "a").await.id;
    let events = world.control.run_events(run).await.unwrap();
    let asked = RunEvent::CancelAsked {
        by: Actor::named("bob"),
        reason: Some("wrong branch".to_owned()),
        kill: false,
    };
    assert!(events.iter().any(|(_, event)| *event == asked));
}

#[tokio::test]
async fn one_run_is_cancelled_and_the_others_go_on() {
    let mut world = unrelated(&["a", "b"]).await;
    let set = world.apply(&[]).await;
    let run = world.run(set, "a").await.id;
    let mut pending = PendingCancel::begin(&world.control, run, &wish())
        .await
        .unwrap();
    assert!(pending.look(&world.control).await.unwrap().is_some());
    world.confirm(set, "alice").await.unwrap();
    assert_eq!(world.summary(set).await, "stopped: a skipped, b applied");
}

#[tokio::test]
async fn a_run_that_is_over_is_not_cancelled() {
    let mut world = World::single().await;
    let set = world.auto_apply(&[]).await;
    let run = world.run(set, "a").await.id;
    let refused = cancel::find(&world.control, run).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "run r1 of stack `a` has already ended: applied"
    );
}

#[tokio::test]
async fn a_run_without_an_engine_is_not_killed() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    let run = world.run(set, "a").await;
    let reason = BreakGlassReason {
        actor: Actor::named("bob"),
        text: "it hangs".to_owned(),
    };
    let refused = cancel::kill(&world.control, &run, &reason).await;
    assert_eq!(
        refused.unwrap_err().to_string(),
        "run r1 has no running engine"
    );
}

#[tokio::test]
async fn a_change_set_of_this_machine_is_not_given_up() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    let refused = cancel::may_be_given_up(&world.control, set).await;
    assert_eq!(
        refused.unwrap_err().to_string(),
        "change set c1 was started on this machine, so this machine can check its processes"
    );
}
