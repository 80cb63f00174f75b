//! `init`: surveys a directory and proposes a project file. It never overwrites an existing file.
//!
//! Not here: what to propose (`model::project::proposal`).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use drivers::engine::{Engine, EngineOrigin, EngineSearch, list};
use drivers::git::Git;
use drivers::tree::DirTree;
use model::base::error::{Explain, NextStep, command};
use model::project::engine::Flavor;
use model::project::proposal::{self, ProjectProposal, Survey};

/// The name of the proposed file.
pub const FILE: &str = "terrane.hcl";

#[derive(Debug, thiserror::Error)]
pub enum ProposeError {
    #[error("cannot read `{}`", path.display())]
    Look { path: PathBuf, source: io::Error },
    #[error("there is a `terrane.hcl` already in `{}`", path.display())]
    Exists { path: PathBuf },
    #[error("could not write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl Explain for ProposeError {
    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::Exists { .. } => vec![
                command("init --dry-run", "shows what it would propose"),
                command("validate", "checks the existing file"),
            ],
            Self::Look { .. } | Self::Write { .. } => Vec::new(),
        }
    }
}

/// What was found, and the proposal for it.
#[derive(Clone, Debug)]
pub struct InitProposal {
    pub survey: Survey,
    pub proposal: ProjectProposal,
    /// The text of the project file.
    pub text: String,
}

/// Surveys a directory without writing anything.
pub fn propose(
    root: &Path,
    search: &EngineSearch<'_>,
    env: &BTreeMap<String, String>,
) -> Result<InitProposal, ProposeError> {
    let failed = |source| ProposeError::Look {
        path: root.to_owned(),
        source,
    };
    let root = root.canonicalize().map_err(failed)?;
    // Without Git, all files are source.
    let git = Git::new(env).repository(&root).ok().flatten();
    let tree = DirTree::in_repository(&root, git.as_ref()).map_err(failed)?;
    let survey = proposal::find(&tree);
    let (flavor, constraint) = engine(&list(search));
    let name = root.file_name().unwrap_or_default();
    let proposal = ProjectProposal {
        name: name.to_string_lossy().into_owned(),
        id: fresh_id(),
        flavor,
        constraint,
        found: survey.roots.clone(),
    };
    let text = proposal::render(&proposal);
    Ok(InitProposal {
        survey,
        proposal,
        text,
    })
}

/// Fails if a project file already exists.
pub fn check_free(root: &Path) -> Result<(), ProposeError> {
    if root.join(FILE).symlink_metadata().is_ok() {
        return Err(ProposeError::Exists {
            path: root.to_owned(),
        });
    }
    Ok(())
}

/// Writes the project file, unless one already exists.
pub fn write(root: &Path, text: &str) -> Result<PathBuf, ProposeError> {
    let path = root.join(FILE);
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => ProposeError::Exists {
            path: root.to_owned(),
        },
        _ => ProposeError::Write {
            path: path.clone(),
            source,
        },
    };
    let mut file = File::create_new(&path).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    Ok(path)
}

/// `tofu`, unless only `terraform` is on `PATH`; pinned to the installed minor version.
fn engine(there: &[Engine]) -> (Flavor, Option<String>) {
    let on_path = |flavor| {
        there
            .iter()
            .find(|engine| engine.flavor == flavor && engine.origin == EngineOrigin::Path)
    };
    let cached = |flavor| there.iter().find(|engine| engine.flavor == flavor);
    let chosen = on_path(Flavor::Tofu)
        .or_else(|| on_path(Flavor::Terraform))
        .or_else(|| cached(Flavor::Tofu));
    match chosen {
        Some(engine) => {
            let version = &engine.version;
            let constraint = format!("~> {}.{}", version.major, version.minor);
            (engine.flavor, Some(constraint))
        }
        None => (Flavor::Tofu, None),
    }
}

/// A random id of six characters such as `k3v9qd`, without characters that look alike. It is short enough to
/// read aloud, and long enough that two projects of one person do not collide.
fn fresh_id() -> String {
    const LETTERS: &[u8] = b"bcdfghjkmnpqrtvw";
    const ALL: &[u8] = b"bcdfghjkmnpqrstvwxyz23456789aeuk";
    let random = uuid::Uuid::new_v4();
    let bytes = random.as_bytes();
    let pick = |from: &[u8], byte: u8| char::from(from[usize::from(byte) % from.len()]);
    let first = pick(LETTERS, bytes[0]);
    let rest = bytes[1..6].iter().map(|byte| pick(ALL, *byte));
    std::iter::once(first).chain(rest).collect()
}
