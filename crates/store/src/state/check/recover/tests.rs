//! The database is gone; the files and the key are not.

use std::fs;

use super::*;
use crate::blob::segments::frame::scan;
use crate::testing::{TestHome, append, body, network};
use crate::{Appended, Store};

async fn push(store: &Store, state: &StateName, body: Vec<u8>) -> StateVersion {
    let pushed = append(store, state.clone(), body);
    match pushed.await.unwrap() {
        Appended::New(version) => version,
        Appended::Same(version) => panic!("{version:?} is there already"),
    }
}

/// What is found, one line each.
fn found(home: &TestHome) -> Vec<String> {
    let keyring = Keyring::open_or_create(&home.path().join("config/master.key")).unwrap();
    let mut lines = Vec::new();
    let each = |recovered| {
        lines.push(match recovered {
            RecoveredItem::Version {
                version,
                standing,
                body,
                ..
            } => {
                let text = body.map(|body| String::from_utf8_lossy(&body).into_owned());
                let text =
                    text.unwrap_or_else(|err| std::error::Error::source(&err).unwrap().to_string());
                format!("{} {} {standing:?} {text}", version.state, version.version)
            }
            RecoveredItem::Lost { state, version, .. } => format!("{state} {version} lost"),
            RecoveredItem::Refused { state, body, .. } => {
                let body = body.unwrap();
                format!("{state} refused {}", String::from_utf8_lossy(&body))
            }
            RecoveredItem::Artifacts { state, set } => {
                format!("{state} artifacts {}", set.unwrap().len())
            }
        });
    };
    recover(&home.path().join("home"), keyring, each).unwrap();
    lines
}

fn text(serial: u64) -> String {
    String::from_utf8(body(serial)).unwrap()
}

#[tokio::test]
async fn everything_comes_back_without_the_database() {
    let home = TestHome::new();
    let store = home.open().await;
    let other = StateName::new("", "Über all");
    push(&store, &network(), body(1)).await;
    push(&store, &other, body(5)).await;
    push(&store, &network(), body(2)).await;
    let refused = append(&store, network(), body(1));
    refused.await.unwrap_err();
    let unknown = StateName::new("p", "never/stored");
    let refused = append(&store, unknown, b"[]".to_vec());
    refused.await.unwrap_err();
    drop(store);
    home.lose_tables();
    assert_eq!(
        found(&home),
        [
            format!("Über all 1 Acknowledged {}", text(5)),
            format!("p/network 1 Acknowledged {}", text(1)),
            format!("p/network 2 Acknowledged {}", text(2)),
            format!("p/network refused {}", text(1)),
            "p/never/stored refused []".to_owned(),
        ]
    );
}

#[tokio::test]
async fn a_torn_tail_costs_only_what_was_torn() {
    let home = TestHome::new();
    let store = home.open().await;
    for serial in 1..=3 {
        push(&store, &network(), body(serial)).await;
    }
    drop(store);
    home.lose_tables();
    let segment = home.path().join("home/segments/1.seg");
    let bytes = fs::read(&segment).unwrap();
    let frames: Vec<usize> = scan(&bytes).map(|found| found.offset).collect();
    // Without the marker of version 3 nothing says that it was acknowledged.
    fs::write(&segment, &bytes[..=frames[5]]).unwrap();
    let third = format!("p/network 3 NotProvable {}", text(3));
    assert_eq!(found(&home)[2], third);
    fs::write(&segment, &bytes[..frames[5] - 1]).unwrap();
    assert_eq!(
        found(&home),
        [
            format!("p/network 1 Acknowledged {}", text(1)),
            format!("p/network 2 Acknowledged {}", text(2)),
        ]
    );
    // A parent that is named needs no marker, and what is damaged hides nothing behind it.
    let mut hurt = bytes.clone();
    hurt[frames[1] + 30] ^= 1;
    fs::write(&segment, &hurt).unwrap();
    assert_eq!(found(&home).len(), 3);
    assert!(found(&home)[0].starts_with("p/network 1 Acknowledged"));
}

#[tokio::test]
async fn another_key_opens_nothing() {
    let home = TestHome::new();
    push(&home.open().await, &network(), body(1)).await;
    fs::remove_file(home.path().join("config/master.key")).unwrap();
    let lines = found(&home);
    assert_eq!(lines.len(), 1);
    assert!(lines[0].contains("NotProvable"), "{lines:?}");
    assert!(
        lines[0].contains("was wrapped with master key"),
        "{lines:?}"
    );
}
