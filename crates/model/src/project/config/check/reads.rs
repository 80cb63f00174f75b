//! Files that a stack reads by computed paths: the consequence for the stack, and the fix.

use std::collections::BTreeMap;

use crate::base::diagnostic::{Finding, Location};
use crate::base::ids::StackName;
use crate::project::config::check::Drafts;
use crate::project::config::findings::Findings;
use crate::project::module::{Module, PathScope, UnknownRead, unwatched};

/// Reports each location once, however many stacks use its module.
pub(crate) fn check(findings: &mut Findings, drafts: &Drafts, modules: &BTreeMap<String, Module>) {
    let mut places: BTreeMap<&Location, (&UnknownRead, Vec<&StackName>)> = BTreeMap::new();
    for draft in drafts.values().filter(|draft| draft.has_path) {
        let stack = &draft.stack;
        for (module, read) in unwatched(modules, &stack.path, &stack.watch) {
            if !read.is_inside(module) {
                let (_, stacks) = places.entry(&read.at).or_insert_with(|| (read, Vec::new()));
                stacks.push(&stack.name);
            }
        }
    }
    for (at, (read, stacks)) in places {
        let message = format!(
            "the path that `{}` reads here is known only to the engine",
            read.function
        );
        let others = match stacks.len() {
            1 => String::new(),
            many => format!(" and {} more", many - 1),
        };
        let whose = format!("stack `{}`{others}", stacks[0]);
        let (label, hint) = match &read.whereabouts {
            PathScope::Below(dir) if !dir.is_empty() => (
                format!("every change below `{dir}` counts as one of {whose}"),
                format!("`watch = [\"{dir}/…\"]` in the stack names the files it may be"),
            ),
            PathScope::Below(_) | PathScope::Anywhere => (
                format!("every change in the project counts as one of {whose}"),
                "`watch = [\"…\"]` in the stack names the files it may be".to_owned(),
            ),
            PathScope::Outside => (
                format!("its changes go unseen: planned every time by {whose}"),
                "bring the file into the project, or hand its contents over as an input".to_owned(),
            ),
        };
        findings.push(
            Finding::warning("unwatched-file", message)
                .at(at.clone(), label)
                .hint(hint),
        );
    }
}
