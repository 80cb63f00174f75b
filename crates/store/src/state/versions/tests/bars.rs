//! What versions cost: room and time, for a state of the size that people have.

use std::time::Instant;

use crate::testing::{TestHome, append, network, wide};

/// About 462 KB, as a root module of a few hundred resources has.
const RESOURCES: u64 = 396;

#[tokio::test]
async fn a_hundred_versions_take_three_hundredths_of_their_size() {
    let home = TestHome::new();
    let store = home.open().await;
    for serial in 1..=100 {
        let body = wide(RESOURCES, serial);
        let pushed = append(&store, network(), body);
        pushed.await.unwrap();
    }
    let all = store.stored_all(&network()).await.unwrap();
    assert!(all.iter().all(|stored| stored.depth <= 16));
    let raw: u64 = all.iter().map(|stored| stored.version.size).sum();
    assert!(raw / 100 > 440_000, "{raw}");
    let segment = std::fs::metadata(home.path().join("home/segments/1.seg")).unwrap();
    assert!(segment.len() * 100 <= raw * 3, "{} of {raw}", segment.len());

    // Another process reads the ones that lie deepest: as fast as the build is, which is slow in tests.
    let store = home.open().await;
    let deepest = all.iter().filter(|stored| stored.depth == 16);
    for stored in deepest {
        let begun = Instant::now();
        let read = store.state_version_read(&stored.version).await.unwrap();
        let took = begun.elapsed();
        assert_eq!(read, wide(RESOURCES, stored.version.serial));
        let limit = if cfg!(debug_assertions) { 400 } else { 25 };
        assert!(took.as_millis() < limit, "{took:?}");
    }
}
