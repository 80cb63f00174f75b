//! Finds stacks that read another stack's state with `terraform_remote_state` although terrane stores that state. The
//! file is never in the snapshot, and a backend from which a state was migrated is no longer written.
//!
//! Not here: which stack the state belongs to (`module::remote_states`).

use std::collections::BTreeMap;

use crate::base::diagnostic::{Finding, Location};
use crate::project::Backend;
use crate::project::config::check::{Drafts, KnownNames};
use crate::project::config::findings::Findings;
use crate::project::config::stack::StackDraft;
use crate::project::module::remote_states::{BackendIndex, inputs_instead};
use crate::project::module::{Module, RemoteState, closure};

/// Reports each data source once, however many stacks use its module.
pub(crate) fn check(
    findings: &mut Findings,
    known: &KnownNames<'_>,
    drafts: &Drafts,
    modules: &BTreeMap<String, Module>,
) {
    // By directory: stacks with the same module read and store in the same way.
    let mut stacks: BTreeMap<&str, &StackDraft> = BTreeMap::new();
    for draft in drafts.values().filter(|draft| draft.has_path) {
        stacks.entry(&draft.stack.path).or_insert(draft);
    }
    let settings = |dir: &str| modules.get(dir).map_or("", |it| &it.backend_text);
    let keepers = BackendIndex::new(stacks.keys().map(|dir| (*dir, settings(dir))));
    let mut seen: BTreeMap<&Location, Finding> = BTreeMap::new();
    for (reader, draft) in stacks.values().enumerate() {
        let reached = closure(modules, &draft.stack.path).into_iter();
        for module in reached.filter_map(|dir| modules.get(&dir)) {
            for remote in &module.remote_states {
                let upstream = keepers.state_of(reader, &remote.config);
                let upstream = upstream.and_then(|up| stacks.get(keepers.dir(up)));
                if let Some(upstream) = upstream
                    && is_kept_here(known, upstream)
                {
                    let finding = || finding(draft, upstream, module, remote);
                    seen.entry(&remote.at).or_insert_with(finding);
                }
            }
        }
    }
    for finding in seen.into_values() {
        findings.push(finding);
    }
}

fn is_kept_here(known: &KnownNames<'_>, draft: &StackDraft) -> bool {
    let target = known.targets.get(&draft.stack.target);
    target.is_some_and(|it| matches!(it.target.backend, Backend::Terrane))
}

fn finding(
    draft: &StackDraft,
    upstream: &StackDraft,
    module: &Module,
    remote: &RemoteState,
) -> Finding {
    let (stack, upstream) = (&draft.stack.name, &upstream.stack.name);
    let name = &remote.name;
    let message = format!(
        "`data.terraform_remote_state.{name}` reads the state of stack `{upstream}`, which terrane keeps"
    );
    let label = if remote.backend.as_deref() == Some("local") {
        format!("no plan of stack `{stack}` finds that file")
    } else {
        "what is there is not written any more".to_owned()
    };
    let used = module.remote_outputs.get(name).cloned().unwrap_or_default();
    let is_variable = |name: &str| module.variables.contains_key(name);
    let inputs = inputs_instead(upstream.as_str(), name, &used, is_variable);
    Finding::warning("remote-state", message)
        .at(remote.at.clone(), label)
        .hint(format!(
            "declare a variable in its place, and hand the output over in stack `{stack}`: `inputs = {inputs}`"
        ))
}
