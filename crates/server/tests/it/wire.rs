//! Status codes and bodies, one by one: clients act on exactly these.

use model::base::actor::Actor;
use model::state::ExpectedHead;

use crate::endpoint::{Home, network};

const LOCK_A: &str = r#"{"ID":"a","Operation":"OperationTypeApply","Info":"","Who":"me@here","Version":"1.11.4","Created":"2026-11-15T18:52:29.245229756Z","Path":""}"#;
const LOCK_B: &str = r#"{"ID":"b","Operation":"OperationTypePlan","Info":"","Who":"you@there","Version":"1.11.4","Created":"2026-11-15T18:52:30Z","Path":""}"#;

fn state(serial: u64) -> String {
    format!(
        r#"{{"version":4,"serial":{serial},"lineage":"l","outputs":{{}},"resources":[{serial}]}}"#
    )
}

#[tokio::test]
async fn the_life_of_an_apply() {
    let home = Home::new().await;
    let run = home.apply(7).await;
    assert_eq!(run.ask("GET /state", "").await, "404");
    assert_eq!(run.ask("LOCK /state", LOCK_A).await, "200");
    assert_eq!(run.ask("POST /state?ID=a", &state(1)).await, "200");
    assert_eq!(run.ask("GET /state", "").await, format!("200 {}", state(1)));
    assert_eq!(run.ask("PUT /state?ID=a", &state(2)).await, "200");
    assert_eq!(run.ask("UNLOCK /state", LOCK_A).await, "200");
    assert_eq!(
        home.store
            .state_version_list(&network())
            .await
            .unwrap()
            .len(),
        2
    );
    assert!(home.refusals().await.is_empty());
}

#[tokio::test]
async fn every_request_may_be_sent_again() {
    let home = Home::new().await;
    let run = home.apply(7).await;
    for _ in 0..2 {
        assert_eq!(run.ask("LOCK /state", LOCK_A).await, "200");
    }
    for _ in 0..2 {
        assert_eq!(run.ask("POST /state?ID=a", &state(1)).await, "200");
    }
    for _ in 0..2 {
        assert_eq!(run.ask("UNLOCK /state", LOCK_A).await, "200");
    }
    assert_eq!(
        run.ask("POST /state?ID=a", &state(1)).await,
        "200",
        "a retry that came late"
    );
    assert_eq!(
        home.store
            .state_version_list(&network())
            .await
            .unwrap()
            .len(),
        1
    );
    let late = run.ask("LOCK /state", LOCK_A).await;
    assert!(
        late.starts_with("409 {"),
        "a LOCK after its own UNLOCK: {late}"
    );
    assert_eq!(home.lock_holder().await, None);
}

#[tokio::test]
async fn a_conflict_shows_the_holders_whole_lock() {
    let home = Home::new().await;
    let (first, second) = (home.apply(7).await, home.apply(8).await);
    assert_eq!(first.ask("LOCK /state", LOCK_A).await, "200");
    assert_eq!(
        second.ask("LOCK /state", LOCK_B).await,
        format!("423 {LOCK_A}")
    );
    assert_eq!(
        second.ask("UNLOCK /state", LOCK_B).await,
        format!("409 {LOCK_A}")
    );
    assert_eq!(
        second.ask("POST /state", &state(1)).await,
        format!("423 {LOCK_A}")
    );
    assert_eq!(
        second.ask("POST /state?ID=b", &state(1)).await,
        format!("423 {LOCK_A}")
    );
    let stolen = second.ask("POST /state?ID=a", &state(1)).await;
    assert_eq!(
        stolen,
        format!("409 {LOCK_A}"),
        "the id alone is no right to write"
    );
    assert_eq!(home.head().await, None);
}

#[tokio::test]
async fn a_writer_whose_lock_was_broken_is_fenced() {
    let home = Home::new().await;
    let (first, second) = (home.apply(7).await, home.apply(8).await);
    assert_eq!(first.ask("LOCK /state", LOCK_A).await, "200");
    home.store
        .lock_break_recorded(&network(), Some("a"), &Actor::named("me@here"), None)
        .await
        .unwrap();
    assert_eq!(second.ask("LOCK /state", LOCK_B).await, "200");
    assert_eq!(second.ask("POST /state?ID=b", &state(1)).await, "200");
    assert_eq!(second.ask("UNLOCK /state", LOCK_B).await, "200");
    let late = first.ask("POST /state?ID=a", &state(9)).await;
    assert!(late.starts_with("409 {"), "{late}");
    assert_eq!(first.ask("UNLOCK /state", LOCK_A).await, "200");
    assert_eq!(home.head().await.unwrap()["serial"], 1);
    let lost = "POST: the write carries lock `a`, which is not held any more";
    assert_eq!(home.refusals().await, [lost]);
}

#[tokio::test]
async fn a_run_without_its_lock_writes_nothing() {
    let home = Home::new().await;
    let run = home.apply(7).await;
    assert!(run.ask("POST /state", &state(1)).await.starts_with("409 {"));
    assert_eq!(
        home.refusals().await,
        ["POST: run r7 writes without its lock"]
    );
    assert_eq!(home.head().await, None);
}

#[tokio::test]
async fn serials_and_lineages() {
    let home = Home::new().await;
    let run = home.apply(7).await;
    run.ask("LOCK /state", LOCK_A).await;
    assert_eq!(run.ask("POST /state?ID=a", &state(7)).await, "200");
    let other = state(8).replace("\"l\"", "\"m\"");
    for body in [state(6), state(7).replace("[7]", "[8]"), other] {
        let answer = run.ask("POST /state?ID=a", &body).await;
        assert!(answer.starts_with("409 {"), "{answer}");
    }
    assert_eq!(
        run.ask("POST /state?ID=a", &state(99)).await,
        "200",
        "gaps are normal"
    );
}

#[tokio::test]
async fn a_plan_sees_one_version_and_may_do_nothing_else() {
    let home = Home::new().await;
    let none = home.plan(6).await;
    let apply = home.apply(7).await;
    apply.ask("LOCK /state", LOCK_A).await;
    apply.ask("POST /state?ID=a", &state(1)).await;
    let plan = home.plan(8).await;
    apply.ask("POST /state?ID=a", &state(2)).await;
    assert_eq!(none.ask("GET /state", "").await, "404");
    assert_eq!(
        plan.ask("GET /state", "").await,
        format!("200 {}", state(1))
    );
    assert_eq!(plan.ask("LOCK /state", LOCK_B).await, "403");
    assert_eq!(plan.ask("UNLOCK /state", LOCK_A).await, "403");
    assert_eq!(plan.ask("POST /state?ID=a", &state(3)).await, "403");
    assert_eq!(home.lock_holder().await.as_deref(), Some("a"));
    assert_eq!(
        home.refusals().await,
        [
            "LOCK: a plan takes no lock",
            "UNLOCK: a plan holds no lock",
            "POST: a plan writes no state"
        ]
    );
}

#[tokio::test]
async fn a_moved_seal_grants_no_lock() {
    let home = Home::new().await;
    let first = home.apply(7).await;
    first.ask("LOCK /state", LOCK_A).await;
    first.ask("POST /state?ID=a", &state(1)).await;
    first.ask("UNLOCK /state", LOCK_A).await;
    let stale = home.apply_expecting(8, ExpectedHead::Exactly(None)).await;
    let answer = stale.ask("LOCK /state", LOCK_B).await;
    assert!(
        answer.starts_with(r#"409 {"ID":"none","Operation":"state `p/network` moved"#),
        "{answer}"
    );
    let fresh = home
        .apply_expecting(9, ExpectedHead::Exactly(Some(1)))
        .await;
    assert_eq!(fresh.ask("LOCK /state", LOCK_B).await, "200");
    let moved = "LOCK: state `p/network` changed: expected version none, found 1";
    assert_eq!(home.refusals().await, [moved]);
}

#[tokio::test]
async fn strangers_get_401_whatever_they_ask() {
    let home = Home::new().await;
    let run = home.apply(7).await;
    for request in ["GET /state", "LOCK /state", "POST /state", "DELETE /state"] {
        assert_eq!(run.send(request, "", "").await, "401", "{request}");
        let wrong = "Authorization: Basic cnVuOndyb25n\r\n";
        assert_eq!(run.send(request, wrong, "").await, "401", "{request}");
    }
    let (_, head, _) = run.exchange("GET /state", "", "").await;
    assert!(head.contains("www-authenticate: basic"), "{head}");
}

#[tokio::test]
async fn what_is_not_there_is_forbidden_for_404_means_no_state() {
    let home = Home::new().await;
    let run = home.apply(7).await;
    for request in [
        "GET /",
        "GET /state/",
        "POST /other",
        "DELETE /state",
        "PATCH /state",
    ] {
        assert_eq!(run.ask(request, "").await, "403", "{request}");
    }
    assert_eq!(
        home.refusals().await,
        ["DELETE: a run does not delete states"]
    );
}

#[tokio::test]
async fn bodies_that_are_not_what_they_say() {
    let home = Home::new().await;
    let run = home.apply(7).await;
    run.ask("LOCK /state", LOCK_A).await;
    let post = async |headers: &str, body: &str| {
        run.send("POST /state?ID=a", &(run.credentials() + headers), body)
            .await
    };
    let body = state(1);
    let length = format!("Content-Length: {}\r\n", body.len());
    assert_eq!(
        post(&format!("{length}Content-MD5: AAAA\r\n"), &body).await,
        "400"
    );
    assert_eq!(run.ask("POST /state?ID=a", LOCK_A).await, "400");
    assert_eq!(run.ask("POST /state?ID=a", "<html>").await, "400");
    assert_eq!(run.ask("POST /state?ID=a", "").await, "400");
    assert_eq!(run.ask("POST /state?ID=a&ID=b", &body).await, "400");
    assert_eq!(run.ask("LOCK /state", "{}").await, "400");
    assert_eq!(run.ask("UNLOCK /state", "[]").await, "400");
    assert_eq!(home.head().await, None);
}

#[tokio::test]
async fn an_unlock_without_an_id_is_not_for_runs() {
    let home = Home::new().await;
    let run = home.apply(7).await;
    run.ask("LOCK /state", LOCK_A).await;
    // As Terraform's force-unlock sends it.
    let headers = run.credentials()
        + "Transfer-Encoding: chunked\r\nContent-MD5: 1B2M2Y8AsgTpgAmY7PhCfg==\r\n";
    assert_eq!(
        run.send("UNLOCK /state", &headers, "0\r\n\r\n").await,
        "403"
    );
    assert_eq!(home.lock_holder().await.as_deref(), Some("a"));
}

#[tokio::test]
async fn what_is_too_large_is_refused_before_it_is_read() {
    let home = Home::new().await;
    let run = home.apply_limited(7, 100).await;
    run.ask("LOCK /state", LOCK_A).await;
    let headers = run.credentials() + "Content-Length: 101\r\n";
    assert_eq!(run.send("POST /state?ID=a", &headers, "").await, "413");
    let chunked = run.credentials() + "Transfer-Encoding: chunked\r\n";
    let body = format!("65\r\n{}\r\n0\r\n\r\n", "x".repeat(101));
    assert_eq!(run.send("POST /state?ID=a", &chunked, &body).await, "413");
    assert_eq!(run.ask("POST /state?ID=a", &state(1)).await, "200");
}

#[tokio::test]
async fn a_read_says_what_it_is() {
    let home = Home::new().await;
    let run = home.apply(7).await;
    run.ask("LOCK /state", LOCK_A).await;
    run.ask("POST /state?ID=a", &state(1)).await;
    let (status, head, _) = run.exchange("GET /state", &run.credentials(), "").await;
    assert_eq!(status, "200");
    for header in [
        "content-type: application/json",
        "cache-control: no-store",
        "etag: \"",
    ] {
        assert!(head.contains(header), "{header} in {head}");
    }
    let (_, head, body) = run.exchange("LOCK /state", &run.credentials(), "").await;
    assert!(!head.contains("location:") && body.is_empty(), "{head}");
}

#[tokio::test]
async fn a_write_that_breaks_off_stores_nothing() {
    let home = Home::new().await;
    let run = home.apply(7).await;
    run.ask("LOCK /state", LOCK_A).await;
    let body = state(1);
    let length = format!("Content-Length: {}\r\n", body.len() + 1);
    run.abandon("POST /state?ID=a", &(run.credentials() + &length), &body)
        .await;
    assert_eq!(home.refusal().await, "POST: the body ended early");
    assert_eq!(home.head().await, None);
}

#[tokio::test]
async fn a_write_that_came_whole_is_stored_though_nobody_waits_for_the_answer() {
    let home = Home::new().await;
    let run = home.apply(7).await;
    run.ask("LOCK /state", LOCK_A).await;
    let body = state(1);
    let length = format!("Content-Length: {}\r\n", body.len());
    run.abandon("POST /state?ID=a", &(run.credentials() + &length), &body)
        .await;
    run.end().await;
    assert_eq!(
        home.head().await.unwrap()["serial"],
        1,
        "stored before the endpoint ended"
    );
}
