//! The artifacts of stacks: lists them and copies them out.
//!
//! Not here: artifacts in trees while engines run (`runner::workspace`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use drivers::artifacts::write_out;
use drivers::snapshot::sha256;
use model::base::error::{Explain, NextStep, advice, command};
use model::base::ids::RunId;
use model::stage::artifact::{Artifact, ArtifactSet};
use model::state::StateName;
use serde::{Deserialize, Serialize};
use store::{KeepArtifactsError, StoreError};

use crate::Control;

pub(crate) mod backup;

pub use backup::{RestoreArtifactsError, RestoredArtifacts};

#[derive(Debug, thiserror::Error)]
pub enum ArtifactsError {
    #[error("could not read the artifacts of state `{state}`")]
    Read {
        state: StateName,
        source: Box<StoreError>,
    },
    #[error("`{}` already exists and is a different file", path.display())]
    There { path: PathBuf },
    #[error("cannot check `{}`", path.display())]
    Look { path: PathBuf, source: io::Error },
    #[error("could not write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl Explain for ArtifactsError {
    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::There { .. } => vec![advice("name another directory, or use `--force`")],
            Self::Read { .. } => vec![command("state verify", "reports what is damaged")],
            Self::Look { .. } | Self::Write { .. } => Vec::new(),
        }
    }
}

/// The properties of an artifact that may be shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactFacts {
    /// Relative to the stack's directory.
    pub path: String,
    pub size: u64,
    pub sha256: String,
}

/// The artifacts that are restored before the next run; empty if there are none.
pub async fn of_state(control: &Control, state: &str) -> Result<ArtifactSet, ArtifactsError> {
    let state = control.state_name(state);
    of_any_state(control, &state).await
}

pub(crate) async fn of_any_state(
    control: &Control,
    state: &StateName,
) -> Result<ArtifactSet, ArtifactsError> {
    let read = async || match control.store.artifacts_get(state).await? {
        None => Ok(ArtifactSet::default()),
        Some(kept) => control.store.artifacts_read(&kept).await,
    };
    read().await.map_err(|source| ArtifactsError::Read {
        state: state.clone(),
        source: Box::new(source),
    })
}

pub fn facts(set: &ArtifactSet) -> Vec<ArtifactFacts> {
    let facts = |(path, file): (&str, &Artifact)| ArtifactFacts {
        path: path.to_owned(),
        size: file.size(),
        sha256: sha256(file.expose()),
    };
    set.iter().map(facts).collect()
}

/// Copies a set into a directory, readable by its owner only. A different file there is replaced only with
/// `force`; all files are checked before the first one is written.
pub fn copy_out(set: &ArtifactSet, dir: &Path, force: bool) -> Result<(), ArtifactsError> {
    for (path, file) in set.iter() {
        let path = dir.join(path);
        let is_other = is_another(&path, file).map_err(|source| ArtifactsError::Look {
            path: path.clone(),
            source,
        })?;
        if is_other && !force {
            return Err(ArtifactsError::There { path });
        }
    }
    for (path, file) in set.iter() {
        let path = dir.join(path);
        write_out(&path, file).map_err(|source| ArtifactsError::Write { path, source })?;
    }
    Ok(())
}

/// Whether the path contains something other than this file.
fn is_another(path: &Path, file: &Artifact) -> io::Result<bool> {
    let found = match fs::symlink_metadata(path) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(false),
        found => found?,
    };
    Ok(!found.is_file() || found.len() != file.size() || fs::read(path)? != file.expose())
}

/// Makes `set` the artifacts to restore from now on, if `seen` is still the current set. An equal set is not
/// stored again.
pub(crate) async fn keep(
    control: &Control,
    state: &StateName,
    seen: Option<&str>,
    set: &ArtifactSet,
    run: Option<RunId>,
) -> Result<(), KeepArtifactsError> {
    let now = control.store.artifacts_get(state).await?;
    let is_there = match &now {
        None => set.is_empty(),
        // A set that cannot be read is replaced.
        Some(now) => {
            let read = control.store.artifacts_read(now).await;
            read.is_ok_and(|now| now == *set)
        }
    };
    if !is_there {
        control.store.artifacts_keep(state, seen, set, run).await?;
    }
    Ok(())
}
