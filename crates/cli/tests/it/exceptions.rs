//! Past the usual rules, on the record: a gate that need not pass; and what a stage that is tried again looks at first.

use std::fs;

use insta::assert_snapshot;

use crate::cancel::named;
use crate::story::{Story, essence, link, noted, takes};

/// `base` has a gate that passes when the file `open` is there, and one that comes after it; `top` depends on it.
fn story() -> Story {
    let base = format!("{}output \"name\" {{ value = \"base\" }}\n", noted("base"));
    let story = Story::new("tofu");
    let root = story.root().display();
    let gates = format!(
        r#"
  gate "command" "open" {{
    run      = ["test", "-e", "{root}/open"]
    failures = 1
  }}
  gate "command" "later" {{
    run   = ["true"]
    after = ["open"]
  }}"#
    );
    story
        .stack("base", &gates, &base)
        .stack("top", &takes("base"), &link("top"))
}

fn open_acts(story: &Story) -> serde_json::Value {
    let said = story.cli(&["run", "list", "--open", "--json"]).expect(0);
    let mut acts: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    let shown = acts["open"].as_array_mut().unwrap().iter_mut();
    let shown = shown.map(|act| {
        format!(
            "{}: {} ({})",
            act["act"].as_str().unwrap(),
            act["reason"].as_str().unwrap(),
            act["detail"].as_str().unwrap()
        )
    });
    shown.collect::<Vec<_>>().into()
}

#[test]
fn a_skipped_gate_lets_dependents_on_and_stays_on_the_record() {
    let story = story();
    let said = story.cli(&["apply", "--auto-approve"]).expect(5);
    assert!(
        said.stderr
            .contains("`terrane run retry r1` continues there"),
        "{}",
        said.stderr
    );
    let retry = [
        "run",
        "retry",
        "r1",
        "--auto-approve",
        "--skip-gate",
        "base/open",
    ];
    // Without a reason nothing is skipped.
    drop(story.cli(&retry).expect(64));
    let said = story
        .cli(&[&retry[..], &["--reason", "the probe is wrong"]].concat())
        .expect(0);
    assert_snapshot!(named(&essence(&said)), @"
    Resumed change set c1.
    ✓ base   applied before, verified except for skipped gates
    ✓ top    applied 1 change
    change set c1: apply on `local`
    Done: 1 stack applied, 1 applied before in 0 s.
    warning: base: a gate was skipped (gate `open`, run r1)
    hint: `terrane run list --open` shows it until a run of the stack succeeds without `--skip-gate`
    [exit 0]
    ");
    assert_eq!(story.made(), ["base", "top"]);
    let open = serde_json::json!(["gate_skipped: the probe is wrong (gate `open`, run r1)"]);
    assert_eq!(open_acts(&story), open);
    let said = story.cli(&["run", "show", "r1"]).expect(0).stdout;
    let line = said.lines().find(|line| line.contains("verifying passed"));
    let line = line.unwrap_or_default();
    assert!(line.contains("1 gate passed; `open` skipped by "), "{said}");
    assert!(line.ends_with(": the probe is wrong"), "{said}");

    // It stays as long as no run passed it, and no longer.
    drop(story.cli(&["apply", "base", "--auto-approve"]).expect(5));
    assert_eq!(open_acts(&story), open);
    fs::write(story.root().join("open"), "").unwrap();
    drop(story.cli(&["run", "retry", "r3"]).expect(0));
    assert_eq!(open_acts(&story), serde_json::json!([]));
}

#[test]
fn a_gate_that_is_not_there_cannot_be_skipped() {
    let story = story();
    let skip = |gate| {
        let args = [
            "apply",
            "--auto-approve",
            "--reason",
            "x",
            "--skip-gate",
            gate,
        ];
        story.cli(&args).expect(1).stderr
    };
    assert_snapshot!(skip("base/opne"), @"
    error: there is no gate `base/opne` here
    hint: there is `base/open`, `base/later`
    ");
    assert_snapshot!(skip("bas/open"), @"
    error: there is no gate `bas/open` here
    hint: `bas` is not a stack of this change set with a gate
    ");
    assert_eq!(story.made(), [""; 0]);
}

#[test]
fn a_destroy_is_done_without_a_gate_only_with_a_reason() {
    let base = format!("{}output \"name\" {{ value = \"base\" }}\n", noted("base"));
    let gates = r#"
  gate "command" "up" { run = ["true"] }
  gate "command" "gone" {
    when     = "destroyed"
    run      = ["false"]
    failures = 1
  }"#;
    let story = Story::new("tofu").stack("base", gates, &base);
    drop(story.cli(&["apply", "--auto-approve"]).expect(0));
    let destroy = ["destroy", "--auto-approve", "--skip-gate", "base/gone"];
    drop(story.cli(&destroy).expect(64));
    let with = |command: &'static str, gate: &'static str| {
        let args = [command, "--auto-approve", "--reason", "the probe is wrong"];
        story.cli(&[&args[..], &["--skip-gate", gate]].concat())
    };
    assert_snapshot!(with("destroy", "base/up").expect(1).stderr, @"
    error: gate `base/up` is not checked here: it belongs to an apply
    hint: omit `--skip-gate` for it
    ");
    assert_snapshot!(with("apply", "base/gone").expect(1).stderr, @"
    error: gate `base/gone` is not checked here: it proves that what was destroyed is gone
    hint: omit `--skip-gate` for it
    ");
    let said = with("destroy", "base/gone").expect(0);
    assert_snapshot!(named(&essence(&said)), @"
    change set c2: destroy on `local`
    ✓ base   destroyed 1 resource, verified except for skipped gates
    Done: 1 stack destroyed in 0 s.
    warning: base: a gate was skipped (gate `gone`, run r2)
    hint: `terrane run list --open` shows it until a run of the stack succeeds without `--skip-gate`
    [exit 0]
    ");
    let open = serde_json::json!(["gate_skipped: the probe is wrong (gate `gone`, run r2)"]);
    assert_eq!(open_acts(&story), open);
    // It stays until the gate was looked at.
    drop(story.cli(&["destroy", "--auto-approve"]).expect(5));
    assert_eq!(open_acts(&story), open);
    let text = fs::read_to_string(story.project().join("terrane.hcl")).unwrap();
    story.write("terrane.hcl", &text.replace("[\"false\"]", "[\"true\"]"));
    drop(story.cli(&["destroy", "--auto-approve"]).expect(0));
    assert_eq!(open_acts(&story), serde_json::json!([]));
}

#[test]
fn a_stage_is_tried_again_on_the_state_that_its_run_left() {
    let story = story();
    drop(story.cli(&["apply", "base", "--auto-approve"]).expect(5));
    // Somebody changes the state by hand meanwhile.
    let rm = [
        "state",
        "rm",
        "base",
        "terraform_data.base",
        "--reason",
        "gone",
        "--auto-approve",
    ];
    drop(story.cli(&rm).expect(0));
    fs::write(story.root().join("open"), "").unwrap();
    let said = story.cli(&["run", "retry", "r1"]).expect(4);
    assert_snapshot!(said.stderr, @"
    error: the state of stack `base` has changed since run r1: it was serial 1, now it is serial 2
    hint: `terrane apply base` plans it again
    ");
    drop(story.cli(&["apply", "base", "--auto-approve"]).expect(0));
}

#[test]
fn nothing_is_applied_onto_a_stack_whose_gates_did_not_pass() {
    let story = story();
    fs::write(story.root().join("open"), "").unwrap();
    drop(story.cli(&["apply", "--auto-approve"]).expect(0));
    fs::remove_file(story.root().join("open")).unwrap();
    drop(story.cli(&["apply", "base", "--auto-approve"]).expect(5));
    let said = story.cli(&["apply", "top", "--auto-approve"]).expect(4);
    assert_snapshot!(said.stderr, @"
    error: cannot apply stack `top`: its dependency `base` is applied, not verified (0 of 2 gates
           passed)
    hint: `terrane run retry r3` continues there
    ");
    // Looking is free.
    drop(story.cli(&["plan", "top"]).expect(0));
    fs::write(story.root().join("open"), "").unwrap();
    drop(story.cli(&["run", "retry", "r3"]).expect(0));
    drop(story.cli(&["apply", "top", "--auto-approve"]).expect(0));
}

#[test]
fn a_hold_stops_facts_and_lets_gates_be_looked_at() {
    let base = format!("{}output \"name\" {{ value = \"base\" }}\n", noted("base"));
    let stages = r#"
  publish "runtime" {
    path   = "base.yaml"
    values = { name = output.name }
  }
  gate "command" "open" {
    run      = ["test", "-e", "open"]
    failures = 1
  }"#;
    let story = Story::new("tofu")
        .block("facts \"runtime\" { repository = \"../facts.git\" }")
        .stack("base", stages, &base);
    // There is no such repository yet.
    drop(story.cli(&["apply", "--auto-approve"]).expect(1));
    drop(
        story
            .cli(&["hold", "add", "base", "--reason", "wait"])
            .expect(0),
    );
    drop(story.git(&["init", "--quiet", "--bare", "../facts.git"]));
    let said = story.cli(&["run", "retry", "r1"]).expect(4);
    assert!(
        said.stderr.contains("stack `base` is held by"),
        "{}",
        said.stderr
    );
    drop(story.cli(&["hold", "release", "base"]).expect(0));
    drop(story.cli(&["run", "retry", "r1"]).expect(5));
    // Only the gate is left: it reads, and may.
    drop(
        story
            .cli(&["hold", "add", "base", "--reason", "wait"])
            .expect(0),
    );
    story.write("open", "");
    drop(story.cli(&["run", "retry", "r1"]).expect(0));
}
