//! The state server, request by request: what each token may do, and what each response is.

use model::base::actor::Actor;
use model::base::ids::RunId;
use model::state::break_glass::BreakGlassAction;
use model::state::lock::LockInfo;
use model::state::token::TokenScope;
use model::state::{ExpectedHead, StateName};

use crate::endpoint::{Home, exchange, network};
use crate::listening::Client;

const LOCK_A: &str = r#"{"ID":"a","Operation":"OperationTypeApply","Info":"","Who":"me@here","Version":"1.11.4","Created":"2026-11-15T18:52:29.245229756Z","Path":""}"#;
const LOCK_B: &str = r#"{"ID":"b","Operation":"OperationTypePlan","Info":"","Who":"you@there","Version":"1.11.4","Created":"2026-11-15T18:52:30Z","Path":""}"#;
const PUSH: &str = r#"{"ID":"p","Operation":"state-push","Info":"","Who":"me@here","Version":"1.11.4","Created":"2026-11-15T18:52:30Z","Path":""}"#;
/// The path of `network()`.
const PATH: &str = "/state/p/network";

fn state(serial: u64) -> String {
    format!(
        r#"{{"version":4,"serial":{serial},"lineage":"l","outputs":{{}},"resources":[{serial}]}}"#
    )
}

#[tokio::test]
async fn every_shape_of_path_is_the_same_service() {
    let home = Home::new().await;
    let server = home.serve_bare_paths().await;
    let client = home.client(&server, TokenScope::Write).await;
    let shapes = [
        ("/state/shop/one", "/state/shop/one"),
        ("/state/two", "/state/two/lock"),
        ("/tfstate/states/three", "/tfstate/states/three/lock"),
        (
            "/api/v4/projects/42/terraform/state/four",
            "/api/v4/projects/42/terraform/state/four/lock",
        ),
        ("/five", "/five/lock"), // with `--bare-paths`
    ];
    for (path, lock) in shapes {
        let (take, give) = if path == lock {
            ("LOCK", "UNLOCK")
        } else {
            ("POST", "DELETE")
        };
        assert_eq!(client.ask(&format!("GET {path}"), "").await, "404");
        assert_eq!(client.ask(&format!("{take} {lock}"), LOCK_A).await, "200");
        let held = client.ask(&format!("LOCK {lock}"), LOCK_B).await;
        assert_eq!(held, format!("423 {LOCK_A}"));
        let write = format!("POST {path}?ID=a&env=prod");
        assert_eq!(client.ask(&write, &state(1)).await, "200");
        let read = client.ask(&format!("GET {path}"), "").await;
        assert_eq!(read, format!("200 {}", state(1)));
        assert_eq!(client.ask(&format!("{give} {lock}"), LOCK_A).await, "200");
    }
    let states = home.store.state_list().await.unwrap();
    let names: Vec<_> = states.iter().map(|row| row.name.to_string()).collect();
    assert_eq!(names, ["five", "three", "two", "42/four", "shop/one"]);
}

#[tokio::test]
async fn every_request_may_be_sent_again() {
    let home = Home::new().await;
    let server = home.serve().await;
    let client = home.client(&server, TokenScope::Write).await;
    let requests = [
        (format!("LOCK {PATH}"), LOCK_A.to_owned()),
        (format!("POST {PATH}?ID=a"), state(1)),
        (format!("UNLOCK {PATH}"), LOCK_A.to_owned()),
    ];
    for (request, body) in &requests {
        // The answer to the first one is lost.
        for _ in 0..2 {
            assert_eq!(client.ask(request, body).await, "200", "{request}");
        }
    }
    let (post, body) = &requests[1];
    assert_eq!(
        client.ask(post, body).await,
        "200",
        "a retry that came late"
    );
    let versions = home.store.state_version_list(&network()).await.unwrap();
    assert_eq!(versions.len(), 1);
    assert_eq!(home.refusals().await, [""; 0]);
}

#[tokio::test]
async fn what_each_write_is_answered() {
    let home = Home::new().await;
    let server = home.serve().await;
    let client = home.client(&server, TokenScope::Write).await;
    let post = |query: &str| format!("POST {PATH}{query}");
    // Without a lock, in order.
    assert_eq!(client.ask(&post(""), &state(3)).await, "200");
    assert_eq!(
        client.ask(&post(""), &state(7)).await,
        "200",
        "gaps are fine"
    );
    let other = state(7).replace("[7]", "[8]");
    for (body, why) in [
        (other, "equal serial, other content"),
        (state(6), "serial behind"),
        (state(8).replace("\"l\"", "\"m\""), "other lineage"),
    ] {
        let answer = client.ask(&post(""), &body).await;
        assert!(answer.starts_with("409 {\"ID\":"), "{why}: {answer}");
    }
    let unheld = client.ask(&post("?ID=gone"), &state(8)).await;
    assert!(unheld.starts_with("409 {"), "{unheld}");
    // Locked by somebody else.
    client.ask(&format!("LOCK {PATH}"), LOCK_A).await;
    for query in ["", "?ID=b"] {
        let answer = client.ask(&post(query), &state(8)).await;
        assert_eq!(answer, format!("423 {LOCK_A}"), "{query}");
    }
    assert_eq!(client.ask(&post("?ID=a"), &state(8)).await, "200");
    // What is no state.
    for body in ["", "{", "[]", "<html>", "{}", LOCK_A, r#"{"version":"4"}"#] {
        assert_eq!(client.ask(&post("?ID=a"), body).await, "400", "{body}");
    }
    let wrong = "Content-MD5: 1B2M2Y8AsgTpgAmY7PhCfg==\r\nContent-Length: 2\r\n";
    assert_eq!(client.send(&post("?ID=a"), wrong, "{}").await, "400");
    assert_eq!(home.head().await.unwrap()["serial"], 8);
}

#[tokio::test]
async fn what_each_token_may_do() {
    let home = Home::new().await;
    let server = home.serve().await;
    let write = home.client(&server, TokenScope::Write).await;
    write.ask(&format!("POST {PATH}"), &state(1)).await;
    let token = home.token("elsewhere", TokenScope::Surgery, "q/*").await;
    let elsewhere = Client {
        address: server.address,
        token,
    };
    let read = home.client(&server, TokenScope::Read).await;
    let mut table = Vec::new();
    for method in ["GET", "LOCK", "POST", "UNLOCK", "DELETE"] {
        let body = if method == "POST" {
            state(1)
        } else {
            LOCK_A.to_owned()
        };
        let mut line = method.to_owned();
        for client in [&elsewhere, &read, &write] {
            let answer = client.ask(&format!("{method} {PATH}"), &body).await;
            line = format!("{line} {}", answer.split(' ').next().unwrap());
        }
        let (status, head, _) = server.stranger(&format!("{method} {PATH}")).await;
        assert!(head.contains("www-authenticate: basic"), "{head}");
        table.push(format!("{line} {status}"));
    }
    // A token of other states, read, write, none.
    insta::assert_snapshot!(table.join("\n"), @r"
    GET 403 200 200 401
    LOCK 403 403 200 401
    POST 403 403 200 401
    UNLOCK 403 403 200 401
    DELETE 403 403 200 401
    ");
    assert_eq!(home.head().await, None, "the last one deleted it");
}

#[tokio::test]
async fn a_token_ends_when_it_is_revoked() {
    let home = Home::new().await;
    let server = home.serve().await;
    let client = home.client(&server, TokenScope::Read).await;
    assert_eq!(client.ask(&format!("GET {PATH}"), "").await, "404");
    let bearer = format!("Authorization: Bearer {}\r\n", client.token);
    let get = format!("GET {PATH}");
    let (status, ..) = exchange(server.address, &get, &bearer, "").await;
    assert_eq!(status, "404");
    control::access::tokens::revoke(&home.control(), &Actor::named("test"), "read")
        .await
        .unwrap();
    let revoked = std::time::Instant::now();
    while client.ask(&get, "").await != "401" {
        assert!(revoked.elapsed() < std::time::Duration::from_secs(30));
    }
}

#[tokio::test]
async fn wrong_tokens_are_counted_and_right_ones_pass() {
    let home = Home::new().await;
    let server = home.serve().await;
    let right = home.client(&server, TokenScope::Read).await;
    let wrong = Client {
        token: "terrane_guess".to_owned(),
        ..right.clone()
    };
    let get = format!("GET {PATH}");
    let mut answers = Vec::new();
    for _ in 0..22 {
        answers.push(wrong.ask(&get, "").await);
    }
    assert_eq!(answers[..20], ["401"; 20]);
    assert_eq!(answers[20..], ["429"; 2]);
    let (_, head, _) = exchange(
        server.address,
        &get,
        &crate::endpoint::basic("terrane_guess"),
        "",
    )
    .await;
    assert!(head.contains("retry-after: "), "{head}");
    assert_eq!(right.ask(&get, "").await, "404", "one proxy, many clients");
}

#[tokio::test]
async fn nothing_is_redirected_and_404_means_no_state() {
    let home = Home::new().await;
    let server = home.serve().await;
    let client = home.client(&server, TokenScope::Write).await;
    for path in [
        "/",
        "/state",
        "/state/",
        "/state/a/b/c/d",
        "/a/b",
        "/login",
        "/network",
        "//",
    ] {
        for method in ["GET", "POST", "LOCK", "UNLOCK"] {
            let answer = client.ask(&format!("{method} {path}"), "").await;
            assert_eq!(answer, "403", "{method} {path}");
        }
    }
    for request in [
        "PATCH /state/x",
        "OPTIONS /state/x",
        "GET /state/x/lock",
        "POST /healthz",
    ] {
        assert_eq!(client.ask(request, "").await, "403", "{request}");
    }
}

/// An engine takes 404 for "there is no state", also if its credentials were forgotten; browsers send `Accept`.
#[tokio::test]
async fn an_unknown_path_is_404_for_what_cannot_be_an_engine() {
    let home = Home::new().await;
    let server = home.serve().await;
    for (headers, expected) in [("Accept: text/html\r\n", "404"), ("", "403")] {
        let (status, ..) = exchange(server.address, "GET /login", headers, "").await;
        assert_eq!(status, expected, "{headers}");
    }
}

#[tokio::test]
async fn a_deleted_state_is_gone_and_another_may_begin() {
    let home = Home::new().await;
    let server = home.serve().await;
    let client = home.client(&server, TokenScope::Write).await;
    client.ask(&format!("POST {PATH}"), &state(5)).await;
    client.ask(&format!("LOCK {PATH}"), LOCK_A).await;
    let held = client.ask(&format!("DELETE {PATH}"), "").await;
    assert_eq!(held, format!("423 {LOCK_A}"));
    client.ask(&format!("UNLOCK {PATH}"), LOCK_A).await;
    for _ in 0..2 {
        assert_eq!(client.ask(&format!("DELETE {PATH}"), "").await, "200");
    }
    assert_eq!(client.ask(&format!("GET {PATH}"), "").await, "404");
    let other = state(1).replace("\"l\"", "\"m\"");
    assert_eq!(client.ask(&format!("POST {PATH}"), &other).await, "200");
    let versions = home.store.state_version_list(&network()).await.unwrap();
    assert_eq!(versions.len(), 2, "what was deleted is kept");
}

#[tokio::test]
async fn a_forced_unlock_leaves_a_record() {
    let home = Home::new().await;
    let server = home.serve().await;
    let client = home.client(&server, TokenScope::Write).await;
    let lock = || client.ask("LOCK /state/p/network", LOCK_A);
    assert_eq!(lock().await, "200");
    // As Terraform's force-unlock sends it.
    let empty = "Transfer-Encoding: chunked\r\nContent-MD5: 1B2M2Y8AsgTpgAmY7PhCfg==\r\n";
    let unlock = format!("UNLOCK {PATH}");
    assert_eq!(client.send(&unlock, empty, "0\r\n\r\n").await, "200");
    assert_eq!(
        client.send(&unlock, empty, "0\r\n\r\n").await,
        "200",
        "again"
    );
    assert_eq!(home.lock_holder().await, None);
    let late = client.ask(&format!("POST {PATH}?ID=a"), &state(1)).await;
    assert!(late.starts_with("409 {"), "fenced: {late}");

    // As OpenTofu's force-unlock sends it.
    let by_id = |id: &str| {
        format!(
            r#"{{"ID":"{id}","Operation":"","Info":"","Who":"","Version":"","Created":"0001-01-01T00:00:00Z","Path":""}}"#
        )
    };
    assert_eq!(client.ask("LOCK /state/p/network", LOCK_B).await, "200");
    let other = client.ask(&unlock, &by_id("x")).await;
    assert_eq!(other, format!("409 {LOCK_B}"));
    assert_eq!(client.ask(&unlock, &by_id("b")).await, "200");

    // A client that sent only an id when it locked: its own lock, no record.
    assert_eq!(
        client.ask("LOCK /state/p/network", &by_id("c")).await,
        "200"
    );
    assert_eq!(client.ask(&unlock, &by_id("c")).await, "200");

    // As a script unlocks that knows only the id: that lock and no other.
    let lock_d = LOCK_B.replace("\"b\"", "\"d\"");
    assert_eq!(client.ask("LOCK /state/p/network", &lock_d).await, "200");
    let named = |id: &str| format!("DELETE {PATH}/lock?ID={id}");
    let other = client.ask(&named("x"), "").await;
    assert_eq!(other, format!("409 {lock_d}"));
    assert_eq!(client.ask(&named("d"), "").await, "200");
    assert_eq!(client.ask(&named("d"), "").await, "200", "again");
    assert_eq!(home.lock_holder().await, None);

    let records = home.store.break_glass_list(&network()).await.unwrap();
    let shown: Vec<_> = records
        .iter()
        .map(|one| {
            (
                one.act,
                one.actor.name.as_str(),
                one.reason.as_deref(),
                one.detail.as_str(),
            )
        })
        .collect();
    let (a, b) = (
        "the lock of me@here (apply), lock `a`",
        "the lock of you@there (plan), lock `b`",
    );
    let broken = |detail| (BreakGlassAction::LockBroken, "write", None, detail);
    assert_eq!(shown, [broken(a), broken(b)]);
}

#[tokio::test]
async fn the_lock_of_a_run_that_is_alive_stays() {
    let home = Home::new().await;
    let server = home.serve().await;
    let client = home.client(&server, TokenScope::Surgery).await;
    let info = LockInfo::from_json(LOCK_A.as_bytes()).unwrap();
    let (state, run) = (network(), Some(RunId(7)));
    let taken = home
        .store
        .lock_acquire(&state, &info, run, ExpectedHead::Any);
    taken.await.unwrap();
    let root = home.path().join("home");
    let place = control::home::Home::at(
        control::home::HomeLocation::Directory(root.clone()),
        root,
        control::home::master_keys::KeySource::File(home.path().join("master.key")),
        String::new(),
    );
    let alive = control::run::lock::RunLock::try_take(&place, RunId(7)).unwrap();
    let unlock = format!("UNLOCK {PATH}");
    for body in ["", LOCK_A] {
        assert_eq!(client.ask(&unlock, body).await, format!("409 {LOCK_A}"));
    }
    let alive_says = "UNLOCK: token `surgery`: run r7 holds the lock and may be alive";
    assert_eq!(home.refusals().await, [alive_says; 2]);
    drop(alive);
    assert_eq!(client.ask(&unlock, "").await, "200", "an orphan");
    assert_eq!(home.lock_holder().await, None);
}

/// A refused client learns the id of the lock, so the id is no secret.
#[tokio::test]
async fn the_id_of_a_runs_lock_is_of_no_use_to_clients() {
    let home = Home::new().await;
    let server = home.serve().await;
    let client = home.client(&server, TokenScope::Surgery).await;
    client.ask(&format!("POST {PATH}"), &state(1)).await;
    let info = LockInfo::from_json(LOCK_A.as_bytes()).unwrap();
    let (name, run) = (network(), Some(RunId(7)));
    let taken = home
        .store
        .lock_acquire(&name, &info, run, ExpectedHead::Any);
    taken.await.unwrap();
    let write = client.ask(&format!("POST {PATH}?ID=a"), &state(2)).await;
    assert_eq!(write, format!("409 {LOCK_A}"));
    let delete = client.ask(&format!("DELETE {PATH}?ID=a"), "").await;
    assert_eq!(delete, format!("423 {LOCK_A}"));
    let refusals = home.refusals().await;
    let why = "POST: lock `a` is that of run r7, and only that run writes under it";
    assert_eq!(refusals[0], why);
    assert!(refusals[1].starts_with("DELETE: "), "{refusals:?}");
    let read = client.ask(&format!("GET {PATH}"), "").await;
    assert_eq!(read, format!("200 {}", state(1)));
}

#[tokio::test]
async fn a_push_over_the_rules_needs_surgery_and_leaves_a_record() {
    let home = Home::new().await;
    let server = home.serve().await;
    let write = home.client(&server, TokenScope::Write).await;
    let surgery = home.client(&server, TokenScope::Surgery).await;
    write.ask(&format!("POST {PATH}"), &state(50)).await;
    write.ask(&format!("LOCK {PATH}"), PUSH).await;
    let back = format!("POST {PATH}?ID=p");
    let refused = write.ask(&back, &state(2)).await;
    assert!(refused.starts_with("409 {"), "{refused}");
    assert_eq!(surgery.ask(&back, &state(2)).await, "200");
    assert_eq!(surgery.ask(&back, &state(3)).await, "200", "in order again");
    let records = home.store.break_glass_list(&network()).await.unwrap();
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].act, BreakGlassAction::StatePushed);
    assert_eq!(records[0].actor.name, "surgery");
    assert_eq!(
        records[0].detail,
        "version 2 (serial 2) over version 1 (serial 50)"
    );
}

#[tokio::test]
async fn what_is_kept_for_runs_is_read_by_all_and_written_by_none() {
    let home = Home::new().await;
    let server = home.serve().await;
    let client = home.client(&server, TokenScope::Surgery).await;
    client.ask(&format!("POST {PATH}"), &state(1)).await;
    home.store.state_reserve_for_runs(&network()).await.unwrap();
    let read = client.ask(&format!("GET {PATH}"), "").await;
    assert_eq!(read, format!("200 {}", state(1)));
    for (request, body) in [
        ("LOCK", LOCK_A.to_owned()),
        ("POST", state(2)),
        ("DELETE", String::new()),
    ] {
        assert_eq!(client.ask(&format!("{request} {PATH}"), &body).await, "403");
    }
    let why = "only runs write this state: its target's writers are not `anyone`";
    let refusals = home.refusals().await;
    assert_eq!(refusals.len(), 3);
    assert_eq!(refusals[0], format!("LOCK: token `surgery`: {why}"));
}

#[tokio::test]
async fn a_read_says_what_it_is_and_keeps_no_copy_about() {
    let home = Home::new().await;
    let server = home.serve().await;
    let client = home.client(&server, TokenScope::Write).await;
    client.ask(&format!("POST {PATH}"), &state(1)).await;
    let headers = crate::endpoint::basic(&client.token) + "Accept-Encoding: gzip\r\n";
    let (_, head, _) = exchange(server.address, &format!("GET {PATH}"), &headers, "").await;
    for header in [
        "content-type: application/json",
        "cache-control: no-store",
        "etag: \"",
        "content-md5: ",
    ] {
        assert!(head.contains(header), "{header} in {head}");
    }
    assert!(!head.contains("content-encoding"), "loopback: {head}");
}

#[tokio::test]
async fn health_readiness_and_metrics_need_no_token() {
    let home = Home::new().await;
    let server = home.serve().await;
    let client = home.client(&server, TokenScope::Write).await;
    client.ask("LOCK /state/x", LOCK_A).await;
    client.ask("LOCK /state/x", LOCK_B).await;
    client.ask("POST /state/x?ID=a", &state(1)).await;
    let (status, _, body) = server.stranger("GET /healthz").await;
    assert_eq!((status.as_str(), body.as_str()), ("200", "ok\n"));
    let (status, _, body) = server.stranger("GET /readyz").await;
    assert_eq!((status.as_str(), body.as_str()), ("200", "ready\n"));
    let (_, _, page) = server.stranger("GET /metrics").await;
    for line in [
        r#"terrane_requests_total{route="state",method="LOCK",status="200"} 1"#,
        r#"terrane_requests_total{route="state",method="LOCK",status="423"} 1"#,
        "terrane_lock_conflicts_total 1",
        "terrane_versions_written_total 1",
    ] {
        assert!(page.contains(line), "{line} in {page}");
    }
    assert!(
        !page.contains(&StateName::new("", "\"x\"").to_string()),
        "{page}"
    );
}
