//! Removes old data from a home: versions by the given limits, refused writes after 30 days, and remains of
//! failed writes after a day.
//!
//! Not here: which versions may be removed (`model::state::retention`), how bytes are removed (`store`).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use model::base::error::Explain;
use model::state::retention::RetentionPolicy;
use store::{RemovedVersion, Store, StoreError, SweepReport};

use crate::Control;

const KEEP_REFUSED: SignedDuration = SignedDuration::from_hours(30 * 24);

/// No write takes this long: older data that belongs to no version never will.
const KEEP_UNFINISHED: SignedDuration = SignedDuration::from_hours(24);

const EVERY: Duration = Duration::from_mins(10);

/// Interval for writing markers. Until then, only the server and its tables record an acknowledgement.
const MARKS: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
#[error("could not {action}")]
pub struct RetentionError {
    action: &'static str,
    source: StoreError,
}

impl Explain for RetentionError {}

#[derive(Debug)]
pub struct RetentionReport {
    pub versions: Vec<RemovedVersion>,
    pub refused: usize,
    pub swept: SweepReport,
}

/// For a server: one round every ten minutes, as long as it is polled.
pub async fn regularly(
    control: Control,
    policy: RetentionPolicy,
    tell: fn(Result<RetentionReport, RetentionError>),
) {
    let store = control.store;
    let rounds = async {
        loop {
            tokio::time::sleep(EVERY).await;
            tell(run_retention(&store, &policy, Timestamp::now()).await);
        }
    };
    // A killed server can no longer write its markers.
    let marks = async {
        loop {
            tokio::time::sleep(MARKS).await;
            // A marker that cannot be written now is written with the next upload.
            drop(store.blobs_settle().await);
        }
    };
    tokio::join!(rounds, marks);
}

/// Before a server ends: marks acknowledged versions in the bucket, too.
pub async fn settle(control: &Control) -> Result<(), RetentionError> {
    let action = "note what was acknowledged";
    let settled = control.store.blobs_settle().await;
    settled.map_err(|source| RetentionError { action, source })
}

/// One round. Another process may run one at the same time.
pub async fn run_retention(
    store: &Store,
    policy: &RetentionPolicy,
    now: Timestamp,
) -> Result<RetentionReport, RetentionError> {
    let failed = |action| move |source| RetentionError { action, source };
    let versions = let_go_of_versions(store, policy, now)
        .await
        .map_err(failed("expire old versions"))?;
    let refused = store
        .refusal_expire(now - KEEP_REFUSED)
        .await
        .map_err(failed("expire refused writes"))?;
    store
        .refusals_forget()
        .await
        .map_err(failed("forget old refusals"))?;
    let swept = store
        .blobs_sweep(now - KEEP_UNFINISHED)
        .await
        .map_err(failed("remove what is not needed"))?;
    Ok(RetentionReport {
        versions,
        refused,
        swept,
    })
}

async fn let_go_of_versions(
    store: &Store,
    policy: &RetentionPolicy,
    now: Timestamp,
) -> Result<Vec<RemovedVersion>, StoreError> {
    let mut removed = Vec::new();
    for state in store.state_list().await? {
        removed.extend(store.retention_apply(&state, policy, now).await?);
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use model::state::lock::LockInfo;
    use model::state::{ExpectedHead, StateName};
    use store::{Keyring, StateWriter};

    use super::*;

    #[tokio::test]
    async fn a_clock_that_jumps_changes_no_lock_and_keeps_the_newest() {
        let dir = tempfile::tempdir().unwrap();
        let keyring = Keyring::open_or_create(&dir.path().join("master.key")).unwrap();
        let home = dir.path().join("home");
        let store = Store::open(&home, keyring).await.unwrap();
        let state = StateName::new("", "network");
        let body = br#"{"version":4,"serial":1,"lineage":"l","resources":[1]}"#;
        let writer = StateWriter::default();
        let written = store.state_version_append(&state, &writer, body.to_vec());
        written.await.unwrap();
        let info = LockInfo {
            id: "a".to_owned(),
            ..LockInfo::default()
        };
        let locked = store.lock_acquire(&state, &info, None, ExpectedHead::Any);
        locked.await.unwrap();
        let before = store.state_get(&state).await.unwrap();
        let policy = RetentionPolicy {
            max_age: Some(SignedDuration::from_hours(1)),
            max_count: None,
        };
        for now in ["1970-01-02T00:00:00Z", "2999-01-01T00:00:00Z"] {
            let kept = run_retention(&store, &policy, now.parse().unwrap()).await;
            assert!(kept.unwrap().versions.is_empty(), "{now}");
            assert_eq!(store.state_get(&state).await.unwrap(), before, "{now}");
        }
        let verified = store.state_verify(None).await.unwrap();
        assert_eq!((verified.versions, verified.damages.len()), (1, 0));
    }

    #[tokio::test]
    async fn a_month_later_the_mistakes_are_gone_and_the_state_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let keyring = Keyring::open_or_create(&dir.path().join("master.key")).unwrap();
        let store = Store::open(&dir.path().join("home"), keyring)
            .await
            .unwrap();
        let state = StateName::new("", "network");
        let push = async |serial: u64| {
            let body =
                format!(r#"{{"version":4,"serial":{serial},"lineage":"l","resources":[1]}}"#);
            let writer = StateWriter::default();
            let pushed = store.state_version_append(&state, &writer, body.into_bytes());
            pushed.await.is_ok()
        };
        assert!(push(1).await && push(2).await && !push(1).await);
        let policy = RetentionPolicy::default();
        let now = Timestamp::now();
        let kept = run_retention(&store, &policy, now).await.unwrap();
        assert_eq!(
            (kept.versions.len(), kept.refused, kept.swept.removed),
            (0, 0, 0)
        );
        let later = now + SignedDuration::from_hours(31 * 24);
        let kept = run_retention(&store, &policy, later).await.unwrap();
        assert_eq!(
            (kept.versions.len(), kept.refused, kept.swept.removed),
            (0, 1, 1)
        );
        let verified = store.state_verify(None).await.unwrap();
        assert_eq!((verified.versions, verified.damages.len()), (2, 0));
        assert!(verified.refused.is_empty());
    }
}
