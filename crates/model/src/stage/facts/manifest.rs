//! Which stack owns which file of a branch, what a publication changes there, and which changes are foreign.
//!
//! The manifest is on the branch, so that several projects with separate homes can share it. With `owns = "paths"`
//! there is no manifest: the home records its files.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::BranchOwnership;
use super::paths::{PathClash, PathMap};

/// Its path. Hidden and not YAML, so that tools that deploy a whole directory skip it.
pub const MANIFEST: &str = ".terrane/manifest.json";

/// The directory of break-glass records, with one file per project.
pub const BREAK_GLASS: &str = ".terrane/break-glass";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FactsManifest {
    pub files: BTreeMap<String, FileOwner>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileOwner {
    /// The project's id.
    pub project: String,
    /// Empty for files of the project as a whole.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stack: String,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot read `{MANIFEST}` on the branch")]
pub struct ReadFactsManifestError(#[source] serde_json::Error);

impl FactsManifest {
    /// Without bytes the manifest is empty: nothing has been published there yet.
    pub fn read(bytes: Option<&[u8]>) -> Result<Self, ReadFactsManifestError> {
        bytes.map_or_else(
            || Ok(Self::default()),
            |bytes| serde_json::from_slice(bytes).map_err(ReadFactsManifestError),
        )
    }

    pub fn render(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    fn of_project(&self, project: &str) -> BTreeMap<&String, &FileOwner> {
        let files = self.files.iter();
        files
            .filter(|(_, owner)| owner.project == project)
            .collect()
    }
}

/// What one stack publishes to a branch.
#[derive(Clone, Debug)]
pub struct DesiredFiles<'a> {
    pub project: &'a str,
    pub stack: &'a str,
    /// By path, as bytes.
    pub files: &'a BTreeMap<String, Vec<u8>>,
    /// Files of the project as a whole.
    pub common: &'a BTreeMap<String, Vec<u8>>,
    /// The stacks of the project that publish there. Files of removed stacks are withdrawn. None if unknown; then they
    /// stay.
    pub stacks: Option<&'a BTreeSet<String>>,
    /// Files of this stack that the home has recorded, for places without a manifest.
    pub remembered: &'a BTreeSet<String>,
}

/// The contents of a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitChanges {
    pub write: BTreeMap<String, Vec<u8>>,
    pub remove: BTreeSet<String>,
}

impl CommitChanges {
    pub fn is_empty(&self) -> bool {
        self.write.is_empty() && self.remove.is_empty()
    }
}

/// A path that belongs to another stack, or conflicts with a path of another stack.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", said(.path, .there, *.how, .owner))]
pub struct TakenPath {
    pub path: String,
    /// The path of the other stack.
    pub there: String,
    pub how: PathClash,
    pub owner: FileOwner,
}

fn said(path: &str, there: &str, how: PathClash, owner: &FileOwner) -> String {
    let FileOwner { project, stack } = owner;
    let of = match stack.as_str() {
        "" => format!("project `{project}`"),
        stack => format!("stack `{stack}` of project `{project}`"),
    };
    match how {
        PathClash::Same => format!("`{path}` belongs to {of}"),
        PathClash::Directory | PathClash::Case => format!(
            "`{path}` conflicts with `{there}`, which belongs to {of}: {}",
            how.why()
        ),
    }
}

/// The changes of a publication. `current` are the files of the tip that the manifest or `wanted` names.
pub fn changes(
    owns: BranchOwnership,
    manifest: &FactsManifest,
    current: &BTreeMap<String, Vec<u8>>,
    wanted: &DesiredFiles<'_>,
) -> Result<CommitChanges, TakenPath> {
    let mut changes = CommitChanges::default();
    let mut next = manifest.clone();
    let is_gone = |owner: &FileOwner| {
        !owner.stack.is_empty()
            && owner.stack != wanted.stack
            && wanted
                .stacks
                .is_some_and(|stacks| !stacks.contains(&owner.stack))
    };
    let is_others = |owner: &FileOwner| {
        owner.project != wanted.project || (owner.stack != wanted.stack && !is_gone(owner))
    };
    let mut others = PathMap::default();
    for (path, owner) in manifest.files.iter().filter(|(_, it)| is_others(it)) {
        others.add(path, owner);
    }
    for path in wanted.files.keys() {
        if let Some((there, owner, how)) = others.clash(path) {
            return Err(TakenPath {
                path: path.clone(),
                there: there.to_owned(),
                how,
                owner: (*owner).clone(),
            });
        }
    }
    for (path, owner) in manifest.of_project(wanted.project) {
        let is_own = owner.stack == wanted.stack && !owner.stack.is_empty();
        if (is_own && !wanted.files.contains_key(path)) || is_gone(owner) {
            next.files.remove(path);
            changes.remove.insert(path.clone());
        }
    }
    for path in wanted.remembered {
        if owns == BranchOwnership::Paths
            && !wanted.files.contains_key(path)
            && current.contains_key(path)
        {
            changes.remove.insert(path.clone());
        }
    }
    let own = wanted.files.iter().map(|file| (file, wanted.stack));
    let common = wanted.common.iter().map(|file| (file, ""));
    for ((path, bytes), stack) in own.chain(common) {
        changes.remove.remove(path);
        if current.get(path) != Some(bytes) {
            changes.write.insert(path.clone(), bytes.clone());
        }
        let owner = FileOwner {
            project: wanted.project.to_owned(),
            stack: stack.to_owned(),
        };
        next.files.insert(path.clone(), owner);
    }
    if owns == BranchOwnership::Branch
        && (next != *manifest || !current.contains_key(MANIFEST))
        && !next_is_nothing(&next, manifest)
    {
        changes.write.insert(MANIFEST.to_owned(), next.render());
    }
    Ok(changes)
}

/// An empty manifest on an empty branch needs no commit.
fn next_is_nothing(next: &FactsManifest, manifest: &FactsManifest) -> bool {
    next.files.is_empty() && manifest.files.is_empty()
}

/// The changed files that do not belong to other projects. A change of the manifest counts if it changes our entries.
pub fn foreign_files(
    project: &str,
    before: &FactsManifest,
    after: Option<&FactsManifest>,
    changed: &[String],
) -> Vec<String> {
    let mut foreign: Vec<String> = Vec::new();
    let is_theirs = |path: &String| {
        let owner_before = before.files.get(path);
        let owner_after = after.and_then(|after| after.files.get(path));
        let is_ours = [owner_before, owner_after]
            .into_iter()
            .flatten()
            .any(|owner| owner.project == project);
        !is_ours && (owner_before.is_some() || owner_after.is_some())
    };
    for path in changed {
        let is_fine = if path == MANIFEST {
            after.is_some_and(|after| after.of_project(project) == before.of_project(project))
        } else {
            is_theirs(path)
        };
        if !is_fine {
            foreign.push(path.clone());
        }
    }
    foreign
}
