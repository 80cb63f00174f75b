//! Exports states into a file, a backend of the engine (`engine`) or a running HTTP backend. Or exports all
//! of them into a directory, as they were at one moment, while others continue to write.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use drivers::snapshot::sha256;
use drivers::state_http::{HttpBackend, HttpBackendError, Locking, strip_credentials};
use jiff::Timestamp;
use model::base::actor::Actor;
use model::base::error::{ErrorKind, Explain, NextStep, advice, command};
use model::base::ids::StackName;
use model::state::{HeldLock, StateFacts, StateName, StateVersion};
use serde::{Deserialize, Serialize};
use store::{AcquireLockError, AppendError, ReleaseLockError, StoreError};

use crate::Control;
use crate::changeset::backends::BackendError;
use crate::state::artifacts::{self, ArtifactsError, backup};
use crate::state::http_backend_lock::{HttpLockError, lock_and_read};
use crate::state::queries::{self, ReadStateError};
use crate::transfer::import::{
    ImportError, LIST, StateLocation, credential, file_in_directory, lock_info,
};

mod engine;

pub use engine::export as export_to_engine;
pub(crate) use engine::holds_the_same;

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Read(#[from] ReadStateError),
    #[error("could not list the states")]
    List(#[source] StoreError),
    #[error("could not write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("`{}` already exists", path.display())]
    There { path: PathBuf },
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error("the state is in its backend, but terrane cannot store a copy of it")]
    NoCopy(#[source] Box<AppendError>),
    #[error(transparent)]
    Http(#[from] HttpBackendError),
    #[error(transparent)]
    Held(HttpLockError),
    #[error("the state of stack `{stack}` is locked by {}", .holder.info)]
    Locked {
        stack: StackName,
        holder: Box<HeldLock>,
    },
    #[error("could not lock the state of stack `{stack}`")]
    Lock {
        stack: StackName,
        source: Box<AcquireLockError>,
    },
    #[error("the state of stack `{stack}` is in the backend, but terrane cannot unlock it here")]
    Unlock {
        stack: StackName,
        source: Box<ReleaseLockError>,
    },
    #[error(
        "the state of stack `{stack}` here is a copy of its backend from {}, and {place} is empty",
        seen_at.strftime("%F %H:%M UTC")
    )]
    OfCopy {
        stack: StackName,
        place: String,
        seen_at: Timestamp,
    },
    #[error("{place} holds {what}")]
    InTheWay {
        place: String,
        what: String,
        /// The stack whose target names this place: either of the two states may be the right one.
        stack: Option<StackName>,
    },
    #[error(
        "the state was {}written to {place}, which terrane cannot unlock",
        if *.is_written { "" } else { "not " }
    )]
    LeftLocked {
        place: String,
        id: String,
        is_written: bool,
        source: Box<ExportError>,
    },
    #[error(transparent)]
    Credential(#[from] ImportError),
    #[error(transparent)]
    Artifacts(#[from] ArtifactsError),
}

impl ExportError {
    /// Whether an interruption caused it.
    pub fn is_interruption(&self) -> bool {
        match self {
            Self::Held(err) => err.is_interruption(),
            Self::LeftLocked { source, .. } => source.is_interruption(),
            _ => false,
        }
    }
}

impl Explain for ExportError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Locked { .. } | Self::OfCopy { .. } => ErrorKind::Refused,
            _ => ErrorKind::Failed,
        }
    }

    fn next_steps(&self) -> Vec<NextStep> {
        let nothing = || advice("nothing was written");
        match self {
            Self::There { .. } => vec![advice("name a path that does not exist")],
            Self::OfCopy { stack, .. } => vec![
                advice(
                    "nothing was written, because another client may have written to the old backend since",
                ),
                command(
                    format!("plan {stack}"),
                    "reads the state there again, if the target names that backend again",
                ),
                advice("if it is gone or unchanged, repeat this command with `--copy`"),
            ],
            Self::InTheWay { stack: None, .. } => vec![
                nothing(),
                advice("name another address, or remove the state there first"),
            ],
            Self::InTheWay {
                stack: Some(stack), ..
            } => vec![
                advice("nothing was written: each state may have resources that the other lacks"),
                command(
                    format!("state push {stack} FILE --force --reason …"),
                    "imports the state there from a file, if that one is right",
                ),
                command(
                    format!("state pull {stack}"),
                    "prints ours for the engine's `state push -force`, if ours is right",
                ),
                advice("then export it again"),
            ],
            Self::Locked { stack, holder } => match holder.run {
                Some(run) => vec![
                    advice(format!(
                        "nothing was written: wait for run {run}, then export again"
                    )),
                    command("lock list", "shows whether it is alive"),
                ],
                None => vec![
                    advice(
                        "nothing was written: wait for the lock; a killed command leaves its lock",
                    ),
                    command(
                        format!("lock break {stack} --reason …"),
                        "releases the lock of a process that is gone",
                    ),
                ],
            },
            Self::Lock { .. } => vec![nothing(), advice("export it again")],
            Self::Unlock { stack, .. } => vec![
                command(format!("lock break {stack} --reason …"), "unlocks it"),
                advice("then export it again"),
            ],
            Self::NoCopy(_) => vec![advice(
                "export it again: that stores a copy, and exports what was written here meanwhile",
            )],
            Self::LeftLocked { id, .. } => vec![advice(format!(
                "`{id}` is its lock: `force-unlock {id}` of an engine with that backend releases it"
            ))],
            Self::Backend(err) => err.next_steps(),
            Self::Credential(err) => err.next_steps(),
            Self::Http(err) => err.next_steps(),
            Self::Held(err) => err.next_steps(),
            Self::Read(_) | Self::List(_) | Self::Write { .. } | Self::Artifacts(_) => Vec::new(),
        }
    }
}

/// The result of an export.
#[derive(Clone, Debug)]
pub struct Exported {
    pub version: StateVersion,
    pub place: String,
    /// The serial at the destination: an engine's backend may increase it.
    pub serial: u64,
    /// Whether the state was already there.
    pub was_there: bool,
    /// The number of secret paths in the state. The exported file contains only the engine's own marks.
    pub secret_paths: usize,
    /// How the backend was locked, if in an unusual way.
    pub locked_by: Option<String>,
}

/// An export of a state by name, whether or not a project here has it.
pub struct StateExport<'a> {
    pub state: &'a StateName,
    pub to: &'a StateLocation,
    /// A secret reference, for HTTP; its file paths are relative to `root`.
    pub credential: Option<&'a str>,
    pub root: &'a Path,
    pub locking: &'a Locking,
    pub who: &'a Actor,
}

/// Writes the newest version of a state to a file, a directory or an HTTP backend.
pub async fn export_state(
    control: &Control,
    env: &BTreeMap<String, String>,
    export: &StateExport<'_>,
) -> Result<Exported, ExportError> {
    let state = export.state;
    let (version, body) = queries::read(control, state, None).await?;
    let secret_paths = count_secret_paths(control, &version).await?;
    let (mut locked_by, mut was_there) = (None, false);
    let place = match export.to {
        StateLocation::File(path) => write_new(path, &body)?,
        StateLocation::Directory(dir) => {
            write_new(&dir.join(file_in_directory(&state.name)), &body)?
        }
        StateLocation::Engine | StateLocation::Copy => {
            let state = state.clone();
            return Err(ImportError::NoStack { state }.into());
        }
        StateLocation::Http(address) => {
            let credential = credential(export.credential, export.root, env).await?;
            let http = HttpBackend::new(address, credential, export.locking.clone())?;
            let lock = lock_info(export.who, "migration destination state");
            let place = format!("`{}`", strip_credentials(address));
            let there = lock_and_read(&http, &lock).await;
            let there = there.map_err(|err| not_held(&place, &lock.id, err))?;
            locked_by = http.locked_by();
            let there = there.as_deref();
            was_there = there.is_some_and(|there| {
                let serial = StateFacts::read(there).map(|facts| facts.serial);
                serial.is_ok_and(|serial| serial == version.serial) && holds_the_same(there, &body)
            });
            let written = async {
                if was_there {
                    return Ok(());
                }
                if let Some(what) = there.and_then(|there| in_the_way(there, &body)) {
                    return Err(ExportError::InTheWay {
                        place: place.clone(),
                        what,
                        stack: None,
                    });
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
                    source: Box::new(match written {
                        Err(failed @ ExportError::Http(_)) => failed,
                        _ => err.into(),
                    }),
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
        was_there,
        secret_paths,
        locked_by,
    })
}

async fn count_secret_paths(
    control: &Control,
    version: &StateVersion,
) -> Result<usize, ReadStateError> {
    let content = control.store.state_version_content(version).await;
    let (_, paths) = content.map_err(|source| ReadStateError::Store {
        state: version.state.clone(),
        source: Box::new(source),
    })?;
    Ok(paths.len())
}

/// The error for a backend that could not be locked or read.
fn not_held(place: &str, id: &str, err: HttpLockError) -> ExportError {
    match err {
        HttpLockError::Http(err) => ExportError::Http(err),
        HttpLockError::LeftLocked { source } => ExportError::LeftLocked {
            place: place.to_owned(),
            id: id.to_owned(),
            is_written: false,
            source: Box::new(not_held(place, id, *source)),
        },
        err @ (HttpLockError::Interrupted | HttpLockError::Unanswered) => ExportError::Held(err),
    }
}

/// Describes what a backend contains, if ours would replace it without being its successor.
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
    newer_words(&there, &ours)
}

/// The same for two states of one lineage.
fn newer_words(there: &StateFacts, ours: &StateFacts) -> Option<String> {
    let is_newer = there.serial >= ours.serial;
    is_newer.then(|| {
        format!(
            "serial {} already, and ours is {}",
            there.serial, ours.serial
        )
    })
}

/// One state in an export of all states.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExportEntry {
    pub project: String,
    pub state: String,
    pub file: String,
    pub version: i64,
    pub serial: u64,
    pub lineage: String,
    /// Whether the state is in a backend of the engine, and this is the copy last seen there.
    pub copy: bool,
    /// Whether only runs may write it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub runs_only: bool,
    pub sha256: String,
}

/// Exports all states of the home as they were at one moment: their heads are read at once, and versions
/// never change. Artifacts follow, as they are then. The list is written last: a directory without it is
/// incomplete.
pub async fn export_all(control: &Control, dir: &Path) -> Result<Vec<ExportEntry>, ExportError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ExportError::Write { path, source }
    };
    if fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(ExportError::There {
            path: dir.to_owned(),
        });
    }
    // A backup without acknowledged versions could replace a backup that has them.
    let store = &control.store;
    store.state_check_all_current().map_err(ExportError::List)?;
    private_dir(dir).map_err(failed(dir))?;
    let rows = control
        .store
        .state_list()
        .await
        .map_err(ExportError::List)?;
    let mut entries = Vec::new();
    for row in rows {
        let Some(head) = row.head else { continue };
        let (version, body) = queries::read(control, &row.name, Some(head)).await?;
        let file = file_of(control, &row.name);
        let path = dir.join(&file);
        if let Some(parent) = path.parent() {
            private_dir(parent).map_err(failed(parent))?;
        }
        write_new(&path, &body)?;
        entries.push(ExportEntry {
            project: row.name.project,
            state: row.name.name,
            file,
            version: version.version,
            serial: version.serial,
            copy: version.is_copy(),
            runs_only: row.runs_only,
            lineage: version.lineage,
            sha256: sha256(&body),
        });
    }
    export_artifacts(control, dir).await?;
    let list = serde_json::to_vec_pretty(&entries).unwrap_or_default();
    write_new(&dir.join(LIST), &list)?;
    Ok(entries)
}

/// The artifacts of each state are stored beside its file.
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

/// States of this project are at the top, where `state import --from DIR` expects them.
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

/// Writes a file durably, readable by its owner only, and never overwrites another one.
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
