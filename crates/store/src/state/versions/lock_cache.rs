//! Locks that this process gave out, and what it saw of their states since: what the same client will do next need not be
//! looked up.
//!
//! A hint decides nothing. Whoever acts on one does so by a statement that checks lock, epoch and head itself; if they are
//! others by now, the tables are asked.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::state::{HeldLock, StateName};

use super::Stored;

/// Locks that nobody ends are not kept in mind without bound.
const MOST: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Given(Mutex<HashMap<StateName, Hint>>);

#[derive(Clone)]
pub(crate) struct Hint {
    /// The state's row.
    pub(crate) state: i64,
    pub(crate) lock: HeldLock,
    /// The newest version, if it was read under this lock.
    pub(crate) head: Option<Stored>,
}

impl Given {
    pub(crate) fn gave(&self, state: &StateName, row: i64, lock: HeldLock) {
        let mut given = self.given();
        if given.len() < MOST || given.contains_key(state) {
            let hint = Hint {
                state: row,
                lock,
                head: None,
            };
            given.insert(state.clone(), hint);
        }
    }

    /// This was read as the newest version just now.
    pub(crate) fn saw(&self, head: &Stored) {
        if let Some(hint) = self.given().get_mut(&head.version.state) {
            hint.head = Some(head.clone());
        }
    }

    pub(crate) fn get(&self, state: &StateName, id: &str) -> Option<Hint> {
        let hint = self.given().get(state).cloned()?;
        (hint.lock.info.id == id).then_some(hint)
    }

    /// The version that was read is not the newest any more, or may not be.
    pub(crate) fn head_moved(&self, state: &StateName) {
        if let Some(hint) = self.given().get_mut(state) {
            hint.head = None;
        }
    }

    pub(crate) fn forget(&self, state: &StateName) {
        self.given().remove(state);
    }

    fn given(&self) -> MutexGuard<'_, HashMap<StateName, Hint>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Hint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "row {}, lock {}", self.state, self.lock.info.id)
    }
}

#[cfg(test)]
mod tests {
    use model::state::ExpectedHead;

    use crate::testing::{TestHome, append, body, lock_info, network};
    use crate::{AppendError, Appended, Writer};

    /// One process gave the lock out and read the state; the other one changes it.
    #[tokio::test]
    async fn what_another_process_did_counts() {
        let home = TestHome::new();
        let (one, two) = (home.open().await, home.open().await);
        let state = network();
        append(&one, state.clone(), body(1)).await.unwrap();
        let info = lock_info("a");
        let lock = one.lock_acquire(&state, &info, None, ExpectedHead::Any);
        lock.await.unwrap();
        let holder = Writer {
            lock_id: Some("a".to_owned()),
            ..Writer::default()
        };
        one.state_head_bytes(&state).await.unwrap();
        assert!(one.given.get(&state, "a").unwrap().head.is_some());

        let write = two.state_version_append(&state, &holder, body(2));
        assert!(matches!(write.await.unwrap(), Appended::New(_)));
        let again = one.state_version_append(&state, &holder, body(2));
        assert!(matches!(again.await.unwrap(), Appended::Same(v) if v.version == 2));

        one.state_head_bytes(&state).await.unwrap();
        let broken = two.lock_break_recorded(&state, Some("a"), "me@here", Some("it hung"));
        assert!(broken.await.unwrap().is_some());
        let late = one.state_version_append(&state, &holder, body(3)).await;
        assert!(matches!(late, Err(AppendError::Refused { .. })), "{late:?}");
        let head = one.state_head(&state).await.unwrap();
        assert_eq!(head.map(|head| head.version), Some(2));
    }
}
