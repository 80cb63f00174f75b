//! A cache of the locks that this process granted, and of what it read of their states since. It saves a query when
//! the same client writes.
//!
//! The cache decides nothing: the statement that writes checks lock, epoch and head itself. If they have changed, the
//! database is read.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::state::{HeldLock, StateName};

use super::StoredVersion;

/// How many locks are cached at most: some are never released.
const MOST: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct LockCache(Mutex<HashMap<StateName, CachedLock>>);

#[derive(Clone)]
pub(crate) struct CachedLock {
    /// The state's row.
    pub(crate) state: i64,
    pub(crate) lock: HeldLock,
    /// The newest version, if it was read under this lock.
    pub(crate) head: Option<StoredVersion>,
}

impl LockCache {
    pub(crate) fn insert(&self, state: &StateName, row: i64, lock: HeldLock) {
        let mut locks = self.locks();
        if locks.len() < MOST || locks.contains_key(state) {
            let hint = CachedLock {
                state: row,
                lock,
                head: None,
            };
            locks.insert(state.clone(), hint);
        }
    }

    /// Stores a version that was just read as the newest.
    pub(crate) fn set_head(&self, head: &StoredVersion) {
        if let Some(hint) = self.locks().get_mut(&head.version.state) {
            hint.head = Some(head.clone());
        }
    }

    pub(crate) fn get(&self, state: &StateName, id: &str) -> Option<CachedLock> {
        let hint = self.locks().get(state).cloned()?;
        (hint.lock.info.id == id).then_some(hint)
    }

    /// Forgets the version: it may not be the newest any more.
    pub(crate) fn forget_head(&self, state: &StateName) {
        if let Some(hint) = self.locks().get_mut(state) {
            hint.head = None;
        }
    }

    pub(crate) fn remove(&self, state: &StateName) {
        self.locks().remove(state);
    }

    fn locks(&self) -> MutexGuard<'_, HashMap<StateName, CachedLock>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for CachedLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "row {}, lock {}", self.state, self.lock.info.id)
    }
}

#[cfg(test)]
mod tests {
    use model::base::actor::Actor;
    use model::state::ExpectedHead;

    use crate::testing::{TestHome, append, body, lock_info, network};
    use crate::{AppendError, Appended, StateWriter};

    /// One process granted the lock and read the state; another one changes it.
    #[tokio::test]
    async fn what_another_process_did_counts() {
        let me = Actor::named("me@here");
        let home = TestHome::new();
        let (one, two) = (home.open().await, home.open().await);
        let state = network();
        append(&one, state.clone(), body(1)).await.unwrap();
        let info = lock_info("a");
        let lock = one.lock_acquire(&state, &info, None, ExpectedHead::Any);
        lock.await.unwrap();
        let holder = StateWriter {
            lock_id: Some("a".to_owned()),
            ..StateWriter::default()
        };
        one.state_head_bytes(&state).await.unwrap();
        assert!(one.lock_cache.get(&state, "a").unwrap().head.is_some());

        let write = two.state_version_append(&state, &holder, body(2));
        assert!(matches!(write.await.unwrap(), Appended::New(_)));
        let again = one.state_version_append(&state, &holder, body(2));
        assert!(matches!(again.await.unwrap(), Appended::Same(v) if v.version == 2));

        one.state_head_bytes(&state).await.unwrap();
        let broken = two.lock_break_recorded(&state, Some("a"), &me, Some("it hung"));
        assert!(broken.await.unwrap().is_some());
        let late = one.state_version_append(&state, &holder, body(3)).await;
        assert!(matches!(late, Err(AppendError::Refused { .. })), "{late:?}");
        let head = one.state_head(&state).await.unwrap();
        assert_eq!(head.map(|head| head.version), Some(2));
    }
}
