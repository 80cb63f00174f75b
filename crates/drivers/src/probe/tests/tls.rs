//! Certificates: valid ones, and ones that are wrong in each way.

use std::net::SocketAddr;

use model::stage::gate::{Evidence, TlsGate};
use rcgen::date_time_ymd;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsAcceptor;

use super::servers::{self, Authority, self_signed, serve};
use super::*;
use crate::probe::Probes;
use crate::probe::tls::look;

const HOST: &str = "coder.example.io";

fn gate(mut attrs: Value, address: SocketAddr) -> TlsGate {
    attrs["host"] = json!(HOST);
    attrs["address"] = json!(address.to_string());
    match probe("tls", attrs) {
        Probe::Tls(gate) => gate,
        other => panic!("{other:?}"),
    }
}

async fn ask(attrs: Value, address: SocketAddr) -> String {
    let look = look(&Probes::new(), &gate(attrs, address), LONG).await;
    shown(&look).replace(&address.port().to_string(), "PORT")
}

#[tokio::test]
async fn good_and_bad_in_each_way() {
    let ours = Authority::new("Our CA");
    let theirs = Authority::new("Their CA");
    let ca = json!({ "ca": ours.pem });
    let good = servers::tls(ours.sign(HOST, |_| {}), &["h2"]).await;
    let expired = ours.sign(HOST, |one| one.not_after = date_time_ymd(2021, 1, 1));
    let early = ours.sign(HOST, |one| one.not_before = date_time_ymd(2080, 1, 1));
    let (alone, alone_pem) = self_signed(HOST);
    let alone = servers::tls(alone, &[]).await;
    let untrusted_and_over = theirs.sign("*.example.net", |one| {
        one.not_after = date_time_ymd(2021, 1, 1);
    });
    let said = [
        ask(ca.clone(), good).await,
        ask(
            json!({ "ca": ours.pem, "issuer": "our ca", "alpn": ["h2", "http/1.1"] }),
            good,
        )
        .await,
        ask(json!({ "ca": ours.pem, "issuer": "Let's Encrypt" }), good).await,
        ask(json!({ "ca": ours.pem, "alpn": ["acme-tls/1"] }), good).await,
        ask(json!({}), good).await,
        ask(ca.clone(), servers::tls(expired, &[]).await).await,
        ask(ca.clone(), servers::tls(early, &[]).await).await,
        ask(
            ca.clone(),
            servers::tls(ours.sign("other.example.io", |_| {}), &[]).await,
        )
        .await,
        ask(
            ca.clone(),
            servers::tls(theirs.sign(HOST, |_| {}), &[]).await,
        )
        .await,
        ask(ca.clone(), alone).await,
        ask(json!({ "ca": alone_pem }), alone).await,
        ask(ca.clone(), servers::tls(untrusted_and_over, &[]).await).await,
        ask(
            ca.clone(),
            servers::tls(servers::as_v1(ours.sign(HOST, |_| {})), &[]).await,
        )
        .await,
    ];
    let said = said.join("\n");
    // The number of days since expiry changes every day.
    let (head, tail) = said.split_once("expired ").unwrap();
    let tail = tail.split_once(" d ago").unwrap().1;
    let (middle, tail) = tail.split_once("expired ").unwrap();
    let tail = tail.split_once(" d ago").unwrap().1;
    let steady = format!("{head}expired N d ago{middle}expired N d ago{tail}");
    insta::assert_snapshot!(steady, @"
    passed
    passed
    issuer | Let's Encrypt | CN=Our CA
    coder.example.io | a valid certificate | the handshake refused: `NoApplicationProtocol` at 127.0.0.1:PORT
    chain | signed by a root that this system trusts | unknown issuer `CN=Our CA`; it is shown without any intermediate certificate
    validity of `CN=coder.example.io` | valid now | expired N d ago, on 2021-01-01T00:00:00Z
    validity of `CN=coder.example.io` | valid now | not valid before 2080-01-01T00:00:00Z
    host name | coder.example.io | other.example.io
    chain | signed by the certificates of `ca` | unknown issuer `CN=Their CA`; it is shown without any intermediate certificate
    chain | signed by the certificates of `ca` | it signed itself
    passed
    chain | signed by the certificates of `ca` | unknown issuer `CN=Their CA`; it is shown without any intermediate certificate
    host name | coder.example.io | *.example.net
    validity of `CN=*.example.net` | valid now | expired N d ago, on 2021-01-01T00:00:00Z
    chain | signed by the certificates of `ca` | it is an X.509 v1 certificate, which TLS clients refuse
    host name | coder.example.io | no names
    ");
}

#[tokio::test]
async fn nobody_who_speaks_tls() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed_at = closed.local_addr().unwrap();
    drop(closed);
    let plain = servers::plain().await;
    let greets = serve(|mut stream| async move {
        drop(stream.write_all(b"220 mail.example.io ESMTP\r\n").await);
    })
    .await;
    let hangs_up = serve(|stream| async move { drop(stream) }).await;
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mute_at = mute.local_addr().unwrap();
    let short = look(&Probes::new(), &gate(json!({}), mute_at), SHORT).await;
    let said = [
        ask(json!({}), closed_at).await,
        ask(json!({}), greets).await,
        shown(&short).replace(&mute_at.port().to_string(), "PORT"),
    ];
    insta::assert_snapshot!(said.join("\n"), @"
    coder.example.io | a valid certificate | no listener (connection refused) at 127.0.0.1:PORT
    coder.example.io | a valid certificate | something that is not TLS at 127.0.0.1:PORT
    coder.example.io | a valid certificate | no certificate (nothing within 0.3 s) at 127.0.0.1:PORT
    ");
    // Timing decides which of two errors is seen.
    for (server, ways) in [
        (plain, ["something that is not TLS", "no certificate"]),
        (
            hangs_up,
            [
                "no certificate (it hung up)",
                "no certificate (connection reset)",
            ],
        ),
    ] {
        let said = ask(json!({}), server).await;
        assert!(ways.iter().any(|way| said.contains(way)), "{said}");
    }
}

#[tokio::test]
async fn the_chain_is_kept() {
    let ours = Authority::new("Our CA");
    let good = servers::tls(ours.sign(HOST, |_| {}), &["h2"]).await;
    let gate = gate(json!({ "ca": ours.pem, "alpn": ["h2"] }), good);
    let look = look(&Probes::new(), &gate, LONG).await;
    let Some(Evidence::Tls(mut seen)) = look.evidence else {
        panic!("evidence of a certificate");
    };
    let model::stage::gate::Handshake::Done(connection) = &mut seen.handshake else {
        panic!("a handshake");
    };
    let fingerprint = std::mem::take(&mut connection.chain[0].fingerprint);
    assert_eq!(fingerprint.len(), 64);
    let text = serde_json::to_string_pretty(&seen).unwrap();
    insta::assert_snapshot!(text.replace(&good.port().to_string(), "PORT"), @r#"
    {
      "host": "coder.example.io",
      "address": "127.0.0.1:PORT",
      "handshake": "done",
      "version": "TLSv1.3",
      "cipher": "TLS13_AES_256_GCM_SHA384",
      "alpn": "h2",
      "chain": [
        {
          "subject": "CN=coder.example.io",
          "issuer": "CN=Our CA",
          "names": [
            "coder.example.io"
          ],
          "not_before": "2020-01-01T00:00:00Z",
          "not_after": "2090-01-01T00:00:00Z",
          "fingerprint": ""
        }
      ],
      "trust": {
        "trust": "trusted"
      },
      "covers_host": true
    }
    "#);
}

#[tokio::test]
async fn a_port_answers_or_not() {
    let open = servers::http(|_| String::new()).await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed_at = closed.local_addr().unwrap();
    drop(closed);
    let mut said = Vec::new();
    for address in [open, closed_at] {
        let Probe::Tcp(gate) = probe("tcp", json!({ "address": address.to_string() })) else {
            panic!("a tcp gate");
        };
        let look = crate::probe::tcp::look(&gate, LONG).await;
        said.push(shown(&look).replace(&address.port().to_string(), "PORT"));
    }
    assert_eq!(
        said,
        ["passed", "127.0.0.1:PORT | a listener | connection refused"]
    );
}

#[tokio::test]
async fn no_connection_outlives_its_look() {
    let ours = Authority::new("Our CA");
    let acceptor = TlsAcceptor::from(servers::server_config(ours.sign(HOST, |_| {}), &[]));
    let (ended, mut end) = tokio::sync::mpsc::unbounded_channel();
    let server = serve(move |stream| {
        let (acceptor, ended) = (acceptor.clone(), ended.clone());
        async move {
            if let Ok(mut stream) = acceptor.accept(stream).await {
                drop(stream.read_to_end(&mut Vec::new()).await);
                let _ = ended.send(());
            }
        }
    })
    .await;
    let probes = Probes::new();
    let look = look(&probes, &gate(json!({ "ca": ours.pem }), server), LONG).await;
    assert_eq!(shown(&look), "passed");
    // The probe's client still exists; the connection must not.
    let hung_up = tokio::time::timeout(LONG, end.recv()).await;
    hung_up.expect("the connection ends").unwrap();
    drop(probes);
}
