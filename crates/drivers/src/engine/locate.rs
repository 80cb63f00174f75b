//! Finds the engines on this machine and those that meet a requirement.
//!
//! Search order: an explicitly named program, `PATH`, terrane's own cache
//! (`<cache>/engines/<flavor>/<version>/<program>`), newest first. Reading a version starts a process, so the
//! version is cached with the file's size and time.
//!
//! Not here: installing an engine (`install`).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use model::base::error::{Explain, NextStep, advice, command};
use model::project::engine::{EngineRequirement, Flavor};
use semver::Version;
use serde::{Deserialize, Serialize};

use super::{Engine, EngineOrigin};
use crate::process::{self, Capture, CaptureError, Captured, Environment};

/// Where to search.
#[derive(Clone, Copy, Debug)]
pub struct EngineSearch<'a> {
    /// The caller's `PATH`.
    pub path: Option<&'a OsStr>,
    /// terrane's cache directory of this user.
    pub cache: &'a Path,
    /// A program that the user named, for example by an environment variable. No other is considered.
    pub program: Option<&'a Path>,
}

impl<'a> EngineSearch<'a> {
    pub fn new(path: Option<&'a OsStr>, cache: &'a Path) -> Self {
        Self {
            path,
            cache,
            program: None,
        }
    }
}

/// Finds an engine that meets the requirement.
pub fn locate(
    requirement: &EngineRequirement,
    search: &EngineSearch<'_>,
) -> Result<Engine, LocateError> {
    let flavor = requirement.flavor;
    if let Some(program) = search.program {
        let version = ask_version(program, search)?;
        return if allows(requirement, &version) {
            Ok(engine(flavor, version, program, EngineOrigin::Path))
        } else {
            Err(LocateError::WrongVersion {
                wanted: wanted(requirement),
                found: found_at(&version, program),
            })
        };
    }
    let mut unsuitable = Vec::new();
    let mut broken = None;
    for program in on_path(flavor, search) {
        match ask_version(&program, search) {
            Ok(version) if allows(requirement, &version) => {
                return Ok(engine(flavor, version, &program, EngineOrigin::Path));
            }
            Ok(version) => unsuitable.push(found_at(&version, &program)),
            Err(err) => broken = Some(err),
        }
    }
    let mut cached = in_cache(flavor, search.cache);
    cached.sort_by(|a, b| b.version.cmp(&a.version));
    for engine in cached {
        if allows(requirement, &engine.version) {
            return Ok(engine);
        }
        unsuitable.push(found_at(&engine.version, &engine.program));
    }
    match (unsuitable.is_empty(), broken) {
        (false, _) => Err(LocateError::WrongVersion {
            wanted: wanted(requirement),
            found: unsuitable.join(", "),
        }),
        (true, Some(broken)) => Err(broken),
        (true, None) => Err(LocateError::Missing {
            wanted: wanted(requirement),
            cache: search.cache.join("engines"),
        }),
    }
}

/// All engines on this machine: first those on `PATH`, then the cache, newest first. Programs that report no
/// version are left out.
pub fn list(search: &EngineSearch<'_>) -> Vec<Engine> {
    let mut engines = Vec::new();
    for flavor in Flavor::ALL {
        for program in on_path(flavor, search) {
            if let Ok(version) = ask_version(&program, search) {
                engines.push(engine(flavor, version, &program, EngineOrigin::Path));
            }
        }
        let mut cached = in_cache(flavor, search.cache);
        cached.sort_by(|a, b| b.version.cmp(&a.version));
        engines.extend(cached);
    }
    engines
}

#[derive(Debug, thiserror::Error)]
pub enum LocateError {
    #[error("there is no {wanted}: neither on `PATH` nor in `{}`", cache.display())]
    Missing { wanted: String, cache: PathBuf },
    #[error("{wanted} is required, but there is only {found}")]
    WrongVersion { wanted: String, found: String },
    #[error("cannot get the version of `{}`", program.display())]
    Ask {
        program: PathBuf,
        source: CaptureError,
    },
    #[error("cannot read the version of `{}`: {said}", program.display())]
    NoVersion { program: PathBuf, said: String },
}

impl Explain for LocateError {
    fn next_steps(&self) -> Vec<NextStep> {
        let install = command("engine install", "installs a suitable version");
        match self {
            Self::Missing { .. } | Self::WrongVersion { .. } => vec![install],
            Self::Ask { program, .. } | Self::NoVersion { program, .. } => vec![
                advice(format!("repair or remove `{}`", program.display())),
                install,
            ],
        }
    }
}

/// `tofu ~> 1.11`, in backticks.
pub(super) fn wanted(requirement: &EngineRequirement) -> String {
    match &requirement.constraint {
        Some(constraint) => format!("`{} {constraint}`", requirement.flavor),
        None => format!("`{}`", requirement.flavor),
    }
}

pub(super) fn allows(requirement: &EngineRequirement, version: &Version) -> bool {
    let constraint = requirement.constraint.as_ref();
    constraint.is_none_or(|constraint| constraint.allows(version))
}

/// The path of this version in the cache, whether it exists or not.
pub(super) fn cached_at(cache: &Path, flavor: Flavor, version: &Version) -> PathBuf {
    engines_of(cache, flavor)
        .join(version.to_string())
        .join(flavor.program())
}

pub(super) fn engines_of(cache: &Path, flavor: Flavor) -> PathBuf {
    cache.join("engines").join(flavor.program())
}

fn engine(flavor: Flavor, version: Version, program: &Path, origin: EngineOrigin) -> Engine {
    Engine {
        flavor,
        version,
        program: program.to_owned(),
        origin,
    }
}

fn found_at(version: &Version, program: &Path) -> String {
    format!("{version} at `{}`", program.display())
}

fn on_path(flavor: Flavor, search: &EngineSearch<'_>) -> Vec<PathBuf> {
    let mut programs: Vec<PathBuf> = Vec::new();
    for dir in search.path.map(std::env::split_paths).into_iter().flatten() {
        let program = process::find_program(flavor.program(), dir.as_os_str());
        programs.extend(program.filter(|program| !programs.contains(program)));
    }
    programs
}

/// The directory's name is the version: an engine is only put there after it reported its version.
fn in_cache(flavor: Flavor, cache: &Path) -> Vec<Engine> {
    let dirs = fs::read_dir(engines_of(cache, flavor))
        .into_iter()
        .flatten();
    dirs.flatten()
        .filter_map(|dir| {
            let version = dir.file_name().to_str()?.parse().ok()?;
            let program = dir.path().join(flavor.program());
            program
                .is_file()
                .then(|| engine(flavor, version, &program, EngineOrigin::Cache))
        })
        .collect()
}

fn ask_version(program: &Path, search: &EngineSearch<'_>) -> Result<Version, LocateError> {
    let mut remembered = VersionCache::load(search.cache);
    let stamp = Stamp::of(program).ok();
    if let Some(version) = stamp.as_ref().and_then(|it| remembered.get(program, it)) {
        return Ok(version);
    }
    let version = run_version(program, search.path)?;
    // A version switcher may choose another version in each directory, so its answer is not cached.
    if let Some(stamp) = stamp.filter(|_| !process::is_script(program)) {
        remembered.put(program, stamp, &version);
        // Without a writable cache, the version is read again next time.
        let _ = remembered.save(search.cache);
    }
    Ok(version)
}

/// Runs the program to get its version.
pub(super) fn run_version(program: &Path, path: Option<&OsStr>) -> Result<Version, LocateError> {
    #[derive(Deserialize)]
    struct VersionOutput {
        terraform_version: Version,
    }
    let mut env: Environment = [("CHECKPOINT_DISABLE", "1")].into_iter().collect();
    if let Some(path) = path.and_then(OsStr::to_str) {
        env.set("PATH", path);
    }
    let args = ["version".into(), "-json".into()];
    let said = process::capture_blocking(&Capture {
        timeout: Duration::from_secs(20),
        limit: 1 << 20,
        ..Capture::new(program, &args, Path::new("/"), &env)
    })
    .map_err(|source| LocateError::Ask {
        program: program.to_owned(),
        source,
    })?;
    serde_json::from_slice(&said.stdout)
        .map(|answer: VersionOutput| answer.terraform_version)
        .map_err(|_| LocateError::NoVersion {
            program: program.to_owned(),
            said: format!("{}, {}", said.exit, first_line(&words(&said))),
        })
}

/// The program's output, standard error first.
fn words(said: &Captured) -> String {
    [said.stderr_text(), said.stdout_text()]
        .map(|text| text.trim().to_owned())
        .join("\n")
        .trim()
        .to_owned()
}

fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or("it says nothing");
    line.chars().take(200).collect()
}

/// Versions that programs reported, by path.
#[derive(Default, Serialize, Deserialize)]
struct VersionCache(BTreeMap<PathBuf, (Stamp, Version)>);

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    modified: u128,
    size: u64,
}

impl Stamp {
    fn of(program: &Path) -> io::Result<Self> {
        let meta = fs::metadata(program)?;
        let modified = meta.modified()?.duration_since(UNIX_EPOCH);
        Ok(Self {
            modified: modified.unwrap_or_default().as_nanos(),
            size: meta.len(),
        })
    }
}

impl VersionCache {
    fn file(cache: &Path) -> PathBuf {
        cache.join("engines").join("versions.json")
    }

    /// An unreadable cache counts as empty.
    fn load(cache: &Path) -> Self {
        fs::read(Self::file(cache))
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default()
    }

    fn get(&self, program: &Path, stamp: &Stamp) -> Option<Version> {
        let (seen, version) = self.0.get(program)?;
        (seen == stamp).then(|| version.clone())
    }

    fn put(&mut self, program: &Path, stamp: Stamp, version: &Version) {
        self.0.insert(program.to_owned(), (stamp, version.clone()));
    }

    fn save(&self, cache: &Path) -> io::Result<()> {
        let file = Self::file(cache);
        let dir = file.parent().unwrap_or(cache);
        fs::create_dir_all(dir)?;
        let mut fresh = tempfile::NamedTempFile::new_in(dir)?;
        serde_json::to_writer(&mut fresh, self)?;
        fresh.persist(file)?;
        Ok(())
    }
}
