//! Plans that travel in a file: planned by one job, applied by another, on this machine or on another, under the same
//! checks. A file that was changed, is foreign or was applied before is refused.

use std::fs;

use insta::assert_snapshot;
use testkit::{Minio, Postgres, TestTerrane, engines};

use crate::project::{HEAD, runs, shown, stack, terrane};

const BASE: &str = "resource \"terraform_data\" \"a\" { input = \"base\" }\noutput \"name\" { value = terraform_data.a.output }\n";
const APP: &str = "variable \"name\" { type = string }\nresource \"terraform_data\" \"a\" { input = var.name }\noutput \"greeting\" { value = \"hello ${terraform_data.a.output}\" }\n";

/// `base` gives a value to `app`; `backend` is a block of their target, if any.
fn project(engine: &str, backend: &str) -> TestTerrane {
    write_project(terrane(), engine, backend)
}

fn write_project(test: TestTerrane, engine: &str, backend: &str) -> TestTerrane {
    let target = format!("target \"local\" {{\n  writers = [\"anyone\"]\n  {backend}\n}}");
    let head = HEAD
        .replace("\"tofu\"", &format!("\"{engine}\""))
        .replace("target \"local\" { writers = [\"anyone\"] }", &target);
    let stacks = [
        stack("base", ""),
        stack("app", "inputs = { name = stack.base.output.name }"),
    ];
    test.write("terrane.hcl", &format!("{head}{}", stacks.concat()))
        .write("base/main.tf", BASE)
        .write("app/main.tf", APP);
    test
}

/// What was said, without when and by whom.
fn told(test: &TestTerrane, said: &testkit::CommandOutput) -> String {
    let text = shown(test, said);
    let lines = text
        .lines()
        .map(|line| match line.split_once(", made as ") {
            Some((_, set)) => {
                let set = set.split(" on ").next().unwrap_or_default();
                format!("Plans of `USER`, made as {set} on DAY.")
            }
            None => line.to_owned(),
        });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_plan_of_one_job_is_applied_by_another() {
    insta::allow_duplicates! { for (engine, _) in engines::all() {
        let test = project(engine, "");
        let said = test.cli(&["plan", "--out", "plan.terrane"]).expect(0);
        assert_snapshot!(told(&test, &said), @r#"
        change set c1 on `local`

        base  + 1 add
          + terraform_data.a
              input   "base"
              known after apply: id, output
          outputs
            + name   (known after apply)

        app   + 1 add                                deferred: `name` is known after `base`
          + terraform_data.a
              input   (known after `base`)
              known after apply: id, output
          outputs
            + greeting   (known after apply)

        Plan: 2 to add, 0 to change, 0 to replace, 0 to destroy, in 2 of 2 stacks.
        ── stderr
        change set c1: plan on `local`

        Wrote `plan.terrane`: `terrane apply plan.terrane` applies exactly this, here or on another machine; dependents of changing stacks are planned then.
        "#);
        // What is applied is what was planned, whatever the tree looks like by then.
        test.write("base/main.tf", &BASE.replace("\"base\"", "\"later\""));
        let said = test
            .cli(&["apply", "plan.terrane", "--auto-approve"])
            .expect(0);
        assert_snapshot!(told(&test, &said), @"
        ── stderr
        Plans of `USER`, made as change set c1 on DAY.
        change set c2: apply on `local`
        Done: 2 stacks applied in 0 s.
        ");
        let said = test.cli(&["output", "app", "greeting", "--raw"]).expect(0);
        assert_eq!(said.stdout, "hello base", "{engine}");
    } }
}

#[test]
fn it_is_asked_about_as_any_apply_and_applied_once() {
    let test = project("tofu", "");
    let _ = test.cli(&["plan", "--out", "plan.terrane"]).expect(0);
    let said = test.cli(&["apply", "plan.terrane"]).expect(3);
    assert!(said.stdout.contains("+ terraform_data.a"), "{said}");
    assert!(said.stderr.contains("no terminal to confirm it"), "{said}");
    // It waits; the same command attaches to it.
    let mut terminal = test.terminal(&["apply", "plan.terrane"]);
    terminal.wait_for("Type `yes`");
    terminal.type_line("yes");
    let _ = terminal.wait().expect(0);
    let said = test
        .cli(&["apply", "plan.terrane", "--auto-approve"])
        .expect(4);
    assert_snapshot!(told(&test, &said), @"
    ── stderr
    error: this bundle was applied already, as change set c2
    hint: `terrane plan --out FILE` makes a new one
    hint: `terrane run show c2` shows its outcome
    [exit 4]
    ");
}

#[test]
fn a_bundle_without_changes_is_applied_without_a_question() {
    let test = project("tofu", "");
    let _ = test.cli(&["apply", "--auto-approve"]).expect(0);
    let _ = test.cli(&["plan", "--out", "plan.terrane"]).expect(0);
    let said = test.cli(&["apply", "plan.terrane"]).expect(0);
    assert_snapshot!(told(&test, &said), @"
    ── stderr
    Plans of `USER`, made as change set c2 on DAY.
    change set c3: apply on `local`
    Done: 1 stack unchanged, 1 untouched in 0 s.
    ");
}

/// A second machine: a home, a cache and a clone of its own; only the key is the same.
fn second_machine(engine: &str, backend: &str, bundle: &[u8]) -> TestTerrane {
    let test = write_project(
        terrane()
            .without_env("TERRANE_HOME")
            .env("CI", "true")
            .env("TERRANE_KEY", KEY),
        engine,
        backend,
    );
    fs::remove_dir_all(test.root().join("user/.config")).unwrap();
    fs::write(test.project().join("plan.terrane"), bundle).unwrap();
    test
}

const KEY: &str = "terrane-key-1 test AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

fn bundle(test: &TestTerrane) -> Vec<u8> {
    fs::read(test.project().join("plan.terrane")).unwrap()
}

fn s3(minio: &Minio, bucket: &str) -> String {
    format!(
        "backend \"s3\" {{\n    bucket = \"{bucket}\"\n    key = \"${{stack.state}}.tfstate\"\n    region = \"{}\"\n    \
         use_lockfile = true\n    use_path_style = true\n    skip_credentials_validation = true\n    \
         skip_metadata_api_check = true\n    skip_region_validation = true\n    skip_requesting_account_id = true\n    \
         endpoints = {{ s3 = \"{}\" }}\n    access_key = \"{}\"\n    secret_key = \"{}\"\n  }}",
        Minio::REGION,
        minio.endpoint(),
        Minio::ACCESS_KEY,
        Minio::SECRET_KEY,
    )
}

#[test]
fn another_machine_needs_only_the_key() {
    let minio = Minio::start();
    insta::allow_duplicates! { for (engine, _) in engines::all() {
        let bucket = minio.bucket();
        let backend = s3(&minio, &bucket);
        let first = second_machine(engine, &backend, b"");
        let _ = first.cli(&["apply", "--auto-approve"]).expect(0);
        first.write("app/main.tf", &APP.replace("hello", "good day"));
        let _ = first.cli(&["plan", "--out", "plan.terrane"]).expect(0);

        // It has never seen `base`, which does not change, and needs its output.
        let second = second_machine(engine, &backend, &bundle(&first));
        let said = second
            .cli(&["apply", "plan.terrane", "--auto-approve"])
            .expect(0);
        assert_snapshot!(told(&second, &said), @"
            ── stderr
            warning: no home is named: lanes and history are limited to this job
            Plans of `USER`, made as change set c2 on DAY.
            change set c1: apply on `local`
            Done: 1 stack applied, 1 unchanged in 0 s.
            ");
        // On a third machine the engine's own look at its backend is what is left.
        let third = second_machine(engine, &backend, &bundle(&first));
        let said = third
            .cli(&["apply", "plan.terrane", "--auto-approve"])
            .expect(1);
        assert!(said.stderr.contains("stale"), "{said}");
    } }
}

/// A machine of its own with the same project, key and home.
fn sharing(home: &str, minio: &Minio) -> TestTerrane {
    let test = terrane()
        .env("TERRANE_HOME", home)
        .env("TERRANE_KEY", KEY)
        .env("AWS_ENDPOINT_URL", &minio.endpoint())
        .env("AWS_ALLOW_HTTP", "true")
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", Minio::ACCESS_KEY)
        .env("AWS_SECRET_ACCESS_KEY", Minio::SECRET_KEY);
    write_project(
        test,
        "tofu",
        "approval {\n    count  = 1\n    author = true\n  }",
    )
}

#[test]
fn what_people_said_on_one_machine_counts_on_another() {
    let minio = Minio::start();
    let bucket = minio.bucket();
    let database = Postgres::start().database();
    let home = format!("{database}&blobs=s3://{bucket}/states");
    let one = sharing(&home, &minio);
    let _ = one.cli(&["plan", "--out", "plan.terrane"]).expect(0);
    let apply = ["apply", "plan.terrane", "--auto-approve"];
    let said = one.cli(&apply).expect(3);
    assert!(said.stderr.contains("awaits approval"), "{said}");
    // The first machine is gone; a third job takes up what was begun.
    let two = sharing(&home, &minio);
    fs::write(two.project().join("plan.terrane"), bundle(&one)).unwrap();
    let said = two.cli(&apply).expect(3);
    assert!(said.stderr.contains("change set c2"), "{said}");
    let three = sharing(&home, &minio);
    fs::write(three.project().join("plan.terrane"), bundle(&one)).unwrap();
    // What could be seen of `app` is part of the bundle: whoever approved that approved what fits it.
    let _ = one.cli(&["run", "approve", "c2"]).expect(0);
    let said = three.cli(&apply).expect(0);
    assert!(said.stderr.contains("Done: "), "{said}");
    let said = two.cli(&apply).expect(4);
    assert!(
        said.stderr.contains("applied already, as change set c2"),
        "{said}"
    );
}

#[test]
fn without_the_key_it_is_refused() {
    let backend = "backend \"local\" { path = \"/nowhere/${stack.state}.tfstate\" }";
    let first = second_machine("tofu", backend, b"");
    let _ = first.cli(&["plan", "--out", "plan.terrane"]).expect(0);
    let none = second_machine("tofu", backend, &bundle(&first)).without_env("TERRANE_KEY");
    let said = none.cli(&["apply", "plan.terrane"]).expect(4);
    assert_snapshot!(told(&none, &said), @"
    ── stderr
    error: cannot open the bundle `plan.terrane`: it needs the master key it was sealed with, and there
           is none here
    hint: give this job the key of the one that planned: `TERRANE_KEY`, or `TERRANE_KEY_FILE`
    [exit 4]
    ");
    let other = KEY.replace(" test AA", " other BB");
    let other = second_machine("tofu", backend, &bundle(&first)).env("TERRANE_KEY", &other);
    let said = other.cli(&["apply", "plan.terrane"]).expect(4);
    assert_snapshot!(told(&other, &said), @"
    ── stderr
    error: cannot use the bundle `plan.terrane`
           the bundle was sealed with master key `test`; the current one is `other`
    hint: give this job the key of the one that planned: `TERRANE_KEY`, or `TERRANE_KEY_FILE`
    [exit 4]
    ");
}

#[test]
fn a_changed_a_cut_and_a_foreign_bundle_are_refused() {
    let test = project("tofu", "");
    let _ = test.cli(&["plan", "--out", "plan.terrane"]).expect(0);
    let whole = bundle(&test);
    let path = test.project().join("plan.terrane");
    let apply = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let said = test
            .cli(&["apply", "plan.terrane", "--auto-approve"])
            .expect(4);
        told(&test, &said)
    };
    let mut changed = whole.clone();
    let last = changed.len() - 1;
    changed[last] ^= 1;
    assert_snapshot!(apply(&changed), @"
    ── stderr
    error: cannot use the bundle `plan.terrane`
           the bundle was modified or truncated
    hint: `terrane plan --out FILE` makes a new one
    [exit 4]
    ");
    assert_eq!(apply(&changed), apply(&whole[..whole.len() / 2]));
    let hcl = test.read("terrane.hcl");
    test.write("terrane.hcl", &hcl.replace("k3v9qd", "another"));
    assert_snapshot!(apply(&whole), @"
    ── stderr
    error: cannot use the bundle `plan.terrane`
           the bundle belongs to the project with the id `k3v9qd`, but this project has the id `another`
    hint: run this in the project that it was made for
    hint: `terrane plan --out FILE` makes a new one
    [exit 4]
    ");
    test.write("terrane.hcl", &hcl);
    assert_snapshot!(apply(b"PK\x03\x04 something else"), @"
    ── stderr
    error: `plan.terrane` is not a bundle
    hint: `terrane plan --out FILE` makes one
    [exit 4]
    ");
    let _ = test.cli(&["output", "base"]).expect(1);
}

#[test]
fn a_bundle_whose_state_moved_is_refused_even_with_auto_approve() {
    let test = project("tofu", "");
    let _ = test
        .cli(&["plan", "base", "--out", "plan.terrane"])
        .expect(0);
    let _ = test.cli(&["apply", "base", "--auto-approve"]).expect(0);
    let said = test
        .cli(&["apply", "plan.terrane", "--auto-approve"])
        .expect(4);
    let user = test.shell("id --user --name").stdout;
    let shown = told(&test, &said).replace(&format!("`{}`", user.trim()), "`USER`");
    assert_snapshot!(shown, @"
    ── stderr
    error: the plan of stack `base` may no longer be applied: the state moved after it was made (no
           state, now serial 1); serial 1 was written by run r2 (requested by `USER`) less than a minute
           ago
    hint: `terrane plan --out FILE` makes a new one
    [exit 4]
    ");
}

#[test]
fn another_engine_than_the_plans_is_refused() {
    let test = project("tofu", "");
    let _ = test
        .cli(&["plan", "base", "--out", "plan.terrane"])
        .expect(0);
    let tofu = test.root().join("bin/tofu");
    fs::remove_file(&tofu).unwrap();
    let real = engines::tofu();
    testkit::write_program(
        &tofu,
        &format!(
            "#!/bin/sh\nif [ \"$1\" = version ]; then echo '{{\"terraform_version\":\"1.99.0\"}}'; exit; fi\nexec {} \"$@\"\n",
            real.display()
        ),
    );
    let said = test
        .cli(&["apply", "plan.terrane", "--auto-approve"])
        .expect(4);
    let version = real.parent().and_then(|dir| dir.file_name()).unwrap();
    let shown = told(&test, &said).replace(&*version.to_string_lossy(), "VERSION");
    assert_snapshot!(shown, @"
    ── stderr
    error: the plan of stack `base` was made with `tofu VERSION`, which is not available
           `tofu VERSION` is required, but there is only 1.99.0 at `ROOT/bin/tofu`
    hint: `terrane engine install tofu VERSION` installs it
    [exit 4]
    ");
}

#[test]
fn where_a_plan_fails_no_bundle_is_written_and_an_old_one_goes() {
    let test = project("tofu", "");
    let _ = test.cli(&["plan", "--out", "plan.terrane"]).expect(0);
    test.write(
        "base/main.tf",
        "resource \"terraform_data\" \"a\" { input = file(\"nothing\") }\noutput \"name\" { value = \"x\" }\n",
    );
    let said = test
        .cli(&["plan", "base", "--out", "plan.terrane"])
        .expect(1);
    assert!(said.stderr.contains("no bundle was written"), "{said}");
    assert!(!test.project().join("plan.terrane").exists());
}

#[test]
fn it_holds_nothing_in_clear_and_leaves_nothing_behind() {
    let test = project("tofu", "");
    let secret = "correct-horse-battery";
    test.write(
        "base/main.tf",
        &format!("resource \"terraform_data\" \"a\" {{ input = \"{secret}\" }}\noutput \"name\" {{ value = \"x\" }}\n"),
    );
    let _ = test.cli(&["plan", "--out", "plan.terrane"]).expect(0);
    let bytes = bundle(&test);
    assert!(
        !bytes
            .windows(secret.len())
            .any(|at| at == secret.as_bytes())
    );
    let left = crate::story::files(&test.home());
    let left: Vec<_> = left
        .iter()
        .filter(|path| {
            path.ends_with("plan.file")
                || path.parent().is_some_and(|dir| dir.ends_with("kept-plans"))
        })
        .collect();
    assert!(left.is_empty(), "{left:?}");
    // The file lies in the project, and is not part of its source.
    let before = test.cli(&["plan", "--json"]).expect(0).stdout;
    fs::remove_file(test.project().join("plan.terrane")).unwrap();
    let after = test.cli(&["plan", "--json"]).expect(0).stdout;
    let source = |out: &str| {
        let outcome: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
        outcome["stacks"]["base"]["outcome"]["plan"]["seal"]["source"].clone()
    };
    assert!(source(&before).is_string(), "{before}");
    assert_eq!(source(&before), source(&after));
}

#[test]
fn as_json_it_says_what_was_written() {
    let test = project("tofu", "");
    let said = test
        .cli(&["plan", "--out", "plan.terrane", "--json"])
        .expect(0);
    let events: Vec<serde_json::Value> = said
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let kinds: Vec<&str> = events
        .iter()
        .filter_map(|event| event["event"].as_str())
        .collect();
    assert_eq!(kinds[kinds.len() - 2..], ["bundle", "outcome"]);
    let mut written = events[events.len() - 2].clone();
    assert_eq!(written["bytes"].as_u64(), Some(bundle(&test).len() as u64));
    written["bytes"] = 0.into();
    written["bundle"] = "ID".into();
    assert_snapshot!(written.to_string(), @r#"{"event":"bundle","file":"plan.terrane","bundle":"ID","change_set":"c1","bytes":0,"stacks":2,"changing":1,"deferred":1}"#);
}

#[test]
fn a_word_that_is_no_bundle_is_told_from_a_stack() {
    let test = project("tofu", "");
    let said = test.cli(&["apply", "base/main.tf"]).expect(4);
    assert_snapshot!(told(&test, &said), @"
    ── stderr
    error: `base/main.tf` is not a bundle
    hint: `terrane plan --out FILE` makes one
    [exit 4]
    ");
    let said = test.cli(&["apply", "nothing.terrane"]).expect(64);
    assert_snapshot!(told(&test, &said), @"
    ── stderr
    error: there is no file `nothing.terrane`
    hint: `terrane plan --out FILE` makes a bundle; stacks are named without `.` and `/`
    [exit 64]
    ");
    let _ = test.cli(&["plan", "--out", "plan.terrane"]).expect(0);
    let said = test.cli(&["apply", "plan.terrane", "base"]).expect(64);
    assert_snapshot!(told(&test, &said), @"
    ── stderr
    error: the bundle `plan.terrane` is applied as a whole: nothing can be selected beside it
    [exit 64]
    ");
}

/// What nobody could have reviewed is not applied because somebody says yes to all of it beforehand.
#[test]
fn what_is_deferred_is_held_to_what_was_shown_of_it() {
    let test = project("tofu", "");
    let _ = test.cli(&["apply", "--auto-approve"]).expect(0);
    test.write("base/main.tf", &BASE.replace("\"base\"", "\"other\""));
    let _ = test.cli(&["plan", "--out", "plan.terrane"]).expect(0);
    let _ = test
        .cli(&["exec", "app", "--", "taint", "terraform_data.a"])
        .expect(0);
    let said = test
        .cli(&["apply", "plan.terrane", "--auto-approve"])
        .expect(3);
    let novelty =
        "new since it was approved: replaces `terraform_data.a`, where an update was planned";
    assert!(said.stdout.contains(novelty), "{said}");
    assert!(
        !said.stderr.contains("--auto-approve"),
        "it said so already\n{said}"
    );
    let said = test.cli(&["run", "confirm", "c4"]).expect(0);
    assert!(said.stderr.contains("Done: "), "{said}");
}

#[test]
fn the_rules_it_was_planned_under_hold() {
    let test = project("tofu", "approval {}").env("GITHUB_ACTOR", "ada");
    let test = test.env("CI", "true").env("TERRANE_HOME", "../people");
    let _ = test.cli(&["plan", "--out", "plan.terrane"]).expect(0);
    let file = test.read("terrane.hcl").replace("approval {}", "");
    test.write("terrane.hcl", &file);
    let apply = ["apply", "plan.terrane", "--auto-approve"];
    let said = test.cli_with(&[("GITHUB_ACTOR", "bob")], &apply).expect(3);
    assert!(said.stderr.contains("awaits approval"), "{said}");
    // Who planned it is an author of it, too.
    let said = test.cli(&["run", "approve", "c2"]).expect(0);
    assert!(said.stderr.contains(": `ada` asked for it"), "{said}");
    let approved = test.cli_with(&[("GITHUB_ACTOR", "eve")], &["run", "approve", "c2"]);
    let _ = approved.expect(0);
}

#[test]
fn of_many_who_begin_it_at_once_one_does() {
    let test = project("tofu", "");
    let _ = test.cli(&["plan", "--out", "plan.terrane"]).expect(0);
    let names = ["one", "two", "three", "four"];
    let begun = names.map(|name| test.start(name, &["apply", "plan.terrane"]));
    let said = begun.map(testkit::BackgroundCommand::wait);
    let waiting = test.cli(&["run", "list"]).expect(0);
    let sets = waiting.stdout.matches("terrane run confirm c").count();
    let runs = 2; // each of the set says why it waits
    assert!(sets <= runs, "{waiting}");
    assert!(!waiting.stdout.contains("c3"), "{waiting}");
    assert!(said.iter().any(|one| one.code == Some(3)), "{said:?}");
}

/// A gate that is looked at again plans nothing: the bundle is as it was.
#[test]
fn a_stack_that_is_applied_and_not_done_goes_on_at_its_gate() {
    let test = project("tofu", "");
    let gate = "gate \"command\" \"g\" {\n    run      = [\"test\", \"-e\", \"ROOT/ready\"]\n    timeout  = \"1s\"\n    interval = \"1s\"\n  }";
    let gate = gate.replace("ROOT", &test.root().display().to_string());
    let file = test.read("terrane.hcl");
    test.write(
        "terrane.hcl",
        &file.replacen("\n  layer ", &format!("\n  {gate}\n  layer "), 1),
    );
    drop(test.cli(&["plan", "--out", "plan.terrane"]).expect(0));
    let said = test
        .cli(&["apply", "plan.terrane", "--auto-approve"])
        .expect(5);
    assert!(said.stderr.contains("terrane run retry r3"), "{said}");
    fs::write(test.root().join("ready"), "").unwrap();
    let said = test.cli(&["run", "retry", "r3"]);
    assert_snapshot!(told(&test, &said), @"
    ── stderr
    Resumed change set c2.
    change set c2: apply on `local`
      app    skipped: `base` did not succeed

    error: change set c2 stopped: 1 skipped, 1 applied before
    hint: `terrane plan --out FILE` plans what is left into a new one
    [exit 1]
    ");
    // What is left has to be planned, and a bundle is not.
    let said = test.cli(&["run", "retry", "r4"]).expect(4);
    assert!(said.stderr.contains("as it is or not at all"), "{said}");
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
}

#[test]
fn a_plan_made_without_a_policy_does_not_leave_it_behind() {
    let test = project("tofu", "");
    let without = test.read("terrane.hcl");
    let deny =
        "package terrane\n\ndeny contains \"not this one\" if input.stack.name == \"base\"\n";
    test.write("deny.rego", deny);
    let with = format!("{without}policy \"owners\" {{ path = \"deny.rego\" }}\n");
    let apply = ["apply", "plan.terrane", "--auto-approve"];
    for (planned_with, name) in [
        (without, "owners"),
        (with.replace("owners", "others"), "owners"),
    ] {
        let is_other = planned_with.contains("others");
        test.write("terrane.hcl", &planned_with);
        test.write(
            "deny.rego",
            if is_other {
                "package terrane\n\ndeny := []\n"
            } else {
                deny
            },
        );
        let _ = test.cli(&["plan", "--out", "plan.terrane"]).expect(0);
        test.write("terrane.hcl", &with);
        test.write("deny.rego", deny);
        let said = test.cli(&apply).expect(4);
        assert!(said.stderr.contains(name), "{said}");
        assert!(said.stderr.contains("not this one"), "{said}");
    }
}

/// A module that changes something in the world, which others look up.
fn changes_world(test: &TestTerrane, to: u8) -> String {
    let world = test.root().join("world");
    let command = format!("sed -i 's/world-[0-9]*/world-{to}/' '{}'", world.display());
    let runs = runs(&command, &format!("\"{to}\""));
    format!("{runs}output \"id\" {{ value = terraform_data.runs.id }}\n")
}

/// `base` changes the world. `mid` looks it up and hands it to `leaf`; `ord` merely comes after `base`, and looks it up.
fn world() -> TestTerrane {
    let test = terrane();
    let state = r#"{"version":4,"serial":1,"lineage":"w","terraform_version":"1.9.0","outputs":{"val":{"value":"world-0","type":"string"}},"resources":[]}"#;
    fs::write(test.root().join("world"), state).unwrap();
    let look = format!(
        "data \"terraform_remote_state\" \"world\" {{\n  backend = \"local\"\n  config  = {{ path = \"{}\" }}\n}}\n",
        test.root().join("world").display()
    );
    let val = "data.terraform_remote_state.world.outputs.val";
    let takes = |name: &str| format!("variable \"{name}\" {{ type = string }}\n");
    let keeps = |value: &str| format!("resource \"terraform_data\" \"a\" {{ input = {value} }}\n");
    let gives = |value: &str| format!("output \"seen\" {{ value = {value} }}\n");
    let kept = gives("terraform_data.a.output");
    let stacks = [
        stack("base", ""),
        stack("mid", "inputs = { id = stack.base.output.id }"),
        stack("leaf", "inputs = { seen = stack.mid.output.seen }"),
        stack("ord", "after = [stack.base]"),
    ];
    test.write("terrane.hcl", &format!("{HEAD}{}", stacks.concat()))
        .write("base/main.tf", &changes_world(&test, 1))
        .write(
            "mid/main.tf",
            &[look.clone(), takes("id"), keeps("var.id"), gives(val)].concat(),
        )
        .write(
            "leaf/main.tf",
            &[takes("seen"), keeps("var.seen"), kept.clone()].concat(),
        )
        .write("ord/main.tf", &[look, keeps(val), kept].concat());
    let _ = test.cli(&["apply", "--auto-approve"]).expect(0);
    test
}

/// A plan that was made before what it stands on changed knows nothing of what that leads to.
#[test]
fn what_stands_on_a_change_is_planned_after_it() {
    let test = world();
    test.write("base/main.tf", &changes_world(&test, 2));
    let said = test.cli(&["plan", "--out", "plan.terrane"]).expect(0);
    for stack in ["ord   no changes", "leaf  no changes"] {
        assert!(said.stdout.contains(stack), "{said}");
    }
    let words = |said: &testkit::CommandOutput| -> String {
        said.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    // It was shown as one that does not change, and is held to that.
    let novelty =
        "new since it was approved: updates `terraform_data.a`, which was not in the plan";
    let apply = ["apply", "plan.terrane", "--auto-approve"];
    let said = test.cli(&apply).expect(3);
    assert!(words(&said).contains(novelty), "{said}");
    let seen = |stack: &str| {
        test.cli(&["output", stack, "seen", "--raw"])
            .expect(0)
            .stdout
    };
    assert_eq!(seen("ord"), "world-1");
    // `ord` is applied, and `mid`, so that `leaf` can be planned.
    let said = test.cli(&["run", "confirm", "c3"]).expect(3);
    assert!(words(&said).contains(novelty), "{said}");
    assert_eq!([seen("ord"), seen("leaf")], ["world-2", "world-1"]);
    let _ = test.cli(&["run", "confirm", "c3"]).expect(0);
    assert_eq!(seen("leaf"), "world-2");
    let _ = test
        .cli(&["plan", "--all", "--detailed-exitcode"])
        .expect(0);
}

#[test]
fn what_is_planned_again_and_fits_needs_no_second_yes() {
    let test = project("tofu", "");
    let _ = test.cli(&["apply", "--auto-approve"]).expect(0);
    // Nothing of `base` that `app` takes changes.
    let more = "resource \"terraform_data\" \"more\" {}\n";
    test.write("base/main.tf", &format!("{BASE}{more}"))
        .write("app/main.tf", &APP.replace("hello", "good day"));
    let _ = test.cli(&["plan", "--out", "plan.terrane"]).expect(0);
    // It is planned again in any case: that its state moved is no reason to refuse it.
    let state = test.cli(&["state", "pull", "app"]).expect(0).stdout;
    let mut state: serde_json::Value = serde_json::from_str(&state).unwrap();
    state["serial"] = (state["serial"].as_i64().unwrap() + 1).into();
    test.write("../moved.tfstate", &state.to_string());
    let push = ["state", "push", "app", "../moved.tfstate"];
    let by_hand = ["--auto-approve", "--reason", "only its serial"];
    let _ = test.cli(&[&push[..], &by_hand].concat()).expect(0);
    let said = test
        .cli(&["apply", "plan.terrane", "--auto-approve"])
        .expect(0);
    let is_planned = |line: &str| line.contains("app ") && line.contains("planning");
    assert!(said.stderr.lines().any(is_planned), "{said}");
    assert!(said.stderr.contains("Done: 2 stacks applied"), "{said}");
    let said = test.cli(&["output", "app", "greeting", "--raw"]).expect(0);
    assert_eq!(said.stdout, "good day base");
}
