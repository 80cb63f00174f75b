//! Which contexts a stack gets, weakest first, and whether they agree.

use std::collections::BTreeMap;

use super::check::{Drafts, Known, name};
use super::findings::Findings;
use super::kinds;
use super::project::ContextDraft;
use super::suggest;
use crate::diagnostic::{Finding, Location};
use crate::ids::StackName;
use crate::project::{Context, Input, Stack};

/// What attaching and looking for set variables may cost.
pub(crate) const MAX_WORK: usize = 5_000_000;

pub(crate) type Contexts = BTreeMap<String, ContextDraft>;

pub(crate) fn attach(
    findings: &mut Findings,
    known: &Known<'_>,
    contexts: &Contexts,
    drafts: &mut Drafts,
) {
    let selectors: Vec<(&ContextDraft, Vec<Selector>)> = contexts
        .values()
        .map(|draft| {
            let at = &draft.autoattach_at;
            let selectors = read_selectors(findings, known, &draft.autoattach, at, drafts);
            (draft, selectors)
        })
        .collect();
    // Each selector is held against each stack.
    let work = selectors
        .iter()
        .map(|(_, selectors)| selectors.len() + 1)
        .sum::<usize>();
    if work.saturating_mul(drafts.len()) > MAX_WORK {
        findings.push(Finding::error(
            "too-complex",
            "too many contexts for so many stacks",
        ));
        return;
    }
    for draft in drafts.values_mut() {
        for context in &draft.named_contexts {
            name(
                findings,
                "context",
                context,
                &draft.contexts_at,
                contexts.keys().map(String::as_str),
            );
        }
        let mut attached: Vec<&ContextDraft> = selectors
            .iter()
            .filter(|(context, selectors)| {
                draft.named_contexts.contains(&context.context.name)
                    || selectors
                        .iter()
                        .any(|selector| selector.selects(&draft.stack))
            })
            .map(|(context, _)| *context)
            .collect();
        attached.sort_by(|a, b| {
            (a.context.priority, &a.context.name).cmp(&(b.context.priority, &b.context.name))
        });
        conflicts(findings, &draft.stack, &attached);
        draft.stack.contexts = attached
            .iter()
            .map(|context| context.context.name.clone())
            .collect();
    }
}

/// Which stacks are meant.
pub(crate) enum Selector {
    Target(String),
    Layer(String),
    Label(String),
    Name(globset::GlobMatcher),
}

impl Selector {
    pub(crate) fn selects(&self, stack: &Stack) -> bool {
        match self {
            Self::Target(target) => stack.target == *target,
            Self::Layer(layer) => stack.layer == *layer,
            Self::Label(label) => stack.labels.contains(label),
            Self::Name(glob) => glob.is_match(stack.name.as_str()),
        }
    }
}

pub(crate) fn read_selectors(
    findings: &mut Findings,
    known: &Known<'_>,
    written: &[String],
    at: &Location,
    drafts: &Drafts,
) -> Vec<Selector> {
    let mut selectors = Vec::new();
    for raw in written {
        match raw.split_once(':') {
            Some(("target", target)) => {
                name(
                    findings,
                    "target",
                    target,
                    at,
                    known.targets.keys().map(String::as_str),
                );
                selectors.push(Selector::Target(target.to_owned()));
            }
            Some(("layer", layer)) => {
                name(
                    findings,
                    "layer",
                    layer,
                    at,
                    known.layers.keys().map(String::as_str),
                );
                selectors.push(Selector::Layer(layer.to_owned()));
            }
            Some(("label", label)) => selectors.push(Selector::Label(label.to_owned())),
            Some((word, _)) => {
                let mut finding = Finding::error(
                    "invalid-selector",
                    format!("`{raw}` is not a selector of stacks"),
                )
                .at(at.clone(), "in this list");
                finding.hint = suggest::hint(word, ["target", "layer", "label"]);
                findings.push(finding);
            }
            None => match kinds::compile_glob(raw) {
                Ok(glob) => {
                    let plain = !raw.contains(['*', '?', '[', '{']);
                    if plain && !known.is_partial && !known.disabled.contains(raw) {
                        name(
                            findings,
                            "stack",
                            raw,
                            at,
                            drafts.keys().map(StackName::as_str),
                        );
                    }
                    selectors.push(Selector::Name(glob));
                }
                Err(message) => findings.push(
                    Finding::error("invalid-selector", message).at(at.clone(), "in this list"),
                ),
            },
        }
    }
    selectors
}

/// Contexts of equal priority may not set one thing to two values.
fn conflicts(findings: &mut Findings, stack: &Stack, attached: &[&ContextDraft]) {
    for (kind, entries) in [
        ("env", env as fn(&Context) -> &BTreeMap<String, Input>),
        ("vars", vars),
    ] {
        let mut seen: BTreeMap<(i64, &String), (&ContextDraft, &Input)> = BTreeMap::new();
        for draft in attached {
            for (key, input) in entries(&draft.context) {
                let slot = (draft.context.priority, key);
                match seen.get(&slot) {
                    Some((first, other)) if *other != input => {
                        let at = |context: &ContextDraft| {
                            context
                                .entries_at
                                .get(&(kind, key.clone()))
                                .cloned()
                                .unwrap_or_default()
                        };
                        let message = format!(
                            "contexts `{}` and `{}` set `{key}` differently",
                            first.context.name, draft.context.name
                        );
                        let finding = Finding::error("conflicting-contexts", message)
                            .at(
                                at(draft),
                                format!(
                                    "`{}`, priority {}",
                                    draft.context.name, draft.context.priority
                                ),
                            )
                            .at(
                                at(first),
                                format!("`{}`, the same priority", first.context.name),
                            )
                            .hint(format!(
                                "both are attached to stack `{}`: give one a higher `priority`",
                                stack.name
                            ));
                        findings.push(finding);
                    }
                    Some(_) => {}
                    None => {
                        seen.insert(slot, (*draft, input));
                    }
                }
            }
        }
    }
}

fn env(context: &Context) -> &BTreeMap<String, Input> {
    &context.env
}

fn vars(context: &Context) -> &BTreeMap<String, Input> {
    &context.vars
}
