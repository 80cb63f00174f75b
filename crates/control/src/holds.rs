//! People's locks on stacks and lanes.

use std::time::Duration;

use jiff::Timestamp;
use model::changeset::{Action, Status};
use model::hold::{Hold, HoldOn};
use model::ids::StackName;
use model::project::{LaneScope, Project};
use store::{ChangeSetError, NewHold, ReleaseHoldError};

use crate::Control;
use crate::runs::{self, Explained, Which};

/// What a word on the command line means: a stack, or else the lane of a target.
pub fn find(project: &Project, word: &str) -> Option<HoldOn> {
    if let Some(stack) = project.stacks.keys().find(|stack| stack.as_str() == word) {
        return Some(HoldOn::Stack(stack.clone()));
    }
    let target = project.targets.get(word)?;
    // A target whose stacks have lanes of their own has none to hold.
    (target.lane == LaneScope::Target).then(|| HoldOn::Lane(word.to_owned()))
}

pub async fn add(
    control: &Control,
    on: &HoldOn,
    person: &str,
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
        person: person.to_owned(),
        reason: reason.to_owned(),
        since,
        until,
        released: None,
    })
}

pub async fn release(
    control: &Control,
    on: &HoldOn,
    person: &str,
) -> Result<Vec<Hold>, ReleaseHoldError> {
    let project = control.home.project();
    let released = control
        .store
        .hold_release(project, on, person, control.now());
    released.await
}

/// Change sets that waited for the end of a hold on this.
pub async fn waiters(control: &Control, on: &HoldOn) -> Result<Vec<Explained>, ChangeSetError> {
    let mut waiters = runs::list(control, Which::Open).await?;
    waiters.retain(|one| {
        let waits = matches!(one.set.status, Status::Waiting | Status::AwaitingConfirm);
        let request = &one.set.request;
        let is_meant = match on {
            HoldOn::Stack(stack) => request.stacks.contains(stack),
            HoldOn::Lane(lane) => request.lanes.contains(lane),
        };
        waits && is_meant && request.action != Action::Plan
    });
    waiters.reverse();
    Ok(waiters)
}

/// Those in force, or all there ever were.
pub async fn list(control: &Control, all: bool) -> Result<Vec<Hold>, ChangeSetError> {
    let project = control.home.project();
    if all {
        control.store.hold_list(project).await
    } else {
        let now = control.now();
        control.store.hold_list_active(project, now).await
    }
}

/// Those on some stacks, for who is about to plan them.
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
