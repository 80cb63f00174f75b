//! Read access to a tree of files, provided by the caller: a directory, a Git commit, a map in a test.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Files by path relative to the project's root, with `/` and without `..`.
pub trait Tree: Sync {
    /// The bytes of a file, or the reason why it cannot be read.
    fn read(&self, path: &str) -> Result<Vec<u8>, ReadFailure>;

    /// Names in a directory (`""` is the root), sorted; `None` if there is no such directory.
    fn list(&self, dir: &str) -> Option<Vec<TreeEntry>>;

    /// Whether a path exists but leads out of the tree.
    fn leads_out(&self, _path: &str) -> bool {
        false
    }

    /// Whether a directory is part of the source and not ignored by Git.
    fn is_source(&self, _dir: &str) -> bool {
        true
    }

    /// Calls `action` once for each number below `count`, in any order. A tree may do this in parallel.
    fn share_out(&self, count: usize, action: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(action);
    }
}

/// Applies `action` to each item and returns the results in order. The tree may do this in parallel.
pub(crate) fn each<T: Sync, R: Send>(
    tree: &dyn Tree,
    items: &[T],
    action: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let made: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    tree.share_out(items.len(), &|at| {
        let one = action(&items[at]);
        *made[at].lock().unwrap_or_else(PoisonError::into_inner) = Some(one);
    });
    let taken = |one: Mutex<Option<R>>| one.into_inner().unwrap_or_else(PoisonError::into_inner);
    made.into_iter().filter_map(taken).collect()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    pub name: String,
    pub is_dir: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadFailure {
    #[error("no such file")]
    Missing,
    #[error("it is larger than {limit} bytes")]
    TooLarge { limit: u64 },
    #[error("{0}")]
    Other(String),
}

/// A tree in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryTree {
    files: BTreeMap<String, Vec<u8>>,
}

impl MemoryTree {
    pub fn insert(&mut self, path: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.files.insert(path.into(), bytes.into());
    }
}

impl<P: Into<String>, B: Into<Vec<u8>>> FromIterator<(P, B)> for MemoryTree {
    fn from_iter<I: IntoIterator<Item = (P, B)>>(files: I) -> Self {
        Self {
            files: files
                .into_iter()
                .map(|(p, b)| (p.into(), b.into()))
                .collect(),
        }
    }
}

impl Tree for MemoryTree {
    fn read(&self, path: &str) -> Result<Vec<u8>, ReadFailure> {
        self.files.get(path).cloned().ok_or(ReadFailure::Missing)
    }

    fn list(&self, dir: &str) -> Option<Vec<TreeEntry>> {
        let prefix = if dir.is_empty() {
            String::new()
        } else {
            format!("{dir}/")
        };
        let mut entries: Vec<TreeEntry> = Vec::new();
        for rest in self
            .files
            .range(prefix.clone()..)
            .map_while(|(path, _)| path.strip_prefix(&prefix))
        {
            let (name, is_dir) = match rest.split_once('/') {
                Some((name, _)) => (name, true),
                None => (rest, false),
            };
            if entries.last().is_none_or(|last| last.name != name) {
                entries.push(TreeEntry {
                    name: name.to_owned(),
                    is_dir,
                });
            }
        }
        (!entries.is_empty() || dir.is_empty()).then_some(entries)
    }
}
