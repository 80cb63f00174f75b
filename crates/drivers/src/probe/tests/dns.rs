//! DNS probes against real name servers.

use std::net::SocketAddr;

use model::stage::gate::{DnsGate, Evidence};
use serde_json::json;
use testkit::Dns;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;
use crate::probe::dns::look;

const ZONE: &str = "dev A 203.0.113.7\n*.dev A 203.0.113.7\nhalf A 203.0.113.7\nhalf A 198.51.100.4\n\
    six AAAA 2001:db8::7\nalias CNAME dev\nabroad CNAME lb.example.net.\nsame A 203.0.113.7\n\
    note TXT \"one\" \nnote TXT \"a longer \" \"text\"\nsub.deep A 192.0.2.1";

fn gate(mut attrs: Value, server: &str) -> DnsGate {
    attrs["resolver"] = json!(server);
    match probe("dns", attrs) {
        Probe::Dns(gate) => gate,
        other => panic!("{other:?}"),
    }
}

async fn ask(dns: &Dns, attrs: Value) -> String {
    let look = look(&gate(attrs, &dns.address()), LONG).await;
    shown(&look).replace(&dns.port().to_string(), "PORT")
}

#[tokio::test]
async fn records_of_every_kind() {
    let dns = Dns::start(ZONE);
    let said = [
        ask(
            &dns,
            json!({ "names": ["*.dev.example.io", "dev.example.io"], "expect": "203.0.113.7" }),
        )
        .await,
        ask(
            &dns,
            json!({ "names": ["*.dev.example.io"], "expect": "198.51.100.4" }),
        )
        .await,
        ask(
            &dns,
            json!({ "names": ["half.example.io"], "expect": "203.0.113.7" }),
        )
        .await,
        ask(
            &dns,
            json!({ "names": ["half.example.io"], "expect": ["198.51.100.4", "203.0.113.7"] }),
        )
        .await,
        ask(
            &dns,
            json!({ "names": ["SIX.example.io."], "expect": "2001:DB8:0::7" }),
        )
        .await,
        ask(
            &dns,
            json!({ "names": ["dev.example.io"], "record": "AAAA" }),
        )
        .await,
        ask(
            &dns,
            json!({ "names": ["alias.example.io"], "expect": "dev.example.io", "record": "CNAME" }),
        )
        .await,
        ask(
            &dns,
            json!({ "names": ["alias.example.io"], "expect": "203.0.113.7" }),
        )
        .await,
        ask(
            &dns,
            json!({ "names": ["abroad.example.io"], "expect": "lb.example.net" }),
        )
        .await,
        ask(
            &dns,
            json!({ "names": ["same.example.io"], "expect": "dev.example.io" }),
        )
        .await,
        ask(
            &dns,
            json!({ "names": ["note.example.io"], "expect": "a longer text", "record": "TXT" }),
        )
        .await,
        ask(&dns, json!({ "names": ["none.example.io"] })).await,
        ask(
            &dns,
            json!({ "names": ["none.example.io", "dev.example.io"], "absent": true }),
        )
        .await,
        ask(&dns, json!({ "names": ["www.example.com"] })).await,
    ];
    insta::assert_snapshot!(said.join("\n"), @"
    passed
    *.dev.example.io | 198.51.100.4 | 203.0.113.7 from 127.0.0.1:PORT, TTL 300
    half.example.io | 203.0.113.7 | 198.51.100.4 and 203.0.113.7 from 127.0.0.1:PORT, TTL 300
    passed
    passed
    dev.example.io | a record of type AAAA | no such record from 127.0.0.1:PORT
    passed
    passed
    passed
    passed
    passed
    none.example.io | a record of type A | no such name (NXDOMAIN) from 127.0.0.1:PORT
    dev.example.io | no record | 203.0.113.7 from 127.0.0.1:PORT, TTL 300
    www.example.com | a record of type A | `REFUSED` from 127.0.0.1:PORT
    ");
}

#[tokio::test]
async fn all_name_servers_must_agree() {
    let dns = Dns::start_split("*.dev A 203.0.113.7", "*.dev A 198.51.100.4");
    let wanted =
        json!({ "names": ["*.dev.example.io"], "expect": "203.0.113.7", "authoritative": true });
    insta::assert_snapshot!(ask(&dns, wanted.clone()).await, @"*.dev.example.io | 203.0.113.7 | 198.51.100.4 from ns2.example.io (127.0.0.2:PORT), TTL 300");
    // A query to the resolver alone does not show the difference.
    let one = json!({ "names": ["*.dev.example.io"], "expect": "203.0.113.7" });
    assert_eq!(ask(&dns, one).await, "passed");
    dns.change("*.dev A 203.0.113.7");
    assert_eq!(ask(&dns, wanted).await, "passed");
}

#[tokio::test]
async fn what_was_resolved_where_is_kept() {
    let dns = Dns::start(ZONE);
    let gate = gate(
        json!({ "names": ["*.dev.example.io"], "expect": "203.0.113.7" }),
        &dns.address(),
    );
    let look = look(&gate, LONG).await;
    let Some(Evidence::Dns(seen)) = look.evidence else {
        panic!("evidence of names");
    };
    let asked = seen.names[0].asked.clone();
    assert!(
        asked.starts_with("terrane-") && asked.ends_with(".dev.example.io"),
        "{asked}"
    );
    let text = serde_json::to_string_pretty(&seen).unwrap();
    let text = text
        .replace(&dns.port().to_string(), "PORT")
        .replace(&asked, "RANDOM");
    insta::assert_snapshot!(text, @r#"
    {
      "record": "A",
      "names": [
        {
          "name": "*.dev.example.io",
          "asked": "RANDOM",
          "answers": [
            {
              "server": "127.0.0.1:PORT",
              "status": "NOERROR",
              "ttl": 300,
              "values": [
                "203.0.113.7"
              ]
            }
          ]
        }
      ]
    }
    "#);
}

#[tokio::test]
async fn nobody_answers() {
    let dns = Dns::start(ZONE);
    let gone = gate(
        json!({ "names": ["dev.example.io"], "absent": true }),
        &dns.address(),
    );
    dns.stop();
    let said = shown(&look(&gone, LONG).await).replace(&dns.port().to_string(), "PORT");
    assert_eq!(
        said,
        "cannot look: no answer from 127.0.0.1:PORT: connection refused"
    );
    // A server that accepts queries and never answers.
    let mute = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = mute.local_addr().unwrap().to_string();
    let gate = gate(json!({ "names": ["dev.example.io"] }), &address);
    let said = shown(&look(&gate, SHORT).await).replace(&address, "MUTE");
    assert_eq!(
        said,
        "cannot look: no answer from MUTE: nothing within 0.3 s"
    );
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_asked_for_over_tcp() {
    let part = "x".repeat(200);
    let dns = Dns::start(&format!("long TXT \"{part}\" \"{part}\" \"{part}\""));
    let whole = part.repeat(3);
    let wanted = json!({ "names": ["long.example.io"], "record": "TXT", "expect": whole });
    assert_eq!(ask(&dns, wanted).await, "passed");
}

#[tokio::test]
async fn a_connection_to_a_name_server_ends_with_its_answer() {
    let (server, mut hung_up) = long_winded(true).await;
    let wanted = json!({ "names": ["dev.example.io"], "expect": "203.0.113.7" });
    let said = shown(&look(&gate(wanted.clone(), &server.to_string()), LONG).await);
    assert_eq!(said, "passed");
    hung_up.recv().await.expect("it hangs up");

    // A server that never answers is dropped at the time limit.
    let (server, mut hung_up) = long_winded(false).await;
    let said = shown(&look(&gate(wanted, &server.to_string()), SHORT).await);
    let said = said.replace(&server.to_string(), "MUTE");
    assert_eq!(
        said,
        "cannot look: no answer from MUTE: nothing within 0.3 s"
    );
    hung_up.recv().await.expect("it hangs up");
}

/// Over UDP it answers "truncated". Over TCP it answers or stays silent, and reports when the client hangs up.
async fn long_winded(answers: bool) -> (SocketAddr, UnboundedReceiver<()>) {
    let (tcp, udp) = loop {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()).await {
            break (tcp, udp);
        }
    };
    let address = tcp.local_addr().unwrap();
    tokio::spawn(async move {
        let mut question = [0; 512];
        while let Ok((length, from)) = udp.recv_from(&mut question).await {
            question[2] |= 0b1000_0010; // an answer, truncated
            drop(udp.send_to(&question[..length], from).await);
        }
    });
    let (ended, end) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = tcp.accept().await {
            let length = stream.read_u16().await.unwrap();
            let mut message = vec![0; usize::from(length)];
            stream.read_exact(&mut message).await.unwrap();
            if answers {
                message[2] |= 0b1000_0000;
                message[7] = 1; // one record: the queried name, type A, a minute, 203.0.113.7
                message.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 203, 0, 113, 7]);
                let length = u16::try_from(message.len()).unwrap();
                stream.write_u16(length).await.unwrap();
                stream.write_all(&message).await.unwrap();
            }
            drop(stream.read_to_end(&mut Vec::new()).await);
            let _ = ended.send(());
        }
    });
    (address, end)
}
