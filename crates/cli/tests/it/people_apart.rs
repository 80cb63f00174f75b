//! What each person says is theirs: a hold is ended by who holds it, and an approval frees what it is about.

use crate::story::{Story, link, noted, takes};

/// Who asks is `ada`; `bob` is another.
fn story() -> Story {
    let terrane = crate::story::terrane()
        .env("CI", "true")
        .env("GITHUB_ACTOR", "ada")
        .env("TERRANE_HOME", "../people");
    Story::on(terrane, "tofu")
}

fn two_stacks() -> Story {
    story()
        .stack("base", "", &link("base"))
        .stack("top", &takes("base"), &link("top"))
}

/// One command of somebody else.
fn as_bob(story: &Story, args: &[&str]) -> testkit::CommandOutput {
    story.cli_with(&[("GITHUB_ACTOR", "bob")], args)
}

#[test]
fn a_release_ends_ones_own_holds_and_names_those_of_others() {
    let story = two_stacks();
    let hold = ["hold", "add", "top", "--reason", "database migration"];
    let _ = story.cli(&hold).expect(0);
    let hold = ["hold", "add", "top", "--reason", "lunch"];
    let _ = as_bob(&story, &hold).expect(0);
    let said = as_bob(&story, &["hold", "release", "top"]).expect(0).stderr;
    let mut lines = said.lines();
    assert_eq!(
        lines.next(),
        Some("Released stack `top`, held by `bob`: lunch")
    );
    let left = lines.next().unwrap_or_default();
    assert!(
        left.starts_with("Still held by `ada`: database migration (until "),
        "{said}"
    );
    assert!(
        said.contains("`terrane hold release top --all` also ends the holds of others"),
        "{said}"
    );
    // It holds, and a hold of nobody else is there to be ended by `bob`.
    let _ = story.cli(&["apply", "--auto-approve"]).expect(4);
    let said = as_bob(&story, &["hold", "release", "top"]).expect(4);
    let start = "error: stack `top` is not held by `bob`, but by others\n       \
                 held by `ada`: database migration (until ";
    assert!(said.stderr.starts_with(start), "{said}");
    let hint = "hint: `terrane hold release top --all` ends the holds of others\n";
    assert!(said.stderr.ends_with(hint), "{said}");
    let released = ["hold", "release", "top", "--all", "--json"];
    let said = as_bob(&story, &released).expect(0);
    let said: serde_json::Value = serde_json::from_str(&said.stdout).expect("JSON");
    assert_eq!(said["released"][0]["person"], "ada", "{said}");
    assert_eq!(
        said["released"][0]["reason"], "database migration",
        "{said}"
    );
    assert_eq!(said["released"][0]["released"]["by"], "bob", "{said}");
    assert_eq!(said["left"], serde_json::json!([]), "{said}");
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let said = as_bob(&story, &["hold", "release", "top"]).expect(1);
    assert!(said.stderr.contains("there is no hold on it"), "{said}");
}

/// What was said yes to goes on when the last hold ends, whosever it is.
#[test]
fn what_waits_for_two_holds_goes_on_with_the_end_of_both() {
    let story = two_stacks();
    let _ = story.cli(&["apply"]).expect(3);
    let hold = ["hold", "add", "top", "--reason", "migration"];
    let _ = story.cli(&hold).expect(0);
    let _ = as_bob(&story, &hold).expect(0);
    let _ = story.cli(&["run", "confirm", "c1"]);
    story.settle();
    assert_eq!(story.made(), ["base"]);
    let said = as_bob(&story, &["hold", "release", "top"]).expect(0);
    assert!(!said.stderr.contains("c1 continues"), "{said}");
    let said = story.cli(&["hold", "release", "top"]).expect(0);
    assert!(said.stderr.contains("Change set c1 continues"), "{said}");
    story.wait_until("top", || story.made().len() == 2);
}

/// What is approved by itself keeps nobody else waiting who was said yes to beforehand.
#[test]
fn what_is_approved_goes_on_before_a_stack_that_is_approved_by_itself() {
    let story = story()
        .block("target \"prod\" {\n  writers = [\"anyone\"]\n  approval {}\n}")
        .stack("free", "", &noted("free"))
        .stack_on("prod", "all", "", &noted("all"))
        .stack("own", "approval { scope = \"stack\" }", &noted("own"));
    let _ = story.cli(&["apply", "--auto-approve"]).expect(3);
    assert_eq!(story.made(), Vec::<String>::new());
    let said = as_bob(&story, &["run", "approve", "c1"]).expect(0);
    assert!(said.stderr.contains("Pending: 0 of 1"), "{said}");
    assert!(
        said.stderr
            .contains("Change set c1 continues with the rest."),
        "{said}"
    );
    story.wait_until("the rest", || story.made().len() == 2);
    story.settle();
    assert!(!story.made().contains(&"own".to_owned()));
    let list = story.cli(&["run", "list", "--json"]).expect(0).stdout;
    let list: serde_json::Value = serde_json::from_str(&list).expect("JSON");
    let runs = list["change_sets"][0]["runs"].as_array().expect("runs");
    let own = runs.iter().find(|run| run["stack"] == "own");
    let own = own.and_then(|run| run["run"].as_str()).expect("a run");
    let _ = as_bob(&story, &["run", "approve", own]).expect(0);
    story.wait_until("own", || story.made().len() == 3);
}
