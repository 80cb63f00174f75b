//! States changed by hand: shown, asked about, recorded, and never lost.

use std::fs;

use insta::assert_snapshot;
use serde_json::Value;

use crate::locks::{levelled, with_serial};
use crate::story::Story;

fn module(word: &str, more: &str) -> String {
    format!(
        "resource \"terraform_data\" \"a\" {{\n  count = 2\n  input = \"{word}\"\n}}\n{more}output \"word\" {{ value = \"{word}\" }}\n"
    )
}

/// Two versions: the second has another word and a resource more.
fn two_versions(engine: &str) -> Story {
    let story = Story::new(engine).stack("base", "", &module("one", ""));
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let more = "resource \"terraform_data\" \"b\" { input = \"b\" }\n";
    story.module("base", &module("two", more));
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    story
}

fn pull(story: &Story) -> Value {
    serde_json::from_str(&story.cli(&["state", "pull", "base"]).expect(0).stdout).unwrap()
}

#[test]
fn rollback_rolls_forward() {
    for (engine, _) in testkit::engines::all() {
        let story = two_versions(engine);
        let old = story
            .cli(&["state", "pull", "base", "--version", "1"])
            .expect(0);
        let back = [
            "state",
            "rollback",
            "base",
            "--to",
            "1",
            "--reason",
            "two was wrong",
        ];
        let asked = story.cli(&back).expect(3);
        insta::allow_duplicates! {
            assert_snapshot!(levelled(&story, &asked), @"
    ── stderr
    state `base`: serial 2 → 3

    - terraform_data.b
    ~ terraform_data.a[0] input, output
    ~ terraform_data.a[1] input, output
    ~ outputs word

    In the state: 0 resources to add, 1 to take out, 2 to change. Nothing real is touched.
    error: nothing was changed: no terminal to confirm it
    hint: add `--auto-approve` to skip the confirmation
    [exit 3]
    ");
        }
        let done = story
            .cli(&[&back[..], &["--auto-approve"]].concat())
            .expect(0);
        assert!(
            done.stderr
                .ends_with("Done: version 3 of `base`, serial 3. Its record stays open: `terrane run list --open`.\n"),
            "{done}"
        );
        // Only the serial differs from what it was, to the byte.
        let now = story.cli(&["state", "pull", "base"]).expect(0);
        assert_eq!(now.stdout, with_serial(&old.stdout, 3));
        // The configuration still says `two`: the next plan shows the way there, and the apply goes it.
        let _ = story.cli(&["plan", "--detailed-exitcode"]).expect(2);
        let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
        assert_eq!(pull(&story)["serial"], 4);
    }
}

#[test]
fn rollback_by_serial_and_by_time() {
    let story = two_versions("tofu");
    let to = |to: &str| {
        let args = [
            "state",
            "rollback",
            "base",
            "--to",
            to,
            "--auto-approve",
            "--json",
            "--reason",
            "test",
        ];
        story.cli(&args)
    };
    assert_snapshot!(levelled(&story, &to("9").expect(1)), @"
    ── stderr
    error: state `story/base` has no version 9
    hint: `terrane state versions story/base` lists all stored versions
    [exit 1]
    ");
    assert_snapshot!(levelled(&story, &to("2").expect(1)), @"
    ── stderr
    error: version 2 is already the newest of state `story/base`
    [exit 1]
    ");
    assert_snapshot!(levelled(&story, &to("2001-01-01T00:00:00Z").expect(1)), @"
    ── stderr
    error: state `story/base` had no version on 2001-01-01 00:00:00 UTC yet
    hint: `terrane state versions story/base` lists all stored versions
    [exit 1]
    ");
    let _ = to("soon").expect(64);
    let said: Value = serde_json::from_str(&to("serial:1").expect(0).stdout).unwrap();
    assert_eq!(
        (&said["version"], &said["serial"], &said["mark"]),
        (&3.into(), &3.into(), &"rolled_back".into())
    );
    assert_eq!(
        said["changes"]["removed"],
        serde_json::json!(["terraform_data.b"])
    );
}

#[test]
fn the_plan_that_a_rollback_would_cause() {
    let story = two_versions("tofu");
    let back = [
        "state", "rollback", "base", "--to", "1", "--plan", "--reason", "test",
    ];
    let said = story.cli(&back).expect(3);
    assert!(said.stdout.contains("+ terraform_data.b"), "{said}");
    assert!(said.stdout.contains("\"one\" → \"two\""), "{said}");
    assert_eq!(pull(&story)["serial"], 2, "nothing was changed");
}

#[test]
fn resources_are_taken_out_and_nothing_else_moves() {
    let story = two_versions("tofu");
    let rm = |addresses: &[&str], more: &[&str]| {
        let args = [
            &["state", "rm", "base"],
            addresses,
            &["--reason", "kept by hand"],
            more,
        ]
        .concat();
        story.cli(&args)
    };
    assert_snapshot!(levelled(&story, &rm(&["terraform_data.a[7]"], &[]).expect(1)), @"
    ── stderr
    error: cannot remove anything from state `story/base`
    the state has no object `terraform_data.a[7]`
    hint: did you mean `terraform_data.a`?
    [exit 1]
    ");
    let _ = rm(
        &["terraform_data.a[1]", "terraform_data.b"],
        &["--auto-approve"],
    )
    .expect(0);
    let now = pull(&story);
    assert_eq!(now["serial"], 3);
    let names: Vec<&Value> = now["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["name"])
        .collect();
    assert_eq!(names, ["a"]);
    assert_eq!(
        now["resources"][0]["instances"].as_array().unwrap().len(),
        1
    );
    let plan = story.cli(&["plan", "--json"]).expect(0).stdout;
    assert!(plan.contains("terraform_data.b"), "{plan}");
    assert!(!plan.contains("terraform_data.a[0]"), "{plan}");
}

#[test]
fn a_push_keeps_the_rules_unless_forced() {
    let story = two_versions("tofu");
    let state = story.cli(&["state", "pull", "base"]).expect(0).stdout;
    let file = story.root().join("by-hand.tfstate");
    let path = file.display().to_string();
    let push = |text: &str, more: &[&str]| {
        fs::write(&file, text).unwrap();
        let args = [
            &[
                "state",
                "push",
                "base",
                &path,
                "--auto-approve",
                "--reason",
                "test",
            ],
            more,
        ]
        .concat();
        story.cli(&args)
    };
    let same = push(&state, &[]).expect(0);
    assert!(same.stderr.contains("Nothing to do: version 2"), "{same}");
    let edited = state.replace("\"two\"", "\"three\"");
    assert_snapshot!(levelled(&story, &push(&edited, &[]).expect(4)), @"
    ── stderr
    state `base`: serial 2 → 2

    ~ terraform_data.a[0] input, output
    ~ terraform_data.a[1] input, output
    ~ outputs word

    In the state: 0 resources to add, 0 to take out, 2 to change. Nothing real is touched.
    error: cannot store this after the newest version of state `story/base`
    serial 2 is taken by other content: two writers without a lock, or a push of the version
    before it
    hint: `--force` gives it the next serial
    [exit 4]
    ");
    let _ = push(&edited, &["--force"]).expect(0);
    assert_eq!(pull(&story)["serial"], 3);
    let lineage = pull(&story)["lineage"].as_str().unwrap().to_owned();
    let other = edited.replace(&lineage, "other");
    assert_snapshot!(levelled(&story, &push(&other, &[]).expect(4)), @"
    ── stderr
    state `base`: serial 3 → 2

    warning: this is another state: lineage other takes the place of
    ID
    no resource and no output differs
    error: cannot store this after the newest version of state `story/base`
    lineage `other` is not the head's `ID`: this is another
    state
    hint: `--force` replaces this state with it
    [exit 4]
    ");
    assert_snapshot!(levelled(&story, &push("{}", &["--force"]).expect(1)), @"
    ── stderr
    error: this cannot be a version of state `story/base`
    this has neither `version` nor `encryption_version`, so it is no state
    [exit 1]
    ");
    let locks = story.cli(&["lock", "list"]).expect(0);
    assert!(
        locks.stderr.starts_with("Nothing is locked.\n"),
        "a refused push leaves no lock: {locks}"
    );
}

#[test]
fn an_encrypted_state_comes_back_byte_for_byte() {
    let encryption = "terraform {\n  encryption {\n    key_provider \"pbkdf2\" \"k\" { passphrase = \"a-long-passphrase-for-tests\" }\n    \
        method \"aes_gcm\" \"m\" { keys = key_provider.pbkdf2.k }\n    state { method = method.aes_gcm.m }\n  }\n}\n";
    let story = Story::new("tofu").stack("base", "", &(encryption.to_owned() + &module("one", "")));
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let old = story.cli(&["state", "pull", "base"]).expect(0).stdout;
    assert!(old.contains("encryption_version"), "{old}");
    story.module("base", &(encryption.to_owned() + &module("two", "")));
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let back = [
        "state",
        "rollback",
        "base",
        "--to",
        "1",
        "--auto-approve",
        "--reason",
        "test",
    ];
    let said = story.cli(&back).expect(0);
    assert!(
        said.stderr.contains("the engine has encrypted this state"),
        "{said}"
    );
    assert_eq!(story.cli(&["state", "pull", "base"]).expect(0).stdout, old);
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let rm = [
        "state",
        "rm",
        "base",
        "terraform_data.a",
        "--auto-approve",
        "--reason",
        "test",
    ];
    let said = story.cli(&rm).expect(1);
    assert!(
        said.stderr.contains("its resources cannot be read"),
        "{said}"
    );
}

/// After a night of emergencies the list of locks is still a list of locks.
#[test]
fn several_acts_by_hand_are_one_note() {
    let test = crate::project::one_stack("", "");
    for serial in 1..=3 {
        let body = format!(r#"{{"version":4,"serial":{serial},"lineage":"l","resources":[]}}"#);
        test.write("../by-hand.tfstate", &body);
        let push = ["state", "push", "app", "../by-hand.tfstate", "--force"];
        let yes = ["--reason", "test", "--auto-approve"];
        drop(test.cli(&[&push[..], &yes[..]].concat()).expect(0));
    }
    assert_snapshot!(test.cli(&["lock", "list"]).expect(0), @"
    ── stderr
    Nothing is locked.
    note: 3 break-glass actions on 1 state are open until the next successful apply of each: `terrane run list --open` shows them
    ");
}
