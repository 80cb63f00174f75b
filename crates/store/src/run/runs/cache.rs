//! A cache of the runs of the change set that was read last: its runner reads all of its runs at every step, and only
//! one or two have changed.
//!
//! Every change of what `read` reads moves a run's `revision`; only changed runs are read again.

use std::sync::{Mutex, MutexGuard, PoisonError};

use model::base::ids::ChangeSetId;
use model::run::Run;

use super::read;
use crate::Store;
use crate::db::{Row, Tx, Value};
use crate::run::records::ChangeSetError;

const AFTER: &str =
    "SELECT id, change_set, stack, state, upstreams, settled, stages, revision FROM run
    WHERE change_set = $1 AND revision > $2 ORDER BY id";

/// The runs of the last change set.
#[derive(Debug, Default)]
pub(crate) struct KnownRuns(Mutex<Option<CachedRuns>>);

#[derive(Debug)]
struct CachedRuns {
    set: ChangeSetId,
    /// Ordered by id, each with its revision.
    runs: Vec<(i64, Run)>,
}

impl KnownRuns {
    fn lock(&self) -> MutexGuard<'_, Option<CachedRuns>> {
        // A panicking holder leaves nothing incomplete.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest cached revision; lower than all revisions if the set is not cached.
    fn newest(&self, set: ChangeSetId) -> i64 {
        let known = self.lock();
        let runs = known.iter().filter(|known| known.set == set);
        let revisions = runs.flat_map(|known| known.runs.iter().map(|(revision, _)| *revision));
        revisions.max().unwrap_or(-1)
    }

    /// Adds rows to the cache; newer ones that another task added meanwhile stay.
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
        *known = Some(CachedRuns { set, runs });
        Ok(all)
    }
}

impl Store {
    pub async fn run_list(&self, set: ChangeSetId) -> Result<Vec<Run>, ChangeSetError> {
        let rows = self.db.fetch_all(AFTER, &self.after_known(set)).await?;
        self.known_runs.take_in(set, &rows)
    }

    /// The same in a transaction that has not written yet: its changes may be rolled back.
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

    /// The runs that changed after a revision, and the newest revision, for watchers. Revisions follow the order of
    /// commits; times do not.
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
