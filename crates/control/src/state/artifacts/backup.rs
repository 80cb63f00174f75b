//! Artifacts in an export of all states: in plain text beside the state files, with their own list.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use drivers::snapshot::sha256;
use model::stage::artifact::{Artifact, ArtifactRefusal, ArtifactSet};
use model::state::StateName;
use serde::{Deserialize, Serialize};
use store::KeepArtifactsError;

use super::{ArtifactsError, keep, of_any_state};
use crate::Control;

/// The list of artifacts, beside that of the states.
pub(crate) const LIST: &str = "artifacts.json";

/// One artifact in an export of all states.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ArtifactEntry {
    project: String,
    state: String,
    /// Relative to the stack's directory.
    path: String,
    /// Relative to the directory of the export.
    pub(crate) file: String,
    mode: u32,
    sha256: String,
}

#[derive(Debug, thiserror::Error)]
pub enum RestoreArtifactsError {
    #[error("could not read `{}`", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("`{}` is not the exported file: its digest does not match", path.display())]
    Changed { path: PathBuf },
    #[error("cannot keep `{}`", path.display())]
    Refused {
        path: PathBuf,
        source: ArtifactRefusal,
    },
    #[error(transparent)]
    Read(#[from] ArtifactsError),
    #[error("cannot store the artifacts of state `{state}`")]
    Keep {
        state: StateName,
        source: Box<KeepArtifactsError>,
    },
}

/// The number of restored files, and the states that keep other artifacts.
#[derive(Debug, Default)]
pub struct RestoredArtifacts {
    pub files: usize,
    pub stay: Vec<StateName>,
}

/// The files of one state, and the path of each below `dir`.
pub(crate) fn entries<'a>(
    state: &'a StateName,
    set: &'a ArtifactSet,
    dir: &str,
) -> impl Iterator<Item = (ArtifactEntry, &'a Artifact)> {
    set.iter().map(move |(path, file)| {
        let entry = ArtifactEntry {
            project: state.project.clone(),
            state: state.name.clone(),
            path: path.to_owned(),
            file: format!("{dir}/{path}"),
            mode: file.mode(),
            sha256: sha256(file.expose()),
        };
        (entry, file)
    })
}

/// The artifacts in an export; an older export has no list.
pub(crate) fn read(dir: &Path) -> Result<BTreeMap<StateName, ArtifactSet>, RestoreArtifactsError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| RestoreArtifactsError::File { path, source }
    };
    let list = dir.join(LIST);
    let bytes = match fs::read(&list) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        bytes => bytes.map_err(failed(&list))?,
    };
    let entries: Result<Vec<ArtifactEntry>, _> = serde_json::from_slice(&bytes);
    let mut sets: BTreeMap<StateName, ArtifactSet> = BTreeMap::new();
    for entry in entries.map_err(|err| failed(&list)(err.into()))? {
        let path = dir.join(&entry.file);
        let content = fs::read(&path).map_err(failed(&path))?;
        if sha256(&content) != entry.sha256 {
            return Err(RestoreArtifactsError::Changed { path });
        }
        let set = sets.entry(StateName::new(entry.project, entry.state));
        let file = Artifact::new(entry.mode, content);
        let added = set.or_default().add(&entry.path, file);
        added.map_err(|source| RestoreArtifactsError::Refused { path, source })?;
    }
    Ok(sets)
}

/// Stores the artifacts as if their stacks had just written them. A state that has other artifacts here keeps
/// those.
pub(crate) async fn bring(
    control: &Control,
    sets: &BTreeMap<StateName, ArtifactSet>,
) -> Result<RestoredArtifacts, RestoreArtifactsError> {
    let mut brought = RestoredArtifacts::default();
    for (state, set) in sets {
        let here = of_any_state(control, state).await?;
        if !here.is_empty() && here != *set {
            brought.stay.push(state.clone());
            continue;
        }
        let seen = control.store.artifacts_get(state).await;
        let failed = |source| RestoreArtifactsError::Keep {
            state: state.clone(),
            source: Box::new(source),
        };
        let seen = seen.map_err(|err| failed(err.into()))?;
        let seen = seen.as_ref().map(|seen| seen.kept.as_str());
        keep(control, state, seen, set, None)
            .await
            .map_err(failed)?;
        brought.files += set.len();
    }
    Ok(brought)
}
