//! Who agreed to which change set. A row is one person's yes; it is never changed.

use jiff::Timestamp;
use model::approval::Approval;
use model::changeset::ChangeSet;
use model::ids::{ChangeSetId, RunId};
use model::run::Run;

use crate::Store;
use crate::change_sets::{ChangeSetError, timestamp};
use crate::db::{Row, Tx};

macro_rules! approval_sql {
    () => {
        "SELECT change_set, run, person, role, verified, comment, at FROM approval
         WHERE change_set = $1 ORDER BY id"
    };
}

impl Store {
    pub async fn approval_insert(&self, new: &Approval) -> Result<(), ChangeSetError> {
        let mut tx = self.db.begin_write().await?;
        tx.execute(
            "INSERT INTO approval (change_set, run, person, role, verified, comment, at)
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
            &[
                new.change_set.into(),
                new.run.map(|run| run.0).into(),
                new.person.as_str().into(),
                new.role.as_deref().into(),
                i64::from(new.verified).into(),
                new.comment.as_deref().into(),
                new.at.as_microsecond().into(),
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

/// Those of a change set that needs any; most do not, and are not asked about.
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

fn read(row: &Row) -> Result<Approval, ChangeSetError> {
    let at: Timestamp = timestamp(row.int(6)?);
    Ok(Approval {
        change_set: ChangeSetId(row.int(0)?),
        run: row.opt_int(1)?.map(RunId),
        person: row.text(2)?.to_owned(),
        role: row.opt_text(3)?.map(str::to_owned),
        verified: row.int(4)? != 0,
        comment: row.opt_text(5)?.map(str::to_owned),
        at,
    })
}
