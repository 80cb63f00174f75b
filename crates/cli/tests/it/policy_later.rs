//! What policies say after the plan: of an approval, of a yes, and right before the apply.

use insta::assert_snapshot;
use serde_json::Value;

use crate::story::{Story, noted};

/// Warns at each point, in words of its own.
const TALKS: &str = r#"package terrane

warn contains sprintf("seen at %s", [input.run.phase])
"#;

fn with(attributes: &str, rego: &str) -> Story {
    let story = Story::new("tofu").stack("base", "", &noted("base"));
    story.write("policies/owners.rego", rego);
    story.block(&format!(
        "policy \"owners\" {{\n  path = \"policies/owners.rego\"\n  {attributes}\n}}"
    ))
}

fn approve_as(story: &Story, person: &str, set: &str) -> testkit::CommandOutput {
    let args = ["run", "approve", set];
    story.cli_with(&[("CI", "true"), ("GITHUB_ACTOR", person)], &args)
}

/// Who approved everything beforehand sees no plan, and hears of it all the same.
#[test]
fn warnings_reach_who_said_yes_beforehand() {
    let story = with("", TALKS);
    let said = story.cli(&["apply", "--auto-approve"]).expect(0);
    assert_snapshot!(warnings(&said), @"
    warning: stack `base`, policy `owners`: seen at plan
    warning: stack `base`, policy `owners`: seen at approval
    warning: stack `base`, policy `owners`: seen at apply
    ");
    let shown = story.cli(&["run", "show", "c1"]).expect(0);
    assert_snapshot!(policy_block(&shown.stdout), @"
    policy  3 warnings
      warn  owners  base: seen at plan
      warn  owners  base: seen at approval
      warn  owners  base: seen at apply
    ");
    let shown = story.cli(&["run", "show", "c1", "--json"]).expect(0);
    let document: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(
        messages(&document["runs"][0]["record"]["outcome"]["warnings"]),
        ["seen at plan", "seen at approval", "seen at apply"]
    );
}

#[test]
fn warnings_are_events() {
    let story = with("", TALKS);
    let said = story.cli(&["apply", "--auto-approve", "--json"]).expect(0);
    let events = said.stdout.lines();
    let events = events.map(|line| serde_json::from_str(line).unwrap());
    let warnings: Vec<Value> = events
        .filter(|event: &Value| event["event"] == "warning")
        .map(|event| event["policy"].clone())
        .collect();
    assert_eq!(
        messages(&Value::Array(warnings)),
        ["seen at plan", "seen at approval", "seen at apply"]
    );
}

/// What a policy that is not enforced would deny is a warning, at every point.
#[test]
fn one_that_is_not_enforced_warns_before_the_apply() {
    let story = with(
        "enforce = false\n  at = [\"apply\"]",
        "package terrane\ndeny contains \"not on a Friday\"\n",
    );
    let said = story.cli(&["apply", "--auto-approve"]).expect(0);
    assert!(
        said.stderr.contains("not on a Friday (not enforced)"),
        "{said}"
    );
}

/// Each warning once, to whom it concerns: who approves, who confirms.
#[test]
fn warnings_reach_who_approves_and_who_confirms() {
    let story = with(
        "",
        &format!("{TALKS}require_approval contains {{\"msg\": \"two look at it\"}}\n"),
    );
    let said = story.cli(&["apply"]).expect(3);
    assert!(said.stdout.contains("base: seen at plan"), "{said}");
    let said = approve_as(&story, "eve", "c1").expect(0);
    assert_snapshot!(said, @"
    ── stderr
    warning: stack `base`, policy `owners`: seen at approval
    Approved change set c1 as `eve` (not verified).
    Its plan: 1 to add, 0 to change, 0 to replace, 0 to destroy, in 1 stack; made 00:00 ago.
    `terrane run confirm c1` starts it.
    ");
    let said = story.cli(&["run", "confirm", "c1"]).expect(0);
    // Those that stand below the plan are not said again.
    assert_snapshot!(warnings(&said), @"warning: stack `base`, policy `owners`: seen at apply");
}

#[test]
fn warnings_reach_who_confirms() {
    let story = with("at = [\"approval\"]", TALKS);
    let _ = story.cli(&["apply"]).expect(3);
    let said = story.cli(&["run", "confirm", "c1"]).expect(0);
    assert_snapshot!(warnings(&said), @"warning: stack `base`, policy `owners`: seen at approval");
}

/// A failed apply is a reason to read warnings, not to lose them.
#[test]
fn warnings_of_what_failed_are_told() {
    let broken = "resource \"terraform_data\" \"base\" {\n  provisioner \"local-exec\" { command = \"false\" }\n}\n";
    let story = Story::new("tofu").stack("base", "", broken);
    story.write("policies/owners.rego", TALKS);
    let story = story.block("policy \"owners\" { path = \"policies/owners.rego\" }");
    let said = story.cli(&["apply", "--auto-approve"]).expect(1);
    assert!(said.stderr.contains("seen at apply"), "{said}");
}

/// Wants one approval of a plan, and two once somebody speaks.
const MORE: &str = r#"package terrane

require_approval contains {"msg": "somebody looks at it", "count": 1} if input.run.phase == "plan"
require_approval contains {"msg": "two look at it", "count": 2} if {
  input.run.phase == "approval"
  count(input.approvals) > 0
}
"#;

#[test]
fn more_approvals_that_are_wanted_of_a_yes_are_waited_for() {
    let story = with("", MORE);
    let _ = story.cli(&["apply", "--auto-approve"]).expect(3);
    let said = approve_as(&story, "eve", "c1").expect(0);
    assert_snapshot!(said, @"
    ── stderr
    Approved change set c1 as `eve` (not verified).
    Its plan: 1 to add, 0 to change, 0 to replace, 0 to destroy, in 1 stack; made 00:00 ago.
    Pending: 1 of 2 approvals; not the author (policy `owners`)
    ");
    let list = story.cli(&["run", "list"]).expect(0);
    assert!(list.stdout.contains("awaiting approval"), "{list}");
    assert!(list.stdout.contains("1 of 2 approvals"), "{list}");
    assert_eq!(story.made(), Vec::<String>::new());
    let _ = approve_as(&story, "bob", "c1").expect(0);
    story.wait_until("the apply", || story.made() == ["base"]);
}

/// What is wanted of the yes that was said beforehand is waited for, whatever was wanted of the approvals before.
#[test]
fn approvals_that_are_wanted_of_who_said_yes_beforehand_are_waited_for() {
    let story = with(
        "at = [\"plan\", \"approval\"]",
        r#"package terrane

require_approval contains {"msg": "one looks at it", "count": 1} if input.run.phase == "plan"
require_approval contains {"msg": "two look at what is said beforehand", "count": 2} if {
  input.run.phase == "approval"
  input.actor.name != "eve"
  count(input.approvals) > 0
}
"#,
    );
    let _ = story.cli(&["apply", "--auto-approve"]).expect(3);
    let _ = approve_as(&story, "eve", "c1").expect(0);
    story.wait_until("it to wait again", || {
        let list = story.cli(&["run", "list"]).expect(0);
        list.stdout.contains("1 of 2 approvals")
    });
    assert_eq!(story.made(), Vec::<String>::new());
    let _ = approve_as(&story, "bob", "c1").expect(0);
    story.wait_until("the apply", || story.made() == ["base"]);
    let shown = story.cli(&["run", "show", "c1"]).expect(0);
    assert!(
        shown.stdout.contains("put off: policies require more"),
        "{shown}"
    );
}

/// What waits says what for: an approval that only a yes wants is known before anybody tries.
#[test]
fn an_approval_that_is_wanted_of_a_yes_is_named_before() {
    let story = with(
        "at = [\"approval\"]",
        "package terrane\nrequire_approval contains {\"msg\": \"late\", \"count\": 1}\n",
    );
    let said = story.cli(&["apply"]).expect(3);
    let (_, said) = said.stderr.split_once("\n\n").unwrap();
    assert_snapshot!(said, @"
    Change set c1 awaits approval:
      policy `owners`: 0 of 1 approval; not the author
        `terrane run approve c1`
    Then `terrane run confirm c1` starts it.
    ");
    let list = story.cli(&["run", "list"]).expect(0);
    assert!(list.stdout.contains("0 of 1 approval"), "{list}");
}

#[test]
fn a_yes_that_was_denied_is_remembered() {
    let story = with(
        "at = [\"approval\"]",
        "package terrane\ndeny contains \"not on a Friday\"\n",
    );
    let _ = story.cli(&["apply"]).expect(3);
    let _ = story.cli(&["run", "confirm", "c1"]).expect(4);
    let list = story.cli(&["run", "list"]).expect(0);
    assert!(
        list.stdout
            .contains("the last one was denied by policy `owners`: not on a Friday"),
        "{list}"
    );
    let shown = story.cli(&["run", "show", "c1"]).expect(0);
    assert_snapshot!(policy_block(&shown.stdout), @"
    policy  1 denial
      deny  owners  base: not on a Friday
    ");
}

/// Somebody who does not want to wait for a policy is not told that the policy is at fault.
#[test]
fn a_run_that_is_cancelled_while_a_policy_is_asked_says_so() {
    let story = with(
        "",
        "package terrane\ndeny contains \"no\" if {\n  some i in numbers.range(1, 9000)\n  \
         some j in numbers.range(1, 9000)\n  some k in numbers.range(1, 9000)\n  i + j + k < 0\n}\n",
    );
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_until("the question", || {
        let asked = story.shell("find ../home -path '*/r1/policy.case'");
        !asked.stdout.is_empty()
    });
    let _ = story
        .cli(&["run", "cancel", "r1", "--reason", "too early"])
        .expect(0);
    let said = apply.wait();
    assert!(said.stderr.contains("too early"), "{said}");
    assert!(!said.stderr.contains("cannot evaluate"), "{said}");
}

/// What somebody approved is one plan; the state moved since, and another one is made.
#[test]
fn an_approval_that_is_wanted_of_a_yes_is_wanted_again_of_another_plan() {
    let story = with(
        "",
        r#"package terrane
require_approval contains {"msg": "somebody looks at it", "count": 1} if {
  input.run.phase == "approval"
  input.run.change_set != "c1"
}
"#,
    );
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let module = format!("{}output \"more\" {{ value = 1 }}\n", noted("base"));
    story.module("base", &module);
    let _ = story.cli(&["apply", "--auto-approve"]).expect(3);
    let taint = ["exec", "base", "--", "taint", "terraform_data.base"];
    let _ = story.cli(&taint).expect(0);
    let _ = approve_as(&story, "bob", "c2").expect(0);
    story.settle();
    assert_eq!(
        story.made(),
        ["base"],
        "nobody approved that it is replaced"
    );
    let list = story.cli(&["run", "list"]).expect(0);
    assert!(
        list.stdout.contains("`bob` approved another plan"),
        "{list}"
    );
    let _ = approve_as(&story, "bob", "c2").expect(0);
    story.wait_until("what was approved", || story.made() == ["base", "base"]);
}

/// What each of them was warned of is on the record, not only the last.
#[test]
fn warnings_of_all_who_approved_stay() {
    let rego = "package terrane\n\nwarn contains sprintf(\"seen by %v\", [input.actor.name]) if input.run.phase == \"approval\"\n\
                require_approval contains {\"msg\": \"two look at it\", \"count\": 2}\n";
    let story = with("", rego);
    let _ = story.cli(&["apply"]).expect(3);
    for person in ["eve", "bob"] {
        let _ = approve_as(&story, person, "c1").expect(0);
    }
    let shown = story.cli(&["run", "show", "c1"]).expect(0).stdout;
    for person in ["eve", "bob"] {
        assert!(shown.contains(&format!("seen by {person}")), "{shown}");
    }
}

/// One that counts here and not there says where.
#[test]
fn an_approval_that_counts_for_another_requirement_says_so() {
    let rego = "package terrane\n\nrequire_approval contains {\"msg\": \"a database\", \"role\": \"dba\"}\n";
    let story = with("", rego);
    let file = story.read("terrane.hcl");
    let file = file.replace(
        "{ writers = [\"anyone\"] }",
        "{\n  writers = [\"anyone\"]\n  approval {}\n}",
    );
    story.write("terrane.hcl", &file);
    let _ = story.cli(&["apply"]).expect(3);
    let list = story.cli(&["run", "list"]).expect(0).stdout;
    assert!(list.contains("(target `local`), and "), "{list}");
    let said = approve_as(&story, "eve", "c1").expect(0);
    assert_snapshot!(said, @"
    ── stderr
    Approved change set c1 as `eve` (not verified).
    Its plan: 1 to add, 0 to change, 0 to replace, 0 to destroy, in 1 stack; made 00:00 ago.
    It does not count for policy `owners`: `eve` gave no role; add `--role dba`.
    Pending: 0 of 1 approval; role `dba`, not the author; `eve` has another role (policy `owners`)
    ");
}

fn warnings(said: &testkit::CommandOutput) -> String {
    let lines = said.stderr.lines();
    let lines: Vec<&str> = lines.filter(|line| line.starts_with("warning")).collect();
    lines.join("\n")
}

fn messages(remarks: &Value) -> Vec<String> {
    let remarks = remarks.as_array().into_iter().flatten();
    let text = |it: &Value| it["message"].as_str().unwrap_or_default().to_owned();
    remarks.map(text).collect()
}

/// The part of `run show` that is about policies.
fn policy_block(shown: &str) -> String {
    let lines = shown.lines().skip_while(|line| !line.starts_with("policy"));
    let lines: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    lines.join("\n")
}
