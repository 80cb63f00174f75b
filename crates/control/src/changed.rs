//! `changed:REF`: which stacks the tree that would be snapshotted touches, compared with a base commit.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use drivers::git::GitError;
use drivers::tree::CommitTree;
use model::changed::{Reach, definitions_changed, stacks_touched};
use model::config::{self, Surroundings};
use model::ids::StackName;
use model::module;
use model::project::Project;
use model::selector::ChangedRef;

use crate::projects::OpenProject;

#[derive(Debug, thiserror::Error)]
pub enum ChangedError {
    #[error("`changed:` needs a Git repository, and this project is in none")]
    NoRepository,
    #[error("could not find out what changed since `{reference}`")]
    Git { reference: String, source: GitError },
    #[error("`changed:applied` is not built yet")]
    NotYet,
}

impl ChangedError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoRepository => Some("name the stacks instead".to_owned()),
            Self::Git { source, .. } => source.hint(),
            Self::NotYet => Some("`changed:REF` compares with a commit".to_owned()),
        }
    }
}

pub fn since(
    open: &OpenProject,
    project: &Project,
    reference: &ChangedRef,
    env: &BTreeMap<String, String>,
) -> Result<BTreeSet<StackName>, ChangedError> {
    let reference = match reference {
        ChangedRef::Git(reference) => reference,
        ChangedRef::Applied => return Err(ChangedError::NotYet),
    };
    let failed = |source| ChangedError::Git {
        reference: reference.clone(),
        source,
    };
    let git = open.git.as_ref().ok_or(ChangedError::NoRepository)?;
    let base = git.merge_base(reference).map_err(failed)?;
    let paths = git.changed_since(&base).map_err(failed)?;
    let reach = |name: &StackName| {
        let stack = &project.stacks[name];
        let dirs = module::closure(&open.loaded.modules, &stack.path);
        let files = dirs
            .iter()
            .filter_map(|dir| open.loaded.modules.get(dir))
            .flat_map(|module| module.files.iter().cloned())
            .collect();
        Reach {
            dirs,
            files,
            globs: stack.watch.clone(),
        }
    };
    let mut touched: BTreeSet<StackName> = stacks_touched(project, &reach, &paths)
        .into_keys()
        .collect();
    // Blocks can change only if a project file did.
    let is_hcl = |path: &String| Path::new(path).extension().is_some_and(|end| end == "hcl");
    if paths.iter().any(is_hcl) {
        let tree = CommitTree::new(git, &base).map_err(failed)?;
        let lookup = |name: &str| env.get(name).cloned();
        // The same names as now: that `git.commit` moved is no change of a block.
        let around = Surroundings {
            env: &lookup,
            git_commit: git.head().map_err(failed)?,
            git_branch: git.branch().map_err(failed)?,
        };
        match config::load(&tree, &around).project {
            Some(before) => touched.extend(definitions_changed(&before, project)),
            None => touched.extend(project.stacks.keys().cloned()),
        }
    }
    Ok(touched)
}
