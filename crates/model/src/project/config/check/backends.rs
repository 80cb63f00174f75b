//! Checks the settings of a target's backend: no credential in clear text, no conflict with a context's credentials,
//! and complete lock settings.
//!
//! Not here: where states are (`check_states`), what is only known to a run (`control::runner`).

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::base::diagnostic::Finding;
use crate::base::secret::is_secret_variable;
use crate::hcl::expression::Input;
use crate::hcl::stored_expression::evaluate_within;
use crate::hcl::suggest;
use crate::project::Backend;
use crate::project::backend::{BY_ENVIRONMENT, credential_variable, in_clear, one_environment};
use crate::project::config::attach::Contexts;
use crate::project::config::check::states::Symbolic;
use crate::project::config::check::{Drafts, KnownNames};
use crate::project::config::contexts::ContextDraft;
use crate::project::config::findings::Findings;
use crate::project::config::project::TargetDraft;
use crate::project::config::stack::StackDraft;
use crate::project::context::ContextEntryKind;
use crate::project::context::for_stack;

/// The backends of both engines, or of one of them.
const KINDS: [&str; 13] = [
    "azurerm",
    "consul",
    "cos",
    "gcs",
    "http",
    "inmem",
    "kubernetes",
    "local",
    "oci",
    "oss",
    "pg",
    "remote",
    "s3",
];

/// The variable with which an engine locates the lock, if the settings do not.
const LOCK_VARIABLE: &str = "TF_HTTP_LOCK_ADDRESS";

pub(crate) fn check(
    findings: &mut Findings,
    known: &KnownNames<'_>,
    drafts: &Drafts,
    contexts: &Contexts,
) {
    let steps = Cell::new(0);
    // A context may set the lock address instead.
    let by_context = contexts.values().any(|draft| gives(draft, LOCK_VARIABLE));
    for target in known.targets.values() {
        kind_is_known(findings, target);
        if let Backend::Engine { kind, settings } = &target.target.backend
            && kind == "http"
            && !by_context
        {
            http_locks(findings, target, settings);
        }
    }
    let (mut locks, mut seen) = (BTreeMap::new(), BTreeSet::new());
    for draft in drafts.values() {
        let Some(target) = known.targets.get(&draft.stack.target) else {
            continue;
        };
        let Backend::Engine { kind, settings } = &target.target.backend else {
            continue;
        };
        let attached = draft.stack.contexts.iter();
        let attached: Vec<&ContextDraft> = attached.filter_map(|name| contexts.get(name)).collect();
        if seen.insert(&draft.stack.target) {
            clear_settings(findings, draft, target, &steps);
        }
        two_credentials(findings, draft, target, &attached, &steps);
        if let ("http", Some(lock)) = (kind.as_str(), settings.get("lock_address"))
            && let Some(lock) = value(lock, draft, &steps)
            && let Some(first) = locks.insert(lock.to_string(), draft)
        {
            shared_lock(findings, target, first, draft);
        }
    }
}

/// Engines add and remove backend types. An unknown type may be a typo, or newer than this list.
fn kind_is_known(findings: &mut Findings, target: &TargetDraft) {
    let kind = match &target.target.backend {
        Backend::Engine { kind, .. } if !KINDS.contains(&kind.as_str()) => kind,
        Backend::Engine { .. } | Backend::Terrane => return,
    };
    let message = format!("no engine that is known has a backend `{kind}`");
    let mut finding = at_backend(
        Finding::warning("unknown-backend", message),
        target,
        "this kind",
    );
    finding.hint = suggest::hint(kind, KINDS);
    findings.push(finding);
}

fn gives(draft: &ContextDraft, variable: &str) -> bool {
    let mut passed = draft.passed.iter();
    draft.context.env.contains_key(variable) || passed.any(|pattern| pattern.is_match(variable))
}

/// Equal expressions have equal values. None if it cannot be evaluated, which is reported elsewhere.
fn value(input: &Input, draft: &StackDraft, steps: &Cell<usize>) -> Option<Value> {
    let known = evaluate_within(&for_stack(input, &draft.stack), &Symbolic, steps);
    Some(known.ok()?.value)
}

/// `init` stores its settings in clear text in `.terraform`. Checking one stack per target is enough.
fn clear_settings(
    findings: &mut Findings,
    draft: &StackDraft,
    target: &TargetDraft,
    steps: &Cell<usize>,
) {
    let Backend::Engine { kind, settings } = &target.target.backend else {
        return;
    };
    for (name, input) in settings {
        let known = value(input, draft, steps);
        let is_header = kind == "http" && name == "headers";
        if known.is_none_or(|known| !in_clear(kind, name, &known))
            && !(is_header && holds_secret(input))
        {
            continue;
        }
        let message = format!(
            "a credential in `{name}` of backend `{kind}` would be stored in plain text with each plan of target `{}`",
            target.target.name
        );
        findings.push(
            at_backend(
                Finding::error("credential-in-clear", message),
                target,
                "the engine writes these settings down",
            )
            .hint(BY_ENVIRONMENT),
        );
    }
}

fn holds_secret(input: &Input) -> bool {
    match input {
        Input::Known(_) => false,
        Input::Expression(expression) => {
            let needs = &expression.needs;
            let mut names = needs.env.iter().chain(&needs.env_if_set);
            !needs.secrets.is_empty() || names.any(|name| is_secret_variable(name))
        }
    }
}

/// An engine with a lock address but no unlock address would leave every lock behind.
fn http_locks(findings: &mut Findings, target: &TargetDraft, settings: &BTreeMap<String, Input>) {
    let has = |name: &str| settings.contains_key(name);
    if settings.is_empty() {
        return; // the modules set it
    }
    let name = &target.target.name;
    let finding = match (has("lock_address"), has("unlock_address")) {
        (true, true) => return,
        (true, false) => Finding::error(
            "half-a-lock",
            format!(
                "target `{name}` locks states and never unlocks them: `unlock_address` is missing"
            ),
        ),
        (false, true) => Finding::error(
            "half-a-lock",
            format!(
                "target `{name}` unlocks states and never locks them: `lock_address` is missing"
            ),
        ),
        (false, false) => Finding::warning(
            "no-lock",
            format!("states of target `{name}` have no lock: of two who write at once, one loses"),
        ),
    };
    findings.push(
        at_backend(
            finding,
            target,
            "`address`, `lock_address` and `unlock_address` belong together",
        )
        .hint(
            "most servers take all three at one address: say it three times, with `${stack.state}`",
        ),
    );
}

fn shared_lock(
    findings: &mut Findings,
    target: &TargetDraft,
    first: &StackDraft,
    second: &StackDraft,
) {
    let message = format!(
        "stacks `{}` and `{}` have one lock: while one is applied, the other fails",
        first.stack.name, second.stack.name
    );
    findings.push(
        at_backend(
            Finding::warning("shared-lock", message),
            target,
            "the same `lock_address`",
        )
        .hint("`${stack.state}` in `lock_address` and `unlock_address` gives each its own"),
    );
}

/// An engine has one environment for its backend and its providers.
fn two_credentials(
    findings: &mut Findings,
    draft: &StackDraft,
    target: &TargetDraft,
    attached: &[&ContextDraft],
    steps: &Cell<usize>,
) {
    let Backend::Engine { kind, settings } = &target.target.backend else {
        return;
    };
    for (setting, input) in settings {
        let Some(variable) = credential_variable(kind, setting) else {
            continue;
        };
        let gives = |it: &&&ContextDraft| it.context.env.contains_key(variable);
        // The last one has the highest precedence.
        let Some(context) = attached.iter().rfind(gives) else {
            continue;
        };
        let (own, other) = (
            value(input, draft, steps),
            value(&context.context.env[variable], draft, steps),
        );
        if own.is_none() || other.is_none() || own == other {
            continue;
        }
        let message = format!(
            "`{variable}` of stack `{}` has two values: `{setting}` of backend `{kind}`, and context `{}`",
            draft.stack.name, context.context.name
        );
        let finding = Finding::error("two-credentials", message).at(
            context.context.entry_at(ContextEntryKind::Env, variable),
            "given to providers and backend alike",
        );
        findings.push(
            at_backend(
                finding,
                target,
                format!("`{setting}` goes by the same variable"),
            )
            .hint(one_environment(kind, setting)),
        );
    }
}

fn at_backend(finding: Finding, target: &TargetDraft, label: impl Into<String>) -> Finding {
    match &target.backend_at {
        Some(at) => finding.at(at.clone(), label),
        None => finding,
    }
}
