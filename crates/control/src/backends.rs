//! Backends of the engines, spoken to through the engine itself: what a stack's state is there, who has it
//! locked, and copies of what was seen.
//!
//! Not here: runs (`runner`), which keep a copy of every state they see by [`keep_copy`].

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use drivers::engine::{
    Engine, EngineCall, Init, LocateError, LockFile, PluginCache, PluginCacheError,
};
use drivers::process::{CaptureError, Captured, Environment};
use model::break_glass::Act;
use model::engine_event::{EngineEvent, Severity};
use model::ids::{RunId, StackName};
use model::lock::LockInfo;
use model::masking::{Mask, cut};
use model::project::{Backend, Project};
use model::state::Contents;
use store::{AppendError, NewBreakGlass, StoreError};
use tempfile::TempDir;

use crate::asker::{Asker, GatherError};
use crate::changesets::{self, PrepareError};
use crate::engine_words::without_colours;
use crate::engines::{self, LayOutSourceError};
use crate::hidden::HiddenPlaces;
use crate::projects::OpenProject;
use crate::reasons::without_secrets;
use crate::{Control, runner};

#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    #[error("stack `{stack}` keeps its state in terrane's own state service")]
    Ours { stack: StackName },
    #[error("the source of stack `{stack}` names no backend")]
    NoneInSource { stack: StackName },
    #[error(transparent)]
    Locate(#[from] LocateError),
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error(transparent)]
    Gather(#[from] GatherError),
    #[error("{message}")]
    Values {
        message: String,
        hint: Option<String>,
    },
    #[error("could not copy the source for the engine")]
    Copy(#[from] LayOutSourceError),
    #[error("could not write a file for the engine")]
    File(#[from] io::Error),
    #[error("could not use the shared providers")]
    Cache(#[from] PluginCacheError),
    #[error("could not run the engine")]
    Call(#[from] CaptureError),
    #[error("the engine could not {deed} for stack `{stack}`: {said}")]
    Refused {
        deed: &'static str,
        stack: StackName,
        said: String,
    },
    #[error(
        "a lock in `{kind}` ends with the connection that holds it, and nobody else can break it"
    )]
    Unbreakable { kind: String },
    #[error("could not record it")]
    Record(#[source] StoreError),
}

impl BackendError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Ours { .. } => None,
            Self::NoneInSource { .. } => {
                Some("name where the state is: a file, a directory or a URL".to_owned())
            }
            Self::Locate(err) => Some(err.hint()),
            Self::Prepare(err) => err.hint(),
            Self::Values { hint, .. } => hint.clone(),
            Self::Gather(err) => err.hint(),
            Self::Unbreakable { .. } => {
                Some("end the engine that holds it, or its session in the database".to_owned())
            }
            Self::Copy(_)
            | Self::File(_)
            | Self::Cache(_)
            | Self::Call(_)
            | Self::Refused { .. }
            | Self::Record(_) => None,
        }
    }
}

/// Which backend of a stack is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one of its target.
    Target,
    /// The one that its source names, whatever its target says.
    Source,
}

/// An engine that was initialised for a stack's backend, in a directory of its own.
pub struct Seat {
    stack: StackName,
    engine: Engine,
    dir: PathBuf,
    environment: Environment,
    scratch: TempDir,
}

impl Seat {
    /// Lays the source out and initialises it; the user's tree and the runs' trees are left alone.
    pub async fn open(
        control: &Control,
        open: &OpenProject,
        project: &Project,
        stack: &StackName,
        env: &BTreeMap<String, String>,
        which: Which,
    ) -> Result<Self, BackendError> {
        let one = BTreeSet::from([stack.clone()]);
        let path = env.get("PATH").map(OsStr::new);
        let found = engines::find(
            changesets::requirements(project, &one),
            path,
            &control.cache,
        )?;
        let mut spec = changesets::spec_alone(open, project, &found, stack)?;
        match (which, &spec.target.backend) {
            (Which::Target, Backend::Terrane) => {
                return Err(BackendError::Ours {
                    stack: stack.clone(),
                });
            }
            (Which::Source, _) if spec.own_backend.is_none() => {
                return Err(BackendError::NoneInSource {
                    stack: stack.clone(),
                });
            }
            (Which::Source, _) => spec.target.backend = Backend::Terrane, // no settings of the target
            (Which::Target, Backend::Engine { .. }) => {}
        }
        spec.stack.inputs.clear();
        let specs = std::slice::from_ref(&spec);
        let asker = Asker::gather(env, &open.root, specs, &open.loaded.secrets)?;
        let values = runner::for_backend(control, &spec, &asker).await;
        let values = values.map_err(|failure| {
            let (message, hint) = failure.into_words();
            BackendError::Values { message, hint }
        })?;
        let scratch = tempfile::tempdir()?;
        let dir = engines::lay_out(open, scratch.path())?.join(&spec.stack.path);
        if which == Which::Target {
            runner::write_override(&dir, &spec)?;
        }
        let seat = Self {
            stack: stack.clone(),
            engine: found[stack].clone(),
            dir,
            environment: values.environment,
            scratch,
        };
        let config: Vec<(String, String)> = values.settings.into_iter().collect();
        seat.initialise(control, &config, spec.needs_providers)
            .await?;
        Ok(seat)
    }

    async fn initialise(
        &self,
        control: &Control,
        config: &[(String, String)],
        needs_providers: bool,
    ) -> Result<(), BackendError> {
        let mut environment = self.environment.clone();
        let cache = needs_providers
            .then(|| PluginCache::acquire(&control.cache, self.engine.flavor))
            .transpose()?;
        if let Some(cache) = &cache {
            cache.add_to(&mut environment);
        }
        let init = EngineCall::Init(Init {
            lock_file: LockFile::Completed,
            backend_config: config,
            var_files: &[],
            backend: true,
        });
        let said = self
            .engine
            .capture(&init, &self.dir, &environment, &[])
            .await?;
        self.check("initialise its backend", &said)
    }

    /// The state as the backend has it; nothing if there is none.
    pub async fn pull(&self) -> Result<Option<Vec<u8>>, BackendError> {
        let said = self
            .call("read the state", &EngineCall::StatePull { var_files: &[] })
            .await?;
        Ok(Some(said.stdout).filter(|body| !is_nothing(body)))
    }

    /// Makes these bytes the state there. An empty backend would give them a lineage of its own, so they are
    /// pushed once more, by force. Returns what is there afterwards.
    pub async fn push(&self, body: &[u8], force: bool) -> Result<Vec<u8>, BackendError> {
        let file = self.scratch.path().join("push.tfstate");
        let mut options = fs::File::options();
        let mut opened = options
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(&file)?;
        opened.write_all(body)?;
        let was_empty = self.pull().await?.is_none();
        let pushes: &[bool] = if was_empty { &[false, true] } else { &[force] };
        for force in pushes {
            let call = EngineCall::StatePush {
                file: &file,
                force: *force,
                var_files: &[],
            };
            self.call("write the state", &call).await?;
        }
        Ok(self.pull().await?.unwrap_or_default())
    }

    async fn call(
        &self,
        deed: &'static str,
        call: &EngineCall<'_>,
    ) -> Result<Captured, BackendError> {
        let said = self
            .engine
            .capture(call, &self.dir, &self.environment, &[])
            .await?;
        self.check(deed, &said)?;
        Ok(said)
    }

    fn check(&self, deed: &'static str, said: &Captured) -> Result<(), BackendError> {
        if said.exit.success() {
            return Ok(());
        }
        let words = [said.stderr_text(), said.stdout_text()].join("\n");
        let words = without_colours(&words);
        Err(BackendError::Refused {
            deed,
            stack: self.stack.clone(),
            said: cut(complaints(&words).trim(), 4000),
        })
    }
}

/// The errors of an engine that talks in events; what it printed, if it does not.
fn complaints(words: &str) -> String {
    let events = words.lines().map(EngineEvent::parse);
    let errors: Vec<String> = events
        .filter_map(|event| {
            let found = event.as_diagnostic()?;
            let is_error = found.severity == Severity::Error;
            is_error.then(|| {
                format!("{}\n{}", found.summary, found.detail)
                    .trim()
                    .to_owned()
            })
        })
        .collect();
    if errors.is_empty() {
        return words.to_owned();
    }
    errors.join("\n")
}

/// What a backend says when it has no state: nothing, or a state that was never written.
fn is_nothing(body: &[u8]) -> bool {
    body.trim_ascii().is_empty()
        || model::state::StateFacts::read(body)
            .is_ok_and(|facts| facts.serial == 0 && facts.lineage.is_empty())
}

/// Keeps what was seen in a stack's backend as the newest copy of its state. Nothing there is news only if
/// something was there before.
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
    let hidden = HiddenPlaces::new(control.store.clone(), state.clone(), mask);
    let Some(hidden) = hidden else {
        control.store.state_copy_keep(&state, run, body).await?;
        return Ok(());
    };
    let noted = hidden.note_change(&body).await;
    let kept = control.store.state_copy_keep(&state, run, body).await?;
    hidden.settle(noted, &kept).await;
    Ok(())
}

/// What a backend tells about the lock of a stack's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendLock {
    Free,
    Held(Box<LockInfo>),
    /// This kind of backend tells nobody.
    NotRevealed,
}

/// A lock in a backend of the engine.
#[derive(Debug)]
pub struct FoundLock {
    pub stack: StackName,
    pub lock: Result<BackendLock, BackendError>,
}

/// The locks of all stacks whose target has a backend of the engine. One that cannot be asked does not keep
/// the others from being shown.
pub async fn locks(
    control: &Control,
    open: &OpenProject,
    project: &Project,
    env: &BTreeMap<String, String>,
) -> Vec<FoundLock> {
    let mut found = Vec::new();
    for stack in project.stacks.keys() {
        if !changesets::is_ours(project, stack) {
            let lock = lock_of(control, open, project, stack, env).await;
            found.push(FoundLock {
                stack: stack.clone(),
                lock,
            });
        }
    }
    found
}

/// Who has a stack's state locked in the backend of its target. Asking takes no lock: the engine is told to
/// end one that nobody holds, and its refusal names the one that is held.
pub async fn lock_of(
    control: &Control,
    open: &OpenProject,
    project: &Project,
    stack: &StackName,
    env: &BTreeMap<String, String>,
) -> Result<BackendLock, BackendError> {
    let target = &project.targets[&project.stacks[stack].target];
    match &target.backend {
        Backend::Terrane => {
            return Err(BackendError::Ours {
                stack: stack.clone(),
            });
        }
        // For these the engine compares the id itself, before it touches anything. Others leave that to their
        // server, or take any id for the right one: asking could end the lock.
        Backend::Engine { kind, .. } if ["s3", "azurerm"].contains(&kind.as_str()) => {}
        Backend::Engine { .. } => return Ok(BackendLock::NotRevealed),
    }
    let seat = Seat::open(control, open, project, stack, env, Which::Target).await?;
    let call = EngineCall::ForceUnlock {
        id: "1",
        var_files: &[],
    };
    let said = seat
        .engine
        .capture(&call, &seat.dir, &seat.environment, &[])
        .await?;
    let words = format!("{}\n{}", said.stderr_text(), said.stdout_text());
    match read_lock(&words) {
        Some(info) => Ok(BackendLock::Held(Box::new(info))),
        None if NOT_LOCKED.iter().any(|sign| words.contains(sign)) => Ok(BackendLock::Free),
        // Who could not be asked has not said that it is free.
        None => seat
            .check("ask for the lock", &said)
            .map(|()| BackendLock::Free),
    }
}

/// What engines say when they look for a lock that is not there: in a table, in a bucket, at a blob.
const NOT_LOCKED: [&str; 6] = [
    "no lock info found",
    "unexpected end of JSON input",
    "NoSuchKey",
    "was empty",
    "BlobNotFound",
    "blob does not exist",
];

/// What is known of a lock after it was to be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The engine has compared the id.
    Surely,
    /// Whoever keeps it was asked, and does not tell whether it was held.
    Asked,
}

/// Takes the lock of that id away, through the engine's own `force-unlock`. Recorded, with its reason.
#[expect(clippy::too_many_arguments, reason = "each says one thing")]
pub async fn break_lock(
    control: &Control,
    open: &OpenProject,
    project: &Project,
    stack: &StackName,
    env: &BTreeMap<String, String>,
    id: &str,
    actor: &str,
    reason: &str,
) -> Result<Broken, BackendError> {
    let target = &project.stacks[stack].target;
    let (deed, broken) = match &project.targets[target].backend {
        Backend::Engine { kind, .. } if kind == "pg" => {
            let kind = kind.clone();
            return Err(BackendError::Unbreakable { kind });
        }
        // Its server ends what it likes, and says no more than that it was asked.
        Backend::Engine { kind, .. } if kind == "http" => ("asked to end lock", Broken::Asked),
        Backend::Engine { .. } | Backend::Terrane => ("lock", Broken::Surely),
    };
    let seat = Seat::open(control, open, project, stack, env, Which::Target).await?;
    let call = EngineCall::ForceUnlock { id, var_files: &[] };
    seat.call("break the lock", &call).await?;
    let state = control.state_name(&project.stacks[stack].state);
    let reason = without_secrets(control, std::slice::from_ref(&state), reason).await;
    let record = NewBreakGlass {
        act: Act::LockBroken,
        state: &state,
        actor,
        reason: Some(&reason),
        detail: format!("{deed} `{id}` in the backend of target `{target}`"),
    };
    let recorded = control.store.break_glass_open(&record).await;
    recorded.map_err(BackendError::Record)?;
    Ok(broken)
}

/// The block that engines print about a lock: a name, a colon and a value on each line.
fn read_lock(words: &str) -> Option<LockInfo> {
    let mut info = LockInfo::default();
    for line in words.lines() {
        let line = line.trim_start_matches(|c: char| !c.is_ascii_alphabetic());
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let value = value.trim().to_owned();
        match name {
            "ID" => info.id = value,
            "Path" => info.path = value,
            "Operation" => info.operation = value,
            "Who" => info.who = value,
            "Version" => info.version = value,
            "Created" => info.created = value,
            _ => {}
        }
    }
    Some(info).filter(|info| !info.id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_read_from_a_refusal() {
        let said = "Failed to unlock state: lock ID \"1\" does not match existing lock\nLock Info:\n  ID:        f1c2\n  Path:      b/k\n  Operation: OperationTypeApply\n  Who:       a@b\n  Version:   1.11.14\n  Created:   2026-01-01 00:00:00 UTC\n  Info:      \n";
        let info = read_lock(said).expect("a lock");
        assert_eq!(info.to_string(), "a@b (apply), lock `f1c2`");
        assert_eq!(read_lock("Error: nothing here"), None);
    }

    #[test]
    fn errors_are_told_without_the_stream_they_came_in() {
        let stream = concat!(
            r#"{"@level":"info","@message":"Initializing","type":"init_output"}"#,
            "\n",
            r#"{"@level":"error","@message":"Error: no","type":"diagnostic","diagnostic":{"severity":"error","summary":"Failed to get existing workspaces","detail":"connection refused"}}"#,
        );
        let told = "Failed to get existing workspaces\nconnection refused";
        assert_eq!(complaints(stream), told);
        assert_eq!(complaints("plain words"), "plain words");
    }

    #[test]
    fn an_empty_backend_says_nothing_or_next_to_it() {
        assert!(is_nothing(b"\n"));
        assert!(is_nothing(br#"{"version":4,"serial":0,"lineage":""}"#));
        assert!(!is_nothing(br#"{"version":4,"serial":1,"lineage":"l"}"#));
    }
}
