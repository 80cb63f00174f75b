//! Planned outputs of upstream stacks. The preview of a dependent uses them before anything is applied.

use std::collections::BTreeMap;

use model::base::ids::{RunId, StackName};
use model::base::masking::Mask;
use model::base::secret::Secret;
use model::plan::{PlannedOutput, planned_outputs};
use model::run::AwaitedOutputs;
use store::KeyScope;

use super::plan::seal_to;
use super::{Failure, StageJob};
use crate::Control;
use crate::values::{PlannedOutputs, collect_secrets};

impl PlannedOutputs {
    /// Reads the awaited outputs from the plans of upstream runs. An output that no plan contains is unknown.
    pub(super) async fn of(job: &StageJob<'_>, awaits: &[AwaitedOutputs]) -> Result<Self, Failure> {
        let failed = |err: &dyn std::error::Error| {
            Failure::because(
                "could not read the planned outputs of its dependencies",
                err,
            )
        };
        let mut ahead = BTreeMap::new();
        let set = job.control.store.run_get(job.run).await;
        let Some(own) = set.map_err(|err| failed(&err))? else {
            return Ok(Self::default());
        };
        let runs = job.control.store.run_list(own.change_set).await;
        let runs = runs.map_err(|err| failed(&err))?;
        for awaited in awaits {
            let run = runs.iter().find(|run| run.stack == awaited.stack);
            let state = job.spec.output_states.get(&awaited.stack);
            let mut planned: BTreeMap<String, PlannedOutput> = BTreeMap::new();
            if let (Some(run), Some(state)) = (run, state) {
                let read = read(job.control, run.id, &state.name).await;
                planned = read.map_err(|err| failed(&*err))?;
            }
            for name in &awaited.outputs {
                let output = planned.remove(name).unwrap_or(PlannedOutput {
                    value: None,
                    partly: None,
                    sensitive: false,
                });
                ahead.insert((awaited.stack.clone(), name.clone()), output);
            }
        }
        Ok(Self(ahead))
    }

    /// The awaited outputs that no plan has a value for.
    pub(super) fn unknown(&self, awaits: &[AwaitedOutputs]) -> Vec<AwaitedOutputs> {
        let is_unknown = |stack: &StackName, name: &String| {
            self.get(stack, name).is_none_or(|it| it.value.is_none())
        };
        let left = awaits.iter().map(|awaited| AwaitedOutputs {
            stack: awaited.stack.clone(),
            outputs: awaited
                .outputs
                .iter()
                .filter(|name| is_unknown(&awaited.stack, name))
                .cloned()
                .collect(),
        });
        left.collect()
    }
}

/// Stores the planned outputs of this run for its dependents. An output that contains a secret is marked as
/// sensitive.
pub(super) async fn keep(job: &StageJob<'_>, plan_json: &[u8], mask: &Mask) -> Result<(), Failure> {
    let failed = |err: &dyn std::error::Error| Failure::because("could not keep the plan", err);
    let mut outputs = planned_outputs(plan_json).map_err(|err| failed(&err))?;
    for output in outputs.values_mut() {
        if [&output.value, &output.partly]
            .into_iter()
            .flatten()
            .any(|value| mask.finds_in_value(value))
        {
            output.sensitive = true;
            // A partial value is passed on only if nothing in it is sensitive.
            output.partly = None;
        }
    }
    let bytes = serde_json::to_vec(&outputs).map_err(|err| failed(&err))?;
    let path = job.control.home.planned_outputs(job.run);
    seal_to(job, "plan-outputs", bytes, &path).await
}

/// The values of sensitive outputs that a plan contains.
pub(super) fn sensitive(plan_json: &[u8]) -> Result<Vec<Secret>, Failure> {
    let outputs = planned_outputs(plan_json)
        .map_err(|err| Failure::because("could not understand the plan", &err))?;
    Ok(sensitive_of(&outputs))
}

/// The same for this run's own plan, which an earlier process made.
pub(super) async fn own_sensitive(job: &StageJob<'_>) -> Result<Vec<Secret>, Failure> {
    let outputs = read(job.control, job.run, &job.spec.stack.state).await;
    let outputs = outputs.map_err(|err| Failure::because("could not read its plan", &*err))?;
    Ok(sensitive_of(&outputs))
}

fn sensitive_of(outputs: &BTreeMap<String, PlannedOutput>) -> Vec<Secret> {
    let mut secrets = Vec::new();
    let sensitive = outputs.values().filter(|output| output.sensitive);
    for value in sensitive.filter_map(|output| output.value.as_ref()) {
        collect_secrets(value, &mut secrets);
    }
    secrets
}

/// The planned outputs of a run; empty if they are not stored here.
async fn read(
    control: &Control,
    run: RunId,
    state: &str,
) -> Result<BTreeMap<String, PlannedOutput>, Box<dyn std::error::Error + Send + Sync>> {
    let Ok(sealed) = std::fs::read(control.home.planned_outputs(run)) else {
        return Ok(BTreeMap::new());
    };
    let scope = KeyScope::State(control.state_name(state));
    let purpose = format!("plan-outputs {run}");
    let plain = control.store.unseal(scope, &purpose, sealed).await?;
    Ok(serde_json::from_slice(&plain)?)
}
