//! Two terminals at once: applies of one target come one after another, plans wait for nobody.

use crate::story::{Story, gated, noted};

fn story() -> Story {
    Story::new("tofu")
        .block("target \"other\" { writers = [\"anyone\"] }")
        .stack("first", "", &gated("first", ""))
        .stack("second", "", &noted("second"))
        .stack_on("other", "far", "", &noted("far"))
}

#[test]
fn the_second_apply_of_a_target_waits_and_says_for_whom() {
    let story = story();
    let first = story.start("first", &["apply", "first", "--auto-approve"]);
    story.wait_for("first");
    let second = story.start("second", &["apply", "second", "--auto-approve"]);
    let title = "change set c2: apply on `local`, waits for change set c1 to release the lane";
    story.wait_until("the second in the queue", || {
        second.stderr_so_far().lines().any(|line| line == title)
    });
    assert_eq!(story.made(), Vec::<String>::new());
    story.open("first");
    let _ = first.wait().expect(0);
    let _ = second.wait().expect(0);
    assert_eq!(story.made(), ["first", "second"]);
}

#[test]
fn plans_and_other_targets_do_not_wait() {
    let story = story();
    let first = story.start("first", &["apply", "first", "--auto-approve"]);
    story.wait_for("first");
    let plan = story.cli(&["plan", "first", "second", "--detailed-exitcode"]);
    let _ = plan.expect(2);
    let far = story.cli(&["apply", "far", "--auto-approve"]);
    let _ = far.expect(0);
    assert_eq!(story.made(), ["far"]);
    story.open("first");
    let _ = first.wait().expect(0);
}

#[test]
fn a_queued_apply_that_is_interrupted_leaves_the_queue() {
    let story = story();
    let first = story.start("first", &["apply", "first", "--auto-approve"]);
    story.wait_for("first");
    let second = story.start("second", &["apply", "second", "--auto-approve"]);
    story.wait_until("the second in the queue", || {
        second.stderr_so_far().contains("waits for change set c1")
    });
    second.interrupt();
    let _ = second.wait().expect(130);
    story.open("first");
    let _ = first.wait().expect(0);
    story.settle();
    assert_eq!(story.made(), ["first"]);
}

#[test]
fn a_queued_apply_goes_on_without_its_terminal() {
    let story = story();
    let first = story.start("first", &["apply", "first", "--auto-approve"]);
    story.wait_for("first");
    let second = story.start("second", &["apply", "second", "--auto-approve"]);
    story.wait_until("the second in the queue", || {
        second.stderr_so_far().contains("waits for change set c1")
    });
    second.kill();
    let _ = second.wait();
    // Somebody else who looks does not take it for left over.
    let _ = story.cli(&["apply", "far", "--auto-approve"]).expect(0);
    story.open("first");
    let _ = first.wait().expect(0);
    story.wait_until("the second", || story.made().len() == 3);
    assert_eq!(story.made(), ["far", "first", "second"]);
}

#[test]
fn a_queued_apply_whose_values_went_with_its_terminal_is_stopped() {
    let story = Story::on(crate::story::terrane().env("OWNER", "me"), "tofu")
        .stack("first", "", &gated("first", ""))
        .stack(
            "second",
            "inputs = { from = env(\"OWNER\") }",
            &crate::story::link("second"),
        );
    let first = story.start("first", &["apply", "first", "--auto-approve"]);
    story.wait_for("first");
    let second = story.start("second", &["apply", "second", "--auto-approve"]);
    story.wait_until("the second in the queue", || {
        second.stderr_so_far().contains("waits for change set c1")
    });
    second.kill();
    let _ = second.wait();
    story.open("first");
    let _ = first.wait().expect(0);
    story.settle();
    assert_eq!(story.made(), ["first"]);
    let _ = story.cli(&["apply", "second", "--auto-approve"]).expect(0);
    assert_eq!(story.made(), ["first", "second"]);
}

#[test]
fn the_queue_follows_the_yes_not_the_question() {
    let story = story().stack("third", "", &noted("third"));
    let first = story.start("first", &["apply", "first", "--auto-approve"]);
    story.wait_for("first");
    let mut asked = story.terminal(&["apply", "second"]);
    asked.wait_for("Type `yes`");
    let third = story.start("third", &["apply", "third", "--auto-approve"]);
    story.wait_until("the third in the queue", || {
        third.stderr_so_far().contains("waits for change set c1")
    });
    asked.type_line("yes");
    asked.wait_for("waits for change set");
    story.open("first");
    let _ = first.wait().expect(0);
    let _ = third.wait().expect(0);
    let _ = asked.wait().expect(0);
    assert_eq!(story.made(), ["first", "third", "second"]);
}

#[test]
fn a_queued_apply_outlives_a_dead_one_in_front() {
    let story = story();
    let first = story.start("first", &["apply", "first", "--auto-approve"]);
    story.wait_for("first");
    let second = story.start("second", &["apply", "second", "--auto-approve"]);
    story.wait_until("the second in the queue", || {
        second.stderr_so_far().contains("waits for change set c1")
    });
    first.kill();
    let _ = first.wait();
    testkit::kill(story.runner("r1"));
    story.open("first");
    let _ = second.wait().expect(0);
    assert_eq!(story.made(), ["first", "second"]);
    let again = story.cli(&["plan", "--detailed-exitcode", "target:local"]);
    let _ = again.expect(0);
}

#[test]
fn the_same_command_attaches_to_one_in_the_queue() {
    let story = story();
    let first = story.start("first", &["apply", "first", "--auto-approve"]);
    story.wait_for("first");
    let second = story.start("second", &["apply", "second", "--auto-approve"]);
    story.wait_until("the second in the queue", || {
        second.stderr_so_far().contains("waits for change set c1")
    });
    let again = story.start("again", &["apply", "second", "--auto-approve"]);
    story.wait_until("the attached one", || {
        again.stderr_so_far().contains("Attached to change set c2")
    });
    story.open("first");
    for said in [first.wait(), second.wait(), again.wait()] {
        let _ = said.expect(0);
    }
    assert_eq!(story.made(), ["first", "second"]);
}

#[test]
fn a_list_says_for_whom_everything_waits() {
    let story = story().stack("third", "", &noted("third"));
    let first = story.start("first", &["apply", "first", "--auto-approve"]);
    story.wait_for("first");
    let second = story.start("second", &["apply", "second", "--auto-approve"]);
    story.wait_until("the second in the queue", || {
        second.stderr_so_far().contains("waits for change set c1")
    });
    let third = story.start("third", &["apply", "third", "--auto-approve"]);
    story.wait_until("the third in the queue", || {
        third.stderr_so_far().contains("waits for change set")
    });
    let list = story.cli(&["run", "list", "--json"]).expect(0);
    let list: serde_json::Value = serde_json::from_str(&list.stdout).unwrap();
    let why = |set: &str| {
        let sets = list["change_sets"].as_array().unwrap();
        let set = sets.iter().find(|it| it["change_set"] == set).unwrap();
        set["runs"][0]["why"].clone()
    };
    assert_eq!(why("c1"), serde_json::Value::Null);
    assert_eq!(
        why("c2"),
        "lane `local` is held by change set c1 (0 of 1 done)"
    );
    assert_eq!(
        why("c3"),
        "lane `local` is held by change set c1 (0 of 1 done); before it in the line: c2"
    );
    story.open("first");
    for apply in [first, second, third] {
        let _ = apply.wait().expect(0);
    }
    assert_eq!(story.made(), ["first", "second", "third"]);
}

#[test]
fn with_a_lane_for_each_stack_only_those_that_share_one_wait() {
    let story = Story::new("tofu")
        .block("target \"wide\" {\n  writers = [\"anyone\"]\n  lane    = \"stack\"\n}")
        .stack_on("wide", "first", "", &gated("first", ""))
        .stack_on("wide", "second", "", &noted("second"));
    let first = story.start("first", &["apply", "first", "--auto-approve"]);
    story.wait_for("first");
    let _ = story.cli(&["apply", "second", "--auto-approve"]).expect(0);
    assert_eq!(story.made(), ["second"]);
    let both = story.start("both", &["apply", "first", "second", "--auto-approve"]);
    story.wait_until("both in the queue", || {
        both.stderr_so_far().contains("waits for change set c1")
    });
    story.open("first");
    let _ = first.wait().expect(0);
    let _ = both.wait().expect(0);
    assert_eq!(story.made(), ["second", "first"]);
}

#[test]
fn a_terminal_that_is_suspended_does_not_stop_the_line() {
    let story = story().stack("third", "", &noted("third"));
    let first = story.start("first", &["apply", "first", "--auto-approve"]);
    story.wait_for("first");
    let second = story.start("second", &["apply", "second", "--auto-approve"]);
    story.wait_until("the second in the queue", || {
        second.stderr_so_far().contains("waits for change set c1")
    });
    let stop = |signal: &str| {
        let sent = story.shell(&format!("kill -s {signal} {}", second.pid()));
        let _ = sent.expect(0);
    };
    stop("STOP");
    story.open("first");
    let _ = first.wait().expect(0);
    let list = story.cli(&["run", "list"]).expect(0);
    assert!(
        list.stdout.contains("first in the queue"),
        "what waits is to say why\n{list}"
    );
    let _ = story.cli(&["apply", "third", "--auto-approve"]).expect(0);
    assert_eq!(story.made(), ["first", "second", "third"]);
    stop("CONT");
    let _ = second.wait().expect(0);
}

/// A lane is not held by who is at nothing: its runner is gone, and its terminal does not look.
#[test]
fn a_suspended_terminal_without_a_runner_does_not_hold_the_lane() {
    let story = story();
    let first = story.start("first", &["apply", "first", "--auto-approve"]);
    story.wait_for("first");
    let signal = |signal: &str| {
        let sent = story.shell(&format!("kill -s {signal} {}", first.pid()));
        let _ = sent.expect(0);
    };
    signal("STOP");
    let runner = story.runner("r1");
    story.kill_engine("r1");
    testkit::kill(runner);
    let _ = story.cli(&["apply", "second", "--auto-approve"]).expect(0);
    assert_eq!(story.made(), ["second"]);
    signal("CONT");
    let _ = first.wait().expect(1);
}

#[test]
fn who_goes_on_with_what_others_left_in_the_line_is_told() {
    let story = story();
    let first = story.start("first", &["apply", "first", "--auto-approve"]);
    story.wait_for("first");
    let second = story.start("second", &["apply", "second", "--auto-approve"]);
    story.wait_until("the second in the queue", || {
        second.stderr_so_far().contains("waits for change set c1")
    });
    for apply in [first, second] {
        apply.kill();
        let _ = apply.wait();
    }
    testkit::kill(story.runner("r1"));
    story.kill_engine("r1");
    let said = story.cli(&["plan", "far"]).expect(0);
    assert!(
        said.stderr
            .contains("Change set c2 continues: what it waited for is over"),
        "{said}"
    );
    story.wait_until("the second", || story.made() == ["second"]);
}

/// What an upstream gives is just being replaced: who would take it now takes what is gone in a moment.
#[test]
fn nothing_is_applied_onto_what_another_set_is_applying() {
    let module =
        |text: String, value: &str| format!("{text}output \"v\" {{ value = \"{value}\" }}\n");
    let story = Story::new("tofu")
        .block("target \"apart\" {\n  writers = [\"anyone\"]\n  lane    = \"stack\"\n}")
        .stack_on("apart", "base", "", &module(noted("base"), "one"))
        .stack_on(
            "apart",
            "top",
            "wait   = \"applied\"\n  inputs = { from = stack.base.output.v }",
            &crate::story::link("top"),
        );
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    story.module("base", &module(gated("again", ""), "two"));
    story.module("top", &crate::story::link("more"));
    let base = story.start("base", &["apply", "base", "--auto-approve"]);
    story.wait_for("again");
    let top = story.cli(&["apply", "top", "--auto-approve"]).expect(4);
    assert!(
        top.stderr.contains(
            "nothing was applied: its dependency `base` is being applied by change set c2"
        ),
        "{top}"
    );
    story.open("again");
    let _ = base.wait().expect(0);
    let _ = story.cli(&["apply", "top", "--auto-approve"]).expect(0);
    assert_eq!(story.made(), ["base", "top", "again", "more"]);
}

/// A target is held as a whole, however many lanes it has.
#[test]
fn a_target_whose_stacks_have_their_own_lanes_can_be_held() {
    let story = Story::new("tofu")
        .block("target \"apart\" {\n  writers = [\"anyone\"]\n  lane    = \"stack\"\n}")
        .stack_on("apart", "base", "", &noted("base"))
        .stack("apart", "", &noted("other"));
    // A stack may have the name of a target.
    let hold = ["hold", "add", "target:apart", "--reason", "migration"];
    let said = story.cli(&hold).expect(0);
    assert!(
        said.stderr.starts_with("Held lane `apart` until "),
        "{said}"
    );
    let refused = story.cli(&["apply", "base", "--auto-approve"]).expect(4);
    assert!(refused.stderr.contains("migration"), "{refused}");
    let _ = story.cli(&["apply", "apart", "--auto-approve"]).expect(0);
    let _ = story.cli(&["hold", "release", "target:apart"]).expect(0);
    let _ = story.cli(&["apply", "base", "--auto-approve"]).expect(0);
    assert_eq!(story.made(), ["other", "base"]);
}

/// A plan may take as long as it likes: it does not work where applies do.
#[test]
fn an_apply_waits_for_no_plan_of_another_source() {
    let story =
        Story::new("tofu")
            .stack("slow", "", &noted("slow"))
            .stack("quick", "", &noted("quick"));
    story.engine_script("case \"$PWD $1\" in *slow\\ plan) WAIT(plan) ;; esac\nexec REAL \"$@\"\n");
    let plan = story.start("plan", &["plan", "slow"]);
    story.wait_for("plan");
    story.write("README.md", "another source\n");
    let _ = story.cli(&["apply", "quick", "--auto-approve"]).expect(0);
    assert_eq!(story.made(), ["quick"]);
    story.open("plan");
    let _ = plan.wait().expect(0);
}

#[test]
fn with_a_lane_for_each_stack_applies_of_two_sources_go_side_by_side() {
    let story = Story::new("tofu")
        .block("target \"many\" {\n  writers = [\"anyone\"]\n  lane = \"stack\"\n}")
        .stack_on("many", "first", "", &gated("first", ""))
        .stack_on("many", "second", "", &noted("second"));
    let first = story.start("first", &["apply", "first", "--auto-approve"]);
    story.wait_for("first");
    story.write("README.md", "another source\n");
    let _ = story.cli(&["apply", "second", "--auto-approve"]).expect(0);
    assert_eq!(story.made(), ["second"]);
    story.open("first");
    let _ = first.wait().expect(0);
}

/// A branch may say otherwise of a target than what is being applied: it is one target all the same.
#[test]
fn a_target_and_its_stacks_are_not_applied_side_by_side() {
    let (whole, wide) = (
        "{ writers = [\"anyone\"] }",
        "{\n  writers = [\"anyone\"]\n  lane    = \"stack\"\n}",
    );
    for (then, now) in [(whole, wide), (wide, whole)] {
        let story = Story::new("tofu")
            .block(&format!("target \"one\" {then}"))
            .stack_on("one", "first", "", &gated("first", ""))
            .stack_on("one", "second", "", &noted("second"));
        let first = story.start("first", &["apply", "first", "--auto-approve"]);
        story.wait_for("first");
        let file = story.read("terrane.hcl").replace(then, now);
        story.write("terrane.hcl", &file);
        let second = story.start("second", &["apply", "second", "--auto-approve"]);
        story.wait_until("the second in the queue", || {
            second.stderr_so_far().contains("waits for change set c1")
        });
        assert_eq!(story.made(), Vec::<String>::new());
        story.open("first");
        let _ = first.wait().expect(0);
        let _ = second.wait().expect(0);
    }
}
