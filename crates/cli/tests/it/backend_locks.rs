//! Locks in backends of the engine: an engine that died leaves one there; terrane shows whose it is and takes it away.

use testkit::{Azurite, Minio, Moto, engines};

use crate::backends::{azurerm, s3};
use crate::story::{Story, gated, terrane};

/// One stack whose apply takes as long as it is told to.
fn slow(engine: &str, backend: &str, env: &[(&str, String)]) -> Story {
    let env = env
        .iter()
        .map(|(name, value)| format!("{name} = \"{value}\"\n"));
    Story::on(terrane(), engine)
        .block(&format!(
            "target \"away\" {{\n  writers = [\"anyone\"]\n  {backend}\n}}\n\
             context \"backend\" {{\n  autoattach = [\"target:away\"]\n  env = {{\n{}  }}\n}}",
            env.collect::<String>()
        ))
        .stack_on("away", "web", "", &gated("slow", ""))
}

/// The same; its engine died in the middle of the apply.
fn dead(engine: &str, backend: &str, env: &[(&str, String)]) -> Story {
    let story = slow(engine, backend, env);
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    story.kill_engine("r1");
    drop(apply.wait().expect(1));
    story.settle();
    story
}

/// From the lock that is left to the apply that works again.
#[track_caller]
fn check(story: &Story) {
    let held = story.cli(&["lock", "list", "--json"]).expect(0).stdout;
    let held: serde_json::Value = serde_json::from_str(&held).expect("JSON");
    let lock = &held["locks"][0];
    assert_eq!(lock["stack"], "web", "{held}");
    assert_eq!(lock["holder"], "backend");
    assert_eq!(lock["lock"]["Operation"], "OperationTypeApply");
    assert_eq!(lock["resolve"], "terrane lock break web --reason …");
    let id = lock["lock"]["ID"].as_str().expect("an id");

    // Somebody who means another lock does not break this one.
    let other = [
        "lock",
        "break",
        "web",
        "--id",
        "other",
        "--reason",
        "gone",
        "--auto-approve",
    ];
    drop(story.cli(&other).expect(4));
    story.open("slow");
    let said = story.cli(&["apply", "--auto-approve"]);
    assert_eq!(said.code, Some(1), "the lock still stands: {said}");
    assert!(said.to_string().contains(id), "{said}");

    drop(
        story
            .cli(&[
                "lock",
                "break",
                "web",
                "--reason",
                "its engine died",
                "--auto-approve",
            ])
            .expect(0),
    );
    let free = story.cli(&["lock", "list"]).expect(0);
    assert!(free.stderr.starts_with("Nothing is locked.\n"), "{free}");
    let open = story.cli(&["run", "list", "--open"]).expect(0).to_string();
    assert!(
        open.contains("its engine died"),
        "the record is lost: {open}"
    );
    let twice = story.cli(&[
        "lock",
        "break",
        "web",
        "--reason",
        "again",
        "--auto-approve",
    ]);
    drop(twice.expect(1));
    drop(story.cli(&["apply", "--auto-approve"]).expect(0));
}

#[test]
fn the_lock_of_a_run_that_is_at_work_is_not_broken() {
    let minio = Minio::start();
    let story = slow("tofu", &s3(&minio, &minio.bucket()), &[]);
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    let held = story.cli(&["lock", "list"]).expect(0).stdout;
    assert!(held.contains("run r1, alive"), "{held}");
    let held = story.cli(&["lock", "list", "--json"]).expect(0).stdout;
    let held: serde_json::Value = serde_json::from_str(&held).expect("JSON");
    let lock = &held["locks"][0];
    assert_eq!((&lock["run"], &lock["alive"]), (&"r1".into(), &true.into()));
    let args = "lock break web --reason impatient --auto-approve";
    let said = story.cli(&args.split(' ').collect::<Vec<_>>()).expect(4);
    assert!(said.stderr.contains("run r1"), "{said}");
    story.open("slow");
    drop(apply.wait().expect(0));
}

#[test]
fn a_lock_file_in_a_bucket() {
    let minio = Minio::start();
    for (engine, _) in engines::all() {
        check(&dead(engine, &s3(&minio, &minio.bucket()), &[]));
    }
}

/// Alone, and beside a lock file, as people have it who move from the one to the other.
#[test]
fn an_entry_in_a_table() {
    let (minio, moto) = (Minio::start(), Moto::start());
    for (engine, _) in engines::all() {
        for (kind, lock_file) in [("alone", "false"), ("beside", "true")] {
            let table = format!("locks-{engine}-{kind}");
            moto.put_lock_table(&table, Minio::REGION);
            let backend = s3(&minio, &minio.bucket())
                .replace(
                    "use_lockfile = true",
                    &format!("use_lockfile = {lock_file}\n    dynamodb_table = \"{table}\""),
                )
                .replace(
                    "endpoints = { ",
                    &format!("endpoints = {{ dynamodb = \"{}\", ", moto.endpoint()),
                );
            check(&dead(engine, &backend, &[]));
        }
    }
}

#[test]
fn a_lease_on_a_blob() {
    let azurite = Azurite::start();
    for (engine, _) in engines::all() {
        let (backend, env) = azurerm(&azurite);
        check(&dead(engine, &backend, &env));
    }
}
