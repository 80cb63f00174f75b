//! Opens a project: its root, its file, its identity.

pub mod checkouts;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use drivers::git::{Git, GitError, Repository};
use drivers::tree::DirTree;
use model::base::diagnostic::Finding;
use model::base::error::{Explain, NextStep, advice, command};
use model::project::Project;
use model::project::config::{self, LoadEnvironment, LoadedProject};

#[derive(Debug)]
pub struct OpenProject {
    pub root: PathBuf,
    pub loaded: LoadedProject,
    pub git: Option<Repository>,
    pub identity: ProjectIdentity,
    /// The commit that the project was read from, instead of the working tree.
    pub commit: Option<OlderProject>,
    /// Identifies this checkout: the directory, or the Git common directory and the path inside it.
    pub checkout: PathBuf,
}

/// The project as a user has it, and the user's environment.
#[derive(Clone, Copy, Debug)]
pub struct ProjectContext<'a> {
    pub open: &'a OpenProject,
    pub project: &'a Project,
    pub env: &'a BTreeMap<String, String>,
}

/// A project read from an older commit, for stacks that the project no longer has.
#[derive(Clone, Debug)]
pub struct OlderProject {
    pub id: String,
    pub subject: String,
    /// The current project.
    pub now: Project,
}

/// The identity of a project, which selects its home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectIdentity {
    pub id: String,
    pub from: ProjectIdSource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectIdSource {
    /// The `id` of the project block: all clones share one home.
    Written,
    /// Worktrees share a home, other clones do not.
    GitDirectory,
    Path,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenProjectError {
    #[error("there is no `terrane.hcl` in `{}` or above it", start.display())]
    NotFound { start: PathBuf },
    #[error("could not open the project in `{}`", path.display())]
    Path {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("could not read the project's Git repository")]
    Git(#[from] GitError),
}

impl Explain for OpenProjectError {
    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::NotFound { .. } => vec![
                command("init", "reads a repository and proposes one"),
                advice("or name the project's directory: `--project DIR`"),
            ],
            Self::Path { .. } | Self::Git(_) => Vec::new(),
        }
    }
}

/// The nearest directory, from `start` upwards, with a project file.
pub fn find_root(start: &Path) -> Result<PathBuf, OpenProjectError> {
    let start = start
        .canonicalize()
        .map_err(|source| OpenProjectError::Path {
            path: start.to_owned(),
            source,
        })?;
    let found = start
        .ancestors()
        .find(|dir| dir.join("terrane.hcl").is_file());
    found.map(Path::to_owned).ok_or(OpenProjectError::NotFound {
        start: start.clone(),
    })
}

/// Reads the project; errors in its file are in `loaded.findings`. `validation::check_stages` checks what its
/// stages refer to, and `policy::check` its policies.
pub fn open(root: &Path, env: &BTreeMap<String, String>) -> Result<OpenProject, OpenProjectError> {
    let git = Git::new(env).repository(root)?;
    let lookup = |name: &str| env.get(name).cloned();
    let around = LoadEnvironment {
        env: &lookup,
        git_commit: git.as_ref().map(Repository::head).transpose()?.flatten(),
        git_branch: git.as_ref().map(Repository::branch).transpose()?.flatten(),
    };
    let tree =
        DirTree::in_repository(root, git.as_ref()).map_err(|source| OpenProjectError::Path {
            path: root.to_owned(),
            source,
        })?;
    let loaded = config::load(&tree, &around);
    let words = DeclaredIdentity::of(&loaded);
    let checkout = checkout(root, git.as_ref());
    let identity = words.identity(&checkout, git.is_some());
    Ok(OpenProject {
        root: root.to_owned(),
        loaded,
        git,
        identity,
        commit: None,
        checkout,
    })
}

impl OpenProject {
    /// Adds findings, with the texts of the files they point into.
    pub fn note(&mut self, findings: Vec<Finding>) {
        for place in findings.iter().flat_map(|finding| &finding.places) {
            let file = &place.at.file;
            if self.loaded.texts.contains_key(file) {
                continue;
            }
            if let Ok(text) = std::fs::read_to_string(self.root.join(file)) {
                self.loaded.texts.insert(file.clone(), text);
            }
        }
        self.loaded.findings.extend(findings);
    }
}

/// The name and id in a project file.
#[derive(Debug)]
struct DeclaredIdentity {
    name: Option<String>,
    id: Option<String>,
}

impl DeclaredIdentity {
    fn of(loaded: &LoadedProject) -> Self {
        if let Some(project) = &loaded.project {
            return Self {
                name: Some(project.name.clone()),
                id: project.id.clone(),
            };
        }
        let text = loaded.texts.get("terrane.hcl");
        let read = text.and_then(|text| config::read_by_line(text));
        let (name, id) = read.unzip();
        Self {
            name,
            id: id.flatten(),
        }
    }

    /// The configured `id`, else an id derived from the location of the checkout.
    fn identity(&self, checkout: &Path, in_git: bool) -> ProjectIdentity {
        if let Some(id) = self.id.clone() {
            let from = ProjectIdSource::Written;
            return ProjectIdentity { id, from };
        }
        let name = self.name.as_deref().unwrap_or("project");
        let digest = drivers::snapshot::sha256(checkout.as_os_str().as_encoded_bytes());
        ProjectIdentity {
            id: format!("{name}-{}", &digest[..12]),
            from: if in_git {
                ProjectIdSource::GitDirectory
            } else {
                ProjectIdSource::Path
            },
        }
    }
}

fn checkout(root: &Path, git: Option<&Repository>) -> PathBuf {
    let Some(git) = git else {
        return root.to_owned();
    };
    let inside = root.strip_prefix(git.top()).unwrap_or(root);
    git.common_dir().join(inside)
}
