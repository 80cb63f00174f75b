//! Policies: what they deny is not applied, and what they say is seen.

use std::fmt::Write as _;

use insta::{allow_duplicates, assert_snapshot};
use serde_json::Value;
use testkit::engines;

use crate::story::{Story, essence, link, noted, takes};

/// Objects to every resource whose input says so.
const OWNERS: &str = r#"package terrane

deny contains {"msg": msg, "resource": change.address} if {
  some change in input.plan.resource_changes
  change.change.after.input == "bad"
  msg := "it has no owner"
}

warn contains sprintf("%s is new in stack `%s`", [change.address, input.stack.name]) if {
  some change in input.plan.resource_changes
  change.change.actions == ["create"]
}
"#;

fn story(rego: &str) -> Story {
    with("", rego)
}

fn with(attributes: &str, rego: &str) -> Story {
    let story = Story::new("tofu").stack("base", "", &noted("base"));
    policy(story, attributes, rego)
}

fn policy(story: Story, attributes: &str, rego: &str) -> Story {
    story.write("policies/owners.rego", rego);
    story.block(&format!(
        "policy \"owners\" {{\n  path = \"policies/owners.rego\"\n  {attributes}\n}}"
    ))
}

#[test]
fn what_a_policy_denies_is_shown_and_not_applied() {
    for (engine, _) in engines::all() {
        let story = Story::new(engine)
            .stack("bad", "", &noted("bad"))
            .stack("top", "after = [stack.bad]", &noted("top"))
            .stack("other", "", &noted("other"));
        let story = policy(story, "", OWNERS);
        let plan = story.cli(&["plan", "bad"]).expect(4);
        allow_duplicates! {
            assert_snapshot!(plan.stdout, @r#"
            change set c1 on `local`

            bad  + 1 add                                 denied by policy
              + terraform_data.bad
                  input   "bad"
                  known after apply: id, output

            policy  1 denial, 1 warning
              deny  owners  bad: it has no owner (terraform_data.bad)
              warn  owners  bad: terraform_data.bad is new in stack `bad`

            Plan: 1 to add, 0 to change, 0 to replace, 0 to destroy; 1 denied.
            "#);
        }
        let said = story.cli(&["apply", "--auto-approve"]).expect(4);
        allow_duplicates! {
            assert_snapshot!(essence(&said), @r#"
            change set c2: apply on `local`
              top     skipped: `bad` did not succeed
            ✓ other   applied 1 change
            ✗ bad     denied by policy
            warning: stack `bad`, policy `owners`: terraform_data.bad is new in stack `bad`
            warning: stack `other`, policy `owners`: terraform_data.other is new in stack `other`
            ✗ bad     denied by policy while planning
                `owners`: it has no owner (terraform_data.bad)
              top     skipped: `bad` did not succeed

            error: change set c2 stopped: 1 denied, 1 skipped, 1 applied
            hint: change what is denied, then `terrane apply --resume c2` runs what is left
            hint: in an emergency, `terrane apply --resume c2 --override-policy --reason "…"` overrides it; the
                  override is recorded
            [exit 4]
            "#);
        }
        assert_eq!(story.made(), ["other"]);
    }
}

#[test]
fn json_says_which_rule_denies_what() {
    let story = policy(
        Story::new("tofu").stack("bad", "", &noted("bad")),
        "",
        OWNERS,
    );
    let said = story.cli(&["plan", "--json"]).expect(4);
    let events: Vec<Value> = said
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let plan = events
        .iter()
        .find(|event| event["event"] == "plan")
        .unwrap();
    assert_eq!(plan["status"], "denied");
    assert_snapshot!(serde_json::to_string_pretty(&plan["policy"]).unwrap(), @r#"
    {
      "asked": [
        "owners"
      ],
      "denials": [
        {
          "policy": "owners",
          "rule": "deny",
          "message": "it has no owner",
          "resource": "terraform_data.bad"
        }
      ],
      "warnings": [
        {
          "policy": "owners",
          "rule": "warn",
          "message": "terraform_data.bad is new in stack `bad`",
          "resource": "terraform_data.bad"
        }
      ],
      "approvals": [],
      "left_off": 0
    }
    "#);
    let outcome = events.last().unwrap();
    assert_eq!(
        outcome["stacks"]["bad"]["outcome"]["problem"]["refused"],
        true
    );
}

#[test]
fn a_warning_is_shown_and_keeps_nobody() {
    let story = story(OWNERS);
    let plan = story.cli(&["plan"]).expect(0);
    assert_snapshot!(plan.stdout, @r#"
    change set c1 on `local`

    base  + 1 add
      + terraform_data.base
          input   "base"
          known after apply: id, output

    policy  1 warning
      warn  owners  base: terraform_data.base is new in stack `base`

    Plan: 1 to add, 0 to change, 0 to replace, 0 to destroy.
    "#);
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    // Without changes there is nothing to object to.
    let plan = story.cli(&["plan"]).expect(0);
    assert!(!plan.stdout.contains("policy"), "{plan}");
}

#[test]
fn one_that_is_not_enforced_only_warns() {
    let story = Story::new("tofu").stack("bad", "", &noted("bad"));
    let story = policy(story, "enforce = false", OWNERS);
    let plan = story.cli(&["plan"]).expect(0);
    assert!(
        plan.stdout
            .contains("it has no owner (not enforced) (terraform_data.bad)"),
        "{plan}"
    );
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
}

#[test]
fn an_override_wants_a_reason_and_goes_past_a_denial() {
    let story = policy(
        Story::new("tofu").stack("bad", "", &noted("bad")),
        "",
        OWNERS,
    );
    let _ = story.cli(&["apply", "--override-policy"]).expect(64);
    let empty = ["apply", "--override-policy", "--reason", " "];
    let _ = story.cli(&empty).expect(64);
    let said = story.cli(&[
        "apply",
        "--auto-approve",
        "--override-policy",
        "--reason",
        "the owner is on holiday",
    ]);
    let _ = said.expect(0);
    assert_eq!(story.made(), ["bad"]);
    let open = story.cli(&["run", "list", "--open"]).expect(0);
    assert!(open.stdout.contains("policy overridden"), "{open}");
    assert!(open.stdout.contains("the owner is on holiday"), "{open}");
}

#[test]
fn an_approval_that_a_policy_wants_is_waited_for() {
    let story = story(
        r#"package terrane
require_approval contains {"msg": "somebody else looks at it", "count": 2, "role": "dba"} if true
"#,
    );
    let plan = story.cli(&["plan"]).expect(0);
    assert!(
        plan.stdout.contains(
            "approve  owners  base: somebody else looks at it; needs 2 approvals by role `dba`"
        ),
        "{plan}"
    );
    let said = story.cli(&["apply", "--auto-approve"]).expect(3);
    assert!(
        said.stderr
            .contains("policy `owners`: 0 of 2 approvals; role `dba`, not the author"),
        "{said}"
    );
    let approve = |person: &str| {
        let args = ["run", "approve", "c2", "--role", "dba"];
        story.cli_with(&[("CI", "true"), ("GITHUB_ACTOR", person)], &args)
    };
    let _ = approve("eve").expect(0);
    assert_eq!(story.made(), Vec::<String>::new());
    let _ = approve("bob").expect(0);
    story.wait_until("the apply", || story.made() == ["base"]);
}

#[test]
fn at_apply_it_is_asked_again() {
    let story = with(
        "at = [\"apply\"]",
        "package terrane\ndeny contains \"not on a Friday\" if input.run.phase == \"apply\"\n",
    );
    let _ = story.cli(&["plan"]).expect(0);
    let said = story.cli(&["apply", "--auto-approve"]).expect(4);
    assert!(said.stderr.contains("`owners`: not on a Friday"), "{said}");
    assert_eq!(story.made(), Vec::<String>::new());
}

#[test]
fn what_was_planned_with_is_what_is_checked() {
    let story = story(OWNERS);
    let mut terminal = story.terminal(&["apply"]);
    terminal.wait_for("Type `yes`");
    story.write(
        "policies/owners.rego",
        "package terrane\ndeny contains \"never\" if true\n",
    );
    terminal.type_line("yes");
    let _ = terminal.wait().expect(0);
    assert_eq!(story.made(), ["base"]);
}

#[test]
fn foreign_policies_in_old_syntax_run_unchanged() {
    let story = story(
        r#"package main
deny[msg] { input.resource_changes[i].change.after.input == "base"; msg := "conftest says no" }
"#,
    );
    story.write(
        "policies/spacelift.rego",
        r#"package spacelift
warn[sprintf("%s by %s", [c.entity.address, input.spacelift.stack.name])] { c := input.spacelift.run.changes[_] }
"#,
    );
    let story = story.block("policy \"old\" {\n  path = \"policies/spacelift.rego\"\n}");
    let plan = story.cli(&["plan"]).expect(4);
    assert_snapshot!(block(&plan.stdout), @"
    policy  1 denial, 1 warning
      deny  owners  base: conftest says no
      warn  old     base: terraform_data.base by base
    ");
    let said = story.cli(&["validate"]).expect(0);
    assert_snapshot!(said.stderr, @r#"
    warning: policy file `policies/owners.rego` is written in Rego v0
      --> policies/owners.rego:1:1
       |
     1 | package main
       | ^^^^^^^ read as v0
       |
       = hint: it works; `opa fmt --v0-v1 --write` turns it into v1, the syntax of today

    warning: policy file `policies/spacelift.rego` is written in Rego v0
      --> policies/spacelift.rego:1:1
       |
     1 | package spacelift
       | ^^^^^^^ read as v0
       |
       = hint: it works; `opa fmt --v0-v1 --write` turns it into v1, the syntax of today

    note: the project has no `id`: its home is tied to this directory
      = hint: before the first apply, add a unique `id = "…"` to the project block

    2 warnings in 2 files
    "#);
}

#[test]
fn upstreams_and_selectors_are_seen() {
    let story = Story::new("tofu")
        .stack("base", "labels = [\"prod\"]", &link("base"))
        .stack("top", &takes("base"), &link("top"));
    let story = policy(
        story,
        "stacks = [\"top\"]",
        "package terrane\nwarn contains sprintf(\"%s is %s\", [u.stack, u.status]) if some u in input.upstreams\n",
    );
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let said = story.cli(&["policy", "eval", "top"]).expect(0);
    assert_snapshot!(said.stdout, @"
    policy  1 warning
      warn  owners  base is applied
    ");
    let said = story.cli(&["policy", "eval", "base"]).expect(0);
    assert_snapshot!(said, @"
    ── stderr
    No policy checks this stack in this phase.
    ");
}

#[test]
fn an_edited_policy_is_tried_on_a_real_plan() {
    let story = story(OWNERS);
    let _ = story.cli(&["plan"]).expect(0);
    story.write(
        "strict.rego",
        "package terrane\ndeny contains msg if { some c in input.plan.resource_changes; msg := sprintf(\"no %s\", [c.address]) }\n",
    );
    let said = story.cli(&["policy", "eval", "base", "--policy", "strict.rego"]);
    assert_snapshot!(said.expect(4).stdout, @"
    policy  1 denial
      deny  strict  no terraform_data.base
    ");
    let said = story.cli(&["policy", "eval", "r1", "--json"]).expect(0);
    let document: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(
        document["policy"]["warnings"][0]["resource"],
        "terraform_data.base"
    );
    let said = story.cli(&["policy", "eval", "r1", "--input"]).expect(0);
    let document: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(document["stack"]["name"], "base");
}

#[test]
fn a_policy_that_never_ends_is_stopped() {
    let story = story(
        "package terrane\ndeny contains \"no\" if {\n  some i in numbers.range(1, 9000)\n  \
         some j in numbers.range(1, 9000)\n  some k in numbers.range(1, 9000)\n  i + j + k < 0\n}\n",
    );
    let plan = story.cli(&["plan"]).expect(1);
    assert_snapshot!(plan.stdout, @"
    change set c1 on `local`

    base  failed while planning
        not checked: cannot evaluate policy `owners`: it did not finish within 5 s
        a policy that cannot be evaluated stops the run: fix it, or set `enforce = false`

    Plan: no changes so far; 1 failed.
    ");
    assert_eq!(story.made(), Vec::<String>::new());
}

#[test]
fn a_policy_that_wants_all_memory_ends_alone() {
    let mut rego =
        "package terrane\ndeny contains x40 if {\n  x0 := \"0123456789abcdef\"\n".to_owned();
    for n in 0..40 {
        writeln!(rego, "  x{} := concat(\"\", [x{n}, x{n}])", n + 1).unwrap();
    }
    let story = story(&(rego + "}\n"));
    let plan = story.cli(&["plan"]).expect(1);
    assert!(
        plan.stdout
            .contains("cannot evaluate policy `owners`: it needs more than 1024 MiB of memory"),
        "{plan}"
    );
}

#[test]
fn what_a_policy_says_is_bounded() {
    let story = story(
        "package terrane\nwarn contains sprintf(\"%d %s\", [i, long]) if {\n  some i in numbers.range(1, 300)\n  \
         long := concat(\"\", [\"x\" | some _ in numbers.range(1, 900)])\n}\n",
    );
    let plan = story.cli(&["plan"]).expect(0);
    assert!(plan.stdout.contains("policy  100 warnings\n"), "{plan}");
    assert!(plan.stdout.contains("  and 200 more\n"), "{plan}");
    assert!(plan.stdout.len() < 100_000, "{}", plan.stdout.len());
}

#[test]
fn mistakes_in_rego_have_file_line_and_caret() {
    let story = story("package terrane\n\ndeny contains msg if {\n  msg := nobody.knows\n}\n");
    let said = story.cli(&["validate"]).expect(1);
    assert_snapshot!(said.stderr, @r#"
    error: policy `owners` cannot be evaluated: use of undefined variable `nobody` is unsafe
      --> policies/owners.rego:4:10
       |
     4 |   msg := nobody.knows
       |          ^^^^^^^^^^^^ here

    note: the project has no `id`: its home is tied to this directory
      = hint: before the first apply, add a unique `id = "…"` to the project block

    1 error in policies/owners.rego
    "#);
    let _ = story.cli(&["plan"]).expect(1);
}

#[test]
fn mistakes_in_the_block_have_a_place() {
    let story = story("package elsewhere\nallow := true\n").block(
        "policy \"gone\" { path = \"policies/owner.rego\" }\n\
         policy \"out\" { path = \"../policies\" }\n\
         policy \"when\" {\n  path = \"policies\"\n  at = [\"aply\"]\n  stacks = [\"bas\"]\n}",
    );
    let said = story.cli(&["validate"]).expect(1);
    assert_snapshot!(said.stderr, @r#"
    error: policy `owners` cannot be evaluated: it defines no rule that is read
      --> policies/owners.rego:1:1
       |
     1 | package elsewhere
       | ^^^^^^^ here
       |
       = hint: `package terrane` with `deny`, `warn` or `require_approval`; `package spacelift` and
               `package main` (conftest) are read as well

    error: policy `when` cannot be evaluated: it defines no rule that is read
      --> policies/owners.rego:1:1
       |
     1 | package elsewhere
       | ^^^^^^^ here
       |
       = hint: `package terrane` with `deny`, `warn` or `require_approval`; `package spacelift` and
               `package main` (conftest) are read as well

    error: there is no Rego file at `policies/owner.rego`
      --> terrane.hcl:16:24
       |
    16 | policy "gone" { path = "policies/owner.rego" }
       |                        ^^^^^^^^^^^^^^^^^^^^^ nothing here ends in `.rego`
       |
       = hint: did you mean `policies/owners.rego`?

    error: `../policies` leaves the project
      --> terrane.hcl:17:23
       |
    17 | policy "out" { path = "../policies" }
       |                       ^^^^^^^^^^^^^ only what lies in the project is there

    error: `aply` is none of `plan`, `approval` and `apply`
      --> terrane.hcl:20:8
       |
    20 |   at = ["aply"]
       |        ^^^^^^^^ `at` must be a list of `"plan"`, `"approval"`, `"apply"`
       |
       = hint: did you mean `apply`?

    error: there is no stack `bas`
      --> terrane.hcl:21:12
       |
    21 |   stacks = ["bas"]
       |            ^^^^^^^ not defined
       |
       = hint: did you mean `base`?

    warning: policy `when` applies to no stack
      --> terrane.hcl:21:12
       |
    21 |   stacks = ["bas"]
       |            ^^^^^^^ selects none

    note: the project has no `id`: its home is tied to this directory
      = hint: before the first apply, add a unique `id = "…"` to the project block

    6 errors and 1 warning in 2 files
    "#);
}

/// The part of a plan that is about policies.
fn block(plan: &str) -> String {
    let lines = plan.lines().skip_while(|line| !line.starts_with("policy"));
    let lines: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    lines.join("\n")
}

#[test]
fn a_yes_may_be_denied() {
    let story = with(
        "at = [\"approval\"]",
        "package terrane\ndeny contains \"not on a Friday\" if input.run.phase == \"approval\"\n",
    );
    let _ = story.cli(&["apply"]).expect(3);
    let said = story.cli(&["run", "confirm", "c1"]).expect(4);
    assert_snapshot!(said.stderr, @"
    error: cannot confirm change set c1: denied by policy
           `owners`: not on a Friday
    hint: it still waits; `terrane run show c1` shows its status
    ");
    assert_eq!(story.made(), Vec::<String>::new());
    let list = story.cli(&["run", "list"]).expect(0);
    assert!(list.stdout.contains("awaiting confirmation"), "{list}");
}

/// Who says yes beforehand says it all the same.
#[test]
fn a_yes_beforehand_may_be_denied() {
    let story = with(
        "at = [\"approval\"]",
        "package terrane\ndeny contains \"not on a Friday\" if input.run.phase == \"approval\"\n",
    );
    let said = story.cli(&["apply", "--auto-approve"]).expect(4);
    assert!(said.stderr.contains("`owners`: not on a Friday"), "{said}");
    assert_eq!(story.made(), Vec::<String>::new());
    let past = [
        "apply",
        "--auto-approve",
        "--override-policy",
        "--reason",
        "the shop is down",
    ];
    let _ = story.cli(&past).expect(0);
    assert_eq!(story.made(), ["base"]);
    let open = story.cli(&["run", "list", "--open"]).expect(0);
    assert!(open.stdout.contains("the shop is down"), "{open}");
    assert!(open.stdout.contains("policy overridden"), "{open}");
}

#[test]
fn a_yes_beforehand_to_a_bundle_may_be_denied() {
    let story = with(
        "at = [\"approval\"]",
        "package terrane\ndeny contains \"not on a Friday\" if input.run.phase == \"approval\"\n",
    );
    let _ = story.cli(&["plan", "--out", "plan.terrane"]).expect(0);
    let said = story
        .cli(&["apply", "plan.terrane", "--auto-approve"])
        .expect(4);
    assert!(said.stderr.contains("`owners`: not on a Friday"), "{said}");
    assert_eq!(story.made(), Vec::<String>::new());
}

const LATE: &str = "package terrane\nrequire_approval contains {\"msg\": \"late\", \"count\": 1}\n";

fn approve_as(story: &Story, person: &str, set: &str) -> testkit::CommandOutput {
    let args = ["run", "approve", set];
    story.cli_with(&[("CI", "true"), ("GITHUB_ACTOR", person)], &args)
}

#[test]
fn an_approval_that_is_wanted_of_a_yes_comes_first() {
    let story = with("at = [\"approval\"]", LATE);
    let _ = story.cli(&["apply"]).expect(3);
    let said = story.cli(&["run", "confirm", "c1"]).expect(3);
    assert_snapshot!(said.stderr, @"
    error: cannot confirm change set c1 yet
           0 of 1 approval; not the author (policy `owners`)
    hint: `terrane run approve c1` approves it
    ");
    assert_eq!(story.made(), Vec::<String>::new());
    let _ = approve_as(&story, "eve", "c1").expect(0);
    let _ = story.cli(&["run", "confirm", "c1"]).expect(0);
    assert_eq!(story.made(), ["base"]);
}

#[test]
fn an_approval_that_is_wanted_of_a_yes_beforehand_is_waited_for() {
    let story = with("at = [\"approval\"]", LATE);
    let said = story.cli(&["apply", "--auto-approve"]).expect(3);
    assert!(said.stderr.contains("terrane run approve c1"), "{said}");
    assert_eq!(story.made(), Vec::<String>::new());
    let _ = approve_as(&story, "eve", "c1").expect(0);
    story.wait_until("the apply", || story.made() == ["base"]);
}

#[test]
fn an_approval_that_is_wanted_at_apply_may_come_before() {
    let story = with("at = [\"apply\"]", LATE);
    let _ = story.cli(&["apply"]).expect(3);
    let _ = approve_as(&story, "eve", "c1").expect(0);
    let _ = story.cli(&["run", "confirm", "c1"]).expect(0);
    assert_eq!(story.made(), ["base"]);
}

#[test]
fn an_approval_that_is_wanted_at_apply_may_come_after_the_refusal() {
    let story = with("at = [\"apply\"]", LATE);
    let said = story.cli(&["apply", "--auto-approve"]).expect(4);
    let hint = "`terrane run approve c1` approves it, then `terrane apply --resume c1` continues";
    let words = said.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("late: needs 1 approval, has 0"), "{said}");
    assert!(words.contains(hint), "{said}");
    assert!(words.contains("stopped: 1 not approved"), "{said}");
    assert!(!words.contains("what is denied"), "{said}");
    let again = ["apply", "--resume", "c1", "--auto-approve"];
    let _ = story.cli(&again).expect(4);
    let said = approve_as(&story, "eve", "c1").expect(0);
    assert!(
        said.stderr
            .contains("Run `terrane apply --resume c1` to continue"),
        "{said}"
    );
    let _ = story.cli(&again).expect(0);
    assert_eq!(story.made(), ["base"]);
}

/// A yes was said to another plan than the one that a resume makes.
#[test]
fn an_approval_of_a_refused_plan_does_not_cover_another() {
    let story = with("at = [\"apply\"]", LATE);
    let _ = story.cli(&["apply", "--auto-approve"]).expect(4);
    let _ = approve_as(&story, "eve", "c1").expect(0);
    story.write("base/more.tf", "resource \"terraform_data\" \"more\" {}\n");
    let again = ["apply", "--resume", "c1", "--auto-approve"];
    let _ = story.cli(&again).expect(4);
    assert_eq!(story.made(), Vec::<String>::new());
}

#[test]
fn a_destroy_that_is_denied_can_be_overridden() {
    let story = story("package terrane\ndeny contains \"it holds data\" if input.run.destroy\n");
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let said = story.cli(&["destroy", "--auto-approve"]).expect(4);
    assert_snapshot!(essence(&said), @r#"
    change set c2: destroy on `local`
    ✗ base   denied by policy
    ✗ base   denied by policy while planning
        `owners`: it holds data

    error: change set c2 stopped: 1 denied
    hint: change what is denied, then the same command again destroys what is left
    hint: in an emergency, the same `terrane destroy` with `--override-policy --reason "…"` overrides
          it; the override is recorded
    [exit 4]
    "#);
    let past = [
        "destroy",
        "--auto-approve",
        "--override-policy",
        "--reason",
        "the account is closed today",
    ];
    let _ = story.cli(&past).expect(0);
    let open = story.cli(&["run", "list", "--open"]).expect(0);
    assert!(
        open.stdout.contains("the account is closed today"),
        "{open}"
    );
    assert_eq!(
        open.stderr,
        "Each closes when the next `terrane apply` or `terrane destroy` of its stack succeeds without `--override-policy`, `--skip-gate` or `--reinstall`.\n"
    );
    let _ = story.cli(&["destroy", "--auto-approve"]).expect(0);
    let open = story.cli(&["run", "list", "--open"]).expect(0);
    assert_eq!(
        open.stdout, "",
        "what a destroy left open, a destroy closes"
    );
}

/// A yes takes no options: the command that goes past it is named.
#[test]
fn what_is_denied_after_a_yes_names_the_command_that_goes_past_it() {
    let story = with(
        "at = [\"apply\"]",
        "package terrane\ndeny contains \"not on a Friday\" if input.run.phase == \"apply\"\n",
    );
    let _ = story.cli(&["apply"]).expect(3);
    let said = story.cli(&["run", "confirm", "c1"]).expect(4);
    let hint = "`terrane apply --resume c1 --override-policy --reason \"…\"` overrides it";
    assert!(said.stderr.contains(hint), "{said}");
    let past = [
        "apply",
        "--resume",
        "c1",
        "--override-policy",
        "--reason",
        "the shop is down",
        "--auto-approve",
    ];
    let _ = story.cli(&past).expect(0);
    assert_eq!(story.made(), ["base"]);
}

#[test]
fn a_bundle_goes_past_a_denial_only_with_a_reason_of_its_own() {
    let story = with(
        "at = [\"apply\"]",
        "package terrane\ndeny contains \"not on a Friday\" if input.run.phase == \"apply\"\n",
    );
    let _ = story.cli(&["plan", "--out", "plan.terrane"]).expect(0);
    let said = story
        .cli(&["apply", "plan.terrane", "--auto-approve"])
        .expect(4);
    assert!(said.stderr.contains("`owners`: not on a Friday"), "{said}");
    assert!(
        said.stderr
            .contains("`terrane apply FILE --override-policy"),
        "{said}"
    );
    assert_eq!(story.made(), Vec::<String>::new());
    let past = [
        "apply",
        "plan.terrane",
        "--auto-approve",
        "--override-policy",
        "--reason",
        "the shop is down",
    ];
    let said = story.cli(&past).expect(0);
    assert!(said.stderr.contains("Policies were overridden"), "{said}");
    assert_eq!(story.made(), ["base"]);
    let open = story.cli(&["run", "list", "--open"]).expect(0);
    assert!(open.stdout.contains("policy overridden"), "{open}");
    assert!(open.stdout.contains("the shop is down"), "{open}");
}

#[test]
fn a_bundle_that_waits_under_the_rules_is_not_taken_past_them() {
    let story = with(
        "at = [\"apply\"]",
        "package terrane\ndeny contains \"not on a Friday\" if input.run.phase == \"apply\"\n",
    );
    let _ = story.cli(&["plan", "--out", "plan.terrane"]).expect(0);
    let _ = story.cli(&["apply", "plan.terrane"]).expect(3);
    let past = [
        "apply",
        "plan.terrane",
        "--auto-approve",
        "--override-policy",
        "--reason",
        "the shop is down",
    ];
    let said = story.cli(&past).expect(4);
    assert_snapshot!(said.stderr, @r#"
    error: this bundle is being applied already, as change set c2, under the usual rules
    hint: `terrane run discard c2 --reason "…"` drops it
    hint: then repeat this command
    "#);
    let _ = story
        .cli(&["run", "discard", "c2", "--reason", "with an override"])
        .expect(0);
    let _ = story.cli(&past).expect(0);
    assert_eq!(story.made(), ["base"]);
}

#[test]
fn what_is_denied_gets_no_bundle() {
    let story = policy(
        Story::new("tofu").stack("bad", "", &noted("bad")),
        "",
        OWNERS,
    );
    let said = story.cli(&["plan", "--out", "plan.terrane"]).expect(4);
    assert_snapshot!(essence(&said), @r#"
    change set c1: plan on `local`
    ✗ bad   denied by policy
    error: cannot write a bundle: a policy denies stack `bad`
    hint: change what the policy denies
    hint: `terrane apply bad --override-policy --reason "…"` plans and applies it without a bundle, in
          an emergency and on the record
    [exit 4]
    "#);
    assert!(!story.project().join("plan.terrane").exists());
}
