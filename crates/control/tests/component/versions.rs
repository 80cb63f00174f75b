//! The versions of a state: who wrote them, what they changed, what they hold.

use std::path::PathBuf;

use control::home::master_keys::KeySource;
use control::state::queries::blame::{BlameLine, blame};
use control::state::queries::recover::{RecoverError, RecoveredStatus, recover};
use control::state::queries::version::{self, AskStateError, VersionDocument};
use control::state::queries::versions::versions;
use control::state::queries::{self, listing};
use model::plan::ChangeAction;
use model::state::diff::{SensitiveDisplay, diff};
use model::state::version_ref::VersionRef;
use serde_json::json;

use crate::states::{a, body, damage, roll_back, written};
use crate::world::{World, stack};

#[tokio::test]
async fn the_history_names_the_run_and_the_person_of_each_version() {
    let mut world = World::single().await;
    let set = world.auto_apply(&[]).await;
    let lines = versions(&world.control, &a(&world)).await.unwrap();
    let author = &lines[0].author;
    assert_eq!(author.run, Some(world.run(set, "a").await.id));
    assert_eq!(author.change_set, Some(set));
    assert_eq!(
        author.person.as_ref().map(|actor| actor.name.as_str()),
        Some("alice")
    );
}

#[tokio::test]
async fn the_history_names_the_token_of_a_client() {
    let (world, _) = written(&["1"]).await;
    let lines = versions(&world.control, &a(&world)).await.unwrap();
    assert_eq!(
        lines[0]
            .author
            .person
            .as_ref()
            .map(|actor| actor.name.as_str()),
        Some("ci")
    );
}

#[tokio::test]
async fn the_history_says_how_much_each_version_changed() {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    world.script("a", &json!({"resources": {"r": "2", "s": "1"}}));
    world.auto_apply(&[]).await;
    let lines = versions(&world.control, &a(&world)).await.unwrap();
    let counts = lines[1].did.as_ref().unwrap().counts;
    assert_eq!((counts.added, counts.changed, counts.removed), (1, 1, 0));
}

#[tokio::test]
async fn a_state_without_a_version_has_no_history() {
    let world = World::single().await;
    let refused = versions(&world.control, &a(&world)).await.unwrap_err();
    assert_eq!(refused.to_string(), "there is no state `demo/a`");
}

async fn shown(world: &World, which: VersionRef) -> Result<VersionDocument, AskStateError> {
    version::document(&world.control, &a(world), which).await
}

#[tokio::test]
async fn a_comparison_names_the_changed_attribute() {
    let (world, _) = written(&["1", "2"]).await;
    let before = shown(&world, VersionRef::Version(1)).await.unwrap();
    let after = shown(&world, VersionRef::Head).await.unwrap();
    let found = diff(
        &before.document,
        &after.document,
        SensitiveDisplay::Revealed,
    );
    let [change] = &found.changes[..] else {
        panic!("{found:?}");
    };
    assert_eq!(change.action, ChangeAction::Update);
    assert_eq!(change.attributes[0].path, "value");
}

async fn value_at(world: &World, which: VersionRef) -> String {
    let document = shown(world, which).await.unwrap().document;
    document.instances[0].attributes["value"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn a_time_selects_the_version_that_was_the_newest_then() {
    let (world, _) = written(&["1", "2", "3"]).await;
    let lines = versions(&world.control, &a(&world)).await.unwrap();
    let then = lines[1].version.created_at;
    assert_eq!(value_at(&world, VersionRef::At(then)).await, "2");
}

#[tokio::test]
async fn a_serial_selects_the_newest_version_that_has_it() {
    let (world, _) = written(&["1", "2", "3"]).await;
    assert_eq!(value_at(&world, VersionRef::Serial(2)).await, "2");
}

#[tokio::test]
async fn a_time_before_the_first_version_shows_nothing() {
    let (world, _) = written(&["1"]).await;
    let early = VersionRef::At("2020-01-01T00:00:00Z".parse().unwrap());
    let refused = shown(&world, early).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "state `demo/a` did not exist at 2020-01-01T00:00:00Z"
    );
}

#[tokio::test]
async fn an_unknown_version_is_refused_by_its_number() {
    let (world, _) = written(&["1"]).await;
    let refused = shown(&world, VersionRef::Version(7)).await.unwrap_err();
    assert_eq!(refused.to_string(), "state `demo/a` has no version 7");
}

#[tokio::test]
async fn an_address_that_a_state_lacks_is_answered_with_those_it_has() {
    let (world, _) = written(&["1"]).await;
    let refused = shown(&world, VersionRef::Head)
        .await
        .unwrap()
        .only("terraform_data.x");
    let AskStateError::NoAddress { near, .. } = refused.unwrap_err() else {
        panic!("another refusal");
    };
    assert_eq!(near, ["terraform_data.r"]);
}

async fn blamed(world: &World, address: &str, attribute: &str) -> BlameLine {
    let (state, head) = (a(world), VersionRef::Head);
    let found = blame(
        &world.control,
        &state,
        head,
        address,
        Some(attribute),
        false,
    )
    .await;
    found.unwrap().objects[0].lines[0].clone()
}

#[tokio::test]
async fn blame_names_the_run_that_set_a_value_and_not_the_last_one() {
    let mut world = World::single().await;
    world.script("a", &json!({"resources": {"r": "1", "s": "1"}}));
    let first = world.auto_apply(&[]).await;
    world.script("a", &json!({"resources": {"r": "2", "s": "1"}}));
    world.auto_apply(&[]).await;
    let line = blamed(&world, "terraform_data.s", "value").await;
    assert_eq!((line.since, line.author.change_set), (1, Some(first)));
}

#[tokio::test]
async fn blame_gives_a_value_that_came_back_to_the_rollback() {
    let (world, _) = written(&["1", "2"]).await;
    roll_back(&world, 1).await;
    let line = blamed(&world, "terraform_data.r", "value").await;
    assert_eq!(
        (
            line.since,
            line.author.person.as_ref().map(|actor| actor.name.as_str())
        ),
        (3, Some("alice"))
    );
}

#[tokio::test]
async fn blame_of_an_unknown_attribute_lists_the_attributes() {
    let (world, _) = written(&["1"]).await;
    let (state, head) = (a(&world), VersionRef::Head);
    let asked = blame(
        &world.control,
        &state,
        head,
        "terraform_data.r",
        Some("size"),
        false,
    );
    let AskStateError::NoAttribute { near, .. } = asked.await.unwrap_err() else {
        panic!("another refusal");
    };
    assert_eq!(near, ["id", "value"]);
}

#[tokio::test]
async fn the_list_of_states_counts_their_resources() {
    let mut world = World::chain(&["a", "b"]).await;
    world.auto_apply(&[]).await;
    let listed = listing::list(&world.control, VersionRef::Head)
        .await
        .unwrap();
    let lines = listed.lines.iter();
    let lines: Vec<_> = lines
        .map(|it| (it.state.name.as_str(), it.resources.clone().ok()))
        .collect();
    assert_eq!(lines, [("a", Some(1)), ("b", Some(1))]);
}

#[tokio::test]
async fn a_deleted_state_is_not_listed_now_but_at_a_time_before() {
    let (world, client) = written(&["1"]).await;
    let before = world.head("a").await.unwrap().created_at;
    client.delete(None).await.unwrap();
    let now = listing::list(&world.control, VersionRef::Head)
        .await
        .unwrap();
    let then = listing::list(&world.control, VersionRef::At(before))
        .await
        .unwrap();
    assert_eq!((now.lines.len(), then.lines.len()), (0, 1));
}

#[tokio::test]
async fn a_deleted_state_is_shown_by_its_version_only() {
    let (world, client) = written(&["1"]).await;
    client.delete(None).await.unwrap();
    let refused = shown(&world, VersionRef::Head).await.unwrap_err();
    assert!(refused.to_string().ends_with("by ci"), "{refused}");
    assert_eq!(value_at(&world, VersionRef::Version(1)).await, "1");
}

#[tokio::test]
async fn the_state_of_a_stack_that_the_project_lost_is_named() {
    let mut world = World::chain(&["a", "b"]).await;
    world.auto_apply(&[]).await;
    let file = world.read("terrane.hcl");
    let without = file.split("stack \"b\"").next().unwrap();
    world.write("terrane.hcl", without);
    let (_, project) = world.open();
    let left = queries::abandoned(&world.control, &project).await.unwrap();
    assert_eq!(left, ["b"]);
}

#[tokio::test]
async fn verification_reads_every_version() {
    let (world, _) = written(&["1", "2", "3"]).await;
    let found = queries::integrity::verify(&world.control, None)
        .await
        .unwrap();
    assert_eq!(
        (found.states, found.versions, found.damages.len()),
        (1, 3, 0)
    );
}

#[tokio::test]
async fn verification_of_an_unknown_state_is_refused() {
    let world = World::single().await;
    let refused = queries::integrity::verify(&world.control, Some(&a(&world)))
        .await
        .unwrap_err();
    assert_eq!(refused.to_string(), "there is no state `demo/a`");
}

fn home(world: &World) -> PathBuf {
    world.root().with_file_name("home")
}

fn key(world: &World) -> KeySource {
    KeySource::File(world.root().with_file_name("key"))
}

#[tokio::test]
async fn verification_finds_a_damaged_version() {
    let (world, _) = written(&["1", "2"]).await;
    damage(&world);
    let found = queries::integrity::verify(&world.control, None)
        .await
        .unwrap();
    assert_eq!(found.damages.len(), 1, "{:?}", found.damages);
}

#[tokio::test]
async fn all_versions_are_recovered_from_the_files_and_the_key() {
    let (world, _) = written(&["1", "2"]).await;
    std::fs::remove_file(home(&world).join("terrane.db")).unwrap();
    let to = world.root().with_file_name("out");
    let found = recover(&home(&world), &key(&world), &to).await.unwrap();
    assert_eq!((found.versions.len(), found.damaged.len()), (2, 0));
    let last = std::fs::read(to.join("demo/a/2-2.tfstate")).unwrap();
    assert_eq!(last, body(2, "2"));
}

#[tokio::test]
async fn recovery_says_which_version_was_acknowledged() {
    let (world, _) = written(&["1"]).await;
    let to = world.root().with_file_name("out");
    let found = recover(&home(&world), &key(&world), &to).await.unwrap();
    assert_eq!(found.versions[0].standing, RecoveredStatus::Acknowledged);
}

#[tokio::test]
async fn recovery_makes_no_new_key() {
    let (world, _) = written(&["1"]).await;
    let (key, to) = (
        home(&world).join("gone"),
        world.root().with_file_name("out"),
    );
    let refused = recover(&home(&world), &KeySource::File(key.clone()), &to).await;
    assert!(matches!(refused, Err(RecoverError::NoKey { .. })));
    assert!(!key.exists());
}

#[tokio::test]
async fn recovery_overwrites_nothing() {
    let (world, _) = written(&["1"]).await;
    let refused = recover(&home(&world), &key(&world), &world.root()).await;
    assert!(matches!(refused, Err(RecoverError::NotEmpty { .. })));
}

#[tokio::test]
async fn a_stack_keeps_its_state_under_the_name_that_it_gives() {
    let mut world = World::new(&stack("a", "state = \"network\"")).await;
    world.script("a", &json!({"resources": {"r": "1"}}));
    world.auto_apply(&[]).await;
    assert_eq!(
        (world.serial("network").await, world.serial("a").await),
        (1, 0)
    );
}
