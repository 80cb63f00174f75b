//! The runs of the change set that was asked for last, as they were committed: who carries one out looks at all of its
//! runs at every turn, and one or two have changed since the turn before.
//!
//! Every change of what `read` reads moves a run's `revision`; only what moved is read again.

use std::sync::{Mutex, MutexGuard, PoisonError};

use model::ids::ChangeSetId;
use model::run::Run;

use super::read;
use crate::Store;
use crate::db::{Row, Tx, Value};
use crate::run::records::ChangeSetError;

const AFTER: &str =
    "SELECT id, change_set, stack, state, upstreams, settled, stages, revision FROM run
    WHERE change_set = $1 AND revision > $2 ORDER BY id";

/// Of the last change set.
#[derive(Debug, Default)]
pub(crate) struct KnownRuns(Mutex<Option<Known>>);

#[derive(Debug)]
struct Known {
    set: ChangeSetId,
    /// Ordered by id, each with its revision.
    runs: Vec<(i64, Run)>,
}

impl KnownRuns {
    fn lock(&self) -> MutexGuard<'_, Option<Known>> {
        // Nothing is left half done by who panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest revision that is known; all are newer than that of a set that is not.
    fn newest(&self, set: ChangeSetId) -> i64 {
        let known = self.lock();
        let runs = known.iter().filter(|known| known.set == set);
        let revisions = runs.flat_map(|known| known.runs.iter().map(|(revision, _)| *revision));
        revisions.max().unwrap_or(-1)
    }

    /// Takes in what was read; what somebody else took in meanwhile may be newer, and stays.
    fn take_in(&self, set: ChangeSetId, rows: &[Row]) -> Result<Vec<Run>, ChangeSetError> {
        let mut known = self.lock();
        let mut runs = match known.take() {
            Some(known) if known.set == set => known.runs,
            _ => Vec::new(),
        };
        for row in rows {
            let (revision, run) = (row.int(7)?, read(row)?);
            match runs.binary_search_by_key(&run.id, |(_, run)| run.id) {
                Ok(at) if runs[at].0 < revision => runs[at] = (revision, run),
                Ok(_) => {}
                Err(at) => runs.insert(at, (revision, run)),
            }
        }
        let all = runs.iter().map(|(_, run)| run.clone()).collect();
        *known = Some(Known { set, runs });
        Ok(all)
    }
}

impl Store {
    pub async fn run_list(&self, set: ChangeSetId) -> Result<Vec<Run>, ChangeSetError> {
        let rows = self.db.fetch_all(AFTER, &self.after_known(set)).await?;
        self.known_runs.take_in(set, &rows)
    }

    /// The same in a transaction that has not written yet: what it writes may never be.
    pub(crate) async fn run_list_in(
        &self,
        tx: &mut Tx,
        set: ChangeSetId,
    ) -> Result<Vec<Run>, ChangeSetError> {
        let rows = tx.fetch_all(AFTER, &self.after_known(set)).await?;
        self.known_runs.take_in(set, &rows)
    }

    fn after_known(&self, set: ChangeSetId) -> [Value; 2] {
        [set.into(), self.known_runs.newest(set).into()]
    }

    /// Those that changed after a revision, and the newest revision: what a watcher has to read again.
    /// Revisions follow the order of commits, which moments do not.
    pub async fn run_list_after(
        &self,
        set: ChangeSetId,
        revision: i64,
    ) -> Result<(Vec<Run>, i64), ChangeSetError> {
        let rows = self
            .db
            .fetch_all(AFTER, &[set.into(), revision.into()])
            .await?;
        let mut newest = revision;
        for row in &rows {
            newest = newest.max(row.int(7)?);
        }
        Ok((rows.iter().map(read).collect::<Result<_, _>>()?, newest))
    }
}
