//! Gates carried out against real listeners.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;

use drivers::process::Environment;
use model::base::diagnostic::Location;
use model::stage::ResolvedBlock;
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, UnboundedReceiver};

use super::*;

fn block(kind: &str, name: &str, attrs: Value) -> ResolvedBlock {
    let Value::Object(attrs) = attrs else {
        panic!("attributes are an object");
    };
    ResolvedBlock {
        kind: kind.to_owned(),
        name: name.to_owned(),
        each: None,
        attrs,
        blocks: Vec::new(),
        sensitive: BTreeSet::new(),
        at: Location::default(),
    }
}

fn around(once: bool) -> GateContext {
    GateContext {
        dir: std::env::temp_dir(),
        env: Environment::from_iter([("PATH", "/usr/bin:/bin")]),
        mask: Mask::default(),
        once,
        skipped: BTreeMap::new(),
    }
}

async fn ended(
    blocks: &[ResolvedBlock],
    once: bool,
) -> (Vec<GateReport>, UnboundedReceiver<GateEvent>) {
    let gates = Gate::read_all(blocks).unwrap();
    let (events, heard) = mpsc::unbounded_channel();
    (run(gates, around(once), &events).await, heard)
}

/// An address at which nobody listens.
fn closed() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

#[tokio::test]
async fn a_gate_that_comes_after_a_failed_one_is_not_tried() {
    let open = TcpListener::bind("127.0.0.1:0").unwrap();
    let open = open.local_addr().unwrap().to_string();
    let blocks = [
        block(
            "tcp",
            "last",
            json!({ "address": open, "after": ["middle"] }),
        ),
        block(
            "tcp",
            "middle",
            json!({ "address": open, "after": ["first"] }),
        ),
        block("tcp", "first", json!({ "address": closed() })),
        block("equal", "apart", json!({ "values": ["a", "a"] })),
    ];
    let (reports, mut heard) = ended(&blocks, true).await;
    let said: Vec<String> = reports
        .iter()
        .map(|report| {
            format!(
                "{} {} {}",
                report.name,
                report.tries,
                report.verdict.brief()
            )
        })
        .collect();
    assert_eq!(said[0], "last 0 not tried: gate `middle` did not pass");
    assert_eq!(said[1], "middle 0 not tried: gate `first` did not pass");
    assert!(said[2].starts_with("first 1 127.0.0.1:"), "{}", said[2]);
    assert_eq!(said[3], "apart 1 passed");
    let mut ends = 0;
    while let Ok(event) = heard.try_recv() {
        ends += usize::from(matches!(event, GateEvent::Ended(_)));
    }
    assert_eq!(ends, 4);
}

#[tokio::test]
async fn it_is_looked_at_again_until_it_passes() {
    let address = closed();
    let attrs = json!({ "address": address, "interval": "1s", "timeout": "600s" });
    let gates = Gate::read_all(&[block("tcp", "port", attrs)]).unwrap();
    let (events, mut heard) = mpsc::unbounded_channel();
    let running = tokio::spawn(async move { run(gates, around(false), &events).await });
    // Somebody begins to listen after the first look.
    let listener = loop {
        if let GateEvent::Looked { tries, said, .. } = heard.recv().await.unwrap() {
            assert_eq!(
                (tries, &*said),
                (1, &*format!("{address}: connection refused"))
            );
            break TcpListener::bind(&address).unwrap();
        }
    };
    let reports = running.await.unwrap();
    drop(listener);
    assert_eq!(reports[0].verdict, GateVerdict::Passed);
    assert!(reports[0].tries >= 2 && reports[0].evidence.is_some());
}

#[tokio::test]
async fn failures_in_a_row_end_it_and_say_since_when() {
    let attrs = json!({ "address": closed(), "interval": "1s", "failures": 2 });
    let (reports, _) = ended(&[block("tcp", "port", attrs)], false).await;
    let report = &reports[0];
    assert_eq!(report.tries, 2);
    // It looked the same from the first look on.
    assert!(report.since.unwrap() < report.ended && report.since.unwrap() >= report.began);
    assert_eq!(report.look_further.len(), 1);
}

#[tokio::test]
async fn programs_of_the_project() {
    let script = |name: &str, text: &str| {
        block(
            "command",
            name,
            json!({ "run": ["sh", "-c", text], "env": { "TOKEN": "hunter2-secret" } }),
        )
    };
    let mut blocks = [
        script("good", "echo fine"),
        script("bad", "echo \"no: $TOKEN\" >&2; exit 3"),
        block(
            "command",
            "missing",
            json!({ "run": ["./no/such/program"] }),
        ),
        block(
            "command",
            "slow",
            json!({ "run": ["sleep", "600"], "timeout": "1s" }),
        ),
    ];
    for block in &mut blocks {
        block.sensitive.insert("env".to_owned());
    }
    let (reports, _) = ended(&blocks, true).await;
    let said: Vec<String> = reports
        .iter()
        .map(|report| report.verdict.brief())
        .collect();
    assert_eq!(said[0], "passed");
    assert_eq!(said[1], "sh: exit code 3: no: (secret)");
    assert!(said[2].contains("could not start"), "{}", said[2]);
    assert_eq!(said[3], "sleep: it did not finish within 1 s");
    assert!(!serde_json::to_string(&reports).unwrap().contains("hunter2"));
}

#[tokio::test]
async fn what_a_program_said_is_kept_however_it_ends() {
    let script = |name: &str, text: &str, timeout: &str| {
        let run = json!({ "run": ["sh", "-c", text], "timeout": timeout, "env": { "TOKEN": "hunter2-secret" } });
        let mut block = block("command", name, run);
        block.sensitive.insert("env".to_owned());
        block
    };
    let blocks = [
        script("forked", "sleep 600 & echo begun; exit 3", "10m"),
        script("hung", "echo out; echo err >&2; sleep 600", "1s"),
        // The end that is kept begins in the middle of the secret.
        script(
            "chatty",
            "yes | head -c 2000000; printf %s $TOKEN; printf %1990s | tr ' ' .",
            "10m",
        ),
    ];
    let (reports, _) = ended(&blocks, true).await;
    let lines = |at: usize| reports[at].lines().join("\n");
    assert_eq!(
        lines(0).lines().nth(3).unwrap(),
        "    seen       exit code 3: begun"
    );
    let hung = lines(1);
    assert!(hung.contains("it did not finish within 1 s: err"), "{hung}");
    assert!(hung.contains("its output ends with: out"), "{hung}");
    assert_eq!(reports[2].verdict, GateVerdict::Passed);
    let kept = serde_json::to_string(&reports[2].evidence).unwrap();
    assert!(kept.contains("......"), "{kept}");
    assert!(
        !kept.contains("secret\\") && !kept.contains("2-secret"),
        "{kept}"
    );
}

#[tokio::test]
async fn a_last_look_that_is_cut_short_hides_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let seen = dir.path().join("seen");
    // It fails at once, and from the second time on it hangs.
    let script = format!(
        "test -e {0} && sleep 600; touch {0}; echo 'no route' >&2; exit 7",
        seen.display()
    );
    let run = json!({ "run": ["sh", "-c", script], "interval": "1s", "timeout": "3s" });
    let (reports, _) = ended(&[block("command", "route", run)], false).await;
    assert_eq!(reports[0].verdict.brief(), "sh: exit code 7: no route");
    assert_eq!(reports[0].tries, 2);
}

#[tokio::test]
async fn a_gate_is_over_at_its_limit_and_says_who_did_not_answer() {
    // Takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let kubeconfig = |user: &str| {
        format!(
            "{{current-context: a, contexts: [{{name: a, context: {{cluster: a, user: a}}}}], \
             clusters: [{{name: a, cluster: {{server: 'https://{address}', insecure-skip-tls-verify: true}}}}], \
             users: [{{name: a, user: {{{user}}}}}]}}"
        )
    };
    let plugin =
        "exec: {apiVersion: client.authentication.k8s.io/v1, command: sleep, args: ['600']}";
    let gate = |name: &str, user: &str| {
        let attrs =
            json!({ "kubeconfig": kubeconfig(user), "kind": "Node", "name": "a", "timeout": "2s" });
        block("kubernetes", name, attrs)
    };
    let blocks = [gate("server", "token: a"), gate("plugin", plugin)];
    let (reports, _) = ended(&blocks, true).await;
    let said: Vec<String> = reports.iter().map(|it| it.verdict.brief()).collect();
    assert_eq!(said[0], "the cluster did not answer within 2 s");
    assert_eq!(
        said[1],
        "the credential plugin `sleep` did not answer within 2 s; the cluster was not contacted \
         (run it in a terminal: it may be waiting for a login)"
    );
    for report in &reports {
        let took = report.ended.duration_since(report.began);
        assert!(took < jiff::SignedDuration::from_millis(3500), "{took}");
    }
}

#[tokio::test]
async fn a_hundred_gates_are_looked_at_together() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    const MANY: usize = 100;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // Nobody is answered before all have asked: one after the other would never end.
    tokio::spawn(async move {
        let mut asking = Vec::new();
        while asking.len() < MANY {
            asking.push(listener.accept().await.unwrap().0);
        }
        for mut stream in asking {
            tokio::spawn(async move {
                let mut request = [0; 1024];
                drop(stream.read(&mut request).await);
                let body = "x".repeat(1 << 19);
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 200 X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
                );
                drop(stream.write_all(head.as_bytes()).await);
                drop(stream.write_all(body.as_bytes()).await);
            });
        }
    });
    let blocks: Vec<ResolvedBlock> = (0..MANY)
        .map(|at| {
            let attrs = json!({ "url": format!("http://{address}/{at}"), "body": "x$" });
            block("http", &format!("page-{at}"), attrs)
        })
        .collect();
    let (reports, _) = ended(&blocks, true).await;
    let failed: Vec<_> = reports
        .iter()
        .filter(|one| !one.verdict.is_pass())
        .collect();
    assert_eq!(reports.len(), MANY);
    assert!(failed.is_empty(), "{failed:?}");
}
