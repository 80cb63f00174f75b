//! Holds that people place on stacks and lanes.

use std::time::Duration;

use jiff::Timestamp;
use model::base::actor::Actor;
use model::base::error::{ErrorKind, Explain, NextStep, command};
use model::base::ids::StackName;
use model::project::Project;
use model::run::changeset::{Action, Status};
use model::run::hold::{Hold, HoldOn};
use store::{ChangeSetError, NewHold};

use crate::Control;
use crate::changeset::explain::{self, ChangeSetDetails, ChangeSetFilter};

/// The meaning of a command-line argument: a stack, or else a target, with all of its lanes. `target:NAME` is
/// always a target.
pub fn find(project: &Project, word: &str) -> Option<HoldOn> {
    let target = word.strip_prefix("target:");
    let stack = project.stacks.keys().find(|stack| stack.as_str() == word);
    if let (None, Some(stack)) = (target, stack) {
        return Some(HoldOn::Stack(stack.clone()));
    }
    let target = project.targets.get(target.unwrap_or(word))?;
    Some(HoldOn::Lane(target.name.clone()))
}

pub async fn add(
    control: &Control,
    on: &HoldOn,
    person: &Actor,
    reason: &str,
    term: Duration,
) -> Result<Hold, ChangeSetError> {
    let since = control.now();
    let until = since.checked_add(term).unwrap_or(Timestamp::MAX);
    let new = NewHold {
        project: control.home.project(),
        on,
        person,
        reason,
        since,
        until,
    };
    let id = control.store.hold_insert(&new).await?;
    Ok(Hold {
        id,
        on: on.clone(),
        person: person.clone(),
        reason: reason.to_owned(),
        since,
        until,
        released: None,
    })
}

/// Why no hold was released.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    #[error("there is no hold on it")]
    Missing,
    #[error("only holds of other users are on it")]
    OfOthers(Vec<Hold>),
    #[error(transparent)]
    Store(ChangeSetError),
}

impl From<store::ReleaseHoldError> for ReleaseError {
    fn from(err: store::ReleaseHoldError) -> Self {
        match err {
            store::ReleaseHoldError::Missing => Self::Missing,
            store::ReleaseHoldError::OfOthers(holds) => Self::OfOthers(holds),
            store::ReleaseHoldError::Store(err) => Self::Store(err),
        }
    }
}

impl Explain for ReleaseError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Missing => ErrorKind::NotFound,
            Self::OfOthers(_) => ErrorKind::Refused,
            Self::Store(err) => err.kind(),
        }
    }

    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::Missing => vec![command("hold list", "lists all holds")],
            Self::OfOthers(_) | Self::Store(_) => Vec::new(),
        }
    }
}

/// The result of a request to release holds.
#[derive(Clone, Debug)]
pub struct ReleasedHolds {
    pub ended: Vec<Hold>,
    /// Holds of other people, still active.
    pub left: Vec<Hold>,
}

/// Ends the person's own holds on this, or with `all` also those of others.
pub async fn release(
    control: &Control,
    on: &HoldOn,
    person: &Actor,
    all: bool,
) -> Result<ReleasedHolds, ReleaseError> {
    let (store, project, now) = (&control.store, control.home.project(), control.now());
    let there = if all {
        store.hold_release_all(project, on, person, now).await?
    } else {
        store.hold_release(project, on, person, now).await?
    };
    let (ended, left) = there.into_iter().partition(|it| it.released.is_some());
    Ok(ReleasedHolds { ended, left })
}

/// Change sets that waited for the end of a hold on this.
pub async fn waiters(
    control: &Control,
    on: &HoldOn,
) -> Result<Vec<ChangeSetDetails>, ChangeSetError> {
    let mut waiters = explain::list(control, ChangeSetFilter::Open).await?;
    waiters.retain(|one| {
        let waits = matches!(one.set.status, Status::Waiting | Status::AwaitingConfirm);
        let request = &one.set.request;
        let is_meant = match on {
            HoldOn::Stack(stack) => request.stacks.contains(stack),
            HoldOn::Lane(_) => request.lanes.iter().any(|lane| on.covers_lane(lane)),
        };
        waits && is_meant && request.action != Action::Plan
    });
    waiters.reverse();
    Ok(waiters)
}

/// The active holds, or all that ever existed.
pub async fn list(control: &Control, all: bool) -> Result<Vec<Hold>, ChangeSetError> {
    let project = control.home.project();
    if all {
        control.store.hold_list(project).await
    } else {
        let now = control.now();
        control.store.hold_list_active(project, now).await
    }
}

/// The active holds that concern some stacks, for a client that is about to plan them.
pub async fn on_stacks<'a>(
    control: &Control,
    mut stacks: impl Iterator<Item = &'a StackName> + Clone,
) -> Result<Vec<Hold>, ChangeSetError> {
    let mut held = list(control, false).await?;
    held.retain(|hold| match &hold.on {
        HoldOn::Stack(stack) => stacks.clone().any(|one| one == stack),
        HoldOn::Lane(_) => stacks.next().is_some(),
    });
    Ok(held)
}
