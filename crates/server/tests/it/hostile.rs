//! Hostile and broken requests: each is bounded, and the server goes on.

use std::time::{Duration, Instant};

use model::state::token::TokenScope;
use server::http::Limits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::endpoint::{Home, basic, exchange, network};

const LOCK: &str = r#"{"ID":"a","Operation":"OperationTypeApply","Who":"me@here"}"#;

fn state(serial: u64) -> String {
    format!(r#"{{"version":4,"serial":{serial},"lineage":"l","outputs":{{}},"resources":[1]}}"#)
}

#[tokio::test]
async fn a_gigabyte_is_refused_before_it_is_read() {
    let home = Home::new().await;
    let server = home.serve_states_up_to(512 * 1024 * 1024).await;
    let client = home.client(&server, TokenScope::Write).await;
    let length = "Content-Length: 1073741824\r\n";
    assert_eq!(client.send("POST /state/x", length, "{").await, "413");
    assert_eq!(client.send("LOCK /state/x", length, "{").await, "413");
    let reasons = home
        .store
        .refusal_list(&model::state::StateName::new("", "x"))
        .await;
    let reasons = reasons.unwrap().into_iter().map(|refusal| refusal.reason);
    assert_eq!(
        reasons.collect::<Vec<_>>(),
        [
            "token `write`: the body is larger than 536870912 bytes",
            "token `write`: the body is larger than 65536 bytes"
        ]
    );
}

/// With `Expect: 100-continue`, the refusal comes before the body.
#[tokio::test]
async fn a_client_that_asks_first_is_not_told_to_send_too_much() {
    let home = Home::new().await;
    let server = home.serve_states_up_to(1024).await;
    let client = home.client(&server, TokenScope::Write).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = format!(
        "POST /state/x HTTP/1.1\r\nHost: here\r\n{}Content-Length: 1073741824\r\nExpect: 100-continue\r\n\r\n",
        basic(&client.token)
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
}

/// A server with few connections, which closes idle ones soon.
fn few_connections() -> Limits {
    Limits {
        connections: 4,
        idle_timeout: Duration::from_millis(500),
        ..Limits::default()
    }
}

/// Clients that keep all connections open without using them, with a token or without one, delay others for as long as
/// the idle timeout.
#[tokio::test]
async fn idle_connections_make_room_for_others() {
    let home = Home::new().await;
    let server = home.serve_with(None, few_connections()).await;
    let client = home.client(&server, TokenScope::Write).await;
    let credentials = basic(&client.token);
    let mut held = Vec::new();
    for (request, headers, expected) in [
        ("GET /healthz", "", "200"),
        ("GET /healthz", "", "200"),
        ("GET /state/x", credentials.as_str(), "404"),
        ("GET /state/x", credentials.as_str(), "404"),
    ] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let head = format!("{request} HTTP/1.1\r\nHost: here\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, format!("HTTP/1.1 {expected}").as_bytes());
        held.push(stream);
    }
    let asked = client.send("GET /state/x", "", "");
    let answered = tokio::time::timeout(Duration::from_mins(1), asked).await;
    assert_eq!(answered.expect("a connection"), "404");
}

/// A client that is still sending must get the response, not a reset.
#[tokio::test]
async fn a_client_that_sends_too_much_gets_the_refusal() {
    let home = Home::new().await;
    let server = home.serve_states_up_to(1024).await;
    let client = home.client(&server, TokenScope::Write).await;
    let body = "x".repeat(8 * 1024 * 1024);
    assert_eq!(client.ask("POST /state/x", &body).await, "413");
    let chunk = format!("800000\r\n{body}\r\n0\r\n\r\n");
    let chunked = "Transfer-Encoding: chunked\r\n";
    assert_eq!(client.send("POST /state/x", chunked, &chunk).await, "413");
}

#[tokio::test]
async fn ten_thousand_headers_are_too_many() {
    let home = Home::new().await;
    let server = home.serve().await;
    let headers = "X-Many: y\r\n".repeat(10_000);
    let (status, ..) = exchange(server.address, "GET /state/x", &headers, "").await;
    assert_eq!(status, "431");
    let long = format!("X: {}\r\n", "y".repeat(2 * 1024 * 1024));
    let (status, ..) = exchange(server.address, "GET /state/x", &long, "").await;
    assert!(["431", "no answer"].contains(&status.as_str()), "{status}");
    let (status, ..) = server.stranger("GET /healthz").await;
    assert_eq!(status, "200");
}

#[tokio::test]
async fn slow_bodies_do_not_stop_other_clients() {
    let home = Home::new().await;
    let server = home.serve().await;
    let client = home.client(&server, TokenScope::Write).await;
    let credentials = basic(&client.token);
    let mut slow = Vec::new();
    for number in 0..100 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let head = format!(
            "POST /state/slow-{number} HTTP/1.1\r\nHost: here\r\n{credentials}Content-Length: 1000\r\n\r\n{{"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        slow.push(stream);
    }
    let begun = Instant::now();
    assert_eq!(client.ask("LOCK /state/x", LOCK).await, "200");
    assert_eq!(client.ask("POST /state/x?ID=a", &state(1)).await, "200");
    assert!(begun.elapsed() < Duration::from_secs(30));
    drop(slow);
}

/// Whether it declares its length or not.
#[tokio::test]
async fn a_large_body_that_stalls_holds_no_memory() {
    let home = Home::new().await;
    let server = home.serve().await;
    let client = home.client(&server, TokenScope::Write).await;
    let credentials = basic(&client.token);
    let begin = async |number: i32, header: &str, body: &str| {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let head = format!(
            "POST /state/slow-{number} HTTP/1.1\r\nHost: here\r\n{credentials}{header}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body.as_bytes()).await.unwrap();
        stream
    };
    let much = "Content-Length: 41943040";
    let unknown = "Transfer-Encoding: chunked";
    let slow = [
        begin(1, much, "{").await,
        begin(2, much, &format!("{{{}", " ".repeat(1 << 20))).await,
        begin(3, unknown, "5\r\n{\"ver\r\n").await,
    ];
    let begun = Instant::now();
    let large = state(1).replace("[1]", &format!("[\"{}\"]", "x".repeat(1 << 20)));
    assert_eq!(client.ask("POST /state/x", &large).await, "200");
    let body = state(1);
    let chunk = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let chunked = format!("{unknown}\r\n");
    assert_eq!(client.send("POST /state/y", &chunked, &chunk).await, "200");
    assert!(begun.elapsed() < Duration::from_secs(15));
    drop(slow);
}

/// A connection with half a request head is closed, whether it had a request before or not.
#[tokio::test]
async fn half_a_head_is_not_waited_for() {
    let home = Home::new().await;
    let server = home.serve_with(None, few_connections()).await;
    let half = "GET /healthz HTTP/1.1\r\nX: ";
    let whole = "GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n";
    let begin = async |sent: &str| {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        stream
    };
    let mut new = begin(half).await;
    let mut used = begin(whole).await;
    let mut first = [0; 16];
    used.read_exact(&mut first).await.unwrap();
    assert_eq!(&first[..15], b"HTTP/1.1 200 OK");
    used.write_all(half.as_bytes()).await.unwrap();
    let (mut none, mut rest) = (Vec::new(), Vec::new());
    let ended = async { tokio::join!(new.read_to_end(&mut none), used.read_to_end(&mut rest)) };
    let ended = tokio::time::timeout(Duration::from_mins(1), ended).await;
    assert!(ended.is_ok(), "it is held");
}

/// PostgreSQL cannot store a NUL, so no database gets one.
#[tokio::test]
async fn a_nul_is_refused() {
    let home = Home::new().await;
    let server = home.serve().await;
    let client = home.client(&server, TokenScope::Write).await;
    assert_eq!(
        client.ask("LOCK /state/x", r#"{"ID":"a\u0000b"}"#).await,
        "400"
    );
    let nul = state(1).replace(r#""l""#, r#""l\u0000""#);
    assert_eq!(client.ask("POST /state/x", &nul).await, "400");
    assert_eq!(client.ask("POST /state/x?ID=a%00b", &state(1)).await, "400");
}

/// Engines cannot parse an empty time, and then show nothing of the holder.
#[tokio::test]
async fn a_lock_without_a_time_gets_one() {
    let home = Home::new().await;
    let server = home.serve().await;
    let client = home.client(&server, TokenScope::Write).await;
    assert_eq!(
        client.ask("LOCK /state/x", r#"{"ID":"stuck"}"#).await,
        "200"
    );
    let conflict = client.ask("LOCK /state/x", r#"{"ID":"other"}"#).await;
    assert!(conflict.starts_with("423 {"), "{conflict}");
    assert!(conflict.contains(r#""Created":"20"#), "{conflict}");
}

/// A state is parsed only at its top level.
#[tokio::test]
async fn depth_costs_nothing() {
    let home = Home::new().await;
    let server = home.serve().await;
    let client = home.client(&server, TokenScope::Write).await;
    let deep = format!(
        r#"{{"version":4,"serial":1,"lineage":"l","resources":{}{}}}"#,
        "[".repeat(1_000_000),
        "]".repeat(1_000_000)
    );
    assert_eq!(client.ask("POST /state/x", &deep).await, "200");
    assert_eq!(client.ask("GET /state/x", "").await, format!("200 {deep}"));
}

#[tokio::test]
async fn bodies_that_are_not_states_are_refused() {
    let home = Home::new().await;
    let server = home.serve().await;
    let client = home.client(&server, TokenScope::Write).await;
    let twice = r#"{"version":4,"serial":1,"serial":2,"lineage":"l"}"#;
    let huge = r#"{"version":4,"serial":99999999999999999999,"lineage":"l"}"#;
    let open = r#"{"version":4,"serial":1,"lineage":"l"#;
    for body in [twice, huge, open, "\u{0}", "null", "4", "\"x\""] {
        let begun = Instant::now();
        let shown = &body[..body.len().min(60)];
        assert_eq!(client.ask("POST /state/x", body).await, "400", "{shown}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{shown}");
    }
    let deep_lock = format!(
        r#"{{"ID":"a","X":{}{}}}"#,
        "[".repeat(30_000),
        "]".repeat(30_000)
    );
    for body in [
        deep_lock.as_str(),
        "{",
        "[]",
        r#"{"ID":7}"#,
        r#"{"ID":"a","ID":"b"}"#,
    ] {
        let shown = &body[..body.len().min(60)];
        assert_eq!(client.ask("LOCK /state/x", body).await, "400", "{shown}");
    }
    assert_eq!(
        client.ask("POST /state/x", &state(1)).await,
        "200",
        "it goes on"
    );
}

#[tokio::test]
async fn broken_requests_get_no_further() {
    let home = Home::new().await;
    let server = home.serve().await;
    for raw in [
        "GET\r\n\r\n",
        "\u{1}\u{2}\u{3}\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "POST /state/x HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
        "POST /state/x HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
    ] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(raw.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        let is_refused = answer.is_empty() || answer.starts_with("HTTP/1.1 4");
        assert!(is_refused && !answer.contains(" 404 "), "{raw:?}: {answer}");
    }
    let (status, ..) = server.stranger("GET /healthz").await;
    assert_eq!(status, "200");
}

/// Thousands of valid requests with some bytes changed, doubled or cut: none stops the server, and none without the right
/// id changes the lock.
#[tokio::test]
async fn requests_with_any_bytes_changed_harm_nothing() {
    let mut dice = testkit::SeededRng::new(testkit::seed());
    let home = Home::new().await;
    let server = home.serve().await;
    let client = home.client(&server, TokenScope::Write).await;
    assert_eq!(client.ask("LOCK /state/kept", LOCK).await, "200");
    assert_eq!(client.ask("POST /state/kept?ID=a", &state(1)).await, "200");
    let credentials = basic(&client.token);
    let good: Vec<String> = [
        ("GET /state/other", ""),
        ("LOCK /state/other", LOCK),
        ("UNLOCK /state/other", LOCK),
        ("POST /state/other?ID=a", &state(1)),
        ("PUT /state/shop/other/lock", LOCK),
        ("DELETE /tfstate/states/other", ""),
        ("POST /state/kept?ID=wrong", &state(2)),
        ("GET /metrics", ""),
    ]
    .iter()
    .map(|(line, body)| {
        let length = body.len();
        format!(
            "{line} HTTP/1.1\r\nHost: here\r\n{credentials}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
    })
    .collect();
    for _ in 0..3000 {
        let mut bytes = good[dice.place(good.len())].clone().into_bytes();
        for _ in 0..=dice.roll(4) {
            let at = dice.place(bytes.len().max(1));
            match dice.roll(4) {
                0 if at < bytes.len() => bytes[at] = u8::try_from(dice.roll(256)).unwrap(),
                1 => bytes.truncate(at),
                2 => bytes.extend_from_within(at..),
                _ => bytes.insert(at, b"\r\n %{}\0\xff"[dice.place(8)]),
            }
        }
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        // The server may have answered and closed before all of it is sent, or wait for more.
        let _ = stream.write_all(&bytes).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
    }
    let (status, ..) = server.stranger("GET /healthz").await;
    assert_eq!(status, "200");
    assert_eq!(
        client.ask("POST /state/kept?ID=a", &state(2)).await,
        "200",
        "it is locked as it was"
    );
    assert_eq!(client.ask("UNLOCK /state/kept", LOCK).await, "200");
}

#[tokio::test]
async fn a_write_under_way_is_finished_when_the_server_ends() {
    let home = Home::new().await;
    let server = home.serve().await;
    let client = home.client(&server, TokenScope::Write).await;
    let body = state(1);
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = format!(
        "POST /state/p/network HTTP/1.1\r\nHost: here\r\n{}Content-Length: {}\r\nExpect: 100-continue\r\n\r\n",
        basic(&client.token),
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // Sent when the server begins to read the body.
    let mut go_on = [0; 25];
    stream.read_exact(&mut go_on).await.unwrap();
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(&body.as_bytes()[..10]).await.unwrap();
    let address = server.address;
    let ended = tokio::spawn(server.end());
    // The server accepts no more connections.
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    stream.write_all(&body.as_bytes()[10..]).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    ended.await.unwrap();
    assert!(home.store.state_head(&network()).await.unwrap().is_some());
}
