//! Which stacks the source changes, and stacks that only Git still knows. Git is the real one.

use std::collections::BTreeSet;
use std::ffi::OsString;

use control::changeset::removed_stacks::{self, RemovedStackError};
use control::project::changed::{self, ChangedError};
use control::project::ignored;
use drivers::process::{Capture, Environment, capture_blocking, find_program};
use model::base::ids::StackName;
use serde_json::json;

use crate::world::{World, stack};

/// Stacks `a` and `b`, which do not depend on each other, in one commit. `a` calls the module `net`.
fn repository(world: &mut World) {
    world.write("modules/net/main.tf", "output \"x\" { value = 1 }\n");
    let own = world.read("stacks/a/main.tf");
    let call = "module \"net\" { source = \"../../modules/net\" }\n";
    world.write("stacks/a/main.tf", &format!("{own}{call}"));
    let system = std::env::var("PATH").unwrap();
    let path = format!("{}:{system}", world.env["PATH"]);
    world.env.insert("PATH".to_owned(), path);
    git(world, &["init", "--quiet", "--initial-branch=main"]);
    commit(world, "first");
}

async fn two_stacks() -> World {
    let mut world = World::new(&(stack("a", "") + &stack("b", ""))).await;
    for name in ["a", "b"] {
        world.script(name, &json!({"resources": {"r": "1"}}));
    }
    repository(&mut world);
    world
}

fn git(world: &World, args: &[&str]) {
    let settings = ["-c", "user.name=test", "-c", "user.email=test@example.io"];
    let args: Vec<OsString> = settings.iter().chain(args).map(OsString::from).collect();
    let program = find_program("git", world.env["PATH"].as_ref()).expect("git");
    let env: Environment = world.env.iter().collect();
    let root = world.root();
    let said = capture_blocking(&Capture::new(&program, &args, &root, &env)).unwrap();
    assert!(said.exit.success(), "{}", said.stderr_text());
}

fn commit(world: &World, message: &str) {
    git(world, &["add", "--all"]);
    git(
        world,
        &["commit", "--quiet", "--allow-empty", "--message", message],
    );
}

fn names(stacks: &BTreeSet<StackName>) -> Vec<&str> {
    stacks.iter().map(StackName::as_str).collect()
}

fn since(world: &World, reference: &str) -> Result<BTreeSet<StackName>, ChangedError> {
    let (open, project) = world.open();
    changed::since(&open, &project, reference, &world.env)
}

async fn since_applied(world: &World) -> BTreeSet<StackName> {
    let (open, project) = world.open();
    changed::since_applied(&world.control, &open, &project)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_commit_without_changes_selects_nothing() {
    let world = two_stacks().await;
    assert!(since(&world, "HEAD").unwrap().is_empty());
}

#[tokio::test]
async fn a_changed_file_selects_its_stack() {
    let world = two_stacks().await;
    world.write("stacks/b/extra.tf", "locals { x = 1 }\n");
    assert_eq!(names(&since(&world, "HEAD").unwrap()), ["b"]);
}

#[tokio::test]
async fn a_changed_module_selects_the_stacks_that_call_it() {
    let world = two_stacks().await;
    world.write("modules/net/main.tf", "output \"x\" { value = 2 }\n");
    assert_eq!(names(&since(&world, "HEAD").unwrap()), ["a"]);
}

#[tokio::test]
async fn a_changed_definition_selects_its_stack() {
    let world = two_stacks().await;
    let file = world.read("terrane.hcl");
    let changed = file.replace(
        "stacks/b\"\n",
        "stacks/b\"\n  labels = [\"new\"]\n  state = \"other\"\n",
    );
    world.write("terrane.hcl", &changed);
    assert_eq!(names(&since(&world, "HEAD").unwrap()), ["b"]);
}

#[tokio::test]
async fn a_committed_change_counts_against_the_commit_before() {
    let world = two_stacks().await;
    world.write("stacks/b/extra.tf", "locals { x = 1 }\n");
    commit(&world, "second");
    assert!(since(&world, "HEAD").unwrap().is_empty());
    assert_eq!(names(&since(&world, "HEAD~1").unwrap()), ["b"]);
}

#[tokio::test]
async fn an_unknown_commit_is_named() {
    let world = two_stacks().await;
    let refused = since(&world, "no-such-branch").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot determine what changed since `no-such-branch`"
    );
}

#[tokio::test]
async fn without_a_repository_no_commit_can_be_compared() {
    let world = World::single().await;
    let refused = since(&world, "main").unwrap_err();
    assert!(matches!(refused, ChangedError::NoRepository), "{refused}");
}

#[tokio::test]
async fn stacks_that_were_never_applied_count_as_changed() {
    let world = World::chain(&["a", "b"]).await;
    assert_eq!(names(&since_applied(&world).await), ["a", "b"]);
}

#[tokio::test]
async fn stacks_are_unchanged_after_their_apply() {
    let mut world = World::chain(&["a", "b"]).await;
    world.auto_apply(&[]).await;
    assert!(since_applied(&world).await.is_empty());
}

#[tokio::test]
async fn a_stack_is_changed_since_its_apply_when_its_source_is() {
    let mut world = World::chain(&["a", "b"]).await;
    world.auto_apply(&[]).await;
    world.script(
        "b",
        &json!({"resources": {"r": "x${var.up}"}, "outputs": {"id": "@r"}}),
    );
    assert_eq!(names(&since_applied(&world).await), ["b"]);
}

#[tokio::test]
async fn a_failed_apply_does_not_count_as_applied() {
    let mut world = World::single().await;
    world.script(
        "a",
        &json!({"resources": {"r": "1"}, "apply_error_at": "r"}),
    );
    world.auto_apply(&[]).await;
    assert_eq!(names(&since_applied(&world).await), ["a"]);
}

#[tokio::test]
async fn a_plan_does_not_count_as_applied() {
    let mut world = World::single().await;
    world.plan(&[]).await;
    assert_eq!(names(&since_applied(&world).await), ["a"]);
}

#[tokio::test]
async fn a_stack_in_an_ignored_directory_is_reported() {
    let world = two_stacks().await;
    git(&world, &["rm", "--quiet", "-r", "--cached", "stacks/b"]);
    world.write(".gitignore", "stacks/b\n");
    let (open, project) = world.open();
    let findings = ignored::findings(&open, &project).unwrap();
    assert_eq!(findings.len(), 1);
    assert!(
        findings[0].message.contains("`b`"),
        "{}",
        findings[0].message
    );
}

#[tokio::test]
async fn a_stack_in_an_ignored_directory_is_not_applied() {
    let mut world = two_stacks().await;
    git(&world, &["rm", "--quiet", "-r", "--cached", "stacks/b"]);
    world.write(".gitignore", "stacks/b\n");
    let request = world.request(model::run::changeset::Action::Apply, &["b"]);
    let refused = world.begin(&request).await.unwrap_err();
    assert!(refused.to_string().contains("`b`"), "{refused}");
}

#[tokio::test]
async fn a_project_without_ignored_stacks_has_no_finding() {
    let world = two_stacks().await;
    let (open, project) = world.open();
    assert_eq!(ignored::findings(&open, &project).unwrap(), []);
}

/// The second commit removes stack `b`.
async fn removed() -> World {
    let world = two_stacks().await;
    let file = world.read("terrane.hcl");
    world.write("terrane.hcl", file.split("stack \"b\"").next().unwrap());
    std::fs::remove_dir_all(world.root().join("stacks/b")).unwrap();
    commit(&world, "second");
    world
}

#[tokio::test]
async fn the_last_commit_of_a_removed_stack_is_found() {
    let world = removed().await;
    let (open, project) = world.open();
    let found = removed_stacks::last_commit(&open, &project, &world.env, "b")
        .unwrap()
        .unwrap();
    assert_eq!(
        (found.stack.as_str(), found.subject.as_str()),
        ("b", "first")
    );
}

#[tokio::test]
async fn a_stack_that_never_existed_has_no_last_commit() {
    let world = removed().await;
    let (open, project) = world.open();
    let found = removed_stacks::last_commit(&open, &project, &world.env, "c").unwrap();
    assert_eq!(found, None);
}

#[tokio::test]
async fn the_project_of_an_older_commit_has_the_removed_stack() {
    let world = removed().await;
    let (open, project) = world.open();
    let (_, then) = removed_stacks::open_at(open, &project, &world.env, "HEAD~1").unwrap();
    let stacks: BTreeSet<StackName> = then.stacks.keys().cloned().collect();
    assert_eq!(names(&stacks), ["a", "b"]);
}

#[tokio::test]
async fn a_stack_that_the_project_has_is_not_destroyed_with_old_code() {
    let world = removed().await;
    let (open, project) = world.open();
    let (_, then) = removed_stacks::open_at(open, &project, &world.env, "HEAD~1").unwrap();
    let a: StackName = "a".parse().unwrap();
    let refused = removed_stacks::check_absent(&then, &project, [&a]).unwrap_err();
    assert_eq!(refused.to_string(), "stack `a` is in the project now");
}

#[tokio::test]
async fn a_state_that_another_stack_took_over_is_not_destroyed_with_old_code() {
    let world = removed().await;
    let file = world.read("terrane.hcl");
    world.write("terrane.hcl", &(file + &stack("c", "state = \"b\"")));
    world.script("c", &json!({}));
    let (open, project) = world.open();
    let (_, then) = removed_stacks::open_at(open, &project, &world.env, "HEAD~1").unwrap();
    let b: StackName = "b".parse().unwrap();
    let refused = removed_stacks::check_absent(&then, &project, [&b]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the state of stack `b` now belongs to stack `c` of the project"
    );
}

#[tokio::test]
async fn present_writers_hold_for_the_project_of_an_older_commit() {
    let world = removed().await;
    let file = world.read("terrane.hcl");
    world.write(
        "terrane.hcl",
        &file.replace("writers = [\"anyone\"]", "writers = [\"server\"]"),
    );
    let (open, project) = world.open();
    let (_, then) = removed_stacks::open_at(open, &project, &world.env, "HEAD~1").unwrap();
    assert_eq!(then.targets["local"].writers, ["server"]);
}

#[tokio::test]
async fn a_commit_with_a_broken_project_is_refused() {
    let world = removed().await;
    let sound = world.read("terrane.hcl");
    world.write("terrane.hcl", "project \"demo\" {\n");
    commit(&world, "broken");
    world.write("terrane.hcl", &sound);
    let (open, project) = world.open();
    let refused = removed_stacks::open_at(open, &project, &world.env, "HEAD");
    assert!(matches!(refused, Err(RemovedStackError::Unsound { .. })));
}

#[tokio::test]
async fn without_a_repository_no_older_project_is_known() {
    let world = World::single().await;
    let (open, project) = world.open();
    let refused = removed_stacks::last_commit(&open, &project, &world.env, "b").unwrap_err();
    assert!(
        matches!(refused, RemovedStackError::NoRepository),
        "{refused}"
    );
}

#[tokio::test]
async fn a_change_set_names_its_commit_and_whether_it_was_clean() {
    let mut world = two_stacks().await;
    let clean = world.plan(&["a"]).await;
    world.write("stacks/a/extra.tf", "");
    let dirty = world.plan(&["a"]).await;
    let (clean, dirty) = (
        world.set(clean).await.request,
        world.set(dirty).await.request,
    );
    assert_eq!(
        (clean.subject.as_deref(), clean.dirty),
        (Some("first"), false)
    );
    assert_eq!((dirty.commit, dirty.dirty), (clean.commit, true));
}

#[tokio::test]
async fn the_history_of_a_state_names_the_commit() {
    let mut world = two_stacks().await;
    world.auto_apply(&["a"]).await;
    let state = world.control.state_name("a");
    let lines = control::state::queries::versions::versions(&world.control, &state)
        .await
        .unwrap();
    let commit = lines[0].author.commit.clone().unwrap();
    assert_eq!(
        (commit.subject.as_deref(), commit.is_dirty),
        (Some("first"), false)
    );
}
