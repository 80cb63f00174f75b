//! Master keys and data keys on disk.

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::testing::network;

#[test]
fn the_first_use_makes_a_key_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("terrane/master.key");
    let made = Keyring::open_or_create(&path).unwrap();
    let again = Keyring::open_or_create(&path).unwrap();
    assert!(made.created() && !again.created());
    assert_eq!(made.master.0, again.master.0);
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let text = fs::read_to_string(&path).unwrap();
    assert!(
        text.starts_with(&format!("terrane-key-1 {} ", made.id())),
        "one line, its id in it"
    );
    assert_eq!(text.lines().count(), 1);
}

#[test]
fn of_many_that_make_it_at_once_one_does() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("terrane/master.key");
    let made: Vec<Keyring> = std::thread::scope(|scope| {
        let open = || Keyring::open_or_create(&path).unwrap();
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(open)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(made.iter().filter(|keyring| keyring.created()).count(), 1);
    assert!(
        made.iter()
            .all(|keyring| keyring.master.0 == made[0].master.0)
    );
}

#[test]
fn what_is_not_a_master_key() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("master.key");
    for text in [
        "",
        "terrane-key-1 id c2hvcnQ=",
        "terrane-key-2 id AAAA",
        "secret",
    ] {
        fs::write(&path, text).unwrap();
        let err = Keyring::open_or_create(&path).unwrap_err();
        assert!(
            matches!(err, OpenKeyringError::Shape { .. }),
            "{text}: {err}"
        );
    }
}

#[test]
fn secrets_are_not_shown() {
    let dir = tempfile::tempdir().unwrap();
    let keyring = Keyring::open_or_create(&dir.path().join("master.key")).unwrap();
    assert_eq!(format!("{keyring:?}"), format!("Keyring({})", keyring.id()));
    assert_eq!(format!("{:?}", keyring.master), "[secret]");
}

struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn keys(&self, master: &str) -> Keys {
        let keyring = Keyring::open_or_create(&self.dir.path().join(master)).unwrap();
        Keys::new(
            keyring,
            Blobs::Disk(Disk::new(&self.dir.path().join("home"))),
        )
    }
}

fn state(name: &str) -> Scope {
    Scope::State(StateName::new("p", name))
}

#[test]
fn a_data_key_is_made_once_and_is_only_its_owners() {
    let home = Home::new();
    let first = home
        .keys("a")
        .get_or_create(&Scope::State(network()))
        .unwrap();
    let again = home
        .keys("a")
        .get_or_create(&Scope::State(network()))
        .unwrap();
    let other = home.keys("a").get_or_create(&state("other")).unwrap();
    assert_eq!(first.key.0, again.key.0);
    assert_ne!(first.key.0, other.key.0);
}

#[test]
fn many_processes_agree_on_a_data_key() {
    let home = Home::new();
    let keys: Vec<_> = (0..16).map(|_| home.keys("a")).collect();
    let made: Vec<_> = std::thread::scope(|scope| {
        let get = |keys: &Keys| {
            let project = keys.get_or_create(&Scope::Project).unwrap();
            (
                project.key.0,
                keys.get_or_create(&state("x")).unwrap().key.0,
            )
        };
        let threads: Vec<_> = keys
            .iter()
            .map(|keys| scope.spawn(move || get(keys)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(made.iter().all(|pair| *pair == made[0]));
}

#[test]
fn a_wrapped_key_does_not_open_for_another_state() {
    let home = Home::new();
    home.keys("a").get_or_create(&state("x")).unwrap();
    let keys = home.dir.path().join("home/keys");
    fs::rename(keys.join("p~x"), keys.join("p~y")).unwrap();
    let err = home.keys("a").get(&state("y")).unwrap_err();
    assert!(
        matches!(err, StoreError::Key(KeyError::Unwrap { .. })),
        "{err:?}"
    );
}

#[test]
fn another_master_key_is_named() {
    let home = Home::new();
    home.keys("a").get_or_create(&state("x")).unwrap();
    let err = home.keys("b").get(&state("x")).unwrap_err();
    assert!(
        matches!(err, StoreError::Key(KeyError::OtherMaster { .. })),
        "{err:?}"
    );
}

#[test]
fn a_lost_key_of_the_project_is_not_replaced() {
    let home = Home::new();
    let keys = home.keys("a");
    keys.get_or_create(&Scope::Project).unwrap();
    keys.get_or_create(&state("x")).unwrap();
    let path = home.dir.path().join("home");
    fs::remove_dir_all(path.join("keys/@project")).unwrap();
    let err = home.keys("a").get_or_create(&Scope::Project).unwrap_err();
    assert!(
        matches!(err, StoreError::Key(KeyError::Lost { .. })),
        "{err:?}"
    );
}
