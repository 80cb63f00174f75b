//! Which stacks a change touches: by the paths that differ, and by what the project file says.
//!
//! Not here: finding the paths (`drivers::git`), following module sources (`module`).

mod definition;
mod stages;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

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
    let mut touched: BTreeMap<StackName, String> = BTreeMap::new();
    if changed.is_empty() {
        return touched;
    }
    let extents = Extents::new(project, reach);
    let mut touch = |stacks: BTreeSet<&StackName>, path: &String| {
        for stack in stacks {
            let first = touched.entry(stack.clone());
            first.or_insert_with(|| path.clone());
        }
    };
    for path in changed.iter().filter(|path| !extents.is_project_file(path)) {
        touch(extents.holders(path), path);
    }
    for path in changed {
        touch(extents.naming(path), path);
    }
    touched
}

/// The paths that are each stack's own source, of all those there are.
pub fn sources<'p>(
    project: &Project,
    reach: &dyn Fn(&StackName) -> Reach,
    paths: &'p [&'p str],
) -> BTreeMap<StackName, Vec<&'p str>> {
    let extents = Extents::new(project, reach);
    let names = project.stacks.keys();
    let mut sources: BTreeMap<StackName, Vec<&str>> =
        names.map(|name| (name.clone(), Vec::new())).collect();
    for path in paths {
        let owners = if extents.is_project_file(path) {
            extents.naming(path)
        } else {
            extents.holders(path)
        };
        for stack in owners {
            if let Some(own) = sources.get_mut(stack) {
                own.push(path);
            }
        }
    }
    sources
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

/// What counts as the source of each stack, found by path: there are many of both.
struct Extents<'a> {
    dirs: BTreeMap<String, Vec<&'a StackName>>,
    files: BTreeMap<String, Vec<&'a StackName>>,
    globs: Vec<(GlobSet, &'a StackName)>,
    /// Root modules of all stacks.
    roots: BTreeSet<&'a str>,
}

impl<'a> Extents<'a> {
    fn new(project: &'a Project, reach: &dyn Fn(&StackName) -> Reach) -> Self {
        let stacks = project.stacks.values();
        let mut extents = Self {
            dirs: BTreeMap::new(),
            files: BTreeMap::new(),
            globs: Vec::new(),
            roots: stacks.clone().map(|stack| stack.path.as_str()).collect(),
        };
        for stack in stacks {
            extents.add(project, stack, reach(&stack.name));
        }
        extents
    }

    fn add(&mut self, project: &Project, stack: &'a Stack, reach: Reach) {
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
        for dir in dirs {
            self.dirs.entry(dir).or_default().push(&stack.name);
        }
        for file in files {
            self.files.entry(file).or_default().push(&stack.name);
        }
        let globs = globs.build().unwrap_or_default();
        if !globs.is_empty() {
            self.globs.push((globs, &stack.name));
        }
    }

    /// Whose source a path is part of, or holds a part of.
    fn holders(&self, path: &str) -> BTreeSet<&'a StackName> {
        let mut holders = self.naming(path);
        holders.extend(self.around(path));
        let matching = self.globs.iter().filter(|(globs, _)| globs.is_match(path));
        holders.extend(matching.map(|(_, stack)| stack));
        holders.extend(below(&self.dirs, path));
        holders.extend(below(&self.files, path));
        holders
    }

    /// Who names this very file.
    fn naming(&self, path: &str) -> BTreeSet<&'a StackName> {
        self.files
            .get(path)
            .into_iter()
            .flatten()
            .copied()
            .collect()
    }

    /// Who claims a directory around it, up to the innermost root module.
    fn around(&self, path: &str) -> Vec<&'a StackName> {
        let mut claiming = Vec::new();
        let mut rest = path;
        loop {
            rest = rest.rsplit_once('/').map_or("", |(dir, _)| dir);
            claiming.extend(self.dirs.get(rest).into_iter().flatten());
            if rest.is_empty() || self.roots.contains(rest) {
                return claiming;
            }
        }
    }

    fn is_project_file(&self, path: &str) -> bool {
        match path.rsplit_once('/') {
            None => path == "terrane.hcl" || path.ends_with(".terrane.hcl") || path == "stack.hcl",
            Some((dir, name)) => name == "stack.hcl" && self.roots.contains(dir),
        }
    }
}

/// Those of `paths` that a directory holds, or that are it.
fn below<'a>(
    paths: &BTreeMap<String, Vec<&'a StackName>>,
    path: &str,
) -> impl Iterator<Item = &'a StackName> {
    let prefix = format!("{path}/");
    let within = paths.range::<str, _>((Bound::Included(prefix.as_str()), Bound::Unbounded));
    let within = within.take_while(move |(other, _)| other.starts_with(&prefix));
    let itself = paths.get(path).into_iter().flatten();
    let stacks: Vec<_> = within
        .flat_map(|(_, stacks)| stacks)
        .chain(itself)
        .copied()
        .collect();
    stacks.into_iter()
}

fn joined(dir: &str, name: &str) -> String {
    if dir.is_empty() {
        name.to_owned()
    } else {
        format!("{dir}/{name}")
    }
}
