//! Files that a stack needs but Git ignores. A run only sees the source: what Git tracks or would add.
//!
//! Not here: which files those are (`drivers`), files whose names only the engine knows.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::diagnostic::{Finding, Location};
use crate::project::Stack;
use crate::project::module::{self, Module, is_engine_file};

/// The files of a project's source.
#[derive(Debug, Default)]
pub struct SourceListing {
    /// Relative to the project's root, with `/`.
    paths: BTreeSet<String>,
    /// Directories with engine files in the source, possibly inside an ignored directory.
    modules: BTreeSet<String>,
}

impl<'a> FromIterator<&'a str> for SourceListing {
    fn from_iter<T: IntoIterator<Item = &'a str>>(paths: T) -> Self {
        let mut listed = Self::default();
        for path in paths {
            let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
            if is_engine_file(name) {
                listed.modules.insert(dir.to_owned());
            }
            listed.paths.insert(path.to_owned());
        }
        listed
    }
}

impl SourceListing {
    /// Whether a module is in the source. `real` is its directory without links, if known. Otherwise a link on the path
    /// is listed as a link.
    fn holds(&self, dir: &str, real: Option<&str>) -> bool {
        if let Some(real) = real {
            return self.modules.contains(real);
        }
        let above = std::iter::successors(Some(dir), |dir| Some(dir.rsplit_once('/')?.0));
        self.modules.contains(dir) || above.into_iter().any(|dir| self.paths.contains(dir))
    }

    /// Whether a file is in the source, directly or through links.
    fn holds_file(&self, path: &str, here: &WorkingTree<'_>) -> bool {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let real = (here.real)(dir).filter(|real| !real.is_empty());
        self.paths.contains(path)
            || real.is_some_and(|real| self.paths.contains(&format!("{real}/{name}")))
    }
}

/// Whether a path is a directory or below it.
fn is_inside(path: &str, dir: &str) -> bool {
    let rest = path.strip_prefix(dir);
    dir.is_empty() || rest.is_some_and(|rest| rest.starts_with('/'))
}

/// What a stack needs and the source does not contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IgnoredFile {
    pub path: String,
    what: IgnoredKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum IgnoredKind {
    /// The stack's own directory.
    Root,
    /// A module that is called at this location.
    Module(Location),
    /// One of its `var_files`.
    VarFile,
    /// A file outside its directory that is named at this location, by `file()` or a similar function.
    File(Location),
}

/// The contents of the working tree.
pub struct WorkingTree<'a> {
    /// A directory without links in its path.
    pub real: &'a dyn Fn(&str) -> Option<String>,
    pub is_file: &'a dyn Fn(&str) -> bool,
}

impl IgnoredFile {
    /// The first ignored one among a stack's directory, the local modules that it calls, its variable files, and the
    /// files outside its directory that they name.
    pub fn of(
        root: &str,
        var_files: &[String],
        modules: &BTreeMap<String, Module>,
        listed: &SourceListing,
        here: &WorkingTree<'_>,
    ) -> Option<Self> {
        let ignored = |path: &str, what| {
            let path = path.to_owned();
            Some(Self { path, what })
        };
        // A directory that does not exist is a different error.
        let is_missing = |dir: &str| {
            let is_there = modules.get(dir).is_some_and(|it| it.has_engine_files);
            is_there && !listed.holds(dir, (here.real)(dir).as_deref())
        };
        if is_missing(root) {
            return ignored(root, IgnoredKind::Root);
        }
        let reached = module::closure(modules, root);
        let calls = reached.iter().filter_map(|dir| modules.get(dir));
        for call in calls.flat_map(|module| &module.calls) {
            if let Some(dir) = call.local.as_ref().filter(|dir| is_missing(dir)) {
                return ignored(dir, IgnoredKind::Module(call.at.clone()));
            }
        }
        let mut files = var_files.iter();
        let file = files.find(|file| !listed.paths.contains(*file) && (here.is_file)(file));
        if let Some(file) = file {
            return ignored(file, IgnoredKind::VarFile);
        }
        let reached = reached.iter().filter_map(|dir| modules.get(dir));
        let mut files = reached.flat_map(|module| &module.files);
        let (file, at) = files.find(|(file, _)| {
            !is_inside(file, root) && (here.is_file)(file) && !listed.holds_file(file, here)
        })?;
        ignored(file, IgnoredKind::File(at.clone()))
    }

    pub fn message(&self, stack: &str) -> String {
        let path = &self.path;
        match self.what {
            IgnoredKind::Root => {
                format!("nothing of stack `{stack}` is part of the source: Git ignores `{path}`")
            }
            IgnoredKind::Module(_) => format!(
                "stack `{stack}` calls a module that is not part of the source: Git ignores `{path}`"
            ),
            IgnoredKind::VarFile => format!(
                "stack `{stack}` names a file of variables that is not part of the source: Git ignores `{path}`"
            ),
            IgnoredKind::File(_) => {
                format!(
                    "stack `{stack}` reads a file that is not part of the source: Git ignores `{path}`"
                )
            }
        }
    }

    /// Where the file is named, for messages without source text.
    pub fn named_at(&self) -> Option<String> {
        match &self.what {
            IgnoredKind::File(at) => Some(format!("{}:{}", at.file, at.line)),
            IgnoredKind::Root | IgnoredKind::Module(_) | IgnoredKind::VarFile => None,
        }
    }

    pub fn hint(&self) -> String {
        let path = &self.path;
        let rule = format!("`git check-ignore -v {path}` names the rule");
        match self.what {
            IgnoredKind::Root | IgnoredKind::Module(_) => {
                format!("{rule}; terrane runs what Git tracks or would add")
            }
            IgnoredKind::VarFile => format!("name it in the stack's `include`; {rule}"),
            IgnoredKind::File(_) => format!("add `{path}` to `include` of the stack; {rule}"),
        }
    }

    pub fn finding(&self, stack: &Stack) -> Finding {
        let (at, label) = match &self.what {
            IgnoredKind::Root => (&stack.declared_at, "its directory is ignored"),
            IgnoredKind::Module(at) => (at, "called here"),
            IgnoredKind::VarFile => (&stack.declared_at, "in its `var_files`"),
            IgnoredKind::File(at) => (at, "named here"),
        };
        Finding::error("ignored-source", self.message(stack.name.as_str()))
            .at(at.clone(), label)
            .hint(self.hint())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::module::ModuleCall;

    fn module(dir: &str, calls: &[&str]) -> (String, Module) {
        let call = |to: &&str| ModuleCall {
            local: Some((*to).to_owned()),
            ..ModuleCall::default()
        };
        let module = Module {
            dir: dir.to_owned(),
            calls: calls.iter().map(call).collect(),
            has_engine_files: true,
            ..Module::default()
        };
        (dir.to_owned(), module)
    }

    #[test]
    fn a_module_is_in_the_source_with_a_file_of_its_own_or_through_a_link() {
        let listed: SourceListing = [
            "a/b/c.tf",
            "a/terraform.tfvars",
            "d/README.md",
            "link",
            "main.tf",
        ]
        .into_iter()
        .collect();
        let held = ["", "a/b", "link", "link/inside"].map(|dir| listed.holds(dir, None));
        assert_eq!(held, [true; 4]);
        let missing = ["a", "b", "a/b/c", "d"].map(|dir| listed.holds(dir, None));
        assert_eq!(missing, [false; 4]);
        assert!(listed.holds("link", Some("a/b")));
        assert!(
            !listed.holds("link", Some("real")),
            "it leads to what is ignored"
        );
    }

    #[test]
    fn modules_are_followed_and_what_is_not_there_is_another_mistake() {
        let modules = [
            module("app", &["lib", "gone"]),
            module("lib", &["ign/deep"]),
            module("ign/deep", &[]),
        ];
        let modules: BTreeMap<String, Module> = modules.into_iter().collect();
        let found_of = |dir: &str, paths: &[&str]| {
            let listed: SourceListing = paths.iter().copied().collect();
            let here = WorkingTree {
                real: &|_| None,
                is_file: &|_| true,
            };
            let var_files = ["app/prod.tfvars".to_owned()];
            IgnoredFile::of(dir, &var_files, &modules, &listed, &here).map(|it| it.path)
        };
        let found = |paths: &[&str]| found_of("app", paths);
        assert_eq!(found(&["lib/main.tf"]).as_deref(), Some("app"));
        assert_eq!(found(&["app/main.tf"]).as_deref(), Some("lib"));
        let deep = found(&["app/main.tf", "lib/main.tf"]);
        assert_eq!(deep.as_deref(), Some("ign/deep"));
        let all = [
            "app/main.tf",
            "lib/main.tf",
            "ign/deep/main.tf",
            "app/prod.tfvars",
        ];
        assert_eq!(found(&all[..3]).as_deref(), Some("app/prod.tfvars"));
        assert_eq!(found(&all), None);
        assert_eq!(found_of("misspelt", &all), None);
    }

    #[test]
    fn a_file_outside_the_stack_that_its_modules_name_must_be_in_the_source() {
        let mut modules: BTreeMap<String, Module> =
            [module("app", &["lib"]), module("lib", &[])].into();
        let named = |path: &str, line: usize| {
            let at = Location {
                file: "lib/main.tf".to_owned(),
                line,
                ..Location::default()
            };
            (path.to_owned(), at)
        };
        let lib = modules.get_mut("lib").unwrap();
        lib.files = [named("keys/ca.pem", 3), named("pages/**", 4)].into();
        let app = modules.get_mut("app").unwrap();
        app.files = [named("app/own.log", 1), named("gone.txt", 2)].into();
        let there = ["keys/ca.pem", "app/own.log", "real/ca.pem"];
        let found = |more: &[&str], leads_to: &str| {
            let sources = ["app/main.tf", "lib/main.tf"];
            let listed: SourceListing = sources.iter().chain(more).copied().collect();
            let here = WorkingTree {
                real: &|dir| Some(if dir == "keys" { leads_to } else { dir }.to_owned()),
                is_file: &|path| there.contains(&path),
            };
            IgnoredFile::of("app", &[], &modules, &listed, &here)
        };
        let ignored = found(&[], "keys").expect("`keys/ca.pem` would be missing in the snapshot");
        assert_eq!(ignored.path, "keys/ca.pem");
        assert_eq!(ignored.named_at().as_deref(), Some("lib/main.tf:3"));
        assert_eq!(found(&["keys/ca.pem"], "keys"), None);
        assert_eq!(found(&["real/ca.pem"], "real"), None, "a link leads to it");
    }
}
