//! Runs: their state, their events, and the data for their runner.
//!
//! Not here: what an event does to a run (`model::run::advance`).

use std::collections::BTreeSet;

use jiff::Timestamp;
use model::base::ids::{ChangeSetId, RunId, StackName};
use model::run::changeset::{ChangeSet, Request};
use model::run::{Outcome, Run, RunEvent, RunSpec, RunState, advance};
use serde::Deserialize;

use crate::Store;
use crate::db::{Row, Tx};
use crate::run::records::{ChangeSetError, expect_row, from_json, timestamp, to_json};

mod cache;

pub(crate) use cache::KnownRuns;

/// SQL that gives a changed run the next revision of its change set.
macro_rules! next_revision {
    () => {
        "revision = (SELECT MAX(other.revision) + 1 FROM run AS other \
         WHERE other.change_set = run.change_set)"
    };
}

/// The last successful run of a stack.
#[derive(Clone, Debug)]
pub struct SettledRun {
    pub run: RunId,
    pub spec: RunSpec,
    /// Keyed digest of the values that it consumed from other stacks.
    pub consumed: Option<String>,
    /// The serial of the state after the run, if terrane stores the state.
    pub serial: Option<i64>,
}

/// The part of a [`SettledRun`] that dependents need.
#[derive(Clone, Debug)]
pub struct SettledOutputs {
    pub outputs: BTreeSet<String>,
    /// The serial of the state after the run, if terrane stores the state.
    pub serial: Option<i64>,
    pub at: Timestamp,
}

/// A run with its change set, specification and state.
#[derive(Clone, Debug)]
pub struct RunSummary {
    pub set: ChangeSet,
    pub spec: RunSpec,
    pub state: RunState,
}

impl Store {
    pub async fn run_get(&self, id: RunId) -> Result<Option<Run>, ChangeSetError> {
        let row = self
            .db
            .fetch_optional(
                "SELECT id, change_set, stack, state, upstreams, settled, stages FROM run WHERE id = $1",
                &[id.into()],
            )
            .await?;
        row.as_ref().map(read).transpose()
    }

    pub async fn run_spec(&self, id: RunId) -> Result<RunSpec, ChangeSetError> {
        let row = self.db.fetch_optional(SPEC, &[id.into()]).await?;
        from_json(expect_row(row)?.text(0)?, || format!("run `{id}`"))
    }

    /// The newest 100 runs of a stack, newest first.
    pub async fn run_list_of_stack(&self, stack: &StackName) -> Result<Vec<RunId>, ChangeSetError> {
        let sql = "SELECT id FROM run WHERE stack = $1 ORDER BY id DESC LIMIT 100";
        let rows = self.db.fetch_all(sql, &[stack.as_str().into()]).await?;
        rows.iter().map(|row| Ok(RunId(row.int(0)?))).collect()
    }

    /// The last run after which the stack matched its source.
    pub async fn run_last_settled(
        &self,
        project: &str,
        stack: &StackName,
    ) -> Result<Option<SettledRun>, ChangeSetError> {
        let args = [project.into(), stack.as_str().into()];
        let Some(row) = self.db.fetch_optional(LAST_SETTLED, &args).await? else {
            return Ok(None);
        };
        let id = RunId(row.int(0)?);
        Ok(Some(SettledRun {
            run: id,
            spec: from_json(row.text(1)?, || format!("run `{id}`"))?,
            consumed: row.opt_text(2)?.map(str::to_owned),
            serial: row.opt_int(3)?,
        }))
    }

    /// The outputs that the stack declared in that run, and the resulting state. Every dependent reads these,
    /// and none needs the rest of the run's specification.
    pub async fn run_settled_outputs(
        &self,
        project: &str,
        stack: &StackName,
    ) -> Result<Option<SettledOutputs>, ChangeSetError> {
        #[derive(Deserialize)]
        struct Declared {
            #[serde(default)]
            outputs: BTreeSet<String>,
        }
        let args = [project.into(), stack.as_str().into()];
        let Some(row) = self.db.fetch_optional(LAST_SETTLED, &args).await? else {
            return Ok(None);
        };
        let run = RunId(row.int(0)?);
        let declared: Declared = from_json(row.text(1)?, || format!("run `{run}`"))?;
        Ok(Some(SettledOutputs {
            outputs: declared.outputs,
            serial: row.opt_int(3)?,
            at: timestamp(row.int(4)?),
        }))
    }

    /// The run that last applied a stack, or found nothing to change, whatever the result of its later
    /// stages.
    pub async fn run_last_applied(
        &self,
        project: &str,
        stack: &StackName,
    ) -> Result<Option<Run>, ChangeSetError> {
        let row = self
            .db
            .fetch_optional(
                "SELECT r.id, r.change_set, r.stack, r.state, r.upstreams, r.settled, r.stages
                 FROM run AS r JOIN change_set AS c ON c.id = r.change_set
                 WHERE c.project = $1 AND r.stack = $2 AND c.action IN ('apply', 'destroy')
                 AND (r.state LIKE '{\"stage\":\"applied\"%' OR r.state LIKE '{\"stage\":\"completing\"%'
                 OR r.state LIKE '{\"stage\":\"finished\",\"outcome\":{\"kind\":\"applied\"%'
                 OR r.state LIKE '{\"stage\":\"finished\",\"outcome\":{\"kind\":\"unchanged\"%'
                 OR r.state LIKE '{\"stage\":\"finished\",\"outcome\":{\"kind\":\"untouched\"%'
                 OR r.state LIKE '{\"stage\":\"finished\",\"outcome\":{\"kind\":\"not_done\"%')
                 ORDER BY r.updated_at DESC, r.id DESC LIMIT 1",
                &[project.into(), stack.as_str().into()],
            )
            .await?;
        row.as_ref().map(read).transpose()
    }

    /// The run that last started to apply a stack, or to run its post-apply hooks.
    pub async fn run_last_begun(
        &self,
        project: &str,
        stack: &StackName,
    ) -> Result<Option<RunId>, ChangeSetError> {
        let row = self
            .db
            .fetch_optional(
                "SELECT e.run FROM run_event AS e JOIN run AS r ON r.id = e.run
                 JOIN change_set AS c ON c.id = r.change_set
                 WHERE c.project = $1 AND r.stack = $2 AND c.action IN ('apply', 'destroy')
                 AND (e.body LIKE '{\"event\":\"apply_started\"%'
                 OR e.body LIKE '{\"event\":\"stage_started\",\"part\":\"applying\"%')
                 ORDER BY e.at DESC, e.run DESC LIMIT 1",
                &[project.into(), stack.as_str().into()],
            )
            .await?;
        row.map(|row| Ok(RunId(row.int(0)?))).transpose()
    }

    /// The stacks of a project with a run that was applied or destroyed but not completed. A later run may
    /// have completed it.
    pub async fn run_list_not_done(&self, project: &str) -> Result<Vec<StackName>, ChangeSetError> {
        let rows = self
            .db
            .fetch_all(
                "SELECT DISTINCT r.stack FROM run AS r JOIN change_set AS c ON c.id = r.change_set
                 WHERE c.project = $1 AND c.action IN ('apply', 'destroy')
                 AND r.state LIKE '{\"stage\":\"finished\",\"outcome\":{\"kind\":\"not_done\"%'
                 ORDER BY r.stack",
                &[project.into()],
            )
            .await?;
        let names = rows.iter().map(|row| Ok(row.text(0)?.parse().ok()));
        let names = names.collect::<Result<Vec<Option<StackName>>, ChangeSetError>>()?;
        Ok(names.into_iter().flatten().collect())
    }

    /// Recent runs of a project whose engine left resources that no state records, and whose stack was not
    /// applied since. Includes runs that were reopened and have no new result yet.
    pub async fn run_list_unrecorded(&self, project: &str) -> Result<Vec<Run>, ChangeSetError> {
        let rows = self
            .db
            .fetch_all(
                "SELECT r.id, c.request FROM run_left AS l JOIN run AS r ON r.id = l.run
                 JOIN change_set AS c ON c.id = r.change_set
                 WHERE r.id > (SELECT MAX(id) FROM run) - 1000 AND (r.state LIKE '%\"left\":{%'
                 OR r.state NOT LIKE '{\"stage\":\"finished\"%'
                 OR r.state LIKE '{\"stage\":\"finished\",\"outcome\":{\"kind\":\"skipped\"%')
                 AND NOT EXISTS (SELECT 1 FROM run AS later
                 WHERE later.stack = r.stack AND later.id > r.id AND later.state
                 LIKE '{\"stage\":\"finished\",\"outcome\":{\"kind\":\"applied\"%')
                 ORDER BY r.id",
                &[],
            )
            .await?;
        let mut runs = Vec::new();
        for row in &rows {
            let request: Request = from_json(row.text(1)?, || "a change set".to_owned())?;
            if request.project == project {
                runs.extend(self.run_get(RunId(row.int(0)?)).await?);
            }
        }
        Ok(runs)
    }

    /// The newest run of a stack.
    pub async fn run_newest(
        &self,
        project: &str,
        stack: &str,
    ) -> Result<Option<Run>, ChangeSetError> {
        // Several projects may share a home and have stacks with the same name.
        let rows = self
            .db
            .fetch_all(
                "SELECT r.id, c.request
                 FROM run AS r JOIN change_set AS c ON c.id = r.change_set
                 WHERE r.stack = $1 ORDER BY r.id DESC LIMIT 100",
                &[stack.into()],
            )
            .await?;
        for row in &rows {
            let request: Request = from_json(row.text(1)?, || "a change set".to_owned())?;
            if request.project == project {
                return self.run_get(RunId(row.int(0)?)).await;
            }
        }
        Ok(None)
    }

    /// The events of a run, oldest first.
    pub async fn run_events(
        &self,
        id: RunId,
    ) -> Result<Vec<(Timestamp, RunEvent)>, ChangeSetError> {
        let rows = self
            .db
            .fetch_all(
                "SELECT at, body FROM run_event WHERE run = $1 ORDER BY seq",
                &[id.into()],
            )
            .await?;
        rows.iter()
            .map(|row| {
                let event = from_json(row.text(1)?, || format!("an event of run `{id}`"))?;
                Ok((timestamp(row.int(0)?), event))
            })
            .collect()
    }

    /// Everything that a runner needs to start.
    pub async fn run_summary(&self, id: RunId) -> Result<RunSummary, ChangeSetError> {
        let row = self
            .db
            .fetch_optional(
                "SELECT c.id, c.status, c.request, c.created_at, r.spec, r.state
                 FROM run AS r JOIN change_set AS c ON c.id = r.change_set WHERE r.id = $1",
                &[id.into()],
            )
            .await?;
        let row = expect_row(row)?;
        let what = || format!("run `{id}`");
        Ok(RunSummary {
            set: self.known_request.read(&row)?,
            spec: from_json(row.text(4)?, what)?,
            state: from_json(row.text(5)?, what)?,
        })
    }

    /// Commits an event of a run together with the new state.
    pub async fn run_record(
        &self,
        id: RunId,
        event: RunEvent,
        now: Timestamp,
    ) -> Result<Run, ChangeSetError> {
        let mut tx = self.db.begin_write().await?;
        let row = tx
            .fetch_optional(
                "SELECT id, change_set, stack, state, upstreams, settled, stages FROM run WHERE id = $1",
                &[id.into()],
            )
            .await?;
        let mut runs = vec![read(&expect_row(row)?)?];
        record(&mut tx, &mut runs, id, event, now).await?;
        tx.commit().await?;
        Ok(runs.remove(0))
    }
}

const SPEC: &str = "SELECT spec FROM run WHERE id = $1";

const LAST_SETTLED: &str =
    "SELECT r.id, r.spec, s.consumed, s.serial, r.updated_at FROM stack_settled s
    JOIN run r ON r.id = s.run WHERE s.project = $1 AND s.stack = $2";

const SELECT_OF_SET: &str = "SELECT id, change_set, stack, state, upstreams, settled, stages FROM run WHERE change_set = $1 ORDER BY id";

pub(crate) async fn list(tx: &mut Tx, set: ChangeSetId) -> Result<Vec<Run>, ChangeSetError> {
    tx.fetch_all(SELECT_OF_SET, &[set.into()])
        .await?
        .iter()
        .map(read)
        .collect()
}

pub(crate) async fn record(
    tx: &mut Tx,
    runs: &mut [Run],
    id: RunId,
    event: RunEvent,
    now: Timestamp,
) -> Result<(), ChangeSetError> {
    let Some(run) = runs.iter_mut().find(|run| run.id == id) else {
        return Ok(());
    };
    let body = to_json(&event, "an event")?;
    let before = run.state.clone();
    run.state = advance(&before, event.clone(), now)?;
    let at = now.as_microsecond();
    tx.execute(
        "INSERT INTO run_event (run, seq, at, body)
         VALUES ($1, (SELECT COALESCE(MAX(seq), 0) + 1 FROM run_event WHERE run = $1), $2, $3)",
        &[id.into(), at.into(), body.into()],
    )
    .await?;
    tx.execute(
        concat!(
            "UPDATE run SET state = $2, updated_at = $3, ",
            next_revision!(),
            " WHERE id = $1"
        ),
        &[id.into(), to_json(&run.state, "a run")?.into(), at.into()],
    )
    .await?;
    if event.left().is_some() {
        let sql = "INSERT INTO run_left (run) VALUES ($1) ON CONFLICT DO NOTHING";
        tx.execute(sql, &[id.into()]).await?;
    }
    let is_done = matches!(
        &run.state,
        RunState::Finished {
            outcome: Outcome::Applied { .. } | Outcome::Unchanged | Outcome::Untouched,
            ..
        }
    );
    if is_done {
        close_exceptions(tx, id, now).await?;
    }
    match (&before, &event) {
        (
            _,
            RunEvent::NothingToChange {
                consumed: Some(consumed),
                serial,
                ..
            },
        ) => settle(tx, id, consumed, *serial, now).await,
        (_, RunEvent::NothingToChange { consumed: None, .. }) => {
            close_by_hand(tx, id, "destroy", now).await
        }
        (RunState::Applying { plan, .. }, RunEvent::ApplyFinished { serial, .. }) => {
            if let Some(consumed) = &plan.consumed {
                return settle(tx, id, consumed, *serial, now).await;
            }
            unsettle(tx, id).await?;
            // A destroyed stack needs no apply to close its records.
            close_by_hand(tx, id, "destroy", now).await
        }
        _ => Ok(()),
    }
}

/// Records that the stack matches its source, and closes its break-glass records, unless the run overrides
/// policies.
async fn settle(
    tx: &mut Tx,
    run: RunId,
    consumed: &str,
    serial: Option<i64>,
    now: Timestamp,
) -> Result<(), ChangeSetError> {
    tx.execute(
        "INSERT INTO stack_settled (project, stack, run, consumed, serial)
         SELECT c.project, r.stack, r.id, $2, $3
         FROM run r JOIN change_set c ON c.id = r.change_set WHERE r.id = $1
         ON CONFLICT (project, stack) DO UPDATE
         SET run = excluded.run, consumed = excluded.consumed, serial = excluded.serial",
        &[run.into(), consumed.into(), serial.into()],
    )
    .await?;
    close_by_hand(tx, run, "apply", now).await
}

/// Closes the break-glass records of a run's state if its change set has this action and overrides no
/// policies.
async fn close_by_hand(
    tx: &mut Tx,
    run: RunId,
    action: &str,
    now: Timestamp,
) -> Result<(), ChangeSetError> {
    tx.execute(
        "UPDATE break_glass SET closed_at = $2 WHERE closed_at IS NULL AND reason IS NOT NULL
         AND EXISTS (SELECT 1 FROM run r JOIN change_set c ON c.id = r.change_set
                     WHERE r.id = $1 AND c.action = $3 AND c.project = break_glass.project
                     AND r.state_name = break_glass.state
                     AND break_glass.act NOT IN ('gate_skipped', 'reinstalled')
                     AND c.request NOT LIKE '%\"policy_override\":\"%')",
        &[run.into(), now.as_microsecond().into(), action.into()],
    )
    .await?;
    Ok(())
}

/// Closes the records of skipped gates and reinstalls after a complete run without exceptions.
async fn close_exceptions(tx: &mut Tx, run: RunId, now: Timestamp) -> Result<(), ChangeSetError> {
    tx.execute(
        "UPDATE break_glass SET closed_at = $2 WHERE closed_at IS NULL AND reason IS NOT NULL
         AND act IN ('gate_skipped', 'reinstalled')
         AND EXISTS (SELECT 1 FROM run r JOIN change_set c ON c.id = r.change_set
                     WHERE r.id = $1 AND c.action IN ('apply', 'destroy') AND c.project = break_glass.project
                     AND r.state_name = break_glass.state
                     AND c.request NOT LIKE '%\"exceptions\":{%')",
        &[run.into(), now.as_microsecond().into()],
    )
    .await?;
    Ok(())
}

/// Checks again, when a change set takes its lanes, which runs are settled: if a run of another change set
/// (not a plan) was updated since the request, every stack is planned.
pub(crate) async fn recheck_settled(
    tx: &mut Tx,
    set: &ChangeSet,
    runs: &mut [Run],
) -> Result<(), ChangeSetError> {
    if !runs.iter().any(|run| run.is_settled) {
        return Ok(());
    }
    let moved = tx
        .fetch_optional(
            "SELECT r.id FROM run r JOIN change_set c ON c.id = r.change_set
             WHERE c.project = $1 AND c.id <> $2 AND c.action <> 'plan' AND r.updated_at >= $3
             LIMIT 1",
            &[
                set.request.project.as_str().into(),
                set.id.into(),
                set.created_at.as_microsecond().into(),
            ],
        )
        .await?;
    if moved.is_some() {
        tx.execute(
            concat!(
                "UPDATE run SET settled = 0, ",
                next_revision!(),
                " WHERE change_set = $1"
            ),
            &[set.id.into()],
        )
        .await?;
        for run in runs {
            run.is_settled = false;
        }
    }
    Ok(())
}

/// Records that a stack may no longer match its source: it was destroyed, only refreshed, or changed by an
/// engine command. Except after a destroy, the row stays, because the stack may still have its outputs.
async fn unsettle(tx: &mut Tx, run: RunId) -> Result<(), ChangeSetError> {
    tx.execute(
        "DELETE FROM stack_settled WHERE EXISTS
         (SELECT 1 FROM run r JOIN change_set c ON c.id = r.change_set
          WHERE r.id = $1 AND c.project = stack_settled.project AND r.stack = stack_settled.stack
          AND c.action = 'destroy')",
        &[run.into()],
    )
    .await?;
    tx.execute(
        "UPDATE stack_settled SET consumed = NULL WHERE EXISTS
         (SELECT 1 FROM run r JOIN change_set c ON c.id = r.change_set
          WHERE r.id = $1 AND c.project = stack_settled.project AND r.stack = stack_settled.stack)",
        &[run.into()],
    )
    .await?;
    Ok(())
}

pub(crate) async fn insert(
    tx: &mut Tx,
    set: ChangeSetId,
    spec: &RunSpec,
    now: Timestamp,
) -> Result<(), ChangeSetError> {
    tx.execute(
        "INSERT INTO run
         (change_set, stack, spec, upstreams, state, settled, state_name, created_at, updated_at,
          stages)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, $9)",
        &[
            set.into(),
            spec.stack.name.as_str().into(),
            to_json(spec, "a run")?.into(),
            to_json(&spec.upstreams, "a run")?.into(),
            to_json(&RunState::Queued, "a run")?.into(),
            i64::from(spec.settled).into(),
            spec.stack.state.as_str().into(),
            now.as_microsecond().into(),
            to_json(&spec.stages_after(), "a run")?.into(),
        ],
    )
    .await?;
    Ok(())
}

pub(crate) async fn spec(tx: &mut Tx, id: RunId) -> Result<RunSpec, ChangeSetError> {
    let row = tx.fetch_optional(SPEC, &[id.into()]).await?;
    from_json(expect_row(row)?.text(0)?, || format!("run `{id}`"))
}

/// Updates the specification of a run to the current project.
pub(crate) async fn renew(tx: &mut Tx, id: RunId, spec: &RunSpec) -> Result<(), ChangeSetError> {
    tx.execute(
        concat!(
            "UPDATE run SET spec = $2, upstreams = $3, settled = 0, state_name = $4, stages = $5, ",
            next_revision!(),
            " WHERE id = $1"
        ),
        &[
            id.into(),
            to_json(spec, "a run")?.into(),
            to_json(&spec.upstreams, "a run")?.into(),
            spec.stack.state.as_str().into(),
            to_json(&spec.stages_after(), "a run")?.into(),
        ],
    )
    .await?;
    Ok(())
}

fn read(row: &Row) -> Result<Run, ChangeSetError> {
    let id = RunId(row.int(0)?);
    let what = || format!("run `{id}`");
    Ok(Run {
        id,
        change_set: ChangeSetId(row.int(1)?),
        stack: serde_json::from_value(row.text(2)?.into()).map_err(|source| {
            ChangeSetError::Record {
                what: what(),
                source,
            }
        })?,
        state: from_json(row.text(3)?, what)?,
        upstreams: from_json(row.text(4)?, what)?,
        is_settled: row.int(5)? != 0,
        stages: from_json(row.text(6)?, what)?,
    })
}
