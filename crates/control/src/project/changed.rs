//! `changed:`: which stacks the current source changes, compared with a base commit or with the last applied
//! source.

use std::collections::{BTreeMap, BTreeSet};

use drivers::git::GitError;
use drivers::snapshot::{self, ExtraFiles, FileKind, Snapshot, SnapshotError, SnapshotFile};
use drivers::tree::CommitTree;
use model::base::error::{Explain, NextStep, advice};
use model::base::ids::StackName;
use model::project::Project;
use model::project::changed::{
    SourceExtent, StackDefinition, definitions_changed, sources, stacks_touched,
};
use model::project::config::{self, LoadEnvironment};
use model::project::module::{self, PathScope};

use crate::Control;
use crate::project::open::OpenProject;

#[derive(Debug, thiserror::Error)]
pub enum ChangedError {
    #[error("`changed:` needs a Git repository, but this project is not in one")]
    NoRepository,
    #[error("cannot determine what changed since `{reference}`")]
    Git { reference: String, source: GitError },
    #[error("cannot compare stack `{stack}` with its last apply")]
    History {
        stack: StackName,
        source: store::ChangeSetError,
    },
    #[error("could not take a snapshot of the source")]
    Snapshot(#[from] SnapshotError),
}

impl Explain for ChangedError {
    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::NoRepository => vec![advice("name the stacks instead")],
            Self::Git { source, .. } => source.next_steps(),
            Self::History { .. } | Self::Snapshot(_) => Vec::new(),
        }
    }
}

/// `changed:applied`: the stacks whose own source differs from that of their last run that applied its source
/// completely. Stacks without such a run are included.
pub async fn since_applied(
    control: &Control,
    open: &OpenProject,
    project: &Project,
) -> Result<BTreeSet<StackName>, ChangedError> {
    let now = snapshot::collect(&open.root, open.git.as_ref(), &ExtraFiles::of(project))?;
    let mut touched = BTreeSet::new();
    for (stack, own) in own_sources(open, project, &now) {
        let last = control
            .store
            .run_last_settled(control.home.project(), &stack)
            .await;
        let last = last.map_err(|source| ChangedError::History {
            stack: stack.clone(),
            source,
        })?;
        let differs = last.is_none_or(|last| last.spec.own_source != own);
        if differs || reads_beyond(open, project, &stack) {
            touched.insert(stack);
        }
    }
    Ok(touched)
}

/// For each stack, a digest of its own source: its files, and its definition in the project file.
pub(crate) fn own_sources(
    open: &OpenProject,
    project: &Project,
    snapshot: &Snapshot,
) -> BTreeMap<StackName, String> {
    let reach = |name: &StackName| reach(open, project, name);
    let files: BTreeMap<&str, &SnapshotFile> = snapshot
        .files
        .iter()
        .map(|file| (file.path.as_str(), file))
        .collect();
    let paths: Vec<&str> = files.keys().copied().collect();
    let links = snapshot.files.iter();
    let links = links.filter(|file| file.kind == FileKind::Link);
    let links = snapshot::links(&open.root, links.map(|file| file.path.as_str()));
    let own = sources(project, &reach, &links, &paths);
    own.into_iter()
        .map(|(name, paths)| {
            let stack = &project.stacks[&name];
            let definition = StackDefinition::of(project, stack);
            let files: Vec<_> = paths.iter().map(|path| files[path]).collect();
            let text = serde_json::json!([definition, files]).to_string();
            let digest = snapshot::sha256(text.as_bytes());
            (name, digest)
        })
        .collect()
}

/// The files that make up a stack's source.
fn reach(open: &OpenProject, project: &Project, name: &StackName) -> SourceExtent {
    let stack = &project.stacks[name];
    let dirs = module::closure(&open.loaded.modules, &stack.path);
    let files = dirs
        .iter()
        .filter_map(|dir| open.loaded.modules.get(dir))
        .flat_map(|module| module.files.keys().cloned())
        .collect();
    let mut globs = stack.watch.clone();
    for (_, read) in module::unwatched(&open.loaded.modules, &stack.path, &stack.watch) {
        match &read.whereabouts {
            PathScope::Below(dir) if !dir.is_empty() => globs.push(format!("{dir}/**")),
            PathScope::Below(_) | PathScope::Anywhere => globs.push("**".to_owned()),
            PathScope::Outside => {}
        }
    }
    SourceExtent { dirs, files, globs }
}

/// Whether a stack may read files outside the project. If so, an unchanged source does not prove that the
/// stack is unchanged.
pub(crate) fn reads_beyond(open: &OpenProject, project: &Project, name: &StackName) -> bool {
    let stack = &project.stacks[name];
    let reads = module::unwatched(&open.loaded.modules, &stack.path, &stack.watch);
    reads.iter().any(|(_, read)| match read.whereabouts {
        PathScope::Anywhere | PathScope::Outside => true,
        PathScope::Below(_) => false,
    })
}

/// `changed:REF`.
pub fn since(
    open: &OpenProject,
    project: &Project,
    reference: &str,
    env: &BTreeMap<String, String>,
) -> Result<BTreeSet<StackName>, ChangedError> {
    let failed = |source| ChangedError::Git {
        reference: reference.to_owned(),
        source,
    };
    let git = open.git.as_ref().ok_or(ChangedError::NoRepository)?;
    let base = git.merge_base(reference).map_err(failed)?;
    let paths = git.changed_since(&base).map_err(failed)?;
    let reach = |name: &StackName| reach(open, project, name);
    let all = snapshot::list(&open.root, Some(git), &ExtraFiles::of(project))?;
    let links = snapshot::links(&open.root, all.iter().map(String::as_str));
    let mut touched: BTreeSet<StackName> = stacks_touched(project, &reach, &links, &paths)
        .into_keys()
        .collect();
    // Any changed file may be one that the project file reads.
    if !paths.is_empty() {
        let tree = CommitTree::new(git, &base).map_err(failed)?;
        let lookup = |name: &str| env.get(name).cloned();
        // Use the current Git names, so that a different `git.commit` does not count as a changed block.
        let around = LoadEnvironment {
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
