//! Which files of the project the stages after an apply and the hooks around stages read: contracts, the rules of
//! encryption, manifests, programs. If one of them changed, the stack has something to say, although its engine has nothing
//! to do.

use std::collections::BTreeSet;

use crate::config::eval::{for_stack, known_words};
use crate::config::paths;
use crate::context::Hook;
use crate::contract::{self, OWN_CONTRACTS};
use crate::facts::SOPS_RULES;
use crate::project::{FactsPlace, Project, Stack};

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
            sources.globs.push(format!("{OWN_CONTRACTS}/**")); // which one is known later
        }
        let place = project.facts.get(&block.name);
        if place.is_some_and(FactsPlace::may_encrypt) {
            sources.files.insert(SOPS_RULES.to_owned());
        }
    }
    for block in &stages.bootstrap {
        for path in block.manifests().filter_map(|path| inside(&path)) {
            // A file, or all of a directory.
            sources.globs.push(format!("{}/**", globset::escape(&path)));
            sources.files.insert(path);
        }
    }
    // A program, and what it is given: words that are no files of the project harm nobody.
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

/// What runs around the stages of a stack, with whatever its plans show.
fn hooks<'p>(project: &'p Project, stack: &'p Stack) -> impl Iterator<Item = &'p Hook> {
    let contexts = stack.contexts.iter();
    let contexts = contexts.filter_map(|name| project.contexts.get(name));
    contexts.flat_map(|context| &context.hooks)
}

/// A path as the project has it, however it is written; none if it leads out.
fn inside(path: &str) -> Option<String> {
    let path = paths::normalize(path).ok()?;
    (!path.is_empty()).then_some(path)
}
