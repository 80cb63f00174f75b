//! A runner is killed: its engine goes on alone, what it made is found, and the next command goes on from
//! there.

use insta::assert_snapshot;
use testkit::engines;

use crate::story::{Story, essence, gated, holding, link, noted, resource, takes, terrane};

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

#[test]
fn while_applying_the_engine_goes_on_and_its_state_is_found() {
    for (engine, _) in engines::all() {
        let story = story(engine);
        let apply = story.start("apply", &["apply", "--auto-approve"]);
        story.wait_for("slow");
        testkit::kill(story.runner("r1"));
        story.open("slow");
        // The terminal waits for the engine, which nobody but the lock knows of any more.
        let said = apply.wait().expect(1);
        insta::allow_duplicates! {
            assert_snapshot!(essence(&said), @"
            change set c1: apply on `local`
              top    skipped: `base` did not succeed
            ? base   unknown: its runner was lost
            ? base   unknown: lost while applying, after 0 s
                its runner was lost while applying: the result is unknown
                the state that could not be delivered was found and kept as serial 1
                next step: a new plan shows which resources exist
              top    skipped: `base` did not succeed

            error: change set c1 stopped: 1 unknown, 1 skipped
            hint: `terrane plan base` shows what is left to do in `base`
            [exit 1]
            ");
        }
        assert_eq!(story.made(), ["first", "slow"]);

        let again = story.cli(&["apply", "--auto-approve"]).expect(0);
        insta::allow_duplicates! {
            assert_snapshot!(essence(&again), @"
            change set c2: apply on `local`
              base   no changes
            ✓ top    applied 1 change
            Done: 1 stack applied, 1 unchanged in 0 s.
            [exit 0]
            ");
        }
        assert_eq!(story.made(), ["first", "slow", "top"]);
    }
}

/// Nobody knows what such an apply did. What it was approved with says nothing about the plan that follows.
#[test]
fn after_an_unknown_end_a_resume_asks_whatever_was_approved_beforehand() {
    let auto = "apply = \"auto\"";
    let policy = "policy \"quiet\" {\n  path = \"quiet.rego\"\n}";
    let resume = ["apply", "--resume", "c1"];
    let resume_auto = ["apply", "--resume", "c1", "--auto-approve"];
    let retry = ["run", "retry", "r1", "--auto-approve"];
    let cases: [(&str, &str, &[&str]); 4] = [
        ("", policy, &resume),
        ("", policy, &resume_auto),
        ("", "", &retry),
        (auto, "", &resume),
    ];
    for (attributes, block, again) in cases {
        let story = Story::new("tofu").stack("base", attributes, &gated("slow", ""));
        story.write(
            "quiet.rego",
            "package terrane\ndeny contains \"never\" if false\n",
        );
        let story = story.block(block);
        let apply = story.start("apply", &["apply", "--auto-approve"]);
        story.wait_for("slow");
        testkit::kill(story.runner("r1"));
        story.kill_engine("r1");
        let _ = apply.wait().expect(1);
        story.open("slow");
        let said = story.cli(again).expect(3);
        assert!(
            said.stdout.contains("its last apply ended unknown"),
            "{again:?}: {said}"
        );
        assert_eq!(story.made(), Vec::<String>::new(), "{again:?}");
        // A person who sees the plan confirms it.
        let _ = story.cli(&["run", "confirm", "c1"]).expect(0);
        assert_eq!(story.made(), ["slow"], "{again:?}");
    }
}

#[test]
fn the_next_command_ends_what_a_crash_left() {
    let story = story("tofu");
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    apply.kill();
    let _ = apply.wait();
    testkit::kill(story.runner("r1"));
    story.open("slow");
    story.settle();
    assert_eq!(story.made(), ["first", "slow"]);
    let said = story.cli(&["apply", "--auto-approve"]).expect(0);
    assert_snapshot!(essence(&said), @"
    warning: run r1 of stack `base` ended unknown: its runner was lost while applying: the result is
      base   no changes
    ✓ top    applied 1 change
             unknown; the state that could not be delivered was found and kept as serial 1; next step: a
             new plan shows which resources exist
    change set c2: apply on `local`
    Done: 1 stack applied, 1 unchanged in 0 s.
    [exit 0]
    ");
    assert_eq!(story.made(), ["first", "slow", "top"]);
}

#[test]
fn the_next_command_waits_for_an_engine_that_lost_its_runner() {
    let story = story("tofu");
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    apply.kill();
    let _ = apply.wait();
    testkit::kill(story.runner("r1"));
    let again = story.start("again", &["apply", "--auto-approve"]);
    story.wait_until("the second terminal", || {
        again.stderr_so_far().contains("Attached")
    });
    story.open("slow");
    let said = again.wait();
    assert_snapshot!(essence(&said), @"
    Attached to change set c1, which is already under way.
      top    skipped: `base` did not succeed
    ? base   unknown: its runner was lost
    change set c1: apply on `local`
    ? base   unknown: lost while applying, after 0 s
        its runner was lost while applying: the result is unknown
        the state that could not be delivered was found and kept as serial 1
        next step: a new plan shows which resources exist
      top    skipped: `base` did not succeed

    error: change set c1 stopped: 1 unknown, 1 skipped
    hint: `terrane plan base` shows what is left to do in `base`
    [exit 1]
    ");
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(story.made(), ["first", "slow", "top"]);
}

#[test]
fn who_attaches_without_the_asker_s_values_is_not_left_waiting() {
    let terrane = terrane().env("STORY_TOKEN", "tok-77ab0c9e12");
    let base = gated("slow", "") + "output \"name\" { value = \"base\" }\n";
    let story = Story::on(terrane, "tofu")
        .block(
            "context \"api\" {\n  autoattach = [\"target:local\"]\n  env = { API_TOKEN = secret(\"env:STORY_TOKEN\") }\n}",
        )
        .stack("base", "", &base)
        .stack("top", &takes("base"), &link("top"));
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    apply.kill();
    let _ = apply.wait();
    testkit::kill(story.runner("r1"));
    let lines = format!(
        "env -u STORY_TOKEN {} apply --auto-approve 2> ROOT/again.err & again=$!\n\
         until grep -qs Attached ROOT/again.err; do sleep 0.05; done\n\
         touch ROOT/slow.go; wait $again; code=$?\n\
         cat ROOT/again.err >&2; exit $code\n",
        env!("CARGO_BIN_EXE_terrane")
    );
    let said = story.shell(&lines.replace("ROOT", &story.root().display().to_string()));
    assert_snapshot!(essence(&said), @"
    Attached to change set c1, which is already under way.
      top    skipped
    ? base   unknown: its runner was lost
    change set c1: apply on `local`
    ? base   unknown: lost while applying, after 0 s
        its runner was lost while applying: the result is unknown
        the state that could not be delivered was found and kept as serial 1
        next step: a new plan shows which resources exist

    error: change set c1 stopped: 1 unknown, 1 skipped
    hint: `terrane plan base` shows what is left to do in `base`
    [exit 1]
    ");
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(story.made(), ["slow", "top"]);
}

#[test]
fn a_secret_in_a_state_that_was_found_stays_hidden() {
    let secret = "tok-77ab0c9e13";
    let keeps = "variable \"token\" { type = string }\nresource \"terraform_data\" \"db\" { input = var.token }\n";
    let base = format!(
        "{keeps}{}",
        gated("slow", "depends_on = [terraform_data.db]")
    );
    let story = Story::on(terrane().env("STORY_TOKEN", secret), "tofu")
        .block(
            "context \"api\" {\n  autoattach = [\"target:local\"]\n  vars = { token = secret(\"env:STORY_TOKEN\") }\n}",
        )
        .stack("base", "", &base);
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    testkit::kill(story.runner("r1"));
    story.open("slow");
    drop(apply.wait().expect(1));
    let shown = story.cli(&["state", "show", "base"]).expect(0);
    assert!(shown.stdout.contains("terraform_data.db"), "{shown}");
    assert!(!shown.stdout.contains(secret), "{shown}");
}

#[test]
fn while_planning_it_is_planned_again() {
    let story = story("tofu");
    story.engine_script("if [ \"$1\" = plan ]; then WAIT(plan); fi\nexec REAL \"$@\"\n");
    story.open("slow");
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("plan");
    testkit::kill(story.runner("r1"));
    story.open("plan");
    let _ = apply.wait().expect(0);
    assert_eq!(story.made(), ["first", "slow", "top"]);
}

#[test]
fn while_planning_with_nobody_watching_the_next_command_works() {
    let story = story("tofu");
    story.engine_script("if [ \"$1\" = plan ]; then WAIT(plan); fi\nexec REAL \"$@\"\n");
    story.open("slow");
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("plan");
    apply.kill();
    let _ = apply.wait();
    testkit::kill(story.runner("r1"));
    story.open("plan");
    story.settle();
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(story.made(), ["first", "slow", "top"]);
}

#[test]
fn what_a_lost_runner_would_have_masked_is_masked() {
    let terrane = terrane().env("STORY_TOKEN", "tok-77ab0c9e12");
    let module = format!(
        "variable \"token\" {{\n  type = string\n}}\n{}",
        resource(
            "loud",
            "",
            "echo it is ${var.token}; touch ROOT/loud.started; while [ -d ROOT ] && [ ! -e ROOT/loud.go ]; do sleep 0.05; done"
        )
    );
    let story = Story::on(terrane, "tofu")
        .block(
            "context \"api\" {\n  autoattach = [\"target:local\"]\n  vars = { token = secret(\"env:STORY_TOKEN\") }\n}",
        )
        .stack("loud", "", &module);
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("loud");
    testkit::kill(story.runner("r1"));
    story.open("loud");
    let _ = apply.wait().expect(1);
    let log = std::fs::read_to_string(story.data().join("runs/r1/apply.jsonl")).unwrap();
    assert!(log.contains("it is (secret)"), "{log}");
    assert_eq!(
        holding(&story, "tok-77ab0c9e12"),
        Vec::<std::path::PathBuf>::new()
    );
}

#[test]
fn what_an_engine_left_behind_is_named_by_who_waits_for_it() {
    // It goes on in the background, with every descriptor of the engine but the three it is given.
    let command = "sh -c 'echo $$ > ROOT/left; while [ -d ROOT ] && [ ! -e ROOT/left.go ]; do sleep 0.05; done' > /dev/null 2>&1 &";
    let story = Story::new("tofu").stack("app", "", &resource("app", "", command));
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    story.wait_until("the process left behind", || {
        story.root().join("left").exists()
    });
    let module = resource("app", "", command).replace("input = \"app\"", "input = \"app again\"");
    story.module("app", &module);
    let second = story.start("second", &["apply", "--auto-approve"]);
    story.wait_until("the reason", || {
        second
            .stderr_so_far()
            .contains("which an ended runner or engine left behind")
    });
    let list = story.cli(&["run", "list"]).expect(0);
    assert!(list.stdout.contains("waits for process"), "{list}");
    // By what it runs, not by how it was started.
    let pid = std::fs::read_to_string(story.root().join("left")).unwrap();
    let program = std::fs::read_link(format!("/proc/{}/exe", pid.trim())).unwrap();
    let program = program.file_name().unwrap().to_str().unwrap();
    let named = format!("waits for process {} (`{program}`)", pid.trim());
    assert!(list.stdout.contains(&named), "{list}");
    assert!(!list.stdout.contains("left.go"), "{list}");
    std::fs::write(story.root().join("left.go"), "").unwrap();
    let _ = second.wait().expect(0);
    let list = story.cli(&["run", "list", "--all"]).expect(0);
    assert!(!list.stdout.contains("waits for process"), "{list}");
}

#[test]
fn what_was_resumed_goes_on_after_what_was_left_behind_without_its_terminal() {
    let left = "sh -c 'echo $$ > ROOT/left; while [ -d ROOT ] && [ ! -e ROOT/left.go ]; do sleep 0.05; done' > /dev/null 2>&1 &";
    let command = format!("{left} test -e ROOT/mended && echo app >> ROOT/made");
    let story = Story::new("tofu").stack("app", "", &resource("app", "", &command));
    let _ = story.cli(&["apply", "--auto-approve"]).expect(1);
    std::fs::write(story.root().join("mended"), "").unwrap();
    let resumed = story.start("resumed", &["apply", "--resume", "c1", "--auto-approve"]);
    story.wait_until("the reason", || {
        resumed
            .stderr_so_far()
            .contains("which an ended runner or engine left behind")
    });
    let twice = story.cli(&["apply", "--resume", "c1", "--auto-approve"]);
    let twice = twice.expect(1).stderr;
    assert!(twice.contains("run r1: waits for process"), "{twice}");
    let hint = "after that, run `terrane apply --resume c1` to continue";
    assert!(twice.contains(hint), "{twice}");
    resumed.kill();
    std::fs::write(story.root().join("left.go"), "").unwrap();
    story.wait_until("the end of its run", || {
        let shown = story.cli(&["run", "list", "--all"]).expect(0).stdout;
        shown.contains("applied")
    });
    assert_eq!(story.made(), ["app"]);
}

/// Nothing that somebody said yes to goes without a word.
#[test]
fn what_was_confirmed_and_lost_all_its_processes_is_named() {
    let story = Story::new("tofu").stack("app", "", &noted("app"));
    story.engine_script("if [ \"$1\" = plan ]; then WAIT(plan); fi\nexec REAL \"$@\"\n");
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("plan");
    apply.kill();
    testkit::kill(story.runner("r1"));
    story.open("plan");
    story.settle();
    let said = story.cli(&["run", "confirm", "c1"]).expect(4);
    assert_snapshot!(said.stderr, @"
    error: nothing was changed: change set `c1` is applying and cannot be confirmed
           run r1: its processes are gone: `terrane run logs r1` ends it and shows how far it came
    hint: `terrane run show c1` shows its history
    hint: after that, run `terrane apply --resume c1` to continue
    ");
    let said = story.cli(&["plan"]).expect(0);
    let told = "Change set c1, which was confirmed, is stopped: its processes are gone. `terrane run show c1` shows details.";
    assert!(said.stderr.contains(told), "{said}");
}

/// A process that waits in the place of a terminal may be killed, too.
#[test]
fn what_was_resumed_and_has_nobody_left_says_so() {
    let left = "sh -c 'echo $$ > ROOT/left; while [ -d ROOT ] && [ ! -e ROOT/left.go ]; do sleep 0.05; done' > /dev/null 2>&1 &";
    let command = format!("{left} false");
    let story = Story::new("tofu").stack("app", "", &resource("app", "", &command));
    let _ = story.cli(&["apply", "--auto-approve"]).expect(1);
    let resumed = story.start("resumed", &["apply", "--resume", "c1", "--auto-approve"]);
    // By then the one who waits in its place has all that it needs.
    story.wait_until("the reason", || {
        let said = resumed.stderr_so_far();
        said.contains("which an ended runner or engine left behind")
    });
    resumed.kill();
    let _ = resumed.wait();
    testkit::kill(waiter(&story).unwrap());
    std::fs::write(story.root().join("left.go"), "").unwrap();
    story.wait_until("the reason", || {
        let list = story.cli(&["run", "list"]).expect(0).stdout;
        list.contains(
            "its processes are gone: the next `terrane plan` or `terrane apply` here ends it",
        )
    });
}

/// The process that waits for what was left behind.
fn waiter(story: &Story) -> Option<u32> {
    let root = story.root().display().to_string();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.into_iter().find_map(|process| {
        let words = std::fs::read_to_string(process.path().join("cmdline")).ok()?;
        let is_it = words.contains("--stage\0wait\0") && words.contains(&root);
        is_it.then(|| process.file_name().to_str()?.parse().ok())?
    })
}
