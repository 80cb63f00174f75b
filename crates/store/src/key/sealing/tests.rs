//! Sealed pieces that were swapped, cut or bent do not open.

use super::*;
use crate::testing::{TestHome, network};

#[tokio::test]
async fn a_piece_opens_for_its_scope_and_purpose_only() {
    let home = TestHome::new();
    let store = home.open().await;
    let sealed = store
        .seal(KeyScope::Project, "plan", b"secret".to_vec())
        .await
        .unwrap();
    assert!(!String::from_utf8_lossy(&sealed).contains("secret"));
    let again = home.open().await;
    let plain = again
        .unseal(KeyScope::Project, "plan", sealed.clone())
        .await
        .unwrap();
    assert_eq!(plain, b"secret");
    let err = store
        .unseal(KeyScope::Project, "snapshot", sealed.clone())
        .await
        .unwrap_err();
    let StoreError::Unseal { source, .. } = err else {
        panic!("{err:?}")
    };
    assert_eq!(source.to_string(), "it is plan, not snapshot");
    store
        .seal(KeyScope::State(network()), "plan", Vec::new())
        .await
        .unwrap();
    let err = store
        .unseal(KeyScope::State(network()), "plan", sealed)
        .await
        .unwrap_err();
    assert!(
        matches!(
            err,
            StoreError::Unseal {
                source: UnsealError::Changed,
                ..
            }
        ),
        "{err:?}"
    );
}

#[tokio::test]
async fn no_bit_of_a_piece_may_change() {
    let home = TestHome::new();
    let store = home.open().await;
    let sealed = store
        .seal(KeyScope::Project, "plan", b"secret".to_vec())
        .await
        .unwrap();
    let key = store.keys.get(&KeyScope::Project).unwrap();
    for at in 0..sealed.len() {
        let mut changed = sealed.clone();
        changed[at] ^= 1;
        assert!(
            open_file::<PieceHeader>(&key.key, changed).is_err(),
            "byte {at}"
        );
        assert!(
            open_file::<PieceHeader>(&key.key, sealed[..at].to_vec()).is_err(),
            "cut at {at}"
        );
    }
}

#[tokio::test]
async fn keyed_digests() {
    let (home, other) = (TestHome::new(), TestHome::new());
    let digest = async |home: &TestHome, purpose: &str, bytes: &str| {
        home.open()
            .await
            .keyed_digest(purpose, bytes.as_bytes().to_vec())
            .await
            .unwrap()
    };
    let first = digest(&home, "input", "5432").await;
    assert_eq!(first.len(), 64);
    let digester = home.open().await.keyed_digester("input").await.unwrap();
    assert_eq!(first, digester.digest(b"5432"));
    assert!(!format!("{digester:?}").contains("5432"));
    assert_eq!(first, digest(&home, "input", "5432").await);
    assert_ne!(first, digest(&home, "input", "5433").await);
    assert_ne!(first, digest(&home, "state", "5432").await);
    assert_ne!(first, digest(&other, "input", "5432").await);
}
