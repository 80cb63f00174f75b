//! Rejects or discards a change set: nothing more of it is applied.

use model::base::actor::Actor;
use model::base::ids::ChangeSetId;
use model::run::changeset::UserCommand;

use super::DecisionError;
use crate::Control;
use crate::run::cleanup;
use crate::schedule::scheduler;
use crate::secrets::caller_env::CallerEnv;
use crate::state::redact_reason::{BreakGlassReason, without_secrets_of_set};

/// Rejects a change set, so that it is not applied. Returns the reason as it is stored, without secrets.
pub async fn reject(
    control: &Control,
    set: ChangeSetId,
    reason: BreakGlassReason,
) -> Result<String, DecisionError> {
    control.check_project(set).await?;
    let text = without_secrets_of_set(control, set, &reason.text).await;
    let command = UserCommand::Reject {
        by: reason.actor,
        reason: text.clone(),
    };
    stop(control, set, command).await?;
    Ok(text)
}

/// Drops a waiting change set, which can be resumed. Returns the reason as it is stored, without secrets.
pub async fn discard(
    control: &Control,
    set: ChangeSetId,
    reason: BreakGlassReason,
) -> Result<String, DecisionError> {
    control.check_project(set).await?;
    let text = without_secrets_of_set(control, set, &reason.text).await;
    let command = UserCommand::Discard {
        by: reason.actor,
        reason: Some(text.clone()),
    };
    stop(control, set, command).await?;
    Ok(text)
}

/// Drops a change set at its own prompt, where no reason is asked for.
pub async fn decline(control: &Control, set: ChangeSetId, by: Actor) -> Result<(), DecisionError> {
    let command = UserCommand::Discard { by, reason: None };
    stop(control, set, command).await
}

async fn stop(
    control: &Control,
    set: ChangeSetId,
    command: UserCommand,
) -> Result<(), DecisionError> {
    let caller = CallerEnv::default();
    let after = scheduler::advance(control, set, Some(command), &caller, None).await?;
    cleanup::remove_leftovers(control, &after.set, &after.runs).await;
    Ok(())
}
