//! Imports a state from another place. Its lineage and serial stay the same. The old place is locked first,
//! so that no client writes there meanwhile.
//!
//! Not here: backends that only the engine can access (`engine`), the plan that proves the import
//! (`changeset`), and a forced push by a person.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use drivers::process::engine_environment;
use drivers::secrets::{self, SecretContext, SecretError, SecretReference, SecretSources};
use drivers::snapshot::sha256;
use drivers::state_http::{HttpBackend, HttpBackendError, Locking, strip_credentials};
use model::base::actor::Actor;
use model::base::error::{Explain, NextStep, advice, command};
use model::base::ids::StackName;
use model::base::secret::Secret;
use model::project::Project;
use model::state::lock::LockInfo;
use model::state::secret_paths::SecretPaths;
use model::state::{ExpectedHead, StateFacts, StateName, StateVersion};
use store::{AcquireLockError, AppendError, Appended, ReleaseLockError, StateWriter, StoreError};

use crate::Control;
use crate::changeset::backends::BackendError;
use crate::project::open::OpenProject;
use crate::state::artifacts::{RestoreArtifactsError, RestoredArtifacts, backup};
use crate::state::http_backend_lock::{HttpLockError, lock_and_read};
use crate::transfer::export::ExportEntry;
use crate::transfer::export::holds_the_same;

mod engine;

/// The source or destination of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateLocation {
    File(PathBuf),
    /// A directory of state files, `NAME.tfstate` each.
    Directory(PathBuf),
    /// The backend that the stack's source names, accessed through the engine.
    Engine,
    /// The copy that terrane last saw while the state was in a backend of the engine.
    Copy,
    Http(String),
}

impl StateLocation {
    /// Parses a command-line argument: `engine`, `copy`, a URL, else a path.
    pub fn parse(word: &str, cwd: &Path) -> Self {
        match word {
            "engine" => return Self::Engine,
            "copy" => return Self::Copy,
            _ => {}
        }
        if word.starts_with("http://") || word.starts_with("https://") {
            return Self::Http(word.to_owned());
        }
        let path = cwd.join(word);
        if path.is_dir() {
            Self::Directory(path)
        } else {
            Self::File(path)
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("could not read the state file `{}`", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("`{}` is not the exported file: its digest does not match", path.display())]
    Changed { path: PathBuf },
    #[error("state `{state}` belongs to no stack here, so no engine can locate its backend")]
    NoStack { state: StateName },
    #[error("the stored state `{state}` is not a copy from a backend of the engine")]
    NoCopy { state: StateName },
    #[error("there is no state at {place}")]
    Nothing { place: String },
    #[error("there is no state at the backend that the source names")]
    NothingInSource { hint: Option<String> },
    #[error("state `{state}` already has versions here, with another lineage (serial {serial})")]
    Other { state: StateName, serial: u64 },
    #[error(transparent)]
    Http(#[from] HttpBackendError),
    #[error(transparent)]
    Held(HttpLockError),
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error("`--leave-locked`: {why}")]
    NoLocks { why: String },
    #[error(
        "the state of stack `{stack}` is stored here and is not a copy of its target's backend"
    )]
    Here { stack: StackName },
    #[error(
        "the state was imported, but terrane cannot end the engine that keeps its old home locked"
    )]
    EndOfEngine(#[source] io::Error),
    #[error("could not resolve the credential")]
    Credential(#[source] SecretError),
    #[error("could not lock state `{state}`")]
    Lock {
        state: StateName,
        source: Box<AcquireLockError>,
    },
    #[error("could not store state `{state}`")]
    Append {
        state: StateName,
        source: Box<AppendError>,
    },
    #[error("state `{state}` was imported, but terrane cannot unlock it")]
    Unlock {
        state: StateName,
        source: Box<ReleaseLockError>,
    },
    #[error(
        "state `{state}` was {}, but terrane cannot unlock its old home",
        .imported.map_or_else(|| "not imported".to_owned(), |serial| format!("imported (serial {serial})"))
    )]
    LeftLocked {
        state: StateName,
        /// The lock id at the old place; an engine does not report it.
        id: Option<String>,
        /// The serial of the imported state, if the import succeeded.
        imported: Option<u64>,
        source: Box<ImportError>,
    },
    #[error("could not read state `{state}`")]
    Store {
        state: StateName,
        source: Box<StoreError>,
    },
    #[error(transparent)]
    Artifacts(Box<RestoreArtifactsError>),
}

impl ImportError {
    /// Whether an interruption caused it.
    pub fn is_interruption(&self) -> bool {
        match self {
            Self::Held(err) => err.is_interruption(),
            Self::LeftLocked { source, .. } => source.is_interruption(),
            _ => false,
        }
    }
}

impl Explain for ImportError {
    fn next_steps(&self) -> Vec<NextStep> {
        vec![match self {
            Self::Other { .. } => {
                command("state push STACK FILE --force --reason …", "replaces it")
            }
            Self::LeftLocked { id, imported, .. } => {
                let done = match imported {
                    Some(_) => "; do not repeat the import",
                    None => "",
                };
                advice(match id {
                    Some(id) => format!(
                        "`{id}` is its lock: `force-unlock {id}` of an engine with that backend releases it{done}"
                    ),
                    None => format!(
                        "an engine that is refused there prints the lock's id: its `force-unlock ID` releases it{done}"
                    ),
                })
            }
            Self::Backend(err) => return err.next_steps(),
            Self::Http(err) => return err.next_steps(),
            Self::Held(err) => return err.next_steps(),
            Self::Here { stack } => command(
                format!("state export {stack} --to engine"),
                "exports it to the engine's backend",
            ),
            Self::NothingInSource { hint: Some(hint) } => advice(hint.clone()),
            Self::NoLocks { .. } => {
                advice("import without it, and make sure that no engine writes there any more")
            }
            Self::NoStack { .. } => advice("name a file, a directory or a URL"),
            Self::Changed { path } => {
                return vec![
                    advice(format!("restore `{}` as it was exported", path.display())),
                    command(
                        "state import STATE --from FILE",
                        "imports one file as it is",
                    ),
                ];
            }
            _ => return Vec::new(),
        }]
    }
}

/// The result of an import.
#[derive(Clone, Debug)]
pub struct Imported {
    pub version: StateVersion,
    /// Whether the same state was already here.
    pub was_here: bool,
    pub old_home: SourceLockState,
    /// How the old place was locked, if in an unusual way.
    pub locked_by: Option<String>,
}

/// In which condition the old place was left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceLockState {
    /// It cannot be locked.
    NoLock,
    /// It may support locks, but was not locked.
    NotLocked,
    /// It was not accessed: the state is the copy that was seen at this time.
    Seen { at: jiff::Timestamp },
    /// The state stays there, and the version here is a copy.
    Stays,
    /// It was locked while its state was read, and is unlocked again.
    Released,
    /// It is still locked with this lock; an engine does not report the id.
    LeftLocked { id: Option<String> },
}

/// An import of a stack's state.
pub struct ImportRequest<'a> {
    pub stack: &'a StackName,
    pub from: StateLocation,
    /// A secret reference, for HTTP.
    pub credential: Option<&'a str>,
    pub locking: &'a Locking,
    pub leave_locked: bool,
    /// The name of the caller, for the locks.
    pub who: &'a Actor,
}

/// An import of a state by name, whether or not a project here has it.
pub struct StateImport<'a> {
    pub state: &'a StateName,
    pub from: &'a StateLocation,
    /// A secret reference, for HTTP; its file paths are relative to `root`.
    pub credential: Option<&'a str>,
    pub root: &'a Path,
    pub locking: &'a Locking,
    pub leave_locked: bool,
    pub who: &'a Actor,
}

/// Reads the state of a stack from its present place and makes it the newest version here.
pub async fn import(
    control: &Control,
    open: &OpenProject,
    project: &Project,
    env: &BTreeMap<String, String>,
    import: &ImportRequest<'_>,
) -> Result<Imported, ImportError> {
    let state = control.state_name(&project.stacks[import.stack].state);
    if import.from != StateLocation::Engine {
        let by_name = StateImport {
            state: &state,
            from: &import.from,
            credential: import.credential,
            root: &open.root,
            locking: import.locking,
            leave_locked: import.leave_locked,
            who: import.who,
        };
        return import_state(control, env, &by_name).await;
    }
    engine::import(control, open, project, env, import).await
}

/// Reads a state from a file, a directory or an HTTP backend and makes it the newest version here.
pub async fn import_state(
    control: &Control,
    env: &BTreeMap<String, String>,
    import: &StateImport<'_>,
) -> Result<Imported, ImportError> {
    let state = import.state;
    let lock = lock_info(import.who, "migration source state");
    let (body, old_home, http) = match import.from {
        StateLocation::File(path) => (read_file(path)?, SourceLockState::NoLock, None),
        StateLocation::Directory(dir) => (
            read_in_directory(dir, state)?,
            SourceLockState::NoLock,
            None,
        ),
        StateLocation::Engine => {
            return Err(ImportError::NoStack {
                state: state.clone(),
            });
        }
        StateLocation::Copy => {
            let (body, at) = copy_of(control, state).await?;
            (body, SourceLockState::Seen { at }, None)
        }
        StateLocation::Http(address) => {
            let credential = credential(import.credential, import.root, env).await?;
            let http = HttpBackend::new(address, credential, import.locking.clone())?;
            let read = lock_and_read(&http, &lock).await;
            let Some(body) = read.map_err(|err| not_held(state, &lock, err))? else {
                let failed = ImportError::Nothing {
                    place: format!("`{}`", strip_credentials(address)),
                };
                return Err(match http.unlock(&lock).await {
                    Ok(()) => failed,
                    Err(_) => left_locked(state, &lock, None, failed),
                });
            };
            let id = Some(lock.id.clone());
            (body, SourceLockState::LeftLocked { id }, Some(http))
        }
    };
    let stored = store(control, state, &body, import.who).await;
    let mut old_home = old_home;
    let locked_by = http.as_ref().and_then(HttpBackend::locked_by);
    // After a failure nothing was imported, so the old place stays in use.
    if let Some(http) = http
        && (stored.is_err() || !import.leave_locked)
    {
        if let Err(err) = http.unlock(&lock).await {
            return Err(match stored {
                Ok((version, _)) => left_locked(state, &lock, Some(version.serial), err.into()),
                Err(failed) => left_locked(state, &lock, None, failed),
            });
        }
        old_home = if http.has_locks() {
            SourceLockState::Released
        } else {
            SourceLockState::NotLocked
        };
    }
    let (version, was_here) = stored?;
    Ok(Imported {
        version,
        was_here,
        old_home,
        locked_by,
    })
}

/// The newest version, if it is a copy, and when it was seen.
async fn copy_of(
    control: &Control,
    state: &StateName,
) -> Result<(Vec<u8>, jiff::Timestamp), ImportError> {
    let failed = |source| ImportError::Store {
        state: state.clone(),
        source: Box::new(source),
    };
    let head = control.store.state_head(state).await.map_err(failed)?;
    let copy = head
        .filter(StateVersion::is_copy)
        .ok_or_else(|| ImportError::NoCopy {
            state: state.clone(),
        })?;
    let body = control.store.state_version_read(&copy).await;
    Ok((body.map_err(failed)?, copy.created_at))
}

/// The error for an old place that could not be locked or read.
fn not_held(state: &StateName, lock: &LockInfo, err: HttpLockError) -> ImportError {
    match err {
        HttpLockError::Http(err) => ImportError::Http(err),
        HttpLockError::LeftLocked { source } => {
            let source = not_held(state, lock, *source);
            left_locked(state, lock, None, source)
        }
        err @ (HttpLockError::Interrupted | HttpLockError::Unanswered) => ImportError::Held(err),
    }
}

fn left_locked(
    state: &StateName,
    lock: &LockInfo,
    imported: Option<u64>,
    source: ImportError,
) -> ImportError {
    ImportError::LeftLocked {
        state: state.clone(),
        id: Some(lock.id.clone()),
        imported,
        source: Box::new(source),
    }
}

/// The result for one entry of an export of all states.
#[derive(Clone, Debug)]
pub enum ImportedEntry {
    State(Box<Imported>),
    /// The state is in a backend of the engine: the next run stores a copy again.
    Copy(StateName),
}

/// Imports all states that `transfer::export::export_all` wrote, of any project, and all artifacts. Nothing
/// is stored until all files are known to be unchanged.
pub async fn import_all(
    control: &Control,
    dir: &Path,
    who: &Actor,
) -> Result<(Vec<ImportedEntry>, RestoredArtifacts), ImportError> {
    let entries = read_list(&dir.join(LIST))?;
    let mut bodies = Vec::new();
    for entry in &entries {
        bodies.push(read_listed(dir, entry)?);
    }
    let artifacts = |err| ImportError::Artifacts(Box::new(err));
    let sets = backup::read(dir).map_err(artifacts)?;
    let mut brought = Vec::new();
    for (entry, body) in entries.into_iter().zip(bodies) {
        let state = StateName::new(entry.project, entry.state);
        brought.push(if entry.copy {
            ImportedEntry::Copy(state)
        } else {
            let (version, was_here) = store(control, &state, &body, who).await?;
            if entry.runs_only {
                let kept = control.store.state_reserve_for_runs(&state).await;
                kept.map_err(|source| ImportError::Store {
                    state: state.clone(),
                    source: Box::new(source),
                })?;
            }
            ImportedEntry::State(Box::new(Imported {
                version,
                was_here,
                old_home: SourceLockState::NoLock,
                locked_by: None,
            }))
        });
    }
    let artifacts = backup::bring(control, &sets).await.map_err(artifacts)?;
    Ok((brought, artifacts))
}

/// The list in an export of all states.
pub const LIST: &str = "states.json";

/// Maximum bytes of a state's name in its file name: file systems allow 255, and a suffix follows.
const NAME_ROOM: usize = 180;

/// The name of a state's file in a directory.
pub(crate) fn file_in_directory(name: &str) -> String {
    let whole = name.replace('/', "%2F");
    if whole.len() <= NAME_ROOM {
        return format!("{whole}.tfstate");
    }
    let digest = sha256(name.as_bytes());
    let begin = whole.floor_char_boundary(NAME_ROOM);
    format!("{}-{}.tfstate", &whole[..begin], &digest[..16])
}

/// Reads the state's file in a directory. In an export of all states, the list names the file, which must be
/// unchanged.
fn read_in_directory(dir: &Path, state: &StateName) -> Result<Vec<u8>, ImportError> {
    let list = dir.join(LIST);
    let entries = if list.exists() {
        read_list(&list)?
    } else {
        Vec::new()
    };
    let is_its = |entry: &&ExportEntry| entry.project == state.project && entry.state == state.name;
    match entries.iter().find(is_its) {
        Some(entry) => read_listed(dir, entry),
        None => read_file(&dir.join(file_in_directory(&state.name))),
    }
}

fn read_listed(dir: &Path, entry: &ExportEntry) -> Result<Vec<u8>, ImportError> {
    let path = dir.join(&entry.file);
    let body = read_file(&path)?;
    if sha256(&body) == entry.sha256 {
        Ok(body)
    } else {
        Err(ImportError::Changed { path })
    }
}

fn read_list(path: &Path) -> Result<Vec<ExportEntry>, ImportError> {
    serde_json::from_slice(&read_file(path)?).map_err(|err| ImportError::File {
        path: path.to_owned(),
        source: err.into(),
    })
}

/// Stores the state under a lock of its own; never replaces a state of another lineage. The version only gets
/// the secret paths of a copy of the same state here.
async fn store(
    control: &Control,
    state: &StateName,
    body: &[u8],
    who: &Actor,
) -> Result<(StateVersion, bool), ImportError> {
    let failed = |source: StoreError| ImportError::Store {
        state: state.clone(),
        source: Box::new(source),
    };
    let info = lock_info(who, "migration destination state");
    let head = control.store.state_head(state).await.map_err(failed)?;
    if let (Some(head), Ok(facts)) = (&head, StateFacts::read(body))
        && !head.is_copy()
        && head.contents != model::state::Contents::Nothing
        && !head.lineage.is_empty()
        && head.lineage != facts.lineage
    {
        return Err(ImportError::Other {
            state: state.clone(),
            serial: head.serial,
        });
    }
    // Another engine may have written the same content in another form.
    if let (Some(head), Ok(facts)) = (&head, StateFacts::read(body))
        && !head.is_copy()
        && head.serial == facts.serial
    {
        let here = control.store.state_version_bytes(head).await;
        if holds_the_same(&here.map_err(failed)?, body) {
            return Ok((head.clone(), true));
        }
    }
    let expected = ExpectedHead::Exactly(head.map(|head| head.version));
    let locked = control.store.lock_acquire(state, &info, None, expected);
    locked.await.map_err(|source| ImportError::Lock {
        state: state.clone(),
        source: Box::new(source),
    })?;
    let writer = StateWriter {
        lock_id: Some(info.id.clone()),
        surgery: true,
        actor: Some(who.clone()),
        secret_paths: Some(SecretPaths::default()),
        ..StateWriter::default()
    };
    let append = control
        .store
        .state_version_append(state, &writer, body.to_vec());
    let appended = append.await;
    let released = control.store.lock_release(state, &info.id).await;
    let appended = appended.map_err(|source| ImportError::Append {
        state: state.clone(),
        source: Box::new(source),
    })?;
    released.map_err(|source| ImportError::Unlock {
        state: state.clone(),
        source: Box::new(source),
    })?;
    Ok(match appended {
        Appended::New(version) => (version, false),
        Appended::Same(version) => (version, true),
    })
}

fn read_file(path: &Path) -> Result<Vec<u8>, ImportError> {
    std::fs::read(path).map_err(|source| ImportError::File {
        path: path.to_owned(),
        source,
    })
}

pub(crate) fn lock_info(who: &Actor, operation: &str) -> LockInfo {
    LockInfo {
        id: uuid::Uuid::new_v4().to_string(),
        operation: operation.to_owned(),
        who: who.name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        created: jiff::Timestamp::now().to_string(),
        ..LockInfo::default()
    }
}

/// Resolves the credential now; it is never stored.
pub(crate) async fn credential(
    reference: Option<&str>,
    root: &Path,
    env: &BTreeMap<String, String>,
) -> Result<Option<Secret>, ImportError> {
    let Some(reference) = reference else {
        return Ok(None);
    };
    let failed = ImportError::Credential;
    let around = SecretContext {
        asker: env,
        root,
        env: &engine_environment(env, true),
        sources: &SecretSources::default(),
    };
    let reference: SecretReference = reference.parse().map_err(failed)?;
    let found = secrets::resolve(&reference, around).await;
    found.map(Some).map_err(ImportError::Credential)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::surgery::tests::{Place as Home, full, network};
    use crate::transfer::export::export_all;

    #[tokio::test]
    async fn what_only_runs_write_stays_so() {
        let (from, to, dir) = (
            Home::new().await,
            Home::new().await,
            tempfile::tempdir().unwrap(),
        );
        from.write_body(full(1, "v")).await;
        let reserved = from.control.store.state_reserve_for_runs(&network()).await;
        reserved.unwrap();
        export_all(&from.control, dir.path()).await.unwrap();
        import_all(&to.control, dir.path(), &Actor::named("me"))
            .await
            .unwrap();
        let row = to.control.store.state_get(&network()).await.unwrap();
        assert!(row.unwrap().runs_only);
    }

    #[test]
    fn every_name_of_a_state_has_a_file_of_its_own() {
        assert_eq!(file_in_directory("a/b"), "a%2Fb.tfstate");
        let long = |end: &str| file_in_directory(&format!("{}{end}", "\u{e9}".repeat(120)));
        assert!(long("a").len() < 220, "{}", long("a"));
        assert_ne!(long("a"), long("b"));
    }
}
