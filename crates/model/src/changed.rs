//! Which stacks a change touches: by the paths that differ, and by what the project file says.
//!
//! Not here: finding the paths (`drivers::git`), following module sources (`module`).

mod definition;
mod stages;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::ids::StackName;
use crate::project::{Project, Stack};

pub use definition::Definition;

/// What a stack's source is made of. Paths are relative to the project's root, with `/`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Directories of the modules it uses, its root module's among them or not.
    pub dirs: BTreeSet<String>,
    /// Files that its modules name, by literal paths or, as `fileset()` has them, by globs.
    pub files: BTreeSet<String>,
    /// Further files, as globs.
    pub globs: Vec<String>,
}

/// The stacks whose source has a part in `changed`, each with the first path that did it.
///
/// A directory counts with everything below it, but not with the root modules of other stacks that
/// lie in it. A stack's `var_files`, `include` and `watch` count without being in its reach, and so
/// do the files that its stages after an apply read. Files of the project itself do not count as
/// source: [`definitions_changed`] knows better what they change. A path may be a directory, as Git has it for a submodule: it counts as all that is in it.
pub fn stacks_touched(
    project: &Project,
    reach: &dyn Fn(&StackName) -> Reach,
    changed: &BTreeSet<String>,
) -> BTreeMap<StackName, String> {
    let roots: BTreeSet<&str> = project.stacks.values().map(|s| s.path.as_str()).collect();
    let source = |path: &&String| !is_project_file(path, &roots);
    let candidates: Vec<&String> = changed.iter().filter(source).collect();
    let mut touched = BTreeMap::new();
    if changed.is_empty() {
        return touched;
    }
    for stack in project.stacks.values() {
        let extent = Extent::new(project, stack, reach(&stack.name), &roots);
        let by_source = candidates.iter().find(|path| extent.holds(path));
        let named = || changed.iter().find(|path| extent.files.contains(*path));
        if let Some(path) = by_source.copied().or_else(named) {
            touched.insert(stack.name.clone(), path.clone());
        }
    }
    touched
}

/// The paths that are each stack's own source, of all those there are.
pub fn sources<'p>(
    project: &Project,
    reach: &dyn Fn(&StackName) -> Reach,
    paths: &'p [&'p str],
) -> BTreeMap<StackName, Vec<&'p str>> {
    let roots: BTreeSet<&str> = project.stacks.values().map(|s| s.path.as_str()).collect();
    let of = |stack: &Stack| {
        let extent = Extent::new(project, stack, reach(&stack.name), &roots);
        let own = |path: &&str| {
            extent.files.contains(*path) || (extent.holds(path) && !is_project_file(path, &roots))
        };
        paths.iter().copied().filter(own).collect()
    };
    let stacks = project.stacks.values();
    stacks
        .map(|stack| (stack.name.clone(), of(stack)))
        .collect()
}

/// Stacks that the project file now describes otherwise; new ones too. Both projects must be loaded with
/// the same `git` names, or every mention of `git.commit` would be a change.
pub fn definitions_changed(before: &Project, after: &Project) -> BTreeSet<StackName> {
    let same = |stack: &Stack| {
        let old = before.stacks.get(&stack.name);
        old.is_some_and(|old| Definition::of(before, old) == Definition::of(after, stack))
    };
    let stacks = after.stacks.values().filter(|stack| !same(stack));
    stacks.map(|stack| stack.name.clone()).collect()
}

/// Everything that counts as one stack's source.
struct Extent<'a> {
    dirs: BTreeSet<String>,
    files: BTreeSet<String>,
    globs: GlobSet,
    /// Root modules of all stacks.
    roots: &'a BTreeSet<&'a str>,
}

impl<'a> Extent<'a> {
    fn new(project: &Project, stack: &Stack, reach: Reach, roots: &'a BTreeSet<&'a str>) -> Self {
        let after = stages::sources(project, stack);
        let mut dirs = reach.dirs;
        dirs.insert(stack.path.clone());
        let mut files = reach.files;
        files.extend(stack.var_files.iter().cloned());
        files.insert(joined(&stack.path, ".terraform.lock.hcl"));
        let mut globs = GlobSetBuilder::new();
        let included = stack.include.iter().map(|glob| joined(&stack.path, glob));
        let filesets = files
            .iter()
            .filter(|file| file.contains(['*', '?', '[', '{']));
        let named = reach.globs.iter().chain(&stack.watch).chain(filesets);
        let named = named.chain(&after.globs);
        for glob in named.cloned().chain(included) {
            // `config` has refused what is not a glob.
            if let Ok(glob) = GlobBuilder::new(&glob).literal_separator(true).build() {
                globs.add(glob);
            }
        }
        files.extend(after.files);
        Self {
            dirs,
            files,
            globs: globs.build().unwrap_or_default(),
            roots,
        }
    }

    fn holds(&self, path: &str) -> bool {
        self.files.contains(path)
            || self.is_in_dirs(path)
            || self.globs.is_match(path)
            || has_below(&self.dirs, path)
            || has_below(&self.files, path)
    }

    /// Whether the innermost directory around it that anyone claims is one of ours.
    fn is_in_dirs(&self, path: &str) -> bool {
        let mut rest = path;
        loop {
            rest = rest.rsplit_once('/').map_or("", |(dir, _)| dir);
            if self.dirs.contains(rest) {
                return true;
            }
            if rest.is_empty() || self.roots.contains(rest) {
                return false;
            }
        }
    }
}

/// Whether `path` is a directory that holds, or is, one of `paths`.
fn has_below(paths: &BTreeSet<String>, path: &str) -> bool {
    let prefix = format!("{path}/");
    paths.contains(path)
        || paths
            .range(prefix.clone()..)
            .next()
            .is_some_and(|next| next.starts_with(&prefix))
}

fn is_project_file(path: &str, roots: &BTreeSet<&str>) -> bool {
    match path.rsplit_once('/') {
        None => path == "terrane.hcl" || path.ends_with(".terrane.hcl") || path == "stack.hcl",
        Some((dir, name)) => name == "stack.hcl" && roots.contains(dir),
    }
}

fn joined(dir: &str, name: &str) -> String {
    if dir.is_empty() {
        name.to_owned()
    } else {
        format!("{dir}/{name}")
    }
}
