//! Whether a stack is as it was when it last ended well: its own source, its engine, its state, and the
//! values it takes from other stacks. Such a stack runs only if an upstream changes what it consumes.

use std::collections::{BTreeMap, BTreeSet};

use model::digits;
use model::ids::{RunId, StackName};
use model::project::{Backend, Context, Input};
use model::run::RunSpec;
use serde_json::{Map, Value};
use store::StoreError;

use crate::outputs::{self, OutputsError};
use crate::{Control, asker};

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
    digits::write(&Value::Object(all))
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

/// What cannot be known without running something counts as changed, and so does what cannot be read:
/// the run will say what is wrong.
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
    if asker::takes_secrets_or_environment(spec) {
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
    // Whoever merely comes first counts whenever it changed anything since.
    for upstream in &spec.order_states {
        let head = control
            .store
            .state_head(&control.state_name(upstream))
            .await;
        let writer = head.ok()?.and_then(|head| head.run);
        if writer.is_some_and(|writer| writer > last.run) {
            return Some(false);
        }
    }
    let now = consumed_now(control, spec, known).await?;
    if last.consumed != Some(now) {
        return Some(false);
    }
    // What was done by hand is caught up with by a plan of it.
    let acts = control.store.break_glass_list(&state).await.ok()?;
    let mut open = acts.iter().filter(|act| act.closed_at.is_none());
    Some(!open.any(|act| act.reason.is_some()))
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

/// Whether a run, if it was the last that ended well, would take other values from other stacks now.
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
