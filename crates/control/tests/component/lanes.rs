//! Lanes: which change sets run at the same time, in which order they wait, and what each is told meanwhile.

use control::changeset::prepare;
use control::decision::confirm::ConfirmResult;
use model::base::ids::ChangeSetId;
use model::run::changeset::Action;

use crate::deciding::{project_file, world_of};
use crate::world::{World, stack};

const APART: &str = "lane = \"stack\"";

/// Two stacks on one target, and a change set for each.
async fn two(target: &str) -> (World, ChangeSetId, ChangeSetId) {
    let mut world = world_of(target, &[("a", ""), ("b", "")]).await;
    let (a, b) = (world.apply(&["a"]).await, world.apply(&["b"]).await);
    (world, a, b)
}

#[tokio::test]
async fn a_second_change_set_for_a_target_waits_for_the_first() {
    let (world, a, b) = two("").await;
    world.confirm_only(a).await.unwrap();
    world.confirm_only(b).await.unwrap();
    assert_eq!(world.summary(b).await, "queued: b planned");
}

#[tokio::test]
async fn a_queued_change_set_names_the_one_that_holds_its_lane() {
    let (world, a, b) = two("").await;
    world.confirm_only(a).await.unwrap();
    world.confirm_only(b).await.unwrap();
    assert_eq!(
        world.why(b).await,
        "lane `local` is held by change set c1 (0 of 1 done)"
    );
}

#[tokio::test]
async fn a_confirmation_says_what_the_change_set_waits_for() {
    let (world, a, b) = two("").await;
    world.confirm_only(a).await.unwrap();
    let confirmed = world.confirm_only(b).await.unwrap();
    let ConfirmResult::Confirmed {
        blocked_by: Some(front),
    } = confirmed
    else {
        panic!("{confirmed:?}");
    };
    assert_eq!(front.brief(), "change set c1 to release the lane");
}

#[tokio::test]
async fn a_queued_change_set_starts_when_the_first_is_done() {
    let (mut world, a, b) = two("").await;
    world.confirm_only(a).await.unwrap();
    world.confirm_only(b).await.unwrap();
    world.carry_out().await;
    assert_eq!(world.summary(b).await, "finished: b applied");
}

#[tokio::test]
async fn a_plan_waits_for_nobody() {
    let (mut world, a, _) = two("").await;
    world.confirm_only(a).await.unwrap();
    let _running = world.claimed.try_recv().unwrap();
    let set = world.plan(&["b"]).await;
    assert_eq!(world.summary(set).await, "finished: b planned");
}

#[tokio::test]
async fn change_sets_of_different_targets_run_at_the_same_time() {
    let other = "target \"other\" { writers = [\"anyone\"] }\n".to_owned();
    let on_other = stack("b", "").replace("local", "other");
    let mut world = World::new(&(other + &stack("a", "") + &on_other)).await;
    world.set_resource("a", "1");
    world.set_resource("b", "1");
    let (a, b) = (world.apply(&["a"]).await, world.apply(&["b"]).await);
    world.confirm_only(a).await.unwrap();
    world.confirm_only(b).await.unwrap();
    assert_eq!(world.summary(b).await, "applying: b applying");
}

#[tokio::test]
async fn stacks_with_lanes_of_their_own_run_at_the_same_time() {
    let (world, a, b) = two(APART).await;
    world.confirm_only(a).await.unwrap();
    world.confirm_only(b).await.unwrap();
    assert_eq!(world.summary(b).await, "applying: b applying");
}

#[tokio::test]
async fn two_change_sets_for_one_stack_with_a_lane_of_its_own_run_one_after_the_other() {
    let mut world = world_of(APART, &[("a", "")]).await;
    let (first, second) = (world.apply(&[]).await, world.apply(&[]).await);
    world.confirm_only(first).await.unwrap();
    world.confirm_only(second).await.unwrap();
    assert_eq!(
        world.why(second).await,
        "lane `local/a` is held by change set c1 (0 of 1 done)"
    );
}

#[tokio::test]
async fn a_target_lane_waits_for_a_stack_lane_from_before_an_edit() {
    let mut world = world_of(APART, &[("a", ""), ("b", "")]).await;
    let a = world.apply(&["a"]).await;
    world.confirm_only(a).await.unwrap();
    let _running = world.claimed.try_recv().unwrap();
    world.write("terrane.hcl", &project_file("", &[("a", ""), ("b", "")]));
    let b = world.apply(&["b"]).await;
    world.confirm_only(b).await.unwrap();
    assert_eq!(
        world.why(b).await,
        "lane `local` is held by change set c1 (0 of 1 done)"
    );
}

#[tokio::test]
async fn a_stack_lane_waits_for_a_target_lane_from_before_an_edit() {
    let mut world = world_of("", &[("a", ""), ("b", "")]).await;
    let a = world.apply(&["a"]).await;
    world.confirm_only(a).await.unwrap();
    let _running = world.claimed.try_recv().unwrap();
    world.write("terrane.hcl", &project_file(APART, &[("a", ""), ("b", "")]));
    let b = world.apply(&["b"]).await;
    world.confirm_only(b).await.unwrap();
    assert_eq!(
        world.why(b).await,
        "lane `local/b` is held by change set c1 (0 of 1 done)"
    );
}

/// Three change sets for one target, confirmed in the order 1, 3, 2.
async fn three() -> (World, [ChangeSetId; 3]) {
    let mut world = world_of("", &[("a", ""), ("b", ""), ("c", "")]).await;
    let a = world.apply(&["a"]).await;
    let b = world.apply(&["b"]).await;
    let c = world.apply(&["c"]).await;
    for set in [a, c, b] {
        world.confirm_only(set).await.unwrap();
    }
    (world, [a, b, c])
}

#[tokio::test]
async fn the_order_of_confirmation_is_the_order_in_line() {
    let (world, [_, b, _]) = three().await;
    assert_eq!(
        world.why(b).await,
        "lane `local` is held by change set c1 (0 of 1 done); before it in the line: c3"
    );
}

#[tokio::test]
async fn whoever_is_first_in_line_waits_only_for_the_holder() {
    let (world, [_, _, c]) = three().await;
    assert_eq!(
        world.why(c).await,
        "lane `local` is held by change set c1 (0 of 1 done)"
    );
}

#[tokio::test]
async fn those_in_line_are_applied_one_after_the_other() {
    let (mut world, [a, b, c]) = three().await;
    world.carry_out().await;
    let mut finished = Vec::new();
    for set in [a, b, c] {
        finished.push(world.summary(set).await);
    }
    assert_eq!(
        finished,
        [
            "finished: a applied",
            "finished: b applied",
            "finished: c applied"
        ]
    );
}

#[tokio::test]
async fn who_leaves_the_line_lets_the_next_one_up() {
    let (mut world, [_, b, c]) = three().await;
    world.discard(c).await.unwrap();
    assert_eq!(
        world.why(b).await,
        "lane `local` is held by change set c1 (0 of 1 done)"
    );
}

#[tokio::test]
async fn a_change_set_that_needs_two_lanes_keeps_its_place_for_both() {
    let mut world = world_of(APART, &[("a", ""), ("b", "")]).await;
    let first = world.apply(&["a"]).await;
    let both = world.apply(&[]).await;
    let last = world.apply(&["b"]).await;
    for set in [first, both, last] {
        world.confirm_only(set).await.unwrap();
    }
    assert_eq!(
        world.why(last).await,
        "change set c2 is earlier in the line for lane `local/b`"
    );
}

#[tokio::test]
async fn a_change_set_that_is_confirmed_in_advance_is_in_line_before_it_is_planned() {
    let (mut world, a, _) = two("").await;
    world.confirm_only(a).await.unwrap();
    let _running = world.claimed.try_recv().unwrap();
    let set = world.auto_apply(&["b"]).await;
    assert_eq!(world.summary(set).await, "queued: b queued");
}

#[tokio::test]
async fn a_change_set_that_is_confirmed_in_advance_plans_when_its_turn_comes() {
    let mut world = World::single().await;
    let first = world.apply(&[]).await;
    world.confirm_only(first).await.unwrap();
    let request = world.auto_request(Action::Apply, &[]);
    let second = world.begin(&request).await.unwrap();
    world.drive(second).await;
    assert_eq!(world.summary(second).await, "finished: a unchanged");
}

#[tokio::test]
async fn a_plan_that_waited_in_line_does_not_overwrite_what_was_applied_before_it() {
    let mut world = World::single().await;
    let (first, second) = (world.apply(&[]).await, world.apply(&[]).await);
    world.confirm_only(first).await.unwrap();
    world.confirm_only(second).await.unwrap();
    world.carry_out().await;
    assert_eq!(world.summary(second).await, "stopped: a failed");
}

#[tokio::test]
async fn a_failed_change_set_releases_its_lane() {
    let mut world = world_of("", &[("a", ""), ("b", "")]).await;
    let fails = serde_json::json!({"resources": {"r": "1"}, "apply_error_at": "r"});
    world.script("a", &fails);
    let (a, b) = (world.apply(&["a"]).await, world.apply(&["b"]).await);
    world.confirm_only(a).await.unwrap();
    world.confirm_only(b).await.unwrap();
    world.carry_out().await;
    assert_eq!(world.summary(b).await, "finished: b applied");
}

#[tokio::test]
async fn a_change_set_that_waits_for_a_confirmation_holds_no_lane() {
    let mut world = world_of("", &[("a", ""), ("b", "")]).await;
    world.apply(&["a"]).await;
    let set = world.auto_apply(&["b"]).await;
    assert_eq!(world.summary(set).await, "finished: b applied");
}

#[tokio::test]
async fn a_change_set_that_waits_for_a_hold_lets_others_pass() {
    let mut world = world_of("", &[("a", ""), ("b", ""), ("c", "")]).await;
    let waits = world.apply(&["a", "b"]).await;
    world.hold("b").await;
    world.confirm(waits, "alice").await.unwrap();
    let set = world.auto_apply(&["c"]).await;
    assert_eq!(world.summary(set).await, "finished: c applied");
}

#[tokio::test]
async fn the_same_request_again_attaches_to_the_one_in_line() {
    let mut world = World::single().await;
    let first = world.apply(&[]).await;
    world.confirm_only(first).await.unwrap();
    let request = world.request(Action::Apply, &[]);
    let (open, project) = world.open();
    let same = prepare::find_same(&world.control, &open, &project, &request).await;
    assert_eq!(same.unwrap().map(|set| set.id), Some(first));
}

#[tokio::test]
async fn the_same_request_after_an_edit_is_another_one() {
    let mut world = World::single().await;
    let first = world.apply(&[]).await;
    world.confirm_only(first).await.unwrap();
    world.set_resource("a", "2");
    let request = world.request(Action::Apply, &[]);
    let (open, project) = world.open();
    let same = prepare::find_same(&world.control, &open, &project, &request).await;
    assert_eq!(same.unwrap(), None);
}

#[tokio::test]
async fn the_same_request_for_other_stacks_is_another_one() {
    let (world, a, _) = two("").await;
    world.confirm_only(a).await.unwrap();
    let request = world.request(Action::Apply, &["b"]);
    let (open, project) = world.open();
    let same = prepare::find_same(&world.control, &open, &project, &request).await;
    assert_eq!(same.unwrap(), None);
}

#[tokio::test]
async fn an_earlier_equal_request_that_awaits_confirmation_is_reported() {
    let mut world = World::single().await;
    let (first, second) = (world.apply(&[]).await, world.apply(&[]).await);
    let second = world.set(second).await;
    let alike = prepare::find_alike(&world.control, &second).await;
    assert_eq!(alike.unwrap(), [first]);
}

#[tokio::test]
async fn a_second_request_of_a_person_replaces_no_earlier_one() {
    let mut world = World::single().await;
    let first = world.apply(&[]).await;
    world.apply(&[]).await;
    assert_eq!(
        world.summary(first).await,
        "awaiting confirmation: a planned"
    );
}
