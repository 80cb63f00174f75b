//! What a run applied, and whether the state is still the same: the stages after an apply concern only that
//! state.

use model::base::error::{ErrorKind, Explain, NextStep, command};
use model::base::ids::{RunId, StackName};
use model::run::RunEvent;
use model::state::StateName;
use store::{ChangeSetError, StoreError};

use crate::Control;

/// The state is no longer the one that a run left.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the state of stack `{stack}` has changed since run {run}: it was {was}, now it is {now}")]
pub struct StateChangedError {
    pub stack: StackName,
    pub run: RunId,
    was: String,
    now: String,
}

impl StateChangedError {
    /// The same message, where the run is already known.
    pub fn words(&self) -> String {
        format!("its state was {}, now it is {}", self.was, self.now)
    }
}

impl Explain for StateChangedError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Refused
    }

    fn next_steps(&self) -> Vec<NextStep> {
        vec![command(format!("apply {}", self.stack), "plans it again")]
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum StalenessError {
    #[error(transparent)]
    History(#[from] ChangeSetError),
    #[error(transparent)]
    State(#[from] StoreError),
}

/// Whether the state changed since a run was applied, or found nothing to change. A run that was not planned
/// accepts any state.
pub(crate) async fn moved(
    control: &Control,
    run: RunId,
    stack: &StackName,
    state: &StateName,
) -> Result<Option<StateChangedError>, StalenessError> {
    let events = control.store.run_events(run).await?;
    let mark = events.iter().rev().find_map(|(_, event)| match event {
        RunEvent::ApplyFinished {
            serial, lineage, ..
        }
        | RunEvent::NothingToChange {
            serial, lineage, ..
        } => Some((*serial, lineage.clone())),
        _ => None,
    });
    let Some((Some(serial), lineage)) = mark else {
        return Ok(None);
    };
    let head = control.store.state_head(state).await?;
    let now = head.map(|head| {
        let serial = i64::try_from(head.serial).unwrap_or(i64::MAX);
        (serial, head.lineage)
    });
    let is_same = now.as_ref().is_some_and(|(now, other)| {
        *now == serial && lineage.as_ref().is_none_or(|lineage| lineage == other)
    });
    if is_same {
        return Ok(None);
    }
    let (was, now) = match (now, lineage) {
        (None, _) => (format!("serial {serial}"), "gone".to_owned()),
        (Some((now, other)), Some(lineage)) if other != lineage => (
            format!("serial {serial} of lineage {lineage}"),
            format!("serial {now} of lineage {other}"),
        ),
        (Some((now, _)), _) => (format!("serial {serial}"), format!("serial {now}")),
    };
    Ok(Some(StateChangedError {
        stack: stack.clone(),
        run,
        was,
        now,
    }))
}
