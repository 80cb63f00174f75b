//! A home that machines share: a database and a bucket, without any server.

use std::fs;

use insta::assert_snapshot;
use testkit::{Azurite, Minio, Postgres, TestTerrane};

use crate::project::{HEAD, runs, shown, stack, terrane};
use crate::story::files;

const KEY: &str = "c2hhcmVkLWJ5LWFsbC1tYWNoaW5lcy1pbi10ZXN0cyE=";

/// A machine of its own, with the same project, the same key and the same home.
fn machine(home: &str, bucket: &[(&str, &str)]) -> TestTerrane {
    let test = terrane()
        .env("TERRANE_HOME", home)
        .env("TERRANE_KEY", &format!("terrane-key-1 abcd1234 {KEY}"));
    let test = bucket
        .iter()
        .fold(test, |test, (name, value)| test.env(name, value));
    test.write("terrane.hcl", &format!("{HEAD}{}", stack("app", "")))
        .write("app/main.tf", "output \"text\" { value = \"shared\" }\n");
    test
}

/// How to get at its buckets.
pub(crate) fn settings(minio: &Minio) -> [(&'static str, String); 5] {
    [
        ("AWS_ENDPOINT_URL", minio.endpoint()),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
        ("AWS_ACCESS_KEY_ID", Minio::ACCESS_KEY.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", Minio::SECRET_KEY.to_owned()),
    ]
}

fn on_minio(home: &str, minio: &Minio) -> TestTerrane {
    let bucket = settings(minio);
    machine(
        home,
        &bucket
            .each_ref()
            .map(|(name, value)| (*name, value.as_str())),
    )
}

fn home(minio: &Minio) -> (String, String) {
    let bucket = minio.bucket();
    let database = Postgres::start().database();
    (format!("{database}&blobs=s3://{bucket}/states"), bucket)
}

#[test]
fn what_one_machine_applies_another_knows() {
    let minio = Minio::start();
    let (home, bucket) = home(&minio);
    let (one, two) = (on_minio(&home, &minio), on_minio(&home, &minio));
    tell_and_know(&one, &two);
    let keys = minio.keys(&bucket).join("\n");
    assert!(keys.contains("states/segments/"), "{keys}");
    assert!(keys.contains("states/keys/"), "{keys}");
    // Neither the key nor what opens the bucket lies in a file of the machine.
    for path in files(&one.root().join("user")) {
        let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
        let told = text.contains(KEY) || text.contains(Minio::SECRET_KEY);
        assert!(!told, "{}", path.display());
    }
}

#[test]
fn a_bucket_that_is_not_to_be_had_is_said_in_a_line() {
    let minio = Minio::start();
    let (home, bucket) = home(&minio);
    let test = on_minio(&home, &minio);
    drop(test.cli(&["state", "list"]).expect(0));
    let wrong = test.cli_with(&[("AWS_SECRET_ACCESS_KEY", "wrong")], &["state", "verify"]);
    let said = wrong.expect(1).stderr;
    assert!(said.contains("SignatureDoesNotMatch"), "{said}");
    assert!(said.contains("hint: set credentials in"), "{said}");
    assert!(!said.contains("<Code>"), "{said}");
    let elsewhere = Postgres::start().database();
    let elsewhere = format!("{elsewhere}&blobs=s3://no-{bucket}/states");
    let missing = test.cli_with(&[("TERRANE_HOME", &elsewhere)], &["state", "list"]);
    let said = missing.expect(1).stderr;
    assert!(said.contains("NoSuchBucket"), "{said}");
    assert!(
        said.contains("hint: create the bucket, or correct `blobs=`"),
        "{said}"
    );
    assert!(!said.contains("<Code>"), "{said}");
}

#[test]
fn its_bucket_may_be_a_container_of_azure() {
    let azurite = Azurite::start();
    let database = Postgres::start().database();
    let home = format!("{database}&blobs=az://{}/states", azurite.container());
    let endpoint = azurite.endpoint();
    let bucket = [
        ("AZURE_STORAGE_ENDPOINT", endpoint.as_str()),
        ("AZURE_ALLOW_HTTP", "true"),
        ("AZURE_STORAGE_ACCOUNT_NAME", Azurite::ACCOUNT),
        ("AZURE_STORAGE_ACCOUNT_KEY", Azurite::KEY),
    ];
    tell_and_know(&machine(&home, &bucket), &machine(&home, &bucket));
}

/// One machine applies, then again with a change; the other knows what came out, and all of it is whole.
fn tell_and_know(one: &TestTerrane, two: &TestTerrane) {
    one.write("app/main.tf", "output \"text\" { value = \"first\" }\n");
    drop(one.cli(&["apply", "--auto-approve"]).expect(0));
    one.write("app/main.tf", "output \"text\" { value = \"shared\" }\n");
    drop(one.cli(&["apply", "--auto-approve"]).expect(0));
    let output = two.cli(&["output", "app", "text", "--raw"]).expect(0);
    assert_eq!(output.stdout, "shared");
    let again = two.cli(&["plan", "--detailed-exitcode"]);
    drop(again.expect(0));
    drop(two.cli(&["state", "verify"]).expect(0));
}

#[test]
fn without_its_bucket_a_home_takes_nothing() {
    let minio = Minio::own();
    let (home, _) = home(&minio);
    let test = on_minio(&home, &minio).env("TERRANE_PATIENCE", "1");
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    minio.stop();
    test.write("app/main.tf", "output \"text\" { value = \"second\" }\n");
    let lost = test.cli(&["apply", "--auto-approve"]);
    assert_eq!(lost.code, Some(1), "{lost}");
    minio.start_again();
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let output = test.cli(&["output", "app", "text", "--raw"]).expect(0);
    assert_eq!(output.stdout, "second");
}

#[test]
fn what_a_stack_wrote_on_one_machine_is_there_on_another() {
    let minio = Minio::start();
    let (home, bucket) = home(&minio);
    let (one, two) = (on_minio(&home, &minio), on_minio(&home, &minio));
    let project = format!("{HEAD}{}", stack("app", "artifacts = [\"kubeconfig\"]"));
    let module = runs("echo of one machine > kubeconfig", "1");
    for machine in [&one, &two] {
        machine
            .write("terrane.hcl", &project)
            .write("app/main.tf", &module);
    }
    drop(one.cli(&["apply", "--auto-approve"]).expect(0));
    let keys = minio.keys(&bucket).join("\n");
    assert!(keys.contains("states/artifacts/"), "{keys}");
    let reads = "output \"read\" { value = file(\"${path.module}/kubeconfig\") }\n";
    two.write("app/main.tf", &(module + reads));
    drop(two.cli(&["apply", "--auto-approve"]).expect(0));
    let read = one.cli(&["output", "app", "read", "--raw"]).expect(0);
    assert_eq!(read.stdout, "of one machine\n");
}

/// Last night's dump was restored; the bucket says what was acknowledged since.
#[test]
fn a_database_that_is_older_than_its_bucket_is_noticed() {
    let (minio, postgres) = (Minio::start(), Postgres::start());
    let (home, _) = home(&minio);
    let test = on_minio(&home, &minio);
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let (address, rest) = home.split_once('?').unwrap();
    let (server, name) = address.rsplit_once('/').unwrap();
    let copy = format!("CREATE DATABASE {name}_night TEMPLATE {name}");
    drop(postgres.psql("postgres", &copy));
    test.write("app/main.tf", "output \"text\" { value = \"since\" }\n");
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));

    let restored = format!("{server}/{name}_night?{rest}");
    let test = on_minio(&restored, &minio);
    let list = test.cli(&["state", "list"]).expect(1);
    let export = test
        .cli(&["state", "export", "--all", "--to", "out"])
        .expect(1);
    let apply = test.cli(&["apply", "--auto-approve"]).expect(1);
    for said in [list.stderr, export.stderr, apply.stderr] {
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        let says = "version 2 of state `k3v9qd/app` was acknowledged";
        assert!(said.contains(says), "{said}");
        assert!(
            said.contains("`terrane state recover --into-home`"),
            "{said}"
        );
    }
    drop(test.cli(&["state", "recover", "--into-home"]).expect(0));
    let output = test.cli(&["output", "app", "text", "--raw"]).expect(0);
    assert_eq!(output.stdout, "since");
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    drop(test.cli(&["state", "verify"]).expect(0));
}

/// A copy of a bucket that was made while it was written to, and no database: markers say what is missing.
#[test]
fn what_was_acknowledged_and_is_missing_in_a_bucket_is_not_passed_over() {
    let postgres = Postgres::start();
    let test = terrane();
    let bucket = test.root().join("bucket");
    let at = |database: String| format!("{database}&blobs=file://{}", bucket.display());
    let key = format!("terrane-key-1 abcd1234 {KEY}");
    let on = |home: &str, arguments: &[&str]| {
        test.cli_with(&[("TERRANE_HOME", home), ("TERRANE_KEY", &key)], arguments)
    };
    test.write("terrane.hcl", &format!("{HEAD}{}", stack("app", "")));
    let home = at(postgres.database());
    let objects = || files(&bucket.join("segments"));
    let mut before = Vec::new();
    for text in ["first", "second", "third"] {
        before = objects();
        let module = format!("output \"text\" {{ value = \"{text}\" }}\n");
        test.write("app/main.tf", &module);
        drop(on(&home, &["apply", "--auto-approve"]).expect(0));
    }
    let newest = objects();
    let newest: Vec<_> = newest
        .iter()
        .filter(|path| !before.contains(path))
        .collect();
    let [version, _marker] = newest[..] else {
        panic!("{newest:?}")
    };
    fs::remove_file(version).unwrap();

    let home = at(postgres.database());
    let said = on(&home, &["state", "recover", "--into-home"])
        .expect(1)
        .stderr;
    assert!(said.contains("version 3 of state `k3v9qd/app` was acknowledged, but the newest readable one is version 2"), "{said}");
    assert!(said.contains("--accept-loss k3v9qd/app@2"), "{said}");
    let listed = on(&home, &["state", "list"]).expect(1).stderr;
    assert!(listed.contains("version 3 of state"), "{listed}");
    let bucket = bucket.to_str().unwrap();
    let to = ["state", "recover", "--data", bucket, "--to", "out"];
    let said = on(&home, &to).expect(1).stderr;
    assert!(said.contains("version 3 of state `k3v9qd/app`"), "{said}");
    let accept = "state recover --into-home --accept-loss app@2 --reason lost";
    let accept: Vec<&str> = accept.split(' ').collect();
    drop(on(&home, &accept).expect(0));
    let output = on(&home, &["output", "app", "text", "--raw"]).expect(0);
    assert_eq!(output.stdout, "second");
    drop(on(&home, &["apply", "--auto-approve"]).expect(0));
    drop(on(&home, &["state", "verify"]).expect(0));
}

/// A machine that never comes back would hold its lane and its lock for ever. One that was given up and lives writes nothing
/// any more.
#[test]
fn a_machine_that_is_gone_is_given_up() {
    let minio = Minio::start();
    let (home, _) = home(&minio);
    let (one, two) = (on_minio(&home, &minio), on_minio(&home, &minio));
    let (begun, goes_on) = (one.root().join("begun"), one.root().join("go"));
    let waits = format!(
        "touch '{}'; until [ -e '{}' ]; do sleep 0.05; done",
        begun.display(),
        goes_on.display()
    );
    let module = |waits: &str| {
        format!(
            "resource \"terraform_data\" \"it\" {{\n  provisioner \"local-exec\" {{ command = \"{waits}\" }}\n}}\n"
        )
    };
    one.write("app/main.tf", &module(&waits));
    two.write("app/main.tf", &module("true"));
    let apply = one.start("apply", &["apply", "--auto-approve"]);
    one.wait_until("the engine is at work", || begun.exists());

    assert_snapshot!(shown(&two, &two.cli(&["run", "cancel", "c1"]).expect(4)), @"
    ── stderr
    error: cannot cancel change set c1 from here: it runs on another machine
    hint: run the same command on that machine
    hint: `terrane run cancel c1 --gone --reason …` ends it if that machine no longer exists
    [exit 4]
    ");
    let broken = two.cli(&["lock", "break", "app", "--reason", "gone", "--auto-approve"]);
    assert_snapshot!(shown(&two, &broken.expect(4)), @"
    ── stderr
    error: run r1, which holds the lock on state `k3v9qd/app`, runs on another machine
    hint: wait for it
    hint: `terrane run cancel c1 --gone --reason …` ends it if that machine no longer exists
    [exit 4]
    ");
    let list = two.cli(&["lock", "list"]).expect(0).stdout;
    assert!(
        list.contains(
            "on another machine; if that machine is gone for good: `terrane run cancel c1 --gone"
        ),
        "{list}"
    );
    let gone = ["run", "cancel", "c1", "--gone", "--reason", "it burnt"];
    assert_snapshot!(shown(&two, &two.cli(&gone).expect(4)), @"
    ── stderr
    If the machine of change set c1 still works, wait for it: no state records what it does from now on.
    error: nothing was done: its name must be typed, and there is no terminal
    hint: give it with `--confirm c1`
    [exit 4]
    ");
    let confirmed = [&gone[..], &["--confirm", "c1"]].concat();
    assert_snapshot!(shown(&two, &two.cli(&confirmed).expect(0)), @"
    ── stderr
    If the machine of change set c1 still works, wait for it: no state records what it does from now on.
    Run r1 of `app` is over: unknown: its runner was lost.
    Change set c1 is given up. Check the real resources before the next apply: `terrane plan`.
    ");
    assert_snapshot!(shown(&two, &two.cli(&confirmed).expect(4)), @"
    ── stderr
    error: change set c1 has already ended
    [exit 4]
    ");
    drop(two.cli(&["apply", "--auto-approve"]).expect(0));
    let serial = two.cli(&["state", "pull", "app"]).expect(0).stdout;
    let open = two.cli(&["run", "list", "--open"]).expect(0).stdout;

    fs::write(&goes_on, "").unwrap();
    let said = apply.wait();
    assert_ne!(said.code, Some(0), "{said}");
    assert_eq!(two.cli(&["state", "pull", "app"]).expect(0).stdout, serial);
    drop(two.cli(&["plan", "--detailed-exitcode"]).expect(0));
    assert!(!open.contains("machine given up"), "{open}");
    let own = two.cli(&[
        "run",
        "cancel",
        "c2",
        "--gone",
        "--reason",
        "no",
        "--confirm",
        "c2",
    ]);
    assert_snapshot!(shown(&two, &own.expect(4)), @"
    ── stderr
    error: change set c2 has already ended
    [exit 4]
    ");
}

#[test]
fn what_waits_on_another_machine_is_said_to_be_there() {
    let blobs = tempfile::tempdir().unwrap();
    let database = Postgres::start().database();
    let home = format!("{database}&blobs=file://{}", blobs.path().display());
    let (one, two) = (machine(&home, &[]), machine(&home, &[]));
    drop(one.cli(&["apply"]).expect(3));
    let here = one.cli(&["run", "list"]).expect(0).stdout;
    assert!(!here.contains("another machine"), "{here}");
    let there = two.cli(&["run", "list"]).expect(0).stdout;
    assert!(
        there.contains(", on another machine: confirm it there"),
        "{there}"
    );
    // Who is asked about it sees it.
    let [plan, same] = [&one, &two].map(|it| it.cli(&["run", "show", "c1", "--plan"]).expect(0));
    assert!(plan.stdout.contains("shared"), "{plan}");
    assert_eq!(plan.stdout, same.stdout);
}

/// A key that is made here would open nothing of theirs.
#[test]
fn a_home_of_others_wants_their_key() {
    let blobs = tempfile::tempdir().unwrap();
    let database = Postgres::start().database();
    let home = format!("{database}&blobs=file://{}", blobs.path().display());
    let new = || {
        let test = terrane().env("TERRANE_HOME", &home);
        let key = test.root().join("new.key");
        let test = test.env("TERRANE_KEY_FILE", &key.display().to_string());
        test.write("terrane.hcl", &format!("{HEAD}{}", stack("app", "")))
            .write("app/main.tf", "output \"text\" { value = \"shared\" }\n");
        test
    };
    // Whoever is the first makes one.
    let first = new();
    let said = first.cli(&["apply", "--auto-approve"]).expect(0);
    assert!(said.stderr.contains("made a new master key"), "{said}");
    let second = new();
    for _ in 0..2 {
        let said = second.cli(&["state", "list"]).expect(1);
        let words: Vec<&str> = said.stderr.split_whitespace().collect();
        let expected = "sealed with a master key that is not available";
        assert!(words.join(" ").contains(expected), "{said}");
        assert!(!second.root().join("new.key").exists(), "{said}");
    }
}
