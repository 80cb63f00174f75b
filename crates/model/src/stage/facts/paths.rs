//! Paths of facts: which are invalid, and which conflict with each other.

use std::collections::BTreeMap;

/// Why a path is invalid. It must stay below its root.
pub fn path_problem(path: &str) -> Option<&'static str> {
    let is = |part: &str, name: &str| part.eq_ignore_ascii_case(name);
    let why = if path.is_empty() || path.starts_with('/') || path.ends_with('/') {
        "it must lead to a file below the root"
    } else if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
        "a part of it is empty, `.` or `..`"
    } else if path
        .split('/')
        .any(|part| is(part, ".git") || is(part, ".terrane"))
    {
        "`.git` and `.terrane` are not for files of others"
    } else if path
        .chars()
        .any(|c| c.is_control() || c == '"' || c == '\\')
    {
        "it holds a character that Git would write in another way"
    } else {
        return None;
    };
    Some(why)
}

/// Why two paths cannot exist in one tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathClash {
    Same,
    /// One is a file where the other needs a directory.
    Directory,
    /// They differ only in case.
    Case,
}

impl PathClash {
    pub fn why(self) -> &'static str {
        match self {
            Self::Same => "they are one file",
            Self::Directory => "one would be a file and a directory at once",
            Self::Case => "they differ in case only, and on many disks that is one file",
        }
    }
}

/// Paths of one tree, each with a value.
#[derive(Debug)]
pub struct PathMap<T>(BTreeMap<String, (String, T)>);

impl<T> Default for PathMap<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> PathMap<T> {
    pub fn add(&mut self, path: &str, what: T) {
        self.0.insert(key(path), (path.to_owned(), what));
    }

    /// A path that conflicts with the given one.
    pub fn clash(&self, path: &str) -> Option<(&str, &T, PathClash)> {
        let wanted = key(path);
        if let Some((there, what)) = self.0.get(&wanted) {
            let how = if there == path {
                PathClash::Same
            } else {
                PathClash::Case
            };
            return Some((there, what, how));
        }
        let above = wanted.match_indices('/').map(|(at, _)| &wanted[..at]);
        let above = above.into_iter().find_map(|above| self.0.get(above));
        let inside = format!("{wanted}/");
        let below = self.0.range(inside.clone()..).next();
        let below = below.filter(|(key, _)| key.starts_with(&inside));
        let (there, what) = above.or(below.map(|(_, found)| found))?;
        Some((there, what, PathClash::Directory))
    }
}

fn key(path: &str) -> String {
    path.to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_lie_beside_each_other() {
        let mut paths = PathMap::default();
        for path in ["a/x.yaml", "b.yaml", "c.yaml/d.yaml"] {
            paths.add(path, ());
        }
        let clash = |path: &str| paths.clash(path).map(|(there, (), how)| (there, how));
        assert_eq!(clash("a/x.yaml"), Some(("a/x.yaml", PathClash::Same)));
        assert_eq!(clash("A/X.yaml"), Some(("a/x.yaml", PathClash::Case)));
        assert_eq!(
            clash("b.yaml/y.yaml"),
            Some(("b.yaml", PathClash::Directory))
        );
        assert_eq!(
            clash("C.yaml"),
            Some(("c.yaml/d.yaml", PathClash::Directory))
        );
        for fine in ["a/y.yaml", "b.yaml.yaml", "A/y.yaml", "c.yaml.json"] {
            assert_eq!(clash(fine), None, "{fine}");
        }
    }
}
