//! Change sets and their runs: inserted together, moved together.
//!
//! Not here: what may happen next (`model::changeset`, `model::run`), lanes (`lanes`).

use std::collections::BTreeSet;

use jiff::Timestamp;
use model::changeset::{ChangeSet, Request, Status, Step};
use model::ids::{ChangeSetId, RunId};
use model::run::{Run, RunEvent, RunSpec, RunState, Skip, Stage};

use crate::db::{DbError, Row, Tx, Value};
use crate::{Store, lanes, runs};

/// What a person said about a change set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Say {
    /// Apply what was planned.
    Confirm,
    /// Do not; nothing has been applied since the plans were made.
    Discard,
    /// Start nothing more.
    Interrupt,
}

/// What one look at a change set led to.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    pub set: ChangeSet,
    pub runs: Vec<Run>,
    /// Claimed by this turn: whoever took it starts a runner for each.
    pub starts: Vec<(RunId, Stage)>,
    /// While it waits for its lanes: behind which change set.
    pub behind: Option<ChangeSetId>,
    /// It gave its lanes up: whoever waits for them can go on.
    pub released: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ChangeSetError {
    #[error("there is no change set `{0}`")]
    Missing(ChangeSetId),
    #[error("change set `{id}` is {status}: it cannot be {deed} now")]
    Refused {
        id: ChangeSetId,
        status: String,
        deed: &'static str,
    },
    #[error("the record of {what} cannot be read")]
    Record {
        what: String,
        source: serde_json::Error,
    },
    #[error(transparent)]
    Run(#[from] model::run::Refusal),
    #[error(transparent)]
    Db(#[from] DbError),
}

impl Store {
    /// Everything of one request in one commit.
    pub async fn change_set_insert(
        &self,
        request: &Request,
        specs: &[RunSpec],
        now: Timestamp,
    ) -> Result<ChangeSetId, ChangeSetError> {
        let status = if request.auto_approve {
            Status::Waiting
        } else {
            Status::Planning
        };
        let at = Value::from(now.as_microsecond());
        let mut tx = self.db.begin_write().await?;
        let row = tx
            .fetch_optional(
                "INSERT INTO change_set (action, status, request, created_at, updated_at)
                 VALUES ($1, $2, $3, $4, $4) RETURNING id",
                &[
                    request.action.word().into(),
                    to_json(&status, "a change set")?.into(),
                    to_json(request, "a change set")?.into(),
                    at.clone(),
                ],
            )
            .await?;
        let id = ChangeSetId(expect_row(row)?.int(0)?);
        for spec in specs {
            tx.execute(
                "INSERT INTO run (change_set, stack, spec, upstreams, state, created_at, updated_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $6)",
                &[
                    id.into(),
                    spec.stack.name.as_str().into(),
                    to_json(spec, "a run")?.into(),
                    to_json(&spec.upstreams, "a run")?.into(),
                    to_json(&RunState::Queued, "a run")?.into(),
                    at.clone(),
                ],
            )
            .await?;
        }
        if status == Status::Waiting {
            lanes::queue(&mut tx, id, now).await?;
        }
        tx.commit().await?;
        Ok(id)
    }

    pub async fn change_set_get(&self, id: ChangeSetId) -> Result<ChangeSet, ChangeSetError> {
        let row = self.db.fetch_optional(SELECT_ONE, &[id.into()]).await?;
        read(&row.ok_or(ChangeSetError::Missing(id))?)
    }

    /// Those of a project that are not over, oldest first.
    pub async fn change_set_list_open(
        &self,
        project: &str,
    ) -> Result<Vec<ChangeSet>, ChangeSetError> {
        let rows = self
            .db
            .fetch_all(
                "SELECT id, status, request, created_at FROM change_set
                 WHERE status NOT LIKE '{\"status\":\"finished\"%'
                 AND status NOT LIKE '{\"status\":\"stopped\"%' ORDER BY id",
                &[],
            )
            .await?;
        let mut sets = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        sets.retain(|set| set.request.project == project && !set.status.is_over());
        Ok(sets)
    }

    /// Looks at a change set and commits everything that can happen now, in one transaction, together with
    /// what just happened to one of its runs. A run is claimed only if `claim` agrees (it takes the run's
    /// lock); two callers never start the same run.
    pub async fn change_set_turn(
        &self,
        id: ChangeSetId,
        say: Option<Say>,
        happened: Option<(RunId, RunEvent)>,
        now: Timestamp,
        claim: &mut (dyn FnMut(RunId) -> bool + Send),
    ) -> Result<Turn, ChangeSetError> {
        let mut tx = self.db.begin_write().await?;
        let row = tx.fetch_optional(SELECT_ONE, &[id.into()]).await?;
        let mut set = read(&row.ok_or(ChangeSetError::Missing(id))?)?;
        let mut members = runs::list(&mut tx, id).await?;
        let before = set.status.clone();
        if let Some((run, event)) = happened {
            runs::record(&mut tx, &mut members, run, event, now).await?;
        }
        if let Some(say) = say {
            hear(&mut tx, &mut set, &mut members, say, now).await?;
        }
        let mut behind = None;
        if set.status == Status::Waiting {
            behind = lanes::take(&mut tx, &set, now).await?;
            if behind.is_none() {
                set.status = Status::Confirmed;
            }
        }
        let mut starts = Vec::new();
        let mut refused = BTreeSet::new();
        loop {
            let steps = model::changeset::next(&set, &members);
            let mut moved = false;
            for step in steps {
                let (run, event, start) = match step {
                    Step::Become(status) => {
                        moved |= set.status != status;
                        set.status = status;
                        continue;
                    }
                    Step::Record(run, event) => (run, event, None),
                    Step::StartPlan(run) => (run, RunEvent::PlanStarted, Some(Stage::Planning)),
                    Step::StartPreview(run, on) => {
                        (run, RunEvent::PreviewStarted { on }, Some(Stage::Planning))
                    }
                    Step::StartApply(run) => (run, RunEvent::ApplyStarted, Some(Stage::Applying)),
                };
                if let Some(stage) = start {
                    if refused.contains(&run) || !claim(run) {
                        refused.insert(run);
                        continue;
                    }
                    starts.push((run, stage));
                }
                runs::record(&mut tx, &mut members, run, event, now).await?;
                moved = true;
            }
            if !moved {
                break;
            }
        }
        let mut released = false;
        if set.status != before {
            write_status(&mut tx, &set, now).await?;
            if !set.status.holds_lanes() {
                released = lanes::release(&mut tx, id).await?;
            }
        }
        tx.commit().await?;
        Ok(Turn {
            set,
            runs: members,
            starts,
            behind,
            released,
        })
    }

    /// Ends a change set that nobody drives any more and gives its lanes up.
    pub async fn change_set_stop(
        &self,
        id: ChangeSetId,
        why: &str,
        now: Timestamp,
    ) -> Result<(), ChangeSetError> {
        let mut tx = self.db.begin_write().await?;
        let row = tx.fetch_optional(SELECT_ONE, &[id.into()]).await?;
        let mut set = read(&row.ok_or(ChangeSetError::Missing(id))?)?;
        if !set.status.is_over() {
            let mut members = runs::list(&mut tx, id).await?;
            skip_open(&mut tx, &mut members, &Skip::Abandoned, now).await?;
            set.status = Status::Stopped {
                why: why.to_owned(),
            };
            write_status(&mut tx, &set, now).await?;
            lanes::release(&mut tx, id).await?;
        }
        tx.commit().await?;
        Ok(())
    }
}

const SELECT_ONE: &str = "SELECT id, status, request, created_at FROM change_set WHERE id = $1";

async fn hear(
    tx: &mut Tx,
    set: &mut ChangeSet,
    members: &mut [Run],
    say: Say,
    now: Timestamp,
) -> Result<(), ChangeSetError> {
    let refused = |deed| {
        let status = format!("{:?}", set.status).to_lowercase();
        ChangeSetError::Refused {
            id: set.id,
            status,
            deed,
        }
    };
    match (say, &set.status) {
        (Say::Confirm, Status::AwaitingConfirm) => {
            let planned: Vec<RunId> = members
                .iter()
                .filter(|run| matches!(run.state, RunState::Planned { .. }))
                .map(|run| run.id)
                .collect();
            for run in planned {
                runs::record(tx, members, run, RunEvent::Confirmed, now).await?;
            }
            set.status = Status::Waiting;
            lanes::queue(tx, set.id, now).await?;
        }
        (Say::Discard, Status::Planning | Status::AwaitingConfirm | Status::Waiting) => {
            skip_open(tx, members, &Skip::NotConfirmed, now).await?;
            set.status = Status::Stopped {
                why: "not confirmed".to_owned(),
            };
        }
        (Say::Interrupt, status) if !status.is_over() => set.status = Status::Interrupting,
        (Say::Interrupt, _) => {}
        (Say::Confirm, _) => return Err(refused("confirmed")),
        (Say::Discard, _) => return Err(refused("discarded")),
    }
    Ok(())
}

/// What has not begun does not begin any more.
async fn skip_open(
    tx: &mut Tx,
    members: &mut [Run],
    because: &Skip,
    now: Timestamp,
) -> Result<(), ChangeSetError> {
    let open: Vec<RunId> = members
        .iter()
        .filter(|run| !run.state.is_finished() && !run.state.is_running())
        .map(|run| run.id)
        .collect();
    for run in open {
        let because = because.clone();
        runs::record(tx, members, run, RunEvent::Skipped { because }, now).await?;
    }
    Ok(())
}

async fn write_status(tx: &mut Tx, set: &ChangeSet, now: Timestamp) -> Result<(), ChangeSetError> {
    tx.execute(
        "UPDATE change_set SET status = $2, updated_at = $3 WHERE id = $1",
        &[
            set.id.into(),
            to_json(&set.status, "a change set")?.into(),
            now.as_microsecond().into(),
        ],
    )
    .await?;
    Ok(())
}

pub(crate) fn read(row: &Row) -> Result<ChangeSet, ChangeSetError> {
    let id = ChangeSetId(row.int(0)?);
    Ok(ChangeSet {
        id,
        status: from_json(row.text(1)?, || format!("change set `{id}`"))?,
        request: from_json(row.text(2)?, || format!("change set `{id}`"))?,
        created_at: timestamp(row.int(3)?),
    })
}

pub(crate) fn to_json<T: serde::Serialize>(
    value: &T,
    what: &str,
) -> Result<String, ChangeSetError> {
    serde_json::to_string(value).map_err(|source| ChangeSetError::Record {
        what: what.to_owned(),
        source,
    })
}

pub(crate) fn from_json<T: serde::de::DeserializeOwned>(
    text: &str,
    what: impl FnOnce() -> String,
) -> Result<T, ChangeSetError> {
    serde_json::from_str(text).map_err(|source| ChangeSetError::Record {
        what: what(),
        source,
    })
}

pub(crate) fn timestamp(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(Timestamp::UNIX_EPOCH)
}

pub(crate) fn expect_row(row: Option<Row>) -> Result<Row, DbError> {
    row.ok_or(DbError::Column {
        column: 0,
        expected: "a row",
    })
}
