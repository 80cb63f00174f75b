//! Reads the files of one directory into a module, override files last.

use std::collections::{BTreeMap, BTreeSet};

use super::{Module, ModuleCall, ModuleOutput, Variable, hcl, json};
use crate::base::diagnostic::{Finding, Location};
use crate::base::tree::{Tree, TreeEntry};
use crate::hcl::paths;
use crate::hcl::syntax;
use crate::project::engine::Flavor;

/// Reads a directory's engine files with the rules of `tofu`.
pub fn read(tree: &dyn Tree, dir: &str) -> (Module, Vec<Finding>) {
    let entries = tree.list(dir).unwrap_or_default();
    read_listed(tree, dir, &entries, Flavor::Tofu)
}

/// The same for either engine, with the directory already listed. For `tofu`, a `.tofu` file replaces the `.tf` file of
/// the same name; `terraform` ignores such files.
pub(crate) fn read_listed(
    tree: &dyn Tree,
    dir: &str,
    entries: &[TreeEntry],
    flavor: Flavor,
) -> (Module, Vec<Finding>) {
    let mut draft = Draft {
        module: Module {
            dir: dir.to_owned(),
            is_complete: true,
            ..Module::default()
        },
        findings: Vec::new(),
        overriding: false,
        call_places: BTreeMap::new(),
    };
    let names = engine_files(entries, flavor);
    let (last, first): (Vec<&str>, Vec<&str>) =
        names.iter().copied().partition(|name| is_override(name));
    draft.module.has_engine_files = !names.is_empty();
    for (overriding, names) in [(false, first), (true, last)] {
        draft.overriding = overriding;
        for name in names {
            draft.file(tree, name);
        }
    }
    (draft.module, draft.findings)
}

/// The files that an engine of this flavor reads in a directory.
pub(crate) fn engine_files(entries: &[TreeEntry], flavor: Flavor) -> BTreeSet<&str> {
    let names: BTreeSet<&str> = entries
        .iter()
        .filter(|entry| !entry.is_dir && is_engine_file(&entry.name))
        .filter(|entry| flavor == Flavor::Tofu || !is_of_tofu(&entry.name))
        .map(|entry| entry.name.as_str())
        .collect();
    let shadowed = |name: &str| {
        let twin = name
            .strip_suffix(".tf")
            .map(|stem| format!("{stem}.tofu"))
            .or_else(|| {
                name.strip_suffix(".tf.json")
                    .map(|stem| format!("{stem}.tofu.json"))
            });
        twin.is_some_and(|twin| names.contains(twin.as_str()))
    };
    names
        .iter()
        .copied()
        .filter(|name| !shadowed(name))
        .collect()
}

/// `.tf`, `.tofu` and their JSON forms, without backup files of editors.
pub(crate) fn is_engine_file(name: &str) -> bool {
    let known = [".tf", ".tofu", ".tf.json", ".tofu.json"]
        .iter()
        .any(|ending| name.ends_with(ending));
    known && !name.starts_with(['.', '#']) && !name.ends_with('~')
}

fn is_of_tofu(name: &str) -> bool {
    [".tofu", ".tofu.json"]
        .iter()
        .any(|ending| name.ends_with(ending))
}

pub(crate) fn is_json(name: &str) -> bool {
    name.rsplit_once('.')
        .is_some_and(|(_, ending)| ending == "json")
}

fn is_override(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or(name);
    stem == "override" || stem.ends_with("_override")
}

/// A module while its files are added.
pub(super) struct Draft {
    pub(super) module: Module,
    pub(super) findings: Vec<Finding>,
    overriding: bool,
    call_places: BTreeMap<String, usize>,
}

impl Draft {
    fn file(&mut self, tree: &dyn Tree, name: &str) {
        let path = if self.module.dir.is_empty() {
            name.to_owned()
        } else {
            format!("{}/{name}", self.module.dir)
        };
        if is_json(name) {
            match syntax::open(tree, &path) {
                Ok(source) => json::add(self, &source),
                Err(finding) => self.unusable(finding),
            }
        } else {
            match syntax::parse(tree, &path) {
                Ok(file) => hcl::add(self, &file),
                Err(finding) => self.unusable(finding),
            }
        }
    }

    fn unusable(&mut self, finding: Finding) {
        self.module.is_complete = false;
        self.findings.push(finding);
    }

    pub(super) fn variable(&mut self, name: &str, fill: impl FnOnce(&mut Variable), at: Location) {
        let known = self
            .module
            .variables
            .get(name)
            .map(|variable| variable.at.clone());
        if let (false, Some(first)) = (self.overriding, known) {
            self.twice("variable", name, first, at);
            return;
        }
        let fresh = || Variable {
            at,
            ..Variable::default()
        };
        fill(
            self.module
                .variables
                .entry(name.to_owned())
                .or_insert_with(fresh),
        );
    }

    pub(super) fn output(
        &mut self,
        name: &str,
        fill: impl FnOnce(&mut ModuleOutput),
        at: Location,
    ) {
        let known = self
            .module
            .outputs
            .get(name)
            .map(|output| output.at.clone());
        if let (false, Some(first)) = (self.overriding, known) {
            self.twice("output", name, first, at);
            return;
        }
        let fresh = || ModuleOutput {
            at,
            ..ModuleOutput::default()
        };
        fill(
            self.module
                .outputs
                .entry(name.to_owned())
                .or_insert_with(fresh),
        );
    }

    fn twice(&mut self, what: &str, name: &str, first: Location, second: Location) {
        self.findings.push(
            Finding::error(
                "duplicate-name",
                format!("{what} `{name}` is declared twice in `{}`", self.module.dir),
            )
            .at(second, "again here")
            .at(first, "first here"),
        );
    }

    pub(super) fn call(&mut self, mut call: ModuleCall) {
        if call.source.starts_with("./")
            || call.source.starts_with("../")
            || matches!(call.source.as_str(), "." | "..")
        {
            match paths::join(&self.module.dir, &call.source) {
                Ok(dir) => call.local = Some(dir),
                Err(leaves) => self.findings.push(
                    Finding::error("path-leaves-project", leaves.to_string())
                        .at(call.at.clone(), "the source of this module")
                        .hint("only what lies in the project is there when the engine runs"),
                ),
            }
        }
        let place = self.module.calls.len();
        let place = *self.call_places.entry(call.name.clone()).or_insert(place);
        match self.module.calls.get_mut(place) {
            Some(known) if self.overriding => {
                if !call.source.is_empty() {
                    known.source = call.source;
                    known.local = call.local;
                }
                known.version = call.version.or(known.version.take());
            }
            _ => self.module.calls.push(call),
        }
    }

    pub(super) fn backend(&mut self, kind: String, text: String, at: Location) {
        self.module.backend = Some(kind);
        self.module.backend_text = text;
        self.module.backend_at = Some(at);
    }
}

/// The names that a variable file sets; an error if it cannot be parsed.
pub(crate) fn tfvars_names(tree: &dyn Tree, path: &str) -> Result<BTreeSet<String>, Finding> {
    if is_json(path) {
        let source = syntax::open(tree, path)?;
        let root: serde_json::Value = serde_json::from_str(source.code()).map_err(|err| {
            let at = source.line_column(err.line(), err.column());
            Finding::error("syntax", format!("`{path}` is not JSON"))
                .at(source.location(at..at + 1), "here")
        })?;
        return Ok(root
            .as_object()
            .map(|entries| entries.keys().cloned().collect())
            .unwrap_or_default());
    }
    let file = syntax::parse(tree, path)?;
    Ok(file
        .body
        .attributes()
        .map(|attribute| attribute.key.as_str().to_owned())
        .collect())
}
