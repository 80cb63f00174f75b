//! Change sets and their runs: inserted and updated together.
//!
//! Not here: what may happen next (`model::run::changeset`, `model::run`), lanes (`lanes`).

use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use model::base::actor::Actor;
use model::base::ids::{ChangeSetId, RunId};
use model::run::changeset::{
    ChangeSet, LaneBlocker, Request, SetEvent, Status, advance, superseded,
};
use model::run::{Run, RunEvent, RunSpec, Stage};

use crate::Store;
use crate::db::{Row, Tx};
use crate::run::lanes;
use crate::run::records::{ChangeSetError, expect_row, from_json, timestamp, to_json};
use crate::run::runs;

mod dependents;
mod reopen;
mod step;

/// The result of one step of a change set.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangeSetStep {
    pub set: ChangeSet,
    pub runs: Vec<Run>,
    /// Runs claimed by this step. The caller starts a runner for each.
    pub starts: Vec<(RunId, Stage)>,
    /// What blocks its lanes, while it waits for them.
    pub front: Option<LaneBlocker>,
    /// Whether it released its lanes, so that the next change set in the queue can continue.
    pub released: bool,
}

/// An event of a run, as its runner reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportedEvent {
    pub run: RunId,
    pub event: RunEvent,
    /// Set if the run was planned with other values than those of the request.
    pub brought: Option<ValueOverride>,
}

/// Values that a person provided with a confirmation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueOverride {
    /// Keyed digest.
    pub values: Option<String>,
    pub by: Actor,
}

macro_rules! change_set_sql {
    ($rest:literal) => {
        concat!(
            "SELECT id, status, request, created_at FROM change_set ",
            $rest
        )
    };
}

impl Store {
    /// Stores a request with its runs in one commit. A change set that was confirmed beforehand is queued at
    /// once, unless it requires approvals.
    pub async fn change_set_insert(
        &self,
        request: &Request,
        specs: &[RunSpec],
        now: Timestamp,
    ) -> Result<ChangeSetId, ChangeSetError> {
        let mut tx = self.db.begin_write().await?;
        let id = insert(&mut tx, request, specs, now).await?;
        tx.commit().await?;
        Ok(id)
    }

    pub async fn change_set_get(&self, id: ChangeSetId) -> Result<ChangeSet, ChangeSetError> {
        let row = self
            .db
            .fetch_optional(change_set_sql!("WHERE id = $1"), &[id.into()])
            .await?;
        let row = row.ok_or(ChangeSetError::Missing(id))?;
        self.known_request.read(&row)
    }

    /// The open change sets of a project, oldest first.
    pub async fn change_set_list_open(
        &self,
        project: &str,
    ) -> Result<Vec<ChangeSet>, ChangeSetError> {
        let rows = self.db.fetch_all(SELECT_OPEN, &[project.into()]).await?;
        rows.iter().map(read).collect()
    }

    /// The newest change sets of a project, newest first.
    pub async fn change_set_list_newest(
        &self,
        project: &str,
        limit: i64,
    ) -> Result<Vec<ChangeSet>, ChangeSetError> {
        let sql = change_set_sql!("WHERE project = $1 ORDER BY id DESC LIMIT $2");
        let rows = self
            .db
            .fetch_all(sql, &[project.into(), limit.into()])
            .await?;
        rows.iter().map(read).collect()
    }

    /// The events of a change set, oldest first.
    pub async fn change_set_events(
        &self,
        id: ChangeSetId,
    ) -> Result<Vec<(Timestamp, SetEvent)>, ChangeSetError> {
        let sql = "SELECT at, body FROM change_set_event WHERE change_set = $1 ORDER BY seq";
        let rows = self.db.fetch_all(sql, &[id.into()]).await?;
        rows.iter()
            .map(|row| {
                let event = from_json(row.text(1)?, || format!("an event of `{id}`"))?;
                Ok((timestamp(row.int(0)?), event))
            })
            .collect()
    }
}

/// Stores a request with its runs. It may supersede older change sets.
pub(crate) async fn insert(
    tx: &mut Tx,
    request: &Request,
    specs: &[RunSpec],
    now: Timestamp,
) -> Result<ChangeSetId, ChangeSetError> {
    let row = tx
        .fetch_optional(
            "INSERT INTO change_set
             (action, status, request, project, created_at, updated_at)
             VALUES ($1, $2, $3, $4, $5, $5) RETURNING id",
            &[
                request.action.word().into(),
                to_json(&Status::Planning, "a change set")?.into(),
                to_json(request, "a change set")?.into(),
                request.project.as_str().into(),
                now.as_microsecond().into(),
            ],
        )
        .await?;
    let mut set = ChangeSet {
        id: ChangeSetId(expect_row(row)?.int(0)?),
        request: request.clone(),
        status: Status::Planning,
        created_at: now,
    };
    for spec in specs {
        runs::insert(tx, set.id, spec, now).await?;
    }
    let confirmed = request.auto_approve && request.approvals.is_empty();
    record(tx, &mut set, SetEvent::Requested { confirmed }, now).await?;
    supersede_older(tx, &set, now).await?;
    Ok(set.id)
}

/// Stores an event of a change set together with the new status. A change set that stops releases its lanes;
/// a confirmed one is queued. Returns whether it released lanes or its place in the queue.
async fn record(
    tx: &mut Tx,
    set: &mut ChangeSet,
    event: SetEvent,
    now: Timestamp,
) -> Result<bool, ChangeSetError> {
    let before = set.status.clone();
    set.status = advance(&before, &event)?;
    tx.execute(
        "INSERT INTO change_set_event (change_set, seq, at, body) VALUES ($1,
         (SELECT COALESCE(MAX(seq), 0) + 1 FROM change_set_event WHERE change_set = $1), $2, $3)",
        &[
            set.id.into(),
            now.as_microsecond().into(),
            to_json(&event, "an event")?.into(),
        ],
    )
    .await?;
    if set.status == before {
        return Ok(false);
    }
    tx.execute(
        "UPDATE change_set SET status = $2, is_over = $3, updated_at = $4 WHERE id = $1",
        &[
            set.id.into(),
            to_json(&set.status, "a change set")?.into(),
            i64::from(set.status.is_over()).into(),
            now.as_microsecond().into(),
        ],
    )
    .await?;
    if set.status == Status::Waiting {
        lanes::queue(tx, set.id, now).await?;
        return Ok(false);
    }
    if set.status.holds_lanes() {
        return Ok(false);
    }
    Ok(lanes::release(tx, set.id).await?)
}

async fn supersede_older(
    tx: &mut Tx,
    new: &ChangeSet,
    now: Timestamp,
) -> Result<(), ChangeSetError> {
    let mut open = list_open(tx, &new.request.project).await?;
    for id in superseded(new, &open) {
        let Some(set) = open.iter_mut().find(|set| set.id == id) else {
            continue;
        };
        let mut members = runs::list(tx, id).await?;
        step::skip_open(tx, &mut members, now).await?;
        record(tx, set, SetEvent::Superseded { by: new.id }, now).await?;
    }
    Ok(())
}

async fn list_open(tx: &mut Tx, project: &str) -> Result<Vec<ChangeSet>, ChangeSetError> {
    let rows = tx.fetch_all(SELECT_OPEN, &[project.into()]).await?;
    rows.iter().map(read).collect()
}

const SELECT_OPEN: &str = change_set_sql!("WHERE is_over = 0 AND project = $1 ORDER BY id");

pub(crate) async fn get(tx: &mut Tx, id: ChangeSetId) -> Result<ChangeSet, ChangeSetError> {
    read(&row(tx, id).await?)
}

async fn row(tx: &mut Tx, id: ChangeSetId) -> Result<Row, ChangeSetError> {
    let row = tx
        .fetch_optional(change_set_sql!("WHERE id = $1"), &[id.into()])
        .await?;
    row.ok_or(ChangeSetError::Missing(id))
}

pub(crate) fn read(row: &Row) -> Result<ChangeSet, ChangeSetError> {
    let what = || format!("change set `{}`", row.int(0).unwrap_or_default());
    read_with(row, from_json(row.text(2)?, what)?)
}

fn read_with(row: &Row, request: Request) -> Result<ChangeSet, ChangeSetError> {
    let id = ChangeSetId(row.int(0)?);
    Ok(ChangeSet {
        id,
        status: from_json(row.text(1)?, || format!("change set `{id}`"))?,
        request,
        created_at: timestamp(row.int(3)?),
    })
}

/// A cache of the request that was read last. Clients and runners read the request of their change set at
/// every step, and it rarely changes.
#[derive(Debug, Default)]
pub(crate) struct KnownRequest(Mutex<Option<(String, Request)>>);

impl KnownRequest {
    pub(crate) fn read(&self, row: &Row) -> Result<ChangeSet, ChangeSetError> {
        let text = row.text(2)?;
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, request)) = &*known
            && of == text
        {
            return read_with(row, request.clone());
        }
        let set = read(row)?;
        *known = Some((text.to_owned(), set.request.clone()));
        Ok(set)
    }
}

#[cfg(test)]
mod tests;
