//! What bears on stacks until it ends: holds, acts by hand that no normal run has caught up with, and states that were kept
//! aside; what closes the record of such an act, and giving it the reason that it lacks.

use std::collections::BTreeSet;

use jiff::Timestamp;
use model::break_glass::BreakGlass;
use model::error::{ErrorKind, Explain, NextStep, advice, command};
use model::hold::{Hold, HoldOn};
use model::ids::{BreakGlassId, RunId, StackName};
use model::project::Project;
use model::state::StateName;
use serde::Serialize;
use store::{ChangeSetError, StoreError};

use crate::Control;
use crate::state::reasons::Reason;

/// When a run closes what was done by hand to its state.
pub const ENDS_WELL: &str = "the next `terrane apply` or `terrane destroy` of its stack ends well without \
     `--override-policy`, `--skip-gate` or `--reinstall`";

#[derive(Debug, thiserror::Error)]
pub enum InForceError {
    #[error("could not read what is held")]
    Holds(#[from] ChangeSetError),
    #[error("could not read what was done by hand")]
    Acts(#[from] StoreError),
}

impl Explain for InForceError {}

/// What closes the record of an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Closing {
    /// The next run of its stack that ends well.
    Run,
    /// The same, once somebody has said why it was done.
    ReasonThenRun,
    /// No stack here can catch up with it: who explains it closes it.
    Explanation,
}

/// Of one project, oldest first. Outside of a project, the acts of the whole home: nobody else would speak of those to
/// states of no project.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InForce {
    pub holds: Vec<Hold>,
    pub acts: Vec<BreakGlass>,
    /// States that an engine could not deliver: nothing of theirs is applied before somebody decides.
    pub kept: Vec<KeptAside>,
    /// How many more are open in the home, of states outside of the project.
    pub outside: usize,
    owners: Owners,
}

/// What a run left that could not be adopted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeptAside {
    pub state: StateName,
    pub run: RunId,
    pub why: String,
    pub at: Timestamp,
}

/// Whose runs catch up with what is done by hand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Owners {
    /// The project here; empty outside of one.
    here: String,
    /// Others that had runs in this home, if that was asked for.
    projects: BTreeSet<String>,
}

impl InForce {
    pub async fn read(control: &Control) -> Result<Self, InForceError> {
        let (store, project) = (&control.store, control.home.project());
        let mut acts = store.break_glass_list_open().await?;
        let open = acts.len();
        acts.retain(|act| project.is_empty() || act.state.project == project);
        let kept = store.kept_aside_list_open().await?.into_iter();
        let kept = kept.filter(|one| project.is_empty() || one.state.project == project);
        let kept = kept.filter_map(|one| {
            Some(KeptAside {
                run: one.run?,
                state: one.state,
                why: one.reason,
                at: one.at,
            })
        });
        Ok(Self {
            kept: kept.collect(),
            holds: store.hold_list_active(project, control.now()).await?,
            outside: open - acts.len(),
            owners: Owners::read(control, &acts).await?,
            acts,
        })
    }

    /// What closes the record of an act. `project` is the one here, if it can be read.
    pub fn closing(&self, act: &BreakGlass, project: Option<&Project>) -> Closing {
        self.owners.closing(act, project)
    }

    /// A state as it is called here.
    pub fn name(&self, state: &StateName) -> String {
        if state.project == self.owners.here {
            state.name.clone()
        } else {
            state.to_string()
        }
    }

    pub fn is_empty(&self) -> bool {
        self.holds.is_empty() && self.acts.is_empty() && self.kept.is_empty()
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
        self.kept.retain(|one| states.contains(&one.state));
        self
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    #[error("there is no record `{id}` of anything that was done by hand")]
    Unknown { id: BreakGlassId },
    #[error("record `{id}` is another project's")]
    OfOthers { id: BreakGlassId },
    #[error("record `{id}` was closed on {}", .at.strftime("%Y-%m-%d at %H:%M UTC"))]
    Closed { id: BreakGlassId, at: Timestamp },
    #[error("record `{id}` has its reason: {reason}")]
    HasReason { id: BreakGlassId, reason: String },
    #[error("could not explain record `{id}`")]
    Store {
        id: BreakGlassId,
        source: StoreError,
    },
}

impl Explain for ExplainError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::OfOthers { .. } | Self::Closed { .. } | Self::HasReason { .. } => {
                ErrorKind::Refused
            }
            Self::Unknown { .. } => ErrorKind::NotFound,
            Self::Store { .. } => ErrorKind::Failed,
        }
    }

    fn next_steps(&self) -> Vec<NextStep> {
        vec![match self {
            Self::Unknown { .. } => command("run list --open", "lists the open records"),
            Self::OfOthers { .. } => {
                advice("run it in that project, or in a directory without a project")
            }
            Self::HasReason { .. } => advice(format!("it closes when {ENDS_WELL}")),
            Self::Closed { .. } | Self::Store { .. } => return Vec::new(),
        }]
    }
}

/// Says why something was done by hand, without secrets; if no stack here can catch up with it, that closes the record.
/// `project` is the one here, if it can be read.
pub async fn explain(
    control: &Control,
    project: Option<&Project>,
    id: BreakGlassId,
    reason: &Reason,
) -> Result<BreakGlass, ExplainError> {
    let (act, closes) = explainable(control, project, id).await?;
    let Reason { actor, text } = reason.kept(control, &act.state).await;
    let store = &control.store;
    let explained = if closes {
        let now = control.now();
        store.break_glass_close(id, &text, &actor, now).await
    } else {
        store.break_glass_explain(id, &text, &actor).await
    };
    let explained = explained.map_err(|source| ExplainError::Store { id, source })?;
    if let Some(explained) = explained {
        return Ok(explained);
    }
    // Somebody was faster.
    let now = explainable(control, project, id).await;
    Err(now.err().unwrap_or(ExplainError::Unknown { id }))
}

/// The record, if there is something to explain, and whether that closes it.
async fn explainable(
    control: &Control,
    project: Option<&Project>,
    id: BreakGlassId,
) -> Result<(BreakGlass, bool), ExplainError> {
    let failed = |source| ExplainError::Store { id, source };
    let act = control.store.break_glass_get(id).await.map_err(failed)?;
    let act = act.ok_or(ExplainError::Unknown { id })?;
    if let Some(at) = act.closed_at {
        return Err(ExplainError::Closed { id, at });
    }
    let owners = Owners::read(control, std::slice::from_ref(&act)).await;
    let owners = owners.map_err(failed)?;
    let is_elsewhere = !owners.here.is_empty() && act.state.project != owners.here;
    match owners.closing(&act, project) {
        Closing::Explanation => Ok((act, true)),
        Closing::Run | Closing::ReasonThenRun if is_elsewhere => Err(ExplainError::OfOthers { id }),
        Closing::ReasonThenRun => Ok((act, false)),
        Closing::Run => Err(ExplainError::HasReason {
            id,
            reason: act.reason.unwrap_or_default(),
        }),
    }
}

impl Owners {
    async fn read(control: &Control, acts: &[BreakGlass]) -> Result<Self, StoreError> {
        let here = control.home.project();
        let is_known = |act: &BreakGlass| [here, ""].contains(&act.state.project.as_str());
        let projects = if acts.iter().all(is_known) {
            BTreeSet::new()
        } else {
            control.store.break_glass_projects().await?
        };
        Ok(Self {
            here: here.to_owned(),
            projects,
        })
    }

    fn closing(&self, act: &BreakGlass, project: Option<&Project>) -> Closing {
        let of = &act.state.project;
        let is_here = *of == self.here;
        let has_stack = match project {
            Some(project) if is_here => {
                let mut stacks = project.stacks.values();
                stacks.any(|stack| stack.state == act.state.name)
            }
            _ => !of.is_empty() && (is_here || self.projects.contains(of)),
        };
        match &act.reason {
            _ if !has_stack => Closing::Explanation,
            Some(_) => Closing::Run,
            None => Closing::ReasonThenRun,
        }
    }
}
