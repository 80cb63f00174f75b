//! The loop that drives a change set for an attached client.

use std::time::{Duration, Instant};

use control::run::client_presence;
use control::schedule::supervisor::{SuperviseError, Supervisor};
use model::base::actor::Actor;
use model::base::error::Explain as _;
use model::base::ids::ChangeSetId;
use model::run::changeset::{Action, Status};

use crate::world::World;

fn supervisor(world: &World, set: ChangeSetId) -> Supervisor {
    Supervisor::new(&world.control, set, Some(world.caller()), None)
}

/// Watches until a run is claimed, and carries out what is claimed.
async fn drive_once(world: &mut World) -> Result<(), SuperviseError> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(20) {
        if let Ok(claimed) = world.claimed.try_recv() {
            world.carry_out_one(claimed).await;
            return Ok(());
        }
        tokio::task::yield_now().await;
    }
    panic!("nothing was claimed");
}

#[tokio::test]
async fn the_loop_starts_what_was_requested() {
    let mut world = World::single().await;
    let request = world.request(Action::Plan, &[]);
    let set = world.begin(&request).await.unwrap();
    let supervisor = supervisor(&world, set);
    let driven = Box::pin(supervisor.run_beside(drive_once(&mut world))).await;
    driven.unwrap();
    assert_eq!(world.summary(set).await, "finished: a planned");
}

#[tokio::test]
async fn the_loop_ends_a_run_whose_runner_is_lost() {
    let mut world = World::single().await;
    let request = world.request(Action::Plan, &[]);
    let set = world.begin(&request).await.unwrap();
    let supervisor = supervisor(&world, set);
    let lost_and_claimed_again = async {
        while world.claimed.try_recv().is_err() {
            tokio::task::yield_now().await;
        }
        drive_once(&mut world).await
    };
    let driven = Box::pin(supervisor.run_beside(lost_and_claimed_again)).await;
    driven.unwrap();
    assert_eq!(world.summary(set).await, "finished: a planned");
}

#[tokio::test]
async fn a_second_client_without_values_does_not_stop_the_first() {
    let mut world = World::single().await;
    let request = world.request(Action::Plan, &[]);
    let set = world.begin(&request).await.unwrap();
    let first = supervisor(&world, set);
    let second = Supervisor::new(&world.control, set, None, None);
    let work = second.run_beside(drive_once(&mut world));
    let driven = Box::pin(first.run_beside(work)).await;
    driven.unwrap();
    assert_eq!(world.summary(set).await, "finished: a planned");
}

#[tokio::test]
async fn an_interrupt_is_passed_on_before_the_client_leaves() {
    let mut world = World::single().await;
    let request = world.request(Action::Plan, &[]);
    let set = world.begin(&request).await.unwrap();
    let supervisor = supervisor(&world, set);
    let left = async {
        while world.claimed.try_recv().is_err() {
            tokio::task::yield_now().await;
        }
        supervisor.interrupt(Actor::named("alice")).await
    };
    Box::pin(supervisor.run_beside(left)).await.unwrap();
    let status = world.set(set).await.status;
    assert_ne!(status, Status::Planning);
}

#[tokio::test]
async fn an_error_of_the_store_ends_the_loop() {
    let mut world = World::single().await;
    let request = world.request(Action::Plan, &[]);
    let set = world.begin(&request).await.unwrap();
    let unknown = ChangeSetId(set.0 + 1);
    let supervisor = supervisor(&world, unknown);
    let waiting = std::future::pending::<Result<(), SuperviseError>>();
    let failed = Box::pin(supervisor.run_beside(waiting)).await;
    assert!(!failed.unwrap_err().is_unavailable());
}

#[tokio::test]
async fn after_a_confirmation_by_another_client_the_loop_goes_on() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    let supervisor = supervisor(&world, set);
    let _watch = client_presence::attach(&world.control, set).unwrap();
    let confirmed_elsewhere = async {
        world.confirm_as(set, "bob").await.unwrap();
        // The runner that the other client started is lost.
        while world.claimed.try_recv().is_err() {
            tokio::task::yield_now().await;
        }
        while world.set(set).await.status == Status::Confirmed {
            tokio::task::yield_now().await;
        }
        Ok::<_, SuperviseError>(())
    };
    Box::pin(supervisor.run_beside(confirmed_elsewhere))
        .await
        .unwrap();
    assert_eq!(world.summary(set).await, "stopped: a unknown");
}
