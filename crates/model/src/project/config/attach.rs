//! Which contexts a stack gets, lowest precedence first, and whether they conflict.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::diagnostic::{Finding, Location};
use crate::base::ids::StackName;
use crate::hcl::expression::Input;
use crate::hcl::paths;
use crate::hcl::suggest;
use crate::project::config::check::{Drafts, KnownNames, name};
use crate::project::config::contexts::ContextDraft;
use crate::project::config::findings::Findings;
use crate::project::config::stack::StackDraft;
use crate::project::config::walk::join;
use crate::project::context::{ClusterSecret, Context, ContextEntryKind, cluster_secrets};
use crate::project::{Backend, Stack};
use crate::stage::StageBlock;

/// The budget for attaching contexts and for finding set variables.
pub(crate) const MAX_WORK: usize = 5_000_000;

pub(crate) type Contexts = BTreeMap<String, ContextDraft>;

pub(crate) fn attach(
    findings: &mut Findings,
    known: &KnownNames<'_>,
    contexts: &mut Contexts,
    drafts: &mut Drafts,
) {
    let selectors: BTreeMap<String, Vec<(String, Selector)>> = contexts
        .values()
        .map(|draft| {
            let (written, at) = (&draft.context.written, &draft.autoattach_at);
            let selectors = written.autoattach.iter().flat_map(|raw| {
                let read = read_selectors(findings, known, std::slice::from_ref(raw), at, drafts);
                read.into_iter().map(|selector| (raw.clone(), selector))
            });
            (draft.context.name.clone(), selectors.collect())
        })
        .collect();
    // Each selector is matched against each stack.
    let work = selectors
        .values()
        .map(|selectors| selectors.len() + 1)
        .sum::<usize>();
    if work.saturating_mul(drafts.len()) > MAX_WORK {
        findings.push(Finding::error(
            "too-complex",
            "too many contexts for so many stacks",
        ));
        return;
    }
    let mut work = 0;
    let dirs: BTreeSet<String> = drafts.values().map(|it| it.stack.path.clone()).collect();
    for draft in drafts.values_mut() {
        for context in &draft.named_contexts {
            name(
                findings,
                known,
                "context",
                context,
                &draft.contexts_at,
                contexts.keys().map(String::as_str),
            );
        }
        let mut attached = Vec::new();
        for (context, selectors) in &selectors {
            let by = attached_by(draft, context, selectors);
            if by.is_empty() {
                continue;
            }
            if let Some(found) = contexts.get_mut(context) {
                let stack = draft.stack.name.clone();
                found.context.written.attached.insert(stack, by);
                attached.push((found.context.priority, context.clone()));
            }
        }
        attached.sort();
        let names: Vec<String> = attached.into_iter().map(|(_, name)| name).collect();
        let attached: Vec<&ContextDraft> =
            names.iter().filter_map(|name| contexts.get(name)).collect();
        conflicts(findings, &draft.stack, &attached);
        work = passed_work(&attached).saturating_add(work);
        if work <= MAX_WORK {
            passed_conflicts(findings, &draft.stack, &attached);
        }
        foreign_files(findings, &draft.stack, &attached, &dirs);
        state_variables(findings, known, &draft.stack, &attached);
        secret_conflicts(findings, &draft.stack, &attached);
        hand_secrets(&mut draft.stack, &attached);
        draft.stack.contexts = names;
    }
}

/// What attaches a context to a stack, in the notation of the project file.
fn attached_by(draft: &StackDraft, context: &str, selectors: &[(String, Selector)]) -> Vec<String> {
    let is_named = draft.named_contexts.iter().any(|name| name == context);
    let by_name = is_named.then(|| "contexts".to_owned());
    let by_selector = selectors
        .iter()
        .filter(|(_, selector)| selector.selects(&draft.stack))
        .map(|(raw, _)| raw.clone());
    by_name.into_iter().chain(by_selector).collect()
}

/// Selects stacks.
pub(crate) enum Selector {
    Target(String),
    Layer(String),
    Label(String),
    Name(globset::GlobMatcher),
}

/// Why a text is not a selector.
pub(crate) struct NoSelector {
    message: String,
    hint: Option<String>,
}

impl Selector {
    pub(crate) fn parse(raw: &str) -> Result<Self, NoSelector> {
        match raw.split_once(':') {
            Some(("target", target)) => Ok(Self::Target(target.to_owned())),
            Some(("layer", layer)) => Ok(Self::Layer(layer.to_owned())),
            Some(("label", label)) => Ok(Self::Label(label.to_owned())),
            Some((word, _)) => Err(NoSelector {
                message: format!("`{raw}` is not a selector of stacks"),
                hint: suggest::hint(word, ["target", "layer", "label"]),
            }),
            None => match paths::compile_glob(raw) {
                Ok(glob) => Ok(Self::Name(glob)),
                Err(message) => Err(NoSelector {
                    message,
                    hint: None,
                }),
            },
        }
    }

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
    known: &KnownNames<'_>,
    written: &[String],
    at: &Location,
    drafts: &Drafts,
) -> Vec<Selector> {
    let mut selectors = Vec::new();
    for raw in written {
        let selector = match Selector::parse(raw) {
            Ok(selector) => selector,
            Err(NoSelector { message, hint }) => {
                let mut finding =
                    Finding::error("invalid-selector", message).at(at.clone(), "in this list");
                finding.hint = hint;
                findings.push(finding);
                continue;
            }
        };
        match &selector {
            Selector::Target(target) => {
                let targets = known.targets.keys().map(String::as_str);
                name(findings, known, "target", target, at, targets);
            }
            Selector::Layer(layer) => {
                let layers = known.layers.keys().map(String::as_str);
                name(findings, known, "layer", layer, at, layers);
            }
            Selector::Label(_) => {}
            Selector::Name(_) => {
                let plain = !raw.contains(['*', '?', '[', '{']);
                if plain && !known.may_be_stack(raw) && !known.disabled.contains(raw) {
                    let stacks = drafts.keys().map(StackName::as_str);
                    name(findings, known, "stack", raw, at, stacks);
                }
            }
        }
        selectors.push(selector);
    }
    selectors
}

/// If the state is in terrane's own service, only terrane may configure the engine's access to it.
fn state_variables(
    findings: &mut Findings,
    known: &KnownNames<'_>,
    stack: &Stack,
    attached: &[&ContextDraft],
) {
    let target = known.targets.get(&stack.target);
    if target.is_none_or(|draft| draft.target.backend != Backend::Terrane) {
        return;
    }
    for draft in attached {
        let names = draft.context.env.keys();
        for name in names.filter(|name| name.starts_with("TF_HTTP_")) {
            let message = format!(
                "a context cannot give `{name}` to stack `{}`: its state is in terrane's own service",
                stack.name
            );
            findings.push(
                Finding::error("reserved-variable", message)
                    .at(
                        draft.context.entry_at(ContextEntryKind::Env, name),
                        "this name",
                    )
                    .hint("`backend \"http\"` in the target keeps states elsewhere"),
            );
        }
    }
}

/// Contexts of equal priority must not set the same thing to different values.
fn conflicts(findings: &mut Findings, stack: &Stack, attached: &[&ContextDraft]) {
    for kind in ContextEntryKind::ALL {
        let mut seen: BTreeMap<(i64, &String), (&ContextDraft, &Input)> = BTreeMap::new();
        for draft in attached {
            for (key, input) in draft.context.entries(kind) {
                let slot = (draft.context.priority, key);
                match seen.get(&slot) {
                    Some((first, other)) if *other != input => {
                        let at = [
                            (*draft, draft.context.entry_at(kind, key)),
                            (*first, first.context.entry_at(kind, key)),
                        ];
                        findings.push(conflict(stack, key, at));
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

/// They must not define the same Kubernetes Secret differently either.
fn secret_conflicts(findings: &mut Findings, stack: &Stack, attached: &[&ContextDraft]) {
    let all = attached
        .iter()
        .flat_map(|draft| draft.context.secrets.iter().map(move |it| (*draft, it)));
    let mut seen: Vec<(&ContextDraft, &ClusterSecret)> = Vec::new();
    for (draft, secret) in all {
        let other = seen.iter().find(|(first, other)| {
            first.context.priority == draft.context.priority
                && other.is_same_object(&secret.block)
                && !other.is_like(secret)
        });
        if let Some((first, other)) = other {
            let at = [
                (draft, secret.block.at.clone()),
                (*first, other.block.at.clone()),
            ];
            findings.push(conflict(stack, &secret.title(), at));
        }
        seen.push((draft, secret));
    }
}

/// Adds the contexts' cluster secrets to the bootstrap blocks that reach a cluster. Secrets of the blocks themselves
/// take precedence.
fn hand_secrets(stack: &mut Stack, attached: &[&ContextDraft]) {
    let contexts: Vec<&Context> = attached.iter().map(|draft| &draft.context).collect();
    let secrets = cluster_secrets(&contexts);
    let reaches = |block: &&mut StageBlock| block.attrs.contains_key("kubeconfig");
    for bootstrap in stack.stages.bootstrap.iter_mut().filter(reaches) {
        for (_, secret) in &secrets {
            let mut own = bootstrap.blocks.iter();
            if !own.any(|own| secret.is_same_object(own)) {
                bootstrap.blocks.push(secret.block.clone());
            }
        }
    }
}

/// The number of names to match against patterns.
fn passed_work(attached: &[&ContextDraft]) -> usize {
    let names: usize = attached.iter().map(|it| it.context.env.len()).sum();
    let patterns: usize = attached.iter().map(|it| it.passed.len()).sum();
    names.saturating_mul(patterns)
}

/// A variable that one context sets must not be passed through from the caller by another one of equal priority.
fn passed_conflicts(findings: &mut Findings, stack: &Stack, attached: &[&ContextDraft]) {
    for draft in attached {
        let equal = attached.iter().filter(|other| {
            other.context.name != draft.context.name
                && other.context.priority == draft.context.priority
        });
        for other in equal {
            let passes = |key: &String| other.passed.iter().any(|glob| glob.is_match(key));
            for key in draft.context.env.keys().filter(|key| passes(key)) {
                let at = [
                    (*draft, draft.context.entry_at(ContextEntryKind::Env, key)),
                    (*other, other.context.written.pass_env_at.clone()),
                ];
                findings.push(conflict(stack, key, at));
            }
        }
    }
}

fn conflict(stack: &Stack, key: &str, at: [(&ContextDraft, Location); 2]) -> Finding {
    let [(draft, draft_at), (first, first_at)] = at;
    let (second, priority) = (&draft.context.name, draft.context.priority);
    let first = &first.context.name;
    let message = format!("contexts `{first}` and `{second}` set `{key}` differently");
    Finding::error("conflicting-contexts", message)
        .at(draft_at, format!("`{second}`, priority {priority}"))
        .at(first_at, format!("`{first}`, the same priority"))
        .hint(format!(
            "both are attached to stack `{}`: give one a higher `priority`",
            stack.name
        ))
}

/// A context's file must be in the stack's own directory, not in that of a nested stack, where both engines would use
/// it.
fn foreign_files(
    findings: &mut Findings,
    stack: &Stack,
    attached: &[&ContextDraft],
    dirs: &BTreeSet<String>,
) {
    for draft in attached {
        for path in draft.context.files.keys() {
            let below = path.match_indices('/').map(|(at, _)| &path[..at]);
            let mut below = below.map(|dir| join(&stack.path, dir));
            let Some(dir) = below.find(|dir| dirs.contains(dir)) else {
                continue;
            };
            let message = format!(
                "the file `{path}` of context `{}` would lie in `{dir}`, where another stack is",
                draft.context.name
            );
            let at = draft.context.entry_at(ContextEntryKind::Files, path);
            let finding = Finding::error("foreign-file", message).at(at, "this file");
            findings.push(finding.hint(format!(
                "it is attached to stack `{}`: attach it to the other one instead",
                stack.name
            )));
        }
    }
}
