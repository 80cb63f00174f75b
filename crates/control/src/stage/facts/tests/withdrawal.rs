//! Withdrawing facts: what a stack no longer publishes goes from the branches that the project names, and files of the
//! project go. A branch that the project no longer names is reported and left.

use super::*;

fn at<'a>(branch: &'a str, files: &'a [(&'a str, &'a str)]) -> Call<'a> {
    Call {
        branch,
        ..call("one", files)
    }
}

#[tokio::test]
async fn a_destroyed_stack_leaves_nothing_on_its_branch() {
    let world = World::new().await;
    world
        .publish(at("facts", &[("a.yaml", "1")]))
        .await
        .unwrap();
    world
        .publish(call("two", &[("b.yaml", "1")]))
        .await
        .unwrap();
    let done = world.publish_all(at("facts", &[])).await.unwrap();
    assert_eq!(done.places[0].files[0].what, FileChange::Withdrawn);
    assert_eq!(world.files(), [MANIFEST, "b.yaml"]);
    assert_eq!(world.locations("one").await, []);
    let done = world.publish_all(at("facts", &[])).await.unwrap();
    assert!(done.places.is_empty());
}

#[tokio::test]
async fn a_branch_that_the_project_no_longer_names_is_reported_once_and_left() {
    let world = World::new().await;
    world
        .publish(at("facts", &[("a.yaml", "1")]))
        .await
        .unwrap();
    let moved = at("other", &[("a.yaml", "1")]);
    let done = world.publish_all(moved).await.unwrap();
    assert!(done.elsewhere[0].is_left);
    let said = format!("{}: {}", done.elsewhere[0].what, done.elsewhere[0].outcome);
    assert!(
        said.starts_with("branch `facts` of ")
            && said.ends_with("left there, remove it yourself: the project no longer names it"),
        "{said}"
    );
    assert_eq!(world.files(), [MANIFEST, "a.yaml"]);
    let again = world.publish_all(moved).await.unwrap();
    assert_eq!(again.elsewhere, []);
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
            "file `out/b.json`: not changed: another writer changed it",
        ]
    );
    assert!(!world.dir.path().join("out/a.json").exists());
    assert!(world.dir.path().join("out/b.json").exists());
}

#[tokio::test]
async fn a_foreign_change_that_was_undone_stops_nothing() {
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
        matches!(&refused, Err(PublishFactsError::Foreign { foreign, .. }) if foreign.files == ["README.md"]),
        "a file of nobody is still there: {refused:?}"
    );
    let clone = world.dir.path().join("clone");
    git(&clone, &["rm", "--quiet", "README.md"]);
    git(&clone, &["commit", "--quiet", "-m", "take it back"]);
    git(&clone, &["push", "--quiet", "origin", "facts"]);
    let done = world.publish(call("one", &[("a.yaml", "2")])).await;
    assert!(done.unwrap().is_new);
}
