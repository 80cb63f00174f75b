//! Formatting by the engine: the project file through its standard input, the stacks in place.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use drivers::engine::{Engine, EngineCall, EngineSearch, FmtCall, LocateError, locate};
use drivers::process::{CaptureError, engine_environment};
use model::base::error::{Explain, NextStep};
use model::project::Project;

use crate::program_output::engine_messages::EngineError;
use crate::project::open::OpenProject;

/// Files that were, or would be, changed, relative to the project's root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatReport {
    pub changed: Vec<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    #[error(transparent)]
    Engine(#[from] LocateError),
    #[error("could not run the engine")]
    Call(#[from] CaptureError),
    #[error("the engine could not format `{}`", path.display())]
    Refused { path: PathBuf, source: EngineError },
    #[error("could not read or write `{}`", path.display())]
    File { path: PathBuf, source: io::Error },
}

impl Explain for FormatError {
    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::Engine(err) => err.next_steps(),
            Self::Call(_) | Self::Refused { .. } | Self::File { .. } => Vec::new(),
        }
    }
}

pub async fn format(
    open: &OpenProject,
    project: &Project,
    env: &BTreeMap<String, String>,
    cache: &Path,
    check: bool,
) -> Result<FormatReport, FormatError> {
    let path = env.get("PATH").map(OsStr::new);
    let engine = locate(&project.engine, &EngineSearch::new(path, cache))?;
    let formatter = Formatter {
        engine,
        root: &open.root,
        env,
        check,
    };
    let mut changed = Vec::new();
    for file in formatter.project_files()? {
        if formatter.one(&file).await? {
            changed.push(file);
        }
    }
    let dirs: BTreeSet<&String> = open.loaded.modules.keys().collect();
    for dir in dirs {
        changed.extend(formatter.module(dir).await?);
    }
    changed.sort();
    changed.dedup();
    Ok(FormatReport { changed })
}

struct Formatter<'a> {
    engine: Engine,
    root: &'a Path,
    env: &'a BTreeMap<String, String>,
    check: bool,
}

impl Formatter<'_> {
    /// `terrane.hcl` and its companions at the root.
    fn project_files(&self) -> Result<Vec<PathBuf>, FormatError> {
        let failed = |source| FormatError::File {
            path: self.root.to_owned(),
            source,
        };
        let mut files = Vec::new();
        for entry in std::fs::read_dir(self.root).map_err(failed)? {
            let name = PathBuf::from(entry.map_err(failed)?.file_name());
            let text = name.to_string_lossy();
            if text == "terrane.hcl" || text.ends_with(".terrane.hcl") {
                files.push(name.clone());
            }
        }
        files.sort();
        Ok(files)
    }

    async fn one(&self, file: &Path) -> Result<bool, FormatError> {
        let path = self.root.join(file);
        let failed = |source| FormatError::File {
            path: path.clone(),
            source,
        };
        let before = std::fs::read(&path).map_err(failed)?;
        let call = EngineCall::Fmt(FmtCall::Stdin);
        let environment = engine_environment(self.env, true);
        let said = self
            .engine
            .capture(&call, self.root, &environment, &before)
            .await?;
        if !said.exit.success() {
            return Err(FormatError::Refused {
                path: file.to_owned(),
                source: EngineError::of(&said),
            });
        }
        if said.stdout == before {
            return Ok(false);
        }
        if !self.check {
            std::fs::write(&path, &said.stdout).map_err(failed)?;
        }
        Ok(true)
    }

    /// The engine prints the files it changed, or would change, one per line.
    async fn module(&self, dir: &str) -> Result<Vec<PathBuf>, FormatError> {
        let paths = [self.root.join(dir)];
        let call = EngineCall::Fmt(if self.check {
            FmtCall::Check { paths: &paths }
        } else {
            FmtCall::Write { paths: &paths }
        });
        let environment = engine_environment(self.env, true);
        let said = self
            .engine
            .capture(&call, self.root, &environment, &[])
            .await?;
        // With `-check`, exit code 3 means that files differ.
        if !matches!(said.exit.code(), Some(0 | 3)) {
            return Err(FormatError::Refused {
                path: dir.into(),
                source: EngineError::of(&said),
            });
        }
        let text = said.stdout_text();
        let relative = |line: &str| {
            let path = Path::new(line);
            path.strip_prefix(self.root).unwrap_or(path).to_owned()
        };
        Ok(text
            .lines()
            .filter(|line| !line.is_empty())
            .map(relative)
            .collect())
    }
}
