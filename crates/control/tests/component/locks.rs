//! Locks on states: who holds them, what they keep others from, how a person takes them away.

use control::run::lock::ClaimedRun;
use control::state::client_access::ClientAccess;
use control::state::lock_admin::{self, BreakLockError, Holder, LockedState};
use control::state::run_access::StateAccessError;
use model::base::error::Explain as _;
use model::base::ids::RunId;
use model::run::changeset::Action;
use model::state::ExpectedHead;
use model::state::break_glass::BreakGlassAction;
use model::state::token::TokenScope;

use crate::states::{a, body, client, lock, open_acts, reason, store, value, written};
use crate::world::World;

/// Stack `a`, applied once; a client holds the lock `x` on its state.
async fn locked() -> (World, ClientAccess) {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    let client = client(&world, "ci", TokenScope::Write).await;
    client.lock(&lock("x")).await.unwrap();
    (world, client)
}

async fn breakable(world: &World) -> Result<LockedState, BreakLockError> {
    lock_admin::breakable(&world.control, &a(world), false).await
}

async fn take_away(world: &World, locked: &LockedState) -> Result<LockedState, BreakLockError> {
    lock_admin::break_lock(&world.control, locked, &reason("the laptop was stolen")).await
}

#[tokio::test]
async fn the_list_of_locks_names_the_state_and_its_holder() {
    let (world, _) = locked().await;
    let listed = lock_admin::list(&world.control).await.unwrap();
    assert_eq!(
        (listed[0].state.name.as_str(), listed[0].holder),
        ("a", Holder::Client)
    );
    assert_eq!(listed[0].lock.info.who, "bob@laptop");
}

#[tokio::test]
async fn a_released_lock_is_no_longer_listed() {
    let (world, client) = locked().await;
    client.unlock(Some(&lock("x"))).await.unwrap();
    assert!(lock_admin::list(&world.control).await.unwrap().is_empty());
}

#[tokio::test]
async fn an_apply_leaves_no_lock() {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    assert!(lock_admin::list(&world.control).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_lock_of_a_client_keeps_an_apply_from_changing_anything() {
    let (mut world, _client) = locked().await;
    world.script("a", &serde_json::json!({"resources": {"r": "2"}}));
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "stopped: a failed");
    assert_eq!(value(&world).await, "1");
}

#[tokio::test]
async fn an_apply_that_finds_a_lock_names_its_holder() {
    let (mut world, _client) = locked().await;
    world.script("a", &serde_json::json!({"resources": {"r": "2"}}));
    let set = world.auto_apply(&[]).await;
    let problem = world.problem(set, "a").await;
    let said = format!("{} {:?}", problem.message, problem.diagnostics);
    assert!(said.contains("bob@laptop"), "{said}");
}

#[tokio::test]
async fn an_apply_succeeds_after_the_lock_is_released() {
    let (mut world, client) = locked().await;
    world.script("a", &serde_json::json!({"resources": {"r": "2"}}));
    let set = world.auto_apply(&[]).await;
    client.unlock(Some(&lock("x"))).await.unwrap();
    world.resume(set, true).await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied");
}

#[tokio::test]
async fn a_plan_does_not_care_about_locks() {
    let (mut world, _client) = locked().await;
    let set = world.plan(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a unchanged");
}

#[tokio::test]
async fn a_broken_lock_is_gone_and_recorded_with_its_reason() {
    let (world, _client) = locked().await;
    let found = breakable(&world).await.unwrap();
    take_away(&world, &found).await.unwrap();
    assert!(lock_admin::list(&world.control).await.unwrap().is_empty());
    let acts = open_acts(&world).await;
    assert_eq!(acts[0].act, BreakGlassAction::LockBroken);
    assert_eq!(acts[0].reason.as_deref(), Some("the laptop was stolen"));
    assert!(acts[0].detail.contains("bob@laptop"), "{}", acts[0].detail);
}

#[tokio::test]
async fn the_holder_of_a_broken_lock_writes_no_more() {
    let (world, client) = written(&["1"]).await;
    client.lock(&lock("x")).await.unwrap();
    let found = breakable(&world).await.unwrap();
    take_away(&world, &found).await.unwrap();
    let refused = client.write(Some("x".to_owned()), body(2, "late")).await;
    assert!(matches!(refused, Err(StateAccessError::Refused { .. })));
    assert_eq!(value(&world).await, "1");
}

#[tokio::test]
async fn the_record_of_a_broken_lock_is_closed_by_the_next_apply() {
    let (mut world, _client) = locked().await;
    let found = breakable(&world).await.unwrap();
    take_away(&world, &found).await.unwrap();
    world.auto_apply(&[]).await;
    assert_eq!(open_acts(&world).await, []);
}

#[tokio::test]
async fn only_the_lock_that_was_shown_is_broken() {
    let (world, client) = locked().await;
    let found = breakable(&world).await.unwrap();
    client.unlock(Some(&lock("x"))).await.unwrap();
    client.lock(&lock("y")).await.unwrap();
    let refused = take_away(&world, &found).await.unwrap_err();
    assert!(
        refused.to_string().contains("now has another lock"),
        "{refused}"
    );
    let listed = lock_admin::list(&world.control).await.unwrap();
    assert_eq!(listed[0].lock.info.id, "y");
}

#[tokio::test]
async fn a_lock_that_was_released_meanwhile_is_not_broken() {
    let (world, client) = locked().await;
    let found = breakable(&world).await.unwrap();
    client.unlock(Some(&lock("x"))).await.unwrap();
    let refused = take_away(&world, &found).await.unwrap_err();
    assert_eq!(refused.to_string(), "state `demo/a` is not locked");
    assert_eq!(open_acts(&world).await, []);
}

#[tokio::test]
async fn a_state_without_a_lock_has_nothing_to_break() {
    let (world, _) = written(&["1"]).await;
    let refused = breakable(&world).await.unwrap_err();
    assert_eq!(refused.to_string(), "state `demo/a` is not locked");
    assert_eq!(
        refused.hint().as_deref(),
        Some("`terrane lock list` lists all locks")
    );
}

#[tokio::test]
async fn an_unknown_state_has_nothing_to_break() {
    let world = World::single().await;
    let refused = breakable(&world).await.unwrap_err();
    assert_eq!(refused.to_string(), "there is no state `demo/a`");
}

#[tokio::test]
async fn a_crashed_engine_leaves_no_lock_when_its_runner_lives() {
    let mut world = World::single().await;
    world.script(
        "a",
        &serde_json::json!({"resources": {"r": "1"}, "crash_at": "r"}),
    );
    world.auto_apply(&[]).await;
    assert!(lock_admin::list(&world.control).await.unwrap().is_empty());
}

/// The run of a claimed apply that no runner has carried out yet. It holds the lock `x`.
async fn lock_of(world: &World, run: RunId) {
    let (state, any) = (a(world), ExpectedHead::Any);
    let taken = store(world).await;
    taken
        .lock_acquire(&state, &lock("x"), Some(run), any)
        .await
        .unwrap();
}

/// Stack `a` with a claimed run that holds the lock of its state; the run is alive while its claim is.
async fn of_a_live_run() -> (World, ClaimedRun) {
    let (mut world, _) = written(&["x"]).await;
    let request = world.request(Action::Apply, &[]);
    let set = world.begin(&request).await.unwrap();
    world.step(set).await;
    let claimed = world.claimed.try_recv().unwrap();
    lock_of(&world, claimed.run).await;
    (world, claimed)
}

/// The same with a run that lost its process.
async fn of_a_lost_run() -> (World, RunId) {
    let (mut world, _) = written(&["x"]).await;
    let request = world.request(Action::Apply, &[]);
    let set = world.begin(&request).await.unwrap();
    world.step(set).await;
    let run = world.lose_next();
    lock_of(&world, run).await;
    (world, run)
}

#[tokio::test]
async fn the_lock_of_a_live_run_is_not_broken() {
    let (world, claimed) = of_a_live_run().await;
    let refused = breakable(&world).await.unwrap_err();
    let why = format!(
        "run {}, which holds the lock on state `demo/a`, is still running",
        claimed.run
    );
    assert_eq!(refused.to_string(), why);
}

#[tokio::test]
async fn the_lock_of_a_live_run_is_broken_by_force() {
    let (world, claimed) = of_a_live_run().await;
    let found = lock_admin::breakable(&world.control, &a(&world), true)
        .await
        .unwrap();
    assert_eq!(found.holder, Holder::Run(claimed.run));
    take_away(&world, &found).await.unwrap();
    assert!(lock_admin::list(&world.control).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_client_does_not_unlock_the_state_of_a_live_run() {
    let (world, claimed) = of_a_live_run().await;
    let client = client(&world, "second", TokenScope::Surgery).await;
    let refused = client.unlock(None).await.unwrap_err();
    assert!(
        matches!(refused, StateAccessError::NotYours { .. }),
        "{refused}"
    );
    drop(claimed);
}

#[tokio::test]
async fn a_client_does_not_write_under_the_lock_of_a_run() {
    let (world, _claimed) = of_a_live_run().await;
    let client = client(&world, "second", TokenScope::Surgery).await;
    let refused = client
        .write(Some("x".to_owned()), body(2, "2"))
        .await
        .unwrap_err();
    assert!(
        matches!(refused, StateAccessError::Refused { .. }),
        "{refused}"
    );
    assert_eq!(value(&world).await, "x");
}

#[tokio::test]
async fn the_lock_of_a_lost_run_is_listed_as_an_orphan() {
    let (world, run) = of_a_lost_run().await;
    let listed = lock_admin::list(&world.control).await.unwrap();
    let orphan = Holder::Orphan {
        run,
        unfinished: true,
    };
    assert_eq!(
        (listed[0].holder, listed[0].holder.word()),
        (orphan, "orphan")
    );
}

#[tokio::test]
async fn the_lock_of_a_lost_run_is_broken_without_force() {
    let (world, _) = of_a_lost_run().await;
    let found = breakable(&world).await.unwrap();
    take_away(&world, &found).await.unwrap();
    assert!(lock_admin::list(&world.control).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_client_unlocks_the_state_of_a_lost_run_on_the_record() {
    let (world, _) = of_a_lost_run().await;
    let client = client(&world, "second", TokenScope::Write).await;
    client.unlock(None).await.unwrap();
    assert_eq!(open_acts(&world).await[0].actor.name, "second");
}
