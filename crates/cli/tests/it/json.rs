//! `--json` of long work: one event on each line, with keys that stay.

use std::collections::BTreeSet;

use insta::assert_snapshot;
use serde_json::Value;

use crate::project::{one_stack, terrane};

/// The shape of each event: its name and its keys, equal ones once.
fn shapes(stdout: &str) -> String {
    let mut shapes = Vec::new();
    for line in stdout.lines() {
        let event: Value = serde_json::from_str(line).expect("one JSON value per line");
        let fields = event.as_object().expect("an object");
        let keys: BTreeSet<&str> = fields.keys().map(String::as_str).collect();
        let name = event["event"].as_str().expect("an `event`");
        let keys: Vec<&str> = keys.into_iter().filter(|key| *key != "event").collect();
        shapes.push(format!("{name}: {}", keys.join(" ")));
    }
    shapes.sort();
    shapes.dedup();
    shapes.join("\n")
}

#[test]
fn a_plan_is_told_as_events() {
    let test = terrane();
    test.copy_example("quickstart");
    let said = test.cli(&["plan", "--json"]).expect(0);
    assert_eq!(said.stderr, "");
    assert_snapshot!(shapes(&said.stdout), @"
    change_set: action change_set identity stacks
    outcome: change_set exit stacks
    plan: plan policy reason stack status
    plan: plan reason stack status
    plan: plan stack status
    run: run stack state
    ");
    assert_eq!(last(&said.stdout), ("outcome".to_owned(), 0));
    let said = test.cli(&["apply", "--json"]).expect(3);
    assert_eq!(last(&said.stdout), ("outcome".to_owned(), 3));
}

/// The name of the last event, and the exit code it tells.
fn last(stdout: &str) -> (String, u64) {
    let event: Value = serde_json::from_str(stdout.lines().last().unwrap_or_default()).unwrap();
    let name = event["event"].as_str().unwrap_or_default().to_owned();
    (name, event["exit"].as_u64().unwrap_or(99))
}

#[test]
fn an_apply_is_told_as_events() {
    let test = terrane();
    test.copy_example("quickstart");
    let said = test.cli(&["apply", "--auto-approve", "--json"]).expect(0);
    assert_eq!(said.stderr, "");
    assert_snapshot!(shapes(&said.stdout), @"
    change_set: action change_set identity stacks
    outcome: change_set exit stacks
    run: run stack state
    ");
    let last = said.stdout.lines().last().unwrap_or_default();
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!(
        (&last["event"], &last["exit"]),
        (&"outcome".into(), &0.into())
    );
    let again = test.cli(&["apply", "--auto-approve", "--json"]).expect(0);
    assert_snapshot!(shapes(&again.stdout), @"
    change_set: action change_set identity stacks
    outcome: change_set exit stacks
    run: run stack state
    ");
}

#[test]
fn a_mistake_in_the_project_is_told_as_data() {
    let test = terrane();
    test.write("terrane.hcl", "stack \"a\" {}\n");
    let said = test.cli(&["plan", "--json"]).expect(1);
    assert_snapshot!(shapes(&said.stdout), @"
    findings: errors findings notes warnings
    outcome: change_set exit stacks
    ");
    assert_eq!(last(&said.stdout), ("outcome".to_owned(), 1));
    let found: Value = serde_json::from_str(said.stdout.lines().next().unwrap()).unwrap();
    assert!(found["errors"].as_u64().is_some_and(|errors| errors > 0));
    // Elsewhere it is one document.
    let said = test.cli(&["output", "a", "--json"]).expect(1);
    let document: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(document["errors"], found["errors"]);
    assert_eq!(document.get("event"), None);
}

#[test]
fn what_never_began_has_an_outcome_too() {
    let test = one_stack("protected = true\n", "");
    for (args, code) in [
        (&["plan", "nosuch"][..], 64),
        (&["destroy", "app", "--auto-approve"], 4),
        (&["apply", "missing.terrane"], 64),
        (&["exec", "nosuch", "--", "state", "list"], 64),
    ] {
        let said = test.cli(&[&["--json"], args].concat());
        let said = said.expect(code);
        let outcome: Value = serde_json::from_str(&said.stdout).unwrap();
        assert_eq!(
            last(&said.stdout),
            ("outcome".to_owned(), u64::from(code.unsigned_abs())),
            "{said}"
        );
        let told = outcome["error"]["message"].as_str().unwrap_or_default();
        assert!(!told.is_empty() && said.stderr.contains(told), "{said}");
    }
}

#[test]
fn a_plan_that_fails_says_why() {
    let test = one_stack("", "output \"a\" { value = local.missing }\n");
    let said = test.cli(&["plan", "--json"]).expect(1);
    let events = said.stdout.lines();
    let mut events = events.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let plan = events.find(|event| event["event"] == "plan").unwrap();
    assert_snapshot!(serde_json::to_string_pretty(&plan).unwrap(), @r#"
    {
      "event": "plan",
      "stack": "app",
      "status": "failed",
      "diagnostics": [
        {
          "summary": "Reference to undeclared local value",
          "detail": "A local value with the name \"missing\" has not been declared.",
          "address": null,
          "file": "app/main.tf",
          "line": 1
        }
      ]
    }
    "#);
}

/// Who reads a stream to its last line finds the outcome there, whatever came of it.
#[test]
fn a_yes_that_is_refused_ends_with_an_outcome() {
    let test = terrane();
    test.copy_example("quickstart");
    for args in [["run", "confirm", "c99"], ["run", "retry", "r99"]] {
        let said = test.cli(&[&args[..], &["--json"]].concat());
        let last = said.stdout.lines().last().unwrap_or_default();
        let last: Value = serde_json::from_str(last).unwrap();
        assert_eq!(last["event"], "outcome", "{said}");
        assert_eq!(last["exit"].as_i64(), said.code.map(i64::from), "{said}");
        assert!(last["error"]["message"].is_string(), "{said}");
    }
}
