//! Read access to a tree of files, given by whoever calls: a directory, a Git commit, a map in a test.

use std::collections::BTreeMap;

/// Files by their path relative to the project's root, with `/`, never with `..`.
pub trait Tree {
    /// The bytes of a file, or why not.
    fn read(&self, path: &str) -> Result<Vec<u8>, ReadFailure>;

    /// Names in a directory (`""` is the root), sorted; `None` if there is no such directory.
    fn list(&self, dir: &str) -> Option<Vec<Entry>>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
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

/// A tree held in memory.
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

    fn list(&self, dir: &str) -> Option<Vec<Entry>> {
        let prefix = if dir.is_empty() {
            String::new()
        } else {
            format!("{dir}/")
        };
        let mut entries: Vec<Entry> = Vec::new();
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
                entries.push(Entry {
                    name: name.to_owned(),
                    is_dir,
                });
            }
        }
        (!entries.is_empty() || dir.is_empty()).then_some(entries)
    }
}
