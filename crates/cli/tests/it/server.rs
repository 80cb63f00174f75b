//! `terrane server` and `terrane token`, as an operator and an engine meet them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use rcgen::{CertificateParams, KeyPair};
use testkit::{BackgroundCommand, CommandOutput, TestTerrane};

use crate::project::{HEAD, stack, terrane};

const SOURCE: &str = r#"
terraform {
  backend "http" {}
}
resource "terraform_data" "it" {
  input = "one"
}
"#;

/// A server under way.
pub(crate) struct Server {
    process: BackgroundCommand,
    url: String,
}

impl Server {
    pub(crate) fn start(test: &TestTerrane, more: &[&str]) -> Self {
        let args = ["server", "--listen", "127.0.0.1:0", "--json"];
        let process = test.start("server", &[&args, more].concat());
        let mut url = None;
        test.wait_until("the server listens", || {
            let line = process.stdout_so_far();
            let event = serde_json::from_str::<serde_json::Value>(&line).ok();
            url = event.and_then(|event| {
                assert_eq!(event["event"], "listening");
                event["url"].as_str().map(str::to_owned)
            });
            url.is_some()
        });
        let url = url.unwrap();
        Self { process, url }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        let (_, address) = self.url.split_once("://").unwrap();
        address.parse().unwrap()
    }

    /// Sends it a signal to end, and waits.
    pub(crate) fn stop(self) -> CommandOutput {
        self.process.terminate();
        self.process.wait()
    }

    /// Without a warning.
    pub(crate) fn kill(self) {
        self.process.kill();
        drop(self.process.wait());
    }

    fn ask(&self, request: &str, token: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        write!(
            stream,
            "{request} HTTP/1.1\r\nHost: here\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        answer(&mut stream)
    }
}

/// The status of an answer.
fn answer(stream: &mut TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

pub(crate) fn token(test: &TestTerrane, args: &[&str]) -> String {
    let made = test.cli(&[&["token", "create"], args].concat()).expect(0);
    made.stdout.trim_end().to_owned()
}

/// Runs every engine's `args`, with its state on the server.
fn engines(test: &TestTerrane, url: &str, token: &str, more: &str, lines: &str, code: i32) {
    for (name, _) in testkit::engines::all() {
        test.write(&format!("{name}/main.tf"), SOURCE);
        let script = format!(
            "set -e; cd {name}; export TF_IN_AUTOMATION=1 CHECKPOINT_DISABLE=1 TF_HTTP_RETRY_MAX=0; \
             export TF_HTTP_USERNAME=ci TF_HTTP_PASSWORD={token}; \
             export TF_HTTP_ADDRESS={url}/state/shop/{name}; \
             export TF_HTTP_LOCK_ADDRESS=$TF_HTTP_ADDRESS TF_HTTP_UNLOCK_ADDRESS=$TF_HTTP_ADDRESS; {more} \
             engine() {{ {name} \"$@\" -input=false -no-color; }}; {lines}"
        );
        let said = test.shell(&script);
        assert_eq!(said.code, Some(code), "{name}: {said}");
    }
}

#[test]
fn of_fifty_engines_one_writes_at_a_time() {
    let test = terrane();
    let server = Server::start(&test, &[]);
    let secret = token(&test, &["ci", "--states", "shop/*"]);
    // All have the same state, each wants another value in it, and none waits for the lock.
    let race = "engine init > /dev/null; cd ..; \
                for n in $(seq 50); do cp -R $OLDPWD race-$n; sed -i s/one/value-$n/ race-$n/main.tf; done; \
                for n in $(seq 50); do \
                  (cd race-$n; if engine apply -auto-approve > said 2>&1; then touch won; fi) & done; wait; \
                rm -rf raced; mkdir raced; ls race-*/won | wc -l > raced/won; \
                for n in $(seq 50); do \
                  [ -e race-$n/won ] || grep -q 'state lock' race-$n/said || cat race-$n/said; done > raced/strange; \
                rm -rf race-*";
    engines(&test, &server.url, &secret, "", race, 0);
    // Whoever was refused was refused for the lock, and for nothing else.
    assert_eq!(test.read("raced/strange"), "");
    let won: usize = test.read("raced/won").trim().parse().unwrap();
    let (name, _) = testkit::engines::all().into_iter().next_back().unwrap();
    let versions = test.cli_in(
        "..",
        &["state", "versions", &format!("shop/{name}"), "--json"],
    );
    let versions: serde_json::Value = serde_json::from_str(&versions.expect(0).stdout).unwrap();
    let serials: Vec<u64> = versions_of(&versions);
    assert_eq!(serials.len(), won, "each who won wrote once: {versions}");
    let mut expected = serials.clone();
    expected.sort_unstable();
    expected.dedup();
    assert_eq!(expected.len(), serials.len(), "no serial twice: {versions}");
    drop(server.stop().expect(0));
}

fn versions_of(document: &serde_json::Value) -> Vec<u64> {
    let list = document
        .as_array()
        .or_else(|| document["versions"].as_array());
    let serials = list
        .unwrap()
        .iter()
        .map(|version| version["serial"].as_u64().unwrap());
    serials.collect()
}

#[test]
fn an_engine_keeps_its_state_on_a_server() {
    let test = terrane();
    let server = Server::start(&test, &[]);
    let secret = token(&test, &["ci", "--states", "shop/*"]);
    assert!(secret.starts_with("terrane_"), "{secret}");
    let life = "engine init; engine plan; engine apply -auto-approve; engine plan -detailed-exitcode; \
                engine destroy -auto-approve";
    engines(&test, &server.url, &secret, "", life, 0);
    let log = server.process.stderr_so_far();
    assert!(log.contains(r#""state":"shop/tofu""#), "{log}");
    assert!(!log.contains(&secret) && !log.contains("ID="), "{log}");
    let said = server.stop().expect(0);
    assert!(said.stderr.contains("stopping"), "{said}");
}

#[test]
fn an_engine_keeps_its_state_on_a_server_over_tls() {
    let test = terrane();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    test.write("tls.crt", &pem)
        .write("tls.key", &key.serialize_pem());
    let server = Server::start(&test, &["--tls-cert", "tls.crt", "--tls-key", "tls.key"]);
    let secret = token(&test, &["ci"]);
    assert!(
        server.url.starts_with("https://127.0.0.1:"),
        "{}",
        server.url
    );
    let trust = "export TF_HTTP_CLIENT_CA_CERTIFICATE_PEM=\"$(cat ../tls.crt)\";";
    let life = "engine init; engine apply -auto-approve; engine plan -detailed-exitcode";
    engines(&test, &server.url, &secret, trust, life, 0);
    server.process.hang_up();
    test.wait_until("the certificate is read again", || {
        server
            .process
            .stderr_so_far()
            .contains("certificate reloaded")
    });
    drop(server.stop().expect(0));
}

#[test]
fn a_token_is_shown_once_and_ends_when_it_is_revoked() {
    let test = terrane();
    let server = Server::start(&test, &["--log", "error"]);
    let secret = token(
        &test,
        &["reader", "--read", "--states", "shop/*", "--expires", "90d"],
    );
    assert_eq!(server.ask("GET /state/shop/a", &secret, ""), "404");
    assert_eq!(server.ask("GET /state/other/a", &secret, ""), "403");
    assert_eq!(server.ask("POST /state/shop/a", &secret, "{}"), "403");
    // It would open nothing.
    drop(
        test.cli(&["token", "create", "none", "--states", ""])
            .expect(64),
    );
    insta::assert_snapshot!(test.cli(&["token", "create", "reader"]), @"
    ── stderr
    error: cannot create token `reader`
           token `reader` already exists
    [exit 1]
    ");
    let listed = test.cli(&["token", "list", "--json"]).expect(0);
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(listed["tokens"][0]["scope"], "read");
    assert_eq!(listed["tokens"][0]["valid"], true);
    assert!(!listed.to_string().contains(&secret));
    drop(test.cli(&["token", "revoke", "reader"]).expect(0));
    test.wait_until("the token ends", || {
        server.ask("GET /state/shop/a", &secret, "") == "401"
    });
    let table = test.cli(&["token", "list"]).expect(0).stdout;
    assert!(table.contains("revoked"), "{table}");
    insta::assert_snapshot!(test.cli(&["token", "revoke", "reader"]), @"
    ── stderr
    error: token `reader` does not exist or is already revoked
    hint: `terrane token list` lists all tokens
    [exit 1]
    ");
    drop(server.stop().expect(0));
}

#[test]
fn wrong_words_are_explained() {
    let test = terrane();
    insta::assert_snapshot!(test.cli(&["token", "create", "x", "--expires", "soon"]), @"
    ── stderr
    error: `soon` is not a duration: write `12h`, `90d` or `4w`
    [exit 64]
    ");
    insta::assert_snapshot!(test.cli(&["server", "--listen", "0.0.0.0:0"]), @"
    ── stderr
    error: cannot listen on `0.0.0.0:0`: other machines can reach it, and there is no TLS
    hint: add `--tls-cert FILE --tls-key FILE`; otherwise tokens and states cross the network in clear
    hint: behind a proxy that terminates TLS, add `--allow-plain-http`
    [exit 4]
    ");
    let bare = terrane().without_env("TERRANE_HOME");
    insta::assert_snapshot!(bare.cli(&["server"]), @"
    ── stderr
    error: cannot start the server: no home was given
    hint: name its directory: `terrane server --data DIR`
    [exit 64]
    ");
}

#[test]
fn a_bare_name_is_a_state_only_with_bare_paths() {
    let test = terrane();
    let secret = token(&test, &["ci"]);
    for (options, expected) in [(&[][..], "403"), (&["--bare-paths"][..], "404")] {
        let server = Server::start(&test, options);
        assert_eq!(server.ask("GET /network", &secret, ""), expected);
        drop(server.stop().expect(0));
    }
}

#[test]
fn a_stop_waits_for_the_write_that_is_under_way() {
    let test = terrane();
    let server = Server::start(&test, &[]);
    let secret = token(&test, &["ci"]);
    let body = r#"{"version":4,"serial":1,"lineage":"l","outputs":{},"resources":[]}"#;
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let head = format!(
        "POST /state/shop/a HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {secret}\r\n\
         Content-Length: {}\r\nExpect: 100-continue\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    // Said when the body is waited for.
    let mut go_on = [0; 25];
    stream.read_exact(&mut go_on).unwrap();
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(&body.as_bytes()[..20]).unwrap();
    server.process.terminate();
    let address = server.address();
    test.wait_until("nobody new is accepted", || {
        TcpStream::connect(address).is_err()
    });
    stream.write_all(&body.as_bytes()[20..]).unwrap();
    assert_eq!(answer(&mut stream), "200");
    drop(server.process.wait().expect(0));

    let server = Server::start(&test, &[]);
    assert_eq!(server.ask("GET /state/shop/a", &secret, ""), "200");
    drop(server.stop().expect(0));
}

/// Where not anyone may apply, other writers are kept out as soon as the project has planned once.
#[test]
fn a_planned_state_of_a_closed_target_is_only_for_runs() {
    let closed = "target \"local\" { writers = [\"server\"] }";
    let head = HEAD.replace("target \"local\" { writers = [\"anyone\"] }", closed);
    let test = terrane();
    test.write("terrane.hcl", &format!("{head}{}", stack("app", "")))
        .write("app/main.tf", "output \"text\" { value = \"plain\" }\n");
    drop(test.cli(&["plan"]).expect(0));
    let home = test.home();
    let data = home.to_str().unwrap();
    let server = Server::start(&test, &["--data", data]);
    let secret = token(&test, &["me", "--surgery", "--data", data]);
    let path = "/state/k3v9qd/app";
    let lock = r#"{"ID":"a","Operation":"OperationTypeApply","Who":"me"}"#;
    assert_eq!(server.ask(&format!("GET {path}"), &secret, ""), "404");
    assert_eq!(server.ask(&format!("LOCK {path}"), &secret, lock), "403");
    drop(server.stop().expect(0));
}

fn state(serial: u64) -> String {
    format!(r#"{{"version":4,"serial":{serial},"lineage":"l","outputs":{{}},"resources":[]}}"#)
}

/// It goes on with the new key: for what it has read, for what it has not, and for what is new.
#[test]
fn a_server_notices_a_rotated_key() {
    let test = terrane();
    let server = Server::start(&test, &[]);
    let secret = token(&test, &["ci"]);
    let ask = |server: &Server, request: &str, body: &str| server.ask(request, &secret, body);
    assert_eq!(ask(&server, "POST /state/shop/a", &state(1)), "200");
    assert_eq!(ask(&server, "POST /state/shop/b", &state(1)), "200");
    drop(server.stop().expect(0));
    let server = Server::start(&test, &[]);
    assert_eq!(ask(&server, "GET /state/shop/a", ""), "200");
    drop(test.cli(&["key", "rotate", "--auto-approve"]).expect(0));
    for (request, body) in [
        ("GET /state/shop/a", String::new()),
        ("GET /state/shop/b", String::new()),
        ("POST /state/shop/b", state(2)),
        ("POST /state/shop/c", state(1)),
        ("GET /state/shop/c", String::new()),
    ] {
        assert_eq!(ask(&server, request, &body), "200", "{request}");
    }
    drop(server.stop().expect(0));
    let listed = test.cli(&["key", "list", "--json"]).expect(0).stdout;
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let wrapped: Vec<_> = listed["keys"]
        .as_array()
        .unwrap()
        .iter()
        .map(|key| key["data_keys"].as_u64().unwrap())
        .collect();
    assert_eq!(wrapped, [4, 0], "three states and the project: {listed}");
}

/// Every state of a server comes back from its export, in a home that is empty.
#[test]
fn what_a_server_holds_is_exported_and_imported() {
    let test = terrane();
    let server = Server::start(&test, &[]);
    let secret = token(&test, &["ci"]);
    for path in ["shop/a", "shop/b%2Fc", "alone"] {
        let written = server.ask(&format!("POST /state/{path}"), &secret, &state(3));
        assert_eq!(written, "200");
    }
    drop(server.stop().expect(0));
    drop(
        test.cli(&["state", "export", "--all", "--to", "out"])
            .expect(0),
    );
    let one = ["state", "export", "alone", "--to", "alone.tfstate"];
    drop(test.cli(&one).expect(0));
    assert_eq!(test.read("alone.tfstate"), state(3));

    let other = test.root().join("other").display().to_string();
    let at = |args: &[&str]| test.cli(&[args, &["--data", &other]].concat());
    drop(at(&["state", "import", "--all", "--from", "out"]).expect(0));
    for name in ["shop/a", "shop/b/c", "alone"] {
        assert_eq!(at(&["state", "pull", name]).expect(0).stdout, state(3));
    }
    test.write("changed.tfstate", &state(4));
    let one = ["state", "import", "alone", "--from", "changed.tfstate"];
    drop(at(&one).expect(0));
    assert_eq!(at(&["state", "pull", "alone"]).expect(0).stdout, state(4));
    let wrong = at(&["state", "pull", "missing"]).expect(1);
    assert!(
        wrong.stderr.contains("`terrane state list --data "),
        "{wrong}"
    );

    test.write("out/alone.tfstate", &state(9));
    let changed = at(&["state", "import", "--all", "--from", "out"]).expect(1);
    assert!(
        changed.stderr.contains("is not the exported file"),
        "{changed}"
    );
}

#[test]
fn a_deleted_state_comes_back() {
    let test = terrane();
    let server = Server::start(&test, &[]);
    let secret = token(&test, &["ci"]);
    assert_eq!(server.ask("POST /state/shop/a", &secret, &state(3)), "200");
    assert_eq!(server.ask("DELETE /state/shop/a", &secret, ""), "200");
    assert_eq!(server.ask("GET /state/shop/a", &secret, ""), "404");
    assert_eq!(server.ask("POST /state/shop/a", &secret, &state(3)), "409");

    let refused = test.cli(&["state", "refusals", "shop/a"]).expect(0);
    let said = server.process.stderr_so_far();
    assert!(refused.stdout.contains("POST"), "{refused}");
    assert!(said.contains(r#""status":409,"reason":""#), "{said}");
    let all = test.cli(&["state", "refusals", "--json"]).expect(0).stdout;
    assert!(all.contains(r#""method": "POST""#), "{all}");

    let gone = |args: &[&str]| test.cli(&[&["state"], args].concat());
    for args in [["show", "shop/a"], ["list", "shop/a"], ["diff", "shop/a"]] {
        let said = gone(&args).expect(1);
        assert!(
            said.stderr.contains("error: state `shop/a` was deleted on"),
            "{said}"
        );
        assert!(said.stderr.contains(", by ci"), "{said}");
    }
    drop(gone(&["show", "shop/a", "--version", "1"]).expect(0));
    let versions = gone(&["versions", "shop/a"]).expect(0);
    assert!(
        versions.stderr.contains("Deleted just now, by ci"),
        "{versions}"
    );
    let listed = gone(&["versions", "shop/a", "--json"]).expect(0).stdout;
    assert!(listed.contains(r#""by": "ci""#), "{listed}");
    let found = gone(&["search", "a"]).expect(0);
    assert!(!found.stdout.contains("shop/a"), "{found}");

    let back = ["state", "rollback", "shop/a", "--to", "1", "--auto-approve"];
    let back = [&back[..], &["--reason", "a mistake"]].concat();
    let said = test.cli(&back).expect(0);
    assert!(
        said.stderr.contains("version 2 of `shop/a`, serial 4"),
        "{said}"
    );
    assert_eq!(server.ask("GET /state/shop/a", &secret, ""), "200");
    assert_eq!(server.ask("GET /shop//a", &secret, ""), "403");
    let log = server.process.stderr_so_far();
    assert!(log.contains(r#""path":"/shop//a""#), "{log}");
    drop(server.stop().expect(0));
}
