//! HTTP probes of good and bad servers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use model::stage::gate::{BODY_LIMIT, HttpGate};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsAcceptor;

use super::servers::{self, Authority, page, request_path, serve, server_config};
use super::*;
use crate::probe::Probes;
use crate::probe::http::look;

fn gate(attrs: Value) -> HttpGate {
    match probe("http", attrs) {
        Probe::Http(gate) => gate,
        other => panic!("{other:?}"),
    }
}

async fn ask(attrs: Value, server: SocketAddr) -> String {
    let look = look(&Probes::new(), &gate(attrs), LONG).await;
    shown(&look).replace(&server.to_string(), "SERVER")
}

#[tokio::test]
async fn pages_and_redirects() {
    let visited = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&visited);
    let server = servers::http(move |path| match path {
        "/ok" => page(
            200,
            "Content-Type: application/json\r\n",
            r#"{"status":"ok"}"#,
        ),
        "/away" => page(302, "Location: /ok\r\n", ""),
        "/plain" => page(301, "Location: ftp://example.io/x\r\n", ""),
        _ => {
            count.fetch_add(1, Ordering::Relaxed);
            page(500, "", "boom")
        }
    })
    .await;
    let at = |path: &str| format!("http://{server}{path}");
    let said = [
        ask(
            json!({ "url": at("/ok"), "body": "o.$|ok", "json": { "status": "ok" } }),
            server,
        )
        .await,
        ask(json!({ "url": at("/ok"), "status": 204 }), server).await,
        ask(json!({ "url": at("/away"), "redirect": at("/ok") }), server).await,
        ask(json!({ "url": at("/away") }), server).await,
        ask(
            json!({ "url": at("/plain"), "redirect": "ftp://example.io/x" }),
            server,
        )
        .await,
        ask(json!({ "url": at("/plain"), "status": 301 }), server).await,
    ];
    insta::assert_snapshot!(said.join("\n"), @"
    passed
    status | 204 | 200
    passed
    status | 200 | 302
    passed
    passed
    ");
    assert_eq!(visited.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn no_body_is_read_beyond_its_limit() {
    // Sends until the client hangs up, and counts.
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let (ended, mut end) = tokio::sync::mpsc::unbounded_channel();
    let server = serve(move |mut stream| {
        let (count, ended) = (Arc::clone(&count), ended.clone());
        async move {
            request_path(&mut stream).await;
            let head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
            drop(stream.write_all(head).await);
            while stream.write_all(&[b'x'; 4096]).await.is_ok() {
                count.fetch_add(4096, Ordering::Relaxed);
            }
            let _ = ended.send(());
        }
    })
    .await;
    let said = ask(
        json!({ "url": format!("http://{server}/"), "body": "never" }),
        server,
    )
    .await;
    assert!(
        said.starts_with(&format!(
            "body | a match of `never` | {BODY_LIMIT} bytes that begin: xxxx"
        )),
        "{said}"
    );
    // The client hung up, so the server stops; some megabytes may still have been in buffers.
    end.recv().await.unwrap();
    assert!(sent.load(Ordering::Relaxed) < 64 << 20);
    let said = ask(json!({ "url": format!("http://{server}/") }), server).await;
    assert_eq!(said, "passed");
}

#[tokio::test]
async fn servers_that_are_no_help() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed_at = closed.local_addr().unwrap();
    drop(closed);
    let slow = serve(|mut stream| async move {
        request_path(&mut stream).await;
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this";
        drop(stream.write_all(head).await);
        // Until the client hangs up.
        drop(stream.read_to_end(&mut Vec::new()).await);
    })
    .await;
    let odd = serve(|mut stream| async move {
        request_path(&mut stream).await;
        drop(stream.write_all(b"220 mail.example.io ESMTP\r\n").await);
    })
    .await;
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mute_at = mute.local_addr().unwrap();
    let short = |url: String, body: Option<&'static str>| async move {
        let mut attrs = json!({ "url": url });
        if let Some(body) = body {
            attrs["body"] = json!(body);
        }
        shown(&look(&Probes::new(), &gate(attrs), SHORT).await)
    };
    let said = [
        ask(json!({ "url": format!("http://{closed_at}/") }), closed_at).await,
        ask(json!({ "url": format!("http://{odd}/") }), odd).await,
        short(format!("http://{mute_at}/"), None)
            .await
            .replace(&mute_at.to_string(), "SERVER"),
        short(format!("http://{slow}/"), Some("more"))
            .await
            .replace(&slow.to_string(), "SERVER"),
        // The status is known, so the probe does not wait for the body.
        ask(json!({ "url": format!("http://{slow}/") }), slow).await,
    ];
    insta::assert_snapshot!(said.join("\n"), @"
    http://SERVER/ | 200 | no listener (connection refused)
    http://SERVER/ | 200 | no answer of HTTP: invalid HTTP version parsed
    http://SERVER/ | 200 | nothing within 0.3 s
    http://SERVER/ | 200 | no whole body: 9 bytes, then nothing within 0.3 s
    passed
    ");
}

#[tokio::test]
async fn an_authority_of_its_own() {
    let ours = Authority::new("Our CA");
    let acceptor = TlsAcceptor::from(server_config(ours.sign("localhost", |_| {}), &[]));
    let server = serve(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else {
                return;
            };
            let mut request = [0; 4096];
            drop(stream.read(&mut request).await);
            drop(stream.write_all(page(200, "", "secure").as_bytes()).await);
            drop(stream.shutdown().await);
        }
    })
    .await;
    let url = format!("https://localhost:{}/", server.port());
    let said = |attrs: Value| async move {
        let look = look(&Probes::new(), &gate(attrs), LONG).await;
        shown(&look).replace(&server.port().to_string(), "PORT")
    };
    assert_eq!(
        said(json!({ "url": url, "ca": ours.pem, "body": "^secure$" })).await,
        "passed"
    );
    insta::assert_snapshot!(said(json!({ "url": url })).await, @"https://localhost:PORT/ | 200 | no trusted connection: invalid peer certificate: UnknownIssuer");
    let plain = servers::plain().await;
    let url = format!("https://localhost:{}/", plain.port());
    let plain = look(&Probes::new(), &gate(json!({ "url": url })), LONG).await;
    assert!(
        shown(&plain).contains("no trusted connection"),
        "{}",
        shown(&plain)
    );
}

#[tokio::test]
async fn no_connection_outlives_its_look() {
    let (ended, mut end) = tokio::sync::mpsc::unbounded_channel();
    let server = serve(move |mut stream| {
        let ended = ended.clone();
        async move {
            request_path(&mut stream).await;
            // A response that would allow the connection to be used again.
            let head = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine";
            drop(stream.write_all(head).await);
            drop(stream.read_to_end(&mut Vec::new()).await);
            let _ = ended.send(());
        }
    })
    .await;
    let probes = Probes::new();
    let attrs = json!({ "url": format!("http://{server}/"), "body": "fine" });
    assert_eq!(shown(&look(&probes, &gate(attrs), LONG).await), "passed");
    // The probe's client still exists; the connection must not.
    let hung_up = tokio::time::timeout(LONG, end.recv()).await;
    hung_up.expect("the connection ends").unwrap();
    drop(probes);
}
