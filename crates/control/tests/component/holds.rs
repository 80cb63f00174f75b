//! Holds on stacks and targets: what they stop, how long, and what continues after them.

use control::changeset::holds::{self, ReleaseError};
use model::base::actor::Actor;
use model::base::error::Explain as _;
use model::run::changeset::Action;

use crate::deciding::{no_start, refusal, world_of};
use crate::world::World;

#[tokio::test]
async fn an_apply_of_a_held_stack_is_refused() {
    let mut world = World::single().await;
    world.hold("a").await;
    let request = world.request(Action::Apply, &[]);
    assert_eq!(
        no_start(world.begin(&request).await),
        "Refused: stack `a` is held by `ops`: migration (until 2026-03-01 13:00 UTC)"
    );
}

#[tokio::test]
async fn an_apply_on_a_held_target_is_refused() {
    let mut world = World::single().await;
    world.hold("local").await;
    let request = world.request(Action::Apply, &[]);
    assert_eq!(
        no_start(world.begin(&request).await),
        "Refused: lane `local` is held by `ops`: migration (until 2026-03-01 13:00 UTC)"
    );
}

#[tokio::test]
async fn a_destroy_of_a_held_stack_is_refused() {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    world.hold("a").await;
    let request = world.request(Action::Destroy, &[]);
    assert_eq!(
        no_start(world.begin(&request).await),
        "Refused: stack `a` is held by `ops`: migration (until 2026-03-01 13:00 UTC)"
    );
}

#[tokio::test]
async fn a_held_stack_is_planned() {
    let mut world = World::single().await;
    world.hold("a").await;
    let set = world.plan(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a planned");
}

#[tokio::test]
async fn a_hold_on_another_stack_stops_nothing() {
    let mut world = world_of("", &[("a", ""), ("b", "")]).await;
    world.hold("b").await;
    let set = world.auto_apply(&["a"]).await;
    assert_eq!(world.summary(set).await, "finished: a applied");
}

#[tokio::test]
async fn a_hold_on_a_target_stops_stacks_with_lanes_of_their_own() {
    let mut world = world_of("lane = \"stack\"", &[("a", "")]).await;
    world.hold("local").await;
    let request = world.request(Action::Apply, &[]);
    assert_eq!(
        no_start(world.begin(&request).await),
        "Refused: lane `local` is held by `ops`: migration (until 2026-03-01 13:00 UTC)"
    );
}

#[tokio::test]
async fn a_word_that_names_a_stack_and_a_target_means_the_stack() {
    let world = world_of("", &[("local", "")]).await;
    assert_eq!(world.hold_on("local").words(), "stack `local`");
}

#[tokio::test]
async fn a_target_is_named_with_its_kind() {
    let world = world_of("", &[("local", "")]).await;
    assert_eq!(world.hold_on("target:local").words(), "lane `local`");
}

#[tokio::test]
async fn nothing_is_held_under_an_unknown_name() {
    let world = World::single().await;
    let (_, project) = world.open();
    assert_eq!(holds::find(&project, "nothing"), None);
}

#[tokio::test]
async fn an_expired_hold_stops_nothing() {
    let mut world = World::single().await;
    world.hold("a").await;
    world.pass(1);
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a applied");
}

#[tokio::test]
async fn an_expired_hold_is_not_listed() {
    let world = World::single().await;
    world.hold("a").await;
    world.pass(1);
    let listed = holds::list(&world.control, false).await.unwrap();
    assert_eq!(listed, []);
}

#[tokio::test]
async fn an_expired_hold_is_listed_among_all() {
    let world = World::single().await;
    world.hold("a").await;
    world.pass(1);
    let listed = holds::list(&world.control, true).await.unwrap();
    assert_eq!(listed.len(), 1);
}

#[tokio::test]
async fn a_plan_that_was_made_before_the_hold_is_not_confirmed() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    world.hold("a").await;
    assert_eq!(
        refusal(world.confirm(set, "alice").await),
        "Refused: change set `c1` may not be confirmed now: held by `ops`: migration (until 2026-03-01 13:00 UTC)"
    );
}

#[tokio::test]
async fn a_change_set_that_waits_for_a_hold_names_it() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    world.hold("a").await;
    assert_eq!(
        world.why(set).await,
        "stack `a` is held by `ops`: migration (until 2026-03-01 13:00 UTC)"
    );
}

#[tokio::test]
async fn the_others_are_applied_before_a_held_stack() {
    let mut world = world_of("", &[("a", ""), ("b", "")]).await;
    let set = world.apply(&[]).await;
    world.hold("b").await;
    world.confirm(set, "alice").await.unwrap();
    assert_eq!(
        world.summary(set).await,
        "awaiting confirmation: a applied, b planned"
    );
}

#[tokio::test]
async fn a_release_continues_what_was_confirmed() {
    let mut world = world_of("", &[("a", ""), ("b", "")]).await;
    let set = world.apply(&[]).await;
    world.hold("b").await;
    world.confirm(set, "alice").await.unwrap();
    world.release("b").await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied, b applied");
}

#[tokio::test]
async fn a_dependent_that_is_held_waits_after_its_upstream() {
    let mut world = World::chain(&["a", "b"]).await;
    let request = world.auto_request(Action::Apply, &[]);
    let set = world.begin(&request).await.unwrap();
    world.hold("b").await;
    world.drive(set).await;
    assert_eq!(
        world.summary(set).await,
        "awaiting confirmation: a applied, b planned"
    );
}

#[tokio::test]
async fn what_depends_on_a_held_stack_waits_too() {
    let mut world = World::chain(&["a", "b"]).await;
    let request = world.auto_request(Action::Apply, &[]);
    let set = world.begin(&request).await.unwrap();
    world.hold("a").await;
    world.drive(set).await;
    assert_eq!(
        world.summary(set).await,
        "awaiting confirmation: a planned, b queued"
    );
}

#[tokio::test]
async fn a_release_continues_the_held_stack_and_what_depends_on_it() {
    let mut world = World::chain(&["a", "b"]).await;
    let request = world.auto_request(Action::Apply, &[]);
    let set = world.begin(&request).await.unwrap();
    world.hold("a").await;
    world.drive(set).await;
    world.release("a").await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied, b applied");
}

#[tokio::test]
async fn a_release_does_not_confirm() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    world.hold("a").await;
    world.release("a").await.unwrap();
    assert_eq!(world.summary(set).await, "awaiting confirmation: a planned");
}

#[tokio::test]
async fn a_release_names_those_that_waited_and_whether_they_continue() {
    let mut world = world_of("", &[("a", ""), ("b", "")]).await;
    let confirmed = world.apply(&[]).await;
    let unconfirmed = world.apply(&["b"]).await;
    world.hold("b").await;
    world.confirm(confirmed, "alice").await.unwrap();
    let waiters = world.release("b").await.unwrap();
    let started: Vec<_> = waiters
        .iter()
        .map(|one| (one.details.set.id, one.is_started))
        .collect();
    assert_eq!(started, [(confirmed, true), (unconfirmed, false)]);
}

#[tokio::test]
async fn plans_are_not_among_those_that_waited() {
    let mut world = World::single().await;
    world.hold("a").await;
    let request = world.request(Action::Plan, &[]);
    world.begin(&request).await.unwrap();
    let waiters = world.release("a").await.unwrap();
    assert!(waiters.is_empty());
}

#[tokio::test]
async fn a_confirmed_change_set_waits_in_line_while_its_target_is_held() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    world.hold("local").await;
    world.confirm(set, "alice").await.unwrap();
    assert_eq!(world.summary(set).await, "queued: a planned");
}

#[tokio::test]
async fn a_queued_change_set_names_the_hold_on_its_target() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    world.hold("local").await;
    world.confirm(set, "alice").await.unwrap();
    assert_eq!(
        world.why(set).await,
        "lane `local` is held by `ops`: migration (until 2026-03-01 13:00 UTC)"
    );
}

#[tokio::test]
async fn a_release_of_the_target_continues_what_was_confirmed() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    world.hold("local").await;
    world.confirm(set, "alice").await.unwrap();
    world.release("local").await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied");
}

#[tokio::test]
async fn an_apply_under_way_is_not_stopped_by_a_hold_on_its_target() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    world.confirm_only(set).await.unwrap();
    world.hold("local").await;
    world.carry_out().await;
    assert_eq!(world.summary(set).await, "finished: a applied");
}

#[tokio::test]
async fn the_next_look_after_a_hold_expired_continues_what_was_confirmed() {
    let mut world = world_of("", &[("a", ""), ("b", "")]).await;
    let set = world.apply(&[]).await;
    world.hold("b").await;
    world.confirm(set, "alice").await.unwrap();
    world.pass(1);
    world.drive(set).await;
    assert_eq!(world.summary(set).await, "finished: a applied, b applied");
}

#[tokio::test]
async fn a_confirmed_change_set_shows_that_its_hold_has_expired() {
    let mut world = world_of("", &[("a", ""), ("b", "")]).await;
    let set = world.apply(&[]).await;
    world.hold("b").await;
    world.confirm(set, "alice").await.unwrap();
    world.pass(1);
    assert_eq!(
        world.why(set).await,
        "nothing any more: run `terrane run confirm c1` to continue"
    );
}

#[tokio::test]
async fn only_ones_own_holds_are_released() {
    let world = World::single().await;
    world.hold("a").await;
    let on = world.hold_on("a");
    let released = holds::release(&world.control, &on, &Actor::named("bob"), false).await;
    assert_eq!(
        released.unwrap_err().to_string(),
        "only holds of other users are on it"
    );
}

#[tokio::test]
async fn the_holds_of_others_are_released_on_request() {
    let world = World::single().await;
    world.hold("a").await;
    let on = world.hold_on("a");
    let released = holds::release(&world.control, &on, &Actor::named("bob"), true).await;
    assert_eq!(
        released.unwrap().ended[0]
            .released
            .as_ref()
            .unwrap()
            .by
            .name,
        "bob"
    );
}

#[tokio::test]
async fn a_hold_of_another_person_stays_after_a_release() {
    let mut world = World::single().await;
    world.hold("a").await;
    let (on, term) = (world.hold_on("a"), std::time::Duration::from_mins(1));
    let added = holds::add(&world.control, &on, &Actor::named("bob"), "tests", term).await;
    added.unwrap();
    world.release("a").await.unwrap();
    let request = world.request(Action::Apply, &[]);
    assert_eq!(
        no_start(world.begin(&request).await),
        "Refused: stack `a` is held by `bob`: tests (until 2026-03-01 12:01 UTC)"
    );
}

#[tokio::test]
async fn there_is_nothing_to_release_where_nothing_is_held() {
    let mut world = World::single().await;
    let released = world.release("a").await;
    assert!(matches!(released, Err(ReleaseError::Missing)));
}

#[tokio::test]
async fn an_expired_hold_is_not_released() {
    let mut world = World::single().await;
    world.hold("a").await;
    world.pass(1);
    let released = world.release("a").await;
    assert!(matches!(released, Err(ReleaseError::Missing)));
}

#[tokio::test]
async fn a_refused_apply_says_how_the_hold_is_released() {
    let mut world = World::single().await;
    world.hold("a").await;
    let request = world.request(Action::Apply, &[]);
    let refused = world.begin(&request).await.unwrap_err();
    assert_eq!(
        refused.next_steps()[0].to_string(),
        "`terrane hold release a` ends it (with `--all` if it is not your own)"
    );
}

#[tokio::test]
async fn a_resume_of_a_held_stack_is_refused() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    world.discard(set).await.unwrap();
    world.hold("a").await;
    assert_eq!(
        no_start(world.resume(set, false).await),
        "Refused: stack `a` is held by `ops`: migration (until 2026-03-01 13:00 UTC)"
    );
}

#[tokio::test]
async fn a_resume_needs_no_release_of_a_stack_that_is_already_applied() {
    let mut world = world_of("", &[("a", ""), ("b", "")]).await;
    let set = world.apply(&[]).await;
    world.hold("b").await;
    world.confirm(set, "alice").await.unwrap();
    world.discard(set).await.unwrap();
    world.release("b").await.unwrap();
    world.hold("a").await;
    world.resume(set, true).await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied, b applied");
}
