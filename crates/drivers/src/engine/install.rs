//! Gets an engine that meets a requirement: an installed one, else the official release with its checksum and
//! signature verified.
//!
//! Concurrent installs are safe: they take turns, and an engine appears in the cache complete or not at all. Not
//! here: finding installed engines (`locate`), the checks themselves (`release`, `openpgp`).

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use model::base::error::{Explain, NextStep, advice};
use model::project::engine::{EngineRequirement, Flavor};
use semver::Version;

use super::locate::{EngineSearch, allows, cached_at, engines_of, locate, run_version, wanted};
use super::release::{FetchReleaseError, ReleaseSource, Releases};
use super::{Engine, EngineOrigin, LocateError};

/// The version to install when none is pinned.
pub fn default_version(flavor: Flavor) -> Version {
    match flavor {
        Flavor::Tofu => Version::new(1, 11, 14),
        Flavor::Terraform => Version::new(1, 11, 4),
    }
}

#[derive(Clone, Debug)]
pub struct InstallOptions<'a> {
    pub search: EngineSearch<'a>,
    /// The official site or a mirror.
    pub source: ReleaseSource,
}

/// Progress of an install.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstallProgress {
    /// Another process is installing this engine.
    Waiting,
    /// This version is being installed.
    Chosen {
        version: Version,
    },
    Downloading {
        done: u64,
        total: Option<u64>,
    },
    Verifying,
    Unpacking,
}

/// Finds or installs an engine that meets the requirement.
pub async fn install(
    requirement: &EngineRequirement,
    options: &InstallOptions<'_>,
    progress: &mut (dyn FnMut(InstallProgress) + Send),
) -> Result<Engine, InstallError> {
    if let Ok(engine) = locate(requirement, &options.search) {
        return Ok(engine);
    }
    let flavor = requirement.flavor;
    let home = engines_of(options.search.cache, flavor);
    let prepared = |source| InstallError::Cache {
        dir: home.clone(),
        source,
    };
    fs::create_dir_all(&home).map_err(prepared)?;
    let _turn = take_turn(home.join(".lock"), progress)
        .await
        .map_err(prepared)?;
    // The process that held the lock may have installed it.
    if let Ok(engine) = locate(requirement, &options.search) {
        return Ok(engine);
    }

    let releases = Releases::new(&options.source).map_err(InstallError::Release)?;
    let version = choose(requirement, &releases).await?;
    progress(InstallProgress::Chosen {
        version: version.clone(),
    });
    let scratch = tempfile::Builder::new()
        .prefix(".install-")
        .tempdir_in(&home)
        .map_err(prepared)?;
    let program = releases
        .unpack_into(&version, scratch.path(), progress)
        .await
        .map_err(InstallError::Release)?;
    let told = run_version(&program, options.search.path).map_err(InstallError::Run)?;
    if told != version {
        return Err(InstallError::OtherVersion { version, told });
    }
    let program = cached_at(options.search.cache, flavor, &version);
    let place = home.join(version.to_string());
    // A directory without a program is left over from a failed install.
    if place.exists() && !program.is_file() {
        fs::remove_dir_all(&place).map_err(prepared)?;
    }
    fs::rename(scratch.path(), &place).map_err(prepared)?;
    Ok(Engine {
        flavor,
        version,
        program,
        origin: EngineOrigin::Release,
    })
}

#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error("could not write to the engine cache `{}`", dir.display())]
    Cache { dir: PathBuf, source: io::Error },
    #[error("no released version meets {wanted}")]
    NoVersion { wanted: String },
    #[error("could not look up which versions meet {wanted}, and the default {default} does not")]
    NoIndex {
        wanted: String,
        default: Version,
        source: FetchReleaseError,
    },
    #[error("could not install the official release")]
    Release(#[source] FetchReleaseError),
    #[error("the installed engine does not run")]
    Run(#[source] LocateError),
    #[error("the engine installed as {version} reports version {told}")]
    OtherVersion { version: Version, told: Version },
}

impl Explain for InstallError {
    fn next_steps(&self) -> Vec<NextStep> {
        vec![advice(match self {
            Self::NoIndex { .. } => {
                "set an exact `version`, or a mirror that can be reached: `TERRANE_ENGINE_MIRROR`"
            }
            Self::Release(err) if err.is_unreachable() => {
                "put a suitable version on `PATH`, or set a mirror that can be reached: `TERRANE_ENGINE_MIRROR`"
            }
            Self::NoVersion { .. } => "change the `version` of the `engine` block",
            Self::Cache { .. } => "set a cache directory that can be written: `XDG_CACHE_HOME`",
            Self::Release(_) | Self::Run(_) | Self::OtherVersion { .. } => return Vec::new(),
        })]
    }
}

/// The version to install: the default if nothing is pinned, the one named, or the newest that fits.
async fn choose(
    requirement: &EngineRequirement,
    releases: &Releases<'_>,
) -> Result<Version, InstallError> {
    let default = default_version(requirement.flavor);
    let Some(constraint) = &requirement.constraint else {
        return Ok(default);
    };
    let exact = constraint.as_str().trim_start_matches(['=', ' ', 'v']);
    if let Ok(version) = exact.parse() {
        return Ok(version);
    }
    let wanted = wanted(requirement);
    match releases.newest(requirement).await {
        Ok(Some(version)) => Ok(version),
        Ok(None) => Err(InstallError::NoVersion { wanted }),
        Err(_) if allows(requirement, &default) => Ok(default),
        Err(source) => Err(InstallError::NoIndex {
            wanted,
            default,
            source,
        }),
    }
}

async fn take_turn(
    path: PathBuf,
    progress: &mut (dyn FnMut(InstallProgress) + Send),
) -> io::Result<File> {
    let file = File::options().create(true).append(true).open(path)?;
    if file.try_lock().is_ok() {
        return Ok(file);
    }
    progress(InstallProgress::Waiting);
    let waited = tokio::task::spawn_blocking(move || file.lock().map(|()| file));
    waited.await.map_err(io::Error::other)?
}
