//! Programs around stages: in order, with the engine's environment, masked, limited, and never in the way of an apply
//! that was made.

use std::fs;

use insta::assert_snapshot;
use testkit::{TestTerrane, engines, write_program};

use crate::project::{HEAD, one_stack, shown, stack, terrane};

/// A stack that makes something, with these contexts, and a program that notes how it was called.
pub(crate) fn noting(contexts: &str) -> TestTerrane {
    let test = terrane();
    test.write(
        "terrane.hcl",
        &format!("{HEAD}{contexts}{}", stack("app", "")),
    )
    .write(
        "app/main.tf",
        "resource \"terraform_data\" \"a\" { input = 1 }\n",
    );
    let note = format!(
        "#!/bin/sh\nprintf '%s %s %s\\n' \"$1\" \"$TERRANE_STAGE\" \"${{TERRANE_OUTCOME-begins}}\" >> '{}'\n",
        test.root().join("noted").display()
    );
    fs::create_dir_all(test.project().join("scripts")).unwrap();
    write_program(&test.project().join("scripts/note.sh"), &note);
    test
}

pub(crate) fn noted(test: &TestTerrane) -> String {
    fs::read_to_string(test.root().join("noted")).unwrap_or_default()
}

fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z"))
}

pub(crate) fn hook(when: &str, stage: &str, words: &str) -> String {
    format!("  hook \"{when}\" \"{stage}\" {{ run = [{words}] }}\n")
}

#[test]
fn they_run_around_each_stage_weakest_first_and_back() {
    let all: String = ["init", "plan", "apply"]
        .map(|stage| {
            hook("before", stage, "\"./scripts/note.sh\", \"weak\"")
                + &hook("after", stage, "\"./scripts/note.sh\", \"weak\"")
        })
        .concat();
    let strong = all.replace("weak", "strong");
    let test = noting(&format!(
        "context \"a-strong\" {{\n  autoattach = [\"*\"]\n  priority   = 10\n{strong}}}\ncontext \"b-weak\" {{\n  autoattach = [\"*\"]\n{all}}}\n"
    ));
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    assert_snapshot!(noted(&test), @r"
    weak plan begins
    strong plan begins
    weak init begins
    strong init begins
    strong init succeeded
    weak init succeeded
    strong plan succeeded
    weak plan succeeded
    weak apply begins
    strong apply begins
    strong apply succeeded
    weak apply succeeded
    ");
}

#[test]
fn they_see_what_the_engine_sees_and_their_words_are_masked() {
    let test = one_stack("", "output \"a\" { value = 1 }\n").env("PASSWORD", "open-sesame");
    let context = r#"
context "login" {
  autoattach = ["*"]
  env        = { REGION = "west", PASSWORD = secret("env:PASSWORD") }
  hook "before" "plan" {
    run = ["./login.sh", stack.name]
    env = { EXTRA = "more" }
  }
}
"#;
    let file = test.read("terrane.hcl") + context;
    test.write("terrane.hcl", &file);
    let login = "#!/bin/sh\necho \"$1: $REGION $EXTRA ${LEAK-none} in $(basename \"$PWD\"), with $PASSWORD\"\necho \"to the other stream\" >&2\nls main.tf\n";
    write_program(&test.project().join("login.sh"), login);
    drop(
        test.cli_with(&[("LEAK", "leaked")], &["apply", "--auto-approve"])
            .expect(0),
    );
    let log = test
        .cli(&["run", "logs", "r1", "--stage", "plan"])
        .expect(0)
        .stdout;
    assert!(!log.contains("open-sesame"), "{log}");
    let words = [
        "app: west more none in app, with (secret)",
        "to the other stream",
        "main.tf",
    ];
    for word in words {
        assert!(log.contains(word), "{log}");
    }
}

#[test]
fn one_that_fails_before_keeps_its_stage_from_beginning() {
    let test = noting(&format!(
        "context \"login\" {{\n  autoattach = [\"*\"]\n{}{}{}}}\n",
        hook("before", "plan", "\"./scripts/fail.sh\""),
        hook("before", "plan", "\"./scripts/note.sh\", \"second\""),
        hook("after", "plan", "\"./scripts/note.sh\", \"after\""),
    ));
    let fail = "#!/bin/sh\necho 'the token has expired'\nexit 3\n";
    write_program(&test.project().join("scripts/fail.sh"), fail);
    assert_snapshot!(shown(&test, &test.cli(&["apply", "--auto-approve"]).expect(1)), @"
    ── stderr
    change set c1: apply on `local`
    ✗ app   failed while planning, after 0 s
        Error: hook before plan of context `login` failed: `./scripts/fail.sh` ended with exit code 3
          the token has expired

    error: change set c1 stopped: 1 failed
    hint: fix the cause, then `terrane apply --resume c1` runs what is left
    [exit 1]
    ");
    assert_eq!(noted(&test), "after plan failed\n");
}

#[test]
fn one_that_fails_after_a_plan_is_a_no() {
    let test = noting(&format!(
        "context \"scan\" {{\n  autoattach = [\"*\"]\n{}}}\n",
        hook("after", "plan", "\"./scripts/scan.sh\""),
    ));
    // It has the plan, and nothing was applied yet.
    let scan = "#!/bin/sh\ntest -s \"$TERRANE_PLAN\" && echo 'this is not allowed'\nexit 1\n";
    write_program(&test.project().join("scripts/scan.sh"), scan);
    let said = test.cli(&["apply", "--auto-approve"]).expect(1);
    assert!(said.stderr.contains("this is not allowed"), "{said}");
    drop(test.cli(&["state", "show", "app"]).expect(1));
}

/// Applied is not done: the state is there, dependents wait, and a retry runs the hooks again, not the engine.
#[test]
fn one_that_fails_after_an_apply_leaves_it_applied_not_done() {
    let test = noting(&format!(
        "context \"announce\" {{\n  autoattach = [\"app\"]\n{}{}}}\n{}",
        hook("after", "apply", "\"./scripts/note.sh\", \"last\""),
        hook("after", "apply", "\"./scripts/announce.sh\""),
        stack("next", "after = [stack.app]"),
    ));
    test.write("next/main.tf", "resource \"terraform_data\" \"b\" {}\n");
    let flag = test.root().join("reachable");
    let announce = format!(
        "#!/bin/sh\ntest -e '{}' || {{ echo unreachable; exit 1; }}\n",
        flag.display()
    );
    write_program(&test.project().join("scripts/announce.sh"), &announce);
    assert_snapshot!(shown(&test, &test.cli(&["apply", "--auto-approve"]).expect(1)), @"
    ── stderr
    change set c1: apply on `local`
    ✗ app    applied, not done: a hook failed after applying, after 0 s
        Error: hook after apply of context `announce` failed: `./scripts/announce.sh` ended with exit code 1
          unreachable
      next   skipped: `app` did not succeed

    error: change set c1 stopped: 1 applied but not done, 1 skipped
    hint: fix the cause, then `terrane run retry r1` continues there
    [exit 1]
    ");
    assert_eq!(noted(&test), "last apply succeeded\n");
    let serial = |test: &TestTerrane| test.cli(&["state", "list", "app"]).expect(0).stdout;
    let before = serial(&test);
    fs::write(flag, "").unwrap();
    drop(
        test.cli(&["apply", "--resume", "c1", "--auto-approve"])
            .expect(0),
    );
    assert_eq!(noted(&test), "last apply succeeded\nlast apply succeeded\n");
    assert_eq!(serial(&test), before);
}

#[test]
fn they_stand_around_the_stages_after_an_apply() {
    let test = noting("");
    let context = format!(
        "context \"gates\" {{\n  autoattach = [\"*\"]\n{}{}}}\n",
        hook("before", "verify", "\"./scripts/note.sh\", \"one\""),
        hook("after", "verify", "\"./scripts/note.sh\", \"two\""),
    );
    let app = |program: &str| {
        let gate = format!(
            "gate \"command\" \"it\" {{\n    run      = [\"{program}\"]\n    timeout  = \"1s\"\n  }}"
        );
        format!("{HEAD}{context}{}", stack("app", &gate))
    };
    test.write("terrane.hcl", &app("true"));
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    assert_eq!(noted(&test), "one verify begins\ntwo verify succeeded\n");
    fs::remove_file(test.root().join("noted")).unwrap();
    test.write("terrane.hcl", &app("false"));
    drop(test.cli(&["apply", "--auto-approve"]).expect(5));
    assert_eq!(noted(&test), "one verify begins\ntwo verify failed\n");
}

#[test]
fn one_that_runs_ends_with_a_ctrl_c() {
    let test = noting(&format!(
        "context \"slow\" {{\n  autoattach = [\"*\"]\n{}{}}}\n",
        hook("before", "plan", "\"./scripts/slow.sh\""),
        hook("after", "plan", "\"./scripts/note.sh\", \"after\""),
    ));
    let flag = test.root().join("flag");
    let slow = format!(
        "#!/bin/sh\ntouch {0}; while [ -e {0} ]; do sleep 0.1; done\n",
        flag.display()
    );
    write_program(&test.project().join("scripts/slow.sh"), &slow);
    let running = test.start("plan", &["plan"]);
    test.wait_until("the hook runs", || flag.exists());
    running.interrupt();
    let said = running.wait();
    assert!(
        said.stdout
            .contains("hook before plan of context `slow`: interrupted"),
        "{said}"
    );
    assert_eq!(noted(&test), "after plan interrupted\n");
    fs::remove_file(flag).unwrap();
}

/// The terminal that watches and the one that cancels both pass the same wish on.
#[test]
fn one_that_cleans_up_after_a_cancel_has_its_time() {
    let test = noting(&format!(
        "context \"clean\" {{\n  autoattach = [\"*\"]\n{}}}\n",
        hook("after", "apply", "\"./scripts/clean.sh\""),
    ));
    let root = test.root().display().to_string();
    let runs = crate::project::runs(&format!("touch {root}/begun; sleep 600 & wait"), "1");
    test.write("app/main.tf", &runs);
    let clean = format!(
        "#!/bin/sh\ntouch {root}/cleaning\nwhile [ ! -e {root}/go ]; do sleep 0.1; done\nexec \"$TERRANE_ROOT/scripts/note.sh\" clean\n"
    );
    write_program(&test.project().join("scripts/clean.sh"), &clean);
    let running = test.start("apply", &["apply", "--auto-approve"]);
    test.wait_until("the apply", || test.root().join("begun").exists());
    let cancel = test.start("cancel", &["run", "cancel", "c1", "--reason", "x"]);
    test.wait_until("the hook", || test.root().join("cleaning").exists());
    fs::write(test.root().join("go"), "").unwrap();
    let said = [cancel.wait(), running.wait()];
    assert_eq!(noted(&test), "clean apply interrupted\n", "{}", said[1]);
}

#[test]
fn those_after_a_failed_apply_are_told() {
    let test = noting(&format!(
        "context \"announce\" {{\n  autoattach = [\"*\"]\n{}}}\n",
        hook("after", "apply", "\"./scripts/note.sh\", \"told\""),
    ));
    test.write("app/main.tf", &crate::project::runs("exit 1", "1"));
    drop(test.cli(&["apply", "--auto-approve"]).expect(1));
    assert_eq!(noted(&test), "told apply failed\n");
}

#[test]
fn one_that_takes_too_long_is_ended_with_all_it_started() {
    let test = noting(
        "context \"slow\" {\n  autoattach = [\"*\"]\n  hook \"before\" \"plan\" {\n    run     = [\"./scripts/slow.sh\"]\n    timeout = \"3s\"\n  }\n}\n",
    );
    let pid = test.root().join("pid");
    let slow = format!(
        "#!/bin/sh\ntrap '' INT\nsh -c 'trap \"\" INT; echo $$ > {0}.new; mv {0}.new {0}; while :; do sleep 1; done'\n",
        pid.display()
    );
    write_program(&test.project().join("scripts/slow.sh"), &slow);
    let said = test.cli(&["plan"]).expect(1);
    assert!(
        said.stderr
            .contains("hook before plan of context `slow` failed: it did not finish within 3 s"),
        "{said}"
    );
    // On a slow machine it may not have come so far.
    if let Ok(pid) = fs::read_to_string(pid) {
        test.wait_until("its child is gone", || !is_alive(pid.trim()));
    }
}

/// A stack's limit is about all of a stage: who set it must not wait for a hook that hangs.
#[track_caller]
fn check_limit(when: &str, stage: &str, limits: &str, expected: &str) -> TestTerrane {
    let hangs = hook(when, stage, "\"sh\", \"-c\", \"while :; do sleep 1; done\"");
    let test = noting(&format!(
        "context \"slow\" {{\n  autoattach = [\"*\"]\n{hangs}}}\n"
    ));
    let body = stack("app", &format!("timeout {{ {limits} }}"));
    let text = fs::read_to_string(test.project().join("terrane.hcl")).unwrap();
    test.write("terrane.hcl", &text.replace(&stack("app", ""), &body));
    let said = test.cli(&["apply", "--auto-approve"]).expect(1);
    assert!(said.stderr.contains(expected), "{said}");
    test
}

#[test]
fn a_stacks_limit_ends_one_before_a_plan() {
    let expected = "hook before plan of context `slow` failed: the time limit `timeout { plan = \"1s\" }` was reached, the hook was ended";
    check_limit("before", "plan", "plan = \"1s\"", expected);
}

#[test]
fn a_stacks_limit_ends_one_before_an_apply() {
    let expected = "hook before apply of context `slow` failed: the time limit `timeout { apply = \"1s\" }` was reached, the hook was ended";
    check_limit("before", "apply", "apply = \"1s\"", expected);
}

/// The engine had time enough, and what it did stays done.
#[test]
fn a_stacks_limit_ends_one_after_an_apply_which_stays_applied() {
    let expected = "hook after apply of context `slow` failed: the time limit `timeout { apply = \"10s\" }` was reached, the hook was ended";
    let test = check_limit("after", "apply", "apply = \"10s\"", expected);
    let runs = test.cli(&["run", "list"]).expect(0);
    assert!(runs.stdout.contains("applied, not done"), "{runs}");
}

/// What went wrong is cleaned up after, though the limit is over.
#[test]
fn one_after_a_stage_that_reached_its_limit_still_runs() {
    let test = noting(&format!(
        "context \"tidy\" {{\n  autoattach = [\"*\"]\n{}}}\n",
        hook("after", "apply", "\"./scripts/note.sh\", \"tidied\""),
    ));
    let body = stack("app", "timeout { apply = \"1s\" }");
    let text = fs::read_to_string(test.project().join("terrane.hcl")).unwrap();
    test.write("terrane.hcl", &text.replace(&stack("app", ""), &body))
        .write("app/main.tf", &crate::project::runs("sleep 60", "1"));
    drop(test.cli(&["apply", "--auto-approve"]).expect(1));
    assert_eq!(noted(&test), "tidied apply failed\n");
}

/// An apply whose runner is lost after its engine's end deserves them as much as any other.
#[test]
fn those_after_an_apply_whose_runner_was_lost_run_with_the_next() {
    let test = noting(&format!(
        "context \"announce\" {{\n  autoattach = [\"app\"]\n{}}}\n",
        hook("after", "apply", "\"./scripts/note.sh\", \"announced\""),
    ));
    // The engine's parent is the runner.
    let flag = test.root().join("killed").display().to_string();
    let script = "#!/bin/sh\n[ \"$1\" = apply ] && [ ! -e FLAG ] || exec REAL \"$@\"\n\
         REAL \"$@\"; code=$?; touch FLAG; kill -9 $PPID; exit $code\n";
    let real = engines::tofu().display().to_string();
    let script = script.replace("FLAG", &flag).replace("REAL", &real);
    write_program(&test.root().join("bin/tofu"), &script);
    let said = test.cli(&["apply", "--auto-approve"]).expect(1).stderr;
    assert!(
        said.contains("its hooks after `apply` did not run"),
        "{said}"
    );
    assert_eq!(noted(&test), "");
    drop(
        test.cli(&["run", "retry", "r1", "--auto-approve"])
            .expect(0),
    );
    assert_eq!(noted(&test), "announced apply succeeded\n");
    // And once only.
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    assert_eq!(noted(&test), "announced apply succeeded\n");
}

/// What is not done does not become so because nothing is left to change.
#[test]
fn those_that_failed_after_an_apply_run_with_the_next_that_finds_nothing_to_change() {
    let test = noting(&format!(
        "context \"announce\" {{\n  autoattach = [\"app\"]\n{}}}\n",
        hook("after", "apply", "\"./scripts/announce.sh\""),
    ));
    let announce = format!(
        "#!/bin/sh\ncd {} && echo tried >> noted && test -e reachable\n",
        test.root().display()
    );
    write_program(&test.project().join("scripts/announce.sh"), &announce);
    drop(test.cli(&["apply", "--auto-approve"]).expect(1));
    drop(test.cli(&["apply", "--auto-approve"]).expect(1));
    assert_eq!(noted(&test), "tried\ntried\n");
    fs::write(test.root().join("reachable"), "").unwrap();
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    assert_eq!(noted(&test), "tried\ntried\ntried\n");
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    assert_eq!(noted(&test), "tried\ntried\ntried\n");
}

/// A hook never outlives its runner, however that ends.
#[test]
fn one_whose_runner_is_killed_is_killed() {
    let test = noting(&format!(
        "context \"slow\" {{\n  autoattach = [\"*\"]\n{}}}\n",
        hook("before", "plan", "\"./scripts/slow.sh\""),
    ));
    let pid = test.root().join("pid");
    // Its parent is the runner; the next runner plans again, and finds it in a hurry.
    let slow = format!(
        "#!/bin/sh\ntest -e {0} && exit\necho $$ $PPID > {0}.new; mv {0}.new {0}; while :; do sleep 1; done\n",
        pid.display()
    );
    write_program(&test.project().join("scripts/slow.sh"), &slow);
    let running = test.start("plan", &["plan"]);
    test.wait_until("the hook runs", || pid.exists());
    let text = fs::read_to_string(&pid).unwrap();
    let (own, runner) = text.trim().split_once(' ').unwrap();
    testkit::kill(runner.parse().unwrap());
    test.wait_until("the hook is gone", || !is_alive(own));
    drop(running.wait().expect(0));
}

#[test]
fn a_program_that_is_not_there_is_found_by_validate() {
    let test = noting(&format!(
        "context \"login\" {{\n  autoattach = [\"*\"]\n{}{}}}\n",
        hook("before", "plan", "\"./scripts/logni.sh\""),
        hook("before", "destroy", "\"true\""),
    ));
    assert_snapshot!(test.cli(&["validate"]).expect(1), @r#"
    ── stderr
    error: there is no program `./scripts/logni.sh`
      --> terrane.hcl:10:32
       |
    10 |   hook "before" "plan" { run = ["./scripts/logni.sh"] }
       |                                ^^^^^^^^^^^^^^^^^^^^^^ run here
       |
       = hint: a path counts from the project's root: write the program there, and make it executable

    error: there is no hook `destroy`
      --> terrane.hcl:11:17
       |
    11 |   hook "before" "destroy" { run = ["true"] }
       |                 ^^^^^^^^^ unknown
       |
       = hint: there are `init`, `plan`, `apply`, `publish`, `bootstrap` and `verify`

    2 errors in terrane.hcl
    [exit 1]
    "#);
}

/// A stack that nothing moved is not planned at all: unless it still has something to run.
#[test]
fn those_that_failed_run_with_the_next_apply_though_nothing_changed() {
    let test = noting("");
    let flag = test.root().join("fails");
    let script = format!(
        "#!/bin/sh\n[ ! -e '{}' ] && exec \"$(dirname \"$0\")/note.sh\" announced\n",
        flag.display()
    );
    write_program(&test.project().join("scripts/announce.sh"), &script);
    let context = format!(
        "context \"announce\" {{\n  autoattach = [\"app\"]\n{}}}\n",
        hook("after", "apply", "\"./scripts/announce.sh\"")
    );
    let stacks = [
        stack("base", ""),
        stack("app", "inputs = { y = stack.base.output.y }"),
    ];
    let base = |text: &str| {
        test.write(
            "base/main.tf",
            &format!("output \"y\" {{ value = \"{text}\" }}\n"),
        );
    };
    test.write(
        "terrane.hcl",
        &format!("{HEAD}{context}{}", stacks.concat()),
    )
    .write(
        "app/main.tf",
        "variable \"y\" { type = string }\nresource \"terraform_data\" \"a\" { input = var.y }\n",
    );
    base("one");
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    fs::write(&flag, "").unwrap();
    base("two");
    drop(test.cli(&["apply", "--auto-approve"]).expect(1));
    fs::remove_file(&flag).unwrap();
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    assert_eq!(noted(&test), "announced apply succeeded\n".repeat(2));
}
