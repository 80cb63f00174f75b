//! Publishing with real Git to bare repositories: foreign changes, races and crashes.

mod secrets;
mod withdrawal;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use drivers::git::publish::{Publisher, PushOutcome};
use drivers::process::Environment;
use model::base::diagnostic::Location;
use model::base::secret::Secret;
use model::hcl::expression::Input;
use model::stage::facts::{BranchOwnership, FactsBranch, SensitiveFacts};
use model::stage::facts::{CommitChanges, FactLocation, FactsManifest, FileChange, MANIFEST};
use serde_json::json;
use store::{FactDigest, NewFactCommit};

use super::*;
use crate::home::master_keys::KeySource;
use crate::home::{Home, HomeLocation, OpenedHome};

/// A machine with a home, and a repository that others can write to as well.
struct World {
    dir: Arc<tempfile::TempDir>,
    control: Control,
    project: String,
}

impl World {
    async fn new() -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        let world = Self::beside(&dir, "home", "p").await;
        world.git(&["init", "--quiet", "--bare", "facts.git"]);
        world
    }

    /// Another home, of this or another project, that publishes to the same repository.
    async fn beside(dir: &Arc<tempfile::TempDir>, home: &str, project: &str) -> Self {
        let key = KeySource::File(dir.path().join(format!("{home}.key")));
        let path = dir.path().join(home);
        let place = HomeLocation::Directory(path.clone());
        let home = Home::at(place, path, key, project.to_owned());
        let OpenedHome { store, home, .. } = home.open().await.unwrap();
        Self {
            dir: Arc::clone(dir),
            control: Control::new(store, home, PathBuf::new(), PathBuf::new()),
            project: project.to_owned(),
        }
    }

    fn git(&self, args: &[&str]) -> String {
        git(self.dir.path(), args)
    }

    fn in_branch(&self, args: &[&str]) -> String {
        git(&self.dir.path().join("facts.git"), args)
    }

    fn file(&self, path: &str) -> String {
        self.in_branch(&["show", &format!("facts:{path}")])
    }

    fn files(&self) -> Vec<String> {
        let said = self.in_branch(&["ls-tree", "-r", "--name-only", "facts"]);
        said.lines().map(str::to_owned).collect()
    }

    fn commits(&self) -> usize {
        let said = self.in_branch(&["rev-list", "--count", "facts"]);
        said.trim().parse().unwrap()
    }

    /// Somebody writes to the branch by hand.
    fn edit(&self, path: &str, text: &str) {
        let clone = self.dir.path().join("clone");
        let _ = fs::remove_dir_all(&clone);
        self.git(&[
            "clone",
            "--quiet",
            "--branch",
            "facts",
            "facts.git",
            "clone",
        ]);
        let file = clone.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
        git(&clone, &["add", "-A"]);
        git(&clone, &["commit", "--quiet", "-m", "mend it by hand"]);
        git(&clone, &["push", "--quiet", "origin", "facts"]);
    }

    async fn publish(&self, call: Call<'_>) -> Result<Published, PublishFactsError> {
        let mut done = self.publish_all(call).await?;
        Ok(done.places.pop().unwrap())
    }

    async fn publish_all(&self, call: Call<'_>) -> Result<PublishOutcome, PublishFactsError> {
        let place = Destination {
            name: "runtime".to_owned(),
            repository: "facts.git".to_owned(),
            branch: call.branch.to_owned(),
            owns: call.owns,
            on_sensitive: SensitiveFacts::Refuse,
            encrypt_all: false,
            credential: None,
            declared: declared("runtime", call.branch),
        };
        let places = BTreeMap::from([("runtime".to_owned(), place)]);
        let asker = BTreeMap::from([("PATH".to_owned(), std::env::var("PATH").unwrap())]);
        let blocks: Vec<Publish> = call
            .files
            .iter()
            .map(|(path, value)| Publish {
                place: "runtime".to_owned(),
                path: (*path).to_owned(),
                contract: None,
                partial: Vec::new(),
                values: Some(json!({"value": value}).as_object().unwrap().clone()),
                holds_sensitive: false,
                plain: Vec::new(),
                files: call.sinks.iter().map(|&path| path.to_owned()).collect(),
            })
            .collect();
        let stacks = call.stacks.iter().map(|&name| name.to_owned()).collect();
        let stacks = BTreeMap::from([("runtime".to_owned(), stacks)]);
        let take_over = call.take_over.map(|reason| TakeOver {
            person: Actor::named("me"),
            reason: reason.to_owned(),
        });
        let state = StateMark {
            serial: 7,
            lineage: "line".to_owned(),
        };
        let env = Environment::new();
        let stack: StackName = call.stack.parse().unwrap();
        let locations = self.locations(call.stack).await;
        let publication = Publication {
            root: self.dir.path(),
            tree: self.dir.path(),
            asker: &asker,
            places: &places,
            stack: &stack,
            state_name: call.stack,
            run: Some(RunId(44)),
            state: Some(&state),
            source: Some("abc123"),
            at: "2026-01-10T12:00:00Z".parse().unwrap(),
            outputs: &BTreeMap::new(),
            blocks: &blocks,
            sinks: &[],
            locations: &locations,
            cluster: cluster(&env),
            is_destroyed: call.files.is_empty(),
            stacks: if call.stacks.is_empty() {
                &BTreeMap::new()
            } else {
                &stacks
            },
            take_over: take_over.as_ref(),
        };
        publish(&self.control, &publication).await
    }

    async fn locations(&self, stack: &str) -> Vec<FactLocation> {
        let store = &self.control.store;
        let locations = store.fact_location_list(&self.project, stack);
        locations.await.unwrap()
    }
}

/// A `facts` block that says no more than where.
fn declared(name: &str, branch: &str) -> FactsBranch {
    FactsBranch {
        name: name.to_owned(),
        repository: Some(Input::Known(json!("facts.git"))),
        branch: Some(Input::Known(json!(branch))),
        owns: BranchOwnership::Branch,
        credential: None,
        sensitive: SensitiveFacts::Refuse,
        encrypt_all: false,
        declared_at: Location::default(),
    }
}

fn cluster(env: &Environment) -> ClusterContext<'_> {
    ClusterContext {
        source: Path::new("/"),
        env,
        hidden: &[],
        cache: Path::new("/"),
        held: None,
    }
}

#[derive(Clone, Copy)]
struct Call<'a> {
    stack: &'a str,
    files: &'a [(&'a str, &'a str)],
    branch: &'a str,
    owns: BranchOwnership,
    stacks: &'a [&'a str],
    sinks: &'a [&'a str],
    take_over: Option<&'a str>,
}

fn call<'a>(stack: &'a str, files: &'a [(&'a str, &'a str)]) -> Call<'a> {
    Call {
        stack,
        files,
        branch: "facts",
        owns: BranchOwnership::Branch,
        stacks: &[],
        sinks: &[],
        take_over: None,
    }
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

#[tokio::test]
async fn facts_are_written_once_and_say_where_they_come_from() {
    let world = World::new().await;
    let wanted = Call {
        sinks: &["out/facts.json"],
        ..call("one", &[("a.yaml", "1")])
    };
    let first = world.publish(wanted).await.unwrap();
    assert!(first.is_new);
    assert_eq!(first.files[0].what, FileChange::Written);
    insta::assert_snapshot!(world.file("a.yaml"), @r#"
    # Written by terrane: stack `one` of project `p`. An edit stops the next publication.
    value: "1"
    "#);
    let sunk = fs::read_to_string(world.dir.path().join("out/facts.json")).unwrap();
    assert_eq!(sunk, "{\n  \"value\": \"1\"\n}\n");
    insta::assert_snapshot!(world.in_branch(&["log", "-1", "--format=%an <%ae> %aI%n%B", "facts"]), @r"
    terrane <terrane@localhost> 2026-01-10T12:00:00+00:00
    publish facts of one

    + a.yaml

    Terrane-Project: p
    Terrane-Stack: one
    Terrane-Run: r44
    Terrane-Serial: 7
    Terrane-Lineage: line
    Terrane-Source: abc123
    ");
    let again = world.publish(wanted).await.unwrap();
    assert!(!again.is_new);
    assert_eq!((again.commit, world.commits()), (first.commit, 1));
}

#[tokio::test]
async fn what_a_stack_no_longer_says_is_withdrawn() {
    let world = World::new().await;
    world
        .publish(call("one", &[("a.yaml", "1"), ("b.yaml", "1")]))
        .await
        .unwrap();
    world
        .publish(call("two", &[("c.yaml", "1")]))
        .await
        .unwrap();
    let fewer = world
        .publish(call("one", &[("a.yaml", "1")]))
        .await
        .unwrap();
    assert_eq!(fewer.files[1].what, FileChange::Withdrawn);
    assert_eq!(world.files(), [MANIFEST, "a.yaml", "c.yaml"]);
    // Destroyed, and another one that the project no longer has.
    let gone = Call {
        stacks: &["one"],
        ..call("one", &[])
    };
    world.publish(gone).await.unwrap();
    assert_eq!(world.files(), [MANIFEST]);
}

#[tokio::test]
async fn a_foreign_commit_stops_until_it_is_taken_over() {
    let world = World::new().await;
    world
        .publish(call("one", &[("a.yaml", "1")]))
        .await
        .unwrap();
    world.edit("a.yaml", "value: by hand\n");
    let refused = world
        .publish(call("one", &[("a.yaml", "1")]))
        .await
        .unwrap_err();
    let PublishFactsError::Foreign { foreign, .. } = &refused else {
        panic!("{refused:?}");
    };
    assert_eq!(foreign.author, "Somebody <somebody@example.io>");
    assert_eq!(foreign.files, ["a.yaml"]);
    let said = refused.to_string();
    assert!(
        said.contains("`mend it by hand`") && said.contains(&foreign.commit[..10]),
        "{said}"
    );
    assert!(refused.hint().unwrap().contains("--take-over"));
    assert_eq!(world.file("a.yaml"), "value: by hand\n");

    let forced = Call {
        take_over: Some("edited by hand"),
        ..call("one", &[("a.yaml", "1")])
    };
    world.publish(forced).await.unwrap();
    assert!(world.file("a.yaml").contains("value: \"1\""));
    let record = world.file(".terrane/break-glass/p.json");
    assert!(
        record.contains("facts taken over") && record.contains("edited by hand"),
        "{record}"
    );
    // Where nobody else wrote, nothing is taken over.
    let again = Call {
        take_over: Some("to be sure"),
        ..call("one", &[("a.yaml", "2")])
    };
    world.publish(again).await.unwrap();
    let record = world.file(".terrane/break-glass/p.json");
    assert!(!record.contains("to be sure"), "{record}");
    let said = world.in_branch(&["log", "-1", "--format=%B", "facts"]);
    assert!(!said.contains("Taken-Over"), "{said}");
    // From here on all is as before.
    assert!(
        !world
            .publish(call("one", &[("a.yaml", "2")]))
            .await
            .unwrap()
            .is_new
    );
}

#[tokio::test]
async fn a_file_of_nobody_is_foreign_too_and_so_is_a_rewritten_branch() {
    let world = World::new().await;
    world
        .publish(call("one", &[("a.yaml", "1")]))
        .await
        .unwrap();
    world.edit("README.md", "hello\n");
    let refused = world
        .publish(call("one", &[("a.yaml", "2")]))
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, PublishFactsError::Foreign { foreign, .. } if foreign.files == ["README.md"])
    );
    let tree = world.in_branch(&["rev-parse", "facts^{tree}"]);
    let orphan = world.in_branch(&["commit-tree", tree.trim(), "-m", "squashed"]);
    world.in_branch(&["update-ref", "refs/heads/facts", orphan.trim()]);
    let refused = world
        .publish(call("one", &[("a.yaml", "2")]))
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, PublishFactsError::Foreign { foreign, .. } if foreign.rewritten),
        "{refused}"
    );
    let said = refused.to_string();
    assert!(
        said.contains("no longer in the branch's history, which now ends at commit"),
        "{said}"
    );
    world.in_branch(&["update-ref", "-d", "refs/heads/facts"]);
    let refused = world
        .publish(call("one", &[("a.yaml", "2")]))
        .await
        .unwrap_err();
    assert!(
        matches!(refused, PublishFactsError::BranchGone { .. }),
        "{refused}"
    );
}

#[tokio::test]
async fn two_projects_share_a_branch_and_leave_each_other_alone() {
    let ours = World::new().await;
    let theirs = World::beside(&ours.dir, "theirs", "q").await;
    ours.publish(call("one", &[("ours.yaml", "1")]))
        .await
        .unwrap();
    theirs
        .publish(call("one", &[("theirs.yaml", "1")]))
        .await
        .unwrap();
    ours.publish(call("one", &[("ours.yaml", "2")]))
        .await
        .unwrap();
    theirs
        .publish(call("one", &[("theirs.yaml", "2")]))
        .await
        .unwrap();
    assert_eq!(ours.files(), [MANIFEST, "ours.yaml", "theirs.yaml"]);
    let taken = theirs
        .publish(call("one", &[("ours.yaml", "3")]))
        .await
        .unwrap_err();
    assert!(matches!(taken, PublishFactsError::Taken { .. }), "{taken}");
    // A home without a memory, as a CI job has: the last commit says that it is terrane's.
    let job = World::beside(&ours.dir, "job", "p").await;
    job.publish(call("one", &[("ours.yaml", "4")]))
        .await
        .unwrap();
    assert!(ours.file("ours.yaml").contains('4'));
}

#[tokio::test]
async fn named_files_are_ours_and_the_rest_is_not() {
    let world = World::new().await;
    let paths = |value| Call {
        owns: BranchOwnership::Paths,
        ..call(
            "one",
            if value == "1" {
                &[("egress/values.yaml", "1")]
            } else {
                &[("egress/values.yaml", "2")]
            },
        )
    };
    world.publish(paths("1")).await.unwrap();
    assert_eq!(world.files(), ["egress/values.yaml"]);
    world.edit("README.md", "people write here\n");
    assert!(!world.publish(paths("1")).await.unwrap().is_new);
    world.publish(paths("2")).await.unwrap();
    assert_eq!(world.files(), ["README.md", "egress/values.yaml"]);
    world.edit("egress/values.yaml", "value: by hand\n");
    world.edit("README.md", "and again\n");
    let refused = world.publish(paths("2")).await.unwrap_err();
    let PublishFactsError::Foreign { foreign, .. } = &refused else {
        panic!("{refused:?}");
    };
    assert_eq!(
        (foreign.subject.as_str(), foreign.files.as_slice()),
        ("mend it by hand", &["egress/values.yaml".to_owned()][..])
    );
    let forced = Call {
        take_over: Some("it was a mistake"),
        ..paths("2")
    };
    world.publish(forced).await.unwrap();
    // A job without a memory finds a file that its project wrote.
    let job = World::beside(&world.dir, "job", "p").await;
    job.publish(paths("1")).await.unwrap();
    let stranger = World::beside(&world.dir, "stranger", "q").await;
    let refused = stranger.publish(paths("2")).await.unwrap_err();
    assert!(
        matches!(refused, PublishFactsError::Foreign { .. }),
        "{refused}"
    );
    let withdrawn = Call {
        files: &[],
        ..paths("1")
    };
    job.publish(withdrawn).await.unwrap();
    assert_eq!(world.files(), ["README.md"]);
}

#[tokio::test]
async fn what_people_made_of_a_file_is_not_withdrawn() {
    let world = World::new().await;
    let paths = |files| Call {
        owns: BranchOwnership::Paths,
        ..call("one", files)
    };
    world
        .publish(paths(&[("a.yaml", "1"), ("b.yaml", "1")]))
        .await
        .unwrap();
    world.edit("b.yaml", "value: ours now\n");
    world.publish(paths(&[])).await.unwrap();
    assert_eq!(world.files(), ["b.yaml"]);
}

#[tokio::test]
async fn a_crash_between_push_and_record_is_no_foreign_commit() {
    for owns in [BranchOwnership::Branch, BranchOwnership::Paths] {
        let world = World::new().await;
        let wanted = |files| Call {
            owns,
            ..call("one", files)
        };
        let first = world.publish(wanted(&[("a.yaml", "1")])).await.unwrap();
        // What a process does that ends after its push: made, stored, pushed, and not noted.
        let (root, branch) = (world.dir.path(), "facts".to_owned());
        let url = RemoteUrl::parse("facts.git", root).unwrap();
        let real = url.local().unwrap().canonicalize().unwrap();
        let key = format!("{}#{branch}", real.display());
        let remote = Remote {
            url,
            branch,
            credential: None,
        };
        let asker = BTreeMap::from([("PATH".to_owned(), std::env::var("PATH").unwrap())]);
        let publisher = Publisher::open(&asker, &root.join("c.git"), root, &remote)
            .await
            .unwrap();
        let tip = publisher.fetch(false).await.unwrap();
        assert_eq!(Some(&tip), first.commit.as_ref());
        let bytes = b"value: \"2\"\n".to_vec();
        let store = &world.control.store;
        let digest = FactDigest {
            path: "a.yaml".to_owned(),
            stack: "one".to_owned(),
            bytes: store.keyed_digester("facts").await.unwrap().digest(&bytes),
            plain: None,
        };
        let changes = CommitChanges {
            write: BTreeMap::from([("a.yaml".to_owned(), bytes)]),
            remove: BTreeSet::new(),
        };
        let made = publisher.commit(Some(&tip), &changes, "two\n", Timestamp::UNIX_EPOCH);
        let commit = made.await.unwrap();
        let new = NewFactCommit {
            project: "p",
            place: &key,
            commit: &commit,
            stack: "one",
            files: &[digest],
        };
        store.fact_commit_insert(&new).await.unwrap();
        assert_eq!(
            publisher.push(&commit, Some(&tip)).await.unwrap(),
            PushOutcome::Done
        );

        world.publish(wanted(&[("a.yaml", "3")])).await.unwrap();
        assert!(world.file("a.yaml").contains('3'));
        assert_eq!(world.commits(), 3);
    }
}

#[tokio::test]
async fn a_commit_that_never_arrived_is_not_waited_for() {
    let world = World::new().await;
    world
        .publish(call("one", &[("a.yaml", "1")]))
        .await
        .unwrap();
    let hook = world.dir.path().join("facts.git/hooks/pre-receive");
    testkit::write_program(&hook, "#!/bin/sh\nexit 1\n");
    let refused = world
        .publish(call("one", &[("a.yaml", "2")]))
        .await
        .unwrap_err();
    assert!(
        matches!(refused, PublishFactsError::Git { .. }),
        "{refused}"
    );
    fs::remove_file(hook).unwrap();
    let done = world
        .publish(call("one", &[("a.yaml", "2")]))
        .await
        .unwrap();
    assert!(done.is_new);
    assert_eq!(world.commits(), 2);
}

/// Several homes and stacks at once: everybody's facts arrive, each by a commit of its own.
#[tokio::test(flavor = "multi_thread")]
async fn publishers_at_once_all_end_well() {
    let first = World::new().await;
    let mut worlds = vec![];
    for project in ["q", "r", "s"] {
        worlds.push(World::beside(&first.dir, project, project).await);
    }
    let dir = Arc::clone(&first.dir);
    worlds.push(first);
    let publishers = worlds.into_iter().flat_map(|world| {
        let world = Arc::new(world);
        ["one", "two"].map(|stack| {
            let world = Arc::clone(&world);
            tokio::spawn(async move {
                for round in ["1", "2"] {
                    let path = format!("{}/{stack}.yaml", world.project);
                    world.publish(call(stack, &[(&path, round)])).await.unwrap();
                }
            })
        })
    });
    for publisher in publishers.collect::<Vec<_>>() {
        publisher.await.unwrap();
    }
    let last = World::beside(&dir, "look", "look").await;
    let manifest = FactsManifest::read(Some(last.file(MANIFEST).as_bytes())).unwrap();
    assert_eq!(manifest.files.len(), 8);
    assert_eq!(last.commits(), 16);
    for path in manifest.files.keys() {
        assert!(last.file(path).contains("value: \"2\""), "{path}");
    }
}

#[tokio::test]
async fn outputs_that_break_their_contract_are_not_published() {
    let world = World::new().await;
    fs::create_dir_all(world.dir.path().join("contracts/edge")).unwrap();
    let schema = r#"{"required": ["address", "port"], "properties": {"address": {"format": "address", "description": "an address"}, "port": {"type": "integer"}}}"#;
    fs::write(world.dir.path().join("contracts/edge/v1.json"), schema).unwrap();
    let block = Publish {
        place: "runtime".to_owned(),
        path: "edge.yaml".to_owned(),
        contract: Some("edge/v1".parse().unwrap()),
        partial: Vec::new(),
        values: None,
        holds_sensitive: false,
        plain: Vec::new(),
        files: Vec::new(),
    };
    let output = OutputValue {
        value: json!("not an address"),
        sensitive: false,
    };
    let env = Environment::new();
    let publication = Publication {
        root: world.dir.path(),
        tree: world.dir.path(),
        asker: &BTreeMap::new(),
        places: &BTreeMap::new(),
        stack: &"one".parse().unwrap(),
        state_name: "one",
        run: None,
        state: None,
        source: None,
        at: Timestamp::UNIX_EPOCH,
        outputs: &BTreeMap::from([("address".to_owned(), output)]),
        blocks: &[block],
        sinks: &[],
        locations: &[],
        cluster: cluster(&env),
        is_destroyed: false,
        stacks: &BTreeMap::new(),
        take_over: None,
    };
    let err = publish(&world.control, &publication).await.unwrap_err();
    insta::assert_snapshot!(err, @"outputs of stack `one` violate the contract `edge/v1`: `address` is the text `not an address`, expected an address; `port` is missing, expected a whole number");
}
