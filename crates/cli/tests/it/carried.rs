//! An approval is for one plan: it stays valid for an equal one, also after a resume and along a chain.

use std::fs;
use std::path::PathBuf;

use insta::assert_snapshot;
use serde_json::Value;

use crate::story::{Story, link, noted, resource, takes};

/// Who asks is `ada`. Without a server a CI job's word is taken for who it is.
fn story() -> Story {
    let terrane = crate::story::terrane()
        .env("CI", "true")
        .env("GITHUB_ACTOR", "ada");
    Story::on(terrane.env("TERRANE_HOME", "../people"), "tofu")
}

fn approve_as(story: &Story, person: &str) -> testkit::CommandOutput {
    let args = ["run", "approve", "c1"];
    story.cli_with(&[("GITHUB_ACTOR", person)], &args).expect(0)
}

/// What was printed, however it was wrapped.
fn words(said: &testkit::CommandOutput) -> String {
    let words: Vec<&str> = said.stdout.split_whitespace().collect();
    words.join(" ")
}

/// Where what is kept of the first run lies.
fn run_dir(story: &Story) -> PathBuf {
    let mut homes = fs::read_dir(story.root().join("people/projects")).unwrap();
    let home = homes.next().unwrap().unwrap();
    home.path().join("runs/r1")
}

/// Cannot be made whole before `ROOT/mended.go` is there; gives on what is known only after its apply.
fn fragile() -> String {
    let first = resource("first", "", "true");
    let check = "lifecycle {\n    precondition {\n      condition     = terraform_data.first.id == \"\" || \
                 fileexists(\"ROOT/mended.go\")\n      error_message = \"not mended\"\n    }\n  }";
    let base = resource("base", check, "echo base >> ROOT/made");
    format!("{first}{base}output \"name\" {{ value = terraform_data.base.output }}\n")
}

/// Keeps `base` from being applied before `ROOT/mended.go` is there. Nothing changes until then.
fn broken_login(story: Story) -> Story {
    let test = format!("test -e {}/mended.go", story.root().display());
    story.block(&format!(
        "context \"login\" {{\n  autoattach = [\"base\"]\n  hook \"before\" \"apply\" {{ run = [\"sh\", \"-c\", \"{test}\"] }}\n}}"
    ))
}

/// `top` can only be previewed, and was approved as its preview shows it.
fn stopped_after_approval() -> Story {
    let base = noted("base") + "output \"name\" { value = terraform_data.base.output }\n";
    let story = broken_login(story())
        .block(SHARED)
        .stack_on("shared", "base", "", &base)
        .stack_on("shared", "top", &takes("base"), &link("top"));
    let _ = story.cli(&["apply"]).expect(3);
    let _ = approve_as(&story, "eve");
    let _ = story.cli(&["run", "confirm", "c1"]).expect(1);
    assert_eq!(story.made(), Vec::<String>::new());
    story
}

#[test]
fn what_was_approved_as_a_preview_needs_no_second_approval_after_a_retry() {
    let story = stopped_after_approval();
    story.open("mended");
    let _ = story.cli(&["apply", "--resume", "c1"]).expect(3);
    let said = story.cli(&["run", "confirm", "c1"]).expect(0);
    assert_eq!(story.made(), ["base", "top"], "{said}");
}

/// What an apply did before it failed is not in the next plan, so that is another one.
#[test]
fn what_is_left_of_a_failed_apply_is_approved_itself() {
    let story = story()
        .block(SHARED)
        .stack_on("shared", "base", "", &fragile());
    let _ = story.cli(&["apply"]).expect(3);
    let _ = approve_as(&story, "eve");
    let _ = story.cli(&["run", "confirm", "c1"]).expect(1);
    story.open("mended");
    let said = story.cli(&["apply", "--resume", "c1"]).expect(3);
    let new = "new since it was approved: no longer creates `terraform_data.first`";
    assert!(words(&said).contains(new), "{said}");
    let _ = story.cli(&["run", "confirm", "c1"]).expect(3);
    assert_eq!(story.made(), Vec::<String>::new());
    let _ = approve_as(&story, "eve");
    let _ = story.cli(&["run", "confirm", "c1"]).expect(0);
    assert_eq!(story.made(), ["base"]);
}

#[test]
fn a_preview_of_another_source_is_approved_itself() {
    let story = stopped_after_approval();
    story.open("mended");
    let more = format!("{}{}", link("top"), resource("more", "", "true"));
    story.module("top", &more);
    let _ = story.cli(&["apply", "--resume", "c1"]).expect(3);
    let said = story.cli(&["run", "confirm", "c1"]).expect(3);
    assert_snapshot!(said, @r#"
    change set c1 on `shared`

    base  + 1 add
      + terraform_data.base
          input   "base"
          known after apply: id, output
      outputs
        + name   (known after apply)

    top   + 2 add
      deferred: `name` is known after `base`; new since it was approved: creates `terraform_data.more`,
      which was not in the plan
      + terraform_data.more
          input   "more"
          known after apply: id, output
      + terraform_data.top
          input   "top"
          known after apply: id, output
      outputs
        + id     (known after apply)
        + name   (known after `base`)

    Plan: 3 to add, 0 to change, 0 to replace, 0 to destroy, in 2 of 2 stacks.
    ── stderr
    error: cannot confirm change set c1 yet
           0 of 1 approval; not the author; `eve` approved another plan (target `shared`)
    hint: `terrane run approve c1` approves it
    [exit 3]
    "#);
    let _ = approve_as(&story, "eve");
    let _ = story.cli(&["run", "confirm", "c1"]).expect(0);
    assert_eq!(story.made(), ["base", "top"]);
}

fn mark(story: &Story) -> String {
    let shown = story.cli(&["run", "show", "c1", "--json"]).expect(0);
    let document: Value = serde_json::from_str(&shown.stdout).unwrap();
    document["plan"].as_str().unwrap().to_owned()
}

/// A plan may be made afresh between the look at it and the word about it.
#[test]
fn who_names_the_plan_they_saw_approves_no_other() {
    let story = stopped_after_approval();
    story.open("mended");
    let _ = story.cli(&["apply", "--resume", "c1"]).expect(3);
    let seen = mark(&story);
    let discard = ["run", "discard", "c1", "--reason", "one thing more"];
    let _ = story.cli(&discard).expect(0);
    let more = format!("{}{}", link("top"), resource("more", "", "true"));
    story.module("top", &more);
    let _ = story.cli(&["apply", "--resume", "c1"]).expect(3);
    let approve = |mark: &str| {
        let args = ["run", "approve", "c1", "--plan", mark];
        story.cli_with(&[("GITHUB_ACTOR", "eve")], &args)
    };
    let said = approve(&seen).expect(4);
    assert_snapshot!(said.to_string().replace(&seen, "SEEN"), @"
    ── stderr
    error: nothing was approved: plan `SEEN` is not the current plan of change set `c1`
    hint: `terrane run show c1 --plan` shows the current plan and its name
    [exit 4]
    ");
    let now = mark(&story);
    let plan = story.cli(&["run", "show", "c1", "--plan"]).expect(0);
    let named = format!("`terrane run approve c1 --plan {now}`");
    assert!(plan.stderr.contains(&named), "{plan}");
    let _ = approve(&now).expect(0);
    let _ = story.cli(&["run", "confirm", "c1"]).expect(0);
}

#[test]
fn what_was_approved_and_not_started_needs_no_second_approval() {
    let story = story()
        .block("target \"shared\" {\n  writers = [\"anyone\"]\n  approval { count = 1 }\n}")
        .stack_on("shared", "base", "", &link("base"))
        .stack_on("shared", "top", &takes("base"), &link("top"));
    let _ = story.cli(&["apply"]).expect(3);
    let _ = approve_as(&story, "eve");
    let discard = ["run", "discard", "c1", "--reason", "not before lunch"];
    let _ = story.cli(&discard).expect(0);
    let _ = story.cli(&["apply", "--resume", "c1"]).expect(3);
    let _ = story.cli(&["run", "confirm", "c1"]).expect(0);
    assert_eq!(story.made(), ["base", "top"]);
}

/// Whatever was said of its preview.
#[test]
fn a_stack_that_is_approved_by_itself_is_approved_as_it_is_applied() {
    let story = story().stack("base", "", &link("base")).stack(
        "top",
        &format!("{}\n  approval {{ scope = \"stack\" }}", takes("base")),
        &link("top"),
    );
    let approve = ["run", "approve", "r2"];
    let by_eve = || story.cli_with(&[("GITHUB_ACTOR", "eve")], &approve);
    let _ = story.cli(&["apply"]).expect(3);
    let _ = by_eve();
    let _ = story.cli(&["run", "confirm", "c1"]).expect(3);
    assert_eq!(story.made(), ["base"]);
    let _ = by_eve().expect(0);
    let _ = story.cli(&["run", "confirm", "c1"]).expect(0);
    assert_eq!(story.made(), ["base", "top"]);
}

fn chain(rego: &str) -> Story {
    let story = story()
        .stack("one", "", &link("one"))
        .stack("two", &takes("one"), &link("two"))
        .stack("three", &takes("two"), &link("three"));
    story.write("policies/owners.rego", rego);
    story.block("policy \"owners\" {\n  path = \"policies/owners.rego\"\n}")
}

/// Each of them wants an approval, and each was seen by who gave it.
#[test]
fn one_approval_is_enough_for_a_chain_under_a_policy() {
    let story = chain("package terrane\nrequire_approval contains {\"msg\": \"two look at it\"}\n");
    let _ = story.cli(&["apply"]).expect(3);
    let _ = approve_as(&story, "eve");
    let said = story.cli(&["run", "confirm", "c1"]).expect(0);
    assert_eq!(story.made(), ["one", "two", "three"], "{said}");
}

const SHARED: &str = "target \"shared\" {\n  writers = [\"anyone\"]\n  approval { count = 1 }\n}";

/// `top` takes a value that is known only after `base` was applied, under a policy.
fn unknown(policy: &str, rego: &str) -> Story {
    let story = story()
        .block(SHARED)
        .stack_on("shared", "base", "", &of_value("X"))
        .stack_on("shared", "top", &takes("base"), &link("top"));
    story.write("policies/values.rego", &format!("package terrane\n{rego}"));
    let policy = format!("policy \"values\" {{\n  path = \"policies/values.rego\"\n  {policy}\n}}");
    story.block(&policy)
}

fn of_value(value: &str) -> String {
    format!(
        "resource \"terraform_data\" \"base\" {{ input = \"{value}\" }}\noutput \"name\" {{ value = terraform_data.base.output }}\n"
    )
}

const SEES_VALUE: &str = "require_approval contains {\"msg\": \"a value that somebody should see\"} if \
     startswith(input.plan.output_changes.name.after, \"top after\")\n";

/// What a policy wants because of a value was not known to who approved the preview, whatever else it wanted there.
#[test]
fn an_approval_that_nobody_knew_to_be_wanted_is_asked_for() {
    let also = format!("require_approval contains {{\"msg\": \"two look at it\"}}\n{SEES_VALUE}");
    for (policy, rego) in [
        ("", SEES_VALUE),
        ("", also.as_str()),
        ("at = [\"approval\"]", SEES_VALUE),
    ] {
        let story = unknown(policy, rego);
        let _ = story.cli(&["apply"]).expect(3);
        let _ = approve_as(&story, "eve");
        let _ = story.cli(&["run", "confirm", "c1"]).expect(3);
        assert_eq!(story.made(), Vec::<String>::new(), "{policy} {rego}");
        let _ = approve_as(&story, "eve");
        let _ = story.cli(&["run", "confirm", "c1"]).expect(0);
        assert_eq!(story.made(), ["top"]);
    }
}

/// Who approved one value, having seen it, did not approve another.
#[test]
fn what_was_looked_at_is_what_is_approved() {
    let story = unknown("", SEES_VALUE);
    let _ = story.cli(&["apply", "--auto-approve"]).expect(3);
    let _ = approve_as(&story, "eve");
    let waits = || story.cli(&["run", "show", "c1", "--plan"]).stdout;
    story.wait_until("the plan of top", || waits().contains("top after X"));
    story.module("base", &of_value("Y"));
    let _ = story.cli(&["apply", "base", "--auto-approve"]).expect(3);
    let args = ["run", "approve", "c2"];
    let _ = story.cli_with(&[("GITHUB_ACTOR", "eve")], &args).expect(0);
    let value = || story.cli(&["output", "base", "name", "--raw"]).stdout;
    story.wait_until("the other value", || value() == "Y");
    let _ = approve_as(&story, "eve");
    story.wait_until("a fresh plan", || waits().contains("top after Y"));
    assert_eq!(story.made(), Vec::<String>::new());
}

fn by_whom(command: &str) -> String {
    let module = resource("base", "", command);
    let also = "variable \"also\" {\n  default = \"\"\n}\n";
    format!("variable \"who\" {{\n  type = string\n}}\n{also}{module}")
}

/// The plan is the same, and what is done is not: by the source, by a program, by a value.
#[test]
fn what_no_plan_shows_is_approved_as_it_is() {
    type Change = fn(&Story);
    let command: Change = |story| {
        story.module("base", &by_whom("echo evil by ${var.who} >> ROOT/made"));
    };
    let program: Change = |story| {
        story.write("login.sh", "#!/bin/sh\ntrue\n");
    };
    let linked: Change = |story| {
        story.write("tools/go.sh", "#!/bin/sh\ntrue\n");
    };
    let nothing: Change = |_| {};
    let changes = [
        ("mallory", "ada", nothing),
        ("ada", "mallory", nothing),
        ("ada", "ada", command),
        ("ada", "ada", program),
        ("ada", "ada", linked),
    ];
    for (who, of_environment, change) in changes {
        let story = story()
            .block("context \"login\" {\n  autoattach = [\"*\"]\n  pass_env = [\"TF_VAR_*\"]\n  hook \"before\" \"apply\" { run = [\"./login.sh\", env(\"REGION\", \"eu\")] }\n}")
            .block("policy \"owners\" {\n  path = \"owners.rego\"\n  at = [\"plan\"]\n}")
            .stack(
                "base",
                "inputs = { who = env(\"WHO\") }",
                &by_whom("echo by ${var.who} >> ROOT/made"),
            );
        story.write(
            "owners.rego",
            "package terrane\nrequire_approval contains {\"msg\": \"two look at it\"}\n",
        );
        story.write("login.sh", "#!/bin/sh\nexit 0\n");
        let _ = story.shell("chmod +x login.sh").expect(0);
        let _ = story
            .shell("mkdir tools && echo true > tools/go.sh && ln -s ../tools/go.sh base/go.sh")
            .expect(0);
        let with = |who: &str, args: &[&str]| {
            let env = [("WHO", who), ("TF_VAR_also", "ada")];
            story.cli_with(&env, args)
        };
        let _ = with("ada", &["apply"]).expect(3);
        let _ = approve_as(&story, "eve");
        let discard = ["run", "discard", "c1", "--reason", "not before lunch"];
        let _ = with("ada", &discard).expect(0);
        change(&story);
        let env = [("WHO", who), ("TF_VAR_also", of_environment)];
        let _ = story.cli_with(&env, &["apply", "--resume", "c1"]).expect(3);
        let said = story.cli_with(&env, &["run", "confirm", "c1"]).expect(3);
        assert!(said.stderr.contains("approved another plan"), "{said}");
        assert_eq!(story.made(), Vec::<String>::new());
    }
}

/// A value that was known when it was approved may come back as anything.
#[test]
fn a_value_that_is_not_known_any_more_is_approved_again() {
    let known = "output \"name\" { value = \"X\" }\n";
    let top = by_whom("echo by ${var.who} >> ROOT/made");
    let story = story().block(SHARED).stack("base", "", known).stack_on(
        "shared",
        "top",
        "inputs = { who = stack.base.output.name }",
        &top,
    );
    let _ = story.cli(&["apply", "base", "--auto-approve"]).expect(0);
    let _ = story.cli(&["apply"]).expect(3);
    let approve = || {
        let args = ["run", "approve", "c2"];
        let _ = story.cli_with(&[("GITHUB_ACTOR", "eve")], &args).expect(0);
    };
    approve();
    let discard = ["run", "discard", "c2", "--reason", "not before lunch"];
    let _ = story.cli(&discard).expect(0);
    story.module("base", &of_value("X"));
    let said = story.cli(&["apply", "--resume", "c2"]).expect(3);
    let new = "new since it was approved: input `who` is not known yet";
    assert!(words(&said).contains(new), "{said}");
    let _ = story.cli(&["run", "confirm", "c2"]).expect(3);
    assert_eq!(story.made(), Vec::<String>::new());
    approve();
    let _ = story.cli(&["run", "confirm", "c2"]).expect(0);
    assert_eq!(story.made(), ["by X"]);
}

/// What was kept of a plan that was never shown, because its run died first, is not what anybody approved.
#[test]
fn a_plan_that_was_not_recorded_is_compared_with_nothing() {
    let story = story()
        .block(SHARED)
        .stack_on("shared", "base", "", &noted("base"));
    let _ = story.cli(&["apply"]).expect(3);
    let _ = approve_as(&story, "eve");
    let discard = ["run", "discard", "c1", "--reason", "not before lunch"];
    let _ = story.cli(&discard).expect(0);
    let more = format!("{}{}", noted("base"), resource("more", "", "true"));
    story.module("base", &more);
    // It cannot be written beside what later plans are compared with.
    let plan = run_dir(&story).join("plan.file");
    fs::remove_file(&plan).unwrap_or_default();
    fs::create_dir(&plan).unwrap();
    let _ = story.cli(&["apply", "--resume", "c1"]).expect(1);
    fs::remove_dir(&plan).unwrap();
    let _ = story.cli(&["apply", "--resume", "c1"]).expect(3);
    let said = story.cli(&["run", "confirm", "c1"]).expect(3);
    assert!(said.stderr.contains("approved another plan"), "{said}");
    assert_eq!(story.made(), Vec::<String>::new());
}

/// What cannot be read any more is not known any more: it is asked about, and nothing hangs.
#[test]
fn where_what_was_seen_is_gone_it_is_asked_again() {
    let story = story()
        .block(SHARED)
        .stack_on("shared", "base", "", &noted("base"));
    let _ = story.cli(&["apply"]).expect(3);
    let _ = approve_as(&story, "eve");
    let discard = ["run", "discard", "c1", "--reason", "not before lunch"];
    let _ = story.cli(&discard).expect(0);
    fs::write(run_dir(&story).join("plan.difference"), "").unwrap();
    let _ = story.cli(&["apply", "--resume", "c1"]).expect(3);
    let _ = story.cli(&["run", "confirm", "c1"]).expect(3);
    let _ = approve_as(&story, "eve");
    let _ = story.cli(&["run", "confirm", "c1"]).expect(0);
    assert_eq!(story.made(), ["base"]);
}

/// A policy may want one person to look at the plan, and two to agree.
#[test]
fn what_policies_want_at_two_points_is_wanted_of_the_same_plan_once() {
    let rego = "package terrane\nrequire_approval contains {\"msg\": \"look\", \"count\": 1} if \
                input.run.phase == \"plan\"\nrequire_approval contains {\"msg\": \"look\", \"count\": 2} if \
                input.run.phase == \"approval\"\n";
    let story = broken_login(story()).stack("base", "", &link("base"));
    story.write("two.rego", rego);
    let story =
        story.block("policy \"two\" {\n  path = \"two.rego\"\n  at = [\"plan\", \"approval\"]\n}");
    let _ = story.cli(&["apply"]).expect(3);
    for person in ["eve", "dan"] {
        let _ = approve_as(&story, person);
    }
    let _ = story.cli(&["run", "confirm", "c1"]).expect(1);
    story.open("mended");
    let _ = story.cli(&["apply", "--resume", "c1"]).expect(3);
    let said = story.cli(&["run", "confirm", "c1"]).expect(0);
    assert_eq!(story.made(), ["base"], "{said}");
}

/// What was approved is still approved; nobody wants it done any more.
#[test]
fn a_discard_takes_the_yes_back() {
    let story = story()
        .stack("base", "", &link("base"))
        .stack("top", "", &link("top"));
    let _ = story.cli(&["apply"]).expect(3);
    let hold = ["hold", "add", "top", "--reason", "migration"];
    let _ = story.cli(&hold).expect(0);
    let _ = story.cli(&["run", "confirm", "c1"]).expect(3);
    assert_eq!(story.made(), ["base"]);
    let discard = ["run", "discard", "c1", "--reason", "dangerous"];
    let _ = story.cli(&discard).expect(0);
    let _ = story.cli(&["hold", "release", "top"]).expect(0);
    let _ = story.cli(&["apply", "--resume", "c1"]).expect(3);
    assert_eq!(story.made(), ["base"]);
}

/// Also where it had failed before somebody said so.
#[test]
fn a_discard_takes_the_yes_back_of_what_was_over() {
    let story = story()
        .stack("base", "", &fragile())
        .stack("top", "", &link("top"));
    let _ = story.cli(&["apply"]).expect(3);
    let hold = ["hold", "add", "top", "--reason", "migration"];
    let _ = story.cli(&hold).expect(0);
    let _ = story.cli(&["run", "confirm", "c1"]);
    let discard = ["run", "discard", "c1", "--reason", "dangerous"];
    let _ = story.cli(&discard).expect(0);
    story.open("mended");
    let _ = story.cli(&["run", "retry", "r1"]).expect(3);
    assert_eq!(story.made(), Vec::<String>::new());
}

/// Who overrides policies does not override people, and people can say so.
#[test]
fn an_override_of_policies_waits_for_approvals_and_gets_them() {
    let story = story()
        .block(SHARED)
        .stack_on("shared", "base", "", &link("base"));
    story.write("no.rego", "package terrane\ndeny contains \"no\"\n");
    let story = story.block("policy \"no\" {\n  path = \"no.rego\"\n}");
    let apply = ["apply", "--override-policy", "--reason", "the site is down"];
    let _ = story.cli(&apply).expect(3);
    let _ = approve_as(&story, "eve");
    let _ = story.cli(&["run", "confirm", "c1"]).expect(0);
    assert_eq!(story.made(), ["base"]);
}
