//! Copies of states in backends of the engines: storing them, reading the backends again, and comparing with
//! earlier copies.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use model::base::error::{ErrorKind, Explain, NextStep, advice, command};
use model::base::ids::{RunId, StackName};
use model::base::masking::Mask;
use model::project::Project;
use model::state::secret_paths::SecretPaths;
use model::state::{Contents, StateFacts, StateVersion};
use store::{AppendError, StoreError};

use super::{BackendChoice, BackendEngine, BackendError};
use crate::Control;
use crate::project::open::OpenProject;

/// How many engines read backends at the same time.
const AT_ONCE: usize = 4;

/// Whether a backend has no state: its answer is empty, or a state that was never written.
pub(super) fn is_nothing(body: &[u8]) -> bool {
    body.trim_ascii().is_empty()
        || StateFacts::read(body).is_ok_and(|facts| facts.serial == 0 && facts.lineage.is_empty())
}

/// The newest copy of a stack's state, if it may contain resources and the backend now has nothing of that
/// state. Most likely the backend settings point to another place.
pub async fn lost_copy(
    control: &Control,
    state: &str,
    body: &[u8],
) -> Result<Option<StateVersion>, StoreError> {
    let head = control.store.state_head(&control.state_name(state)).await?;
    let is_another = |copy: &StateVersion| {
        StateFacts::read(body).is_ok_and(|facts| facts.lineage != copy.lineage)
    };
    Ok(head.filter(|head| {
        head.is_copy()
            && head.contents.may_hold_resources()
            && (is_nothing(body) || is_another(head))
    }))
}

/// Stores what was read from a stack's backend as the newest copy of its state. An empty backend is recorded
/// only if it had a state before.
pub async fn keep_copy(
    control: &Control,
    state: &str,
    run: Option<RunId>,
    mut body: Vec<u8>,
    mask: &Mask,
) -> Result<(), AppendError> {
    const NOTHING: &[u8] = br#"{"version":4,"serial":0,"lineage":"","outputs":{},"resources":[]}"#;
    let state = control.state_name(state);
    if is_nothing(&body) {
        let head = control.store.state_head(&state).await;
        let head = head.map_err(|source| AppendError::Store {
            state: state.clone(),
            source,
        })?;
        if head.is_none_or(|head| !head.is_copy() || head.contents == Contents::Nothing) {
            return Ok(());
        }
        body = NOTHING.to_vec();
    }
    let paths = SecretPaths::find(&body, mask);
    let kept = control.store.state_copy_keep(&state, run, body, paths);
    kept.await.map(drop)
}

/// The time limit for one backend.
const PATIENCE: Duration = Duration::from_mins(1);

/// Which copies may be used without reading the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyFreshness {
    /// Any copy: the values do not matter.
    Any,
    /// None, if the backend can be read.
    Fresh,
}

/// A state that could not be read from its backend; only a copy is known.
#[derive(Clone, Debug)]
pub struct UnreadState {
    pub stack: StackName,
    /// When the copy was made.
    pub since: Timestamp,
    pub why: String,
}

/// Reads the states of these stacks from their backends again, because another user may have applied them
/// since. If a backend cannot be read, for example without credentials, an existing copy is used and
/// reported.
pub async fn look_again(
    control: &Control,
    open: &OpenProject,
    project: &Project,
    env: &BTreeMap<String, String>,
    stacks: &BTreeSet<StackName>,
    copies: CopyFreshness,
) -> Result<Vec<UnreadState>, RefreshCopyError> {
    let looks = stacks.iter().map(|stack| async move {
        let state = &project.stacks[stack].state;
        let copy = copy_here(control, stack, state).await?;
        if copy.is_some() && copies == CopyFreshness::Any {
            return Ok(None);
        }
        let look = async {
            let seat =
                BackendEngine::open(control, open, project, stack, env, BackendChoice::Target)
                    .await?;
            let body = seat.pull().await?.unwrap_or_default();
            Ok((seat, body))
        };
        let looked = tokio::time::timeout(PATIENCE, look).await;
        let looked = looked.unwrap_or_else(|_| Err(BackendError::TooSlow));
        let (seat, body) = match (looked, copy) {
            (Ok(seen), _) => seen,
            (Err(err), Some(copy)) => {
                return Ok(Some(UnreadState {
                    stack: stack.clone(),
                    since: copy.created_at,
                    why: err.to_string(),
                }));
            }
            (Err(source), None) => {
                return Err(RefreshCopyError::Backend {
                    stack: stack.clone(),
                    source: Box::new(source),
                });
            }
        };
        is_where_it_was(control, stack, state, &body).await?;
        let kept = seat.keep_copy(control, state, body).await;
        kept.map(|()| None)
            .map_err(|source| RefreshCopyError::Copy {
                stack: stack.clone(),
                source: Box::new(source),
            })
    });
    let unseen: Vec<Option<UnreadState>> = stream::iter(looks)
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    Ok(unseen.into_iter().flatten().collect())
}

/// The newest copy. An error if this home has the state itself.
async fn copy_here(
    control: &Control,
    stack: &StackName,
    state: &str,
) -> Result<Option<StateVersion>, RefreshCopyError> {
    let head = control.store.state_head(&control.state_name(state)).await;
    let head = head.map_err(|source| RefreshCopyError::Read {
        stack: stack.clone(),
        source: Box::new(source),
    })?;
    match head {
        Some(head) if !head.is_copy() && head.contents.may_hold_resources() => {
            Err(RefreshCopyError::StateHere {
                stack: stack.clone(),
                serial: head.serial,
            })
        }
        head => Ok(head.filter(StateVersion::is_copy)),
    }
}

#[derive(Debug, thiserror::Error)]
pub enum RefreshCopyError {
    #[error("cannot read the state of stack `{stack}` in its backend")]
    Backend {
        stack: StackName,
        source: Box<BackendError>,
    },
    #[error("could not read the copy of the state of stack `{stack}`")]
    Read {
        stack: StackName,
        source: Box<StoreError>,
    },
    #[error(
        "the state of stack `{stack}` is in this home (serial {serial}), but its target uses a backend of the engine"
    )]
    StateHere { stack: StackName, serial: u64 },
    #[error(
        "the backend of stack `{stack}` contained resources before (serial {serial}), but no longer contains that state"
    )]
    Gone { stack: StackName, serial: u64 },
    #[error("cannot store a copy of the state of stack `{stack}`")]
    Copy {
        stack: StackName,
        source: Box<AppendError>,
    },
}

impl Explain for RefreshCopyError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::StateHere { .. } | Self::Gone { .. } => ErrorKind::Refused,
            Self::Backend { .. } | Self::Read { .. } | Self::Copy { .. } => ErrorKind::Failed,
        }
    }

    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::Backend { source, .. } => source.next_steps(),
            Self::StateHere { stack, .. } => vec![export_to_engine(stack)],
            Self::Gone { stack, .. } => vec![
                advice("check that its target names the right backend"),
                export_to_engine(stack),
                command(
                    format!("state import {stack} --from engine"),
                    "uses the state that is there instead",
                ),
            ],
            Self::Read { .. } | Self::Copy { .. } => Vec::new(),
        }
    }
}

/// Checks that the backend still has the same state, because it replaces the last copy.
async fn is_where_it_was(
    control: &Control,
    stack: &StackName,
    state: &str,
    body: &[u8],
) -> Result<(), RefreshCopyError> {
    let before = lost_copy(control, state, body).await;
    let before = before.map_err(|source| RefreshCopyError::Read {
        stack: stack.clone(),
        source: Box::new(source),
    })?;
    before.map_or(Ok(()), |before| {
        Err(RefreshCopyError::Gone {
            stack: stack.clone(),
            serial: before.serial,
        })
    })
}

pub(crate) fn export_to_engine(stack: &StackName) -> NextStep {
    command(
        format!("state export {stack} --to engine"),
        "exports it to the engine's backend; it is enough if the state is there already",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_backend_says_nothing_or_next_to_it() {
        assert!(is_nothing(b"\n"));
        assert!(is_nothing(br#"{"version":4,"serial":0,"lineage":""}"#));
        assert!(!is_nothing(br#"{"version":4,"serial":1,"lineage":"l"}"#));
    }
}
