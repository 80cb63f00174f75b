//! Nobody has to guess why something does not come on.

use insta::assert_snapshot;

use crate::story::{Story, gated, link, noted, takes};

/// What a list says of one run.
fn why(story: &Story, run: &str) -> String {
    let list = story.cli(&["run", "list", "--json"]).expect(0);
    let document: serde_json::Value = serde_json::from_str(&list.stdout).unwrap();
    let sets = document["change_sets"].as_array().unwrap().iter();
    let runs = sets.flat_map(|set| set["runs"].as_array().unwrap());
    let found = runs.into_iter().find(|one| one["run"] == run);
    let why = found.and_then(|one| one["why"].as_str());
    why.unwrap_or_default().to_owned()
}

#[test]
fn an_engine_that_outlives_its_runner_is_named() {
    let story = Story::new("tofu").stack("base", "", &gated("slow", ""));
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    let engine = story.live_engine("r1").unwrap();
    testkit::kill(story.runner("r1"));
    let words = || format!("its engine (process {engine}) is still running");
    story.wait_until("the reason", || why(&story, "r1").contains(&words()));
    story.open("slow");
    let _ = apply.wait();
}

#[test]
fn a_gate_that_is_waited_for_is_named() {
    let story = Story::new("tofu");
    let root = story.root().display();
    let gate = format!(
        "gate \"command\" \"open\" {{\n    run      = [\"test\", \"-e\", \"{root}/open.go\"]\n    interval = \"1s\"\n    \
         timeout  = \"10m\"\n  }}"
    );
    let story = story.stack("base", &gate, &noted("base"));
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_until("the gate", || why(&story, "r1").starts_with("open: "));
    story.open("open");
    let _ = apply.wait().expect(0);
}

/// What the project says needs nobody's yes starts with the approval that it waited for, not with whoever looks next.
#[test]
fn what_nobody_is_asked_about_goes_on_with_the_last_approval() {
    let terrane = crate::story::terrane()
        .env("CI", "true")
        .env("GITHUB_ACTOR", "ada")
        .env("TERRANE_HOME", "../people");
    let story = Story::on(terrane, "tofu")
        .block("target \"shared\" {\n  writers = [\"anyone\"]\n  approval { count = 1 }\n}")
        .stack_on("shared", "base", "apply = \"auto\"", &link("base"));
    let said = story.cli(&["apply"]).expect(3);
    assert!(
        said.stderr
            .contains("It starts automatically after the last approval."),
        "{said}"
    );
    let said = story
        .cli_with(&[("GITHUB_ACTOR", "eve")], &["run", "approve", "c1"])
        .expect(0);
    assert_snapshot!(said, @"
    ── stderr
    Approved change set c1 as `eve` (not verified).
    Its plan: 1 to add, 0 to change, 0 to replace, 0 to destroy, in 1 stack; made 00:00 ago.
    Change set c1 continues.
    ");
    story.wait_until("base", || story.made() == ["base"]);
}

#[test]
fn a_plan_of_a_destroy_says_who_would_keep_it_from_being_one() {
    let story = Story::new("tofu").stack("base", "", &link("base")).stack(
        "top",
        &takes("base"),
        &link("top"),
    );
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let said = story.cli(&["plan", "base", "--destroy"]).expect(0);
    let warning = said
        .stderr
        .lines()
        .take_while(|it| !it.starts_with("change set"));
    assert_snapshot!(warning.collect::<Vec<_>>().join("\n"), @"
    warning: a destroy of this would be refused: stack `top` still depends on `base`: it is applied, and
             not part of this destroy
    hint: `terrane destroy base+` destroys its dependents first
    ");
}

#[test]
fn a_number_that_nothing_has_comes_with_a_way_on() {
    let story = Story::new("tofu").stack("base", "", &noted("base"));
    let _ = story.cli(&["plan"]).expect(0);
    let said = story.cli(&["run", "show", "c7"]).expect(1);
    assert_snapshot!(said, @"
    ── stderr
    error: there is no change set `c7`
    hint: `terrane run list --all` lists all change sets
    [exit 1]
    ");
}

/// Projects may share a home; what one is at is not another's to end.
#[test]
fn a_change_set_of_another_project_is_left_alone() {
    let terrane = crate::story::terrane().env("TERRANE_HOME", "../both");
    let story = Story::on(terrane, "tofu").stack("base", "", &gated("slow", ""));
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    let other = story.read("terrane.hcl").replace("\"story\"", "\"other\"");
    story.write("../other/terrane.hcl", &other);
    story.write("../other/base/main.tf", "");
    for args in [
        &["run", "cancel", "c1", "--reason", "x"][..],
        &["run", "cancel", "r1", "--reason", "x"],
        &[
            "run",
            "cancel",
            "r1",
            "--kill",
            "--reason",
            "x",
            "--confirm",
            "r1",
        ],
        &["run", "discard", "c1", "--reason", "x"],
        &["run", "discard", "r1", "--reason", "x"],
        &["run", "logs", "r1"],
        &["run", "logs", "c1"],
    ] {
        let said = story.cli_in("../other", args).expect(4);
        assert!(said.stderr.contains("is another project's"), "{said}");
    }
    story.open("slow");
    let _ = apply.wait().expect(0);
}

/// In the middle of a merge, what goes on must be seen and stopped all the same.
#[test]
fn a_file_that_cannot_be_parsed_hides_nothing() {
    let story = Story::new("tofu").stack("base", "", &gated("slow", ""));
    let named = story.read("terrane.hcl");
    let named = named.replacen(
        "project \"story\" {",
        "project \"story\" {\n  id = \"story-1\"",
        1,
    );
    story.write("terrane.hcl", &named);
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    story.write("terrane.hcl", &format!("{named}<<<<<<< HEAD\n"));
    let list = story.cli(&["run", "list"]).expect(0);
    assert!(list.stdout.contains("applying"), "{list}");
    let cancel = story.start("cancel", &["run", "cancel", "r1"]);
    story.wait_until("the interrupt", || {
        cancel.stderr_so_far().contains("Cancelling run r1")
    });
    story.open("slow");
    let _ = cancel.wait();
    let _ = apply.wait();
}

#[test]
fn a_list_outside_of_a_project_does_not_speak_for_one() {
    let terrane = crate::story::terrane().env("TERRANE_HOME", "../both");
    let story = Story::on(terrane, "tofu").stack("base", "", &noted("base"));
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    story.write("../nowhere/readme", "");
    let said = story.cli_in("../nowhere", &["run", "list"]).expect(0);
    assert!(
        said.stderr.starts_with("There is no project here"),
        "{said}"
    );
}
