//! Approvals of change sets. A row is the approval of one person and never changes.

use jiff::Timestamp;
use model::base::actor::Actor;
use model::base::ids::{ChangeSetId, RunId};
use model::run::Run;
use model::run::approval::{Approval, shown};
use model::run::changeset::ChangeSet;

use crate::Store;
use crate::db::{Row, Tx};
use crate::run::records::{ChangeSetError, timestamp};
use crate::run::runs;

macro_rules! approval_sql {
    () => {
        "SELECT change_set, run, person, role, verified, comment, at FROM approval
         WHERE change_set = $1 ORDER BY id"
    };
}

impl Store {
    /// `seen` identifies the plans that the person reviewed. Fails if the plans have changed since.
    pub async fn approval_insert(
        &self,
        new: &Approval,
        seen: Option<&str>,
    ) -> Result<(), ChangeSetError> {
        let mut tx = self.db.begin_write().await?;
        let set = new.change_set;
        let lies_there = shown(&runs::list(&mut tx, set).await?, new.run);
        if let Some(seen) = seen
            && lies_there.as_ref().is_none_or(|shown| shown.mark != seen)
        {
            let seen = seen.to_owned();
            return Err(ChangeSetError::OtherPlans { set, seen });
        }
        // The approval is for the current plans, even if the clocks of two machines differ.
        let since = lies_there.and_then(|shown| shown.since);
        let at = since.map_or(new.at, |since| new.at.max(since));
        tx.execute(
            "INSERT INTO approval (change_set, run, person, role, verified, comment, at)
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
            &[
                new.change_set.into(),
                new.run.map(|run| run.0).into(),
                new.person.to_text().into(),
                new.role.as_deref().into(),
                i64::from(new.verified).into(),
                new.comment.as_deref().into(),
                at.as_microsecond().into(),
            ],
        )
        .await?;
        tx.commit().await?;
        Ok(())
    }

    pub async fn approval_list(&self, set: ChangeSetId) -> Result<Vec<Approval>, ChangeSetError> {
        let rows = self.db.fetch_all(approval_sql!(), &[set.into()]).await?;
        rows.iter().map(read).collect()
    }
}

/// The approvals of a change set. Most change sets need none; then the database is not queried.
pub(crate) async fn list(
    tx: &mut Tx,
    set: &ChangeSet,
    runs: &[Run],
) -> Result<Vec<Approval>, ChangeSetError> {
    let wants = |run: &Run| !run.state.wanted().is_empty();
    if set.request.approvals.is_empty() && !runs.iter().any(wants) {
        return Ok(Vec::new());
    }
    let rows = tx.fetch_all(approval_sql!(), &[set.id.into()]).await?;
    rows.iter().map(read).collect()
}

/// One microsecond after the last approval.
pub(crate) async fn last_at(tx: &mut Tx, set: ChangeSetId) -> Result<Timestamp, ChangeSetError> {
    let last = tx
        .fetch_optional(
            "SELECT at FROM approval WHERE change_set = $1 ORDER BY at DESC LIMIT 1",
            &[set.into()],
        )
        .await?;
    Ok(match last {
        Some(row) => timestamp(row.int(0)? + 1),
        None => Timestamp::MIN,
    })
}

fn read(row: &Row) -> Result<Approval, ChangeSetError> {
    let at: Timestamp = timestamp(row.int(6)?);
    Ok(Approval {
        change_set: ChangeSetId(row.int(0)?),
        run: row.opt_int(1)?.map(RunId),
        person: Actor::from_text(row.text(2)?),
        role: row.opt_text(3)?.map(str::to_owned),
        verified: row.int(4)? != 0,
        comment: row.opt_text(5)?.map(str::to_owned),
        at,
    })
}
