//! Programs around publishing and bootstrapping, and the program that is a bootstrap: what they see, and what becomes
//! of a run whose program fails there.

use std::fs;

use insta::assert_snapshot;
use testkit::{TestTerrane, write_program};

use crate::hooks::{hook, noted, noting};
use crate::project::{HEAD, shown, stack};

/// A stack that is published and has a step of its own, which is noted like its hooks.
fn story(contexts: &str) -> TestTerrane {
    let test = noting("");
    let stages = r#"
  publish "runtime" {
    path   = "app.yaml"
    values = { name = output.name }
  }
  bootstrap "command" {
    run = ["./scripts/note.sh", "step"]
    env = { TERRANE_STAGE = "itself" }
  }"#;
    let facts = "facts \"runtime\" { repository = \"../facts.git\" }\n";
    test.write(
        "terrane.hcl",
        &format!("{HEAD}{facts}{contexts}{}", stack("app", stages)),
    )
    .write(
        "app/main.tf",
        "resource \"terraform_data\" \"a\" { input = 1 }\noutput \"name\" { value = \"app\" }\n",
    );
    drop(test.git(&["init", "--quiet", "--bare", "../facts.git"]));
    test
}

fn context(name: &str, hooks: &str) -> String {
    format!("context \"{name}\" {{\n  autoattach = [\"*\"]\n{hooks}}}\n")
}

fn is_published(test: &TestTerrane) -> bool {
    let heads = test.git(&["--git-dir=../facts.git", "branch", "--list", "facts"]);
    !heads.is_empty()
}

#[test]
fn they_run_around_publish_and_bootstrap_like_brackets() {
    let all: String = ["publish", "bootstrap"]
        .map(|stage| {
            hook("before", stage, "\"./scripts/note.sh\", \"weak\"")
                + &hook("after", stage, "\"./scripts/note.sh\", \"weak\"")
        })
        .concat();
    let strong = format!("  priority = 10\n{}", all.replace("weak", "strong"));
    let test = story(&(context("a-strong", &strong) + &context("b-weak", &all)));
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    assert_snapshot!(noted(&test), @r"
    weak publish begins
    strong publish begins
    strong publish succeeded
    weak publish succeeded
    weak bootstrap begins
    strong bootstrap begins
    step itself begins
    strong bootstrap succeeded
    weak bootstrap succeeded
    ");
    assert!(is_published(&test));
}

#[test]
fn one_that_fails_before_publish_keeps_everything_after_it_from_beginning() {
    let hooks = hook("before", "publish", "\"./scripts/login.sh\"")
        + &hook("after", "publish", "\"./scripts/note.sh\", \"told\"");
    let login = format!("  env = {{ PASSWORD = secret(\"env:PASSWORD\") }}\n{hooks}");
    let test = story(&context("login", &login)).env("PASSWORD", "open-sesame");
    let flag = test.root().join("reachable");
    let program = format!(
        "#!/bin/sh\necho \"logging in with $PASSWORD\"\ntest -e '{}'\n",
        flag.display()
    );
    write_program(&test.project().join("scripts/login.sh"), &program);
    assert_snapshot!(shown(&test, &test.cli(&["apply", "--auto-approve"]).expect(1)), @"
    ── stderr
    change set c1: apply on `local`
    ✗ app   applied, not done: failed while publishing, after 0 s
        Error: hook before publish of context `login` failed: `./scripts/login.sh` ended with exit code 1
          logging in with (secret)

    error: change set c1 stopped: 1 applied but not done
    hint: fix the cause, then `terrane run retry r1` continues there
    [exit 1]
    ");
    assert_eq!(noted(&test), "told publish failed\n");
    assert!(!is_published(&test));

    fs::write(flag, "").unwrap();
    drop(
        test.cli(&["run", "retry", "r1", "--auto-approve"])
            .expect(0),
    );
    assert_eq!(
        noted(&test),
        "told publish failed\ntold publish succeeded\nstep itself begins\n"
    );
    assert!(is_published(&test));
    let args = ["run", "logs", "r1", "--stage", "publish"];
    let log = test.cli(&args).expect(0).stdout;
    assert!(log.contains("logging in with (secret)"), "{log}");
    assert!(!log.contains("open-sesame"), "{log}");
}

#[test]
fn one_that_takes_too_long_before_bootstrap_is_ended() {
    let slow = "  hook \"before\" \"bootstrap\" {\n    run     = [\"sh\", \"-c\", \"while :; do sleep 1; done\"]\n    timeout = \"1s\"\n  }\n";
    let test = story(&context("slow", slow));
    let said = test.cli(&["apply", "--auto-approve"]).expect(1);
    let words = [
        "applied, not done: failed while bootstrapping",
        "hook before bootstrap of context `slow` failed: it did not finish within 1 s",
    ];
    for word in words {
        assert!(said.stderr.contains(word), "{said}");
    }
    assert_eq!(noted(&test), "");
    assert!(is_published(&test));
}

/// What was done is done again: a bootstrap must bear that, and the hook may have been told of what is not there.
#[test]
fn one_that_fails_after_bootstrap_leaves_the_run_not_done() {
    let test = story(&context(
        "announce",
        &hook("after", "bootstrap", "\"./scripts/announce.sh\""),
    ));
    let flag = test.root().join("reachable");
    let announce = format!("#!/bin/sh\ntest -e '{}'\n", flag.display());
    write_program(&test.project().join("scripts/announce.sh"), &announce);
    let said = test.cli(&["apply", "--auto-approve"]).expect(1);
    let word = "hook after bootstrap of context `announce` failed";
    assert!(said.stderr.contains(word), "{said}");
    fs::write(flag, "").unwrap();
    drop(
        test.cli(&["run", "retry", "r1", "--auto-approve"])
            .expect(0),
    );
    assert_eq!(noted(&test), "step itself begins\nstep itself begins\n");
}

/// A step of one's own has what the engine had to make the cluster. What it says is masked, with all that its own `env`
/// gives.
#[test]
fn a_step_of_its_own_sees_what_contexts_give() {
    let env = "  env = { REGION = \"west\", PASSWORD = secret(\"env:PASSWORD\") }\n  pass_env = [\"PROFILE\"]\n";
    let test = story(&context("cloud", env)).env("PASSWORD", "open-sesame");
    let step = "#!/bin/sh\necho \"$REGION $PROFILE ${LEAK-none} $TERRANE_STAGE, with $PASSWORD\"\n";
    write_program(&test.project().join("scripts/note.sh"), step);
    let given = [("PROFILE", "mine"), ("LEAK", "leaked")];
    drop(
        test.cli_with(&given, &["apply", "--auto-approve"])
            .expect(0),
    );
    let shown = test.cli(&["run", "show", "r1", "--json"]).expect(0).stdout;
    assert!(
        shown.contains("west mine none (secret), with (secret)"),
        "{shown}"
    );
    assert!(!shown.contains("open-sesame"), "{shown}");
}
