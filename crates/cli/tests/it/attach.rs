//! The terminal is only a window: closing it harms nothing, and the same command opens it again.

use insta::assert_snapshot;
use testkit::engines;

use crate::story::{Story, essence, gated, link, takes};

fn story(engine: &str) -> Story {
    let base = gated("slow", "") + "output \"name\" { value = \"base\" }\n";
    Story::new(engine)
        .stack("base", "", &base)
        .stack("middle", &takes("base"), &link("middle"))
        .stack("top", &takes("middle"), &link("top"))
}

#[test]
fn a_killed_terminal_leaves_the_work_to_its_runners() {
    for (engine, _) in engines::all() {
        let story = story(engine);
        let apply = story.start("apply", &["apply", "--auto-approve"]);
        story.wait_for("slow");
        apply.kill();
        assert_eq!(apply.wait().code, None);
        story.open("slow");
        story.wait_until("the last stack", || story.made().len() == 3);
        story.settle();
        assert_eq!(story.made(), ["slow", "middle", "top"]);
        let plan = story.cli(&["plan", "--detailed-exitcode"]);
        let _ = plan.expect(0);
    }
}

#[test]
fn the_same_command_attaches() {
    let story = story("tofu");
    let first = story.start("first", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    let second = story.start("second", &["apply", "--auto-approve"]);
    story.wait_until("the second terminal", || {
        second.stderr_so_far().contains("applying")
    });
    story.open("slow");
    let (first, second) = (first.wait().expect(0), second.wait().expect(0));
    assert_eq!(story.made(), ["slow", "middle", "top"]);
    assert_snapshot!(essence(&first), @"
    change set c1: apply on `local`
    ✓ base     applied 1 change
    ✓ middle   applied 1 change
    ✓ top      applied 1 change
    Done: 3 stacks applied in 0 s.
    [exit 0]
    ");
    assert_snapshot!(essence(&second), @"
    Attached to change set c1, which is already under way.
    ✓ base     applied 1 change
    ✓ middle   applied 1 change
    ✓ top      applied 1 change
    change set c1: apply on `local`
    Done: 3 stacks applied in 0 s.
    [exit 0]
    ");
}

#[test]
fn the_same_command_attaches_after_the_terminal_was_killed() {
    let story = story("tofu");
    let first = story.start("first", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    first.kill();
    let _ = first.wait();
    let second = story.start("second", &["apply", "--auto-approve"]);
    story.wait_until("the second terminal", || {
        second.stderr_so_far().contains("applying")
    });
    story.open("slow");
    let second = second.wait().expect(0);
    assert!(
        second.stderr.starts_with("Attached to change set c1"),
        "{second}"
    );
    assert_eq!(story.made(), ["slow", "middle", "top"]);
}

#[test]
fn an_attached_terminal_can_interrupt() {
    let story = story("tofu");
    let first = story.start("first", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    let second = story.start("second", &["apply", "--auto-approve"]);
    story.wait_until("the second terminal", || {
        second.stderr_so_far().contains("applying")
    });
    second.interrupt();
    let _ = second.wait().expect(130);
    let _ = first.wait().expect(130);
    assert_eq!(story.made(), Vec::<String>::new());
}

#[test]
fn other_values_are_another_request() {
    let base = gated("slow", "") + "variable \"who\" {}\noutput \"who\" { value = var.who }\n";
    let story =
        Story::new("tofu").stack("base", "inputs = { who = env(\"WHO\", \"nobody\") }", &base);
    let first = story.start("first", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    story.open("slow");
    let second = story.cli_with(&[("WHO", "ada")], &["apply", "--auto-approve"]);
    let _ = (first.wait().expect(0), second.expect(0));
    let who = story.cli(&["output", "base", "who"]).expect(0);
    assert_eq!(
        who.stdout.trim(),
        "\"ada\"",
        "the value of the second was never applied"
    );
}
