//! Files that stage blocks name but the project does not have: programs of `command`, manifests of a
//! bootstrap. They are found before anything is applied.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use model::base::diagnostic::Finding;
use model::project::config::LoadedProject;
use model::stage::StageBlock;

pub(crate) fn check(loaded: &mut LoadedProject, root: &Path) {
    let Some(project) = &loaded.project else {
        return;
    };
    let mut found = Vec::new();
    for stack in project.stacks.values() {
        let stages = &stack.stages;
        for block in stages.gates.iter().chain(&stages.bootstrap) {
            if block.kind == "command" {
                found.extend(program(block, root));
            }
        }
        for block in &stages.bootstrap {
            for path in block.manifests() {
                if !root.join(&path).exists() {
                    let message = format!("there is no file or directory `{path}`");
                    let finding = Finding::error("missing-file", message);
                    found.push(finding.at(block.at.clone(), "this bootstrap uses it"));
                }
            }
        }
    }
    let files = found.iter().flat_map(|finding| &finding.places);
    let files: BTreeSet<&String> = files.map(|place| &place.at.file).collect();
    let text = |file: &String| Some((file.clone(), std::fs::read_to_string(root.join(file)).ok()?));
    let texts: BTreeMap<String, String> = files.into_iter().filter_map(text).collect();
    loaded.add(found, &texts);
}

/// Reports a missing program of the project. A program without a path is looked up when it runs.
fn program(block: &StageBlock, root: &Path) -> Option<Finding> {
    let name = block.words().into_iter().next()??;
    if !name.contains('/') || root.join(&name).is_file() {
        return None;
    }
    let message = format!("there is no program `{name}`");
    let finding =
        Finding::error("missing-file", message).at(block.at.clone(), "this block runs it");
    Some(finding.hint("a program of the project is named by its path, from the project's root"))
}
