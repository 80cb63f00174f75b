//! The project files that post-apply stages and hooks read: contracts, encryption rules, manifests, programs. If one of
//! them changes, the stack has to run, even if its engine has nothing to do.

use std::collections::BTreeSet;

use crate::hcl::paths;
use crate::hcl::stored_expression::known_words;
use crate::project::context::Hook;
use crate::project::context::for_stack;
use crate::project::{Project, Stack};
use crate::stage::contract::{self, OWN_CONTRACTS};
use crate::stage::facts::FactsBranch;
use crate::stage::facts::SOPS_RULES;

#[derive(Debug, Default)]
pub(super) struct StageSources {
    pub(super) files: BTreeSet<String>,
    pub(super) globs: Vec<String>,
}

pub(super) fn sources(project: &Project, stack: &Stack) -> StageSources {
    let mut sources = StageSources::default();
    let stages = &stack.stages;
    for block in &stages.publish {
        if let Some(name) = contract::of_block(block) {
            sources.files.insert(name.path());
        } else if block.attrs.contains_key("contract") {
            sources.globs.push(format!("{OWN_CONTRACTS}/**")); // the name is only known later
        }
        let place = project.facts.get(&block.name);
        if place.is_some_and(FactsBranch::may_encrypt) {
            sources.files.insert(SOPS_RULES.to_owned());
        }
    }
    for block in &stages.bootstrap {
        for path in block.manifests().filter_map(|path| inside(&path)) {
            // A file, or everything in a directory.
            sources.globs.push(format!("{}/**", globset::escape(&path)));
            sources.files.insert(path);
        }
    }
    // A program and its arguments. Arguments that are not project files do no harm.
    let mut add = |words: Vec<Option<String>>| {
        let words = words.into_iter().flatten();
        sources.files.extend(words.filter_map(|word| inside(&word)));
    };
    let commands = stages.bootstrap.iter().chain(&stages.gates);
    for block in commands.filter(|block| block.kind == "command") {
        add(block.words());
    }
    for hook in hooks(project, stack) {
        add(known_words(&for_stack(&hook.run, stack)));
    }
    sources
}

/// The hooks around the stages of a stack.
fn hooks<'p>(project: &'p Project, stack: &'p Stack) -> impl Iterator<Item = &'p Hook> {
    let contexts = stack.contexts.iter();
    let contexts = contexts.filter_map(|name| project.contexts.get(name));
    contexts.flat_map(|context| &context.hooks)
}

/// A normalised project path. None if it leaves the project.
fn inside(path: &str) -> Option<String> {
    let path = paths::normalize(path).ok()?;
    (!path.is_empty()).then_some(path)
}
