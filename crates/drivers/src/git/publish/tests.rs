//! Publishing with real Git: to a path, over HTTP behind a token, over SSH behind a key.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use model::base::secret::Secret;
use model::stage::facts::CommitChanges;
use testkit::{GitHttp, Sshd};

use super::*;
use crate::git::tests::run;

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        run(dir.path(), &["init", "--quiet", "--bare", "facts.git"]);
        run(
            &dir.path().join("facts.git"),
            &["config", "http.receivepack", "true"],
        );
        fs::create_dir(dir.path().join("private")).unwrap();
        Self { dir }
    }

    fn bare(&self) -> PathBuf {
        self.dir.path().join("facts.git")
    }

    async fn open(&self, cache: &str, url: &str, credential: Option<&str>) -> Publisher {
        self.try_open(cache, url, credential).await.unwrap()
    }

    async fn try_open(
        &self,
        cache: &str,
        url: &str,
        credential: Option<&str>,
    ) -> Result<Publisher, PublishError> {
        let root = self.dir.path();
        let remote = Remote {
            url: RemoteUrl::parse(url, root)?,
            branch: "main".to_owned(),
            credential: credential.map(|secret| GitCredential::new(Secret::new(secret))),
        };
        let asker = BTreeMap::from([("PATH".to_owned(), std::env::var("PATH").unwrap())]);
        Publisher::open(&asker, &root.join(cache), &root.join("private"), &remote).await
    }
}

fn writes(files: &[(&str, &str)]) -> CommitChanges {
    CommitChanges {
        write: files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec()))
            .collect(),
        remove: BTreeSet::new(),
    }
}

fn noon() -> Timestamp {
    "2026-01-10T12:00:00Z".parse().unwrap()
}

/// Publishes twice and reads back; every transport must support this.
async fn round_trip(place: &Place, url: &str, credential: Option<&str>) {
    let publisher = place.open("cache.git", url, credential).await;
    assert_eq!(publisher.tip().await.unwrap(), None);
    let change = writes(&[("a/b c.yaml", "1\n"), ("x", "y")]);
    let first = publisher
        .commit(None, &change, "one\n", noon())
        .await
        .unwrap();
    assert_eq!(
        publisher.push(&first, None).await.unwrap(),
        PushOutcome::Done
    );
    assert_eq!(publisher.tip().await.unwrap().as_ref(), Some(&first));

    // Another home, with an empty cache.
    let other = place.open("other.git", url, credential).await;
    assert_eq!(other.files(&first, &["x"]).await.unwrap(), None);
    assert_eq!(other.fetch(false).await.unwrap(), first);
    let files = other
        .files(&first, &["a/b c.yaml", "missing", "a"])
        .await
        .unwrap();
    let expected = BTreeMap::from([("a/b c.yaml".to_owned(), b"1\n".to_vec())]);
    assert_eq!(files, Some(expected));
    let mut change = writes(&[("a/b c.yaml", "2\n")]);
    change.remove.insert("x".to_owned());
    let second = other.commit(Some(&first), &change, "two\n\nTerrane-Project: p\n", noon());
    let second = second.await.unwrap();
    assert_eq!(
        other.push(&second, Some(&first)).await.unwrap(),
        PushOutcome::Done
    );

    // The first publisher's push is now stale, and reports it.
    let late = publisher
        .commit(Some(&first), &writes(&[("x", "z")]), "late\n", noon())
        .await
        .unwrap();
    assert_eq!(
        publisher.push(&late, Some(&first)).await.unwrap(),
        PushOutcome::Late
    );
    let tip = publisher.fetch(false).await.unwrap();
    assert_eq!(tip, second);
    // The first fetch got only the newest commit; the history follows on request.
    assert_eq!(publisher.between(&first, &tip).await.unwrap(), None);
    assert_eq!(publisher.fetch(true).await.unwrap(), second);
    let between = publisher.between(&first, &tip).await.unwrap();
    assert_eq!(between, Some(vec![second.clone()]));
    assert_eq!(publisher.list(&tip).await.unwrap(), ["a/b c.yaml"]);
    assert_eq!(
        publisher.changed_between(&first, &second).await.unwrap(),
        ["a/b c.yaml", "x"]
    );
    let commit = publisher.commit_read(&second).await.unwrap();
    assert_eq!(commit.author, "terrane <terrane@localhost>");
    assert_eq!(commit.at, Some(noon()));
}

#[tokio::test]
async fn facts_go_to_a_path() {
    let place = Place::new();
    round_trip(&place, "facts.git", None).await;
}

#[tokio::test]
async fn facts_go_over_http_with_a_token() {
    let place = Place::new();
    let server = GitHttp::start(place.dir.path(), "x-access-token:marked-token");
    let url = server.url("facts.git");
    round_trip(&place, &url, Some("marked-token\n")).await;
    let asked = server.log().join("\n");
    assert!(asked.contains("git-receive-pack"), "{asked}");
    assert!(!asked.contains("marked"), "{asked}");

    let refused = place
        .open("wrong.git", &url, Some("wrong:marked-wrong"))
        .await
        .tip()
        .await;
    let refused = refused.unwrap_err();
    let said = format!("{refused:?} {refused} {:?}", refused.hint());
    assert!(said.contains("may push there"), "{said}");
    assert!(!said.contains("marked-wrong"), "{said}");
}

#[tokio::test]
async fn facts_go_over_ssh_with_a_key() {
    let place = Place::new();
    let server = Sshd::start();
    let url = server.url(&place.bare());
    round_trip(&place, &url, Some(server.key())).await;
    // The key is gone; the host key is remembered.
    let left: Vec<String> = fs::read_dir(place.dir.path().join("private"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(left, ["known_hosts"]);
}

#[tokio::test]
async fn a_key_lies_in_a_file_for_its_owner_alone() {
    let place = Place::new();
    let key = "-----BEGIN OPENSSH PRIVATE KEY-----\nmarked\n-----END OPENSSH PRIVATE KEY-----";
    let publisher = place
        .open("cache.git", "git@localhost:facts.git", Some(key))
        .await;
    let private = place.dir.path().join("private");
    let dirs: Vec<PathBuf> = fs::read_dir(&private)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let [dir] = &dirs[..] else { panic!("{dirs:?}") };
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(dir), mode(&dir.join("key"))), (0o700, 0o600));
    // A directory left by a killed process is removed; one in use is not touched.
    let left = private.join("key-left");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("key"), key).unwrap();
    sweep_keys(&private);
    assert!(!left.exists() && dir.join("key").exists());
    drop(publisher);
    assert!(!dir.exists());
}

#[tokio::test]
async fn the_same_facts_at_the_same_time_are_the_same_commit() {
    let place = Place::new();
    let make = async |cache: &str| {
        let publisher = place.open(cache, "facts.git", None).await;
        let changes = writes(&[("b.yaml", "x"), ("a.yaml", "y")]);
        publisher
            .commit(None, &changes, "same\n", noon())
            .await
            .unwrap()
    };
    assert_eq!(make("one.git").await, make("two.git").await);
}

#[tokio::test]
async fn a_hook_that_declines_is_no_race() {
    let place = Place::new();
    let hook = place.bare().join("hooks/pre-receive");
    testkit::write_program(
        &hook,
        "#!/bin/sh\necho 'this branch is protected' >&2\nexit 1\n",
    );
    let publisher = place.open("cache.git", "facts.git", None).await;
    let commit = publisher
        .commit(None, &writes(&[("x", "y")]), "m\n", noon())
        .await
        .unwrap();
    let refused = publisher.push(&commit, None).await.unwrap_err();
    assert!(
        matches!(refused, PublishError::Refused { .. }),
        "{refused:?}"
    );
    assert!(
        refused.to_string().contains("this branch is protected"),
        "{refused}"
    );
}

#[tokio::test]
async fn what_cannot_be_reached_is_said_with_the_next_step() {
    let place = Place::new();
    let publisher = place.open("cache.git", "nowhere.git", None).await;
    let err = publisher.tip().await.unwrap_err();
    assert!(err.hint().unwrap().contains("git init --bare"), "{err}");
}

#[tokio::test]
async fn a_secret_goes_only_where_it_is_safe() {
    let place = Place::new();
    let open = async |url: &str, credential: &str| {
        let opened = place.try_open("cache.git", url, Some(credential)).await;
        opened.err().map(|err| err.to_string()).unwrap_or_default()
    };
    insta::assert_snapshot!(open("http://git.example.io/f.git", "t").await, @"cannot send a token to `http://git.example.io/f.git`: the connection is not encrypted");
    insta::assert_snapshot!(open("https://u:marked@git.example.io/f.git", "t").await, @"the address of the repository contains a password");
    insta::assert_snapshot!(open("git@git.example.io:f.git", "t").await, @"`git@git.example.io:f.git` requires an SSH key, but the credential is a token");
    insta::assert_snapshot!(open("https://git.example.io/f.git", "-----BEGIN KEY").await, @"`https://git.example.io/f.git` requires a token, but the credential is an SSH key");
    insta::assert_snapshot!(open("ext::sh -c whoami", "t").await, @"`ext::sh -c whoami` is not the address of a repository");
    insta::assert_snapshot!(open("--upload-pack=x", "t").await, @"`--upload-pack=x` is not the address of a repository");
}
