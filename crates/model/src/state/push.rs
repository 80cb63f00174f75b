//! Which write may follow which head, under which lock. A pure decision, which the store repeats inside the transaction
//! that moves the head.

use serde::{Deserialize, Serialize};

use super::Contents;
use crate::base::ids::RunId;

/// The newest version, with the fields that a decision needs.
#[derive(Clone, Copy, Debug)]
pub struct HeadView<'a> {
    pub serial: u64,
    pub lineage: &'a str,
    pub content: &'a str,
    pub contents: Contents,
}

/// The current lock.
#[derive(Clone, Copy, Debug)]
pub struct LockView<'a> {
    pub id: &'a str,
    pub operation: &'a str,
    pub run: Option<RunId>,
}

/// A write that is to become the head.
#[derive(Clone, Copy, Debug)]
pub struct PushView<'a> {
    pub serial: u64,
    pub lineage: &'a str,
    pub content: &'a str,
    pub contents: Contents,
    /// The lock that the writer claims to hold.
    pub lock_id: Option<&'a str>,
    /// Whether that lock is known to have been released or broken.
    pub lock_ended: bool,
    pub run: Option<RunId>,
    /// Whether the run's plan removes every resource. False without a run.
    pub may_empty: bool,
    /// Whether the writer may use the privileges of `state push -force` and of migrations.
    pub surgery: bool,
}

/// What is recorded about a version besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VersionMark {
    /// All resources were removed without a plan that does so.
    Emptied,
    /// Serial or lineage did not follow the head; a person with the required permission forced the write.
    Forced,
    /// Adopted from an `errored.tfstate` after its run.
    Adopted,
    /// The content of an older version, with a new serial.
    RolledBack,
    /// Resources were removed manually.
    Edited,
    /// A copy of a state that lives in an engine's backend.
    Copy,
}

impl VersionMark {
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

    /// The text shown to people.
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
    /// These bytes already are the head: a repeated request gets the same response as the first one.
    Same,
    Accept {
        mark: Option<VersionMark>,
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
    #[error("lock `{id}` is that of run {run}, and only that run writes under it")]
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

/// Decides about one write. The bytes of the head are always accepted from every writer, since a response may have been
/// lost. Any other write needs the lock and must follow the head.
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
            // A lock id is not secret: refused clients receive it.
            (Some(run), None) => Err(PushRefusal::LockOfRun {
                id: id.to_owned(),
                run,
            }),
            (holder, Some(run)) if holder == Some(run) => Ok(()),
            (_, Some(run)) => Err(PushRefusal::RunWithoutLock { run }),
        },
        // The lock was broken or released. It is too late, whichever client holds the state now.
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
) -> Result<Option<VersionMark>, PushRefusal> {
    let operation = lock.map_or("", |lock| lock.operation);
    let pushes = push.surgery && operation == "state-push";
    let migrates = push.surgery && operation == "migration destination state";
    // A head without a lineage predates lineages; the next write sets one.
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
    // An encrypted state also has its serial inside, so an older version returns with its old serial.
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
        None if empties => Ok(Some(VersionMark::Emptied)),
        Some(_) | None => Ok(forced.then_some(VersionMark::Forced)),
    }
}

#[cfg(test)]
mod tests;
