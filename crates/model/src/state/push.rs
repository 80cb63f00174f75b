//! Which write may follow which head, under which lock. Decided here, without touching anything;
//! the store asks again inside the transaction that moves the head.

use serde::{Deserialize, Serialize};

use super::Contents;
use crate::ids::RunId;

/// The newest version, as far as a decision needs it.
#[derive(Clone, Copy, Debug)]
pub struct HeadView<'a> {
    pub serial: u64,
    pub lineage: &'a str,
    pub content: &'a str,
    pub contents: Contents,
}

/// The lock that is held now.
#[derive(Clone, Copy, Debug)]
pub struct LockView<'a> {
    pub id: &'a str,
    pub operation: &'a str,
    pub run: Option<RunId>,
}

/// What a writer wants to become the head.
#[derive(Clone, Copy, Debug)]
pub struct PushView<'a> {
    pub serial: u64,
    pub lineage: &'a str,
    pub content: &'a str,
    pub contents: Contents,
    /// The lock the writer says it holds.
    pub lock_id: Option<&'a str>,
    /// Whether that lock is known to have ended.
    pub lock_ended: bool,
    pub run: Option<RunId>,
    /// Whether this run's plan takes every resource away; without a run nobody knows.
    pub may_empty: bool,
    /// Whether the writer may do what `state push -force` and a migration do.
    pub surgery: bool,
}

/// What is remembered about a version besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// All resources went away, and no plan says that they should.
    Emptied,
    /// Serial or lineage did not follow the head; a person with the right to do so insisted.
    Forced,
    /// Found in an `errored.tfstate` after its run.
    Adopted,
    /// The content of an older version, under a new serial.
    RolledBack,
    /// Resources were taken out of it by hand.
    Edited,
    /// It lives in a backend of the engine; this is what was seen there.
    Copy,
}

impl Mark {
    pub const ALL: [Self; 6] = [
        Self::Emptied,
        Self::Forced,
        Self::Adopted,
        Self::RolledBack,
        Self::Edited,
        Self::Copy,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Emptied => "emptied",
            Self::Forced => "forced",
            Self::Adopted => "adopted",
            Self::RolledBack => "rolled_back",
            Self::Edited => "edited",
            Self::Copy => "copy",
        }
    }

    /// As people say it.
    pub fn words(self) -> &'static str {
        match self {
            Self::RolledBack => "rolled back",
            Self::Emptied | Self::Forced | Self::Adopted | Self::Edited | Self::Copy => {
                self.as_str()
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushVerdict {
    /// These bytes are the head already: a repeated request, answered as the first one.
    Same,
    Accept {
        mark: Option<Mark>,
    },
    Refuse(PushRefusal),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushRefusal {
    #[error("the state is locked by lock `{holder}`, and this write does not carry it")]
    Locked { holder: String },
    #[error("the write carries lock `{id}`, which is not held any more")]
    LockLost { id: String },
    #[error("run {run} writes without its lock")]
    RunWithoutLock { run: RunId },
    #[error("lock `{id}` is that of run {run}, and nobody else writes under it")]
    LockOfRun { id: String, run: RunId },
    #[error(
        "serial {serial} is taken by other content: two writers without a lock, or a push of the version before it"
    )]
    SerialTaken { serial: u64 },
    #[error("serial {serial} is behind the head's {head}")]
    SerialBehind { serial: u64, head: u64 },
    #[error("lineage `{lineage}` is not the head's `{head}`: this is another state")]
    OtherLineage { lineage: String, head: String },
    #[error("the write takes all resources away, but run {run}'s plan does not")]
    EmptiedWithoutPlan { run: RunId },
    #[error("the state lives in a backend of the engine, and what is here is a copy")]
    Copy,
    #[error("only runs write this state: its target's writers are not `anyone`")]
    RunsOnly,
    #[error(
        "serial {serial} was used before the state was deleted, the last one was {last}: a new state has a lineage of its own"
    )]
    SerialUsed { serial: u64, last: u64 },
}

/// Decides one write. The bytes of the head are welcome from anyone at any time, for an answer may
/// have been lost; every other write first needs the lock, then a place after the head.
pub fn check_push(
    head: Option<&HeadView<'_>>,
    lock: Option<&LockView<'_>>,
    push: &PushView<'_>,
) -> PushVerdict {
    if head.is_some_and(|head| head.content == push.content) {
        return PushVerdict::Same;
    }
    let verdict = check_lock(lock, push).and_then(|()| match head {
        None => Ok(None),
        Some(head) => check_order(head, lock, push),
    });
    match verdict {
        Ok(mark) => PushVerdict::Accept { mark },
        Err(refusal) => PushVerdict::Refuse(refusal),
    }
}

pub(super) fn check_lock(
    lock: Option<&LockView<'_>>,
    push: &PushView<'_>,
) -> Result<(), PushRefusal> {
    match (lock, push.lock_id) {
        (Some(lock), Some(id)) if lock.id == id => match (lock.run, push.run) {
            (None, None) => Ok(()),
            // An id is no secret: whoever is refused is told it.
            (Some(run), None) => Err(PushRefusal::LockOfRun {
                id: id.to_owned(),
                run,
            }),
            (holder, Some(run)) if holder == Some(run) => Ok(()),
            (_, Some(run)) => Err(PushRefusal::RunWithoutLock { run }),
        },
        // Its lock was broken or released: it is too late, whoever holds the state now.
        (Some(_), Some(id)) if push.lock_ended => Err(PushRefusal::LockLost { id: id.to_owned() }),
        (None, Some(id)) => Err(PushRefusal::LockLost { id: id.to_owned() }),
        (Some(lock), _) => Err(PushRefusal::Locked {
            holder: lock.id.to_owned(),
        }),
        (None, None) => push
            .run
            .map_or(Ok(()), |run| Err(PushRefusal::RunWithoutLock { run })),
    }
}

fn check_order(
    head: &HeadView<'_>,
    lock: Option<&LockView<'_>>,
    push: &PushView<'_>,
) -> Result<Option<Mark>, PushRefusal> {
    let operation = lock.map_or("", |lock| lock.operation);
    let pushes = push.surgery && operation == "state-push";
    let migrates = push.surgery && operation == "migration destination state";
    // A head without a lineage is from before there were any; the next write settles it.
    let same_lineage = head.lineage.is_empty() || head.lineage == push.lineage;
    let mut forced = false;

    if !same_lineage && head.contents != Contents::Nothing {
        if !(pushes || migrates) {
            return Err(PushRefusal::OtherLineage {
                lineage: push.lineage.to_owned(),
                head: head.lineage.to_owned(),
            });
        }
        forced = true;
    }
    // An encrypted state carries its serial inside as well: an older one comes back with the one it had.
    let returns = pushes && push.contents == Contents::Encrypted;
    if same_lineage && push.serial == head.serial && !returns {
        return Err(PushRefusal::SerialTaken {
            serial: push.serial,
        });
    }
    if same_lineage && push.serial <= head.serial {
        if !pushes {
            return Err(PushRefusal::SerialBehind {
                serial: push.serial,
                head: head.serial,
            });
        }
        forced = true;
    }
    let empties = head.contents.loses_all_resources(push.contents);
    match push.run {
        Some(run) if empties && !push.may_empty => Err(PushRefusal::EmptiedWithoutPlan { run }),
        None if empties => Ok(Some(Mark::Emptied)),
        Some(_) | None => Ok(forced.then_some(Mark::Forced)),
    }
}

#[cfg(test)]
mod tests;
