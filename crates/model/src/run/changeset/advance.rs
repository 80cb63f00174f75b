//! How an event changes a change set. Like `run::advance`: transitions that are not listed are impossible.

use serde::{Deserialize, Serialize};

use super::Status;
use crate::base::actor::Actor;
use crate::base::ids::ChangeSetId;

/// An event of a change set. Stored in `change_set_event.body`: variants are only added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum SetEvent {
    /// It was requested, possibly with a confirmation in advance.
    Requested {
        confirmed: bool,
    },
    /// Everything that is left waits for a person.
    CameToRest,
    /// It was confirmed. `by` is none if it needed no confirmation.
    Confirmed {
        by: Option<Actor>,
    },
    LanesTaken,
    Completed,
    /// Everything that is left has failed or depends on a failure.
    Failed {
        why: String,
    },
    Interrupted {
        by: Option<Actor>,
    },
    WoundDown,
    Discarded {
        by: Option<Actor>,
        reason: Option<String>,
    },
    Rejected {
        by: Actor,
        reason: String,
    },
    /// No process executes it and no client is attached any more.
    Abandoned {
        why: String,
    },
    Superseded {
        by: ChangeSetId,
    },
    /// Some of its runs were reopened, with the current source.
    Reopened {
        by: Option<Actor>,
        confirmed: bool,
    },
}

/// The event is not possible in the current state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a change set that is {status} cannot be {event}")]
pub struct InvalidSetEvent {
    pub status: &'static str,
    pub event: &'static str,
}

pub fn advance(status: &Status, event: &SetEvent) -> Result<Status, InvalidSetEvent> {
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
        // A repeated interrupt has no effect.
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
            return Err(InvalidSetEvent {
                status: status.word(),
                event: event.word(),
            });
        }
    })
}

impl SetEvent {
    /// The participle for messages: `a change set cannot be …`.
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
