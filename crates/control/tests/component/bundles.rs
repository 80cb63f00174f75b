//! Plans that travel in a file: written here, applied here or in another home, once and only while they are right.

use std::path::{Path, PathBuf};

use control::changeset::bundle::{self, ReadBundleError, WriteBundleError};
use control::changeset::prepare::{BeginBundleError, ChangeSetRequest};
use control::home::master_keys::KeySource;
use control::home::{Home, HomeLocation};
use control::project::open::ProjectContext;
use control::request::{self, Requested};
use control::{Control, ProcessKind};
use model::base::ids::ChangeSetId;
use model::run::changeset::Action;
use serde_json::json;

use crate::states::{roll_back, value, written};
use crate::world::World;

/// Plans all stacks and writes the plans into a file.
async fn try_write(world: &mut World) -> Result<PathBuf, WriteBundleError> {
    let request = ChangeSetRequest {
        keeps_plans: true,
        ..world.request(Action::Plan, &[])
    };
    let set = world.start(&request).await;
    let path = world.root().with_file_name("plan.terrane");
    let (set, runs) = (world.set(set).await, world.runs(set).await);
    bundle::write(&world.control, &set, &runs, &path).await?;
    Ok(path)
}

async fn write(world: &mut World) -> PathBuf {
    try_write(world).await.unwrap()
}

async fn apply(world: &mut World, path: &Path) -> Result<ChangeSetId, BeginBundleError> {
    let bundle = bundle::read(&world.control, path).await.unwrap();
    let (open, project) = world.open();
    let stacks = bundle.stacks().cloned().collect();
    let wanted = ChangeSetRequest {
        auto_approve: true,
        stacks,
        ..world.request(Action::Apply, &[])
    };
    let context = ProjectContext {
        open: &open,
        project: &project,
        env: &world.env,
    };
    let requested = request::start_bundle(&world.control, context, &bundle, wanted).await?;
    let Requested::New(begun) = requested else {
        panic!("nothing applies the bundle yet");
    };
    let set = begun.id;
    world.drive(set).await;
    Ok(set)
}

/// Goes on in another home with this key.
async fn move_to_another_home(world: &mut World, key: &str) {
    let dir = world.root().with_file_name("second");
    let home = Home::at(
        HomeLocation::Directory(dir.clone()),
        dir.clone(),
        KeySource::File(world.root().with_file_name(key)),
        "demo".to_owned(),
    );
    let cache = world.control.cache.clone();
    let opened = Control::open(home, ProcessKind::Client, PathBuf::new(), cache).await;
    let (mut there, _) = opened.unwrap();
    there.launcher = world.control.launcher.clone();
    there.clock = world.control.clock.clone();
    world.control = there;
}

#[tokio::test]
async fn a_bundle_applies_what_was_planned() {
    let mut world = World::single().await;
    let path = write(&mut world).await;
    let set = apply(&mut world, &path).await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied");
    assert_eq!(value(&world).await, "1");
}

#[tokio::test]
async fn a_bundle_applies_its_own_source_and_not_that_of_the_directory() {
    let mut world = World::single().await;
    let path = write(&mut world).await;
    world.script("a", &json!({"resources": {"r": "later"}}));
    apply(&mut world, &path).await.unwrap();
    assert_eq!(value(&world).await, "1");
}

#[tokio::test]
async fn a_bundle_is_applied_in_another_home_with_the_same_key() {
    let mut world = World::single().await;
    let path = write(&mut world).await;
    move_to_another_home(&mut world, "key").await;
    let set = apply(&mut world, &path).await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied");
    assert_eq!(value(&world).await, "1");
}

#[tokio::test]
async fn dependents_in_a_bundle_are_planned_after_their_upstreams() {
    let mut world = World::chain(&["a", "b"]).await;
    let path = write(&mut world).await;
    let set = apply(&mut world, &path).await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied, b applied");
}

#[tokio::test]
async fn a_bundle_is_not_read_with_another_key() {
    let mut world = World::single().await;
    let path = write(&mut world).await;
    move_to_another_home(&mut world, "another-key").await;
    let refused = bundle::read(&world.control, &path).await.err().unwrap();
    let hint = model::base::error::Explain::hint(&refused);
    assert_eq!(hint.as_deref(), Some(bundle::GIVE_KEY));
}

#[tokio::test]
async fn a_changed_bundle_is_not_read() {
    let mut world = World::single().await;
    let path = write(&mut world).await;
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let refused = bundle::read(&world.control, &path).await;
    assert!(matches!(refused, Err(ReadBundleError::Open { .. })));
}

#[tokio::test]
async fn another_file_is_no_bundle() {
    let world = World::single().await;
    let path = world.root().join("terrane.hcl");
    assert!(!bundle::is_bundle(&path).unwrap());
    assert!(bundle::read(&world.control, &path).await.is_err());
}

#[tokio::test]
async fn a_bundle_is_known_by_its_beginning() {
    let mut world = World::single().await;
    let path = write(&mut world).await;
    assert!(bundle::is_bundle(&path).unwrap());
}

#[tokio::test]
async fn a_bundle_says_who_planned_it() {
    let mut world = World::single().await;
    let path = write(&mut world).await;
    let origin = bundle::read(&world.control, &path).await.unwrap().origin;
    assert_eq!(
        origin.planned_by.map(|actor| actor.name).as_deref(),
        Some("alice")
    );
    assert_eq!(origin.planned_as, "c1");
}

#[tokio::test]
async fn a_bundle_is_applied_once() {
    let mut world = World::single().await;
    let path = write(&mut world).await;
    let set = apply(&mut world, &path).await.unwrap();
    let again = apply(&mut world, &path).await.unwrap_err();
    assert_eq!(
        again.to_string(),
        format!("this bundle was applied already, as change set {set}")
    );
}

#[tokio::test]
async fn a_bundle_is_refused_after_its_state_changed() {
    let mut world = World::single().await;
    let path = write(&mut world).await;
    world.auto_apply(&[]).await;
    let refused = apply(&mut world, &path).await.unwrap_err().to_string();
    let why = "the plan of stack `a` may no longer be applied: the state";
    assert!(refused.starts_with(why), "{refused}");
    assert!(refused.contains("requested by `alice`"), "{refused}");
}

#[tokio::test]
async fn a_bundle_is_refused_after_a_rollback() {
    let (mut world, _) = written(&["x", "y"]).await;
    let path = write(&mut world).await;
    roll_back(&world, 1).await;
    let refused = apply(&mut world, &path).await.unwrap_err();
    assert!(
        matches!(refused, BeginBundleError::Moved { .. }),
        "{refused}"
    );
    assert_eq!(value(&world).await, "x");
}

#[tokio::test]
async fn a_bundle_is_refused_if_the_project_lost_its_stack() {
    let mut world = World::chain(&["a", "b"]).await;
    let path = write(&mut world).await;
    let file = world.read("terrane.hcl");
    world.write("terrane.hcl", file.split("stack \"b\"").next().unwrap());
    let refused = apply(&mut world, &path).await.unwrap_err();
    let why = "the bundle changes stack `b`, which this project does not have";
    assert_eq!(refused.to_string(), why);
}

#[tokio::test]
async fn a_failed_plan_is_not_written_into_a_bundle() {
    let mut world = World::single().await;
    world.script("a", &json!({"plan_error": "no"}));
    let refused = try_write(&mut world).await.unwrap_err();
    let why = "the plan of stack `a` failed: a bundle only contains complete change sets";
    assert_eq!(refused.to_string(), why);
}

#[tokio::test]
async fn an_apply_is_not_written_into_a_bundle() {
    let mut world = World::single().await;
    let set = world.auto_apply(&[]).await;
    let path = world.root().with_file_name("plan.terrane");
    let (set, runs) = (world.set(set).await, world.runs(set).await);
    let refused = bundle::write(&world.control, &set, &runs, &path)
        .await
        .unwrap_err();
    assert!(
        refused
            .to_string()
            .starts_with("the plan of stack `a` was applied"),
        "{refused}"
    );
    assert!(!path.exists());
}

#[tokio::test]
async fn plans_that_were_not_kept_are_not_written_into_a_bundle() {
    let mut world = World::single().await;
    let set = world.plan(&[]).await;
    let path = world.root().with_file_name("plan.terrane");
    let (set, runs) = (world.set(set).await, world.runs(set).await);
    let refused = bundle::write(&world.control, &set, &runs, &path)
        .await
        .unwrap_err();
    assert_eq!(refused.to_string(), "the plan file of stack `a` is gone");
}

#[tokio::test]
async fn a_bundle_contains_no_value_in_clear() {
    let mut world = World::single().await;
    world.script("a", &json!({"resources": {"r": "a-text-to-look-for"}}));
    let path = write(&mut world).await;
    let text = String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
    assert!(!text.contains("a-text-to-look-for"));
}

#[tokio::test]
async fn rules_that_were_loosened_since_the_plan_still_hold_for_its_bundle() {
    let mut world = World::single().await;
    let strict = world.read("terrane.hcl");
    let strict = strict.replace(
        "layer = \"base\"\n",
        "layer = \"base\"\n  approval { count = 1 }\n",
    );
    let loose = world.read("terrane.hcl");
    world.write("terrane.hcl", &strict);
    let path = write(&mut world).await;
    world.write("terrane.hcl", &loose);
    let bundle = bundle::read(&world.control, &path).await.unwrap();
    let (_, project) = world.open();
    let ruled = bundle.with_planned_rules(project);
    assert!(ruled.stacks.values().all(|stack| stack.approval.is_some()));
}
