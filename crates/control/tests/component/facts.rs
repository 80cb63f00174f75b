//! Facts that stacks publish into a branch of a bare repository.

use std::path::Path;

use serde_json::{Value, json};

use crate::world::{World, stack};

const FACTS: &str = "facts \"runtime\" { repository = \"../facts.git\" }\n";
const PUBLISH: &str =
    "publish \"runtime\" {\n    path = \"a.yaml\"\n    values = { name = output.name }\n  }";

fn script(name: &str) -> Value {
    json!({"resources": {"r": "1"}, "outputs": {"name": name}})
}

/// A stack `a` with these blocks, and Git in the caller's environment.
async fn without_repository(blocks: &str) -> World {
    let mut world = World::new(&(FACTS.to_owned() + &stack("a", blocks))).await;
    world.script("a", &script("one"));
    let path = format!("{}:{}", world.env["PATH"], std::env::var("PATH").unwrap());
    world.env.insert("PATH".to_owned(), path);
    world
}

async fn world() -> World {
    let world = without_repository(PUBLISH).await;
    make_repository(&world);
    world
}

fn make_repository(world: &World) {
    git(
        &world.root().join(".."),
        &["init", "--quiet", "--bare", "facts.git"],
    );
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test plays somebody else, with Git of their own"
)]
fn git(dir: &Path, args: &[&str]) -> String {
    let output = std::process::Command::new("git")
        .args([
            "-c",
            "user.name=Somebody",
            "-c",
            "user.email=somebody@example.io",
        ])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn in_branch(world: &World, args: &[&str]) -> String {
    git(&world.root().join("../facts.git"), args)
}

fn file(world: &World) -> String {
    in_branch(world, &["show", "facts:a.yaml"])
}

fn files(world: &World) -> String {
    in_branch(world, &["ls-tree", "-r", "--name-only", "facts"])
}

fn commits(world: &World) -> String {
    in_branch(world, &["rev-list", "--count", "facts"])
}

/// Somebody changes the published file by hand.
fn edit(world: &World, text: &str) {
    let around = world.root().join("..");
    let _ = std::fs::remove_dir_all(around.join("clone"));
    git(
        &around,
        &[
            "clone",
            "--quiet",
            "--branch",
            "facts",
            "facts.git",
            "clone",
        ],
    );
    let clone = around.join("clone");
    std::fs::write(clone.join("a.yaml"), text).unwrap();
    git(&clone, &["commit", "--quiet", "-am", "mend it by hand"]);
    git(&clone, &["push", "--quiet", "origin", "facts"]);
}

#[tokio::test]
async fn an_apply_publishes_what_the_stack_says() {
    let mut world = world().await;
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a applied");
    assert!(file(&world).contains("name: \"one\""), "{}", file(&world));
}

#[tokio::test]
async fn a_plan_publishes_nothing() {
    let mut world = world().await;
    let set = world.plan(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a planned");
    assert_eq!(in_branch(&world, &["branch", "--list"]), "");
}

#[tokio::test]
async fn facts_that_are_as_published_make_no_commit() {
    let mut world = world().await;
    world.auto_apply(&[]).await;
    let before = commits(&world);
    world.script(
        "a",
        &json!({"resources": {"r": "2"}, "outputs": {"name": "one"}}),
    );
    world.auto_apply(&[]).await;
    assert_eq!(commits(&world), before);
}

#[tokio::test]
async fn a_changed_output_is_published() {
    let mut world = world().await;
    world.auto_apply(&[]).await;
    world.script("a", &script("two"));
    world.auto_apply(&[]).await;
    assert!(file(&world).contains("name: \"two\""));
}

#[tokio::test]
async fn a_destroy_withdraws_facts() {
    let mut world = world().await;
    world.auto_apply(&[]).await;
    let set = world.destroy(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a applied");
    assert!(!files(&world).contains("a.yaml"), "{}", files(&world));
}

#[tokio::test]
async fn facts_of_a_removed_block_are_withdrawn_by_the_next_run() {
    let mut world = world().await;
    world.auto_apply(&[]).await;
    let file = world.read("terrane.hcl").replace(PUBLISH, "");
    world.write("terrane.hcl", &file);
    world.auto_apply(&[]).await;
    assert!(!files(&world).contains("a.yaml"), "{}", files(&world));
}

#[tokio::test]
async fn a_run_that_cannot_publish_is_applied_and_not_published() {
    let mut world = without_repository(PUBLISH).await;
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "stopped: a not published");
    assert_eq!(world.serial("a").await, 1);
}

#[tokio::test]
async fn a_retry_publishes_without_applying_again() {
    let mut world = without_repository(PUBLISH).await;
    let set = world.auto_apply(&[]).await;
    make_repository(&world);
    world.retry(set, "a", false).await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied");
    assert_eq!(world.serial("a").await, 1);
    assert!(file(&world).contains("name: \"one\""));
}

#[tokio::test]
async fn a_change_by_somebody_else_stops_the_publication_and_names_them() {
    let mut world = world().await;
    world.auto_apply(&[]).await;
    edit(&world, "name: mine\n");
    world.script("a", &script("two"));
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "stopped: a not published");
    let message = world.problem(set, "a").await.message;
    assert!(
        message.contains("Somebody <somebody@example.io>"),
        "{message}"
    );
    assert_eq!(file(&world), "name: mine\n");
}

#[tokio::test]
async fn a_publication_goes_on_once_the_change_by_somebody_else_is_undone() {
    let mut world = world().await;
    world.auto_apply(&[]).await;
    let own = file(&world);
    edit(&world, "name: mine\n");
    world.script("a", &script("two"));
    let set = world.auto_apply(&[]).await;
    edit(&world, &own);
    world.retry(set, "a", false).await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied");
    assert!(file(&world).contains("name: \"two\""));
}

#[tokio::test]
async fn a_sensitive_output_is_not_published() {
    let mut world = world().await;
    world.script(
        "a",
        &json!({"resources": {"r": "1"}, "outputs": {"name": "open-sesame-1"}, "sensitive": ["name"]}),
    );
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "stopped: a failed");
    assert_eq!(world.serial("a").await, 0, "it is refused before the apply");
    let problem = world.problem(set, "a").await;
    assert!(problem.refused);
    assert!(!format!("{problem:?}").contains("open-sesame-1"));
}

#[tokio::test]
async fn gates_are_not_looked_at_before_facts_are_published() {
    let gate = "gate \"command\" \"smoke\" { run = [\"false\"] }";
    let mut world = without_repository(&format!("{PUBLISH}\n  {gate}")).await;
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "stopped: a not published");
}
