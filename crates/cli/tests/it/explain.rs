//! Records of what was done by hand: reasons that are missing, and records that no run can close.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use testkit::{CommandOutput, TestTerrane};

use crate::project::{HEAD, one_stack, stack, terrane};
use crate::server::{Server, token};

const MODULE: &str = r#"
resource "terraform_data" "it" { input = "one" }
output "word" {
  value     = "correct-horse-battery"
  sensitive = true
}
"#;

const STATE: &str = r#"{"version":4,"serial":1,"lineage":"l","outputs":{},"resources":[]}"#;

/// The status of an answer. What has no body comes in chunks of which there are none, as Terraform's `force-unlock`.
fn ask(server: &Server, request: &str, token: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let sent = if body.is_empty() {
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned()
    } else {
        format!("Content-Length: {}\r\n\r\n{body}", body.len())
    };
    let head = "Host: here\r\nConnection: close";
    write!(
        stream,
        "{request} HTTP/1.1\r\n{head}\r\nAuthorization: Bearer {token}\r\n{sent}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

fn lock(server: &Server, path: &str, token: &str, id: &str) {
    let info = format!(r#"{{"ID":"{id}","Operation":"OperationTypeApply","Who":"me@here"}}"#);
    assert_eq!(ask(server, &format!("LOCK {path}"), token, &info), "200");
}

fn force_unlock(server: &Server, path: &str, token: &str) {
    lock(server, path, token, "a");
    assert_eq!(ask(server, &format!("UNLOCK {path}"), token, ""), "200");
}

fn list(test: &TestTerrane) -> CommandOutput {
    test.cli(&["run", "list", "--open"]).expect(0)
}

fn explain(test: &TestTerrane, record: &str, reason: &str) -> CommandOutput {
    test.cli(&["run", "explain", record, "--reason", reason])
}

#[track_caller]
fn says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "`{word}` is missing in:\n{text}");
    }
}

#[test]
fn a_reason_that_is_owed_can_be_given_and_then_an_apply_closes_the_record() {
    let test = one_stack("", MODULE);
    let apply = || drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    apply();
    let server = Server::start(&test, &[]);
    let secret = token(&test, &["ci"]);
    force_unlock(&server, "/state/k3v9qd/app", &secret);
    drop(server.stop().expect(0));

    let missing = "`terrane run explain b1 --reason …`";
    let said = list(&test);
    says(
        &said.stdout,
        &["b1", "lock broken", "no reason was given yet", missing],
    );
    let first = format!("b1: first add the reason with {missing}; then closed when the next");
    says(&said.stderr, &[&first]);
    let note = test.cli(&["lock", "list"]).expect(0).stderr;
    says(
        &note,
        &[&format!("no reason was given yet, {missing} adds it")],
    );
    apply();
    says(&list(&test).stdout, &["no reason was given yet"]);

    let why = "its job hung, word correct-horse-battery";
    says(
        &explain(&test, "b1", why).expect(0).stderr,
        &["Record b1", "closes when the next"],
    );
    let said = list(&test);
    says(&said.stdout, &["its job hung", "explained by `"]);
    assert!(!said.stdout.contains("correct-horse"), "{said}");
    says(&said.stderr, &["Each closes when the next `terrane apply`"]);
    let again = explain(&test, "b1", "other").expect(4).stderr;
    says(
        &again,
        &[
            "record `b1` already has a reason: its job hung",
            "it closes when the next",
        ],
    );
    apply();
    assert_eq!(
        list(&test).stderr,
        "No record of a break-glass action is open.\n"
    );
    says(
        &explain(&test, "b1", "other").expect(4).stderr,
        &["record `b1` was closed on 2"],
    );
}

#[test]
fn records_of_states_outside_of_projects_are_listed_and_closed_by_an_explanation() {
    let test = terrane();
    let server = Server::start(&test, &[]);
    let secret = token(&test, &["ci"]);
    for path in ["/state/alone", "/state/shop/a"] {
        assert_eq!(ask(&server, &format!("POST {path}"), &secret, STATE), "200");
    }
    assert_eq!(ask(&server, "DELETE /state/alone", &secret, ""), "200");
    force_unlock(&server, "/state/shop/a", &secret);
    lock(&server, "/state/shop/a", &secret, "b");
    drop(server.stop().expect(0));
    let args = ["lock", "break", "shop/a", "--auto-approve"];
    let broken = test.cli(&[&args[..], &["--reason", "its job was killed"]].concat());
    drop(broken.expect(0));

    let said = list(&test);
    says(
        &said.stdout,
        &["alone", "shop/a", "state deleted", "its job was killed"],
    );
    let all = "b1, b2, b3: of no stack here; `terrane run explain ID --reason …` closes it.\n";
    assert_eq!(said.stderr, all);
    let listed = test.cli(&["run", "list", "--open", "--json"]).expect(0);
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(listed["open"][0]["id"], "b1");
    assert_eq!(listed["open"][0]["closed_by"], "explanation");
    assert_eq!(listed["outside"], 0);

    drop(explain(&test, "b1", " ").expect(64));
    drop(explain(&test, "r1", "why").expect(64));
    says(
        &explain(&test, "b9", "why").expect(1).stderr,
        &["there is no break-glass record `b9`"],
    );
    let closed = explain(&test, "b1", "it moved").expect(0);
    assert_eq!(closed.stderr, "Closed record b1: state deleted, `alone`.\n");
    drop(explain(&test, "b3", "looked at").expect(0));
    says(
        &explain(&test, "b3", "again").expect(4).stderr,
        &["was closed on 2"],
    );

    // A project says that there is more than its own.
    test.write("terrane.hcl", &format!("{HEAD}{}", stack("app", "")));
    let said = list(&test);
    let at = test.home().display().to_string();
    says(
        &said.stderr,
        &[
            "No record of a break-glass action in this project is open.\n",
            "Outside of this project 1 break-glass action is open",
            &format!("`terrane run list --open --data {at}`"),
        ],
    );
    let outside = test.cli_in("..", &["run", "list", "--open", "--data", &at]);
    let command = format!("`terrane run explain b2 --data {at} --reason …`");
    let outside = outside.expect(0);
    says(&outside.stdout, &["b2", "shop/a", &command]);
    says(
        &outside.stderr,
        &[&format!("b2: of no stack here; {command} closes it.")],
    );
    drop(explain(&test, "b2", "the engine hung").expect(0));
    assert_eq!(
        list(&test).stderr,
        "No record of a break-glass action is open.\n"
    );
}

/// What is kept of a stack that was removed is waited for by no apply.
#[test]
fn the_record_of_a_removed_stack_is_closed_by_an_explanation() {
    let test = one_stack("", "");
    test.write("../by-hand.tfstate", STATE);
    let push = ["state", "push", "app", "../by-hand.tfstate", "--force"];
    let yes = ["--reason", "it was lost", "--auto-approve"];
    drop(test.cli(&[&push[..], &yes[..]].concat()).expect(0));
    says(&list(&test).stderr, &["Each closes when the next"]);
    says(
        &explain(&test, "b1", "looked at").expect(4).stderr,
        &["record `b1` already has a reason: it was lost"],
    );
    test.write("terrane.hcl", &format!("{HEAD}{}", stack("other", "")))
        .write("other/main.tf", "");
    let way = "b1: of no stack here; `terrane run explain b1 --reason …` closes it.\n";
    assert_eq!(list(&test).stderr, way);
    drop(explain(&test, "b1", "looked at").expect(0));
    assert_eq!(
        list(&test).stderr,
        "No record of a break-glass action is open.\n"
    );
}
