//! Arguments of statements and values of rows: integers, text, bytes, and typed nulls.

use jiff::Timestamp;
use model::base::ids::{ChangeSetId, RunId};
use model::state::StateName;

use super::DbError;
use crate::StoreError;

/// A value. A null has a type because PostgreSQL cannot infer one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Int(Option<i64>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
}

/// One row; columns are counted from zero.
#[derive(Clone, Debug)]
pub(crate) struct Row(Vec<Value>);

impl Row {
    /// The first columns and the rest, each counted from zero.
    pub(crate) fn split_at(mut self, column: usize) -> (Self, Self) {
        let rest = self.0.split_off(column.min(self.0.len()));
        (self, Self(rest))
    }

    pub(crate) fn int(&self, column: usize) -> Result<i64, DbError> {
        self.opt_int(column)?.ok_or(DbError::Column {
            column,
            expected: "an integer",
        })
    }

    pub(crate) fn text(&self, column: usize) -> Result<&str, DbError> {
        self.opt_text(column)?.ok_or(DbError::Column {
            column,
            expected: "text",
        })
    }

    pub(crate) fn bytes(&self, column: usize) -> Result<&[u8], DbError> {
        self.opt_bytes(column)?.ok_or(DbError::Column {
            column,
            expected: "bytes",
        })
    }

    pub(crate) fn opt_int(&self, column: usize) -> Result<Option<i64>, DbError> {
        match self.0.get(column) {
            Some(Value::Int(value)) => Ok(*value),
            Some(value) if value.is_null() => Ok(None),
            _ => Err(DbError::Column {
                column,
                expected: "an integer",
            }),
        }
    }

    pub(crate) fn opt_text(&self, column: usize) -> Result<Option<&str>, DbError> {
        match self.0.get(column) {
            Some(Value::Text(value)) => Ok(value.as_deref()),
            Some(value) if value.is_null() => Ok(None),
            _ => Err(DbError::Column {
                column,
                expected: "text",
            }),
        }
    }

    pub(crate) fn opt_bytes(&self, column: usize) -> Result<Option<&[u8]>, DbError> {
        match self.0.get(column) {
            Some(Value::Bytes(value)) => Ok(value.as_deref()),
            Some(value) if value.is_null() => Ok(None),
            _ => Err(DbError::Column {
                column,
                expected: "bytes",
            }),
        }
    }

    pub(super) fn new(values: Vec<Value>) -> Self {
        Self(values)
    }
}

impl Value {
    fn is_null(&self) -> bool {
        matches!(self, Self::Int(None) | Self::Text(None) | Self::Bytes(None))
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(Some(value))
    }
}

impl From<Option<i64>> for Value {
    fn from(value: Option<i64>) -> Self {
        Self::Int(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Int(Some(i64::from(value)))
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(Some(value.to_owned()))
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(Some(value))
    }
}

impl From<Option<&str>> for Value {
    fn from(value: Option<&str>) -> Self {
        Self::Text(value.map(str::to_owned))
    }
}

impl From<Option<String>> for Value {
    fn from(value: Option<String>) -> Self {
        Self::Text(value)
    }
}

impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Self {
        Self::Bytes(Some(value))
    }
}

impl From<Option<Vec<u8>>> for Value {
    fn from(value: Option<Vec<u8>>) -> Self {
        Self::Bytes(value)
    }
}

impl From<RunId> for Value {
    fn from(id: RunId) -> Self {
        Self::from(id.0)
    }
}

impl From<Option<RunId>> for Value {
    fn from(id: Option<RunId>) -> Self {
        Self::Int(id.map(|id| id.0))
    }
}

impl From<ChangeSetId> for Value {
    fn from(id: ChangeSetId) -> Self {
        Self::from(id.0)
    }
}

impl From<Option<ChangeSetId>> for Value {
    fn from(id: Option<ChangeSetId>) -> Self {
        Self::Int(id.map(|id| id.0))
    }
}

impl From<Timestamp> for Value {
    fn from(at: Timestamp) -> Self {
        Self::from(at.as_microsecond())
    }
}

/// The two arguments that name a state.
pub(crate) fn name_args(state: &StateName) -> [Value; 2] {
    [state.project.as_str().into(), state.name.as_str().into()]
}

/// A time, stored as microseconds.
pub(crate) fn read_time(micros: i64) -> Result<Timestamp, StoreError> {
    Timestamp::from_microsecond(micros).map_err(|_| StoreError::Row {
        found: micros.to_string(),
        expected: "a time",
    })
}
