//! What one event does to a change set. The twin of `run::advance`: what is not listed cannot happen.

use serde::{Deserialize, Serialize};

use super::Status;
use crate::ids::ChangeSetId;

/// What happened to a change set. Stored in `change_set_event.body`: variants are only added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum SetEvent {
    /// It was asked for; its approval may have been said beforehand.
    Requested {
        confirmed: bool,
    },
    /// All that is left waits for a person.
    CameToRest,
    /// Somebody wants it done now; nobody: it needed no word.
    Confirmed {
        by: Option<String>,
    },
    LanesTaken,
    Completed,
    /// All that is left has failed, or stands on something that did.
    Failed {
        why: String,
    },
    Interrupted {
        by: Option<String>,
    },
    WoundDown,
    Discarded {
        by: Option<String>,
        reason: Option<String>,
    },
    Rejected {
        by: String,
        reason: String,
    },
    /// Nobody carries it out or waits for it any more.
    Abandoned {
        why: String,
    },
    Superseded {
        by: ChangeSetId,
    },
    /// Runs of it were opened again, on the source as it is now.
    Reopened {
        by: Option<String>,
        confirmed: bool,
    },
}

/// An event that cannot happen in the state the change set is in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a change set that is {status} cannot be {event}")]
pub struct Refusal {
    pub status: &'static str,
    pub event: &'static str,
}

pub fn advance(status: &Status, event: &SetEvent) -> Result<Status, Refusal> {
    use {SetEvent as E, Status as S};
    let stopped = |why: &str| S::Stopped {
        why: why.to_owned(),
    };
    Ok(match (status, event) {
        (S::Planning, E::Requested { confirmed: false }) => S::Planning,
        (S::Planning, E::Requested { confirmed: true }) => S::Waiting,
        (S::Planning | S::Confirmed, E::CameToRest) => S::AwaitingConfirm,
        (S::AwaitingConfirm, E::Confirmed { .. }) => S::Waiting,
        (S::Waiting, E::LanesTaken) => S::Confirmed,
        (S::Planning | S::Confirmed, E::Completed) => S::Finished,
        (S::Planning | S::Confirmed, E::Failed { why }) => stopped(why),
        // Said twice is said once.
        (
            S::Planning | S::AwaitingConfirm | S::Waiting | S::Confirmed | S::Interrupting,
            E::Interrupted { .. },
        ) => S::Interrupting,
        (S::Interrupting, E::WoundDown) => stopped("interrupted"),
        (S::Planning | S::AwaitingConfirm | S::Waiting, E::Discarded { by, reason }) => {
            match (by, reason) {
                (Some(by), Some(reason)) => stopped(&format!("discarded by `{by}`: {reason}")),
                (None, Some(reason)) => stopped(reason),
                (_, None) => stopped("not confirmed"),
            }
        }
        (S::Planning | S::AwaitingConfirm | S::Waiting, E::Rejected { by, reason }) => {
            stopped(&format!("rejected by `{by}`: {reason}"))
        }
        (
            S::Planning | S::AwaitingConfirm | S::Waiting | S::Confirmed | S::Interrupting,
            E::Abandoned { why },
        ) => stopped(why),
        (S::Planning | S::AwaitingConfirm | S::Waiting, E::Superseded { by }) => {
            S::Superseded { by: *by }
        }
        (S::Stopped { .. }, E::Reopened { confirmed, .. }) => {
            if *confirmed {
                S::Waiting
            } else {
                S::Planning
            }
        }
        (status, event) => {
            return Err(Refusal {
                status: status.word(),
                event: event.word(),
            });
        }
    })
}

impl SetEvent {
    /// What the change set is by it: `a change set cannot be …`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Requested { .. } => "requested",
            Self::CameToRest => "brought to rest",
            Self::Confirmed { .. } => "confirmed",
            Self::LanesTaken => "given its lanes",
            Self::Completed => "completed",
            Self::Failed { .. } => "failed",
            Self::Interrupted { .. } => "interrupted",
            Self::WoundDown => "wound down",
            Self::Discarded { .. } => "discarded",
            Self::Rejected { .. } => "rejected",
            Self::Abandoned { .. } => "abandoned",
            Self::Superseded { .. } => "superseded",
            Self::Reopened { .. } => "reopened",
        }
    }
}
