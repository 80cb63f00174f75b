//! Checks before a change set is stored: what it depends on, what depends on it, who asks, and what it needs.

use control::changeset::prepare::ChangeSetRequest;
use model::run::changeset::Action;
use model::run::exception::Exceptions;
use serde_json::json;

use crate::deciding::{no_start, project_file, world_of};
use crate::world::World;

const GATE: &str = "gate \"equal\" \"same\" {\n values = [1, 1]\n}";

/// Asks for an apply of all stacks with these exceptions.
async fn with_exceptions(world: &mut World, gates: &[&str], reinstall: bool) -> String {
    let exceptions = Exceptions {
        skip_gates: gates.iter().map(|gate| gate.parse().unwrap()).collect(),
        reinstall,
        reason: "the probe is wrong".to_owned(),
    };
    let request = ChangeSetRequest {
        exceptions: Some(exceptions),
        ..world.request(Action::Apply, &[])
    };
    no_start(world.begin(&request).await)
}

async fn begin(world: &mut World, action: Action, stacks: &[&str]) -> String {
    let request = world.request(action, stacks);
    no_start(world.begin(&request).await)
}

#[tokio::test]
async fn a_stack_needs_the_outputs_of_its_upstream() {
    let mut world = World::chain(&["a", "b"]).await;
    assert_eq!(
        begin(&mut world, Action::Apply, &["b"]).await,
        "Failed: stack `b` needs output `id` of `a`, which does not exist yet"
    );
}

#[tokio::test]
async fn a_stack_is_planned_only_after_its_upstream_is_applied() {
    let mut world = World::chain(&["a", "b"]).await;
    assert_eq!(
        begin(&mut world, Action::Plan, &["b"]).await,
        "Failed: stack `b` needs output `id` of `a`, which does not exist yet"
    );
}

#[tokio::test]
async fn a_stack_is_applied_after_its_upstream() {
    let mut world = World::chain(&["a", "b"]).await;
    world.auto_apply(&["a"]).await;
    let set = world.auto_apply(&["b"]).await;
    assert_eq!(world.summary(set).await, "finished: b applied");
}

#[tokio::test]
async fn a_stack_that_lost_its_upstream_is_not_applied() {
    let mut world = World::chain(&["a", "b"]).await;
    world.auto_apply(&[]).await;
    world.destroy(&[]).await;
    assert_eq!(
        begin(&mut world, Action::Apply, &["b"]).await,
        "Failed: stack `b` needs output `id` of `a`, which does not exist yet"
    );
}

#[tokio::test]
async fn a_stack_that_comes_after_another_needs_nothing_of_it() {
    let mut world = world_of("", &[("a", ""), ("b", "after = [stack.a]")]).await;
    let set = world.auto_apply(&["b"]).await;
    assert_eq!(world.summary(set).await, "finished: b applied");
}

#[tokio::test]
async fn a_stack_is_not_destroyed_while_another_depends_on_it() {
    let mut world = World::chain(&["a", "b"]).await;
    world.auto_apply(&[]).await;
    assert_eq!(
        begin(&mut world, Action::Destroy, &["a"]).await,
        "Refused: stack `b` still depends on `a`: it is applied, and not part of this destroy"
    );
}

#[tokio::test]
async fn a_stack_is_destroyed_after_its_dependent() {
    let mut world = World::chain(&["a", "b"]).await;
    world.auto_apply(&[]).await;
    world.destroy(&["b"]).await;
    let set = world.destroy(&["a"]).await;
    assert_eq!(world.summary(set).await, "finished: a applied");
}

#[tokio::test]
async fn a_dependent_that_was_never_applied_stops_no_destroy() {
    let mut world = World::chain(&["a", "b"]).await;
    world.auto_apply(&["a"]).await;
    let set = world.destroy(&["a"]).await;
    assert_eq!(world.summary(set).await, "finished: a applied");
}

#[tokio::test]
async fn a_stack_that_comes_after_another_is_destroyed_before_it() {
    let mut world = world_of("", &[("a", ""), ("b", "after = [stack.a]")]).await;
    world.auto_apply(&[]).await;
    assert_eq!(
        begin(&mut world, Action::Destroy, &["a"]).await,
        "Refused: stack `b` still depends on `a`: it is applied, and not part of this destroy"
    );
}

#[tokio::test]
async fn a_stack_that_left_the_project_still_depends_on_its_upstream() {
    let mut world = World::chain(&["a", "b"]).await;
    world.auto_apply(&[]).await;
    world.write("terrane.hcl", &project_file("", &[("a", "")]));
    assert_eq!(
        begin(&mut world, Action::Destroy, &["a"]).await,
        "Refused: stack `b`, which is no longer in the project, still depends on `a`"
    );
}

#[tokio::test]
async fn a_plan_of_a_destroy_is_made_although_its_apply_would_be_refused() {
    let mut world = World::chain(&["a", "b"]).await;
    world.auto_apply(&[]).await;
    let request = ChangeSetRequest {
        destroy: true,
        ..world.request(Action::Plan, &["a"])
    };
    let set = world.start(&request).await;
    assert_eq!(world.summary(set).await, "finished: a planned");
}

#[tokio::test]
async fn a_destroy_skips_a_stack_whose_dependent_was_applied_meanwhile() {
    let mut world = World::chain(&["a", "b"]).await;
    world.auto_apply(&["a"]).await;
    let request = world.request(Action::Destroy, &["a"]);
    let set = world.start(&request).await;
    world.auto_apply(&["b"]).await;
    world.confirm(set, "alice").await.unwrap();
    assert_eq!(world.summary(set).await, "stopped: a skipped");
}

#[tokio::test]
async fn a_skipped_destroy_names_the_dependent() {
    let mut world = World::chain(&["a", "b"]).await;
    world.auto_apply(&["a"]).await;
    let request = world.request(Action::Destroy, &["a"]);
    let set = world.start(&request).await;
    world.auto_apply(&["b"]).await;
    world.confirm(set, "alice").await.unwrap();
    assert_eq!(
        world.why_run(set, "a").await,
        "`b` depends on it and was applied meanwhile"
    );
}

#[tokio::test]
async fn a_stack_is_not_applied_after_its_upstream_was_destroyed_meanwhile() {
    let mut world = World::chain(&["a", "b"]).await;
    world.auto_apply(&["a"]).await;
    let set = world.apply(&["b"]).await;
    world.destroy(&["a"]).await;
    world.confirm(set, "alice").await.unwrap();
    assert_eq!(world.summary(set).await, "stopped: b failed");
}

#[tokio::test]
async fn a_stack_is_not_applied_while_its_upstream_is_destroyed() {
    let mut world = World::chain(&["a", "b"]).await;
    let file = std::fs::read_to_string(world.root().join("terrane.hcl")).unwrap();
    let apart = file.replace(
        "target \"local\" { writers = [\"anyone\"] }",
        "target \"local\" {\n writers = [\"anyone\"]\n lane = \"stack\"\n}",
    );
    world.write("terrane.hcl", &apart);
    world.auto_apply(&["a"]).await;
    let (set, request) = (
        world.apply(&["b"]).await,
        world.request(Action::Destroy, &["a"]),
    );
    let destroy = world.start(&request).await;
    world.confirm_only(destroy).await.unwrap();
    world.confirm_only(set).await.unwrap();
    assert_eq!(world.summary(set).await, "stopped: b skipped");
}

#[tokio::test]
async fn a_closed_target_is_planned_by_anybody() {
    let mut world = world_of("writers = [\"server\"]", &[("a", "")]).await;
    let set = world.plan(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a planned");
}

#[tokio::test]
async fn a_destroy_on_a_closed_target_needs_a_writer() {
    let mut world = world_of("writers = [\"server\"]", &[("a", "")]).await;
    assert_eq!(
        begin(&mut world, Action::Destroy, &[]).await,
        "Refused: target `local` is applied by a server's own runners only"
    );
}

#[tokio::test]
async fn a_target_without_writers_cannot_be_applied() {
    let mut world = world_of("writers = []", &[("a", "")]).await;
    assert_eq!(
        begin(&mut world, Action::Apply, &[]).await,
        "Refused: target `local` cannot be applied"
    );
}

#[tokio::test]
async fn a_writer_applies_on_a_closed_target() {
    let mut world = world_of("writers = [\"server\"]", &[("a", "")]).await;
    let mut request = world.auto_request(Action::Apply, &[]);
    let writers = &mut request.who.identity.writers;
    writers.insert("server".to_owned());
    let set = world.start(&request).await;
    assert_eq!(world.summary(set).await, "finished: a applied");
}

#[tokio::test]
async fn a_ci_job_without_a_home_applies_nothing() {
    let mut world = World::single().await;
    let request = ChangeSetRequest {
        may_keep_state: false,
        ..world.request(Action::Apply, &[])
    };
    assert_eq!(
        no_start(world.begin(&request).await),
        "Refused: stack `a` would store its state on the disk of this CI job, which is lost when the job ends"
    );
}

#[tokio::test]
async fn a_ci_job_without_a_home_plans() {
    let mut world = World::single().await;
    let request = ChangeSetRequest {
        may_keep_state: false,
        ..world.request(Action::Plan, &[])
    };
    let set = world.start(&request).await;
    assert_eq!(world.summary(set).await, "finished: a planned");
}

#[tokio::test]
async fn a_missing_variable_of_the_environment_is_named() {
    let mut world = world_of("", &[("a", "inputs = { v = env(\"V\") }")]).await;
    world.set_resource("a", "${var.v}");
    assert_eq!(
        begin(&mut world, Action::Apply, &[]).await,
        "Failed: stack `a` needs the environment variable `V`, which is not set"
    );
}

#[tokio::test]
async fn all_missing_variables_are_named_at_once() {
    let stacks = [
        ("a", "inputs = { v = env(\"V\") }"),
        ("b", "inputs = { v = env(\"W\") }"),
    ];
    let mut world = world_of("", &stacks).await;
    world.set_resource("a", "${var.v}");
    world.set_resource("b", "${var.v}");
    assert_eq!(
        begin(&mut world, Action::Apply, &[]).await,
        "Failed: 2 values are missing\n\
         stack `a` needs the environment variable `V`, which is not set (set it: `export V=…`)\n\
         stack `b` needs the environment variable `W`, which is not set (set it: `export W=…`)"
    );
}

#[tokio::test]
async fn a_variable_with_a_default_may_be_missing() {
    let mut world = world_of("", &[("a", "inputs = { v = env(\"V\", \"1\") }")]).await;
    world.set_resource("a", "${var.v}");
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a applied");
}

#[tokio::test]
async fn a_value_of_the_environment_reaches_the_engine() {
    let mut world = world_of("", &[("a", "inputs = { v = env(\"V\") }")]).await;
    world.set_resource("a", "${var.v}");
    world.env.insert("V".to_owned(), "1".to_owned());
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a applied");
}

#[tokio::test]
async fn a_confirmation_with_another_value_of_an_input_is_refused() {
    let mut world = world_of("", &[("a", "inputs = { v = env(\"V\") }")]).await;
    world.set_resource("a", "${var.v}");
    world.env.insert("V".to_owned(), "1".to_owned());
    let set = world.apply(&[]).await;
    world.env.insert("V".to_owned(), "2".to_owned());
    world.confirm(set, "alice").await.unwrap();
    assert_eq!(
        world.why_run(set, "a").await,
        "this plan may no longer be applied: the value of its input `v` changed after it was made"
    );
}

#[tokio::test]
async fn an_apply_that_is_confirmed_in_advance_plans_again_with_another_value() {
    let target = "approval {\n}";
    let mut world = world_of(target, &[("a", "inputs = { v = env(\"V\") }")]).await;
    world.set_resource("a", "${var.v}");
    world.env.insert("V".to_owned(), "1".to_owned());
    let set = world.auto_apply(&[]).await;
    world.approve(set, "bob").await.unwrap();
    world.env.insert("V".to_owned(), "2".to_owned());
    world.confirm(set, "carol").await.unwrap();
    assert_eq!(world.summary(set).await, "awaiting confirmation: a planned");
}

#[tokio::test]
async fn a_gate_that_does_not_exist_is_not_skipped() {
    let mut world = world_of("", &[("a", GATE)]).await;
    assert_eq!(
        with_exceptions(&mut world, &["a/other"], false).await,
        "Failed: there is no gate `a/other` here"
    );
}

#[tokio::test]
async fn a_gate_of_a_stack_outside_the_request_is_not_skipped() {
    let mut world = world_of("", &[("a", GATE)]).await;
    assert_eq!(
        with_exceptions(&mut world, &["b/same"], false).await,
        "Failed: there is no gate `b/same` here"
    );
}

#[tokio::test]
async fn a_gate_of_a_destroy_is_not_skipped_in_an_apply() {
    let gate = "gate \"equal\" \"gone\" {\n values = [1, 1]\n when = \"destroyed\"\n}";
    let mut world = world_of("", &[("a", gate)]).await;
    assert_eq!(
        with_exceptions(&mut world, &["a/gone"], false).await,
        "Failed: gate `a/gone` is not checked here: it proves that what was destroyed is gone"
    );
}

#[tokio::test]
async fn without_a_bootstrap_nothing_is_reinstalled() {
    let mut world = world_of("", &[("a", "")]).await;
    assert_eq!(
        with_exceptions(&mut world, &[], true).await,
        "Failed: none of these stacks has a `bootstrap` that installs something"
    );
}

#[tokio::test]
async fn a_state_file_beside_the_module_must_be_imported_first() {
    let mut world = World::single().await;
    let state = json!({"version": 4, "serial": 1, "lineage": "l", "terraform_version": "1.11.0", "outputs": {},
        "resources": [{"mode": "managed", "type": "terraform_data", "name": "r",
            "provider": "provider[\"terraform.io/builtin/terraform\"]",
            "instances": [{"schema_version": 0, "attributes": {"id": "1"}}]}]});
    world.write("stacks/a/terraform.tfstate", &state.to_string());
    assert_eq!(
        begin(&mut world, Action::Apply, &[]).await,
        "Refused: stack `a` has no state in this home, but `stacks/a/terraform.tfstate` contains one: \
         all its resources would be created again"
    );
}

#[tokio::test]
async fn a_backend_in_the_source_must_be_imported_first() {
    let mut world = World::single().await;
    world.write(
        "stacks/a/backend.tf",
        "terraform {\n  backend \"s3\" {}\n}\n",
    );
    assert_eq!(
        begin(&mut world, Action::Apply, &[]).await,
        "Refused: stack `a` has no state in this home, but its source names backend `s3` (stacks/a/backend.tf, line 2): \
         what was applied there would be created again"
    );
}

#[tokio::test]
async fn a_provider_that_the_target_does_not_list_is_refused() {
    let mut world = world_of("providers = []", &[("a", "")]).await;
    world.write(
        "stacks/a/main.tf",
        "terraform {\n  required_providers {\n    aws = { source = \"hashicorp/aws\" }\n  }\n}\n",
    );
    assert_eq!(
        begin(&mut world, Action::Plan, &[]).await,
        "Refused: stack `a` needs the provider `hashicorp/aws` (stacks/a/main.tf:3), \
         which target `local` does not list"
    );
}

#[tokio::test]
async fn a_refused_request_stores_no_change_set() {
    let mut world = World::chain(&["a", "b"]).await;
    begin(&mut world, Action::Apply, &["b"]).await;
    let set = world.plan(&["a"]).await;
    assert_eq!(set.to_string(), "c1");
}
