//! What changed since a change set stopped: on resume, such stacks are planned again.

use std::collections::BTreeMap;
use std::fmt;

use model::base::ids::StackName;
use model::run::{Outcome, Run, RunSpec, RunState};

use super::{PrepareError, ResumeRequest};
use crate::Control;
use crate::changeset::staleness::{self, StalenessError, StateChangedError};
use crate::changeset::up_to_date::{self, KnownOutputs};

/// Why a stack that was applied before is planned again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StaleReason {
    Source,
    Engine,
    State(Box<StateChangedError>),
    /// A value that it takes from another stack.
    Consumed,
    /// It was not planned, because nothing of it had changed; now something has.
    Unsettled,
}

impl fmt::Display for StaleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source => f.write_str("its source changed since"),
            Self::Engine => f.write_str("its engine changed since"),
            Self::State(moved) => f.write_str(&moved.words()),
            Self::Consumed => f.write_str("an input from another stack changed since"),
            Self::Unsettled => {
                f.write_str("its state or an input from another stack changed since")
            }
        }
    }
}

/// The stacks that a change set applied, or found unchanged, and that have changed since, as far as can be
/// determined without an engine.
pub(super) async fn find(
    control: &Control,
    resumed: &ResumeRequest,
    specs: &[RunSpec],
) -> Result<BTreeMap<StackName, StaleReason>, PrepareError> {
    let mut found = BTreeMap::new();
    let mut known = KnownOutputs::default();
    for run in control.store.run_list(resumed.set.id).await? {
        let spec = specs.iter().find(|spec| spec.stack.name == run.stack);
        let Some(spec) = spec.filter(|_| run.state.is_reached()) else {
            continue;
        };
        if let Some(moved) = look(control, &run, spec, &mut known).await? {
            found.insert(run.stack, moved);
        }
    }
    Ok(found)
}

async fn look(
    control: &Control,
    run: &Run,
    spec: &RunSpec,
    known: &mut KnownOutputs,
) -> Result<Option<StaleReason>, PrepareError> {
    let before = control.store.run_spec(run.id).await?;
    if before.own_source != spec.own_source {
        return Ok(Some(StaleReason::Source));
    }
    if before.engine != spec.engine {
        return Ok(Some(StaleReason::Engine));
    }
    if let RunState::Finished {
        outcome: Outcome::Untouched,
        ..
    } = run.state
    {
        let is_settled = up_to_date::is_settled(control, spec, known).await;
        return Ok((!is_settled).then_some(StaleReason::Unsettled));
    }
    let state = control.state_name(&spec.stack.state);
    match staleness::moved(control, run.id, &run.stack, &state).await {
        Ok(None) => {}
        Ok(Some(moved)) => return Ok(Some(StaleReason::State(Box::new(moved)))),
        Err(StalenessError::History(err)) => return Err(err.into()),
        Err(StalenessError::State(err)) => return Err(PrepareError::Reserve(err)),
    }
    let takes_others = up_to_date::takes_others(control, run.id, spec, known).await;
    Ok(takes_others.then_some(StaleReason::Consumed))
}
