//! Decides whether a slot needs `init` again; manages the plugin cache that `init` fills and finds a state that an
//! engine could not save.
//!
//! Not here: calling `init` (`call`), laying a slot out (`control`).

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest;
use model::project::engine::Flavor;

use super::Engine;
use crate::process::Environment;
use crate::snapshot::hex;

/// Everything that `init` depends on.
#[derive(Clone, Copy, Debug)]
pub struct InitInputs<'a> {
    pub engine: &'a Engine,
    /// Bytes of `.terraform.lock.hcl`, if there is one.
    pub lock_file: Option<&'a [u8]>,
    /// Required providers and module sources, in any stable form.
    pub requirements: &'a str,
    /// The backend's type and settings, in any stable form.
    pub backend: &'a str,
}

/// A digest of everything that `init` depends on. If it has not changed, `init` is not run again.
pub fn fingerprint(inputs: &InitInputs<'_>) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    let engine = inputs.engine.to_string();
    // Length prefixes separate the parts; a missing lock file differs from an empty one.
    let lock_file = inputs
        .lock_file
        .map_or_else(Vec::new, |bytes| [b"+", bytes].concat());
    for part in [
        engine.as_bytes(),
        &lock_file,
        inputs.requirements.as_bytes(),
        inputs.backend.as_bytes(),
    ] {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    hex(context.finish().as_ref())
}

/// Beside `.terraform`, not in it: a stack with built-in providers only has no `.terraform`.
const MARK: &str = ".terraform.initialised";

/// Whether `dir` was initialised for exactly this fingerprint.
pub fn is_initialised(dir: &Path, fingerprint: &str) -> bool {
    fs::read_to_string(dir.join(MARK)).is_ok_and(|mark| mark.trim_end() == fingerprint)
}

/// Records a finished `init`. Call [`forget_initialised`] before starting one, so that an interrupted `init` does
/// not count.
pub fn mark_initialised(dir: &Path, fingerprint: &str) -> io::Result<()> {
    // A partial write is harmless: it matches no fingerprint.
    fs::write(dir.join(MARK), fingerprint)
}

pub fn forget_initialised(dir: &Path) -> io::Result<()> {
    match fs::remove_file(dir.join(MARK)) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => Err(err),
        _ => Ok(()),
    }
}

/// The state file that an engine writes when its backend does not accept the state.
pub fn find_errored_state(dir: &Path) -> Option<PathBuf> {
    let path = dir.join("errored.tfstate");
    path.is_file().then_some(path)
}

/// Exclusive use of the shared plugin cache while this exists: engines do not support parallel `init` on one
/// cache. Only for stacks that have providers to fetch.
#[derive(Debug)]
pub struct PluginCache {
    dir: PathBuf,
    _lock: File,
}

impl PluginCache {
    /// Blocks until the cache is free; do not call it on a runtime thread. Each flavor has its own directory,
    /// because the flavors fetch the same providers from different registries.
    pub fn acquire(cache: &Path, flavor: Flavor) -> Result<Self, PluginCacheError> {
        let dir = cache.join("plugins").join(flavor.program());
        let failed = |source| PluginCacheError {
            dir: dir.clone(),
            source,
        };
        fs::create_dir_all(&dir).map_err(failed)?;
        let lock = OpenOptions::new()
            .create(true)
            .append(true)
            .open(dir.with_extension("lock"))
            .map_err(failed)?;
        lock.lock().map_err(failed)?;
        Ok(Self { dir, _lock: lock })
    }

    /// Makes an `init` use the cache for providers whose hashes are in the lock file. Other providers are
    /// downloaded, so that a lock file never gets only this machine's hashes.
    pub fn add_to(&self, env: &mut Environment) {
        env.set("TF_PLUGIN_CACHE_DIR", self.dir.to_string_lossy());
    }
}

#[derive(Debug, thiserror::Error)]
#[error("could not lock the plugin cache `{}`", dir.display())]
pub struct PluginCacheError {
    dir: PathBuf,
    source: io::Error,
}
