//! States that move from home to home: what locks elsewhere, who is told to stop, and what must not be gone over.

use std::fs;
use std::path::{Path, PathBuf};

use insta::assert_snapshot;
use testkit::{CommandOutput, FakeHttpBackend, LockStyle, Postgres, TestTerrane, engines};

use crate::backends::{STATE, one_output};
use crate::project::{shown, stack};

/// The state of `app` is here, from a file.
fn brought() -> TestTerrane {
    let test = one_output();
    test.write("old.tfstate", STATE);
    let import = "state import app --no-plan --from old.tfstate";
    drop(test.cli(&words(import)).expect(0));
    test
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// The state's path decides whether a `POST` beside it can be meant as a lock.
#[test]
fn a_backend_that_locks_elsewhere_is_locked_there() {
    let test = brought();
    let old = FakeHttpBackend::start(None);
    let gitlab = old
        .address()
        .replace("/state", "/api/v4/projects/1/terraform/state/app");
    let run = |args: &[&str]| {
        let more = ["--credential", "env:OLD_HOME"];
        let said = test.cli(&[args, &more].concat());
        assert!(!old.is_locked(), "{said}");
        shown(&test, &said).replace(old.address().trim_end_matches("/state"), "SERVER")
    };
    let export = ["state", "export", "app", "--to"];
    old.locks_by(LockStyle::Below);
    assert_snapshot!(run(&[&export[..], &[old.address()]].concat()), @"
    ── stderr
    State `app` written to `SERVER/state`: serial 41, lineage old.
    note: the backend was locked by LOCK at `SERVER/state/lock`
    ");
    old.locks_by(LockStyle::GitLab);
    assert_snapshot!(run(&[&export[..], &[&gitlab]].concat()), @"
    ── stderr
    State `app` written to `SERVER/api/v4/projects/1/terraform/state/app`: serial 41, lineage old.
    note: the backend was locked by POST at `SERVER/api/v4/projects/1/terraform/state/app/lock`
    ");
    let import = ["state", "import", "app", "--no-plan", "--from"];
    assert_snapshot!(run(&[&import[..], &[&gitlab]].concat()), @"
    ── stderr
    State `app` was here already: serial 41, lineage old.
    note: its old home was locked by POST at `SERVER/api/v4/projects/1/terraform/state/app/lock`
    ");
    let lock = format!("{}/lock", old.address());
    let methods = [
        "--lock-address",
        &lock,
        "--lock-method",
        "POST",
        "--unlock-method",
        "DELETE",
    ];
    assert_snapshot!(run(&[&import[..], &[old.address()], &methods].concat()), @"
    ── stderr
    State `app` was here already: serial 41, lineage old.
    note: its old home was locked by POST at `SERVER/state/lock`
    ");
    old.locks_by(LockStyle::Nowhere);
    assert_snapshot!(run(&[&import[..], &[old.address()]].concat()), @"
    ── stderr
    error: could not lock the state at `SERVER/state`: it answered 405
    hint: `--lock-address URL` sets where it locks, `--lock-method` and `--unlock-method` how; use
          `--no-lock` if it has no locks
    [exit 1]
    ");
    assert_snapshot!(run(&[&import[..], &[old.address(), "--no-lock"]].concat()), @"
    ── stderr
    State `app` was here already: serial 41, lineage old.
    ");
    assert_eq!(
        old.paths(),
        ["/api/v4/projects/1/terraform/state/app", "/state"]
    );
}

#[test]
fn who_is_told_to_stop_unlocks_the_old_home_first() {
    for action in ["import", "export"] {
        let old = FakeHttpBackend::start(Some(STATE));
        let test = brought();
        old.is_silent_on("GET");
        let place = if action == "import" { "--from" } else { "--to" };
        let args = [
            "state",
            action,
            "app",
            place,
            old.address(),
            "--credential",
            "env:OLD_HOME",
        ];
        let moving = test.start("moving", &args);
        test.wait_until("it reads", || old.log() == "LOCK GET");
        if action == "import" {
            moving.interrupt();
        } else {
            moving.terminate();
        }
        let said = moving.wait().expect(130);
        assert!(
            said.stderr.contains("interrupted: nothing was written"),
            "{said}"
        );
        assert_eq!(old.log(), "LOCK GET UNLOCK");
        assert!(!old.is_locked());
    }
}

#[test]
fn a_credential_that_is_none_is_not_said_again() {
    let test = one_output();
    let args = "state import app --from http://127.0.0.1:9/a --credential terrane_hush";
    let said = test.cli(&words(args)).expect(1);
    assert!(said.stderr.contains("not a secret reference"), "{said}");
    assert!(!said.to_string().contains("hush"), "{said}");
}

#[test]
fn an_engine_does_not_go_over_a_newer_state() {
    let test = brought();
    test.write("app/backend.tf", "terraform {\n  backend \"local\" {}\n}\n");
    let newer = STATE
        .replace("\"serial\":41", "\"serial\":77")
        .replace(r#""o":{"value":"kept","type":"string"}"#, "");
    let file = test.project().join("app/terraform.tfstate");
    fs::write(&file, &newer).expect("a file");
    let said = test.cli(&words("state export app --to engine"));
    assert_snapshot!(shown(&test, &said), @"
    ── stderr
    error: the backend that the source names holds serial 77 already, and ours is 41
    hint: nothing was written
    hint: name another address, or remove the state there first
    [exit 1]
    ");
    assert_eq!(fs::read_to_string(&file).expect("a file"), newer);
}

#[test]
fn what_was_last_seen_in_a_backend_comes_here() {
    let test = one_output();
    let here = test.read("terrane.hcl");
    let path = test.root().join("elsewhere.tfstate").display().to_string();
    let target = "target \"local\" { writers = [\"anyone\"] }";
    let there = format!(
        "target \"local\" {{\n  writers = [\"anyone\"]\n  backend \"local\" {{ path = \"{path}\" }}\n}}"
    );
    assert!(here.contains(target), "{here}");
    test.write("terrane.hcl", &here.replace(target, &there));
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    for ask in [
        "state diff app",
        "state blame app output.o",
        "state list app",
        "state pull app",
        "state search kept",
    ] {
        let said = test.cli(&words(ask)).expect(0);
        assert!(said.stderr.contains("copy"), "{ask}: {said}");
    }
    let import = "state import app --from copy";
    let said = test.cli(&words(import)).expect(4);
    assert!(said.stderr.contains("--from copy"), "{said}");
    test.write("terrane.hcl", &here);
    let said = test.cli(&words(import)).expect(0);
    let lineage = said.stderr.split("lineage ").nth(1).unwrap_or_default();
    let lineage = lineage.split('.').next().unwrap_or_default().to_owned();
    assert_snapshot!(shown(&test, &said).replace(&lineage, "LINEAGE"), @"
    change set c2 on `local`

    app  no changes

    No changes: everything matches the configuration.
    ── stderr
    State `app` imported: serial 1, lineage LINEAGE.
    note: it is a copy from just now: make sure that no client has written there since, or does any more
    change set c2: plan on `local`
    ");
    let said = test.cli(&words("state diff app")).expect(0);
    assert!(!said.stderr.contains("copy"), "{said}");
    drop(test.cli(&words(import)).expect(1));
}

#[test]
fn what_takes_outputs_waits_for_the_state_that_has_them() {
    let test = one_output();
    let project = test.read("terrane.hcl");
    let more = stack("top", "inputs = { o = stack.app.output.o }");
    test.write("terrane.hcl", &format!("{project}{more}"))
        .write("top/main.tf", "variable \"o\" {}\n")
        .write("old.tfstate", STATE);
    let said = test.cli(&words("state import top --from old.tfstate"));
    assert_snapshot!(shown(&test, &said), @"
    ── stderr
    State `top` imported: serial 41, lineage old.
    error: no plan proves it yet: `top` takes outputs of `app`, whose state is not here
    hint: `terrane state import app --from …`, then `terrane plan top`
    [exit 1]
    ");
}

#[test]
fn a_state_of_no_project_is_named_with_a_slash() {
    let test = one_output();
    test.write("old.tfstate", STATE);
    drop(test.cli(&["plan"]).expect(0));
    let said = test
        .cli(&words("state import /lonely --from old.tfstate"))
        .expect(0);
    assert!(said.stderr.starts_with("State `lonely` imported"), "{said}");
    let said = test.cli(&words("state show lonely")).expect(64);
    assert!(said.stderr.contains("`/lonely` is the state"), "{said}");
    drop(test.cli(&words("state show /lonely")).expect(0));
}

/// Through the engine, which may know of any backend: whoever applies there meanwhile would not be seen here.
#[test]
fn a_backend_that_only_the_engine_knows_is_locked_while_it_is_read() {
    for (engine, _) in engines::all() {
        let old = FakeHttpBackend::start(Some(STATE));
        let address = old.address();
        let own = format!(
            "terraform {{\n  backend \"http\" {{\n    address        = \"{address}\"\n    \
             lock_address   = \"{address}\"\n    unlock_address = \"{address}\"\n    \
             username       = \"user\"\n    password       = \"password\"\n  }}\n}}\n"
        );
        let test = one_output();
        let project = fs::read_to_string(test.project().join("terrane.hcl")).unwrap();
        test.write(
            "terrane.hcl",
            &project.replace("\"tofu\"", &format!("\"{engine}\"")),
        )
        .write("app/backend.tf", &own);
        let import = words("state import app --no-plan --from engine");
        drop(test.cli(&import).expect(0));
        let log = old.log();
        assert!(
            log.contains("LOCK") && log.contains("UNLOCK"),
            "{engine}: {log}"
        );
        assert!(!old.is_locked(), "{engine}: {log}");
        let said = test.cli(&[&import[..], &["--leave-locked"]].concat());
        insta::allow_duplicates! {
            assert_snapshot!(shown(&test, &said.expect(0)), @"
            ── stderr
            State `app` was here already: serial 41, lineage old; its old home stays locked.
            hint: an engine that is refused there names the lock: its `force-unlock ID` releases it
            ");
        }
        assert!(old.is_locked(), "{engine}");
        let said = test.cli(&import).expect(1);
        assert!(said.stderr.contains("could not lock the state"), "{said}");
    }
}

const IMPORT: &str = "state import app --no-plan --from engine";

/// `app` says by itself where its state is.
fn names_its_own(test: &TestTerrane, kind: &str, lines: &str) {
    let own = format!("terraform {{\n  backend \"{kind}\" {{\n{lines}\n  }}\n}}\n");
    test.write("app/backend.tf", &own);
}

/// The settings of a backend `http`, without its locks, and with them.
fn settings(old: &FakeHttpBackend) -> (String, String) {
    let address = old.address();
    let bare = format!(
        "address = \"{address}\"\nusername = \"user\"\npassword = \"password\"\nretry_max = 0"
    );
    let locks = format!("lock_address = \"{address}\"\nunlock_address = \"{address}\"");
    let whole = format!("{bare}\n{locks}");
    (bare, whole)
}

/// What was said, without the breaks of its lines.
fn flat(said: &CommandOutput) -> String {
    said.stderr.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn what_an_engine_cannot_keep_locked_is_refused_with_its_reason() {
    let postgres = Postgres::start();
    let conn = format!("conn_str = \"{}\"", postgres.database());
    let old = FakeHttpBackend::start(Some(STATE));
    let (bare, _) = settings(&old);
    let off = format!("{bare}\n# lock_address = \"{}\"", old.address());
    let cases = [
        ("local", "", "backend `local` of the source is a file"),
        (
            "http",
            off.as_str(),
            "backend `http` of the source is set up without locks",
        ),
        (
            "pg",
            conn.as_str(),
            "a lock in backend `pg` of the source ends with the connection",
        ),
    ];
    for (kind, lines, reason) in cases {
        let test = one_output();
        names_its_own(&test, kind, lines);
        let said = test.cli(&[&words(IMPORT)[..], &["--leave-locked"]].concat());
        let words = flat(&said.expect(1));
        assert!(
            words.contains(&format!("`--leave-locked`: {reason}")),
            "{words}"
        );
    }
    assert!(!old.log().contains("LOCK"), "{}", old.log());
}

#[test]
fn an_address_of_locks_that_the_environment_gives_counts() {
    let old = FakeHttpBackend::start(Some(STATE));
    let test = one_output()
        .env("TF_HTTP_LOCK_ADDRESS", old.address())
        .env("TF_HTTP_UNLOCK_ADDRESS", old.address());
    let context =
        "context \"old\" {\n  autoattach = [\"target:local\"]\n  pass_env = [\"TF_HTTP_*\"]\n}\n";
    let project = test.read("terrane.hcl");
    test.write("terrane.hcl", &format!("{project}{context}"));
    names_its_own(&test, "http", &settings(&old).0);
    drop(test.cli(&words(IMPORT)).expect(0));
    assert!(old.log().contains("UNLOCK"), "{}", old.log());
    assert!(!old.is_locked());
    let said = test.cli(&[&words(IMPORT)[..], &["--leave-locked"]].concat());
    let words = flat(&said.expect(0));
    assert!(words.contains("its old home stays locked"), "{words}");
    assert!(old.is_locked());
}

/// An engine that could not unlock ends as if all were well.
#[test]
fn a_lock_that_an_engine_leaves_behind_is_told() {
    for (engine, _) in engines::all() {
        for (state, outcome) in [
            (Some(STATE), "was imported (serial 41)"),
            (None, "was not imported"),
        ] {
            let old = FakeHttpBackend::start(state);
            old.breaks_on("UNLOCK");
            let test = one_output();
            let project = test.read("terrane.hcl");
            let project = project.replace("\"tofu\"", &format!("\"{engine}\""));
            test.write("terrane.hcl", &project);
            names_its_own(&test, "http", &settings(&old).1);
            let words = flat(&test.cli(&words(IMPORT)).expect(1));
            let error = format!("{outcome}, but terrane cannot unlock its old home");
            assert!(words.contains(&error), "{engine}: {words}");
            assert!(
                words.contains("its `force-unlock ID` releases it"),
                "{words}"
            );
            let cause = if state.is_some() {
                "the engine could not unlock the state"
            } else {
                "there is no state at the backend"
            };
            assert!(words.contains(cause), "{engine}: {words}");
            assert!(old.is_locked(), "{engine}");
        }
    }
}

#[test]
fn nothing_in_the_backend_leaves_it_unlocked_and_says_where_else_to_look() {
    let old = FakeHttpBackend::start(None);
    let test = one_output();
    names_its_own(&test, "http", &settings(&old).1);
    let words_of_http = flat(&test.cli(&words(IMPORT)).expect(1));
    assert!(!words_of_http.contains("workspace"), "{words_of_http}");
    assert!(old.log().contains("UNLOCK"), "{}", old.log());
    assert!(!old.is_locked());
    names_its_own(&test, "local", "");
    let words_of_file = flat(&test.cli(&words(IMPORT)).expect(1));
    let hint = "states of other workspaces are not looked at: `tofu workspace select NAME && tofu state pull > FILE` there, then \
                `terrane state import app --from FILE`";
    assert!(words_of_file.contains(hint), "{words_of_file}");
}

/// The scratch directories of commands that are under way.
fn scratch(tmp: &Path) -> usize {
    let found = fs::read_dir(tmp).expect("a directory").flatten();
    let names = found.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("terrane-")).count()
}

fn with_own_tmp(test: TestTerrane) -> (TestTerrane, PathBuf) {
    let tmp = test.root().join("tmp");
    fs::create_dir(&tmp).expect("a directory");
    let test = test.env("TMPDIR", &tmp.display().to_string());
    (test, tmp)
}

#[test]
fn who_is_told_to_stop_while_an_engine_reads_unlocks_and_leaves_nothing() {
    let old = FakeHttpBackend::start(Some(STATE));
    let (test, tmp) = with_own_tmp(one_output());
    names_its_own(&test, "http", &settings(&old).1);
    // The one who holds the lock reads it; the next one is to wait.
    old.is_silent_on("LOCK GET GET");
    let moving = test.start("moving", &words(IMPORT));
    test.wait_until("it reads", || old.log().ends_with("LOCK GET GET"));
    assert_eq!(scratch(&tmp), 1);
    moving.interrupt();
    let said = moving.wait().expect(130);
    assert!(
        said.stderr.contains("interrupted: nothing was written"),
        "{said}"
    );
    assert!(old.log().ends_with("UNLOCK"), "{}", old.log());
    assert!(!old.is_locked());
    assert_eq!(scratch(&tmp), 0);
}

#[test]
fn a_state_on_its_way_to_an_engine_does_not_outlive_who_is_killed() {
    let (test, tmp) = with_own_tmp(one_output());
    let secret = "killed-while-it-was-pushed";
    test.write("old.tfstate", &STATE.replace("kept", secret));
    let import = "state import app --no-plan --from old.tfstate";
    drop(test.cli(&words(import)).expect(0));
    let new = FakeHttpBackend::start(None);
    new.is_silent_on("POST");
    names_its_own(&test, "http", &settings(&new).0);
    let moving = test.start("moving", &words("state export app --to engine"));
    test.wait_until("it writes", || new.log().ends_with("POST"));
    let lies_in = |place: &Path| {
        let found = fs::read_dir(place).into_iter().flatten().flatten();
        let mut files = found.map(|entry| entry.path().join("push.tfstate"));
        files.any(|file| fs::read_to_string(file).is_ok_and(|text| text.contains(secret)))
    };
    let memory = Path::new("/dev/shm");
    assert_eq!(lies_in(memory), memory.is_dir());
    assert_eq!(lies_in(&tmp), !memory.is_dir());
    moving.kill();
    drop(moving.wait());
    test.wait_until("nothing is left", || scratch(&tmp) == 0 && !lies_in(memory));
}

#[test]
fn an_engine_without_credentials_says_where_they_come_from() {
    let old = FakeHttpBackend::start(Some(STATE));
    let test = one_output();
    let lines = format!("address = \"{}\"\nretry_max = 0", old.address());
    names_its_own(&test, "http", &lines);
    let words = flat(&test.cli(&words(IMPORT)).expect(1));
    let hint = "pass credentials through `env` or `pass_env` of a context hint: `terrane context show app` shows what it receives";
    assert!(words.contains(hint), "{words}");
}

/// Only OpenTofu's backends take any.
#[test]
fn a_backend_with_variables_gets_those_of_the_stack() {
    let old = FakeHttpBackend::start(Some(STATE));
    let test = one_output();
    let project = test.read("terrane.hcl");
    let inputs = "layer  = \"main\"\n  inputs = { place = \"state\" }";
    let project = project.replace("layer  = \"main\"", inputs);
    let (_, lines) = settings(&old);
    test.write("terrane.hcl", &project)
        .write("app/variables.tf", "variable \"place\" {}\n");
    names_its_own(&test, "http", &lines.replace("/state\"", "/${var.place}\""));
    drop(test.cli(&words(IMPORT)).expect(0));
    assert!(old.log().contains("UNLOCK"), "{}", old.log());
    let here = test.cli(&["state", "pull", "app"]).expect(0).stdout;
    assert!(here.contains("kept"), "{here}");
}

/// Another engine writes the same state down with its own version.
#[test]
fn the_same_in_other_words_is_there_already() {
    let test = one_output();
    test.write("old.tfstate", STATE);
    let import = "state import app --no-plan --from old.tfstate";
    drop(test.cli(&words(import)).expect(0));
    let version = "\"terraform_version\":\"";
    let other = STATE.replacen(version, &format!("{version}1"), 1);
    assert_ne!(other, STATE);
    let there = FakeHttpBackend::start(Some(&other));
    let address = there.address();
    let way = ["--credential", "env:THERE"];
    let test = test.env("THERE", "user:password");
    for move_it in [["export", "app", "--to"], ["import", "app", "--from"]] {
        let mut args = vec!["state"];
        args.extend(move_it);
        args.push(address);
        args.extend(way);
        if move_it[0] == "import" {
            args.push("--no-plan");
        }
        let words = flat(&test.cli(&args).expect(0));
        assert!(words.contains("already"), "{words}");
    }
    assert_eq!(there.state().as_deref(), Some(&*other));
}
