//! Finds root modules in a tree: directories of engine files that no other module calls.

use std::collections::{BTreeMap, BTreeSet};

use super::{FoundRemoteState, RootModule};
use crate::base::tree::Tree;
use crate::project::config::check::modules::is_automatic;
use crate::project::config::walk::{Dirs, join};
use crate::project::module::{self, Module, tfvars_names};

/// The result of searching a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    pub roots: Vec<RootModule>,
    /// Directories that other modules call.
    pub called: Vec<String>,
    /// Directories below `modules` that no module calls. They are probably meant for other projects.
    pub uncalled: Vec<String>,
    /// Files that could not be read, with the reason.
    pub unreadable: Vec<String>,
}

/// Searches the whole tree, with the limits of a project's own walk. Nested projects are left out.
pub fn find(tree: &dyn Tree) -> Survey {
    let dirs = Dirs::walk(tree);
    let mut survey = Survey::default();
    let mut modules: BTreeMap<String, Module> = BTreeMap::new();
    let projects: Vec<&str> = dirs.project_dirs().filter(|dir| !dir.is_empty()).collect();
    let is_elsewhere = |dir: &str| {
        let below = |project: &&str| {
            dir.strip_prefix(*project)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        projects.iter().any(below)
    };
    let all = dirs.engine_dirs(tree).into_iter();
    for dir in all.filter(|dir| !is_elsewhere(dir)) {
        let (module, findings) = module::read(tree, dir);
        survey
            .unreadable
            .extend(findings.into_iter().map(|finding| finding.message));
        modules.insert(dir.to_owned(), module);
    }
    let called: BTreeSet<String> = modules
        .values()
        .flat_map(|module| module.calls.iter())
        .filter_map(|call| call.local.clone())
        .collect();
    for (dir, module) in modules {
        let is_for_others =
            module.backend.is_none() && dir.split('/').any(|part| part == "modules");
        if called.contains(&dir) {
            survey.called.push(dir);
        } else if is_for_others {
            survey.uncalled.push(dir);
        } else {
            survey.roots.push(found(tree, &module));
        }
    }
    survey
}

fn found(tree: &dyn Tree, module: &Module) -> RootModule {
    let given = given(tree, &module.dir);
    RootModule {
        dir: module.dir.clone(),
        backend: module.backend.clone(),
        backend_text: module.backend_text.clone(),
        remote_states: module
            .remote_states
            .iter()
            .map(|remote| FoundRemoteState {
                name: remote.name.clone(),
                config: remote.config.clone(),
                outputs: module
                    .remote_outputs
                    .get(&remote.name)
                    .cloned()
                    .unwrap_or_default(),
            })
            .collect(),
        variables: module
            .variables
            .iter()
            .map(|(name, variable)| (name.clone(), variable.has_default || given.contains(name)))
            .collect(),
        outputs: module.outputs.keys().cloned().collect(),
    }
}

/// Variables that are set in files which the engine loads automatically.
fn given(tree: &dyn Tree, dir: &str) -> BTreeSet<String> {
    let entries = tree.list(dir).unwrap_or_default();
    entries
        .iter()
        .filter(|entry| !entry.is_dir && is_automatic(&entry.name))
        .filter_map(|entry| tfvars_names(tree, &join(dir, &entry.name)).ok())
        .flatten()
        .collect()
}
