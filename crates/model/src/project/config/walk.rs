//! The directories of a project: listed once, limited, without those that are not source.

use std::collections::BTreeMap;

use crate::base::tree::{Tree, TreeEntry, each};
use crate::project::module::is_engine_file;

const MAX_DIRS: usize = 50_000;
const MAX_DEPTH: usize = 32;

pub(crate) struct Dirs {
    listed: BTreeMap<String, Vec<TreeEntry>>,
}

impl Dirs {
    /// Walks breadth first, so that the limit cuts off the deepest directories.
    pub(crate) fn walk(tree: &dyn Tree) -> Self {
        let mut listed = BTreeMap::new();
        let mut level = vec![String::new()];
        for _ in 0..MAX_DEPTH {
            let mut below = Vec::new();
            level.truncate(MAX_DIRS - listed.len());
            let lists = each(tree, &level, |dir| tree.list(dir));
            for (dir, entries) in level.into_iter().zip(lists) {
                let Some(entries) = entries else {
                    continue;
                };
                let subdirs = entries
                    .iter()
                    .filter(|entry| entry.is_dir && is_source(&entry.name));
                if !is_home(&dir, &entries) {
                    below.extend(subdirs.map(|entry| join(&dir, &entry.name)));
                }
                listed.insert(dir, entries);
            }
            level = below;
        }
        Self { listed }
    }

    /// A directory's entries. A directory that the walk skipped is listed now.
    pub(crate) fn entries(&mut self, tree: &dyn Tree, dir: &str) -> Option<&[TreeEntry]> {
        if !self.listed.contains_key(dir) {
            let entries = tree.list(dir)?;
            self.listed.insert(dir.to_owned(), entries);
        }
        self.listed.get(dir).map(Vec::as_slice)
    }

    /// The entries of a directory that was already listed.
    pub(crate) fn known(&self, dir: &str) -> &[TreeEntry] {
        self.listed.get(dir).map_or(&[], Vec::as_slice)
    }

    /// Directories of the source that contain engine files.
    pub(crate) fn engine_dirs(&self, tree: &dyn Tree) -> Vec<&str> {
        let all = self.holding(is_engine_file);
        all.filter(|dir| tree.is_source(dir)).collect()
    }

    /// Directories of the source that contain a `stack.hcl`.
    pub(crate) fn stack_dirs(&self, tree: &dyn Tree) -> Vec<&str> {
        let all = self.holding(|name| name == "stack.hcl");
        all.filter(|dir| tree.is_source(dir)).collect()
    }

    /// Directories that are projects of their own.
    pub(crate) fn project_dirs(&self) -> impl Iterator<Item = &str> {
        self.holding(|name| name == "terrane.hcl")
    }

    /// All files with this name suffix, by path.
    pub(crate) fn files_ending(&self, end: &str) -> Vec<String> {
        let named = |entry: &&TreeEntry| !entry.is_dir && entry.name.ends_with(end);
        let all = self.listed.iter().flat_map(|(dir, entries)| {
            let found = entries.iter().filter(named);
            found.map(move |entry| join(dir, &entry.name))
        });
        all.collect()
    }

    fn holding(&self, good: impl Fn(&str) -> bool) -> impl Iterator<Item = &str> {
        self.listed
            .iter()
            .filter(move |(_, entries)| {
                entries
                    .iter()
                    .any(|entry| !entry.is_dir && good(&entry.name))
            })
            .map(|(dir, _)| dir.as_str())
    }
}

/// A home inside the project contains copies of the source and thousands of runs.
fn is_home(dir: &str, entries: &[TreeEntry]) -> bool {
    !dir.is_empty() && entries.iter().any(|entry| entry.name == "terrane.db")
}

fn is_source(name: &str) -> bool {
    !name.starts_with('.') && name != "node_modules"
}

pub(crate) fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() {
        name.to_owned()
    } else {
        format!("{dir}/{name}")
    }
}
