//! Backends of the engines, accessed through the engine: a stack's state there, its lock (`locks`), and
//! stored copies of states that were read (`copies`).
//!
//! Not here: runs (`runner`), which store a copy of every state that they read with [`keep_copy`].

mod copies;
mod locks;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use drivers::engine::{
    Engine, EngineCall, EngineLockError, EngineLockGuard, InitCall, LocateError, LockFileMode,
    PluginCache, PluginCacheError,
};
use drivers::process::{CaptureError, Captured, DirGuard, Environment, remove_on_exit};
use drivers::state_http::{HttpBackend, HttpBackendError, Locking, Method};
use model::base::error::{ErrorKind, Explain, NextStep, advice, command};
use model::base::exact_number;
use model::base::ids::StackName;
use model::base::masking::{Mask, cut};
use model::base::secret::Secret;
use model::hcl::expression::Input;
use model::project::engine::Flavor;
use model::project::module::{LocalState, Module};
use model::project::{Backend, Project};
use model::run::RunSpec;
use model::run::engine_event::{EngineEvent, EngineSeverity, Level};
use model::state::lock::LockInfo;
use serde_json::{Map, Value};
use store::{AppendError, StoreError};

use crate::changeset::prepare::{self, PrepareError};
use crate::home::write_private;
use crate::program_output::engine_messages::strip_ansi;
use crate::project::engines::{self, LayOutSourceError};
use crate::project::open::OpenProject;
use crate::secrets::caller_env::{CallerEnv, MissingValuesError};
use crate::{Control, values};

pub(crate) use copies::export_to_engine;
use copies::is_nothing;
pub use copies::{CopyFreshness, RefreshCopyError, UnreadState, keep_copy, look_again, lost_copy};
pub use locks::{BackendLock, BreakOutcome, StackLock, break_lock, lock_of, locks};

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
    Gather(#[from] MissingValuesError),
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
    #[error("the engine did not answer within a minute")]
    TooSlow,
    #[error("cannot keep the state locked")]
    Hold(#[source] EngineLockError),
    #[error("the engine could not {action} for stack `{stack}`: {said}")]
    Refused {
        action: &'static str,
        stack: StackName,
        said: String,
    },
    #[error(
        "cannot break a lock in backend `{kind}`: only the connection that holds it can release it"
    )]
    Unbreakable { kind: String },
    #[error(
        "cannot unlock a backend `http` with Terraform: it sends no lock id, so it would release any lock"
    )]
    WithoutId,
    #[error(transparent)]
    Http(#[from] HttpBackendError),
    #[error("cannot record the broken lock")]
    Record(#[source] StoreError),
}

impl Explain for BackendError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Unbreakable { .. } => ErrorKind::Refused,
            _ => ErrorKind::Failed,
        }
    }

    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::NoneInSource { .. } => vec![advice(
                "name where the state is: a file, a directory or a URL; `copy` is the last state that terrane read there",
            )],
            Self::Locate(err) => err.next_steps(),
            Self::Prepare(err) => err.next_steps(),
            Self::Values { hint, .. } => hint.clone().map(advice).into_iter().collect(),
            Self::Gather(err) => err.next_steps(),
            Self::Unbreakable { .. } => vec![advice(
                "end the engine that holds it, or its session in the database",
            )],
            Self::WithoutId => vec![advice(
                "unlock it at its server by its id. terrane can do that itself if the target has `unlock_address` and credentials, without certificates or headers",
            )],
            Self::Http(err) => err.next_steps(),
            Self::Refused { action, stack, .. } if [INITIALISE, READ].contains(action) => vec![
                advice(
                    "an engine does not see your shell's variables: pass credentials through `env` or `pass_env` of a context",
                ),
                command(format!("context show {stack}"), "shows what it receives"),
            ],
            _ => Vec::new(),
        }
    }
}

/// Operations for which an engine needs only access to the backend.
const INITIALISE: &str = "initialise its backend";
const READ: &str = "read the state";

/// Which backend of a stack to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendChoice {
    /// The backend of its target.
    Target,
    /// The backend that its source names, regardless of the target.
    Source,
}

/// How the backend that a source names locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockSupport {
    /// The state is a file; an engine locks a separate file for it.
    File,
    /// It is configured without locking.
    Never,
    /// A lock ends with the connection that holds it.
    WhileHeld,
    /// A lock stays until it is released.
    Lasting,
}

impl LockSupport {
    fn of(kind: &str, source: Option<&Module>, environment: &Environment) -> Self {
        // Engines also read this setting from their environment.
        let address = environment.get("TF_HTTP_LOCK_ADDRESS");
        let is_given = kind == "http" && address.is_some_and(|it| !it.expose().is_empty());
        match kind {
            "local" => Self::File,
            _ if !is_given && !source.is_some_and(Module::backend_locks) => Self::Never,
            "pg" | "consul" => Self::WhileHeld,
            _ => Self::Lasting,
        }
    }
}

/// A private directory that is removed when this process ends, however it ends.
struct ScratchDir {
    path: PathBuf,
    _keeper: DirGuard,
}

impl ScratchDir {
    fn new(place: &Path) -> io::Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("terrane-")
            .tempdir_in(place)?;
        let keeper = remove_on_exit(dir.path())?;
        Ok(Self {
            path: dir.keep(),
            _keeper: keeper,
        })
    }
}

/// Files in this directory never reach a disk.
const MEMORY: &str = "/dev/shm";

/// An engine that was initialised for a stack's backend, in a directory of its own.
pub struct BackendEngine {
    stack: StackName,
    engine: Engine,
    dir: PathBuf,
    environment: Environment,
    /// Values of variables that the project file contains: a backend of OpenTofu may use them.
    var_files: Vec<PathBuf>,
    /// The kind of backend that the source names.
    kind: String,
    locks: LockSupport,
    /// Masks secrets in the engine's output.
    mask: Mask,
    /// The backend settings that `init` was given.
    settings: BTreeMap<String, String>,
    scratch: ScratchDir,
}

impl BackendEngine {
    /// Copies the source and initialises the engine there. The trees of the user and of runs are not touched.
    pub async fn open(
        control: &Control,
        open: &OpenProject,
        project: &Project,
        stack: &StackName,
        env: &BTreeMap<String, String>,
        which: BackendChoice,
    ) -> Result<Self, BackendError> {
        let one = BTreeSet::from([stack.clone()]);
        let path = env.get("PATH").map(OsStr::new);
        let found = engines::find(prepare::requirements(project, &one), path, &control.cache)?;
        let mut spec = prepare::spec_alone(open, project, &found, stack)?;
        match (which, &spec.target.backend) {
            (BackendChoice::Target, Backend::Terrane) => {
                return Err(BackendError::Ours {
                    stack: stack.clone(),
                });
            }
            (BackendChoice::Source, _) if spec.own_backend.is_none() => {
                return Err(BackendError::NoneInSource {
                    stack: stack.clone(),
                });
            }
            (BackendChoice::Source, _) => spec.target.backend = Backend::Terrane, // no settings of the target
            (BackendChoice::Target, Backend::Engine { .. }) => {}
        }
        let source = open.loaded.modules.get(&spec.stack.path);
        let kind = spec.own_backend.clone().unwrap_or_default();
        let beside = (which == BackendChoice::Source).then(|| file_beside(open, &spec.stack.path));
        let variables = known_variables(&spec);
        spec.stack.inputs.clear();
        let specs = std::slice::from_ref(&spec);
        let asker = CallerEnv::gather(env, &open.root, specs, &open.loaded.secrets)?;
        let values = values::for_backend(control, &spec, &asker).await;
        let values = values.map_err(|failure| {
            let (message, hint) = failure.into_words();
            BackendError::Values { message, hint }
        })?;
        let scratch = ScratchDir::new(&std::env::temp_dir())?;
        let tree = engines::lay_out(open, &scratch.path)?;
        let engine = found[stack].clone();
        let mut var_files = Vec::new();
        if engine.flavor == Flavor::Tofu {
            let own = spec.stack.var_files.iter().map(|file| tree.join(file));
            var_files.extend(own.filter(|file| file.is_file()));
            let file = scratch.path.join("inputs.tfvars.json");
            let text = exact_number::write(&Value::Object(variables));
            write_private(&file, text.as_bytes())?;
            var_files.push(file);
        }
        let dir = tree.join(&spec.stack.path);
        if which == BackendChoice::Target {
            values::write_override(&dir, &spec)?;
        }
        let seat = Self {
            stack: stack.clone(),
            engine,
            dir,
            locks: LockSupport::of(&kind, source, &values.environment),
            kind,
            environment: values.environment,
            var_files,
            mask: Mask::new(&values.hidden),
            settings: values.settings.clone(),
            scratch,
        };
        let mut config: Vec<(String, String)> = values.settings.into_iter().collect();
        config.extend(beside.flatten().map(|file| ("path".to_owned(), file)));
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
        let init = EngineCall::Init(InitCall {
            lock_file: LockFileMode::Completed,
            backend_config: config,
            var_files: &self.var_files,
            backend: true,
        });
        let said = self
            .engine
            .capture(&init, &self.dir, &environment, &[])
            .await?;
        self.check(INITIALISE, &said)
    }

    /// The state in the backend; none if it has no state.
    pub async fn pull(&self) -> Result<Option<Vec<u8>>, BackendError> {
        let call = EngineCall::StatePull {
            var_files: &self.var_files,
        };
        let said = self.call(READ, &call).await?;
        Ok(Some(said.stdout).filter(|body| !is_nothing(body)))
    }

    /// How the backend that the source names locks.
    pub fn locks(&self) -> LockSupport {
        self.locks
    }

    /// The kind of backend that the source names.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    pub fn flavor(&self) -> Flavor {
        self.engine.flavor
    }

    /// Takes the lock of the state, if the source's backend has locks. A file is not locked: an engine locks
    /// a separate file for it.
    pub async fn hold_lock(&self) -> Result<Option<EngineLockGuard>, BackendError> {
        match self.locks {
            LockSupport::File | LockSupport::Never => return Ok(None),
            LockSupport::WhileHeld | LockSupport::Lasting => {}
        }
        let (environment, var_files) = (&self.environment, &self.var_files);
        let held = self.engine.hold_lock(&self.dir, environment, var_files);
        held.await.map(Some).map_err(|err| self.not_held(err))
    }

    /// Releases the lock. An error means that it may still be held.
    pub async fn release(&self, held: EngineLockGuard) -> Result<(), BackendError> {
        held.release().await.map_err(|err| self.not_held(err))
    }

    fn not_held(&self, err: EngineLockError) -> BackendError {
        let (action, said) = match &err {
            EngineLockError::Refused { said } => ("lock the state", said),
            EngineLockError::NotReleased { said } => ("unlock the state", said),
            EngineLockError::Run(_) | EngineLockError::TooSlow => return BackendError::Hold(err),
        };
        BackendError::Refused {
            action,
            stack: self.stack.clone(),
            said: cut(self.mask.mask_text(&strip_ansi(said)).trim(), 4000),
        }
    }

    /// Writes these bytes as the state in the backend. An empty backend would assign its own lineage, so the
    /// bytes are pushed a second time with force. Returns the resulting state.
    pub async fn push(&self, body: &[u8], force: bool) -> Result<Vec<u8>, BackendError> {
        let in_place = |scratch: &ScratchDir| scratch.path.join("push.tfstate");
        // The file contains the whole state unencrypted. A large state may not fit into memory.
        let memory = ScratchDir::new(Path::new(MEMORY)).ok();
        let memory = memory.filter(|it| write_private(&in_place(it), body).is_ok());
        let file = in_place(memory.as_ref().unwrap_or(&self.scratch));
        if memory.is_none() {
            write_private(&file, body)?;
        }
        let was_empty = self.pull().await?.is_none();
        let pushes: &[bool] = if was_empty { &[false, true] } else { &[force] };
        for force in pushes {
            let call = EngineCall::StatePush {
                file: &file,
                force: *force,
                var_files: &self.var_files,
            };
            self.call("write the state", &call).await?;
        }
        Ok(self.pull().await?.unwrap_or_default())
    }

    /// Stores these bytes, which were read from the backend, as the newest copy.
    pub async fn keep_copy(
        &self,
        control: &Control,
        state: &str,
        body: Vec<u8>,
    ) -> Result<(), AppendError> {
        keep_copy(control, state, None, body, &self.mask).await
    }

    async fn call(
        &self,
        action: &'static str,
        call: &EngineCall<'_>,
    ) -> Result<Captured, BackendError> {
        let said = self
            .engine
            .capture(call, &self.dir, &self.environment, &[])
            .await?;
        self.check(action, &said)?;
        Ok(said)
    }

    /// Sends an unlock request with this lock id to the server of an `http` backend, as an engine that sends
    /// ids does.
    async fn unlock_by_id(&self, id: &str) -> Result<(), BackendError> {
        let setting = |name: &str| self.settings.get(name).cloned();
        // Only engines fully support these settings.
        let is_plain = self.settings.keys().all(|name| {
            ![
                "headers",
                "client_ca_certificate_pem",
                "client_certificate_pem",
                "skip_cert_verification",
            ]
            .contains(&name.as_str())
        });
        let (Some(address), true) = (setting("unlock_address"), is_plain) else {
            return Err(BackendError::WithoutId);
        };
        let variable = |name: &str| self.environment.get(name).map(Secret::expose);
        let user = variable("TF_HTTP_USERNAME").unwrap_or_default();
        let password = variable("TF_HTTP_PASSWORD");
        let credential = password.map(|password| Secret::new(format!("{user}:{password}")));
        let unlock = setting("unlock_method").map(|word| Method::from_bytes(word.as_bytes()));
        let locking = Locking::Said {
            address: None,
            lock: None,
            unlock: unlock.transpose().map_err(|_| BackendError::WithoutId)?,
        };
        let lock = LockInfo {
            id: id.to_owned(),
            ..LockInfo::default()
        };
        let http = HttpBackend::new(&address, credential, locking)?;
        Ok(http.unlock(&lock).await?)
    }

    fn check(&self, action: &'static str, said: &Captured) -> Result<(), BackendError> {
        if said.exit.success() {
            return Ok(());
        }
        let words = [said.stderr_text(), said.stdout_text()].join("\n");
        let words = strip_ansi(&words);
        Err(BackendError::Refused {
            action,
            stack: self.stack.clone(),
            said: cut(self.mask.mask_text(&complaints(&words)).trim(), 4000),
        })
    }
}

/// The values of variables that the project file contains. Inputs of the stack override those of contexts.
fn known_variables(spec: &RunSpec) -> Map<String, Value> {
    let of_contexts = spec.contexts.iter().flat_map(|context| &context.vars);
    let of_contexts = of_contexts.filter(|(name, _)| spec.variables.contains_key(*name));
    let mut known = Map::new();
    for (name, input) in of_contexts.chain(&spec.stack.inputs) {
        match input {
            Input::Known(value) => known.insert(name.clone(), value.clone()),
            Input::Expression(_) => known.remove(name),
        };
    }
    known
}

/// The state file of a `local` backend, relative to the original source, not to its copy.
fn file_beside(open: &OpenProject, path: &str) -> Option<String> {
    let module = open.loaded.modules.get(path)?;
    module.backend.as_ref().filter(|kind| *kind == "local")?;
    let file = match module.local_state() {
        LocalState::Unsaid => "terraform.tfstate",
        LocalState::File(file) => file,
        LocalState::Computed => return None,
    };
    let file = open.root.join(path).join(file);
    Some(file.to_string_lossy().into_owned())
}

/// The errors in an engine's events; the whole output if there are none.
fn complaints(words: &str) -> String {
    let events = words.lines().map(EngineEvent::parse);
    let errors: Vec<String> = events
        .filter_map(|event| match event.as_diagnostic() {
            Some(found) => (found.severity == EngineSeverity::Error)
                .then(|| format!("{}\n{}", found.summary, found.detail)),
            // An error before anything is read is a plain message.
            None => (event.level == Level::Error).then(|| event.message.clone()),
        })
        .map(|words| words.trim().to_owned())
        .collect();
    if errors.is_empty() {
        return words.to_owned();
    }
    errors.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
