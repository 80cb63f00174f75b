//! Approvals that targets and stacks require: whose count, for how long, for which plan, and what they start.

use control::access::writers::Caller;
use control::changeset::prepare::ChangeSetRequest;
use control::decision::DecidingUser;
use control::decision::approve::ApproveRequest;
use model::base::actor::Actor;
use model::base::ids::ChangeSetId;
use model::run::approval::{ConfirmPlace, FollowUp, shown};
use model::run::changeset::Action;

use crate::deciding::{approval, approved_by, missing, no_start, project_file, refusal, world_of};
use crate::world::World;

const OWN: &str = "approval {\n scope = \"stack\"\n}";

/// The name of the plans that are shown for a change set.
async fn mark(world: &World, set: ChangeSetId) -> Option<String> {
    shown(&world.runs(set).await, None).map(|subject| subject.mark)
}

#[tokio::test]
async fn a_confirmation_without_the_approval_is_refused() {
    let mut world = approved_by("").await;
    let set = world.apply(&[]).await;
    assert_eq!(
        refusal(world.confirm(set, "alice").await),
        "Refused: change set `c1` may not be confirmed yet"
    );
}

#[tokio::test]
async fn a_change_set_shows_which_approval_it_waits_for() {
    let mut world = approved_by("").await;
    let set = world.apply(&[]).await;
    assert_eq!(
        world.why(set).await,
        "0 of 1 approval; not the author (target `local`)"
    );
}

#[tokio::test]
async fn an_approved_change_set_is_confirmed() {
    let mut world = approved_by("").await;
    let set = world.apply(&[]).await;
    world.approve(set, "bob").await.unwrap();
    world.confirm(set, "alice").await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied");
}

#[tokio::test]
async fn an_approval_alone_applies_nothing() {
    let mut world = approved_by("").await;
    let set = world.apply(&[]).await;
    world.approve(set, "bob").await.unwrap();
    assert_eq!(world.summary(set).await, "awaiting confirmation: a planned");
}

#[tokio::test]
async fn the_last_approval_asks_for_the_confirmation() {
    let mut world = approved_by("").await;
    let set = world.apply(&[]).await;
    let outcome = world.approve(set, "bob").await.unwrap();
    let at = ConfirmPlace::Here;
    let by_this_user = true;
    assert_eq!(outcome.follow_up, FollowUp::Confirm { by_this_user, at });
}

#[tokio::test]
async fn the_approval_starts_a_change_set_that_is_confirmed_in_advance() {
    let mut world = approved_by("").await;
    let set = world.auto_apply(&[]).await;
    world.approve(set, "bob").await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied");
}

#[tokio::test]
async fn a_change_set_that_is_confirmed_in_advance_waits_for_the_approval() {
    let mut world = approved_by("").await;
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "awaiting confirmation: a planned");
}

#[tokio::test]
async fn a_destroy_needs_the_approval_too() {
    let mut world = approved_by("").await;
    let set = world.auto_apply(&[]).await;
    world.approve(set, "bob").await.unwrap();
    let destroy = world.destroy(&[]).await;
    assert_eq!(
        world.summary(destroy).await,
        "awaiting confirmation: a planned"
    );
}

#[tokio::test]
async fn ones_own_approval_does_not_count() {
    let mut world = approved_by("").await;
    let set = world.apply(&[]).await;
    let outcome = world.approve(set, "alice").await.unwrap();
    assert_eq!(
        missing(&outcome),
        "0 of 1 approval; not the author; `alice` asked for it (target `local`)"
    );
}

#[tokio::test]
async fn ones_own_approval_counts_where_the_rule_allows_it() {
    let mut world = approved_by("author = true").await;
    let set = world.apply(&[]).await;
    let outcome = world.approve(set, "alice").await.unwrap();
    assert_eq!(missing(&outcome), "");
}

#[tokio::test]
async fn whoever_asked_before_a_resume_still_counts_as_an_author() {
    let mut world = approved_by("").await;
    let request = world.request(Action::Apply, &[]);
    let asked = ChangeSetRequest {
        who: Caller::new(Actor::named("carol")),
        ..request
    };
    let set = world.start(&asked).await;
    world.discard(set).await.unwrap();
    world.resume(set, false).await.unwrap(); // as alice
    let outcome = world.approve(set, "carol").await.unwrap();
    assert_eq!(
        missing(&outcome),
        "0 of 1 approval; not the author; `carol` asked for it (target `local`)"
    );
}

#[tokio::test]
async fn an_approval_without_the_role_does_not_count() {
    let mut world = approved_by("role = \"sre\"").await;
    let set = world.apply(&[]).await;
    let outcome = world.approve(set, "bob").await.unwrap();
    assert_eq!(
        missing(&outcome),
        "0 of 1 approval; role `sre`, not the author; `bob` has another role (target `local`)"
    );
}

#[tokio::test]
async fn an_approval_with_the_role_counts() {
    let mut world = approved_by("role = \"sre\"").await;
    let set = world.apply(&[]).await;
    let request = ApproveRequest {
        role: Some("sre".to_owned()),
        ..approval(set)
    };
    let outcome = world.approve_with("bob", request).await.unwrap();
    assert_eq!(missing(&outcome), "");
}

#[tokio::test]
async fn one_of_two_approvals_is_not_enough() {
    let mut world = approved_by("count = 2").await;
    let set = world.apply(&[]).await;
    let outcome = world.approve(set, "bob").await.unwrap();
    assert_eq!(
        missing(&outcome),
        "1 of 2 approvals; not the author (target `local`)"
    );
}

#[tokio::test]
async fn a_person_who_approves_twice_counts_once() {
    let mut world = approved_by("count = 2").await;
    let set = world.apply(&[]).await;
    world.approve(set, "bob").await.unwrap();
    let outcome = world.approve(set, "bob").await.unwrap();
    assert_eq!(outcome.missing[0].given, 1);
}

#[tokio::test]
async fn two_people_approve() {
    let mut world = approved_by("count = 2").await;
    let set = world.apply(&[]).await;
    world.approve(set, "bob").await.unwrap();
    let outcome = world.approve(set, "carol").await.unwrap();
    assert_eq!(missing(&outcome), "");
}

#[tokio::test]
async fn an_approval_expires() {
    let mut world = approved_by("expires = \"1h\"").await;
    let set = world.apply(&[]).await;
    world.approve(set, "bob").await.unwrap();
    world.pass(1);
    assert_eq!(
        world.why(set).await,
        "0 of 1 approval; not the author; `bob` said so too long ago (target `local`)"
    );
}

#[tokio::test]
async fn an_expired_approval_is_given_again() {
    let mut world = approved_by("expires = \"1h\"").await;
    let set = world.apply(&[]).await;
    world.approve(set, "bob").await.unwrap();
    world.pass(1);
    let outcome = world.approve(set, "bob").await.unwrap();
    assert_eq!(missing(&outcome), "");
}

#[tokio::test]
async fn an_approval_that_expires_in_the_queue_is_missing_before_the_apply() {
    let target = "approval {\n expires = \"1h\"\n}";
    let mut world = world_of(target, &[("a", ""), ("b", "")]).await;
    let (first, second) = (world.apply(&["a"]).await, world.apply(&["b"]).await);
    for set in [first, second] {
        world.approve(set, "bob").await.unwrap();
    }
    for set in [first, second] {
        world.confirm_only(set).await.unwrap();
    }
    world.pass(1);
    world.carry_out().await;
    assert_eq!(
        world.summary(second).await,
        "awaiting confirmation: b planned"
    );
}

#[tokio::test]
async fn a_stack_without_approvals_of_its_own_is_free() {
    let target = "approval {\n}";
    let mut world = world_of(target, &[("a", "approval {\n count = 0\n}")]).await;
    let set = world.apply(&[]).await;
    world.confirm(set, "alice").await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied");
}

#[tokio::test]
async fn the_rule_of_a_stack_takes_the_rest_from_its_target() {
    let target = "approval {\n role = \"sre\"\n}";
    let mut world = world_of(target, &[("a", "approval {\n count = 2\n}")]).await;
    let set = world.apply(&[]).await;
    assert_eq!(
        world.why(set).await,
        "0 of 2 approvals; role `sre`, not the author (stack `a`)"
    );
}

#[tokio::test]
async fn nothing_begins_before_the_approval_of_the_whole_change_set() {
    let mut world = world_of("", &[("a", ""), ("b", "approval {\n}")]).await;
    let set = world.apply(&[]).await;
    assert_eq!(
        refusal(world.confirm(set, "alice").await),
        "Refused: change set `c1` may not be confirmed yet"
    );
}

#[tokio::test]
async fn the_others_are_applied_before_a_stack_that_is_approved_by_itself() {
    let mut world = world_of("", &[("a", ""), ("b", OWN)]).await;
    let set = world.apply(&[]).await;
    world.confirm(set, "alice").await.unwrap();
    assert_eq!(
        world.summary(set).await,
        "awaiting confirmation: a applied, b planned"
    );
}

#[tokio::test]
async fn a_stack_that_is_approved_by_itself_names_its_run() {
    let mut world = world_of("", &[("a", OWN)]).await;
    let set = world.apply(&[]).await;
    assert_eq!(
        world.why(set).await,
        "0 of 1 approval; not the author for r1 (stack `a`)"
    );
}

#[tokio::test]
async fn an_approval_of_the_change_set_does_not_count_for_such_a_stack() {
    let mut world = world_of("", &[("a", OWN)]).await;
    let set = world.apply(&[]).await;
    let outcome = world.approve(set, "bob").await.unwrap();
    assert_eq!(
        missing(&outcome),
        "0 of 1 approval; not the author (stack `a`)"
    );
}

#[tokio::test]
async fn an_approval_of_the_run_counts_for_such_a_stack() {
    let mut world = world_of("", &[("a", OWN)]).await;
    let set = world.apply(&[]).await;
    let run = world.run(set, "a").await.id;
    let outcome = world.approve_run(set, run, "bob").await.unwrap();
    assert_eq!(missing(&outcome), "");
}

#[tokio::test]
async fn an_approval_of_a_run_does_not_count_for_the_change_set() {
    let mut world = approved_by("").await;
    let set = world.apply(&[]).await;
    let run = world.run(set, "a").await.id;
    let outcome = world.approve_run(set, run, "bob").await.unwrap();
    assert_eq!(
        missing(&outcome),
        "0 of 1 approval; not the author (target `local`)"
    );
}

#[tokio::test]
async fn the_approval_of_one_of_two_stacks_starts_that_one() {
    let mut world = world_of("", &[("a", OWN), ("b", OWN)]).await;
    let set = world.auto_apply(&[]).await;
    let run = world.run(set, "a").await.id;
    world.approve_run(set, run, "bob").await.unwrap();
    assert_eq!(
        world.summary(set).await,
        "awaiting confirmation: a applied, b planned"
    );
}

#[tokio::test]
async fn the_approval_of_one_of_two_stacks_continues_in_part() {
    let mut world = world_of("", &[("a", OWN), ("b", OWN)]).await;
    let set = world.auto_apply(&[]).await;
    let run = world.run(set, "a").await.id;
    let outcome = world.approve_run(set, run, "bob").await.unwrap();
    assert_eq!(outcome.follow_up, FollowUp::ContinuesInPart);
}

#[tokio::test]
async fn an_approval_of_the_plans_that_are_shown_is_recorded() {
    let mut world = approved_by("").await;
    let set = world.apply(&[]).await;
    let request = ApproveRequest {
        plan: mark(&world, set).await,
        ..approval(set)
    };
    let outcome = world.approve_with("bob", request).await.unwrap();
    assert_eq!(missing(&outcome), "");
}

#[tokio::test]
async fn an_approval_of_plans_that_were_made_again_is_refused() {
    let mut world = approved_by("").await;
    let set = world.apply(&[]).await;
    let old = mark(&world, set).await.unwrap();
    world.discard(set).await.unwrap();
    world.set_resource("a", "2");
    world.resume(set, false).await.unwrap();
    let request = ApproveRequest {
        plan: Some(old.clone()),
        ..approval(set)
    };
    assert_eq!(
        refusal(world.approve_with("bob", request).await),
        format!(
            "Refused: nothing was approved: plan `{old}` is not the current plan of change set `c1`"
        )
    );
}

#[tokio::test]
async fn a_change_set_that_is_still_planned_is_not_approved() {
    let mut world = approved_by("").await;
    let request = world.request(Action::Apply, &[]);
    let set = world.begin(&request).await.unwrap();
    assert_eq!(
        refusal(world.approve(set, "bob").await),
        "Refused: cannot approve change set c1: it is still being planned"
    );
}

#[tokio::test]
async fn a_rejected_change_set_is_not_approved() {
    let mut world = approved_by("").await;
    let set = world.apply(&[]).await;
    world.reject(set).await.unwrap();
    assert_eq!(
        refusal(world.approve(set, "bob").await),
        "Refused: change set c1 is stopped"
    );
}

#[tokio::test]
async fn a_finished_change_set_is_not_approved() {
    let mut world = approved_by("").await;
    let set = world.auto_apply(&[]).await;
    world.approve(set, "bob").await.unwrap();
    assert_eq!(
        refusal(world.approve(set, "carol").await),
        "Refused: change set c1 is finished"
    );
}

#[tokio::test]
async fn a_change_set_without_a_rule_needs_no_approval() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    assert_eq!(
        refusal(world.approve(set, "bob").await),
        "Refused: change set c1 needs no approval"
    );
}

#[tokio::test]
async fn an_approval_stays_when_an_equal_plan_is_made_again() {
    let mut world = approved_by("").await;
    let set = world.apply(&[]).await;
    world.approve(set, "bob").await.unwrap();
    world.discard(set).await.unwrap();
    world.resume(set, false).await.unwrap();
    world.confirm(set, "alice").await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied");
}

#[tokio::test]
async fn an_approval_does_not_cover_another_plan() {
    let mut world = approved_by("").await;
    let set = world.apply(&[]).await;
    world.approve(set, "bob").await.unwrap();
    world.discard(set).await.unwrap();
    world.set_resource("a", "2");
    world.resume(set, false).await.unwrap();
    assert_eq!(
        world.why(set).await,
        "0 of 1 approval; not the author; `bob` approved another plan (target `local`)"
    );
}

/// A change set that waits for an approval, while others, which need none any more, give `a` these values.
async fn overtaken(values: &[&str]) -> (World, ChangeSetId) {
    let mut world = world_of("", &[("a", "")]).await;
    world.auto_apply(&[]).await;
    world.write("terrane.hcl", &project_file("approval {\n}", &[("a", "")]));
    world.set_resource("a", "2");
    let set = world.auto_apply(&[]).await;
    world.write("terrane.hcl", &project_file("", &[("a", "")]));
    for value in values {
        world.set_resource("a", value);
        world.auto_apply(&[]).await;
    }
    (world, set)
}

#[tokio::test]
async fn an_equal_plan_after_the_state_moved_keeps_its_approval() {
    let (mut world, set) = overtaken(&["5", "1"]).await;
    world.approve(set, "bob").await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied");
}

#[tokio::test]
async fn another_plan_after_the_state_moved_needs_a_new_approval() {
    let (mut world, set) = overtaken(&["5"]).await;
    world.approve(set, "bob").await.unwrap();
    assert_eq!(world.summary(set).await, "awaiting confirmation: a planned");
}

#[tokio::test]
async fn a_confirmation_is_refused_if_the_project_requires_more_approvals_by_now() {
    let mut world = World::single().await;
    let set = world.apply(&[]).await;
    world.write("terrane.hcl", &project_file("approval {\n}", &[("a", "")]));
    let (_, project) = world.open();
    let decider = DecidingUser {
        actor: &Actor::named("alice"),
        env: &world.env,
        project: &project,
    };
    assert_eq!(
        refusal(decider.check_writer(&world.control, set).await),
        "Refused: target `local` now requires more approvals than when change set c1 was requested"
    );
}

#[tokio::test]
async fn an_approval_does_not_start_what_requires_more_approvals_by_now() {
    let mut world = approved_by("").await;
    let set = world.auto_apply(&[]).await;
    let file = project_file("approval {\n count = 2\n}", &[("a", "")]);
    world.write("terrane.hcl", &file);
    let outcome = world.approve(set, "bob").await.unwrap();
    assert_eq!(outcome.follow_up, FollowUp::Blocked);
}

#[tokio::test]
async fn an_approval_does_not_start_the_destroy_of_a_stack_that_is_protected_by_now() {
    let mut world = approved_by("author = true").await;
    let applied = world.auto_apply(&[]).await;
    world.approve(applied, "alice").await.unwrap();
    let set = world.destroy(&[]).await;
    let file = project_file("approval {\nauthor = true\n}", &[("a", "protected = true")]);
    world.write("terrane.hcl", &file);
    let outcome = world.approve(set, "alice").await.unwrap();
    assert_eq!(
        outcome.blocked.unwrap().0,
        "stack `a` was protected after its destroy was requested"
    );
}

#[tokio::test]
async fn an_approval_by_somebody_who_may_not_apply_starts_nothing() {
    let target = "writers = [\"server\"]\napproval {\n}";
    let mut world = world_of(target, &[("a", "")]).await;
    let mut request = world.auto_request(Action::Apply, &[]);
    let writers = &mut request.who.identity.writers;
    writers.insert("server".to_owned());
    let set = world.start(&request).await;
    let outcome = world.approve(set, "bob").await.unwrap();
    let at = ConfirmPlace::Here;
    let by_this_user = false;
    assert_eq!(outcome.follow_up, FollowUp::Confirm { by_this_user, at });
}

#[tokio::test]
async fn an_approval_is_not_enough_where_the_requester_brought_a_value() {
    let target = "approval {\n}";
    let mut world = world_of(target, &[("a", "inputs = { v = env(\"V\") }")]).await;
    world.set_resource("a", "${var.v}");
    world.env.insert("V".to_owned(), "1".to_owned());
    let set = world.auto_apply(&[]).await;
    let outcome = world.approve(set, "bob").await.unwrap();
    let at = ConfirmPlace::WithVariables;
    let by_this_user = true;
    assert_eq!(outcome.follow_up, FollowUp::Confirm { by_this_user, at });
}

#[tokio::test]
async fn a_plan_needs_no_approval() {
    let mut world = approved_by("").await;
    let set = world.plan(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a planned");
}

#[tokio::test]
async fn an_apply_without_changes_needs_no_approval() {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    let file = project_file("approval {\n}", &[("a", "")]);
    world.write("terrane.hcl", &file);
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a unchanged");
}

#[tokio::test]
async fn a_writer_is_asked_for_before_a_plan_is_applied() {
    let mut world = world_of("writers = [\"server\"]", &[("a", "")]).await;
    let request = world.request(Action::Apply, &[]);
    assert_eq!(
        no_start(world.begin(&request).await),
        "Refused: target `local` is applied by a server's own runners only"
    );
}
