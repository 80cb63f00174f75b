//! What nothing names any more goes, wherever it stands; what others undid is forgiven.

use super::*;

fn at<'a>(branch: &'a str, files: &'a [(&'a str, &'a str)]) -> Call<'a> {
    Call {
        branch,
        ..call("one", files)
    }
}

#[tokio::test]
async fn facts_leave_the_branch_that_nothing_names_any_more() {
    let world = World::new().await;
    world
        .publish(at("facts", &[("a.yaml", "1")]))
        .await
        .unwrap();
    let other = Call {
        branch: "facts",
        ..call("two", &[("b.yaml", "1")])
    };
    world.publish(other).await.unwrap();
    let done = world
        .publish_all(at("other", &[("a.yaml", "1")]))
        .await
        .unwrap();
    assert_eq!(done.places.len(), 2);
    let (new, old) = (&done.places[0], &done.places[1]);
    assert_eq!(
        (new.branch.as_str(), old.branch.as_str()),
        ("other", "facts")
    );
    assert_eq!(old.files[0].what, FileChange::Withdrawn);
    assert_eq!(world.files(), [MANIFEST, "b.yaml"]);
    assert_eq!(world.standing("one").await.len(), 1);
    // Destroyed, and it no longer stands anywhere.
    world.publish_all(at("other", &[])).await.unwrap();
    let said = world.in_branch(&["ls-tree", "-r", "--name-only", "other"]);
    assert_eq!(said.trim(), MANIFEST);
    assert_eq!(world.standing("one").await, []);
    let done = world.publish_all(at("other", &[])).await.unwrap();
    assert!(done.places.is_empty());
}

#[tokio::test]
async fn a_former_branch_that_others_wrote_to_stops_it_and_one_that_is_gone_does_not() {
    let world = World::new().await;
    world
        .publish(at("facts", &[("a.yaml", "1")]))
        .await
        .unwrap();
    world.edit("a.yaml", "value: by hand\n");
    let moved = at("other", &[("a.yaml", "1")]);
    let refused = world.publish_all(moved).await.unwrap_err();
    assert!(
        matches!(refused, PublishFactsError::Foreign { .. }),
        "{refused}"
    );
    world.in_branch(&["update-ref", "-d", "refs/heads/facts"]);
    let done = world.publish_all(moved).await.unwrap();
    insta::assert_snapshot!(done.elsewhere[0].outcome, @"was gone already");
    assert_eq!(world.standing("one").await.len(), 1);
}

#[tokio::test]
async fn a_former_repository_that_cannot_be_reached_is_said_and_tried_again() {
    let world = World::new().await;
    world
        .publish(at("facts", &[("a.yaml", "1")]))
        .await
        .unwrap();
    let standing = world.standing("one").await;
    let Standing::Branch { key, files, .. } = standing[0].clone() else {
        panic!("{standing:?}");
    };
    // The place is elsewhere now, and the old one does not answer.
    let gone = Standing::Branch {
        key: key.replace("facts.git", "gone.git"),
        place: Box::new(FactsPlace {
            repository: Some(Input::Known(json!("gone.git"))),
            ..declared("runtime", "facts")
        }),
        files,
    };
    let store = &world.control.store;
    store.fact_standing_put("p", "one", &gone).await.unwrap();
    let done = world.publish_all(at("facts", &[("a.yaml", "1")])).await;
    let done = done.unwrap();
    assert!(done.elsewhere[0].is_left);
    assert!(
        done.elsewhere[0]
            .outcome
            .contains("the next publication tries again"),
        "{:?}",
        done.elsewhere
    );
    assert_eq!(world.standing("one").await.len(), 2);
    let forced = Call {
        take_over: Some("the repository was deleted"),
        ..at("facts", &[("a.yaml", "1")])
    };
    world.publish_all(forced).await.unwrap();
    assert_eq!(world.standing("one").await.len(), 1);
}

#[tokio::test]
async fn a_file_of_the_project_goes_unless_somebody_changed_it() {
    let world = World::new().await;
    let with = |sinks| Call {
        sinks,
        ..call("one", &[("a.yaml", "1")])
    };
    world
        .publish(with(&["out/a.json", "out/b.json"]))
        .await
        .unwrap();
    fs::write(world.dir.path().join("out/b.json"), "mine\n").unwrap();
    let done = world.publish_all(with(&[])).await.unwrap();
    let said: Vec<String> = done
        .elsewhere
        .iter()
        .map(|it| format!("{}: {}", it.what, it.outcome))
        .collect();
    assert_eq!(
        said,
        [
            "file `out/a.json`: withdrawn",
            "file `out/b.json`: left as it is: somebody changed it",
        ]
    );
    assert!(!world.dir.path().join("out/a.json").exists());
    assert!(world.dir.path().join("out/b.json").exists());
}

#[tokio::test]
async fn what_was_undone_is_seen_and_forgiven() {
    let world = World::new().await;
    world
        .publish(call("one", &[("a.yaml", "1")]))
        .await
        .unwrap();
    let ours = world.file("a.yaml");
    world.edit("a.yaml", "value: by hand\n");
    world.edit("README.md", "hello\n");
    world.edit("a.yaml", &ours);
    let refused = world.publish(call("one", &[("a.yaml", "2")])).await;
    assert!(
        matches!(&refused, Err(PublishFactsError::Foreign { .. })),
        "a file of nobody is still there: {refused:?}"
    );
    let clone = world.dir.path().join("clone");
    git(&clone, &["rm", "--quiet", "README.md"]);
    git(&clone, &["commit", "--quiet", "-m", "take it back"]);
    git(&clone, &["push", "--quiet", "origin", "facts"]);
    let done = world
        .publish(call("one", &[("a.yaml", "2")]))
        .await
        .unwrap();
    assert_eq!(done.undone.len(), 4, "{:?}", done.undone);
    assert!(
        done.undone[0].contains("`mend it by hand`") && done.undone[0].ends_with("undone since"),
        "{:?}",
        done.undone
    );
    // From here on nobody speaks of it.
    let again = world
        .publish(call("one", &[("a.yaml", "2")]))
        .await
        .unwrap();
    assert!(again.undone.is_empty());
}
