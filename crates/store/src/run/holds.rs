//! Holds: people's locks on stacks and lanes. They expire; a released one is kept as history.

use jiff::Timestamp;
use model::base::actor::Actor;
use model::run::hold::{Hold, HoldOn, Release};

use crate::Store;
use crate::db::{Row, Tx};
use crate::run::records::{ChangeSetError, expect_row, from_json, timestamp, to_json};

#[derive(Clone, Debug)]
pub struct NewHold<'a> {
    pub project: &'a str,
    pub on: &'a HoldOn,
    pub person: &'a Actor,
    pub reason: &'a str,
    pub since: Timestamp,
    pub until: Timestamp,
}

#[derive(Debug, thiserror::Error)]
pub enum ReleaseHoldError {
    #[error("there is no hold on it")]
    Missing,
    /// Nothing was released: the holds belong to others.
    #[error("only others hold it")]
    OfOthers(Vec<Hold>),
    #[error(transparent)]
    Store(#[from] ChangeSetError),
}

macro_rules! hold_sql {
    ($rest:literal) => {
        concat!(
            "SELECT id, held, person, reason, since, until, released_by, released_at FROM hold ",
            $rest
        )
    };
}

impl Store {
    pub async fn hold_insert(&self, new: &NewHold<'_>) -> Result<i64, ChangeSetError> {
        let mut tx = self.db.begin_write().await?;
        let row = tx
            .fetch_optional(
                "INSERT INTO hold (project, held, person, reason, since, until)
                 VALUES ($1, $2, $3, $4, $5, $6) RETURNING id",
                &[
                    new.project.into(),
                    to_json(new.on, "a hold")?.into(),
                    new.person.to_text().into(),
                    new.reason.into(),
                    new.since.as_microsecond().into(),
                    new.until.as_microsecond().into(),
                ],
            )
            .await?;
        let id = expect_row(row)?.int(0)?;
        tx.commit().await?;
        Ok(id)
    }

    /// Active holds, oldest first.
    pub async fn hold_list_active(
        &self,
        project: &str,
        now: Timestamp,
    ) -> Result<Vec<Hold>, ChangeSetError> {
        let rows = self
            .db
            .fetch_all(ACTIVE, &[project.into(), now.as_microsecond().into()])
            .await?;
        rows.iter().map(read).collect()
    }

    /// All holds, ended ones included, oldest first.
    pub async fn hold_list(&self, project: &str) -> Result<Vec<Hold>, ChangeSetError> {
        let sql = hold_sql!("WHERE project = $1 ORDER BY id");
        let rows = self.db.fetch_all(sql, &[project.into()]).await?;
        rows.iter().map(read).collect()
    }

    /// Releases one's own holds on one thing. Returns all that were active there: those that ended were released, the
    /// rest belong to others.
    pub async fn hold_release(
        &self,
        project: &str,
        on: &HoldOn,
        by: &Actor,
        now: Timestamp,
    ) -> Result<Vec<Hold>, ReleaseHoldError> {
        self.end_holds(project, on, by, now, false).await
    }

    /// Releases all holds on one thing, of any person, and returns them.
    pub async fn hold_release_all(
        &self,
        project: &str,
        on: &HoldOn,
        by: &Actor,
        now: Timestamp,
    ) -> Result<Vec<Hold>, ReleaseHoldError> {
        self.end_holds(project, on, by, now, true).await
    }

    async fn end_holds(
        &self,
        project: &str,
        on: &HoldOn,
        by: &Actor,
        now: Timestamp,
        all: bool,
    ) -> Result<Vec<Hold>, ReleaseHoldError> {
        let mut tx = self.db.begin_write().await.map_err(ChangeSetError::Db)?;
        let mut there = active(&mut tx, project, now).await?;
        there.retain(|hold| hold.on == *on);
        for hold in there
            .iter_mut()
            .filter(|it| all || it.person.name == by.name)
        {
            tx.execute(
                "UPDATE hold SET released_by = $2, released_at = $3 WHERE id = $1",
                &[
                    hold.id.into(),
                    by.to_text().into(),
                    now.as_microsecond().into(),
                ],
            )
            .await
            .map_err(ChangeSetError::Db)?;
            hold.released = Some(Release {
                by: by.clone(),
                at: now,
            });
        }
        tx.commit().await.map_err(ChangeSetError::Db)?;
        if there.is_empty() {
            return Err(ReleaseHoldError::Missing);
        }
        if there.iter().all(|hold| hold.released.is_none()) {
            return Err(ReleaseHoldError::OfOthers(there));
        }
        Ok(there)
    }
}

const ACTIVE: &str =
    hold_sql!("WHERE project = $1 AND released_at IS NULL AND until > $2 ORDER BY id");

pub(crate) async fn active(
    tx: &mut Tx,
    project: &str,
    now: Timestamp,
) -> Result<Vec<Hold>, ChangeSetError> {
    let rows = tx
        .fetch_all(ACTIVE, &[project.into(), now.as_microsecond().into()])
        .await?;
    rows.iter().map(read).collect()
}

fn read(row: &Row) -> Result<Hold, ChangeSetError> {
    let id = row.int(0)?;
    let released = row.opt_text(6)?.zip(row.opt_int(7)?);
    Ok(Hold {
        id,
        on: from_json(row.text(1)?, || format!("hold {id}"))?,
        person: Actor::from_text(row.text(2)?),
        reason: row.text(3)?.to_owned(),
        since: timestamp(row.int(4)?),
        until: timestamp(row.int(5)?),
        released: released.map(|(by, at)| Release {
            by: Actor::from_text(by),
            at: timestamp(at),
        }),
    })
}
