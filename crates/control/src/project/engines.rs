//! Which engine each stack uses, and the provider lock files.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use drivers::engine::{
    EngineCall, InitCall, LocateError, LockFileMode, PluginCache, PluginCacheError,
};
use drivers::process::{CaptureError, Environment, engine_environment};
use drivers::snapshot::{self, ExtraFiles, LayOutError, Slot, SnapshotError};
use model::base::error::{Explain, NextStep};
use model::base::ids::StackName;
use model::project::Project;
use model::project::engine::EngineRequirement;
use model::project::module;

use crate::program_output::engine_messages::EngineError;
use crate::project::open::OpenProject;

pub use drivers::engine::{
    Engine, EngineOrigin, EngineSearch, InstallError, InstallOptions, InstallProgress,
    ReleaseSource, install, list, locate,
};

/// Finds an engine for each stack; equal requirements are looked up once.
pub fn find<'a>(
    wishes: impl Iterator<Item = (&'a StackName, &'a EngineRequirement)>,
    path: Option<&OsStr>,
    cache: &Path,
) -> Result<BTreeMap<StackName, Engine>, LocateError> {
    let mut known: Vec<(&EngineRequirement, Engine)> = Vec::new();
    let mut found = BTreeMap::new();
    for (stack, wish) in wishes {
        let same = known.iter().find(|(other, _)| *other == wish);
        let engine = if let Some((_, engine)) = same {
            engine.clone()
        } else {
            let engine = locate(wish, &EngineSearch::new(path, cache))?;
            known.push((wish, engine.clone()));
            engine
        };
        found.insert(stack.clone(), engine);
    }
    Ok(found)
}

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error(transparent)]
    Locate(#[from] LocateError),
    #[error("could not copy the source for the engine")]
    Copy(#[from] LayOutSourceError),
    #[error("could not write a lock file")]
    Write(#[from] io::Error),
    #[error("could not use the shared providers")]
    Cache(#[from] PluginCacheError),
    #[error("could not run the engine")]
    Call(#[from] CaptureError),
    #[error("the engine could not lock the providers of `{dir}`")]
    Refused { dir: String, source: EngineError },
}

impl Explain for LockError {
    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::Locate(err) => err.next_steps(),
            _ => Vec::new(),
        }
    }
}

/// Creates the provider lock file of every root module that needs providers, for all platforms of the
/// project. Writes changed files beside their modules and returns their paths.
pub async fn lock(
    open: &OpenProject,
    project: &Project,
    env: &BTreeMap<String, String>,
    cache: &Path,
    upgrade: bool,
) -> Result<Vec<String>, LockError> {
    let scratch = tempfile::tempdir().map_err(LayOutSourceError::from)?;
    let tree = lay_out(open, scratch.path())?;
    let path = env.get("PATH").map(OsStr::new);
    let mut done = BTreeSet::new();
    let mut written = Vec::new();
    for stack in project.stacks.values() {
        let reached = module::closure(&open.loaded.modules, &stack.path);
        let needed = reached
            .iter()
            .filter_map(|dir| open.loaded.modules.get(dir))
            .any(module::Module::needs_providers);
        if !needed || !done.insert(stack.path.clone()) {
            continue;
        }
        let engine = locate(&stack.engine, &EngineSearch::new(path, cache))?;
        let shared = PluginCache::acquire(cache, engine.flavor)?;
        let mut environment = engine_environment(env, true);
        shared.add_to(&mut environment);
        let dir = tree.join(&stack.path);
        let init = EngineCall::Init(InitCall {
            lock_file: if upgrade {
                LockFileMode::Upgraded
            } else {
                LockFileMode::Completed
            },
            backend_config: &[],
            var_files: &[],
            backend: false,
        });
        call(&engine, &init, &dir, &environment, &stack.path).await?;
        let all = EngineCall::ProvidersLock {
            platforms: &project.platforms,
        };
        call(&engine, &all, &dir, &environment, &stack.path).await?;
        let made = std::fs::read(dir.join(LOCK_FILE))?;
        let place = open.root.join(&stack.path).join(LOCK_FILE);
        if std::fs::read(&place).ok().as_ref() != Some(&made) {
            std::fs::write(&place, made)?;
            written.push(format!("{}/{LOCK_FILE}", stack.path));
        }
    }
    Ok(written)
}

const LOCK_FILE: &str = ".terraform.lock.hcl";

#[derive(Debug, thiserror::Error)]
pub enum LayOutSourceError {
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    LayOut(#[from] LayOutError),
    #[error(transparent)]
    Directory(#[from] io::Error),
}

/// A copy of the source for the engine, so that the engine does not change the source tree.
pub(crate) fn lay_out(open: &OpenProject, scratch: &Path) -> Result<PathBuf, LayOutSourceError> {
    let source = snapshot::collect(&open.root, open.git.as_ref(), &ExtraFiles::default())?;
    let packed = source.pack(&open.root)?;
    let slot =
        Slot::new(scratch.join("tree"), scratch.join("manifest"), &[]).map_err(io::Error::other)?;
    slot.lay_out(&source.digest, || Ok::<_, io::Error>(packed))?;
    Ok(slot.tree().to_owned())
}

async fn call(
    engine: &Engine,
    call: &EngineCall<'_>,
    dir: &Path,
    environment: &Environment,
    name: &str,
) -> Result<(), LockError> {
    let said = engine.capture(call, dir, environment, &[]).await?;
    if said.exit.success() {
        return Ok(());
    }
    Err(LockError::Refused {
        dir: name.to_owned(),
        source: EngineError::of(&said),
    })
}
