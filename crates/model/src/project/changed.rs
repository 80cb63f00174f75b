//! Which stacks a change affects, by changed paths and by the project file.
//!
//! Not here: finding the paths (`drivers::git`), following module sources (`module`).

mod stack_definition;
mod stages;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::base::ids::StackName;
use crate::project::{Project, Stack};

pub use stack_definition::StackDefinition;

/// Symbolic links of the project with their targets inside it. The target is part of the source of every stack that
/// contains the link.
pub type Links = BTreeMap<String, String>;

/// The maximum number of names of one path, since links may form cycles.
const MOST_NAMES: usize = 64;

/// What a stack's source consists of. Paths are relative to the project's root, with `/`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceExtent {
    /// Directories of the modules that it uses, with or without its root module.
    pub dirs: BTreeSet<String>,
    /// Files that its modules name: literal paths or, for `fileset()`, globs.
    pub files: BTreeSet<String>,
    /// Further files, as globs.
    pub globs: Vec<String>,
}

/// The stacks whose source includes a path in `changed`, each with the first such path.
///
/// A directory counts with everything below it, except the root modules of other stacks. A stack's `var_files`,
/// `include` and `watch` count without being in its reach. So do the files that its post-apply stages read. Project
/// files do not count as source: [`definitions_changed`] determines their effect. A path may be a directory, such as a
/// Git submodule, and then counts as everything in it.
pub fn stacks_touched(
    project: &Project,
    reach: &dyn Fn(&StackName) -> SourceExtent,
    links: &Links,
    changed: &BTreeSet<String>,
) -> BTreeMap<StackName, String> {
    let mut touched: BTreeMap<StackName, String> = BTreeMap::new();
    if changed.is_empty() {
        return touched;
    }
    let extents = Extents::new(project, reach, links);
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

/// The paths of each stack's own source, among all paths.
pub fn sources<'p>(
    project: &Project,
    reach: &dyn Fn(&StackName) -> SourceExtent,
    links: &Links,
    paths: &'p [&'p str],
) -> BTreeMap<StackName, Vec<&'p str>> {
    let extents = Extents::new(project, reach, links);
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

/// Stacks whose description in the project file is new or changed. Both projects must be loaded with the same `git`
/// names, or every use of `git.commit` would be a change.
pub fn definitions_changed(before: &Project, after: &Project) -> BTreeSet<StackName> {
    let same = |stack: &Stack| {
        let old = before.stacks.get(&stack.name);
        old.is_some_and(|old| StackDefinition::of(before, old) == StackDefinition::of(after, stack))
    };
    let stacks = after.stacks.values().filter(|stack| !same(stack));
    stacks.map(|stack| stack.name.clone()).collect()
}

/// The source of each stack, indexed by path, since there are many stacks and paths.
struct Extents<'a> {
    dirs: BTreeMap<String, Vec<&'a StackName>>,
    files: BTreeMap<String, Vec<&'a StackName>>,
    globs: Vec<(GlobSet, &'a StackName)>,
    /// Root modules of all stacks.
    roots: BTreeSet<&'a str>,
    links: &'a Links,
}

impl<'a> Extents<'a> {
    fn new(
        project: &'a Project,
        reach: &dyn Fn(&StackName) -> SourceExtent,
        links: &'a Links,
    ) -> Self {
        let stacks = project.stacks.values();
        let mut extents = Self {
            dirs: BTreeMap::new(),
            files: BTreeMap::new(),
            globs: Vec::new(),
            roots: stacks.clone().map(|stack| stack.path.as_str()).collect(),
            links,
        };
        for stack in stacks {
            extents.add(project, stack, reach(&stack.name));
        }
        extents
    }

    fn add(&mut self, project: &Project, stack: &'a Stack, reach: SourceExtent) {
        let after = stages::sources(project, stack);
        let mut dirs = reach.dirs;
        dirs.insert(stack.path.clone());
        let mut files = reach.files;
        files.extend(stack.var_files.iter().cloned());
        files.insert(joined(&stack.path, ".terraform.lock.hcl"));
        let mut globs = GlobSetBuilder::new();
        // Includes from the project's root may be directories. The stack's own directory counts as a whole anyway.
        let included = stack.include.iter().flat_map(|glob| {
            let below = format!("{}/**", glob.trim_end_matches('/'));
            [joined(&stack.path, glob), glob.clone(), below]
        });
        let filesets = files
            .iter()
            .filter(|file| file.contains(['*', '?', '[', '{']));
        let named = reach.globs.iter().chain(&stack.watch).chain(filesets);
        let named = named.chain(&after.globs);
        for glob in named.cloned().chain(included) {
            // `config` has refused invalid globs.
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

    /// The stacks whose source contains the path, or a part of it, under any name.
    fn holders(&self, path: &str) -> BTreeSet<&'a StackName> {
        let mut holders = self.holders_by_name(path);
        for name in self.other_names(path) {
            holders.extend(self.holders_by_name(&name));
        }
        holders
    }

    /// The other names of a path, through links to it or to a directory above it.
    fn other_names(&self, path: &str) -> Vec<String> {
        let mut names = Vec::new();
        let mut open = vec![path.to_owned()];
        while let Some(path) = open.pop() {
            for (link, target) in self.links {
                let rest = path.strip_prefix(target.as_str());
                let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with('/'))
                else {
                    continue;
                };
                let name = format!("{link}{rest}");
                if names.len() < MOST_NAMES && !names.contains(&name) {
                    names.push(name.clone());
                    open.push(name);
                }
            }
        }
        names
    }

    fn holders_by_name(&self, path: &str) -> BTreeSet<&'a StackName> {
        let mut holders = self.naming(path);
        holders.extend(self.around(path));
        let matching = self.globs.iter().filter(|(globs, _)| globs.is_match(path));
        holders.extend(matching.map(|(_, stack)| stack));
        holders.extend(below(&self.dirs, path));
        holders.extend(below(&self.files, path));
        holders
    }

    /// The stacks that name exactly this file.
    fn naming(&self, path: &str) -> BTreeSet<&'a StackName> {
        self.files
            .get(path)
            .into_iter()
            .flatten()
            .copied()
            .collect()
    }

    /// The stacks that include a directory above it, up to the innermost root module.
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

/// Those of `paths` that are the directory or below it.
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
