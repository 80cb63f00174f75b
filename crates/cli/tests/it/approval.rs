//! Nothing is applied that not confirmed to.

use insta::assert_snapshot;

use crate::story::{Story, essence, link, takes};

fn story() -> Story {
    Story::new("tofu")
        .stack("base", "", &link("base"))
        .stack("top", &takes("base"), &link("top"))
}

#[test]
fn without_a_terminal_nothing_is_applied() {
    let story = story();
    let said = story.cli(&["apply"]).expect(3);
    assert_snapshot!(essence(&said), @r#"
    change set c1: apply on `local`

    error: change set c1 waits: no terminal to confirm it
    hint: `terrane run confirm c1` applies it, `terrane run discard c1 --reason "…"` drops it
    hint: the same command with `--auto-approve` applies without confirmation
    [exit 3]
    "#);
    // Each leaves one behind, and says so: what a person asked for is never superseded.
    let again = story.cli(&["apply"]).expect(3);
    assert_snapshot!(essence(&again), @r#"
    change set c2: apply on `local`

    error: change set c2 waits: no terminal to confirm it
    hint: `terrane run confirm c2` applies it, `terrane run discard c2 --reason "…"` drops it
    hint: the same command with `--auto-approve` applies without confirmation
    hint: change set c1 requests the same and waits, too; `terrane run discard c1 --reason "…"` drops it
    [exit 3]
    "#);
    assert!(said.stdout.contains("Plan: 2 to add"), "{said}");
    let _ = story.cli(&["destroy"]).expect(0);
    assert_eq!(story.made(), Vec::<String>::new());
}

#[test]
fn a_plan_says_by_its_exit_code_whether_there_are_changes() {
    let story = story();
    let plan = story.cli(&["plan", "--detailed-exitcode"]).expect(2);
    assert_snapshot!(plan.stdout, @r#"
    change set c1 on `local`

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
    "#);
    let _ = story.cli(&["plan"]).expect(0);
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let plan = story.cli(&["plan", "--detailed-exitcode"]).expect(0);
    assert_snapshot!(plan.stdout, @"
    change set c4 on `local`

    base  no changes
    top   untouched: nothing it consumes changes

    No changes; 1 stack untouched: `--all` plans everything.
    ");
}

#[test]
fn one_stack_whose_upstream_was_never_applied_is_refused_with_the_way() {
    let said = story().cli(&["apply", "top", "--auto-approve"]).expect(1);
    assert_snapshot!(said, @"
    ── stderr
    error: stack `top` needs output `name` of `base`, which does not exist yet
    hint: `terrane apply +top` applies its dependencies first
    [exit 1]
    ");
}

#[test]
fn yes_applies_and_anything_else_does_not() {
    let story = story();
    let mut terminal = story.terminal(&["apply"]);
    terminal.wait_for("Type `yes`");
    terminal.type_line("y");
    let said = terminal.wait().expect(3);
    assert!(
        said.stdout.contains("Nothing was applied: type `yes`"),
        "{said}"
    );
    assert_eq!(story.made(), Vec::<String>::new());

    let mut terminal = story.terminal(&["apply"]);
    terminal.wait_for("Type `yes`");
    terminal.type_line("yes");
    let _ = terminal.wait().expect(0);
    assert_eq!(story.made(), ["base", "top"]);
}

#[test]
fn a_plan_whose_state_moved_before_the_yes_is_not_applied() {
    let story = story();
    let mut terminal = story.terminal(&["apply", "base"]);
    terminal.wait_for("Type `yes`");
    let _ = story.cli(&["apply", "base", "--auto-approve"]).expect(0);
    terminal.type_line("yes");
    let said = terminal.wait().expect(4);
    assert!(
        said.stdout.contains("this plan may no longer be applied"),
        "{said}"
    );
    assert_eq!(story.made(), ["base"]);
    let _ = story
        .cli(&["plan", "base", "--detailed-exitcode"])
        .expect(0);
}

#[test]
fn a_terminal_that_dies_at_the_question_leaves_it_open_for_others() {
    let story = story();
    let terminal = story.terminal(&["apply"]);
    terminal.wait_for("Type `yes`");
    terminal.kill();
    let list = story.cli(&["run", "list"]).expect(0);
    assert!(
        list.stdout
            .contains("confirmation: `terrane run confirm c1`"),
        "{list}"
    );
    let _ = story.cli(&["run", "confirm", "c1"]).expect(0);
    assert_eq!(story.made(), ["base", "top"]);
    let list = story.cli(&["run", "list"]).expect(0);
    assert!(list.stderr.starts_with("Nothing is running."), "{list}");
}

#[test]
fn a_change_set_that_nobody_wants_leaves_no_plan_file() {
    let story = story();
    let _ = story.cli(&["apply", "base"]).expect(3);
    let file = story.data().join("runs/r1/plan.file");
    assert!(file.exists());
    let reason = ["run", "discard", "c1", "--reason", "not this week"];
    let _ = story.cli(&reason).expect(0);
    assert!(
        !file.exists(),
        "a plan holds secrets, and nobody will apply this one"
    );
}

#[test]
fn an_empty_line_and_ctrl_d_are_no_yes() {
    let story = story();
    for typed in ["", "\u{4}"] {
        let mut terminal = story.terminal(&["apply"]);
        terminal.wait_for("Type `yes`");
        terminal.type_line(typed);
        let said = terminal.wait().expect(3);
        assert!(said.stdout.contains("Nothing was applied."), "{said}");
    }
}

#[test]
fn a_change_set_that_waits_is_applied_by_its_name() {
    let story = story();
    let _ = story.cli(&["apply"]).expect(3);
    let said = story.cli(&["apply", "c1"]).expect(0);
    assert!(said.stderr.contains("Done: 2 stacks applied"), "{said}");
    assert_eq!(story.made(), ["base", "top"]);
    let said = story.cli(&["apply", "c9"]).expect(1);
    assert!(
        said.stderr.contains("there is no change set `c9`"),
        "{said}"
    );
}
