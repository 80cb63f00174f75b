//! States that go to a backend of the engine: what is there is neither taken for ours nor lost, and nobody writes here
//! meanwhile.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};
use testkit::{CommandOutput, FakeHttpBackend, TestTerrane};

use crate::backends::{STATE, one_output};
use crate::locks::changing;
use crate::project::one_stack;
use crate::server::{Server, token};

const IT: &str = "resource \"terraform_data\" \"it\" { input = 1 }\n";
const HERE: &str = "target \"local\" { writers = [\"anyone\"] }";
const EXPORT: [&str; 5] = ["state", "export", "app", "--to", "engine"];
const IMPORT: [&str; 6] = [
    "state",
    "import",
    "app",
    "--no-plan",
    "--from",
    "old.tfstate",
];

/// One stack, `app`, that was applied here.
fn applied() -> TestTerrane {
    let test = one_stack("", IT);
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    test
}

/// The target with a backend that keeps states in files outside of the project.
fn there(test: &TestTerrane) -> String {
    let dir = test.root().join("there").display().to_string();
    format!(
        "target \"local\" {{\n  writers = [\"anyone\"]\n  backend \"local\" {{ path = \"{dir}/${{stack.state}}.tfstate\" }}\n}}"
    )
}

/// From now on states live there, as the project says.
fn goes_there(test: &TestTerrane) {
    let project = test.read("terrane.hcl").replace(HERE, &there(test));
    test.write("terrane.hcl", &project);
}

/// And here again.
fn comes_here(test: &TestTerrane) {
    let project = test.read("terrane.hcl").replace(&there(test), HERE);
    test.write("terrane.hcl", &project);
    let import = ["state", "import", "app", "--no-plan", "--from", "copy"];
    drop(test.cli(&import).expect(0));
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// The state as it is here.
fn here(test: &TestTerrane) -> Value {
    json_of(&test.cli(&["state", "pull", "app"]).expect(0).stdout)
}

fn read(test: &TestTerrane) -> Value {
    let file = test.root().join("there/app.tfstate");
    json_of(&fs::read_to_string(file).expect("a state"))
}

fn put(test: &TestTerrane, state: &Value) {
    let dir = test.root().join("there");
    fs::create_dir_all(&dir).expect("a directory");
    fs::write(dir.join("app.tfstate"), state.to_string()).expect("a file");
}

/// Somebody applied in the backend.
fn somebody_writes(test: &TestTerrane, serial: u64) {
    let mut state = read(test);
    state["serial"] = json!(serial);
    state["outputs"] = json!({ "by": { "value": "somebody", "type": "string" } });
    put(test, &state);
}

/// What was said, however its lines were broken.
fn words(said: &CommandOutput) -> String {
    let words: Vec<&str> = said.stderr.split_whitespace().collect();
    words.join(" ")
}

#[test]
fn an_apply_under_way_keeps_its_state_from_going() {
    let story = changing("tofu");
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    goes_there(&story);
    let export = ["state", "export", "base", "--to", "engine"];
    let said = words(&story.cli(&export).expect(4));
    assert!(
        said.contains("the state of stack `base` is locked by"),
        "{said}"
    );
    assert!(said.contains("wait for run r2"), "{said}");
    assert!(!story.root().join("there/base.tfstate").exists());
    story.open("slow");
    drop(apply.wait().expect(0));
    let said = words(&story.cli(&export).expect(0));
    assert!(said.contains("State `base` written to"), "{said}");
    drop(story.cli(&["plan", "--detailed-exitcode"]).expect(0));
    let locks = story.cli(&["lock", "list", "--own"]).expect(0);
    assert!(locks.stderr.starts_with("Nothing is locked."), "{locks}");
}

/// A backend that was empty counts the first push twice: the next apply here has the same serial.
#[test]
fn what_we_left_there_is_older_whatever_its_serial() {
    let test = applied();
    let mut left = here(&test);
    left["serial"] = json!(2);
    put(&test, &left);
    test.write("app/main.tf", &IT.replace('1', "2"));
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    assert_eq!(here(&test)["serial"], 2);
    goes_there(&test);
    let said = words(&test.cli(&EXPORT).expect(0));
    assert!(said.contains("written to the backend of target"), "{said}");
    assert!(read(&test)["serial"].as_i64() > Some(2), "{said}");
    let input = &read(&test)["resources"][0]["instances"][0]["attributes"]["input"];
    assert_eq!(input["value"], 2);
    drop(test.cli(&["plan", "--detailed-exitcode"]).expect(0));
}

#[test]
fn of_two_states_that_went_on_neither_is_taken_for_the_other() {
    let test = applied();
    goes_there(&test);
    drop(test.cli(&EXPORT).expect(0));
    comes_here(&test);
    test.write("app/main.tf", &IT.replace('1', "2"));
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    somebody_writes(&test, 5);
    goes_there(&test);
    let (ours, theirs) = (here(&test), read(&test));
    let said = words(&test.cli(&EXPORT).expect(1));
    let refused = "the backend of target `local` holds serial 5 already, and ours is 2";
    assert!(said.contains(refused), "{said}");
    let way = "`terrane state push app FILE --force --reason …`";
    assert!(said.contains(way), "{said}");
    assert_eq!((here(&test), read(&test)), (ours, theirs.clone()));
    let locks = test.cli(&["lock", "list", "--own"]).expect(0);
    assert!(locks.stderr.starts_with("Nothing is locked."), "{locks}");

    // The hint is a way out.
    let file = test.root().join("there/app.tfstate").display().to_string();
    let push = ["state", "push", "app", &file, "--force"];
    let yes = ["--reason", "theirs is right", "--auto-approve"];
    drop(test.cli(&[&push[..], &yes[..]].concat()).expect(0));
    let said = words(&test.cli(&EXPORT).expect(0));
    assert!(said.contains("State `app` is there already"), "{said}");
    assert_eq!(read(&test), theirs);
}

/// It was seen there, and nobody has written it here since: what is newer there came after it.
#[test]
fn what_came_here_from_there_is_followed_by_what_is_newer_there() {
    let test = applied();
    goes_there(&test);
    drop(test.cli(&EXPORT).expect(0));
    // Of a copy it is true anyway.
    somebody_writes(&test, 3);
    let said = words(&test.cli(&EXPORT).expect(0));
    assert!(said.contains("is there already"), "{said}");
    assert_eq!(here(&test)["serial"], 3);
    comes_here(&test);
    let mut next = read(&test);
    next["serial"] = json!(5);
    next["outputs"] = json!({});
    put(&test, &next);
    goes_there(&test);
    let said = words(&test.cli(&EXPORT).expect(0));
    assert!(said.contains("is there already"), "{said}");
    assert_eq!(here(&test)["serial"], 5);
    assert_eq!(read(&test), next);
}

/// Nobody has to remove anything there.
#[test]
fn a_second_export_to_the_backend_of_the_source_goes_over_the_first() {
    let test = one_output();
    let counted_on = STATE.replace("\"serial\":41", "\"serial\":42");
    test.write("old.tfstate", STATE)
        .write("next.tfstate", &counted_on.replace("kept", "moved"));
    drop(test.cli(&IMPORT).expect(0));
    let push = ["state", "push", "app", "next.tfstate"];
    let yes = ["--reason", "test", "--auto-approve"];
    drop(test.cli(&[&push[..], &yes[..]].concat()).expect(0));
    test.write("app/backend.tf", "terraform {\n  backend \"local\" {}\n}\n")
        .write("app/terraform.tfstate", &counted_on);
    drop(test.cli(&EXPORT).expect(0));
    let there = json_of(&test.read("app/terraform.tfstate"));
    assert_eq!(there["outputs"]["o"]["value"], "moved");
    assert_eq!(there["lineage"], "old");
    assert!(there["serial"].as_i64() > Some(42), "{there}");
}

#[test]
fn who_is_told_to_stop_gives_the_lock_back() {
    let old = FakeHttpBackend::start(None);
    let address = old.address();
    let own = format!(
        "terraform {{\n  backend \"http\" {{\n    address  = \"{address}\"\n    \
         username = \"user\"\n    password = \"password\"\n  }}\n}}\n"
    );
    let test = one_output();
    test.write("old.tfstate", STATE);
    drop(test.cli(&IMPORT).expect(0));
    test.write("app/backend.tf", &own);
    old.is_silent_on("GET");
    let export = test.start("export", &EXPORT);
    test.wait_until("it reads", || old.log().contains("GET"));
    let locks = test.cli(&["lock", "list", "--own"]).expect(0);
    assert!(locks.stdout.contains("migration source state"), "{locks}");
    export.interrupt();
    let said = export.wait().expect(130);
    assert!(
        said.stderr.contains("interrupted: nothing was written"),
        "{said}"
    );
    let locks = test.cli(&["lock", "list", "--own"]).expect(0);
    assert!(locks.stderr.starts_with("Nothing is locked."), "{locks}");
}

/// In a project, a name alone is that of a stack.
#[test]
fn the_lock_of_a_state_of_no_project_is_named_as_it_is_typed() {
    let test = applied();
    let home = test.home().display().to_string();
    let server = Server::start(&test, &["--data", &home]);
    let secret = token(&test, &["me", "--states", "**", "--data", &home]);
    let lock = r#"{"ID":"a","Operation":"OperationTypeApply","Who":"me"}"#;
    let mut stream = TcpStream::connect(server.address()).expect("a server");
    write!(
        stream,
        "LOCK /state/free HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\
         Authorization: Bearer {secret}\r\nContent-Length: {}\r\n\r\n{lock}",
        lock.len()
    )
    .expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop(server.stop().expect(0));
    let list = test.cli(&["lock", "list"]).expect(0).stdout;
    assert!(
        list.contains("`terrane lock break /free --reason …`"),
        "{list}"
    );
    let reason = ["--reason", "it is gone", "--auto-approve"];
    let broken = test.cli(&[&["lock", "break", "/free"], &reason[..]].concat());
    drop(broken.expect(0));
}

/// Where it was seen, somebody may have gone on.
#[test]
fn a_copy_is_not_brought_to_an_empty_place_without_a_word() {
    let test = applied();
    goes_there(&test);
    drop(test.cli(&EXPORT).expect(0));
    let there = test.root().join("there");
    fs::rename(&there, test.root().join("gone")).unwrap();
    let said = words(&test.cli(&EXPORT).expect(4));
    assert!(said.contains("is a copy of its backend from"), "{said}");
    drop(test.cli(&[&EXPORT[..], &["--copy"]].concat()).expect(0));
    drop(test.cli(&["plan", "--detailed-exitcode"]).expect(0));
}
