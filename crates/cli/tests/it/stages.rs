//! Applied is not done: facts are published and gates looked at before a run counts, before those who depend on it
//! go on, and again on every run.

use std::fs;

use insta::assert_snapshot;
use testkit::engines;

use crate::cancel::named;
use crate::project::terrane;
use crate::story::{Story, essence, files, link, noted, takes};

/// A stack with facts and two gates, of which the second passes when the file `open` is there; `top` depends on it.
fn story(engine: &str, timeout: &str) -> Story {
    let base = format!("{}output \"name\" {{ value = \"base\" }}\n", noted("base"));
    let story = Story::new(engine);
    let root = story.root().display();
    let stages = format!(
        r#"
  publish "runtime" {{
    path   = "clusters/base.yaml"
    values = {{ base = {{ name = output.name }} }}
  }}
  gate "equal" "published" {{
    values = [output.name, fact.runtime["clusters/base.yaml"].base.name]
  }}
  gate "command" "open" {{
    run      = ["test", "-e", "{root}/open"]
    interval = "1s"
    timeout  = "{timeout}"
  }}"#
    );
    let story = story
        .block("facts \"runtime\" { repository = \"../facts.git\" }")
        .stack("base", &stages, &base)
        .stack("top", &takes("base"), &link("top"));
    drop(story.git(&["init", "--quiet", "--bare", "../facts.git"]));
    story
}

fn commits(story: &Story) -> String {
    story.git(&[
        "--git-dir=../facts.git",
        "log",
        "--format=%s",
        "--reverse",
        "facts",
    ])
}

/// Whether a gate was looked at.
fn is_looking(story: &Story) -> bool {
    let logs = files(&story.home()).into_iter();
    let mut logs = logs.filter(|path| path.ends_with("r1/verify.jsonl"));
    logs.any(|log| fs::read_to_string(log).is_ok_and(|log| log.contains("open: looking")))
}

fn open(story: &Story) {
    fs::write(story.root().join("open"), "").unwrap();
}

#[test]
fn a_gate_that_fails_keeps_dependents_and_a_retry_goes_on_there() {
    for (engine, _) in engines::all() {
        let story = story(engine, "6s");
        let said = story.cli(&["apply", "--auto-approve"]).expect(5);
        let said = essence(&said).replace(&story.root().display().to_string(), "ROOT");
        insta::allow_duplicates! {
            assert_snapshot!(said, @"
            change set c1: apply on `local`
              top    skipped: `base` did not succeed
            ✗ base   applied, not verified: 1 of 2 gates passed
            ✗ base   applied, not done: failed while verifying, after 0 s
                1 of 2 gates passed
                gate `open` (command)
                  test
                    expected   exit code 0
                    seen       exit code 1
                  see also: test -e ROOT/open
                `terrane verify base` checks again at any time
              top    skipped: `base` did not succeed

            error: change set c1 stopped: 1 applied but not done, 1 skipped
            hint: fix the cause, then `terrane run retry r1` continues there
            [exit 5]
            ");
        }
        assert_eq!(commits(&story), "publish facts of base\n");
        assert_eq!(story.made(), ["base"]);

        let said = story.cli(&["run", "list"]).expect(0).stdout;
        insta::allow_duplicates! {
            assert_snapshot!(said, @"
            NOT DONE   RUN   STATE                   WHY                   WAITING   NEXT STEP
            base       r1    applied, not verified   1 of 2 gates passed   top       `terrane run retry r1` continues there
            ");
        }
        let said = story.cli(&["run", "show", "r1"]).expect(0).stdout;
        let gates = said.split("\ngates of ").nth(1).unwrap_or_default();
        insta::allow_duplicates! {
            assert_snapshot!(gates, @"
            `base`, last checked by r1
            ✓ published   equal     2 values are base
            ✗ open        command   test: exit code 1
            ");
        }

        open(&story);
        let said = story.cli(&["verify"]).expect(0);
        let last = said.stderr.lines().last().unwrap_or_default();
        assert_eq!(
            last,
            "`base` still counts as applied, not verified, and its dependents wait; next step: `terrane run retry r1` continues \
             there."
        );
        let said = story.cli(&["run", "retry", "r1"]).expect(3);
        insta::allow_duplicates! {
            assert_snapshot!(essence(&said), @r#"
            Resumed change set c1.
            ✓ base   applied before, facts published, verified
            change set c1: apply on `local`
            error: change set c1 waits: no terminal to confirm it
            hint: `terrane run confirm c1` applies it, `terrane run discard c1 --reason "…"` drops it
            [exit 3]
            "#);
        }
        // Nothing was applied twice, and nothing published anew.
        assert_eq!(story.made(), ["base"]);
        assert_eq!(commits(&story), "publish facts of base\n");
        drop(story.cli(&["run", "confirm", "c1"]).expect(0));
        assert_eq!(story.made(), ["base", "top"]);
    }
}

#[test]
fn every_run_asserts_facts_and_gates_again() {
    let story = story("tofu", "6s");
    open(&story);
    drop(story.cli(&["apply", "--auto-approve"]).expect(0));
    // Nobody is asked: nothing changes.
    let said = story.cli(&["apply"]).expect(0);
    assert_snapshot!(essence(&said), @"
    change set c2: apply on `local`
      base   no changes, facts unchanged, verified
      top    untouched: nothing it consumes changes
    Done: 1 stack unchanged, 1 untouched in 0 s.
    [exit 0]
    ");
    fs::remove_file(story.root().join("open")).unwrap();
    drop(story.cli(&["apply"]).expect(5));
    assert_eq!(commits(&story), "publish facts of base\n");

    let said = story.cli(&["destroy", "--auto-approve"]).expect(0);
    assert_snapshot!(essence(&said), @"
    change set c4: destroy on `local`
    ✓ base   destroyed 1 resource, facts withdrawn
    ✓ top    destroyed 1 resource
    Done: 2 stacks destroyed in 0 s.
    [exit 0]
    ");
    assert_eq!(
        commits(&story),
        "publish facts of base\nwithdraw facts of base\n"
    );
}

#[test]
fn a_bundle_without_changes_asserts_facts_and_gates_again() {
    let story = story("tofu", "6s");
    open(&story);
    drop(story.cli(&["apply", "--auto-approve"]).expect(0));
    let text = fs::read_to_string(story.project().join("terrane.hcl")).unwrap();
    let more = text.replace("name = output.name }", "name = output.name, zone = \"b\" }");
    story.write("terrane.hcl", &more);
    drop(story.cli(&["plan", "--out", "plan.terrane"]).expect(0));
    drop(story.cli(&["apply", "plan.terrane"]).expect(0));
    let published = "publish facts of base\npublish facts of base\n";
    assert_eq!(commits(&story), published);
    fs::remove_file(story.root().join("open")).unwrap();
    drop(story.cli(&["plan", "--out", "plan.terrane"]).expect(0));
    drop(story.cli(&["apply", "plan.terrane"]).expect(5));

    // What was planned is not what there is now.
    open(&story);
    drop(story.cli(&["plan", "--out", "plan.terrane"]).expect(0));
    story.write("base/more.tf", "resource \"terraform_data\" \"more\" {}\n");
    drop(story.cli(&["apply", "--auto-approve"]).expect(0));
    let said = story.cli(&["apply", "plan.terrane"]).expect(4);
    assert!(
        said.stderr
            .contains("the state of stack `base` has changed since run"),
        "{said}"
    );
}

#[test]
fn a_gate_whose_runner_is_killed_is_looked_at_again() {
    let story = story("tofu", "10m");
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_until("the first look", || is_looking(&story));
    testkit::kill(story.runner("r1"));
    open(&story);
    let said = apply.wait().expect(0);
    assert_snapshot!(essence(&said), @"
    change set c1: apply on `local`
    ✓ base   applied 1 change, facts published, verified
    ✓ top    applied 1 change
    Done: 2 stacks applied in 0 s.
    [exit 0]
    ");
    assert_eq!(story.made(), ["base", "top"]);
    assert_eq!(commits(&story), "publish facts of base\n");
}

#[test]
fn a_run_that_waits_for_a_gate_can_be_cancelled() {
    let story = story("tofu", "10m");
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_until("the first look", || is_looking(&story));
    drop(
        story
            .cli(&["run", "cancel", "r1", "--reason", "later"])
            .expect(0),
    );
    let said = apply.wait().expect(130);
    assert_snapshot!(named(&essence(&said)), @"
    change set c1: apply on `local`
      top    skipped: `base` did not succeed
    ✗ base   applied, not verified: cancelled by WHO: later
    ✗ base   applied, not done: interrupted while verifying, after 0 s
        cancelled by WHO: later
      top    skipped: `base` did not succeed

    error: change set c1 stopped: 1 applied but not done, 1 skipped
    hint: `terrane run retry r1` continues there
    [exit 130]
    ");
}

#[test]
fn a_gate_runs_the_program_that_was_planned() {
    let base = format!("{}output \"name\" {{ value = \"base\" }}\n", noted("base"));
    let gate = "gate \"command\" \"smoke\" {\n    run     = [\"sh\", \"smoke.sh\"]\n    timeout = \"10m\"\n  }";
    let story = Story::new("tofu").stack("base", gate, &base);
    story.write("smoke.sh", "exit 0\n");
    drop(story.cli(&["apply"]).expect(3));
    // What somebody makes of it after it was asked for is not what somebody says yes to.
    story.write("smoke.sh", "exit 1\n");
    drop(story.cli(&["run", "confirm", "c1"]).expect(0));
}

#[test]
fn who_waits_for_the_apply_alone_goes_on() {
    let mut text = takes("base");
    text.push_str("\n  wait = \"applied\"");
    let base = format!("{}output \"name\" {{ value = \"base\" }}\n", noted("base"));
    let gate = "gate \"command\" \"never\" {\n    run     = [\"false\"]\n    timeout = \"1s\"\n  }";
    let story = Story::new("tofu")
        .stack("base", gate, &base)
        .stack("top", &text, &link("top"));
    drop(story.cli(&["apply", "--auto-approve"]).expect(5));
    assert_eq!(story.made(), ["base", "top"]);
}

/// A stack with an address of its own, whose absence is proven after its destroy.
fn vanishing(address: &str) -> Story {
    let base = format!(
        "{}output \"address\" {{ value = \"{address}\" }}\n",
        noted("base")
    );
    let gates = r#"
  gate "tcp" "up" {
    address  = output.address
    failures = 1
  }
  gate "tcp" "gone" {
    address  = output.address
    absent   = true
    when     = "destroyed"
    failures = 1
  }"#;
    Story::new("tofu").stack("base", gates, &base)
}

#[test]
fn a_destroy_is_done_when_what_was_there_is_gone() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let story = vanishing(&address);
    let port = address.rsplit_once(':').unwrap().1.to_owned();
    let level = |text: String| text.replace(&address, "ADDRESS").replace(&port, "PORT");
    drop(story.cli(&["apply", "--auto-approve"]).expect(0));
    // While it is there, only what must be there is looked at.
    let said = story.cli(&["verify"]).expect(0);
    assert_snapshot!(level(said.stdout), @"
    ✓ up   tcp   ADDRESS listens
    1 of 1 gate passed
    ");
    let said = story.cli(&["destroy", "--auto-approve"]).expect(5);
    assert_snapshot!(level(essence(&said)), @"
    change set c2: destroy on `local`
    ✗ base   destroyed, not verified: 0 of 1 gate passed
    ✗ base   destroyed, not done: failed while verifying, after 0 s
        0 of 1 gate passed
        gate `gone` (tcp)
          ADDRESS
            expected   no listener
            seen       somebody listens
          see also: nc -vz 127.0.0.1 PORT
        `terrane verify base` checks again at any time

    error: change set c2 stopped: 1 destroyed but not done
    hint: fix the cause, then the same command again checks what is left
    [exit 5]
    ");
    let said = story.cli(&["run", "list", "--all"]).expect(0);
    let lines = said.stdout.lines().filter(|line| line.starts_with("c2 "));
    assert_snapshot!(level(lines.collect()), @"
    c2    r2    base    destroyed, not done     –   not verified: 0 of 1 gate passed
    ");
    drop(story.cli(&["verify"]).expect(5));

    drop(listener);
    let said = story.cli(&["verify"]).expect(0);
    assert_snapshot!(level(said.stdout), @"
    ✓ gone   tcp   no listener: connection refused
    1 of 1 gate passed
    ");
    // The values are those from before, however often it is looked at.
    let said = story.cli(&["destroy", "--auto-approve"]).expect(0);
    assert_snapshot!(level(essence(&said)), @"
    change set c3: destroy on `local`
      base   no changes, verified
    Done: 1 stack unchanged in 0 s.
    [exit 0]
    ");
}

#[test]
fn without_a_terminal_it_is_said_what_is_missing() {
    let story = story("tofu", "10m");
    let apply = story.start("apply", &["apply", "base", "--auto-approve"]);
    story.wait_until("a word about the gate", || {
        let logs = files(&story.home()).into_iter();
        let mut logs = logs.filter(|path| path.ends_with("r1/verify.jsonl"));
        logs.any(|log| fs::read_to_string(log).is_ok_and(|log| log.contains("still waits")))
    });
    // Whoever watches reads it within a second; what they print is seen when all is over.
    story.wait_until("what is said", || {
        fs::read_to_string(story.root().join("apply.err")).is_ok_and(|said| said.contains("still"))
    });
    open(&story);
    let said = apply.wait().expect(0);
    let line = said
        .stderr
        .lines()
        .find(|line| line.contains("still waits"));
    let line = line.unwrap_or_default();
    assert!(
        line.contains("● base   still waits after"),
        "{}",
        said.stderr
    );
    assert!(
        line.ends_with("for `open` (test: exit code 1)"),
        "{}",
        said.stderr
    );
}

#[test]
fn programs_are_told_what_is_missing_too() {
    let story = story("tofu", "10m");
    let still = |text: &str| {
        let events = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let mut still = events.filter(|event: &serde_json::Value| event["event"] == "still");
        still.next()
    };
    let apply = story.start("apply", &["apply", "base", "--auto-approve", "--json"]);
    story.wait_until("an event", || still(&apply.stdout_so_far()).is_some());
    open(&story);
    let said = apply.wait().expect(0);
    let mut event = still(&said.stdout).unwrap();
    let message = event["message"].take();
    assert_snapshot!(event, @r#"{"event":"still","run":"r1","stack":"base","state":"verifying","message":null}"#);
    let message = message.as_str().unwrap();
    assert!(
        message.ends_with("for `open` (test: exit code 1)"),
        "{message}"
    );

    fs::remove_file(story.root().join("open")).unwrap();
    let verify = story.start("verify", &["verify", "base", "--json"]);
    story.wait_until("an event", || still(&verify.stderr_so_far()).is_some());
    open(&story);
    let said = verify.wait().expect(0);
    let event = still(&said.stderr).unwrap();
    assert_eq!(event["stack"], "base");
    // What is printed as data is one document still.
    let document: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(document["passed"], 2);
}

#[test]
fn a_step_whose_runner_is_killed_does_not_run_beside_its_repetition() {
    let base = format!("{}output \"name\" {{ value = \"base\" }}\n", noted("base"));
    let step = "bootstrap \"command\" { run = [\"sh\", \"step.sh\"] }";
    let story = Story::new("tofu").stack("base", step, &base);
    let root = story.root().display().to_string();
    // Two at once would leave `twice`; the first one goes on only when it is told to.
    story.write(
        "step.sh",
        &format!(
            "cd {root} || exit 1\nmkdir busy || touch twice\necho began >> steps\n\
             while [ -d {root} ] && [ ! -e step.go ]; do sleep 0.05; done\nrmdir busy\n"
        ),
    );
    let steps = || fs::read_to_string(story.root().join("steps")).unwrap_or_default();
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_until("the step", || steps().lines().count() == 1);
    testkit::kill(story.runner("r1"));
    // Everybody who looks sees who is in the way, and nobody begins it again.
    story.wait_until("what is in the way", || {
        let said = story.cli(&["run", "list"]);
        said.stdout.contains("waits for process")
    });
    assert_eq!(steps(), "began\n");
    story.open("step");
    drop(apply.wait().expect(0));
    assert_eq!(steps(), "began\nbegan\n");
    assert!(!story.root().join("twice").exists());
}

#[test]
fn what_a_failed_step_of_a_bootstrap_said_is_shown_without_secrets() {
    let block = "\n  bootstrap \"command\" {\n    run = [\"./step.sh\"]\n    env = { PW = secret(\"env:MARKED\") }\n  }";
    let test = terrane().env("MARKED", "hunter2-marked");
    let story = Story::on(test, "tofu").stack("base", block, &noted("base"));
    let script = "#!/bin/sh\necho \"waiting for a node with $PW\"\necho refused >&2\nexit 3\n";
    story.write("step.sh", script);
    drop(story.shell("chmod +x step.sh"));
    let said = essence(&story.cli(&["apply", "--auto-approve"]).expect(1));
    assert_snapshot!(said, @"
    change set c1: apply on `local`
    ✗ base   applied, not bootstrapped: command: run the command: `./step.sh` ended with exit code 3
    ✗ base   applied, not done: failed while bootstrapping, after 0 s
        command: run the command: `./step.sh` ended with exit code 3
          waiting for a node with (secret)
          refused

    error: change set c1 stopped: 1 applied but not done
    hint: fix the cause, then `terrane run retry r1` continues there
    [exit 1]
    ");
    let shown = story.cli(&["run", "show", "r1"]).expect(0).stdout;
    assert!(
        shown.contains("waiting for a node with (secret)"),
        "{shown}"
    );
    let logs = story.cli(&["run", "logs", "r1"]).expect(0).stdout;
    assert!(logs.contains("refused"), "{logs}");
}

#[test]
fn a_secret_of_a_bootstrap_that_cannot_be_masked_is_refused_before_the_apply() {
    let block = "\n  bootstrap \"command\" {\n    run = [\"true\"]\n    env = { K = secret(\"env:SHORT\") }\n  }";
    let test = terrane().env("SHORT", "ab");
    let story = Story::on(test, "tofu").stack("base", block, &noted("base"));
    let said = story
        .cli(&["apply", "--auto-approve"])
        .expect(0)
        .to_string();
    let warned = "`env:SHORT`: too short or too common to be masked";
    assert!(said.contains(warned), "{said}");
    let strict = story.read("terrane.hcl").replacen(
        "project \"story\" {",
        "project \"story\" {\n  strict_secrets = true",
        1,
    );
    story.write("terrane.hcl", &strict);
    let said = story
        .cli(&["apply", "--auto-approve"])
        .expect(4)
        .to_string();
    let refused = "too short or too common to be masked: `env:SHORT`";
    assert!(said.contains(refused), "{said}");
}
