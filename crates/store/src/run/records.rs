//! What rows of change sets and runs share: their error, and reading and writing their JSON.
//!
//! Not here: the rows themselves (`change_sets`, `runs`, `approvals`, `holds`, `lanes`).

use jiff::Timestamp;
use model::base::error::{ErrorKind, Explain, NextStep, command};
use model::base::ids::ChangeSetId;
use model::run::changeset::{ReopenError, UserCommandError};

use crate::db::{DbError, Row};

#[derive(Debug, thiserror::Error)]
pub enum ChangeSetError {
    #[error("there is no change set `{0}`")]
    Missing(ChangeSetId),
    #[error("cannot read the record of {what}")]
    Record {
        what: String,
        source: serde_json::Error,
    },
    #[error(transparent)]
    Heard(#[from] UserCommandError),
    #[error(transparent)]
    Reopen(#[from] ReopenError),
    #[error(transparent)]
    Run(#[from] model::run::InvalidRunEvent),
    #[error(transparent)]
    Set(#[from] model::run::changeset::InvalidSetEvent),
    #[error("change set `{set}` has lost its lanes: results of its runs are no longer accepted")]
    LaneLost { set: ChangeSetId },
    #[error("plan `{seen}` is not the current plan of change set `{set}`")]
    OtherPlans { set: ChangeSetId, seen: String },
    #[error(transparent)]
    Db(#[from] DbError),
}

impl Explain for ChangeSetError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Db(err) => err.kind(),
            Self::Missing(_) => ErrorKind::NotFound,
            Self::Heard(err) => err.kind(),
            Self::Record { .. }
            | Self::Reopen(_)
            | Self::Run(_)
            | Self::Set(_)
            | Self::LaneLost { .. }
            | Self::OtherPlans { .. } => ErrorKind::Failed,
        }
    }

    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::Missing(_) => vec![command("run list --all", "lists all change sets")],
            _ => Vec::new(),
        }
    }
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
