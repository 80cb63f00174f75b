//! States that move in and out: files, directories, HTTP backends, whole homes.

use model::base::actor::Actor;
use std::path::{Path, PathBuf};

use control::home::master_keys::KeySource;
use control::home::{Home, HomeLocation};
use control::state::http_backend_lock::Locking;
use control::state::queries;
use control::transfer::export::{ExportError, Exported, StateExport, export_all, export_state};
use control::transfer::import::{
    ImportError, Imported, ImportedEntry, SourceLockState, StateImport, StateLocation, import_all,
    import_state,
};
use control::{Control, ProcessKind};
use model::state::token::TokenScope;
use testkit::FakeHttpBackend;

use crate::states::{a, body, client, lock, other, value, written};
use crate::world::World;

async fn import(world: &World, from: StateLocation) -> Result<Imported, ImportError> {
    import_and(world, from, false).await
}

async fn import_and(
    world: &World,
    from: StateLocation,
    leave_locked: bool,
) -> Result<Imported, ImportError> {
    let asked = StateImport {
        state: &a(world),
        from: &from,
        credential: Some("env:STATE_LOGIN"),
        root: &world.root(),
        locking: &Locking::default(),
        leave_locked,
        who: &Actor::named("alice"),
    };
    let login = FakeHttpBackend::CREDENTIAL.to_owned();
    let env = [("STATE_LOGIN".to_owned(), login)].into();
    import_state(&world.control, &env, &asked).await
}

async fn export(world: &World, to: StateLocation) -> Result<Exported, ExportError> {
    let asked = StateExport {
        state: &a(world),
        to: &to,
        credential: Some("env:STATE_LOGIN"),
        root: &world.root(),
        locking: &Locking::default(),
        who: &Actor::named("alice"),
    };
    let login = FakeHttpBackend::CREDENTIAL.to_owned();
    let env = [("STATE_LOGIN".to_owned(), login)].into();
    export_state(&world.control, &env, &asked).await
}

fn file(world: &World, bytes: Vec<u8>) -> StateLocation {
    let path = world.root().with_file_name("old.tfstate");
    std::fs::write(&path, bytes).unwrap();
    StateLocation::File(path)
}

/// A home beside that of the test, with a key of its own.
async fn second_home(world: &World) -> Control {
    let dir = world.root().with_file_name("second");
    let home = Home::at(
        HomeLocation::Directory(dir.clone()),
        dir.clone(),
        KeySource::File(world.root().with_file_name("second-key")),
        "demo".to_owned(),
    );
    let cache = world.control.cache.clone();
    let opened = Control::open(home, ProcessKind::Client, PathBuf::new(), cache).await;
    opened.unwrap().0
}

#[tokio::test]
async fn an_imported_file_keeps_its_serial_and_its_lineage() {
    let world = World::single().await;
    let from = file(&world, body(17, "1"));
    let version = import(&world, from).await.unwrap().version;
    assert_eq!((version.serial, version.lineage.as_str()), (17, "l"));
}

#[tokio::test]
async fn a_stack_continues_from_its_imported_state() {
    let mut world = World::single().await;
    world.script("a", &serde_json::json!({"resources": {"r": "1"}}));
    let from = file(&world, body(17, "1"));
    import(&world, from).await.unwrap();
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a unchanged");
}

#[tokio::test]
async fn a_second_import_of_the_same_file_changes_nothing() {
    let world = World::single().await;
    let from = file(&world, body(17, "1"));
    import(&world, from.clone()).await.unwrap();
    let again = import(&world, from).await.unwrap();
    assert!(again.was_here);
    assert_eq!(again.version.version, 1);
}

#[tokio::test]
async fn a_state_of_another_lineage_is_not_replaced() {
    let (world, _) = written(&["1"]).await;
    let from = file(&world, other(17, "2"));
    let refused = import(&world, from).await.unwrap_err();
    let why = "state `demo/a` already has versions here, with another lineage (serial 1)";
    assert_eq!(refused.to_string(), why);
    assert_eq!(value(&world).await, "1");
}

#[tokio::test]
async fn a_later_state_of_the_same_lineage_is_imported() {
    let (world, _) = written(&["1"]).await;
    let from = file(&world, body(2, "2"));
    import(&world, from).await.unwrap();
    assert_eq!(value(&world).await, "2");
}

#[tokio::test]
async fn an_earlier_state_of_the_same_lineage_is_not_imported() {
    let (world, _) = written(&["1", "2"]).await;
    let from = file(&world, body(1, "0"));
    let refused = import(&world, from).await;
    assert!(matches!(refused, Err(ImportError::Append { .. })));
    assert_eq!(value(&world).await, "2");
}

#[tokio::test]
async fn an_empty_state_of_another_lineage_is_replaced() {
    let world = World::single().await;
    let client = client(&world, "ci", TokenScope::Write).await;
    let empty = br#"{"version":4,"serial":1,"lineage":"l","outputs":{},"resources":[]}"#;
    client.write(None, empty.to_vec()).await.unwrap();
    let from = file(&world, other(17, "2"));
    import(&world, from).await.unwrap();
    assert_eq!(value(&world).await, "2");
}

#[tokio::test]
async fn an_import_waits_for_nobody_and_is_refused_by_a_lock() {
    let (world, client) = written(&["1"]).await;
    client.lock(&lock("x")).await.unwrap();
    let from = file(&world, body(2, "2"));
    let refused = import(&world, from).await.unwrap_err();
    assert_eq!(refused.to_string(), "could not lock state `demo/a`");
}

#[tokio::test]
async fn an_import_leaves_no_lock() {
    let world = World::single().await;
    let from = file(&world, body(17, "1"));
    import(&world, from).await.unwrap();
    let client = client(&world, "ci", TokenScope::Write).await;
    client.lock(&lock("x")).await.unwrap();
}

#[tokio::test]
async fn a_missing_file_is_named() {
    let world = World::single().await;
    let refused = import(&world, StateLocation::File("/nowhere/x".into()))
        .await
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "could not read the state file `/nowhere/x`"
    );
}

#[tokio::test]
async fn a_file_that_is_no_state_is_not_imported() {
    let world = World::single().await;
    let from = file(&world, b"{}".to_vec());
    import(&world, from).await.unwrap_err();
    assert_eq!(world.serial("a").await, 0);
}

#[tokio::test]
async fn a_directory_has_the_file_of_each_state() {
    let world = World::single().await;
    let dir = world.root().with_file_name("states");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("a.tfstate"), body(3, "1")).unwrap();
    let from = StateLocation::parse("states", dir.parent().unwrap());
    assert_eq!(import(&world, from).await.unwrap().version.serial, 3);
}

#[tokio::test]
async fn only_a_state_that_an_engine_stored_elsewhere_has_a_copy() {
    let (world, _) = written(&["1"]).await;
    let refused = import(&world, StateLocation::Copy).await.unwrap_err();
    let why = "the stored state `demo/a` is not a copy from a backend of the engine";
    assert_eq!(refused.to_string(), why);
}

#[tokio::test]
async fn an_exported_file_has_the_bytes_of_the_newest_version() {
    let (world, _) = written(&["1", "2"]).await;
    let path = world.root().with_file_name("new.tfstate");
    let done = export(&world, StateLocation::File(path.clone()))
        .await
        .unwrap();
    assert_eq!(done.serial, 2);
    assert_eq!(std::fs::read(path).unwrap(), body(2, "2"));
}

#[tokio::test]
async fn an_export_overwrites_no_file() {
    let (world, _) = written(&["1"]).await;
    let to = file(&world, b"mine".to_vec());
    let refused = export(&world, to).await.unwrap_err();
    assert!(
        refused.to_string().ends_with("old.tfstate` already exists"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_state_that_does_not_exist_is_not_exported() {
    let world = World::single().await;
    let path = world.root().with_file_name("new.tfstate");
    let refused = export(&world, StateLocation::File(path.clone()))
        .await
        .unwrap_err();
    assert_eq!(refused.to_string(), "there is no state `demo/a`");
    assert!(!path.exists());
}

/// All states of the home in a directory.
async fn exported() -> (World, PathBuf) {
    let mut world = World::chain(&["a", "b"]).await;
    world.auto_apply(&[]).await;
    let dir = world.root().with_file_name("states");
    export_all(&world.control, &dir).await.unwrap();
    (world, dir)
}

async fn import_all_into(control: &Control, dir: &Path) -> Result<Vec<ImportedEntry>, ImportError> {
    Ok(import_all(control, dir, &Actor::named("alice")).await?.0)
}

#[tokio::test]
async fn all_states_of_a_home_arrive_in_another_one() {
    let (world, dir) = exported().await;
    let there = second_home(&world).await;
    assert_eq!(import_all_into(&there, &dir).await.unwrap().len(), 2);
    let state = world.control.state_name("b");
    let (_, here) = queries::read(&world.control, &state, None).await.unwrap();
    let (_, arrived) = queries::read(&there, &state, None).await.unwrap();
    assert_eq!(arrived, here);
}

#[tokio::test]
async fn a_stack_is_unchanged_in_the_home_to_which_its_state_moved() {
    let (mut world, dir) = exported().await;
    let mut there = second_home(&world).await;
    import_all_into(&there, &dir).await.unwrap();
    there.launcher = world.control.launcher.clone();
    there.clock = world.control.clock.clone();
    world.control = there;
    let set = world.auto_apply(&[]).await;
    assert_eq!(
        world.summary(set).await,
        "finished: a unchanged, b unchanged"
    );
}

#[tokio::test]
async fn nothing_is_imported_if_one_file_was_changed() {
    let (world, dir) = exported().await;
    std::fs::write(dir.join("b.tfstate"), body(9, "x")).unwrap();
    let there = second_home(&world).await;
    let refused = import_all_into(&there, &dir).await.unwrap_err();
    assert!(
        refused.to_string().ends_with("its digest does not match"),
        "{refused}"
    );
    let state = world.control.state_name("a");
    assert!(there.state_head(&state).await.unwrap().is_none());
}

#[tokio::test]
async fn a_home_is_exported_into_an_empty_directory_only() {
    let (world, dir) = exported().await;
    let refused = export_all(&world.control, &dir).await.unwrap_err();
    assert!(
        refused.to_string().ends_with("states` already exists"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_state_that_only_runs_write_is_still_theirs_after_an_import() {
    let world = World::single().await;
    let dir = world.root().with_file_name("states");
    let (there, _) = written(&["1"]).await;
    export_all(&there.control, &dir).await.unwrap();
    let list = dir.join("states.json");
    let text = std::fs::read_to_string(&list).unwrap();
    std::fs::write(
        &list,
        text.replace("\"copy\"", "\"runs_only\": true, \"copy\""),
    )
    .unwrap();
    import_all_into(&world.control, &dir).await.unwrap();
    let client = client(&world, "ci", TokenScope::Surgery).await;
    let refused = client.write(None, body(2, "2")).await.unwrap_err();
    let why = "token `ci` may not do this: only runs write this state: its target's writers are not `anyone`";
    assert_eq!(refused.to_string(), why);
}

fn text(serial: u64) -> String {
    String::from_utf8(body(serial, "1")).unwrap()
}

#[tokio::test]
async fn a_state_of_an_http_backend_is_read_under_its_lock() {
    let world = World::single().await;
    let old = FakeHttpBackend::start(Some(&text(7)));
    let from = StateLocation::Http(old.address().to_owned());
    let done = import(&world, from).await.unwrap();
    assert_eq!(
        (done.version.serial, done.old_home),
        (7, SourceLockState::Released)
    );
    assert!(!old.is_locked());
}

#[tokio::test]
async fn an_http_backend_stays_locked_if_that_is_asked_for() {
    let world = World::single().await;
    let old = FakeHttpBackend::start(Some(&text(7)));
    let from = StateLocation::Http(old.address().to_owned());
    import_and(&world, from, true).await.unwrap();
    assert!(old.is_locked());
}

#[tokio::test]
async fn an_http_backend_is_unlocked_if_its_state_is_not_imported() {
    let (world, _) = written(&["1"]).await;
    let old = FakeHttpBackend::start(Some(&String::from_utf8(other(7, "1")).unwrap()));
    let from = StateLocation::Http(old.address().to_owned());
    import_and(&world, from, true).await.unwrap_err();
    assert!(!old.is_locked());
}

#[tokio::test]
async fn a_state_is_not_read_under_the_lock_of_somebody_else() {
    let world = World::single().await;
    let old = FakeHttpBackend::start(Some(&text(7)));
    old.is_locked_by("/state", "somebody");
    let from = StateLocation::Http(old.address().to_owned());
    import(&world, from).await.unwrap_err();
    assert_eq!(world.serial("a").await, 0);
}

#[tokio::test]
async fn a_state_is_written_to_an_empty_http_backend() {
    let (world, _) = written(&["1", "2"]).await;
    let new = FakeHttpBackend::start(None);
    export(&world, StateLocation::Http(new.address().to_owned()))
        .await
        .unwrap();
    assert_eq!(new.state().unwrap().into_bytes(), body(2, "2"));
    assert!(!new.is_locked());
}

#[tokio::test]
async fn a_later_state_of_an_http_backend_is_not_overwritten() {
    let (world, _) = written(&["1"]).await;
    let new = FakeHttpBackend::start(Some(&text(7)));
    let to = StateLocation::Http(new.address().to_owned());
    let refused = export(&world, to).await.unwrap_err();
    assert!(
        refused
            .to_string()
            .ends_with("holds serial 7 already, and ours is 1"),
        "{refused}"
    );
    assert_eq!(new.state(), Some(text(7)));
}
