//! Checks where states are: no two in the same place, none under another's name, and none in a temporary copy of the
//! source.

use std::cell::Cell;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::base::diagnostic::Finding;
use crate::base::ids::StackName;
use crate::base::secret::Secret;
use crate::hcl::stored_expression::{Values, evaluate_within};
use crate::project::config::check::{Drafts, KnownNames};
use crate::project::config::findings::Findings;
use crate::project::config::project::TargetDraft;
use crate::project::config::stack::StackDraft;
use crate::project::context::for_stack;
use crate::project::module::{LocalState, Module};
use crate::project::{Backend, Stack, Target};

/// The backend that stores a state in a file.
const LOCAL: &str = "local";

/// The prefix of a placeholder for an environment variable whose value is not known yet.
const ENV: &str = "env:";

/// Two stacks with the same state would destroy each other's resources.
pub(crate) fn check(
    findings: &mut Findings,
    known: &KnownNames<'_>,
    drafts: &Drafts,
    modules: &BTreeMap<String, Module>,
) {
    let mut seen: BTreeMap<String, &StackDraft> = BTreeMap::new();
    let mut named: BTreeMap<&str, &StackDraft> = BTreeMap::new();
    let steps = Cell::new(0);
    for draft in drafts.values() {
        let stack = &draft.stack;
        let Some(target) = known.targets.get(&stack.target) else {
            continue;
        };
        let module = modules.get(&stack.path);
        own_identity(findings, draft, &target.target, module);
        local_path(findings, draft, target, module, &steps);
        if let Some(first) = named.insert(&stack.state, draft) {
            same_name(findings, first, draft, known);
        }
        let Some((key, what)) = state_key(stack, &target.target.backend, module, &steps) else {
            continue;
        };
        if let Some(first) = seen.get(&key) {
            let finding = Finding::error("shared-state", format!("stacks `{}` and `{}` share one state", first.stack.name, stack.name))
                .at(draft.state_at.clone(), format!("{what} is also used by `{}`", first.stack.name))
                .at(first.state_at.clone(), format!("`{}`", first.stack.name))
                .hint("give each a `state` of its own, and use `${stack.state}` in the settings of a backend");
            findings.push(finding);
        } else {
            seen.insert(key, draft);
        }
    }
}

/// terrane stores states by name, including copies of states that live in an engine's backend.
fn same_name(
    findings: &mut Findings,
    first: &StackDraft,
    second: &StackDraft,
    known: &KnownNames<'_>,
) {
    let is_ours = |draft: &StackDraft| {
        let target = known.targets.get(&draft.stack.target);
        target.is_some_and(|it| it.target.backend == Backend::Terrane)
    };
    if is_ours(first) && is_ours(second) {
        return; // the same place, already reported
    }
    let (one, other) = (&first.stack, &second.stack);
    findings.push(
        Finding::error(
            "same-state-name",
            format!(
                "the states of stacks `{}` and `{}` have one name, `{}`",
                one.name, other.name, one.state
            ),
        )
        .at(
            second.state_at.clone(),
            "what terrane keeps of both would be mixed",
        )
        .at(first.state_at.clone(), format!("`{}`", one.name))
        .hint(format!(
            "a name may have parts: `state = \"{}/{}\"`",
            other.target, other.state
        )),
    );
}

/// An engine works in a temporary copy of the source. A state inside it would be lost with the next plan.
fn local_path(
    findings: &mut Findings,
    draft: &StackDraft,
    target: &TargetDraft,
    module: Option<&Module>,
    steps: &Cell<usize>,
) {
    let settings = match &target.target.backend {
        Backend::Engine { kind, settings } if kind == LOCAL => settings,
        Backend::Engine { .. } | Backend::Terrane => return,
    };
    let own = module.filter(|module| module.backend.as_deref() == Some(LOCAL));
    let (path, at) = match settings.get("path") {
        Some(input) => {
            let known = evaluate_within(&for_stack(input, &draft.stack), &Symbolic, steps);
            // Evaluation errors are reported elsewhere.
            let Ok(known) = known else { return };
            (
                known.value.as_str().map(str::to_owned),
                target.backend_at.as_ref(),
            )
        }
        None => (
            match own.map(Module::local_state) {
                Some(LocalState::File(path)) => Some(path.to_owned()),
                Some(LocalState::Computed) => return,
                Some(LocalState::Unsaid) | None => None,
            },
            own.and_then(|own| own.backend_at.as_ref())
                .or(target.backend_at.as_ref()),
        ),
    };
    let label = match path {
        // `Symbolic` replaces values that are only known to a run.
        Some(path) if path.starts_with('/') || path.starts_with(ENV) => return,
        Some(path) => format!("`{path}` would lie in that copy"),
        None => "no `path`: it would lie in that copy".to_owned(),
    };
    let stack = &draft.stack.name;
    let mut finding = Finding::error(
        "state-in-a-copy",
        format!(
            "the engine works in a copy of the source, and would lose the state of stack `{stack}` there"
        ),
    );
    if let Some(at) = at {
        finding = finding.at(at.clone(), label);
    }
    findings.push(finding.hint(
        "`path = \"${env(\"HOME\")}/states/${stack.state}.tfstate\"` in the target, or any path that begins with `/`; without a `backend` block \
         terrane keeps the state",
    ));
}

/// If a target configures where states are, the module must not. An identity in the module would be the same for every
/// stack and target that uses it.
fn own_identity(
    findings: &mut Findings,
    draft: &StackDraft,
    target: &Target,
    module: Option<&Module>,
) {
    let Backend::Engine { kind, settings } = &target.backend else {
        return;
    };
    let Some((module, own)) = module.and_then(|module| Some((module, module.backend.as_ref()?)))
    else {
        return;
    };
    let message = if own != kind {
        format!(
            "the source has backend `{own}`, and target `{}` keeps states in `{kind}`",
            target.name
        )
    } else if !settings.is_empty() && has_settings(&module.backend_text) {
        format!(
            "both the source and target `{}` define where its state is",
            target.name
        )
    } else {
        return;
    };
    let mut finding = Finding::error("backend-identity", message);
    if let Some(at) = &module.backend_at {
        finding = finding.at(at.clone(), "this block may be empty, or not there at all");
    }
    findings.push(finding.hint(format!(
        "move its settings to `backend \"{kind}\"` of target `{}`, as used by stack `{}`",
        target.name, draft.stack.name
    )));
}

/// Whether a block's text contains anything between its braces.
fn has_settings(text: &str) -> bool {
    let inside = text.split_once('{').map_or("", |(_, rest)| rest);
    !inside.trim_end().trim_end_matches('}').trim().is_empty()
}

/// What identifies a state, with its description.
fn state_key(
    stack: &Stack,
    backend: &Backend,
    module: Option<&Module>,
    steps: &Cell<usize>,
) -> Option<(String, String)> {
    match backend {
        Backend::Terrane => Some((
            format!("terrane {}", stack.state),
            format!("state `{}`", stack.state),
        )),
        Backend::Engine { kind, settings } => {
            let mut values = serde_json::Map::new();
            for (name, input) in settings {
                let value = evaluate_within(&for_stack(input, stack), &Symbolic, steps)
                    .ok()?
                    .value;
                values.insert(name.clone(), value);
            }
            // The module's own backend settings apply where the target sets none.
            let own = module.filter(|module| module.backend.as_ref() == Some(kind));
            let own: Vec<&str> = own
                .map(|module| module.backend_text.split_whitespace().collect())
                .unwrap_or_default();
            let key = json!([kind, Value::Object(values), own]).to_string();
            Some((key, format!("this place in backend `{kind}`")))
        }
    }
}

/// Replaces values that are unknown during loading: equal names mean equal values.
pub(crate) struct Symbolic;

impl Values for Symbolic {
    fn output(&self, _stack: &StackName, _key: &str) -> Option<(Value, bool)> {
        None
    }

    fn env(&self, name: &str) -> Option<String> {
        Some(format!("{ENV}{name}"))
    }

    fn secret(&self, reference: &str) -> Option<Secret> {
        Some(Secret::new(format!("secret:{reference}")))
    }
}
