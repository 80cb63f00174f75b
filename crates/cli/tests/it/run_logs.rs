//! What engines said is read along and afterwards, and never holds a secret.

use insta::assert_snapshot;
use testkit::engines;

use crate::story::{Story, gated, holding, link, resource, terrane};

/// Says its secret, then waits.
fn loud(secret: &str) -> Story {
    let module = format!(
        "variable \"token\" {{\n  type = string\n}}\n{}{}",
        resource("loud", "", "echo it is ${var.token}"),
        gated("slow", "depends_on = [terraform_data.loud]")
    );
    Story::on(terrane().env("STORY_TOKEN", secret), "tofu")
        .block(
            "context \"api\" {\n  autoattach = [\"target:local\"]\n  vars = { token = secret(\"env:STORY_TOKEN\") }\n}",
        )
        .stack("loud", "", &module)
}

/// Without moments and versions.
fn level(text: &str) -> String {
    let is_time = |word: &str| word.len() == 8 && word.as_bytes()[2] == b':';
    let lines = text.lines().map(|line| match line.split_once("  ") {
        Some((time, rest)) if is_time(time) => rest,
        _ => line,
    });
    let lines = lines.filter(|line| !line.contains("OpenTofu 1."));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_second_terminal_follows_and_sees_no_secret() {
    let secret = "tok-4d01f7a2bb";
    let story = loud(secret);
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    let follow = story.start("follow", &["run", "logs", "-f", "loud"]);
    story.wait_until("what the engine said", || {
        follow.stdout_so_far().contains("it is (secret)")
    });
    story.open("slow");
    let _ = apply.wait().expect(0);
    let followed = follow.wait().expect(0);
    assert!(
        followed.stdout.contains("Apply complete!"),
        "{}",
        followed.stdout
    );
    assert!(!followed.stdout.contains(secret));
    story.settle();
    assert_eq!(holding(&story, secret), Vec::<std::path::PathBuf>::new());

    // Afterwards it is the same.
    let after = story.cli(&["run", "logs", "r1"]).expect(0);
    assert_eq!(after.stdout, followed.stdout);
    let plan = story
        .cli(&["run", "logs", "r1", "--stage", "plan"])
        .expect(0);
    assert_snapshot!(level(&plan.stdout), @"
    run r1, planning:
    terraform_data.loud: Plan to create
    terraform_data.slow: Plan to create
    Plan: 2 to add, 0 to change, 0 to destroy.
    ");
    let json = story
        .cli(&["run", "logs", "r1", "--stage", "apply", "--json"])
        .expect(0);
    for line in json.stdout.lines() {
        let event: serde_json::Value = serde_json::from_str(line).expect("an event");
        assert!(event["@message"].is_string(), "{line}");
    }
    assert!(json.stdout.contains("\"apply_complete\""));
}

#[test]
fn after_a_crash_the_log_is_whole_and_masked() {
    let secret = "tok-90cc31e58d";
    let story = loud(secret);
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    apply.kill();
    let _ = apply.wait();
    testkit::kill(story.runner("r1"));
    story.open("slow");
    story.settle();
    let open = story.cli(&["run", "list"]).expect(0).stdout;
    assert!(open.contains("its processes are gone"), "{open}");
    let said = story.cli(&["run", "logs", "r1"]).expect(0);
    assert!(said.stdout.contains("it is (secret)"), "{}", said.stdout);
    assert!(
        said.stdout.contains("slow: Creation complete"),
        "{}",
        said.stdout
    );
    assert_eq!(holding(&story, secret), Vec::<std::path::PathBuf>::new());
    // Nobody goes on with its change set: it holds no lane any more, and is not under way.
    let said = story.cli(&["run", "logs", "-f", "r1"]).expect(0);
    assert_eq!(
        said.stderr,
        "Run r1 of `loud` is over: unknown: its runner was lost.\n"
    );
    let open = story.cli(&["run", "list", "--json"]).expect(0).stdout;
    let open: serde_json::Value = serde_json::from_str(&open).expect("JSON");
    assert_eq!(open["change_sets"], serde_json::json!([]), "{open}");
}

/// Who follows what waits for a person is told so, and goes on following.
#[test]
fn who_follows_hears_that_a_person_is_waited_for() {
    let story = Story::new("tofu").stack("one", "", &link("one"));
    let _ = story.cli(&["apply"]).expect(3);
    let follow = story.start("follow", &["run", "logs", "-f", "c1"]);
    let waits = "Change set c1 waits for confirmation: `terrane run confirm c1`.\n";
    story.wait_until("what it waits for", || {
        follow.stderr_so_far().contains(waits)
    });
    let _ = story.cli(&["run", "confirm", "c1"]).expect(0);
    let followed = follow.wait().expect(0);
    assert!(followed.stdout.contains("Apply complete!"), "{followed}");
    assert_eq!(followed.stderr.matches(waits).count(), 1, "{followed}");
}

/// Terraform paints a part of what it says while it is initialised.
#[test]
fn what_an_engine_paints_is_read_plainly() {
    for (engine, _) in engines::all() {
        let story = Story::new(engine).stack("one", "", &link("one"));
        let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
        let said = story.cli(&["run", "logs", "one"]).expect(0).stdout;
        assert!(
            !said.contains("u001b") && !said.contains('\u{1b}'),
            "{said}"
        );
    }
}

#[test]
fn several_runs_are_told_apart() {
    let story =
        Story::new("tofu")
            .stack("one", "", &link("one"))
            .stack("other", "", &link("other"));
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let said = story
        .cli(&["run", "logs", "c1", "--stage", "apply"])
        .expect(0);
    let lines = level(&said.stdout);
    assert!(lines.contains("one   | run r1, applying:"), "{lines}");
    assert!(lines.contains("other | run r2, applying:"), "{lines}");
    let said = story.cli(&["run", "logs", "nobody"]).expect(1);
    assert_snapshot!(said, @"
    ── stderr
    error: there is no run of `nobody`
    hint: name a run (`r7`), a change set (`c3`) or a stack that was planned here
    [exit 1]
    ");
}

#[test]
fn every_attempt_keeps_its_log() {
    let fails = "resource \"terraform_data\" \"x\" {\n  provisioner \"local-exec\" { command = \"echo first words; exit 3\" }\n}\n";
    let story = Story::new("tofu").stack("one", "", fails);
    let _ = story.cli(&["apply", "--auto-approve"]).expect(1);
    story.module("one", &fails.replace("first", "second"));
    let retry = ["run", "retry", "r1", "--auto-approve"];
    let _ = story.cli(&retry).expect(1);
    story.module("one", &link("one"));
    let _ = story.cli(&retry).expect(0);
    let logs = |attempt: &str| {
        let said = story.cli(&["run", "logs", "r1", "--attempt", attempt]);
        said.expect(0).stdout
    };
    assert!(logs("1").contains("first words"), "{}", logs("1"));
    assert!(!logs("1").contains("second words"), "{}", logs("1"));
    assert!(logs("2").contains("second words"), "{}", logs("2"));
    let last = story.cli(&["run", "logs", "one"]).expect(0);
    assert!(last.stdout.contains("Apply complete!"), "{last}");
    assert!(!last.stdout.contains("words"), "{last}");
    assert_eq!(logs("3"), last.stdout);
    let said = story
        .cli(&["run", "logs", "r1", "--attempt", "4"])
        .expect(1);
    assert_snapshot!(said, @"
    ── stderr
    error: there is no attempt 4 of `r1`
    hint: there is a log of 3 attempts
    [exit 1]
    ");
    let show = story.cli(&["run", "show", "r1"]).expect(0);
    assert!(show.stderr.contains("the logs of 3 attempts"), "{show}");
    let show = story.cli(&["run", "show", "r1", "--json"]).expect(0);
    assert!(show.stdout.contains("\"attempts\": 3"), "{show}");
}
