//! `verify`: gates looked at with the real binary, against servers on loopback.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use insta::assert_snapshot;
use testkit::{CommandOutput, Dns, TestTerrane};

use crate::project::one_stack;

/// A page whose status can be changed.
struct Page {
    address: String,
    status: Arc<Mutex<u16>>,
}

impl Page {
    fn start(status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let status = Arc::new(Mutex::new(status));
        let shared = Arc::clone(&status);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut line = String::new();
                while reader.read_line(&mut line).is_ok_and(|length| length > 2) {
                    line.clear();
                }
                let status = *shared.lock().unwrap();
                let body = r#"{"status":"fine"}"#;
                let head = format!(
                    "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                // Who has gone does not want an answer.
                let _ = stream
                    .write_all(head.as_bytes())
                    .and_then(|()| stream.write_all(body.as_bytes()));
            }
        });
        Self { address, status }
    }

    fn answers(&self, status: u16) {
        *self.status.lock().unwrap() = status;
    }
}

const OUTPUTS: &str = r#"output "addresses" { value = { dev = "203.0.113.7", prod = "203.0.113.8" } }
output "token" {
  value     = "s3cr3t-token-of-ours"
  sensitive = true
}
"#;

/// A stack whose outputs say what the world should be like.
fn applied(gates: &str, dns: &Dns, page: &Page) -> TestTerrane {
    let gates = gates
        .replace("RESOLVER", &dns.address())
        .replace("PAGE", &page.address);
    let test = one_stack(&gates, OUTPUTS);
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    test
}

/// The same, where a gate of the stack may fail.
fn applied_whatever(gates: &str, dns: &Dns, page: &Page) -> TestTerrane {
    let gates = gates
        .replace("RESOLVER", &dns.address())
        .replace("PAGE", &page.address);
    let test = one_stack("", OUTPUTS);
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let file = test.read("terrane.hcl");
    let at = file.rfind('}').unwrap();
    test.write("terrane.hcl", &format!("{}{gates}\n}}\n", &file[..at]));
    test
}

const GATES: &str = r#"
  gate "dns" "wildcard" {
    for_each = output.addresses
    names    = ["*.${each.key}.example.io"]
    expect   = each.value
    resolver = "RESOLVER"
  }
  gate "http" "page" {
    url     = "http://PAGE/health"
    headers = { Authorization = "Bearer ${output.token}" }
    json    = { status = "fine" }
    after   = ["wildcard"]
  }
  gate "equal" "address" {
    values = { output = output.addresses.dev, reserved = "203.0.113.7" }
  }
  gate "command" "script" {
    run = ["sh", "-c", "test -f terrane.hcl"]
  }"#;

fn steady(said: &CommandOutput, dns: &Dns, page: &Page) -> String {
    let text = said.to_string();
    let text = text
        .replace(&dns.address(), "RESOLVER")
        .replace(&page.address, "PAGE");
    let text = text.replace(&format!("-p {}", dns.port()), "-p PORT");
    // How long a look took, and the lines of progress, depend on the machine.
    let lines = text.lines().filter(|line| !line.starts_with("00:"));
    let lines = lines.map(|line| match line.split_once(", after ") {
        Some((head, tail)) => match tail.split_once(" (") {
            Some((_, tail)) => format!("{head}, after TIME ({tail}"),
            None => line.to_owned(),
        },
        None => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

const ZONE: &str = "*.dev A 203.0.113.7\n*.prod A 203.0.113.8";

#[test]
fn the_world_is_as_the_outputs_say_and_then_it_is_not() {
    let (dns, page) = (Dns::start(ZONE), Page::start(200));
    let test = applied(GATES, &dns, &page);
    let passed = test.cli(&["verify"]).expect(0);
    assert_snapshot!(steady(&passed, &dns, &page), @"
    ✓ address         equal     2 values are 203.0.113.7
    ✓ page            http      200 from http://PAGE/health
    ✓ script          command   sh: exit code 0
    ✓ wildcard-dev    dns       *.dev.example.io: 203.0.113.7
    ✓ wildcard-prod   dns       *.prod.example.io: 203.0.113.8
    5 of 5 gates passed
    ── stderr
    gates of `app`
    ");

    dns.change("*.dev A 203.0.113.7\n*.prod A 198.51.100.4");
    let failed = test.cli(&["verify", "app", "--once"]).expect(5);
    assert_snapshot!(steady(&failed, &dns, &page), @"
    ✓ address        equal     2 values are 203.0.113.7
    ✓ script         command   sh: exit code 0
    ✓ wildcard-dev   dns       *.dev.example.io: 203.0.113.7
    ── stderr
    gates of `app`
    ✗ gate `page` (http) on app was not tried: it comes after `wildcard-prod`
    ✗ gate `wildcard-prod` (dns) on app, after TIME (1 attempt)
        *.prod.example.io
          expected   203.0.113.8
          seen       198.51.100.4 from RESOLVER, TTL 300
          see also   dig @127.0.0.1 -p PORT any-label.prod.example.io A
    error: not verified: 2 of 5 gates did not pass
    hint: fix the problem, then run `terrane verify` again
    [exit 5]
    ");

    dns.change(ZONE);
    page.answers(503);
    let failed = test.cli(&["verify", "--gate", "page", "--once"]).expect(5);
    assert_snapshot!(steady(&failed, &dns, &page), @r#"
    ✓ wildcard-dev    dns   *.dev.example.io: 203.0.113.7
    ✓ wildcard-prod   dns   *.prod.example.io: 203.0.113.8
    ── stderr
    gates of `app`
    ✗ gate `page` (http) on app, after TIME (1 attempt)
        status
          expected   200
          seen       503
          also       the page says: {"status":"fine"}
          see also   curl --include --header 'Authorization: …' http://PAGE/health
    error: not verified: 1 of 3 gates did not pass
    hint: fix the problem, then run `terrane verify` again
    [exit 5]
    "#);
    for said in [passed, failed, test.cli(&["verify", "--once", "--json"])] {
        let all = format!("{}{}", said.stdout, said.stderr);
        assert!(!all.contains("s3cr3t"), "{all}");
    }
}

#[test]
fn evidence_as_data() {
    let (dns, page) = (Dns::start(ZONE), Page::start(200));
    let gates = r#"
  gate "tcp" "port" { address = "PAGE" }
  gate "equal" "address" { values = [output.addresses.dev, "203.0.113.9"] }"#;
    let test = applied_whatever(gates, &dns, &page);
    let said = test.cli(&["verify", "--once", "--json"]).expect(5);
    let mut document: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    for gate in document["stacks"][0]["gates"].as_array_mut().unwrap() {
        for time in ["began", "ended", "since"] {
            if gate.get(time).is_some() {
                gate[time] = "TIME".into();
            }
        }
        if gate["kind"] == "tcp" {
            gate["evidence"]["took_ms"] = 0.into();
        }
    }
    let text = serde_json::to_string_pretty(&document).unwrap();
    assert_snapshot!(text.replace(&page.address, "PAGE"), @r#"
    {
      "gates": 2,
      "passed": 1,
      "stacks": [
        {
          "stack": "app",
          "gates": [
            {
              "name": "address",
              "kind": "equal",
              "verdict": "failed",
              "misses": [
                {
                  "subject": "value 2",
                  "expected": "203.0.113.7 (value 1)",
                  "seen": "203.0.113.9"
                }
              ],
              "tries": 1,
              "began": "TIME",
              "ended": "TIME",
              "since": "TIME",
              "evidence": {
                "kind": "equal",
                "values": [
                  {
                    "label": "value 1",
                    "value": "203.0.113.7"
                  },
                  {
                    "label": "value 2",
                    "value": "203.0.113.9"
                  }
                ]
              }
            },
            {
              "name": "port",
              "kind": "tcp",
              "verdict": "passed",
              "tries": 1,
              "began": "TIME",
              "ended": "TIME",
              "evidence": {
                "kind": "tcp",
                "address": "PAGE",
                "peer": "PAGE",
                "took_ms": 0
              }
            }
          ]
        }
      ]
    }
    "#);
}

#[test]
fn gates_that_cannot_be_looked_at() {
    let test = one_stack(
        r#"
  gate "dns" "names" {
    names    = ["www.example.io"]
    expect   = output.address
    resolver = "127.0.0.1"
  }
  gate "tls" "certificate" {
    host = "www.example.io"
    port = 70000
  }
  gate "tcp" "port" {
    address = "www.example.io"
    after   = ["nothing"]
  }"#,
        "",
    );
    assert_snapshot!(test.cli(&["verify"]).expect(1), @r#"
    ── stderr
    error: stack `app` has no output `address`
      --> terrane.hcl:16:16
       |
    16 |     expect   = output.address
       |                ^^^^^^^^^^^^^^ the module in `app` declares no such output
       |
       = hint: it declares no outputs

    error: gate `certificate`: `port` must be a port, from 1 to 65535
      --> terrane.hcl:21:12
       |
    21 |     port = 70000
       |            ^^^^^ here

    error: gate `port`: `address` must be `host:port`, not `www.example.io`
      --> terrane.hcl:24:15
       |
    24 |     address = "www.example.io"
       |               ^^^^^^^^^^^^^^^^ here

    error: there is no gate `nothing` in stack `app`
      --> terrane.hcl:25:15
       |
    25 |     after   = ["nothing"]
       |               ^^^^^^^^^^^ in this list
       |
       = hint: there are `certificate`, `names` and `port`

    4 errors in terrane.hcl
    [exit 1]
    "#);
    assert_snapshot!(one_stack("", "").cli(&["verify"]).expect(64), @r#"
    ── stderr
    error: none of these stacks has a gate
    hint: a gate is a block of a stack: `gate "http" "page" { url = "https://…" }`
    [exit 64]
    "#);
}

#[test]
fn one_gate_is_looked_at_whatever_is_wrong_with_others() {
    let gates = r#"
  gate "command" "fine" { run = ["true"] }
  gate "command" "first" { run = ["true"] }
  gate "command" "second" {
    run   = ["true"]
    after = ["first"]
  }
  gate "tcp" "nonsense" { address = "nowhere" }
  gate "tcp" "missing" { address = output.ports.ssh }"#;
    let test = one_stack("", "output \"ports\" { value = {} }\n");
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let file = test.read("terrane.hcl");
    let at = file.rfind('}').unwrap();
    test.write("terrane.hcl", &format!("{}{gates}\n}}\n", &file[..at]));
    drop(test.cli(&["verify"]).expect(1));
    let said = test
        .cli(&["verify", "--gate", "second", "--gate", "fine"])
        .expect(0);
    assert_snapshot!(said.stdout, @"
    ✓ fine     command   true: exit code 0
    ✓ first    command   true: exit code 0
    ✓ second   command   true: exit code 0
    3 of 3 gates passed
    ");
    drop(test.cli(&["verify", "--gate", "nonsense"]).expect(5));
}

#[test]
fn a_gate_without_its_values_fails_as_itself_and_the_others_are_looked_at() {
    let gates = r#"
  gate "equal" "published" {
    values = [output.name, fact.runtime["a.yaml"].name]
  }
  gate "tcp" "missing" { address = output.ports.ssh }
  gate "command" "fine" { run = ["true"] }
  gate "command" "later" {
    run   = ["true"]
    after = ["missing"]
  }"#;
    let test = one_stack(
        "",
        "output \"ports\" { value = {} }\noutput \"name\" { value = \"n\" }\n",
    );
    drop(test.git(&["init", "--quiet", "--bare", "../facts.git"]));
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let file = test.read("terrane.hcl");
    let at = file.rfind('}').unwrap();
    let place = "facts \"runtime\" { repository = \"../facts.git\" }\n";
    test.write(
        "terrane.hcl",
        &format!("{place}{}{gates}\n}}\n", &file[..at]),
    );
    let said = test.cli(&["verify"]).expect(5);
    let text = said.to_string();
    let lines = text.lines().filter(|line| !line.starts_with("00:"));
    assert_snapshot!(lines.collect::<Vec<_>>().join("\n"), @r#"
    ✓ fine   command   true: exit code 0
    ── stderr
    gates of `app`
    ✗ gate `later` (command) on app was not tried: it comes after `missing`
    ✗ gate `missing` (tcp) on app, after 0 s (1 attempt)
          could not check   `address` has no value: could not evaluate `output.ports.ssh`: there is no
                            `ssh` in this object
    ✗ gate `published` (equal) on app, after 0 s (1 attempt)
          could not check   `fact.runtime["a.yaml"]` is not published
    error: not verified: 3 of 4 gates did not pass
    hint: fix the problem, then run `terrane verify` again
    [exit 5]
    "#);
    let said = test.cli(&["verify", "--json"]).expect(5);
    let read: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!((&read["gates"], &read["passed"]), (&4.into(), &1.into()));
}
