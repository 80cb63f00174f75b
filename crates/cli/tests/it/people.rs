//! What other people have a say in: approvals, holds, confirming elsewhere, and trying again.

use insta::assert_snapshot;

use crate::story::{Story, essence, gated, link, noted, takes};

/// Who asks is `ada`; `eve` and `bob` are others. Without a server a CI job's word is taken for who it is.
fn story(approval: &str) -> Story {
    let terrane = crate::story::terrane()
        .env("CI", "true")
        .env("GITHUB_ACTOR", "ada");
    let terrane = terrane.env("TERRANE_HOME", "../people");
    Story::on(terrane, "tofu")
        .block(&format!(
            "target \"shared\" {{\n  writers = [\"anyone\"]\n  {approval}\n}}"
        ))
        .stack_on("shared", "base", "", &link("base"))
        .stack_on("shared", "top", &takes("base"), &link("top"))
}

/// One command of somebody else.
fn as_person(story: &Story, person: &str, args: &[&str]) -> testkit::CommandOutput {
    story.cli_with(&[("GITHUB_ACTOR", person)], args)
}

#[test]
fn another_person_approves_and_then_it_is_confirmed() {
    let story = story("approval {\n    role = \"approver\"\n  }");
    let said = story.cli(&["apply"]).expect(3);
    assert_snapshot!(essence(&said), @"
    change set c1: apply on `shared`


    Change set c1 awaits approval:
      target `shared`: 0 of 1 approval; role `approver`, not the author
        `terrane run approve c1 --role approver`
    Then `terrane run confirm c1` starts it.
    [exit 3]
    ");
    let said = story.cli(&["run", "confirm", "c1"]).expect(3);
    assert_snapshot!(said, @r#"
    change set c1 on `shared`

    base  + 1 add
      + terraform_data.base
          input   "base"
          known after apply: id, output
      outputs
        + id     (known after apply)
        + name   "base after nobody"

    top   + 1 add                                deferred: planned after `base`
      + terraform_data.top
          input   "top"
          known after apply: id, output
      outputs
        + id     (known after apply)
        + name   "top after base after nobody"

    Plan: 2 to add, 0 to change, 0 to replace, 0 to destroy, in 2 of 2 stacks.
    ── stderr
    error: cannot confirm change set c1 yet
           0 of 1 approval; role `approver`, not the author (target `shared`)
    hint: `terrane run approve c1 --role approver` approves it
    [exit 3]
    "#);
    let said = as_person(
        &story,
        "ada",
        &["run", "approve", "c1", "--role", "approver"],
    )
    .expect(0);
    assert_snapshot!(said, @"
    ── stderr
    Approved change set c1 as `ada` (not verified).
    Its plan: 2 to add, 0 to change, 0 to replace, 0 to destroy, in 2 stacks; made 00:00 ago.
    It does not count for target `shared`: `ada` asked for it.
    Pending: 0 of 1 approval; role `approver`, not the author; `ada` asked for it (target `shared`)
    ");
    let said = as_person(
        &story,
        "eve",
        &[
            "run",
            "approve",
            "c1",
            "--role",
            "approver",
            "--comment",
            "fine",
        ],
    )
    .expect(0);
    assert_snapshot!(said, @"
    ── stderr
    Approved change set c1 as `eve` (not verified).
    Its plan: 2 to add, 0 to change, 0 to replace, 0 to destroy, in 2 stacks; made 00:00 ago.
    `terrane run confirm c1` starts it.
    ");
    assert_eq!(
        story.made(),
        Vec::<String>::new(),
        "approving is not starting"
    );
    let _ = story.cli(&["run", "confirm", "c1"]).expect(0);
    assert_eq!(story.made(), ["base", "top"]);
    let again = story.cli(&["run", "confirm", "c1"]).expect(4);
    assert_snapshot!(again, @"
    ── stderr
    error: nothing was changed: change set `c1` is finished and cannot be confirmed
    hint: `terrane run show c1` shows its history
    [exit 4]
    ");
}

#[test]
fn what_was_approved_beforehand_goes_on_with_the_last_approval() {
    let story = story("approval { count = 2 }");
    let said = story.cli(&["apply", "--auto-approve"]).expect(3);
    assert!(said.stderr.contains("0 of 2 approvals"), "{said}");
    let _ = as_person(&story, "eve", &["run", "approve", "c1"]).expect(0);
    assert_eq!(story.made(), Vec::<String>::new());
    let _ = as_person(&story, "bob", &["run", "approve", "c1"]).expect(0);
    story.wait_until("both stacks", || story.made().len() == 2);
}

#[test]
fn a_stack_of_its_own_stops_the_rest_before_it() {
    let terrane = crate::story::terrane()
        .env("CI", "true")
        .env("GITHUB_ACTOR", "ada")
        .env("TERRANE_HOME", "../people");
    let story = Story::on(terrane, "tofu")
        .stack("dev", "", &link("dev"))
        .stack(
            "prod",
            "after = [stack.dev]\n  approval { scope = \"stack\" }",
            &link("prod"),
        );
    let _ = story.cli(&["apply", "--auto-approve"]).expect(3);
    let prod = || {
        let list = story.cli(&["run", "list"]).expect(0);
        list.stdout.contains("awaiting approval")
    };
    story.wait_until("the question for prod", prod);
    assert_eq!(story.made(), ["dev"]);
    let list = story.cli(&["run", "list", "--json"]).expect(0);
    assert!(
        list.stdout
            .contains("0 of 1 approval; not the author for r2"),
        "{list}"
    );
    let _ = as_person(&story, "eve", &["run", "approve", "r2"]).expect(0);
    story.wait_until("prod", || story.made().len() == 2);
}

#[test]
fn a_rejected_change_set_stops_with_the_reason() {
    let story = story("");
    let _ = story.cli(&["apply"]).expect(3);
    let said = as_person(
        &story,
        "eve",
        &["run", "reject", "c1", "--reason", "not today"],
    )
    .expect(0);
    assert_snapshot!(said, @"
    ── stderr
    Rejected change set c1.
    ");
    let _ = story.cli(&["run", "confirm", "c1"]).expect(4);
    let list = story.cli(&["run", "list", "--all"]).expect(0);
    assert!(
        list.stdout.contains("rejected by `eve`: not today"),
        "{list}"
    );
    let show = story.cli(&["run", "show", "c1"]).expect(0);
    assert!(
        show.stdout.contains("rejected by `eve`: not today"),
        "{show}"
    );
    assert_eq!(story.made(), Vec::<String>::new());
}

#[test]
fn a_no_sticks() {
    let story = story("");
    let _ = story.cli(&["apply"]).expect(3);
    let reject = ["run", "reject", "c1", "--reason", "not today"];
    let _ = as_person(&story, "eve", &reject).expect(0);
    let said = story
        .cli(&["apply", "--resume", "c1", "--auto-approve"])
        .expect(4);
    assert_snapshot!(said, @"
    ── stderr
    error: change set `c1` was rejected by `eve`: not today
    hint: `terrane apply` requests a new one, with its own approvals
    [exit 4]
    ");
    let _ = story.cli(&["apply"]).expect(3);
    let discard = ["run", "discard", "c2", "--reason", "nor tomorrow"];
    let _ = story.cli(&discard).expect(0);
    let said = story
        .cli(&["apply", "--resume", "--auto-approve"])
        .expect(1);
    assert_snapshot!(said, @"
    ── stderr
    error: nothing to resume: no change set is stopped
    hint: `terrane run list --all` lists all change sets
    [exit 1]
    ");
    assert_eq!(story.made(), Vec::<String>::new());
}

#[test]
fn a_declined_destroy_is_not_resumed() {
    let story = story("");
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let _ = story.cli(&["destroy"]).expect(3);
    let discard = ["run", "discard", "c2", "--reason", "no"];
    let _ = story.cli(&discard).expect(0);
    let said = story
        .cli(&["apply", "--resume", "c2", "--auto-approve"])
        .expect(4);
    assert_snapshot!(said, @"
    ── stderr
    error: cannot resume change set `c2`: it destroys stacks
    hint: `terrane destroy` plans the remaining stacks again
    [exit 4]
    ");
    let plan = story.cli(&["plan", "--all", "--detailed-exitcode"]);
    let _ = plan.expect(0);
}

#[test]
fn a_held_stack_is_planned_and_not_applied() {
    let story = story("");
    let said = story
        .cli(&["hold", "add", "top", "--for", "2d", "--reason", "migration"])
        .expect(0);
    assert!(said.stderr.starts_with("Held stack `top` until "), "{said}");
    let _ = story.cli(&["plan"]).expect(0);
    let said = story.cli(&["apply", "--auto-approve"]).expect(4);
    assert!(
        said.stderr
            .contains("stack `top` is held by `ada`: migration"),
        "{said}"
    );
    let _ = story.cli(&["apply", "base", "--auto-approve"]).expect(0);
    let _ = story.cli(&["hold", "release", "top"]).expect(0);
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(story.made(), ["base", "top"]);
    let _ = story
        .cli(&["hold", "add", "shared", "--reason", "quota"])
        .expect(0);
    let said = story.cli(&["apply", "--auto-approve"]).expect(4);
    assert!(said.stderr.contains("lane `shared` is held"), "{said}");
}

#[test]
fn a_resume_runs_what_is_left_on_the_source_as_it_is_now() {
    let broken = "resource \"terraform_data\" \"x\" {\n  provisioner \"local-exec\" { command = \"exit 3\" }\n}\n\
                  output \"name\" { value = \"x\" }\n";
    let story = story("").stack_on("shared", "mid", "after = [stack.base]", broken);
    let story = story.stack_on("shared", "last", "after = [stack.mid]", &link("last"));
    let said = story.cli(&["apply", "--auto-approve"]).expect(1);
    assert!(said.stderr.contains("terrane apply --resume c1"), "{said}");
    assert_eq!(story.made(), ["base", "top"]);
    story.module("mid", &link("mid"));
    let _ = story
        .cli(&["apply", "--resume", "--auto-approve"])
        .expect(0);
    assert_eq!(story.made(), ["base", "top", "mid", "last"]);
    let said = story.cli(&["apply", "--resume", "c1"]).expect(1);
    assert_snapshot!(said, @"
    ── stderr
    error: cannot resume change set `c1`: it is finished, not stopped
    hint: `terrane run list --all` lists all change sets
    [exit 1]
    ");
}

#[test]
fn what_was_resumed_and_waits_is_not_taken_for_an_older_one() {
    let broken = "resource \"terraform_data\" \"x\" {\n  provisioner \"local-exec\" { command = \"exit 3\" }\n}\n";
    let story = story("").stack_on("shared", "bad", "", broken);
    let apply = ["apply", "bad", "--auto-approve"];
    let _ = story.cli(&apply).expect(1);
    let _ = story.cli(&apply).expect(1);
    let waits = story.cli(&["apply", "--resume"]).expect(3);
    let end = waits.stderr.split("error: ").last().unwrap_or_default();
    assert_snapshot!(end, @r#"
    change set c2 waits: no terminal to confirm it
    hint: `terrane run confirm c2` applies it, `terrane run discard c2 --reason "…"` drops it
    "#);
    let again = story.cli(&["apply", "--resume", "--auto-approve"]);
    assert_snapshot!(again.expect(4), @"
    ── stderr
    error: change set c2 awaits confirmation and is newer than the stopped change set c1
    hint: `terrane run confirm c2` applies it
    hint: `terrane apply --resume c1` continues the older one
    [exit 4]
    ");
    for again in [
        &["apply", "--resume", "c2", "--auto-approve"][..],
        &["run", "retry", "r2", "--auto-approve"],
    ] {
        insta::allow_duplicates! { assert_snapshot!(story.cli(again).expect(1), @r#"
        ── stderr
        error: cannot resume change set `c2`: it is awaiting confirmation, not stopped
        hint: `terrane run confirm c2` applies it
        hint: `terrane run discard c2 --reason "…"` drops it
        [exit 1]
        "#); }
    }
}

#[test]
fn a_resume_plans_again_what_moved_since() {
    let broken = "resource \"terraform_data\" \"x\" {\n  provisioner \"local-exec\" { command = \"exit 3\" }\n}\n";
    let story = story("").stack_on("shared", "last", "after = [stack.top]", broken);
    let story = story.stack_on("shared", "alone", "", &link("alone"));
    let story = story.stack_on("shared", "edited", "", &link("edited"));
    let _ = story.cli(&["apply", "--auto-approve"]).expect(1);
    let made = || {
        let mut made = story.made();
        made.sort();
        made
    };
    assert_eq!(made(), ["alone", "base", "edited", "top"]);
    // While it stood still, one was tainted, one was edited, and the cause was mended.
    let taint = ["exec", "base", "--", "taint", "terraform_data.base"];
    let _ = story.cli(&taint).expect(0);
    story.module("edited", &link("edited-again"));
    story.module("last", &link("last"));
    let said = story
        .cli(&["apply", "--resume", "c1", "--auto-approve"])
        .expect(0);
    assert_snapshot!(essence(&said), @"
    Resumed change set c1.
      top      no changes
    ✓ alone    applied before
    ✓ base     applied 1 change
    ✓ edited   applied 2 changes
    ✓ last     applied 2 changes
    `base` is planned again: its state was serial 1, now it is serial 2.
    `edited` is planned again: its source changed since.
    change set c1: apply on `shared`
    Done: 3 stacks applied, 1 applied before, 1 unchanged in 0 s.
    [exit 0]
    ");
    let twice = [
        "alone",
        "base",
        "base",
        "edited",
        "edited-again",
        "last",
        "top",
    ];
    assert_eq!(made(), twice);
}

#[test]
fn a_dependent_runs_again_only_for_what_it_consumes() {
    let story = story("");
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let plan = story.cli(&["plan"]).expect(0);
    assert_snapshot!(plan.stdout, @"
    change set c2 on `shared`

    base  no changes
    top   untouched: nothing it consumes changes

    No changes; 1 stack untouched: `--all` plans everything.
    ");
    let named = story.cli(&["plan", "top"]).expect(0);
    assert!(named.stdout.contains("top  no changes"), "{named}");
    let all = story.cli(&["plan", "--all"]).expect(0);
    assert!(all.stdout.contains("top   no changes"), "{all}");
}

#[test]
fn what_was_confirmed_goes_on_with_the_end_of_a_hold() {
    let story = story("");
    let _ = story.cli(&["apply"]).expect(3);
    // A part of what was confirmed is held: the rest goes on, and that waits.
    let hold = ["hold", "add", "top", "--reason", "migration"];
    let _ = story.cli(&hold).expect(0);
    let _ = story.cli(&["run", "confirm", "c1"]);
    story.settle();
    assert_eq!(story.made(), ["base"]);
    let said = story.cli(&["hold", "release", "top"]).expect(0);
    assert_snapshot!(said, @"
    ── stderr
    Released stack `top`, held by `ada`: migration
    Change set c1 continues; follow it with `terrane run logs -f c1`.
    ");
    story.wait_until("top", || story.made().len() == 2);
    assert_eq!(story.made(), ["base", "top"]);
}

#[test]
fn what_was_confirmed_goes_on_when_a_hold_runs_out() {
    let story = story("");
    let _ = story.cli(&["apply"]).expect(3);
    let hold = [
        "hold",
        "add",
        "top",
        "--for",
        "10s",
        "--reason",
        "migration",
    ];
    let _ = story.cli(&hold).expect(0);
    let _ = story.cli(&["run", "confirm", "c1"]);
    story.settle();
    assert_eq!(story.made(), ["base"]);
    story.wait_until("the end of the hold", || {
        let held = story.cli(&["hold", "list"]).expect(0);
        held.stderr.contains("Nothing is held")
    });
    let list = story.cli(&["run", "list"]).expect(0);
    assert!(
        list.stdout
            .contains("nothing any more: run `terrane run confirm c1`"),
        "what waits for nobody is not to ask for a yes\n{list}"
    );
    // Whoever comes next in this project sees that it may go on.
    let said = story.cli(&["plan", "base"]).expect(0);
    assert!(said.stderr.contains("Change set c1 continues"), "{said}");
    story.wait_until("top", || story.made().len() == 2);
    assert_eq!(story.made(), ["base", "top"]);
}

#[test]
fn what_nobody_said_yes_to_waits_on_after_a_hold() {
    let story = story("");
    let _ = story.cli(&["apply"]).expect(3);
    let hold = ["hold", "add", "shared", "--reason", "quota"];
    let _ = story.cli(&hold).expect(0);
    let said = story.cli(&["hold", "release", "shared"]).expect(0);
    assert_snapshot!(said, @"
    ── stderr
    Released lane `shared`, held by `ada`: quota
    Change set c1 waits for confirmation: `terrane run confirm c1`.
    ");
    assert_eq!(story.made(), Vec::<String>::new());
}

#[test]
fn an_approval_that_is_too_old_no_longer_counts() {
    let story = story("approval {\n    expires = \"1s\"\n  }");
    let _ = story.cli(&["apply"]).expect(3);
    let _ = as_person(&story, "eve", &["run", "approve", "c1"]).expect(0);
    let refused = || {
        let said = story.cli(&["run", "confirm", "c1"]);
        (said.code == Some(3)).then(|| said.to_string())
    };
    // Whoever is quick enough may confirm; this one waits until nobody may.
    story.wait_until("the end of the approval", || {
        let list = story.cli(&["run", "list"]).expect(0);
        list.stdout.contains("0 of 1 approval")
    });
    let said = refused().expect("an approval that is over");
    assert!(said.contains("cannot confirm change set"), "{said}");
    assert_eq!(story.made(), Vec::<String>::new());
}

#[test]
fn a_hold_is_shown_wherever_it_has_effect() {
    let story = story("");
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    story.module("top", &link("top-again"));
    let hold = ["hold", "add", "top", "--reason", "migration"];
    let _ = as_person(&story, "eve", &hold).expect(0);
    for args in [
        &["plan"][..],
        &["plan", "top"],
        &["run", "list"],
        &["state", "list"],
    ] {
        let said = story.cli(args).expect(0).to_string();
        let is_named = said.contains("top") && said.contains("eve") && said.contains("migration");
        assert!(is_named, "{args:?}\n{said}");
    }
    // It has no effect on others.
    let said = story.cli(&["plan", "base"]).expect(0);
    assert!(!said.to_string().contains("migration"), "{said}");
    let edit = [
        "state",
        "rm",
        "top",
        "terraform_data.top",
        "--reason",
        "x",
        "--auto-approve",
    ];
    let said = story.cli(&edit).expect(0);
    assert!(
        said.stderr
            .contains("stack `top` is held by `eve`: migration"),
        "{said}"
    );
}

#[test]
fn what_was_said_yes_to_waits_for_a_hold_and_says_so() {
    let broken = "resource \"terraform_data\" \"x\" {\n  provisioner \"local-exec\" { command = \"exit 3\" }\n}\n";
    let story = story("").stack_on("shared", "last", "after = [stack.top]", broken);
    let _ = story.cli(&["apply", "--auto-approve"]).expect(1);
    story.module("base", &link("base-again"));
    story.module("last", &link("last"));
    let hold = ["hold", "add", "base", "--reason", "migration"];
    let _ = story.cli(&hold).expect(0);
    let said = story
        .cli(&["apply", "--resume", "--auto-approve"])
        .expect(3);
    let words = said.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("change set c1 waits: stack `base` is held by"),
        "{said}"
    );
    assert!(
        words.contains("`terrane hold release base` ends it"),
        "{said}"
    );
}

#[test]
fn what_waits_for_a_word_while_others_are_applied_says_so() {
    let terrane = crate::story::terrane()
        .env("CI", "true")
        .env("GITHUB_ACTOR", "ada")
        .env("TERRANE_HOME", "../people");
    let story = Story::on(terrane, "tofu")
        .stack("slow", "", &gated("slow", ""))
        .stack(
            "own",
            "approval {\n    scope = \"stack\"\n    count = 1\n  }",
            &noted("own"),
        );
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    let why = || {
        let list = story.cli(&["run", "list", "--json"]).expect(0);
        let list: serde_json::Value = serde_json::from_str(&list.stdout).unwrap();
        let runs = list["change_sets"][0]["runs"].as_array().unwrap().clone();
        let own = runs.into_iter().find(|run| run["stack"] == "own").unwrap();
        own["why"].as_str().unwrap_or_default().to_owned()
    };
    story.wait_until("the plan of `own`", || {
        let list = story.cli(&["run", "list", "--json"]).expect(0);
        list.stdout.contains("\"planned\"")
    });
    assert_eq!(
        why(),
        "0 of 1 approval; not the author for r1 (stack `own`)"
    );
    let said = as_person(&story, "bob", &["run", "approve", "r1"]).expect(0);
    assert_snapshot!(said, @"
    ── stderr
    Approved run r1 as `bob` (not verified).
    Its plan: 1 to add, 0 to change, 0 to replace, 0 to destroy, in 1 stack; made 00:00 ago.
    Change set c1 continues.
    ");
    // It has nothing to do with what is being applied.
    story.wait_until("the apply of `own`", || story.made() == ["own"]);
    story.open("slow");
    let _ = apply.wait().expect(0);
}

#[test]
fn what_is_not_planned_yet_cannot_be_approved() {
    let story = story("approval {}");
    story.engine_script("case $1 in plan) WAIT(plan) ;; esac\nexec REAL \"$@\"\n");
    let apply = story.start("apply", &["apply"]);
    story.wait_for("plan");
    assert_snapshot!(as_person(&story, "eve", &["run", "approve", "c1"]).expect(4), @"
    ── stderr
    error: cannot approve change set c1: it is still being planned
    hint: `terrane run show c1 --plan` shows the plan once it exists
    [exit 4]
    ");
    story.open("plan");
    let _ = apply.wait().expect(3);
    let _ = as_person(&story, "eve", &["run", "approve", "c1"]).expect(0);
}

/// The terminal that brought values sees to what needs them.
#[test]
fn what_is_approved_and_needs_values_is_begun_by_who_watches() {
    let test = crate::story::terrane()
        .env("CI", "true")
        .env("GITHUB_ACTOR", "ada")
        .env("TERRANE_HOME", "../people")
        .env("STORY_TOKEN", "tok-77ab0c9e12");
    let own = "approval {\n    scope = \"stack\"\n    count = 1\n  }";
    let story = Story::on(test, "tofu")
        .block(
            "context \"api\" {\n  autoattach = [\"quick\"]\n  env = { API_TOKEN = secret(\"env:STORY_TOKEN\") }\n}",
        )
        .stack("slow", "", &gated("slow", ""))
        .stack("quick", own, &noted("quick"));
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    story.wait_until("the plan", || {
        let list = story.cli(&["run", "list"]).stdout;
        list.contains("0 of 1 approval")
    });
    let _ = as_person(&story, "bob", &["run", "approve", "r1"]).expect(0);
    story.wait_until("the other apply", || story.made() == ["quick"]);
    story.open("slow");
    let _ = apply.wait().expect(0);
}

/// Values are what is approved as much as code is: who puts them in asks for them.
#[test]
fn who_says_yes_with_other_values_does_not_approve_them() {
    let terrane = crate::story::terrane()
        .env("CI", "true")
        .env("GITHUB_ACTOR", "ada")
        .env("TERRANE_HOME", "../people");
    let story = Story::on(terrane, "tofu")
        .block("target \"shared\" {\n  writers = [\"anyone\"]\n  approval { count = 1 }\n}")
        .block("context \"login\" {\n  autoattach = [\"*\"]\n  env = { LOGIN = env(\"LOGIN\") }\n}")
        .stack_on(
            "shared",
            "base",
            "inputs = { from = env(\"FROM\") }",
            &link("base"),
        );
    let with = |person: &str, from: &str, args: &[&str]| {
        let values = [("GITHUB_ACTOR", person), ("FROM", from), ("LOGIN", person)];
        story.cli_with(&values, args)
    };
    let _ = with("ada", "ada", &["apply", "--auto-approve"]).expect(3);
    let _ = with("bob", "ada", &["run", "approve", "c1"]).expect(0);
    let said = with("bob", "bob", &["run", "confirm", "c1"]).expect(3);
    assert!(
        said.stderr.contains("`bob` approved another plan"),
        "{said}"
    );
    let said = with("bob", "bob", &["run", "approve", "c1"]).expect(0);
    assert_snapshot!(said, @"
    ── stderr
    Approved change set c1 as `bob` (not verified).
    Its plan: 1 to add, 0 to change, 0 to replace, 0 to destroy, in 1 stack; made 00:00 ago.
    It does not count for target `shared`: `bob` asked for it.
    Pending: 0 of 1 approval; not the author; `bob` approved another plan; `bob` asked for it (target `shared`)
    ");
    let _ = with("bob", "bob", &["run", "confirm", "c1"]).expect(3);
    assert_eq!(story.made(), Vec::<String>::new());
    let _ = with("eve", "bob", &["run", "approve", "c1"]).expect(0);
    let _ = with("eve", "bob", &["run", "confirm", "c1"]).expect(0);
    assert_eq!(story.made(), ["base"]);
}

/// What was not known when it was approved is not whatever somebody puts in later: by an expression, or by a variable that
/// nobody had set.
#[test]
fn values_put_into_what_was_deferred_are_approved_themselves() {
    let expression = "inputs = { from = \"${env(\"FROM\")}-${stack.base.output.id}\" }";
    let passed = "after = [stack.base]";
    for (top, variable) in [(expression, "FROM"), (passed, "TF_VAR_from")] {
        let terrane = crate::story::terrane()
            .env("CI", "true")
            .env("GITHUB_ACTOR", "ada")
            .env("FROM", "ada")
            .env("TERRANE_HOME", "../people");
        let story = Story::on(terrane, "tofu")
            .block("target \"shared\" {\n  writers = [\"anyone\"]\n  approval { count = 1 }\n}")
            .block(
                "context \"vars\" {\n  autoattach = [\"label:x\"]\n  pass_env = [\"TF_VAR_*\"]\n}",
            )
            .stack_on("shared", "base", "", &link("base"))
            .stack_on(
                "shared",
                "top",
                &format!("labels = [\"x\"]\n{top}"),
                &link("top"),
            );
        let by = |person: &str, args: &[&str]| story.cli_with(&[("GITHUB_ACTOR", person)], args);
        let with = |person: &str, args: &[&str]| {
            story.cli_with(&[("GITHUB_ACTOR", person), (variable, "dan")], args)
        };
        let _ = by("ada", &["apply", "--auto-approve"]).expect(3);
        let _ = by("cat", &["run", "approve", "c1"]).expect(0);
        let said = with("dan", &["run", "confirm", "c1"]).expect(3);
        assert!(
            said.stderr.contains("`cat` approved another plan"),
            "{said}"
        );
        assert!(
            !story.made().contains(&"top".to_owned()),
            "values that nobody approved were applied"
        );
        let _ = with("cat", &["run", "approve", "c1"]).expect(0);
        let _ = with("dan", &["run", "confirm", "c1"]).expect(0);
        assert_eq!(story.made(), ["base", "top"]);
    }
}

/// What only opens doors is everybody's own.
#[test]
fn who_says_yes_with_a_login_of_their_own_is_no_author() {
    let terrane = crate::story::terrane()
        .env("CI", "true")
        .env("GITHUB_ACTOR", "ada")
        .env("TERRANE_HOME", "../people");
    let story = Story::on(terrane, "tofu")
        .block("target \"shared\" {\n  writers = [\"anyone\"]\n  approval { count = 1 }\n}")
        .block("context \"login\" {\n  autoattach = [\"*\"]\n  env = { LOGIN = env(\"LOGIN\") }\n}")
        .stack_on("shared", "base", "", &link("base"))
        .stack_on(
            "shared",
            "top",
            "inputs = { from = stack.base.output.id }",
            &link("top"),
        );
    let with = |person: &str, args: &[&str]| {
        story.cli_with(&[("GITHUB_ACTOR", person), ("LOGIN", person)], args)
    };
    let _ = with("ada", &["apply"]).expect(3);
    let _ = with("bob", &["run", "approve", "c1"]).expect(0);
    let _ = with("bob", &["run", "confirm", "c1"]).expect(0);
    assert_eq!(story.made(), ["base", "top"]);
}

/// Commands of provisioners and hooks are in no plan.
#[test]
fn what_a_plan_does_not_show_is_approved_with_its_source() {
    let module = |value: &str, command: &str| {
        format!(
            "resource \"terraform_data\" \"solo\" {{\n  triggers_replace = \"{value}\"\n  \
             provisioner \"local-exec\" {{ command = \"{command}\" }}\n}}\n"
        )
    };
    let story = story("approval {\n    count = 1\n  }");
    let story = story.stack_on("shared", "solo", "", &module("1", "true"));
    let approved = |set: &str| {
        let _ = story.cli(&["apply", "solo"]).expect(3);
        let _ = as_person(&story, "eve", &["run", "approve", set]).expect(0);
    };
    let move_state = || {
        for (from, to) in [("solo", "other"), ("other", "solo")] {
            let names = [from, to].map(|name| format!("terraform_data.{name}"));
            let exec = ["exec", "solo", "--reason", "a try", "--", "state", "mv"];
            let _ = story
                .cli(&[&exec[..], &[&names[0], &names[1]]].concat())
                .expect(0);
        }
    };
    approved("c1");
    let _ = story.cli(&["run", "confirm", "c1"]).expect(0);

    story.module("solo", &module("2", "true"));
    approved("c2");
    move_state();
    let _ = story.cli(&["run", "confirm", "c2"]).expect(4);
    story.module("solo", &module("2", "echo another"));
    let said = story.cli(&["apply", "--resume", "c2"]).expect(3);
    let new = "new since it was approved: its own source changed";
    assert!(said.stdout.contains(new), "{said}");
    assert!(said.stderr.contains("0 of 1 approval"), "{said}");
    let _ = as_person(&story, "eve", &["run", "approve", "c2"]).expect(0);
    let _ = story.cli(&["run", "confirm", "c2"]).expect(0);
}
