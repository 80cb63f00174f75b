//! Emergency acts and their reasons.

use jiff::Timestamp;
use model::break_glass::{Act, BreakGlass};
use model::state::StateName;

use crate::db::{Row, Tx, Value};
use crate::states::{name_args, read_time};
use crate::{Store, StoreError};

/// What is to be remembered.
#[derive(Clone, Debug)]
pub struct NewBreakGlass<'a> {
    pub act: Act,
    pub state: &'a StateName,
    pub actor: &'a str,
    /// Nothing if the client could not say one.
    pub reason: Option<&'a str>,
    pub detail: String,
}

macro_rules! break_glass_sql {
    ($rest:literal) => {
        concat!(
            "SELECT id, act, project, state, actor, reason, detail, at, closed_at \
             FROM break_glass ",
            $rest
        )
    };
}

impl Store {
    /// Opens a record by itself; an act that changes something opens it in its own transaction.
    pub async fn break_glass_open(&self, new: &NewBreakGlass<'_>) -> Result<i64, StoreError> {
        let mut tx = self.db.begin_write().await?;
        let id = tx.break_glass_open(new).await?;
        tx.commit().await?;
        Ok(id)
    }

    /// Takes a record back that was opened before its act, which then changed nothing.
    pub async fn break_glass_withdraw(&self, id: i64) -> Result<(), StoreError> {
        let sql = "DELETE FROM break_glass WHERE id = $1";
        self.db.write_one(sql, [id.into()]).await?;
        Ok(())
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
            new.actor.into(),
            new.reason.into(),
            new.detail.as_str().into(),
            Timestamp::now().into(),
        ]);
        let row = self.fetch_optional(INSERT, &args).await?;
        Ok(row.ok_or(StoreError::Interrupted)?.int(0)?)
    }
}

fn read(row: &Row) -> Result<BreakGlass, StoreError> {
    let act = row.text(1)?;
    let known = Act::ALL.into_iter().find(|known| known.as_str() == act);
    Ok(BreakGlass {
        id: row.int(0)?,
        act: known.ok_or_else(|| StoreError::Row {
            found: act.to_owned(),
            expected: "a break-glass act",
        })?,
        state: StateName::new(row.text(2)?, row.text(3)?),
        actor: row.text(4)?.to_owned(),
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
        let act = |reason| NewBreakGlass {
            act: Act::LockBroken,
            state: &state,
            actor: "me",
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
}
