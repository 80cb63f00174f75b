//! Breaking a lock: the lock ends and a break-glass record opens, in one transaction.

use model::base::actor::Actor;
use model::state::break_glass::BreakGlassAction;
use model::state::{HeldLock, StateName};

use super::ReleaseLockError;
use crate::access::break_glass::NewBreakGlass;
use crate::db::DbError;
use crate::{Store, StoreError};

impl Store {
    /// Ends the lock of the state, or only the one of that id, and opens a record: both or neither. If there is no
    /// lock, nothing is recorded.
    pub async fn lock_break_recorded(
        &self,
        state: &StateName,
        id: Option<&str>,
        actor: &Actor,
        reason: Option<&str>,
    ) -> Result<Option<HeldLock>, ReleaseLockError> {
        let failed = |source| ReleaseLockError::Store {
            state: state.clone(),
            source,
        };
        let failed_db = |err: DbError| failed(err.into());
        let mut tx = self.db.begin_write().await.map_err(failed_db)?;
        let Some(row) = tx.state_get(state).await.map_err(failed)? else {
            return Ok(None);
        };
        let Some(holder) = row.lock else {
            return Ok(None);
        };
        if id.is_some_and(|id| id != holder.info.id) {
            let ended = tx.lock_was_taken(row.id, id.unwrap_or_default()).await;
            if ended.map_err(failed_db)? {
                return Ok(None);
            }
            return Err(ReleaseLockError::Held {
                state: state.clone(),
                holder: Box::new(holder),
            });
        }
        let cleared = tx.lock_clear(state, &holder.info.id).await;
        if !cleared.map_err(failed_db)? {
            return Err(failed(StoreError::Interrupted));
        }
        let record = NewBreakGlass {
            act: BreakGlassAction::LockBroken,
            state,
            actor,
            reason,
            detail: format!("the lock of {}", holder.info),
        };
        tx.break_glass_open(&record).await.map_err(failed)?;
        tx.commit().await.map_err(failed_db)?;
        Ok(Some(holder))
    }
}

#[cfg(test)]
mod tests {
    use model::state::ExpectedHead;

    use super::*;
    use crate::testing::{TestHome, body, lock_info, network};
    use crate::{AppendError, StateWriter};

    #[tokio::test]
    async fn a_broken_lock_is_fenced_and_recorded_once() {
        let home = TestHome::new();
        let store = home.open().await;
        let state = network();
        let info = lock_info("a");
        let lock = store.lock_acquire(&state, &info, None, ExpectedHead::Any);
        lock.await.unwrap();
        let why = Some("it hung");
        let me = Actor::named("me@here");
        let take = || store.lock_break_recorded(&state, Some("a"), &me, why);
        assert_eq!(take().await.unwrap().unwrap().info.id, "a");
        assert!(take().await.unwrap().is_none());
        let records = store.break_glass_list(&state).await.unwrap();
        assert_eq!(records.len(), 1);
        assert_eq!(records[0].reason.as_deref(), why);

        let late = StateWriter {
            lock_id: Some("a".to_owned()),
            ..StateWriter::default()
        };
        let refused = store.state_version_append(&state, &late, body(1)).await;
        assert!(
            matches!(refused, Err(AppendError::Refused { .. })),
            "{refused:?}"
        );
        assert!(store.state_head(&state).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn somebody_else_s_lock_is_not_broken_by_mistake() {
        let home = TestHome::new();
        let store = home.open().await;
        let state = network();
        let info = lock_info("b");
        let lock = store.lock_acquire(&state, &info, None, ExpectedHead::Any);
        lock.await.unwrap();
        let refused = store
            .lock_break_recorded(&state, Some("a"), &Actor::named("me@here"), None)
            .await;
        assert!(
            matches!(refused, Err(ReleaseLockError::Held { .. })),
            "{refused:?}"
        );
        assert!(store.break_glass_list(&state).await.unwrap().is_empty());
    }
}
