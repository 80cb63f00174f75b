//! OpenTofu and Terraform: a program of a known version, and the calls that terrane makes to it.
//!
//! Not here: parsing its output (`model::run::engine_event`, `model::plan`), and when to call it (`control`).

mod call;
mod init;
mod install;
mod locate;
mod lock_guard;
mod openpgp;
mod release;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use model::project::engine::Flavor;
use serde::{Deserialize, Serialize};

use crate::process::{
    self, Capture, CaptureError, Captured, ChildProcess, ChildSpec, Environment, ForegroundOutput,
    StartError,
};

pub use call::{EngineCall, FmtCall, InitCall, LockFileMode, PlanCall, PlanMode};
pub use init::{
    InitInputs, PluginCache, PluginCacheError, find_errored_state, fingerprint, forget_initialised,
    is_initialised, mark_initialised,
};
pub use lock_guard::{EngineLockError, EngineLockGuard};

pub use install::{InstallError, InstallOptions, InstallProgress, default_version, install};
pub use locate::{EngineSearch, LocateError, list, locate};
pub use release::{FetchReleaseError, ReleaseSource};

/// An engine that exists, runs and has reported its version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Engine {
    pub flavor: Flavor,
    pub version: semver::Version,
    pub program: PathBuf,
    pub origin: EngineOrigin,
}

/// How an engine was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineOrigin {
    /// Installed by the user.
    Path,
    /// Found in terrane's own cache.
    Cache,
    /// Just unpacked from a verified release archive.
    Release,
}

/// Where one call runs and where its output goes.
#[derive(Clone, Debug)]
pub struct CallSite<'a> {
    /// The root module's directory in the slot.
    pub dir: &'a Path,
    pub env: &'a Environment,
    pub stdout: &'a Path,
    pub stderr: &'a Path,
    /// See [`ChildSpec::inherit`].
    pub inherit: &'a [BorrowedFd<'a>],
}

impl Engine {
    /// Starts a call that writes to files; for everything that may take long or change something.
    pub fn start(
        &self,
        call: &EngineCall<'_>,
        site: &CallSite<'_>,
    ) -> Result<ChildProcess, StartError> {
        process::start(&ChildSpec {
            program: &self.program,
            args: &self.args(call),
            dir: site.dir,
            env: site.env,
            stdout: site.stdout,
            stderr: site.stderr,
            inherit: site.inherit,
        })
    }

    /// Starts a call on our own terminal, for an interactive session.
    pub fn start_in_front(
        &self,
        call: &EngineCall<'_>,
        dir: &Path,
        env: &Environment,
        inherit: &[BorrowedFd<'_>],
        prints: ForegroundOutput,
    ) -> Result<ChildProcess, StartError> {
        process::start_in_front(&self.program, &self.args(call), dir, env, inherit, prints)
    }

    /// Runs a read-only call (`show`, `output`, `validate`, `fmt`) and captures its output.
    pub async fn capture(
        &self,
        call: &EngineCall<'_>,
        dir: &Path,
        env: &Environment,
        stdin: &[u8],
    ) -> Result<Captured, CaptureError> {
        const LIMIT: usize = 1 << 30;
        const TIMEOUT: Duration = Duration::from_mins(10);
        process::capture(Capture {
            program: &self.program,
            args: &self.args(call),
            dir,
            env,
            stdin,
            timeout: TIMEOUT,
            limit: LIMIT,
            held: None,
        })
        .await
    }

    pub fn args(&self, call: &EngineCall<'_>) -> Vec<OsString> {
        call.args(self.flavor)
    }
}

impl std::fmt::Display for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.flavor, self.version)
    }
}
