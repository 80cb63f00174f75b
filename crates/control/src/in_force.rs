//! What people said or did that bears on stacks until it ends: holds, and acts by hand that no normal run has caught up
//! with.

use std::collections::BTreeSet;

use model::break_glass::BreakGlass;
use model::hold::{Hold, HoldOn};
use model::ids::StackName;
use model::project::Project;
use model::state::StateName;
use store::{ChangeSetError, StoreError};

use crate::Control;

#[derive(Debug, thiserror::Error)]
pub enum InForceError {
    #[error("could not read what is held")]
    Holds(#[from] ChangeSetError),
    #[error("could not read what was done by hand")]
    Acts(#[from] StoreError),
}

/// Of one project, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InForce {
    pub holds: Vec<Hold>,
    pub acts: Vec<BreakGlass>,
}

impl InForce {
    pub async fn read(control: &Control) -> Result<Self, InForceError> {
        let (store, project) = (&control.store, control.home.project());
        let mut acts = store.break_glass_list_open().await?;
        acts.retain(|act| act.state.project == project);
        Ok(Self {
            holds: store.hold_list_active(project, control.now()).await?,
            acts,
        })
    }

    pub fn is_empty(&self) -> bool {
        self.holds.is_empty() && self.acts.is_empty()
    }

    /// Only what bears on these stacks.
    #[must_use]
    pub fn on(
        mut self,
        control: &Control,
        project: &Project,
        stacks: &BTreeSet<StackName>,
    ) -> Self {
        let known = stacks.iter().filter_map(|name| project.stacks.get(name));
        let targets: BTreeSet<&str> = known.clone().map(|stack| stack.target.as_str()).collect();
        let states: BTreeSet<StateName> = known
            .map(|stack| control.state_name(&stack.state))
            .collect();
        self.holds.retain(|hold| match &hold.on {
            HoldOn::Stack(stack) => stacks.contains(stack),
            HoldOn::Lane(lane) => targets.contains(lane.as_str()),
        });
        self.acts.retain(|act| states.contains(&act.state));
        self
    }
}
