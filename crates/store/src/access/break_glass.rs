//! Break-glass records: manual interventions and their reasons.
//!
//! Not here: the interventions themselves (`state`), closing records after a run (`run::runs`).

use std::collections::BTreeSet;

use jiff::Timestamp;
use model::base::actor::Actor;
use model::base::ids::BreakGlassId;
use model::state::StateName;
use model::state::break_glass::{BreakGlass, BreakGlassAction};

use crate::db::{Row, Tx, Value};
use crate::db::{name_args, read_time};
use crate::{Store, StoreError};

/// A record to be opened.
#[derive(Clone, Debug)]
pub struct NewBreakGlass<'a> {
    pub act: BreakGlassAction,
    pub state: &'a StateName,
    pub actor: &'a Actor,
    /// `None` if the client could not give one.
    pub reason: Option<&'a str>,
    pub detail: String,
}

macro_rules! columns {
    () => {
        "id, act, project, state, actor, reason, detail, at, closed_at"
    };
}

macro_rules! break_glass_sql {
    ($rest:literal) => {
        concat!("SELECT ", columns!(), " FROM break_glass ", $rest)
    };
}

impl Store {
    /// Opens a record on its own; an act that changes something opens it in its own transaction.
    pub async fn break_glass_open(&self, new: &NewBreakGlass<'_>) -> Result<i64, StoreError> {
        let mut tx = self.db.begin_write().await?;
        let id = tx.break_glass_open(new).await?;
        tx.commit().await?;
        Ok(id)
    }

    /// Removes a record that was opened before its act, which then changed nothing.
    pub async fn break_glass_withdraw(&self, id: i64) -> Result<(), StoreError> {
        let sql = "DELETE FROM break_glass WHERE id = $1";
        self.db.write_one(sql, [id.into()]).await?;
        Ok(())
    }

    pub async fn break_glass_get(
        &self,
        id: BreakGlassId,
    ) -> Result<Option<BreakGlass>, StoreError> {
        let sql = break_glass_sql!("WHERE id = $1");
        let row = self.db.fetch_optional(sql, &[id.0.into()]).await?;
        row.as_ref().map(read).transpose()
    }

    /// Adds a missing reason. `None` if the record has one by now, or is closed.
    pub async fn break_glass_explain(
        &self,
        id: BreakGlassId,
        reason: &str,
        by: &Actor,
    ) -> Result<Option<BreakGlass>, StoreError> {
        const EXPLAIN: &str = concat!(
            "UPDATE break_glass SET reason = $2, detail = detail || $3 \
             WHERE id = $1 AND closed_at IS NULL AND reason IS NULL RETURNING ",
            columns!()
        );
        let args = [id.0.into(), reason.into(), explained_by(by).into()];
        let rows = self.db.write_one(EXPLAIN, args).await?;
        rows.first().map(read).transpose()
    }

    /// Closes a record and appends a reason. `None` if it is already closed.
    pub async fn break_glass_close(
        &self,
        id: BreakGlassId,
        reason: &str,
        by: &Actor,
        now: Timestamp,
    ) -> Result<Option<BreakGlass>, StoreError> {
        const CLOSE: &str = concat!(
            "UPDATE break_glass SET reason = COALESCE(reason || '; ', '') || $2, \
             detail = detail || $3, closed_at = $4 \
             WHERE id = $1 AND closed_at IS NULL RETURNING ",
            columns!()
        );
        let by = explained_by(by);
        let args = [id.0.into(), reason.into(), by.into(), now.into()];
        let rows = self.db.write_one(CLOSE, args).await?;
        rows.first().map(read).transpose()
    }

    /// Projects that had change sets here: their successful runs close records of their states.
    pub async fn break_glass_projects(&self) -> Result<BTreeSet<String>, StoreError> {
        let sql = "SELECT DISTINCT project FROM change_set WHERE project <> ''";
        let rows = self.db.fetch_all(sql, &[]).await?;
        rows.iter().map(|row| Ok(row.text(0)?.to_owned())).collect()
    }

    /// Of one state, newest last.
    pub async fn break_glass_list(&self, state: &StateName) -> Result<Vec<BreakGlass>, StoreError> {
        let sql = break_glass_sql!("WHERE project = $1 AND state = $2 ORDER BY id");
        let rows = self.db.fetch_all(sql, &name_args(state)).await?;
        rows.iter().map(read).collect()
    }

    /// Of all states of a project, newest last.
    pub async fn break_glass_list_of(&self, project: &str) -> Result<Vec<BreakGlass>, StoreError> {
        let sql = break_glass_sql!("WHERE project = $1 ORDER BY id");
        let rows = self.db.fetch_all(sql, &[project.into()]).await?;
        rows.iter().map(read).collect()
    }

    /// Of all states, newest last.
    pub async fn break_glass_list_open(&self) -> Result<Vec<BreakGlass>, StoreError> {
        let sql = break_glass_sql!("WHERE closed_at IS NULL ORDER BY id");
        let rows = self.db.fetch_all(sql, &[]).await?;
        rows.iter().map(read).collect()
    }
}

impl Tx {
    pub(crate) async fn break_glass_open(
        &mut self,
        new: &NewBreakGlass<'_>,
    ) -> Result<i64, StoreError> {
        const INSERT: &str = "INSERT INTO break_glass \
            (project, state, act, actor, reason, detail, at) \
            VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING id";
        let mut args: Vec<Value> = name_args(new.state).to_vec();
        args.extend([
            new.act.as_str().into(),
            new.actor.to_text().into(),
            new.reason.into(),
            new.detail.as_str().into(),
            Timestamp::now().into(),
        ]);
        let row = self.fetch_optional(INSERT, &args).await?;
        Ok(row.ok_or(StoreError::Interrupted)?.int(0)?)
    }
}

/// The actor is the person who acted; the detail names the person who added the reason later.
fn explained_by(person: &Actor) -> String {
    format!("; explained by `{person}`")
}

fn read(row: &Row) -> Result<BreakGlass, StoreError> {
    let act = row.text(1)?;
    let known = BreakGlassAction::ALL
        .into_iter()
        .find(|known| known.as_str() == act);
    Ok(BreakGlass {
        id: row.int(0)?,
        act: known.ok_or_else(|| StoreError::Row {
            found: act.to_owned(),
            expected: "a break-glass act",
        })?,
        state: StateName::new(row.text(2)?, row.text(3)?),
        actor: Actor::from_text(row.text(4)?),
        reason: row.opt_text(5)?.map(str::to_owned),
        detail: row.text(6)?.to_owned(),
        at: read_time(row.int(7)?)?,
        closed_at: row.opt_int(8)?.map(read_time).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestHome, network};

    #[tokio::test]
    async fn an_act_stays_open_with_its_reason() {
        let home = TestHome::new();
        let store = home.open().await;
        let state = network();
        let me = Actor::named("me");
        let act = |reason| NewBreakGlass {
            act: BreakGlassAction::LockBroken,
            state: &state,
            actor: &me,
            reason,
            detail: "lock `a`".to_owned(),
        };
        store.break_glass_open(&act(Some("it hung"))).await.unwrap();
        store.break_glass_open(&act(None)).await.unwrap();
        let open = store.break_glass_list_open().await.unwrap();
        assert_eq!(open, store.break_glass_list(&state).await.unwrap());
        let reasons: Vec<_> = open.iter().map(|one| one.reason.as_deref()).collect();
        assert_eq!(reasons, [Some("it hung"), None]);
    }

    #[tokio::test]
    async fn a_reason_is_given_once_and_a_record_closed_once() {
        let home = TestHome::new();
        let store = home.open().await;
        let state = network();
        let act = NewBreakGlass {
            act: BreakGlassAction::StateDeleted,
            state: &state,
            actor: &Actor::named("ci"),
            reason: None,
            detail: "version 3".to_owned(),
        };
        let id = BreakGlassId(store.break_glass_open(&act).await.unwrap());
        let explained = store
            .break_glass_explain(id, "moved", &Actor::named("ada"))
            .await
            .unwrap();
        let explained = explained.unwrap();
        assert_eq!(explained.reason.as_deref(), Some("moved"));
        assert_eq!(explained.detail, "version 3; explained by `ada`");
        assert_eq!(
            (explained.actor.name.as_str(), explained.closed_at),
            ("ci", None)
        );
        let again = store
            .break_glass_explain(id, "other", &Actor::named("eve"))
            .await
            .unwrap();
        assert_eq!(again, None);
        assert_eq!(store.break_glass_get(id).await.unwrap(), Some(explained));

        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let close = async || {
            let closed = store
                .break_glass_close(id, "it is gone", &Actor::named("eve"), now)
                .await;
            closed.unwrap()
        };
        let closed = close().await.unwrap();
        assert_eq!(closed.reason.as_deref(), Some("moved; it is gone"));
        assert_eq!(closed.closed_at, Some(now));
        assert_eq!(close().await, None);
        assert_eq!(store.break_glass_list_open().await.unwrap(), []);
        assert_eq!(store.break_glass_get(BreakGlassId(99)).await.unwrap(), None);
        assert_eq!(store.break_glass_projects().await.unwrap(), BTreeSet::new());
    }
}
