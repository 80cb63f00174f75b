//! Quarantined states, and what people decided about them. The bytes stay, whatever is decided.

use jiff::Timestamp;
use model::base::actor::Actor;
use model::base::ids::RunId;
use model::state::{RefusedRequest, StateName};

use super::{NewRefusal, read_refusal};
use crate::db::Value;
use crate::db::name_args;
use crate::{Store, StoreError};

/// A refused adoption is a quarantined state.
pub(super) const ADOPT: &str = "adopt";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// A person pushed a state over it.
    Pushed,
    /// A person decided that it is not needed.
    Discarded,
}

impl Decision {
    fn as_str(self) -> &'static str {
        match self {
            Self::Pushed => "pushed",
            Self::Discarded => "discarded",
        }
    }
}

/// The person who decided, and the reason.
#[derive(Clone, Copy, Debug)]
pub struct Decider<'a> {
    pub actor: &'a Actor,
    pub reason: &'a str,
}

impl Store {
    /// Quarantines a state that a run left; the state's next apply waits for a decision. Equal bytes are not
    /// quarantined twice.
    pub async fn quarantine_record(
        &self,
        state: &StateName,
        run: RunId,
        reason: String,
        body: Vec<u8>,
    ) -> Result<RefusedRequest, StoreError> {
        for waiting in self.quarantine_list(state).await? {
            if waiting.run == Some(run)
                && self.refusal_body(&waiting).await?.as_ref() == Some(&body)
            {
                return Ok(waiting);
            }
        }
        self.refusal_record(NewRefusal {
            state,
            method: ADOPT,
            reason,
            run: Some(run),
            lock_id: None,
            body: Some(body),
        })
        .await
    }

    /// Quarantined states of that name without a decision, oldest first.
    pub async fn quarantine_list(
        &self,
        state: &StateName,
    ) -> Result<Vec<RefusedRequest>, StoreError> {
        let sql = refusal_sql!(
            "WHERE project = $1 AND state = $2 AND deed = $3 AND decision IS NULL ORDER BY id"
        );
        let mut args: Vec<Value> = name_args(state).to_vec();
        args.push(ADOPT.into());
        let rows = self.db.fetch_all(sql, &args).await?;
        rows.iter().map(read_refusal).collect()
    }

    /// All quarantined states without a decision, oldest first.
    pub async fn quarantine_list_open(&self) -> Result<Vec<RefusedRequest>, StoreError> {
        let sql = refusal_sql!("WHERE deed = $1 AND decision IS NULL ORDER BY id");
        let rows = self.db.fetch_all(sql, &[ADOPT.into()]).await?;
        rows.iter().map(read_refusal).collect()
    }

    /// Quarantined states of a run, decided or not, newest last.
    pub async fn quarantine_list_run(&self, run: RunId) -> Result<Vec<RefusedRequest>, StoreError> {
        let sql = refusal_sql!("WHERE run = $1 AND deed = $2 ORDER BY id");
        let rows = self.db.fetch_all(sql, &[run.into(), ADOPT.into()]).await?;
        rows.iter().map(read_refusal).collect()
    }

    /// Decides about all that wait; returns how many there were.
    pub async fn quarantine_decide(
        &self,
        which: &[RefusedRequest],
        decision: Decision,
        decider: Decider<'_>,
    ) -> Result<u64, StoreError> {
        const DECIDE: &str = "UPDATE refusal SET decision = $2, decided_by = $3, \
            decided_reason = $4, decided_at = $5 WHERE id = $1 AND decision IS NULL";
        let mut decided = 0;
        let mut tx = self.db.begin_write().await?;
        for refusal in which {
            let args = [
                refusal.id.into(),
                decision.as_str().into(),
                decider.actor.to_text().into(),
                decider.reason.into(),
                Timestamp::now().into(),
            ];
            decided += tx.execute(DECIDE, &args).await?;
        }
        tx.commit().await?;
        Ok(decided)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestHome, body, network};

    #[tokio::test]
    async fn a_decision_is_made_once_and_keeps_the_bytes() {
        let home = TestHome::new();
        let store = home.open().await;
        let (state, run) = (network(), RunId(7));
        let why = "it is encrypted".to_owned();
        let kept = store.quarantine_record(&state, run, why, body(3)).await;
        let kept = kept.unwrap();
        let again = store.quarantine_record(&state, run, "again".to_owned(), body(3));
        assert_eq!(again.await.unwrap(), kept);
        let other = NewRefusal {
            state: &state,
            method: "POST",
            reason: "locked".to_owned(),
            run: Some(run),
            lock_id: None,
            body: None,
        };
        store.refusal_record(other).await.unwrap();
        let waiting = store.quarantine_list(&state).await.unwrap();
        assert_eq!(waiting, std::slice::from_ref(&kept));

        let decider = Decider {
            actor: &Actor::named("me@here"),
            reason: "made again",
        };
        let decide = || store.quarantine_decide(&waiting, Decision::Discarded, decider);
        assert_eq!(decide().await.unwrap(), 1);
        assert_eq!(decide().await.unwrap(), 0);
        assert!(store.quarantine_list(&state).await.unwrap().is_empty());
        let left = store.quarantine_list_run(run).await.unwrap();
        assert_eq!(left, std::slice::from_ref(&kept));
        assert_eq!(store.refusal_body(&kept).await.unwrap(), Some(body(3)));
    }
}
