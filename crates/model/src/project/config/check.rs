//! Rules between blocks: references must exist, match, and respect the order of layers.
//!
//! Not here: cycles (`cycle`), what modules declare and require (`modules`), where states are (`states`),
//! contexts (`attach`).

pub(crate) mod backends;
pub(crate) mod cycle;
pub(crate) mod modules;
pub(crate) mod reads;
pub(crate) mod remote_states;
pub(crate) mod secrets;
pub(crate) mod stages;
pub(crate) mod states;
pub(crate) mod type_mismatch;

use std::collections::{BTreeMap, BTreeSet};

use crate::base::diagnostic::{Finding, Location};
use crate::base::ids::StackName;
use crate::hcl::suggest;
use crate::project::config::findings::Findings;
use crate::project::config::project::TargetDraft;
use crate::project::config::stack::{StackDraft, upstream};
use crate::project::{Edge, Stack};
use crate::stage::facts::{PathClash, PathMap, path_problem};

pub(crate) type Drafts = BTreeMap<StackName, StackDraft>;

/// The names of outer blocks, by block type.
pub(crate) struct KnownNames<'a> {
    pub(crate) writers: BTreeSet<&'a str>,
    pub(crate) facts: BTreeSet<&'a str>,
    pub(crate) renders: BTreeSet<&'a str>,
    pub(crate) layers: &'a BTreeMap<String, i64>,
    pub(crate) targets: &'a BTreeMap<String, TargetDraft>,
    /// Disabled stacks.
    pub(crate) disabled: &'a BTreeSet<String>,
    /// Name prefixes of stacks that could not be created.
    pub(crate) unmade: &'a [String],
    /// Whether a file could not be parsed, so that seemingly missing blocks may exist.
    pub(crate) is_partial: bool,
}

impl KnownNames<'_> {
    /// Whether an undefined stack may be one that could not be created.
    pub(crate) fn may_be_stack(&self, name: &str) -> bool {
        self.is_partial || self.unmade.iter().any(|begin| name.starts_with(begin))
    }
}

/// `again` are stacks whose names are already in use. Only their references are checked.
pub(crate) fn check(
    findings: &mut Findings,
    known: &KnownNames<'_>,
    drafts: &mut Drafts,
    again: &mut [StackDraft],
) {
    writers(findings, known);
    let names: BTreeSet<StackName> = drafts.keys().cloned().collect();
    for draft in drafts.values_mut().chain(again) {
        let stack = &draft.stack;
        name(
            findings,
            known,
            "target",
            &stack.target,
            &draft.target_at,
            known.targets.keys().map(String::as_str),
        );
        name(
            findings,
            known,
            "layer",
            &stack.layer,
            &draft.layer_at,
            known.layers.keys().map(String::as_str),
        );
        for (facts, at) in &draft.facts {
            let all = known.facts.iter().copied();
            name(findings, known, "facts", facts, at, all);
        }
        if let Some((render, at)) = &draft.render {
            name(
                findings,
                known,
                "render",
                render,
                at,
                known.renders.iter().copied(),
            );
        }
        edges(findings, known, &names, draft);
    }
    layers(findings, known, drafts);
    published(findings, drafts);
    read_facts(findings, known, drafts);
}

/// Checks that a name is one of those that exist.
pub(crate) fn name<'a>(
    findings: &mut Findings,
    known: &KnownNames<'_>,
    what: &str,
    seen: &str,
    at: &Location,
    all: impl Iterator<Item = &'a str> + Clone,
) {
    let is_said = known.is_partial || findings.is_full();
    if seen.is_empty() || all.clone().any(|known| known == seen) || is_said {
        return;
    }
    let message = match what {
        "facts" => format!("no `facts` block is called `{seen}`"),
        _ => format!("there is no {what} `{seen}`"),
    };
    let mut finding = Finding::error("unknown-name", message).at(at.clone(), "not defined");
    finding.hint =
        suggest::hint(seen, all).or_else(|| Some(format!("add `{what} \"{seen}\" {{ … }}`")));
    findings.push(finding);
}

fn writers(findings: &mut Findings, known: &KnownNames<'_>) {
    let words = known.writers.iter().copied().chain(["server", "anyone"]);
    for target in known.targets.values() {
        for writer in &target.target.writers {
            name(
                findings,
                known,
                "writer",
                writer,
                &target.writers_at,
                words.clone(),
            );
        }
        let mut names = target.target.writers.iter();
        let first = names.next().map(String::as_str);
        if first == Some("server") && names.all(|name| name == "server") {
            let message = format!("target `{}` cannot be applied yet", target.target.name);
            let finding = Finding::warning("no-writer", message)
                .at(
                    target.writers_at.clone(),
                    "a server's own runners are not built yet",
                )
                .hint("name a `writer` block of a CI job beside it");
            findings.push(finding);
        }
    }
}

/// Turns valid references into edges.
fn edges(
    findings: &mut Findings,
    known: &KnownNames<'_>,
    names: &BTreeSet<StackName>,
    draft: &mut StackDraft,
) {
    let own = draft.stack.name.clone();
    for reference in &draft.references {
        let found = upstream(&reference.upstream).filter(|name| names.contains(name));
        match found {
            Some(name) if name == own => {
                let finding =
                    Finding::error("self-reference", format!("stack `{own}` refers to itself"))
                        .at(reference.at.clone(), "this is the stack itself");
                findings.push(finding);
            }
            Some(upstream) => draft.stack.edges.push(Edge {
                upstream,
                kind: reference.kind.clone(),
                at: reference.at.clone(),
            }),
            None if known.may_be_stack(&reference.upstream) || findings.is_full() => {}
            None => {
                let raw = &reference.upstream;
                let mut finding =
                    Finding::error("unknown-stack", format!("there is no stack `{raw}`"))
                        .at(reference.at.clone(), "not defined");
                finding.hint = if known.disabled.contains(raw) {
                    Some(format!(
                        "stack `{raw}` is switched off by `enabled = false`"
                    ))
                } else {
                    suggest::hint(raw, names.iter().map(StackName::as_str))
                };
                findings.push(finding);
            }
        }
    }
}

/// A stack may depend on its own layer and on lower ones.
fn layers(findings: &mut Findings, known: &KnownNames<'_>, drafts: &Drafts) {
    let order = |stack: &Stack| known.layers.get(&stack.layer).copied();
    for draft in drafts.values() {
        for edge in &draft.stack.edges {
            let Some(above) = drafts.get(&edge.upstream) else {
                continue;
            };
            let (Some(own), Some(other)) = (order(&draft.stack), order(&above.stack)) else {
                continue;
            };
            if other > own {
                let message = format!(
                    "stack `{}` in layer `{}` depends on stack `{}` in the higher layer `{}`",
                    draft.stack.name, draft.stack.layer, edge.upstream, above.stack.layer
                );
                let finding = Finding::error("higher-layer", message)
                    .at(edge.at.clone(), "leads upwards")
                    .hint("turn the dependency around, or move one of them to another layer");
                findings.push(finding);
            }
        }
    }
}

/// Two stacks that publish the same file would overwrite each other. So would a file and a directory of the same name.
fn published(findings: &mut Findings, drafts: &Drafts) {
    let mut seen: BTreeMap<&str, PathMap<&Location>> = BTreeMap::new();
    for draft in drafts.values() {
        for (facts, path, at) in &draft.published {
            if let Some(why) = path_problem(path) {
                let message = format!(
                    "`{}` is not a valid path for facts: {why}",
                    path.escape_debug()
                );
                findings.push(Finding::error("fact-path", message).at(at.clone(), "named here"));
                continue;
            }
            let there = seen.entry(facts).or_default();
            let Some((other, first, how)) = there.clash(path) else {
                there.add(path, at);
                continue;
            };
            let message = match how {
                PathClash::Same => format!("`{path}` is published twice to `{facts}`"),
                PathClash::Directory | PathClash::Case => format!(
                    "`{path}` and `{other}` cannot both be published to `{facts}`: {}",
                    how.why()
                ),
            };
            let finding = Finding::error("shared-fact", message)
                .at(at.clone(), "again here")
                .at((*first).clone(), "first here");
            findings.push(finding);
        }
    }
}

/// A gate that reads a fact file waits forever if no stack publishes it, unless another project does.
fn read_facts(findings: &mut Findings, known: &KnownNames<'_>, drafts: &Drafts) {
    let of = |place: &str| {
        let all = drafts.values().flat_map(|draft| &draft.published);
        let own = all.filter(move |(facts, _, _)| facts == place);
        own.map(|(_, path, _)| path.as_str())
            .collect::<BTreeSet<_>>()
    };
    for draft in drafts.values() {
        for (facts, path, at) in &draft.fact_files {
            if !known.facts.contains(facts.as_str()) {
                continue; // already reported
            }
            let paths = of(facts);
            let is_open = drafts
                .values()
                .any(|other| other.published_later.contains(facts));
            if is_open || paths.contains(path.as_str()) {
                continue;
            }
            let message = format!("no stack of this project publishes `{path}` to `{facts}`");
            let mut finding = Finding::warning("unknown-fact", message).at(at.clone(), "read here");
            finding.hint = suggest::hint(path, paths.iter().copied());
            findings.push(finding);
        }
    }
}
