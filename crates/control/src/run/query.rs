//! Read access to stored change sets, runs and states, for callers that only display them.
//!
//! Not here: why something waits (`runs`), what is in a state (`state`).

use jiff::Timestamp;
use model::base::error::{ErrorKind, Explain, NextStep};
use model::base::ids::{ChangeSetId, RunId};
use model::run::changeset::ChangeSet;
use model::run::{Run, RunEvent, RunSpec};
use model::state::{StateName, StateVersion};
use store::{ChangeSetError, StoreError};

use crate::Control;

/// Stored data could not be read.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    #[error(transparent)]
    Run(#[from] ChangeSetError),
    #[error(transparent)]
    State(#[from] StoreError),
}

impl Explain for QueryError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Run(err) => err.kind(),
            Self::State(err) => err.kind(),
        }
    }

    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::Run(err) => err.next_steps(),
            Self::State(err) => err.next_steps(),
        }
    }
}

/// A cheap check whether anything may have been stored since another mark was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeMark(store::DbFileMark);

impl ChangeMark {
    /// Whether an equal mark proves that nothing was stored since. A recent mark does not, because file times
    /// are coarse.
    pub fn is_settled(&self, now: std::time::SystemTime) -> bool {
        self.0.is_settled(now)
    }
}

impl Control {
    pub fn change_mark(&self) -> ChangeMark {
        ChangeMark(self.store.change_mark())
    }

    pub async fn change_set(&self, id: ChangeSetId) -> Result<ChangeSet, QueryError> {
        Ok(self.store.change_set_get(id).await?)
    }

    pub async fn run(&self, id: RunId) -> Result<Option<Run>, QueryError> {
        Ok(self.store.run_get(id).await?)
    }

    /// The change set that a run belongs to.
    pub async fn set_of_run(&self, run: RunId) -> Result<ChangeSet, QueryError> {
        Ok(self.store.run_summary(run).await?.set)
    }

    pub async fn runs(&self, set: ChangeSetId) -> Result<Vec<Run>, QueryError> {
        Ok(self.store.run_list(set).await?)
    }

    /// The runs of a change set that were stored after a revision, and the revision for the next call.
    pub async fn runs_after(
        &self,
        set: ChangeSetId,
        revision: i64,
    ) -> Result<(Vec<Run>, i64), QueryError> {
        Ok(self.store.run_list_after(set, revision).await?)
    }

    /// The newest run of a stack of this project.
    pub async fn newest_run(&self, stack: &str) -> Result<Option<Run>, QueryError> {
        let project = self.home.project();
        Ok(self.store.run_newest(project, stack).await?)
    }

    /// Runs of this project whose engine died and left resources that no state records.
    pub async fn runs_with_unrecorded(&self) -> Result<Vec<Run>, QueryError> {
        Ok(self.store.run_list_unrecorded(self.home.project()).await?)
    }

    pub async fn run_events(&self, run: RunId) -> Result<Vec<(Timestamp, RunEvent)>, QueryError> {
        Ok(self.store.run_events(run).await?)
    }

    pub async fn run_spec(&self, run: RunId) -> Result<RunSpec, QueryError> {
        Ok(self.store.run_spec(run).await?)
    }

    /// The newest version of a state.
    pub async fn state_head(&self, state: &StateName) -> Result<Option<StateVersion>, QueryError> {
        Ok(self.store.state_head(state).await?)
    }
}
