//! Whether a stack is unchanged since its last successful run: its source, engine and state, and the values
//! that it takes from other stacks. Such a stack runs only if an upstream changes what it consumes.

use std::collections::{BTreeMap, BTreeSet};

use model::base::exact_number;
use model::base::ids::{RunId, StackName};
use model::hcl::expression::Input;
use model::project::{Backend, Context};
use model::run::RunSpec;
use model::state::StateVersion;
use serde_json::{Map, Value};
use store::{ChangeSetError, StoreError};

use crate::Control;
use crate::secrets::caller_env;
use crate::state::outputs::{self, OutputsError};

/// The outputs of stacks, each read once.
#[derive(Default)]
pub(crate) struct KnownOutputs(BTreeMap<StackName, BTreeMap<String, Value>>);

impl KnownOutputs {
    async fn of(
        &mut self,
        control: &Control,
        spec: &RunSpec,
        stack: &StackName,
    ) -> Result<Option<&BTreeMap<String, Value>>, OutputsError> {
        let Some(state) = spec.output_states.get(stack) else {
            return Ok(None);
        };
        if !self.0.contains_key(stack) {
            let found = outputs::with_nulls(control, stack, state).await?;
            let values = found
                .into_iter()
                .map(|(name, output)| (name, output.value))
                .collect();
            self.0.insert(stack.clone(), values);
        }
        Ok(self.0.get(stack))
    }
}

/// The values a run takes from other stacks, in a form that is equal for equal values.
pub(crate) fn canonical(values: &BTreeMap<(StackName, String), Value>) -> String {
    let entry = |((stack, output), value): (&(StackName, String), &Value)| {
        (format!("{stack}.{output}"), value.clone())
    };
    let all: Map<String, Value> = values.iter().map(entry).collect();
    exact_number::write(&Value::Object(all))
}

/// Which outputs of other stacks a run takes.
pub(crate) fn consumed(spec: &RunSpec) -> BTreeSet<(StackName, String)> {
    let contexts = spec.contexts.iter().flat_map(Context::inputs);
    let inputs = spec.stack.inputs.values().chain(contexts);
    inputs
        .filter_map(|input| match input {
            Input::Known(_) => None,
            Input::Expression(expression) => Some(expression.needs.outputs.iter().cloned()),
        })
        .flatten()
        .collect()
}

/// The digest of what a run takes from other stacks.
pub(crate) async fn digest(
    control: &Control,
    values: &BTreeMap<(StackName, String), Value>,
) -> Result<String, StoreError> {
    let canonical = canonical(values).into_bytes();
    control.store.keyed_digest("consumed", canonical).await
}

/// Whether a stack is settled. What cannot be known without running something counts as changed. So does what
/// cannot be read: the run reports the problem.
pub(crate) async fn is_settled(
    control: &Control,
    spec: &RunSpec,
    known: &mut KnownOutputs,
) -> bool {
    look(control, spec, known).await.unwrap_or(false)
}

async fn look(control: &Control, spec: &RunSpec, known: &mut KnownOutputs) -> Option<bool> {
    let is_ours = spec.target.backend == Backend::Terrane;
    if !is_ours || spec.destroy || spec.refresh_only || spec.no_state || spec.pinned.is_some() {
        return Some(false);
    }
    if caller_env::takes_secrets_or_environment(spec) {
        return Some(false);
    }
    let project = control.home.project();
    let last = control.store.run_last_settled(project, &spec.stack.name);
    let last = last.await.ok()??;
    if last.spec.own_source != spec.own_source || last.spec.engine != spec.engine {
        return Some(false);
    }
    let state = control.state_name(&spec.stack.state);
    let head = control.store.state_head(&state).await.ok()?;
    if let Some(head) = &head
        && outputs::are_unread(control, head).await.ok()?
    {
        return Some(false); // a plan reads them
    }
    let serial = head.and_then(|head| i64::try_from(head.serial).ok());
    if serial != last.serial {
        return Some(false);
    }
    if has_other_before(control, spec, last.run).await? {
        return Some(false);
    }
    let now = consumed_now(control, spec, known).await?;
    if last.consumed != Some(now) {
        return Some(false);
    }
    let has_hooks = |context: &Context| !context.hooks.is_empty();
    if spec.contexts.iter().any(has_hooks) && owes_hooks(control, spec).await.ok()? {
        return Some(false); // a plan without changes runs them
    }
    // Open break-glass records need a plan of the stack.
    let acts = control.store.break_glass_list(&state).await.ok()?;
    let mut open = acts.iter().filter(|act| act.closed_at.is_none());
    Some(!open.any(|act| act.reason.is_some()))
}

/// The states of the stacks that a run depends on only by order, each with the digest of its current content.
/// None if there are no such stacks. A state that cannot be read is left out, and so differs from one that is
/// read later.
pub(crate) async fn came_after(
    control: &Control,
    spec: &RunSpec,
) -> Option<BTreeMap<String, String>> {
    if spec.order_states.is_empty() {
        return None;
    }
    let mut held = BTreeMap::new();
    for state in &spec.order_states {
        let head = control.store.state_head(&control.state_name(state)).await;
        if let Ok(Some(head)) = head {
            held.insert(state.clone(), head.content);
        }
    }
    Some(held)
}

/// Whether a stack that comes earlier only by order changed anything since the last successful run was
/// planned.
async fn has_other_before(control: &Control, spec: &RunSpec, last: RunId) -> Option<bool> {
    if spec.order_states.is_empty() {
        return Some(false);
    }
    let events = control.store.run_events(last).await.ok()?;
    let then = model::run::came_after(events.iter().map(|(_, event)| event));
    for state in &spec.order_states {
        let head = control.store.state_head(&control.state_name(state)).await;
        if differs(then, last, state, head.ok()?.as_ref()) {
            return Some(true);
        }
    }
    Some(false)
}

/// Whether a state differs from what it was for a run. If that run stored no digests, only the run numbers
/// are compared. A run that was requested earlier and applied later then counts as earlier.
fn differs(
    then: Option<&BTreeMap<String, String>>,
    last: RunId,
    state: &str,
    head: Option<&StateVersion>,
) -> bool {
    match then {
        Some(then) => then.get(state) != head.map(|head| &head.content),
        None => head
            .and_then(|head| head.run)
            .is_some_and(|writer| writer > last),
    }
}

/// The digest of what a run would take from other stacks now, if that can be read.
async fn consumed_now(
    control: &Control,
    spec: &RunSpec,
    known: &mut KnownOutputs,
) -> Option<String> {
    let mut values = BTreeMap::new();
    for (stack, output) in consumed(spec) {
        let outputs = known.of(control, spec, &stack).await.ok()??;
        let value = outputs.get(&output)?.clone();
        values.insert((stack, output), value);
    }
    digest(control, &values).await.ok()
}

/// Whether a run would take other values from other stacks now. False if it was not the last successful run.
pub(crate) async fn takes_others(
    control: &Control,
    run: RunId,
    spec: &RunSpec,
    known: &mut KnownOutputs,
) -> bool {
    let project = control.home.project();
    let last = control.store.run_last_settled(project, &spec.stack.name);
    let last = last.await.ok().flatten().filter(|last| last.run == run);
    let Some(before) = last.and_then(|last| last.consumed) else {
        return false;
    };
    let now = consumed_now(control, spec, known).await;
    now.is_some_and(|now| now != before)
}

/// Whether hooks after an apply of this stack are pending.
pub(crate) async fn owes_hooks(control: &Control, spec: &RunSpec) -> Result<bool, ChangeSetError> {
    let (store, stack) = (&control.store, &spec.stack.name);
    let last = store.run_last_begun(control.home.project(), stack);
    let Some(last) = last.await? else {
        return Ok(false);
    };
    // An apply does not finish the hooks of a destroy, nor the other way round.
    if store.run_spec(last).await?.destroy != spec.destroy {
        return Ok(false);
    }
    let events = store.run_events(last).await?;
    Ok(model::run::owes_hooks(
        events.iter().map(|(_, event)| event),
    ))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use model::state::{Contents, StateName};

    use super::*;

    fn head(content: &str, run: Option<i64>) -> StateVersion {
        StateVersion {
            state: StateName::new("", "base"),
            version: 2,
            serial: 2,
            lineage: "lineage".to_owned(),
            content: content.to_owned(),
            size: 0,
            parent: Some(1),
            contents: Contents::Resources,
            mark: None,
            run: run.map(RunId),
            created_at: Timestamp::UNIX_EPOCH,
            actor: model::base::actor::Actor::default(),
        }
    }

    /// Compares what run 11 stored with the current state.
    #[track_caller]
    fn check(expected: bool, then: Option<&[(&str, &str)]>, now: Option<&StateVersion>) {
        let owned = |(state, held): &(&str, &str)| ((*state).to_owned(), (*held).to_owned());
        let then: Option<BTreeMap<String, String>> =
            then.map(|then| then.iter().map(owned).collect());
        let found = differs(then.as_ref(), RunId(11), "base", now);
        assert_eq!(found, expected, "{then:?} {now:?}");
    }

    #[test]
    fn what_comes_before_counts_by_what_it_holds() {
        let kept: Option<&[(&str, &str)]> = Some(&[("base", "a")]);
        check(false, kept, Some(&head("a", Some(9))));
        // Requested earlier, applied later.
        check(true, kept, Some(&head("b", Some(10))));
        check(true, kept, Some(&head("b", Some(12))));
        // Not written by a run.
        check(true, kept, Some(&head("b", None)));
        check(true, kept, None);
        // The same was written again.
        check(false, kept, Some(&head("a", Some(12))));
        check(false, Some(&[]), None);
        check(true, Some(&[]), Some(&head("a", Some(9))));
    }

    #[test]
    fn older_records_go_by_the_numbers_of_runs() {
        check(false, None, None);
        check(false, None, Some(&head("a", None)));
        check(false, None, Some(&head("a", Some(10))));
        check(true, None, Some(&head("a", Some(12))));
    }
}
