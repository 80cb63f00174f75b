//! Targets whose states live in backends of the engine, with the real servers: what is applied is there, a
//! copy of it is here, and both ways between the two keep lineage and serial.

use insta::assert_snapshot;
use serde_json::Value;
use testkit::{Azurite, FakeGcs, FakeHttpBackend, Minio, Postgres, TestTerrane, engines};

use crate::project::{HEAD, shown, stack, terrane};

const BASE: &str = "resource \"terraform_data\" \"a\" { input = \"base\" }\noutput \"name\" { value = terraform_data.a.output }\n";
const APP: &str = "variable \"name\" { type = string }\nresource \"terraform_data\" \"a\" { input = var.name }\noutput \"greeting\" { value = \"hello ${terraform_data.a.output}\" }\n";

/// `base` gives a value to `app`; their target has this backend, and their context this environment.
fn project(engine: &str, backend: &str, env: &[(&str, &str)]) -> TestTerrane {
    let test = terrane();
    let target = format!("target \"local\" {{\n  writers = [\"anyone\"]\n  {backend}\n}}");
    let head = HEAD
        .replace("\"tofu\"", &format!("\"{engine}\""))
        .replace("target \"local\" { writers = [\"anyone\"] }", &target);
    let lines: Vec<String> = env
        .iter()
        .map(|(name, value)| format!("    {name} = \"{value}\"\n"))
        .collect();
    let lines = lines.concat();
    let context = format!(
        "context \"backend\" {{\n  autoattach = [\"target:local\"]\n  env = {{\n{lines}  }}\n}}\n"
    );
    let stacks = [
        stack("base", ""),
        stack("app", "inputs = { name = stack.base.output.name }"),
    ];
    test.write(
        "terrane.hcl",
        &format!("{head}{context}{}", stacks.concat()),
    )
    .write("base/main.tf", BASE)
    .write("app/main.tf", APP);
    test
}

/// Applies, finds the outputs, changes nothing the second time, and has a copy of what the backend holds.
#[track_caller]
fn check(test: &TestTerrane) {
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let said = test.cli(&["output", "app", "greeting", "--raw"]).expect(0);
    assert_eq!(said.stdout, "hello base");
    let again = test.cli(&["plan", "--detailed-exitcode"]);
    assert_eq!(again.code, Some(0), "{again}");
    let copy = test.cli(&["state", "pull", "app"]).expect(0).stdout;
    let copy: Value = serde_json::from_str(&copy).expect("a state");
    assert_eq!(copy["outputs"]["greeting"]["value"], "hello base");
    drop(test.cli(&["destroy", "--auto-approve"]).expect(0));
    let copy = test.cli(&["state", "pull", "app"]).expect(0).stdout;
    let copy: Value = serde_json::from_str(&copy).expect("a state");
    assert_eq!(copy["resources"], Value::Array(Vec::new()));
}

pub(crate) fn s3(minio: &Minio, bucket: &str) -> String {
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
fn s3_with_a_lock_file() {
    let minio = Minio::start();
    for (engine, _) in engines::all() {
        let bucket = minio.bucket();
        let test = project(engine, &s3(&minio, &bucket), &[]);
        check(&test);
        assert_eq!(minio.keys(&bucket), ["app.tfstate", "base.tfstate"]);
    }
}

/// Only OpenTofu does that. The edge from `base` to `app` works, since the engine itself is asked.
#[test]
fn what_the_client_encrypts_in_a_bucket_flows_along_edges() {
    let minio = Minio::start();
    let bucket = minio.bucket();
    let test = project("tofu", &s3(&minio, &bucket), &[]);
    let encryption = r#"terraform {
  encryption {
    key_provider "pbkdf2" "main" {
      passphrase = "a passphrase for this test"
      iterations = 200000 // the fewest it takes
    }
    method "aes_gcm" "main" { keys = key_provider.pbkdf2.main }
    state { method = method.aes_gcm.main }
    plan { method = method.aes_gcm.main }
  }
}
"#;
    for (path, module) in [("base", BASE), ("app", APP)] {
        test.write(&format!("{path}/main.tf"), &format!("{encryption}{module}"));
    }
    check(&test);
}

#[test]
fn a_copy_is_not_pushed_over_even_by_force() {
    let minio = Minio::start();
    let test = project("tofu", &s3(&minio, &minio.bucket()), &[]);
    drop(test.cli(&["apply", "base", "--auto-approve"]).expect(0));
    test.write("old.tfstate", STATE);
    let push = "state push base old.tfstate --force --reason r --auto-approve";
    let said = test.cli(&push.split(' ').collect::<Vec<_>>()).expect(4);
    assert!(said.stderr.contains("what is here is a copy"), "{said}");
    let copy = test.cli(&["state", "pull", "base"]).expect(0).stdout;
    assert!(!copy.contains("kept"), "{copy}");
}

#[test]
fn credentials_do_not_lie_beside_the_source() {
    let minio = Minio::start();
    let bucket = minio.bucket();
    let literal = format!("\"{}\"", Minio::SECRET_KEY);
    let backend = s3(&minio, &bucket).replace(&literal, "env(\"STATE_KEY\")");
    let test = project("tofu", &backend, &[]).env("STATE_KEY", Minio::SECRET_KEY);
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let found = test.shell(&format!(
        "grep -rl {} ../home ../cache; true",
        Minio::SECRET_KEY
    ));
    assert_eq!(found.stdout, "");
}

#[test]
fn pg_with_a_schema_for_each_stack() {
    let postgres = Postgres::start();
    for (engine, _) in engines::all() {
        let database = postgres.database();
        let backend = format!(
            "backend \"pg\" {{\n    conn_str = \"{database}\"\n    schema_name = \"${{stack.state}}\"\n  }}"
        );
        check(&project(engine, &backend, &[]));
    }
}

/// A session's lock cannot be ended by another one: saying that it was would let a second writer in.
#[test]
fn a_lock_of_pg_is_not_said_to_be_broken() {
    let postgres = Postgres::start();
    let database = postgres.database();
    let backend = format!(
        "backend \"pg\" {{\n    conn_str = \"{database}\"\n    schema_name = \"${{stack.state}}\"\n  }}"
    );
    let test = project("tofu", &backend, &[]);
    let args = "lock break base --id nonsense --reason r --auto-approve";
    let said = test.cli(&args.split(' ').collect::<Vec<_>>());
    assert_snapshot!(shown(&test, &said), @"
    ── stderr
    error: cannot break a lock in backend `pg`: only the connection that holds it can release it
    hint: end the engine that holds it, or its session in the database
    [exit 4]
    ");
    let open = test.cli(&["run", "list", "--open"]).expect(0).to_string();
    assert!(!open.contains("nonsense"), "{open}");
}

#[test]
fn gcs_with_a_prefix_for_each_stack() {
    let gcs = FakeGcs::start();
    for (engine, _) in engines::all() {
        let bucket = gcs.bucket();
        let backend = format!(
            "backend \"gcs\" {{\n    bucket = \"{bucket}\"\n    prefix = \"${{stack.state}}\"\n    access_token = \"none\"\n    \
             storage_custom_endpoint = \"{}/storage/v1/\"\n  }}",
            gcs.endpoint()
        );
        let env = [("STORAGE_EMULATOR_HOST", gcs.endpoint())];
        check(&project(engine, &backend, &[(env[0].0, &env[0].1)]));
    }
}

/// The block, and the environment by which an engine finds the emulator under the public name of Azure.
pub(crate) fn azurerm(azurite: &Azurite) -> (String, [(&'static str, String); 2]) {
    let (proxy, container) = (azurite.proxy(), azurite.container());
    let backend = format!(
        "backend \"azurerm\" {{\n    storage_account_name = \"{}\"\n    container_name = \"{container}\"\n    \
         key = \"${{stack.state}}.tfstate\"\n    access_key = \"{}\"\n  }}",
        Azurite::ACCOUNT,
        Azurite::KEY
    );
    let certificate = proxy.certificate().display().to_string();
    let env = [
        ("HTTPS_PROXY", proxy.address()),
        ("SSL_CERT_FILE", certificate),
    ];
    (backend, env)
}

#[test]
fn azurerm_with_a_key_for_each_stack() {
    let azurite = Azurite::start();
    for (engine, _) in engines::all() {
        let (backend, env) = azurerm(&azurite);
        let env = env.each_ref().map(|(name, value)| (*name, value.as_str()));
        check(&project(engine, &backend, &env));
    }
}

#[test]
fn http_with_an_address_for_each_stack() {
    for (engine, _) in engines::all() {
        let server = FakeHttpBackend::start(None);
        let (user, password) = FakeHttpBackend::CREDENTIAL.split_once(':').expect("both");
        let address = format!("{}/${{stack.state}}", server.address());
        let backend = format!(
            "backend \"http\" {{\n    address = \"{address}\"\n    lock_address = \"{address}\"\n    \
             unlock_address = \"{address}\"\n    username = \"{user}\"\n    password = \"{password}\"\n  }}"
        );
        let test = project(engine, &backend, &[]);
        check(&test);
        assert_eq!(server.paths(), ["/state/app", "/state/base"]);
        assert!(
            server.log().contains("LOCK GET POST UNLOCK"),
            "{}",
            server.log()
        );
        assert!(!server.is_locked());
        // Only the lock that is named is broken, though Terraform's own command names none.
        server.is_locked_by("/state/app", "alice");
        let break_it = |id: &str| {
            let args = format!("lock break app --id {id} --reason gone --auto-approve");
            test.cli(&args.split(' ').collect::<Vec<_>>())
        };
        drop(break_it("other").expect(1));
        assert!(server.is_locked(), "{engine}");
        drop(break_it("alice").expect(0));
        assert!(!server.is_locked(), "{engine}");
        let list = test.cli(&["lock", "list"]).expect(0).stderr;
        let unknown = "No lock was found; 2 states cannot be checked.\n";
        assert!(list.starts_with(unknown), "{list}");
    }
}

#[test]
fn an_identity_in_the_source_is_an_error() {
    let test = project("tofu", "backend \"s3\" { bucket = \"b\" }", &[]);
    test.write(
        "base/backend.tf",
        "terraform {\n  backend \"s3\" {\n    key = \"mine\"\n  }\n}\n",
    )
    .write("app/backend.tf", "terraform {\n  backend \"s3\" {}\n}\n");
    assert_snapshot!(shown(&test, &test.cli(&["validate"]).expect(1)), @r#"
    ── stderr
    error: both the source and target `local` define where its state is
      --> base/backend.tf:2:3
       |
     2 |   backend "s3" {
       |   ^^^^^^^^^^^^ this block may be empty, or not there at all
       |
       = hint: move its settings to `backend "s3"` of target `local`, as used by stack `base`

    1 error in base/backend.tf
    [exit 1]
    "#);
}

#[test]
fn a_state_comes_from_the_engines_backend_and_goes_back() {
    for (engine, program) in engines::all() {
        let test = project(engine, "", &[]);
        let old = test.root().join("old.tfstate").display().to_string();
        let own = format!("terraform {{\n  backend \"local\" {{ path = \"{old}\" }}\n}}\n");
        test.write("base/backend.tf", &own);
        let program = program.display();
        let applied = test.shell(&format!(
            "cd base && '{program}' init -input=false && '{program}' apply -auto-approve && rm -rf .terraform"
        ));
        assert_eq!(applied.code, Some(0), "{applied}");
        let before: Value =
            serde_json::from_str(&std::fs::read_to_string(&old).expect("a state")).expect("JSON");

        let said = test.cli(&["state", "import", "base", "--from", "engine"]);
        assert_eq!(said.code, Some(0), "{engine}: {said}");
        let here = test.cli(&["state", "pull", "base"]).expect(0).stdout;
        let here: Value = serde_json::from_str(&here).expect("JSON");
        for part in ["lineage", "serial", "resources", "outputs"] {
            assert_eq!(here[part], before[part], "{engine}: {part}");
        }

        // Into an empty backend: the lineage stays.
        std::fs::remove_file(&old).expect("a file");
        drop(
            test.cli(&["state", "export", "base", "--to", "engine"])
                .expect(0),
        );
        let after: Value =
            serde_json::from_str(&std::fs::read_to_string(&old).expect("a state")).expect("JSON");
        assert_eq!(after["lineage"], before["lineage"], "{engine}");
        let serial = before["serial"].as_u64().expect("a number");
        // Remote backends count on at the second push; a file does not.
        let there = after["serial"].as_u64().expect("a number");
        assert!([serial, serial + 1].contains(&there), "{engine}: {there}");
    }
}

#[test]
fn all_states_go_out_and_come_back() {
    let test = project("tofu", "", &[]);
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let pull = |name: &str| test.cli(&["state", "pull", name]).expect(0).stdout;
    let (base, app) = (pull("base"), pull("app"));
    drop(
        test.cli(&["state", "export", "--all", "--to", "../backup"])
            .expect(0),
    );
    assert_snapshot!(test.shell("cd ../backup && find . -type f | sort").stdout, @"
    ./app.tfstate
    ./base.tfstate
    ./states.json
    ");
    let again = test
        .cli(&["state", "export", "--all", "--to", "../backup"])
        .expect(1);
    assert_snapshot!(shown(&test, &again), @"
    ── stderr
    error: `ROOT/project/../backup` already exists
    hint: name a path that does not exist
    [exit 1]
    ");

    // Another home, as after a disk was lost.
    let fresh = test.root().join("fresh").display().to_string();
    let test = test.env("TERRANE_HOME", &fresh);
    let said = test
        .cli(&["state", "import", "--all", "--from", "../backup"])
        .expect(0);
    assert_snapshot!(shown(&test, &said).replace(lineage(&base).as_str(), "BASE").replace(lineage(&app).as_str(), "APP"), @r#"
    change set c1 on `local`

    base  no changes
    app   no changes

    No changes: everything matches the configuration.
    ── stderr
    State `app` imported: serial 1, lineage APP.
    State `base` imported: serial 1, lineage BASE.
    change set c1: plan on `local`
    "#);
    let pull = |name: &str| test.cli(&["state", "pull", name]).expect(0).stdout;
    assert_eq!((pull("base"), pull("app")), (base, app));
}

fn lineage(state: &str) -> String {
    let state: Value = serde_json::from_str(state).expect("JSON");
    state["lineage"].as_str().expect("a lineage").to_owned()
}

#[test]
fn a_copy_is_not_taken_for_the_state() {
    let test = terrane();
    let path = test.root().join("elsewhere.tfstate").display().to_string();
    let moved = format!(
        "target \"local\" {{\n  writers = [\"anyone\"]\n  backend \"local\" {{ path = \"{path}\" }}\n}}"
    );
    let head = HEAD.replace("target \"local\" { writers = [\"anyone\"] }", &moved);
    test.write("terrane.hcl", &format!("{head}{}", stack("app", "")))
        .write("app/main.tf", "output \"o\" { value = \"kept\" }\n");
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    test.write("terrane.hcl", &format!("{HEAD}{}", stack("app", "")));
    assert_snapshot!(shown(&test, &test.cli(&["plan"])), @r#"
    change set c2 on `local`

    app  failed while planning
        its state is in a backend of the engine; the state here is a copy
        `terrane state import app --from …` imports it, `--from copy` imports the last copy of it

    Plan: no changes so far; 1 failed.
    ── stderr
    change set c2: plan on `local`
    [exit 4]
    "#);
    let said = test.cli(&["state", "import", "app", "--from", &path]);
    assert_eq!(said.code, Some(0), "{said}");
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    assert_eq!(
        test.cli(&["output", "app", "o", "--raw"]).expect(0).stdout,
        "kept"
    );
}

pub(crate) const STATE: &str = r#"{"version":4,"terraform_version":"1.11.14","serial":41,"lineage":"old","outputs":{"o":{"value":"kept","type":"string"}},"resources":[],"check_results":null}"#;

pub(crate) fn one_output() -> TestTerrane {
    let test = terrane().env("OLD_HOME", FakeHttpBackend::CREDENTIAL);
    test.write("terrane.hcl", &format!("{HEAD}{}", stack("app", "")))
        .write("app/main.tf", "output \"o\" { value = \"kept\" }\n");
    test
}

#[test]
fn an_http_backend_is_locked_while_its_state_moves() {
    let old = FakeHttpBackend::start(Some(STATE));
    let test = one_output();
    let args = ["state", "import", "app", "--from", old.address()];
    let refused = test.cli(&args);
    assert_eq!(refused.code, Some(1), "{refused}");
    let said = test.cli(&[&args[..], &["--credential", "env:OLD_HOME"]].concat());
    assert_eq!(said.code, Some(0), "{said}");
    assert_eq!(old.log(), "LOCK LOCK GET UNLOCK");
    assert_eq!(test.cli(&["state", "pull", "app"]).expect(0).stdout, STATE);
    assert_snapshot!(shown(&test, &said), @r#"
    change set c1 on `local`

    app  no changes

    No changes: everything matches the configuration.
    ── stderr
    State `app` imported: serial 41, lineage old.
    change set c1: plan on `local`
    "#);
}

#[test]
fn a_password_in_an_address_is_not_shown() {
    let old = FakeHttpBackend::start(Some(STATE));
    let test = one_output();
    let address = old.address().replace("http://", "http://u:hush-hush@") + "?key=hush-hush";
    let said = test.cli(&["state", "import", "app", "--from", &address]);
    assert_eq!(said.code, Some(1), "{said}");
    assert!(said.stderr.contains(old.address()), "{said}");
    assert!(!said.stderr.contains("hush-hush"), "{said}");
}

#[test]
fn an_old_home_stays_locked_on_request() {
    let old = FakeHttpBackend::start(Some(STATE));
    let test = one_output();
    let args = ["state", "import", "app", "--from", old.address()];
    let more = [
        "--credential",
        "env:OLD_HOME",
        "--leave-locked",
        "--no-plan",
    ];
    let said = test.cli(&[&args[..], &more].concat()).expect(0);
    let words = shown(&test, &said);
    let id = words.split('`').nth(3).unwrap();
    assert_snapshot!(words.replace(id, "ID"), @r#"
    ── stderr
    State `app` imported: serial 41, lineage old; its old home stays locked.
    hint: `ID` is its lock: `force-unlock ID` of an engine with that backend releases it
    "#);
    assert!(old.is_locked());
    // Again: it is locked by whoever imported it first.
    let said = test.cli(&[&args[..], &more].concat()).expect(1).stderr;
    assert!(said.contains("is locked by"), "{said}");
}

#[test]
fn an_old_home_that_cannot_be_unlocked_is_named_with_its_lock() {
    let test = one_output();
    let import = |old: &FakeHttpBackend| {
        let args = ["state", "import", "app", "--from", old.address()];
        let said = test.cli(&[&args[..], &["--credential", "env:OLD_HOME"]].concat());
        let words = shown(&test, &said);
        let id = words.split("hint: `").nth(1).unwrap().split('`').next();
        words
            .replace(id.unwrap(), "ID")
            .replace(old.address(), "ADDRESS")
    };
    // Nothing is there, and so nothing was imported.
    let empty = FakeHttpBackend::start(None);
    empty.breaks_on("UNLOCK");
    assert_snapshot!(import(&empty), @"
    ── stderr
    error: state `k3v9qd/app` was not imported, but terrane cannot unlock its old home
           there is no state at `ADDRESS`
    hint: `ID` is its lock:
          `force-unlock ID` of an engine with that backend releases it
    [exit 1]
    ");
    let old = FakeHttpBackend::start(Some(STATE));
    old.breaks_on("UNLOCK");
    assert_snapshot!(import(&old), @"
    ── stderr
    error: state `k3v9qd/app` was imported (serial 41), but terrane cannot unlock its old home
           could not unlock the state at `ADDRESS`: it answered 500
    hint: `ID` is its lock:
          `force-unlock ID` of an engine with that backend releases
          it; do not repeat the import
    [exit 1]
    ");
    assert_eq!(test.cli(&["state", "pull", "app"]).expect(0).stdout, STATE);
}

#[test]
fn what_cannot_be_kept_locked_is_not_said_to_be() {
    let test = one_output();
    test.write("old.tfstate", STATE);
    let args = ["state", "import", "app", "--from", "old.tfstate"];
    let said = test.cli(&[&args[..], &["--leave-locked"]].concat());
    assert_snapshot!(shown(&test, &said), @"
    ── stderr
    error: `--leave-locked`: a file cannot be kept locked
    hint: import without it, and make sure that no client writes there any more
    [exit 64]
    ");
}

#[test]
fn a_state_is_not_brought_to_the_disk_of_a_job() {
    let test = one_output().without_env("TERRANE_HOME").env("CI", "true");
    test.write("old.tfstate", STATE);
    let push = "state push app old.tfstate --reason r --auto-approve";
    let import = "state import app --from old.tfstate";
    for args in [push, import] {
        let args: Vec<&str> = args.split(' ').collect();
        let said = test.cli(&args).expect(4);
        assert!(said.stderr.contains("the disk of this CI job"), "{said}");
    }
}

#[test]
fn a_state_goes_to_an_http_backend_as_it_is() {
    let new = FakeHttpBackend::start(None);
    let test = one_output();
    test.write("old.tfstate", STATE);
    let import = [
        "state",
        "import",
        "app",
        "--from",
        "old.tfstate",
        "--no-plan",
    ];
    drop(test.cli(&import).expect(0));
    let broken = FakeHttpBackend::start(None);
    broken.breaks_on("UNLOCK");
    let export = ["state", "export", "app", "--to", broken.address()];
    let said = test.cli(&[&export[..], &["--credential", "env:OLD_HOME"]].concat());
    let words = said.expect(1).stderr;
    assert!(words.contains("the state was written to"), "{words}");
    assert!(words.contains("is its lock"), "{words}");
    let export = ["state", "export", "app", "--to", new.address()];
    drop(
        test.cli(&[&export[..], &["--credential", "env:OLD_HOME"]].concat())
            .expect(0),
    );
    assert_eq!(new.state().as_deref(), Some(STATE));
    assert_eq!(new.log(), "LOCK GET POST UNLOCK");

    // What is newer there, or somebody else's, stays.
    for other in [
        STATE.replace("\"serial\":41", "\"serial\":77"),
        STATE.replace("\"lineage\":\"old\"", "\"lineage\":\"other\""),
    ] {
        assert_ne!(other, STATE);
        let taken = FakeHttpBackend::start(Some(&other));
        let export = ["state", "export", "app", "--to", taken.address()];
        let said = test.cli(&[&export[..], &["--credential", "env:OLD_HOME"]].concat());
        let words = said.expect(1).stderr;
        assert!(words.contains(" holds "), "{words}");
        assert_eq!(taken.state(), Some(other));
        assert!(!taken.is_locked(), "{words}");
    }
}

#[test]
fn another_lineage_is_not_replaced() {
    let test = one_output();
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    test.write("old.tfstate", STATE);
    let said = test.cli(&["state", "import", "app", "--from", "old.tfstate"]);
    assert_snapshot!(shown(&test, &said), @r#"
    ── stderr
    error: state `k3v9qd/app` already has versions here, with another lineage (serial 1)
    hint: `terrane state push STACK FILE --force --reason …` replaces it
    [exit 1]
    "#);
}
