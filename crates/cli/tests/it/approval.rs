//! Nothing is applied that nobody said yes to.

use insta::assert_snapshot;

use crate::story::{Story, link, takes};

fn story() -> Story {
    Story::new("tofu")
        .stack("base", "", &link("base"))
        .stack("top", &takes("base"), &link("top"))
}

#[test]
fn without_a_terminal_nothing_is_applied() {
    let story = story();
    let said = story.cli(&["apply"]).expect(3);
    assert_snapshot!(said.stderr.lines().skip(1).filter(|line| !line.starts_with("00:")).collect::<Vec<_>>().join("\n"), @"");
    assert!(said.stdout.contains("Plan: 1 to add"), "{said}");
    let _ = story.cli(&["destroy"]).expect(0);
    assert_eq!(story.made(), Vec::<String>::new());
}

#[test]
fn a_plan_says_by_its_exit_code_whether_there_are_changes() {
    let story = story();
    let plan = story.cli(&["plan", "--detailed-exitcode"]).expect(2);
    assert_snapshot!(plan.stdout, @"");
    let _ = story.cli(&["plan"]).expect(0);
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let plan = story.cli(&["plan", "--detailed-exitcode"]).expect(0);
    assert_snapshot!(plan.stdout, @"");
}

#[test]
fn one_stack_whose_upstream_was_never_applied_is_refused_with_the_way() {
    let said = story().cli(&["apply", "top", "--auto-approve"]).expect(1);
    assert_snapshot!(said, @"");
}

#[test]
fn yes_applies_and_anything_else_does_not() {
    let story = story();
    let mut terminal = story.terminal(&["apply"]);
    terminal.wait_for("Only `yes`");
    terminal.type_line("y");
    let _ = terminal.wait().expect(0);
    assert_eq!(story.made(), Vec::<String>::new());

    let mut terminal = story.terminal(&["apply"]);
    terminal.wait_for("Only `yes`");
    terminal.type_line("yes");
    let _ = terminal.wait().expect(0);
    assert_eq!(story.made(), ["base", "top"]);
}

#[test]
fn a_plan_whose_state_moved_before_the_yes_is_not_applied() {
    let story = story();
    let mut terminal = story.terminal(&["apply", "base"]);
    terminal.wait_for("Only `yes`");
    let _ = story.cli(&["apply", "base", "--auto-approve"]).expect(0);
    terminal.type_line("yes");
    let said = terminal.wait().expect(4);
    assert!(said.stdout.contains("this plan may no longer be applied"), "{said}");
    assert_eq!(story.made(), ["base"]);
    let _ = story.cli(&["plan", "base", "--detailed-exitcode"]).expect(0);
}
