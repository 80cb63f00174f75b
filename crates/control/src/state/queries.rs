//! Queries about states: which ones exist, and what a version contains.
//!
//! Not here: what a run may do with its own state (`state::run_access`).

pub mod author;
pub mod blame;
pub mod deleted;
pub(crate) mod index;
pub mod integrity;
pub mod listing;
pub mod recover;
pub mod restore_report;
pub mod retention_job;
pub mod search;
pub mod version;
pub mod versions;

use model::base::error::{ErrorKind, Explain, NextStep, command};
use model::project::Project;
use model::state::{Contents, RefusedRequest, StateName, StateVersion};
use store::StoreError;

use crate::Control;

#[derive(Debug, thiserror::Error)]
pub enum ReadStateError {
    #[error("there is no state `{state}`")]
    NoState { state: StateName },
    #[error("state `{state}` has no version {version}")]
    NoVersion { state: StateName, version: i64 },
    #[error("could not read state `{state}`")]
    Store {
        state: StateName,
        source: Box<StoreError>,
    },
}

impl Explain for ReadStateError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NoState { .. } | Self::NoVersion { .. } => ErrorKind::NotFound,
            Self::Store { source, .. } => source.kind(),
        }
    }

    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::NoState { .. } => vec![command("state list", "lists all states")],
            Self::NoVersion { state, .. } => vec![command(
                format!("state versions {state}"),
                "lists all stored versions",
            )],
            Self::Store { .. } => Vec::new(),
        }
    }
}

/// A version and its bytes; by default the newest version.
pub async fn read(
    control: &Control,
    state: &StateName,
    version: Option<i64>,
) -> Result<(StateVersion, Vec<u8>), ReadStateError> {
    let store = &control.store;
    let failed = |source: StoreError| ReadStateError::Store {
        state: state.clone(),
        source: Box::new(source),
    };
    let found = match version {
        Some(version) => store.state_version_get(state, version).await,
        None => store.state_head(state).await,
    };
    let Some(found) = found.map_err(failed)? else {
        let state = state.clone();
        return Err(match version {
            Some(version) => ReadStateError::NoVersion { state, version },
            None => ReadStateError::NoState { state },
        });
    };
    let bytes = store.state_version_read(&found).await.map_err(failed)?;
    Ok((found, bytes))
}

/// Refused requests for one state, or for all, with the reasons; newest last.
pub async fn refusals(
    control: &Control,
    only: Option<&StateName>,
) -> Result<Vec<RefusedRequest>, StoreError> {
    match only {
        Some(state) => control.store.refusal_list(state).await,
        None => control.store.refusal_list_all().await,
    }
}

/// States of the project that contain resources but belong to no stack, because it was renamed or removed. No
/// plan covers these resources.
pub async fn abandoned(control: &Control, project: &Project) -> Result<Vec<String>, StoreError> {
    let mut found = Vec::new();
    for row in control.store.state_list().await? {
        let is_ours = row.name.project == control.home.project();
        let has_stack = |name: &str| project.stacks.values().any(|stack| stack.state == name);
        if !is_ours || has_stack(&row.name.name) {
            continue;
        }
        let head = control.store.state_head(&row.name).await?;
        if head.is_some_and(|head| head.contents == Contents::Resources) {
            found.push(row.name.name);
        }
    }
    Ok(found)
}
