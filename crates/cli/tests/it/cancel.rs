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

/// Who runs the tests is not part of the story, nor how often the engine stored its state, nor the words of the
/// provisioner, which name a directory of the test.
pub(crate) fn named(text: &str) -> String {
    let is_ours = |line: &&str| {
        let theirs = ["Error running command", "terrane-test-", "echo slow >>"];
        !theirs.iter().any(|part| line.contains(part))
    };
    let mut out = String::new();
    for line in text.lines().filter(is_ours) {
        let line = line
            .replace("serial 2", "serial N")
            .replace("serial 3", "serial N");
        let asked = ["cancelled by ", "killed by "]
            .iter()
            .find_map(|action| Some((action, line.split_once(action)?)));
        match asked {
            Some((action, (before, after))) => {
                let why = after.split_once(": ").map_or("", |(_, why)| why);
                writeln!(out, "{before}{action}WHO: {why}").unwrap();
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
            assert_snapshot!(named(&essence(&said)), @"
            Cancelling change set c1: engines finish their current work and save their state. Press Ctrl-C to detach.
              top    skipped
            ✗ base   interrupted
            change set c1: apply on `local`, interrupting
            change set c1: apply on `local`, interrupted
            ✗ base   interrupted while applying, after 0 s
                cancelled by WHO: wrong branch
                Error: local-exec provisioner error
                  with terraform_data.slow, on base/main.tf line 11
                Error: execution halted
                state kept: serial N (1 resource changed, 1 begun before the interruption)

            error: change set c1 stopped: 1 interrupted, 1 skipped
            hint: `terrane apply --resume c1` runs what is left
            [exit 0]
            ");
        }
        story.settle();
        let list = story.cli(&["run", "list", "--all"]).expect(0);
        assert!(list.stdout.contains("base    interrupted"), "{list}");
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
    assert_snapshot!(named(&said.stderr), @"
    Cancelling run r1 of `base`: its engine finishes its current work and saves its state. Press Ctrl-C to detach.
    Run r1 of `base` is over: cancelled by WHO: too early; state kept: serial N.
    ");
    let heard = apply.wait();
    assert_snapshot!(named(&essence(&heard)), @"
    change set c1: apply on `local`
      top     skipped: `base` did not succeed
    ✓ other   applied 1 change
    ✗ base    interrupted
    ✗ base    interrupted while applying, after 0 s
        cancelled by WHO: too early
        Error: local-exec provisioner error
          with terraform_data.slow, on base/main.tf line 11
        Error: execution halted
        state kept: serial N (1 resource changed, 1 begun before the interruption)
      top     skipped: `base` did not succeed

    error: change set c1 stopped: 1 interrupted, 1 skipped, 1 applied
    hint: `terrane apply --resume c1` runs what is left
    [exit 130]
    ");
}

#[test]
fn what_has_not_begun_is_skipped() {
    let story = story("tofu");
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    let said = story.cli(&["run", "cancel", "r2"]).expect(0);
    assert_snapshot!(said.stderr, @"
    Cancelling run r2 of `top`, which has not begun.
    Run r2 of `top` is over: skipped, interrupted before it began.
    ");
    story.open("slow");
    let heard = apply.wait();
    assert_snapshot!(essence(&heard), @"
    change set c1: apply on `local`
      top    skipped
    ✓ base   applied 2 changes
    Cancelled after 0 s: 1 stack applied, 1 not begun.
    [exit 130]
    ");
    assert_eq!(story.made(), ["first", "slow"]);
}

#[test]
fn a_kill_says_what_is_lost_and_wants_the_name() {
    let story = story("tofu");
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    let _ = story.cli(&["run", "cancel", "r1", "--kill"]).expect(64);
    // What is said to be lost is read from the log, which follows the engine.
    let log = story.data().join("runs/r1/apply.jsonl");
    story.wait_until("the log of the slow one", || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.contains("terraform_data.slow: Creating")
    });
    let refused = story
        .cli(&["run", "cancel", "r1", "--kill", "--reason", "it hangs"])
        .expect(4);
    assert_snapshot!(refused, @"
    ── stderr
    Run r1 of `base` is applying.
    If its engine is killed now, no state records this:
      no state was stored; the engine
        created `terraform_data.first`, which cannot be imported
        was working on `terraform_data.slow` (create): the result is unknown
    error: nothing was done: its name must be typed, and there is no terminal
    hint: give it with `--confirm r1`
    [exit 4]
    ");
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
    assert_snapshot!(named(&said.stderr), @"
    Run r1 of `base` is applying.
    If its engine is killed now, no state records this:
      no state was stored; the engine
        created `terraform_data.first`, which cannot be imported
        was working on `terraform_data.slow` (create): the result is unknown
    Run r1 of `base` is over: killed by WHO: it hangs.
      no state was stored; the engine
        created `terraform_data.first`, which cannot be imported
        was working on `terraform_data.slow` (create): the result is unknown
    ");
    let _ = apply.wait().expect(1);
    let open = story.cli(&["run", "list", "--open", "--json"]).expect(0);
    let open: serde_json::Value = serde_json::from_str(&open.stdout).unwrap();
    let act = &open["open"][0];
    assert_eq!(
        (&act["act"], &act["reason"]),
        (&"engine_killed".into(), &"it hangs".into()),
        "{open}"
    );
}

#[test]
fn what_is_over_cannot_be_cancelled() {
    let story = Story::new("tofu").stack("one", "", &link("one"));
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let said = story.cli(&["run", "cancel", "r1"]).expect(4);
    assert_snapshot!(said, @"
    ── stderr
    error: run r1 of stack `one` has already ended: applied
    [exit 4]
    ");
    let said = story.cli(&["run", "cancel", "c1"]).expect(4);
    assert_snapshot!(said, @"
    ── stderr
    error: change set c1 has already ended
    [exit 4]
    ");
    let said = story.cli(&["run", "cancel", "r9"]).expect(1);
    assert_snapshot!(said, @"
    ── stderr
    error: there is no run `r9`
    hint: `terrane run list --all` shows them all
    [exit 1]
    ");
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
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains(
            "the time limit `timeout { apply = \"1s\" }` was reached, the engine was interrupted"
        ),
        "{said}"
    );
    // What was done until then is in the state.
    let kept = story.cli(&["state", "list", "base"]).expect(0);
    assert!(kept.stdout.contains("terraform_data.first\n"), "{kept}");
}

#[test]
fn a_time_limit_ends_a_plan_that_hangs() {
    let story = Story::new("tofu").stack("base", "timeout { plan = \"3s\" }", &noted("first"));
    story.engine_script("case \"$*\" in *' plan '*|plan*) WAIT(plan) ;; esac\nexec REAL \"$@\"\n");
    let said = story.cli(&["plan"]).expect(1);
    let said = essence(&said);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("the time limit `timeout { plan = \"3s\" }` was reached"),
        "{said}"
    );
    story.settle();
}

/// Nothing is lost with an engine that only plans: one that hears nothing any more is not waited for.
#[test]
fn a_plan_that_does_not_react_to_its_limit_is_ended() {
    let story = Story::new("tofu").stack("base", "timeout { plan = \"1s\" }", &noted("first"));
    story.engine_script(
        "if [ \"$1\" = plan ]; then trap '' INT; WAIT(plan); fi\nexec REAL \"$@\"\n",
    );
    let plan = story.start("plan", &["plan"]);
    let limit = "the time limit `timeout { plan = \"1s\" }` was reached";
    story.wait_until("the limit in the list", || {
        let list = story.cli(&["run", "list"]).expect(0).stdout;
        let words = list.split_whitespace().collect::<Vec<_>>().join(" ");
        words.contains(&format!(
            "is being interrupted: {limit}; its engine is ended if it does not react"
        ))
    });
    let said = plan.wait().expect(1);
    let said = said.to_string();
    assert!(
        said.contains(&format!(
            "could not plan: {limit}, the engine did not react to its interrupt and was ended"
        )),
        "{said}"
    );
    // And so it is for who does not want to wait.
    let story = Story::new("tofu").stack("base", "", &noted("first"));
    story.engine_script(
        "if [ \"$1\" = plan ]; then trap '' INT; WAIT(plan); fi\nexec REAL \"$@\"\n",
    );
    let plan = story.start("plan", &["plan"]);
    story.wait_for("plan");
    plan.interrupt();
    let said = plan.wait().expect(130);
    assert!(!said.stderr.contains("signal 9"), "{said}");
}
