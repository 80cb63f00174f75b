//! Taking states out: into a file, a backend of the engine or a running HTTP backend; or all of them into a
//! directory, as they were at one moment, while others go on writing.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use drivers::snapshot::sha256;
use drivers::state_http::{HttpBackend, HttpBackendError, nameable};
use model::ids::StackName;
use model::masking::Mask;
use model::project::Project;
use model::secret::Secret;
use model::state::passages::passages;
use model::state::resources::Document;
use model::state::{StateFacts, StateName, StateVersion};
use serde::{Deserialize, Serialize};
use store::StoreError;

use crate::Control;
use crate::artifacts::{self, ArtifactsError, backup};
use crate::backends::{BackendError, Seat, Which};
use crate::projects::OpenProject;
use crate::state_import::{
    ImportError, LIST, Notes, Place, credential, file_in_directory, lock_info, notes_beside,
};
use crate::states::ask::{AskStateError, Digests};
use crate::states::{self, ReadStateError, index};

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Read(#[from] ReadStateError),
    #[error("could not list the states")]
    List(#[source] StoreError),
    #[error("could not read where secrets stand in the state")]
    Hidden(#[source] StoreError),
    #[error("could not find out what was sensitive in earlier versions")]
    Earlier(#[source] Box<AskStateError>),
    #[error("could not write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("`{}` is there already", path.display())]
    There { path: PathBuf },
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error(transparent)]
    Http(#[from] HttpBackendError),
    #[error("{place} holds {what}")]
    InTheWay { place: String, what: String },
    #[error(
        "the state was {}written to {place}, which could not be unlocked",
        if *.is_written { "" } else { "not " }
    )]
    LeftLocked {
        place: String,
        id: String,
        is_written: bool,
        source: HttpBackendError,
    },
    #[error(transparent)]
    Credential(#[from] ImportError),
    #[error(transparent)]
    Artifacts(#[from] ArtifactsError),
}

impl ExportError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::There { .. } => Some("name a path that is free".to_owned()),
            Self::InTheWay { .. } => Some(
                "nothing was written; if that one may go, remove it there first, or name another address"
                    .to_owned(),
            ),
            Self::LeftLocked { id, .. } => Some(format!(
                "`{id}` is its lock: `force-unlock {id}` of an engine with that backend frees it"
            )),
            Self::Backend(err) => err.hint(),
            Self::Credential(err) => err.hint(),
            Self::Read(_)
            | Self::List(_)
            | Self::Hidden(_)
            | Self::Earlier(_)
            | Self::Write { .. }
            | Self::Http(_)
            | Self::Artifacts(_) => None,
        }
    }
}

/// What was written, and which serial it has there.
#[derive(Clone, Debug)]
pub struct Exported {
    pub version: StateVersion,
    pub place: String,
    /// An engine's backend counts on.
    pub serial: u64,
    /// Where it says which places hold secrets, if any do.
    pub notes: Option<PathBuf>,
}

/// Writes the newest version of a stack's state to where it is wanted.
#[expect(clippy::too_many_arguments, reason = "each says one thing")]
pub async fn export(
    control: &Control,
    open: &OpenProject,
    project: &Project,
    env: &BTreeMap<String, String>,
    stack: &StackName,
    to: &Place,
    credential_reference: Option<&str>,
    who: &str,
) -> Result<Exported, ExportError> {
    let state = control.state_name(&project.stacks[stack].state);
    if *to != Place::Engine {
        let by_name = StateExport {
            state: &state,
            to,
            credential: credential_reference,
            root: &open.root,
            who,
        };
        return export_state(control, env, &by_name).await;
    }
    let (version, body) = states::read(control, &state, None).await?;
    let seat = Seat::open(control, open, project, stack, env, Which::Source).await?;
    let there = seat.push(&body, false).await?;
    let serial = StateFacts::read(&there).map_or(version.serial, |facts| facts.serial);
    Ok(Exported {
        version,
        place: "the backend that the source names".to_owned(),
        serial,
        notes: None,
    })
}

/// A state by its name, whether a project here knows it or not.
pub struct StateExport<'a> {
    pub state: &'a StateName,
    pub to: &'a Place,
    /// A secret reference, for HTTP; files in it are looked for below `root`.
    pub credential: Option<&'a str>,
    pub root: &'a Path,
    pub who: &'a str,
}

/// Writes the newest version of a state to a file, a directory or an HTTP backend.
pub async fn export_state(
    control: &Control,
    env: &BTreeMap<String, String>,
    export: &StateExport<'_>,
) -> Result<Exported, ExportError> {
    let state = export.state;
    let (version, body) = states::read(control, state, None).await?;
    let mut notes = None;
    let place = match export.to {
        Place::File(path) => {
            notes = write_notes(control, &version, &body, path).await?;
            write_new(path, &body)?
        }
        Place::Directory(dir) => {
            let path = dir.join(file_in_directory(&state.name));
            notes = write_notes(control, &version, &body, &path).await?;
            write_new(&path, &body)?
        }
        Place::Engine => {
            let state = state.clone();
            return Err(ImportError::NoStack { state }.into());
        }
        Place::Http(address) => {
            let credential = credential(export.credential, export.root, env).await?;
            let http = HttpBackend::new(address, credential)?;
            let lock = lock_info(export.who, "migration destination state");
            http.lock(&lock).await?;
            let place = format!("`{}`", nameable(address));
            let written = async {
                let there = http.read().await?;
                if let Some(what) = there.and_then(|there| in_the_way(&there, &body)) {
                    let place = place.clone();
                    return Err(ExportError::InTheWay { place, what });
                }
                Ok(http.write(&lock.id, body).await?)
            };
            let written = written.await;
            let freed = http.unlock(&lock).await;
            if let Err(err) = freed {
                return Err(ExportError::LeftLocked {
                    place,
                    id: lock.id,
                    is_written: written.is_ok(),
                    source: match written {
                        Err(ExportError::Http(source)) => source,
                        _ => err,
                    },
                });
            }
            written?;
            place
        }
    };
    Ok(Exported {
        serial: version.serial,
        version,
        place,
        notes,
    })
}

/// What a backend holds that ours would replace and does not come from.
fn in_the_way(there: &[u8], ours: &[u8]) -> Option<String> {
    if there == ours || there.is_empty() {
        return None;
    }
    let (Ok(there), Ok(ours)) = (StateFacts::read(there), StateFacts::read(ours)) else {
        return Some("something else already".to_owned());
    };
    if there.lineage != ours.lineage {
        return Some(format!(
            "a state of another lineage, serial {}",
            there.serial
        ));
    }
    let is_newer = there.serial >= ours.serial;
    is_newer.then(|| {
        format!(
            "serial {} already, and ours is {}",
            there.serial, ours.serial
        )
    })
}

/// Where secrets stand is listed beside a state's file, before it is there.
async fn write_notes(
    control: &Control,
    version: &StateVersion,
    body: &[u8],
    path: &Path,
) -> Result<Option<PathBuf>, ExportError> {
    let notes = notes(control, version, body).await?;
    if notes.is_empty() {
        return Ok(None);
    }
    if path.exists() {
        let path = path.to_owned();
        return Err(ExportError::There { path });
    }
    let beside = notes_beside(path);
    let list = notes.beside(body);
    write_new(&beside, &list)?;
    Ok(Some(beside))
}

/// What another home has to know of a version's secrets. Of those that were sensitive only in other versions, which stay
/// behind, it says where they stand in this one.
async fn notes(
    control: &Control,
    version: &StateVersion,
    body: &[u8],
) -> Result<Notes, ExportError> {
    let store = &control.store;
    let hidden = store.hidden_list(&version.state, Some(version.version));
    let hidden = hidden.await.map_err(ExportError::Hidden)?;
    let earlier = |err| ExportError::Earlier(Box::new(err));
    let digests = Digests::of(store).await.map_err(earlier)?;
    let secrets = index::secrets(store, &version.state, &digests).await;
    let mut secrets = secrets.map_err(earlier)?;
    if let Ok(document) = Document::read(body) {
        let own = document.hiding(&hidden).sensitive_values();
        let own: HashSet<&str> = own.iter().map(Secret::expose).collect();
        secrets.retain(|secret| !own.contains(secret.expose()));
    }
    let earlier = passages(body, &Mask::new(&secrets));
    Ok(Notes { hidden, earlier })
}

/// One state of a directory of all.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    pub project: String,
    pub state: String,
    pub file: String,
    pub version: i64,
    pub serial: u64,
    pub lineage: String,
    /// It lives in a backend of the engine; this is what was seen there.
    pub copy: bool,
    pub sha256: String,
    #[serde(flatten)]
    pub notes: Notes,
}

/// Writes every state of the home, as all of them were at one moment: their heads are read at once, and
/// versions never change. Their artifacts come after, as they are then. The list is written last: a directory without
/// it is not whole.
pub async fn export_all(control: &Control, dir: &Path) -> Result<Vec<Entry>, ExportError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ExportError::Write { path, source }
    };
    if fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(ExportError::There {
            path: dir.to_owned(),
        });
    }
    // A backup that lacks what was acknowledged would take the place of one that has it.
    let store = &control.store;
    store
        .state_check_all_current()
        .await
        .map_err(ExportError::List)?;
    private_dir(dir).map_err(failed(dir))?;
    let rows = control
        .store
        .state_list()
        .await
        .map_err(ExportError::List)?;
    let mut entries = Vec::new();
    for row in rows {
        let Some(head) = row.head else { continue };
        let (version, body) = states::read(control, &row.name, Some(head)).await?;
        let file = file_of(control, &row.name);
        let path = dir.join(&file);
        if let Some(parent) = path.parent() {
            private_dir(parent).map_err(failed(parent))?;
        }
        write_new(&path, &body)?;
        let notes = notes(control, &version, &body).await?;
        entries.push(Entry {
            project: row.name.project,
            state: row.name.name,
            file,
            version: version.version,
            serial: version.serial,
            copy: version.is_copy(),
            lineage: version.lineage,
            sha256: sha256(&body),
            notes,
        });
    }
    export_artifacts(control, dir).await?;
    let list = serde_json::to_vec_pretty(&entries).unwrap_or_default();
    write_new(&dir.join(LIST), &list)?;
    Ok(entries)
}

/// Those of each state lie beside its file.
async fn export_artifacts(control: &Control, dir: &Path) -> Result<(), ExportError> {
    let kept = control.store.artifacts_list().await;
    let mut entries = Vec::new();
    for kept in kept.map_err(ExportError::List)? {
        let set = artifacts::of_any_state(control, &kept.state).await?;
        let beside = file_of(control, &kept.state);
        let beside = beside.strip_suffix(".tfstate").unwrap_or(&beside);
        let beside = format!("{beside}.artifacts");
        for (entry, file) in backup::entries(&kept.state, &set, &beside) {
            let path = dir.join(&entry.file);
            let parent = path.parent().unwrap_or(dir);
            private_dir(parent).map_err(|source| ExportError::Write {
                path: parent.to_owned(),
                source,
            })?;
            write_new(&path, file.expose())?;
            entries.push(entry);
        }
    }
    if !entries.is_empty() {
        let list = serde_json::to_vec_pretty(&entries).unwrap_or_default();
        write_new(&dir.join(backup::LIST), &list)?;
    }
    Ok(())
}

/// States of this project lie at the top, as `state import --from DIR` looks for them.
fn file_of(control: &Control, state: &StateName) -> String {
    let name = file_in_directory(&state.name);
    if state.project == control.home.project() {
        name
    } else {
        let project = state.project.replace('/', "%2F");
        format!("other/{project}/{name}")
    }
}

fn private_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// For us alone, durable, and never over something else.
fn write_new(path: &Path, body: &[u8]) -> Result<String, ExportError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => ExportError::There {
            path: path.to_owned(),
        },
        _ => ExportError::Write {
            path: path.to_owned(),
            source,
        },
    };
    let mut options = File::options();
    let mut file = options
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .map_err(failed)?;
    file.write_all(body)
        .and_then(|()| file.sync_all())
        .map_err(failed)?;
    Ok(format!("`{}`", path.display()))
}
