//! Data keys on disk.

use std::fs;

use super::*;
use crate::blob::Disk;
use crate::testing::network;

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

fn state(name: &str) -> KeyScope {
    KeyScope::State(StateName::new("p", name))
}

#[test]
fn a_data_key_is_made_once_and_is_only_its_owners() {
    let home = Home::new();
    let first = home
        .keys("a")
        .get_or_create(&KeyScope::State(network()))
        .unwrap();
    let again = home
        .keys("a")
        .get_or_create(&KeyScope::State(network()))
        .unwrap();
    let other = home.keys("a").get_or_create(&state("other")).unwrap();
    assert_eq!(first.key.bytes(), again.key.bytes());
    assert_ne!(first.key.bytes(), other.key.bytes());
}

#[test]
fn many_processes_agree_on_a_data_key() {
    let home = Home::new();
    let keys: Vec<_> = (0..16).map(|_| home.keys("a")).collect();
    let made: Vec<_> = std::thread::scope(|scope| {
        let get = |keys: &Keys| {
            let project = keys.get_or_create(&KeyScope::Project).unwrap();
            (
                *project.key.bytes(),
                *keys.get_or_create(&state("x")).unwrap().key.bytes(),
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
    keys.get_or_create(&KeyScope::Project).unwrap();
    keys.get_or_create(&state("x")).unwrap();
    let path = home.dir.path().join("home");
    fs::remove_dir_all(path.join("keys/@project")).unwrap();
    let err = home
        .keys("a")
        .get_or_create(&KeyScope::Project)
        .unwrap_err();
    assert!(
        matches!(err, StoreError::Key(KeyError::Lost { .. })),
        "{err:?}"
    );
}
