//! Secrets that only local runs can read: a `.env` file exists on one person's disk and is not in version control.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::diagnostic::{Finding, Location};
use crate::hcl::expression::Input;
use crate::project::config::attach::Contexts;
use crate::project::config::check::{Drafts, KnownNames};
use crate::project::config::findings::Findings;
use crate::project::config::stack::StackDraft;
use crate::stage;
use crate::stage::facts::FactsBranch;

/// Reports each reference once, however many stacks read it.
pub(crate) fn check(
    findings: &mut Findings,
    known: &KnownNames<'_>,
    drafts: &Drafts,
    contexts: &Contexts,
    facts: &BTreeMap<String, FactsBranch>,
    places: &BTreeMap<String, Location>,
) {
    let is_local = |reference: &String| reference.starts_with("dotenv:");
    if !places.keys().any(is_local) {
        return;
    }
    let mut told = BTreeSet::new();
    for draft in drafts.values() {
        let stack = &draft.stack;
        let target = known.targets.get(&stack.target);
        if target.is_none_or(|draft| draft.target.is_open()) {
            continue;
        }
        for reference in read_by(draft, contexts, facts).filter(|it| is_local(it)) {
            let Some(at) = places.get(reference) else {
                continue;
            };
            if !told.insert(reference) {
                continue;
            }
            let message = format!(
                "`dotenv:` secrets are for local work, and stack `{}` is on target `{}`",
                stack.name, stack.target
            );
            findings.push(
                Finding::error("local-secret", message)
                    .at(at.clone(), "this file is on one machine alone")
                    .at(draft.target_at.clone(), "its writers are not `anyone`")
                    .hint("keep it where the target's writers can read it: `sops:`, `vault:`, `azure-keyvault:`, `aws-ssm:`"),
            );
        }
    }
}

/// Every reference that a stack's values need.
fn read_by<'a>(
    draft: &'a StackDraft,
    contexts: &'a Contexts,
    facts: &'a BTreeMap<String, FactsBranch>,
) -> impl Iterator<Item = &'a String> {
    let stack = &draft.stack;
    let attached = stack.contexts.iter().filter_map(|name| contexts.get(name));
    let given = attached.flat_map(|draft| draft.context.inputs());
    let stages = stack.stages.blocks();
    let stages = stages.flat_map(|block| stage::inputs(std::slice::from_ref(block)));
    let places = draft.facts.iter().filter_map(|(name, _)| facts.get(name));
    let places = places.flat_map(|place| {
        let values = [&place.repository, &place.branch, &place.credential];
        values.into_iter().flatten()
    });
    let all = stack
        .inputs
        .values()
        .chain(given)
        .chain(stages)
        .chain(places);
    all.filter_map(|input| match input {
        Input::Known(_) => None,
        Input::Expression(expression) => Some(&expression.needs.secrets),
    })
    .flatten()
}
