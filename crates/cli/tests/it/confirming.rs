//! What a yes is held to when it is said: rules that came since, and code that is no longer in the project.

use crate::story::{Story, link, noted, takes};

/// Who asks is `ada`. `base` is on a target that wants nobody's word; `top`, which takes its value, on one that does.
fn story() -> Story {
    let terrane = crate::story::terrane()
        .env("CI", "true")
        .env("GITHUB_ACTOR", "ada")
        .env("TERRANE_HOME", "../people");
    Story::on(terrane, "tofu")
        .block("target \"prod\" {\n  writers = [\"anyone\"]\n  approval { count = 1 }\n}")
        .stack("base", "", &link("base"))
        .stack("side", "", &noted("side"))
        .stack_on("prod", "top", &takes("base"), &link("top"))
}

fn as_eve(story: &Story, args: &[&str]) -> testkit::CommandOutput {
    story.cli_with(&[("GITHUB_ACTOR", "eve")], args)
}

#[test]
fn what_is_approved_as_a_whole_begins_with_nothing_before() {
    for way in [&["apply"][..], &["apply", "--auto-approve"]] {
        let story = story();
        let said = story.cli(way).expect(3);
        assert!(said.stderr.contains("0 of 1 approval"), "{said}");
        let said = story.cli(&["run", "confirm", "c1"]).expect(3);
        assert!(said.stderr.contains("0 of 1 approval"), "{said}");
        assert_eq!(story.made(), Vec::<String>::new(), "{way:?}");
        let _ = as_eve(&story, &["run", "approve", "c1"]).expect(0);
        if way.len() == 1 {
            let _ = story.cli(&["run", "confirm", "c1"]).expect(0);
        }
        story.wait_until("all three", || story.made().len() == 3);
        story.settle();
        let _ = story.cli(&["plan", "--detailed-exitcode"]).expect(0);
    }
}

#[test]
fn approvals_that_are_wanted_since_are_not_passed_by() {
    let story = story();
    let _ = story.cli(&["apply", "side"]).expect(3);
    let file = story.read("terrane.hcl");
    let guarded = file.replacen(
        "target \"local\" { writers = [\"anyone\"] }",
        "target \"local\" {\n  writers = [\"anyone\"]\n  approval { count = 2 }\n}",
        1,
    );
    assert_ne!(file, guarded);
    story.write("terrane.hcl", &guarded);
    let said = story.cli(&["run", "confirm", "c1"]).expect(4);
    insta::assert_snapshot!(said, @"
    ── stderr
    error: target `local` now requires more approvals than when change set c1 was requested
    hint: `terrane run discard c1 --reason …` drops it; then request it again
    [exit 4]
    ");
    assert_eq!(story.made(), Vec::<String>::new());
}

#[test]
fn a_stack_that_is_protected_since_is_not_destroyed_without_its_name() {
    let story = story();
    let _ = story.cli(&["apply", "side", "--auto-approve"]).expect(0);
    let _ = story.cli(&["destroy", "side"]).expect(3);
    let file = story.read("terrane.hcl");
    let guarded = file.replacen("path = \"side\"", "path = \"side\"\n  protected = true", 1);
    story.write("terrane.hcl", &guarded);
    let said = story.cli(&["run", "confirm", "c2"]).expect(4);
    assert!(said.stderr.contains("stack `side` is protected"), "{said}");
    let _ = story
        .cli(&["run", "confirm", "c2", "--confirm", "side"])
        .expect(0);
}

#[test]
fn a_destroy_with_older_code_is_approved_and_confirmed() {
    let story = story();
    story.git(&["init", "-q"]);
    story.write(".gitignore", ".terrane/\n");
    story.git(&["add", "-A"]);
    story.git(&["commit", "-qm", "three stacks"]);
    let _ = story.cli(&["apply"]).expect(3);
    let _ = as_eve(&story, &["run", "approve", "c1"]).expect(0);
    let _ = story.cli(&["run", "confirm", "c1"]).expect(0);
    let file = story.read("terrane.hcl");
    let (rest, _) = file.split_once("stack \"top\"").unwrap();
    story.write("terrane.hcl", rest);
    std::fs::remove_dir_all(story.project().join("top")).unwrap();
    story.git(&["add", "-A"]);
    story.git(&["commit", "-qm", "top is not needed"]);
    let _ = story.cli(&["destroy", "top", "--from", "HEAD~1"]).expect(3);
    let said = story.cli(&["run", "confirm", "c2"]).expect(3);
    assert!(said.stderr.contains("0 of 1 approval"), "{said}");
    let _ = as_eve(&story, &["run", "approve", "c2"]).expect(0);
    let _ = story.cli(&["run", "confirm", "c2"]).expect(0);
    let said = story.cli(&["state", "list"]).expect(0);
    assert!(!said.stdout.contains("terraform_data.top"), "{said}");
}

#[test]
fn an_approval_starts_no_destroy_of_what_is_protected_since() {
    let story = story();
    story.git(&["init", "-q"]);
    story.write(".gitignore", ".terrane/\n");
    let _ = story.cli(&["apply"]).expect(3);
    let _ = as_eve(&story, &["run", "approve", "c1"]).expect(0);
    let _ = story.cli(&["run", "confirm", "c1"]).expect(0);
    let _ = story.cli(&["destroy", "top", "--auto-approve"]).expect(3);
    let file = story.read("terrane.hcl");
    let guarded = file.replacen("path = \"top\"", "path = \"top\"\n  protected = true", 1);
    story.write("terrane.hcl", &guarded);
    let said = as_eve(&story, &["run", "approve", "c2"]).expect(0);
    assert!(said.stderr.contains("was protected after"), "{said}");
    let _ = story.cli(&["run", "confirm", "c2"]).expect(4);
    // Not in the project any more, it is still protected where it last was.
    story.git(&["add", "-A"]);
    story.git(&["commit", "-qm", "top is protected"]);
    let (rest, _) = guarded.split_once("stack \"top\"").unwrap();
    story.write("terrane.hcl", rest);
    let _ = story.cli(&["run", "confirm", "c2"]).expect(4);
    story.write("terrane.hcl", &guarded);
    let _ = story
        .cli(&["run", "confirm", "c2", "--confirm", "top"])
        .expect(0);
}
