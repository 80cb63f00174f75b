//! A run or a change set is ended from another terminal.

use std::fmt::Write as _;

use insta::assert_snapshot;
use testkit::engines;

use crate::story::{Story, essence, gated, link, noted, takes};

fn story(engine: &str) -> Story {
    let base = format!(
        "{}{}output \"name\" {{ value = \"base\" }}\n",
        noted("first"),
        gated("slow", "depends_on = [terraform_data.first]")
    );
    Story::new(engine)
        .stack("base", "", &base)
        .stack("top", &takes("base"), &link("top"))
}

/// Who runs the tests is not part of the story.
fn named(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        match line.split_once("ed by ") {
            Some((before, after)) => {
                let why = after.split_once(": ").map_or("", |(_, why)| why);
                writeln!(out, "{before}ed by WHO: {why}").unwrap();
            }
            None => writeln!(out, "{line}").unwrap(),
        }
    }
    out
}

#[test]
fn a_change_set_without_a_terminal_is_interrupted_and_waited_for() {
    for (engine, _) in engines::all() {
        let story = story(engine);
        let apply = story.start("apply", &["apply", "--auto-approve"]);
        story.wait_for("slow");
        apply.kill();
        let _ = apply.wait();
        let said = story
            .cli(&["run", "cancel", "c1", "--reason", "wrong branch"])
            .expect(0);
        insta::allow_duplicates! {
            assert_snapshot!(named(&essence(&said)), @"");
        }
        story.settle();
        // What was done is in the state; nothing of it is done again.
        story.open("slow");
        let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
        let made = story.made();
        assert_eq!(
            made.iter().filter(|one| *one == "first").count(),
            1,
            "{made:?}"
        );
    }
}

#[test]
fn a_run_is_cancelled_alone_and_the_terminal_hears_of_it() {
    let story = story("tofu").stack("other", "", &link("other"));
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    let said = story
        .cli(&["run", "cancel", "r1", "--reason", "too early"])
        .expect(0);
    assert_snapshot!(named(&said.stderr), @"");
    let heard = apply.wait();
    assert_snapshot!(named(&essence(&heard)), @"");
}

#[test]
fn what_has_not_begun_is_skipped() {
    let story = story("tofu");
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    let said = story.cli(&["run", "cancel", "r2"]).expect(0);
    assert_snapshot!(said.stderr, @"");
    story.open("slow");
    let heard = apply.wait();
    assert_snapshot!(essence(&heard), @"");
    assert_eq!(story.made(), ["first", "slow"]);
}

#[test]
fn a_kill_says_what_is_lost_and_wants_the_name() {
    let story = story("tofu");
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    let _ = story.cli(&["run", "cancel", "r1", "--kill"]).expect(64);
    let refused = story
        .cli(&["run", "cancel", "r1", "--kill", "--reason", "it hangs"])
        .expect(4);
    assert_snapshot!(refused, @"");
    let wrong = story
        .cli(&[
            "run",
            "cancel",
            "r1",
            "--kill",
            "--reason",
            "it hangs",
            "--confirm",
            "r2",
        ])
        .expect(4);
    assert!(
        wrong.stderr.contains("`r2` is not its name"),
        "{}",
        wrong.stderr
    );
    let said = story
        .cli(&[
            "run",
            "cancel",
            "r1",
            "--kill",
            "--reason",
            "it hangs",
            "--confirm",
            "r1",
        ])
        .expect(0);
    assert_snapshot!(named(&said.stderr), @"");
    let _ = apply.wait().expect(1);
}

#[test]
fn what_is_over_cannot_be_cancelled() {
    let story = Story::new("tofu").stack("one", "", &link("one"));
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let said = story.cli(&["run", "cancel", "r1"]).expect(4);
    assert_snapshot!(said, @"");
    let said = story.cli(&["run", "cancel", "c1"]).expect(4);
    assert_snapshot!(said, @"");
    let said = story.cli(&["run", "cancel", "r9"]).expect(1);
    assert_snapshot!(said, @"");
}

#[test]
fn a_time_limit_interrupts_and_is_named() {
    // A limit that is long enough for `init`, and short enough for a test.
    let story = Story::new("tofu").stack(
        "base",
        "timeout { apply = \"1s\" }",
        &(noted("first") + &gated("slow", "depends_on = [terraform_data.first]")),
    );
    let said = story.cli(&["apply", "--auto-approve"]).expect(1);
    let said = essence(&said);
    assert!(
        said.contains(
            "the time limit `timeout { apply = \"1s\" }` was reached, the engine was interrupted"
        ),
        "{said}"
    );
}
