//! Files that a module reads by a computed path: `file(var.x)`. Changes in them are not visible in the module's source.
//! So either too many files count as the stack's own, or the stack lists them in `watch`.

use std::collections::BTreeMap;

use super::{Module, closure};
use crate::base::diagnostic::Location;

/// A call of `file()` or a similar function with a computed path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownRead {
    pub function: String,
    pub whereabouts: PathScope,
    pub at: Location,
}

/// What is known about such a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathScope {
    /// It starts with this directory, relative to the project's root. The rest is assumed to stay inside.
    Below(String),
    Anywhere,
    /// An absolute path outside the project.
    Outside,
}

/// The reads of the module in `dir`, and of all modules it calls, that no `watch` glob covers.
pub fn unwatched<'m>(
    modules: &'m BTreeMap<String, Module>,
    dir: &str,
    watch: &[String],
) -> Vec<(&'m Module, &'m UnknownRead)> {
    let reached = closure(modules, dir).into_iter();
    let reached = reached.filter_map(|dir| modules.get(&dir));
    let reads = reached.flat_map(|module| {
        let reads = module.unknown_reads.iter();
        reads.map(move |read| (module, read))
    });
    reads
        .filter(|(_, read)| !read.whereabouts.is_watched(watch))
        .collect()
}

impl UnknownRead {
    /// Whether it stays in its module's directory, which counts as a whole anyway.
    pub fn is_inside(&self, module: &Module) -> bool {
        match &self.whereabouts {
            PathScope::Below(dir) => is_below(dir, &module.dir),
            PathScope::Anywhere | PathScope::Outside => false,
        }
    }
}

impl PathScope {
    /// Whether `watch` covers these files.
    fn is_watched(&self, watch: &[String]) -> bool {
        match self {
            Self::Below(dir) => watch.iter().any(|glob| {
                let base = literal_base(glob);
                is_below(dir, &base) || is_below(&base, dir)
            }),
            Self::Anywhere => !watch.is_empty(),
            Self::Outside => false,
        }
    }
}

/// The directories of a glob before its first pattern.
fn literal_base(glob: &str) -> String {
    let plain = |part: &&str| !part.contains(['*', '?', '[', '{']);
    let parts: Vec<&str> = glob.split('/').take_while(plain).collect();
    parts.join("/")
}

fn is_below(path: &str, dir: &str) -> bool {
    dir.is_empty() || path == dir || path.strip_prefix(dir).is_some_and(|it| it.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_speaks_for_what_it_overlaps() {
        let below = PathScope::Below("infra/conf".to_owned());
        let is_watched = |it: &PathScope, glob: &str| it.is_watched(&[glob.to_owned()]);
        assert!(is_watched(&below, "infra/conf/**"));
        assert!(is_watched(&below, "infra/**/*.yaml"));
        assert!(is_watched(&below, "infra/conf/a/*.yaml"));
        assert!(!is_watched(&below, "infra/confusion/**"));
        assert!(!is_watched(&below, "charts/**"));
        assert!(is_watched(&PathScope::Anywhere, "charts/**"));
        assert!(!PathScope::Anywhere.is_watched(&[]));
        assert!(!is_watched(&PathScope::Outside, "**"));
    }
}
