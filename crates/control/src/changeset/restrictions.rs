//! Active restrictions on stacks: holds, open break-glass records and quarantined states. Also what closes
//! such a record, and adding its missing reason.

use std::collections::BTreeSet;

use jiff::Timestamp;
use model::base::error::{ErrorKind, Explain, NextStep, advice, command};
use model::base::ids::{BreakGlassId, RunId, StackName};
use model::project::Project;
use model::run::hold::{Hold, HoldOn};
use model::state::StateName;
use model::state::break_glass::BreakGlass;
use serde::Serialize;
use store::{ChangeSetError, StoreError};

use crate::Control;
use crate::state::redact_reason::BreakGlassReason;

/// When a run closes the break-glass records of its state.
pub const ENDS_WELL: &str = "the next `terrane apply` or `terrane destroy` of its stack succeeds without \
     `--override-policy`, `--skip-gate` or `--reinstall`";

#[derive(Debug, thiserror::Error)]
pub enum RestrictionsError {
    #[error("cannot read the holds")]
    Holds(#[from] ChangeSetError),
    #[error("cannot read the break-glass records")]
    Acts(#[from] StoreError),
}

impl Explain for RestrictionsError {}

/// What closes a break-glass record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ClosedBy {
    /// The next successful run of its stack.
    Run,
    /// The same, once a person has added the reason.
    ReasonThenRun,
    /// An explanation closes it, because no stack here can.
    Explanation,
}

/// The restrictions of one project, oldest first. Outside of a project, the records of the whole home:
/// records of states without a project are shown nowhere else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restrictions {
    pub holds: Vec<Hold>,
    pub acts: Vec<BreakGlass>,
    /// Quarantined states, which an engine could not save. They block applies until a person decides.
    pub kept: Vec<QuarantinedState>,
    /// How many more records are open in the home, of states outside of the project.
    pub outside: usize,
    owners: Owners,
}

/// A state that a run left and that could not be adopted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QuarantinedState {
    pub state: StateName,
    pub run: RunId,
    pub why: String,
    pub at: Timestamp,
}

/// The projects whose runs close break-glass records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Owners {
    /// The current project; empty outside of one.
    here: String,
    /// Other projects that had runs in this home, if they are needed.
    projects: BTreeSet<String>,
}

impl Restrictions {
    pub async fn read(control: &Control) -> Result<Self, RestrictionsError> {
        let (store, project) = (&control.store, control.home.project());
        let mut acts = store.break_glass_list_open().await?;
        let open = acts.len();
        acts.retain(|act| project.is_empty() || act.state.project == project);
        let kept = store.quarantine_list_open().await?.into_iter();
        let kept = kept.filter(|one| project.is_empty() || one.state.project == project);
        let kept = kept.filter_map(|one| {
            Some(QuarantinedState {
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

    /// What closes a break-glass record. `project` is the current one, if it can be read.
    pub fn closing(&self, act: &BreakGlass, project: Option<&Project>) -> ClosedBy {
        self.owners.closing(act, project)
    }

    /// The name of a state, with its project if that is not the current one.
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

    /// Only the restrictions on these stacks.
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
    #[error("there is no break-glass record `{id}`")]
    Unknown { id: BreakGlassId },
    #[error("record `{id}` belongs to another project")]
    OfOthers { id: BreakGlassId },
    #[error("record `{id}` was closed on {}", .at.strftime("%Y-%m-%d at %H:%M UTC"))]
    Closed { id: BreakGlassId, at: Timestamp },
    #[error("record `{id}` already has a reason: {reason}")]
    HasReason { id: BreakGlassId, reason: String },
    #[error("cannot add a reason to record `{id}`")]
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

/// Adds a reason, without secrets, to a break-glass record. If no stack here can close the record, the reason
/// closes it. `project` is the current one, if it can be read.
pub async fn explain(
    control: &Control,
    project: Option<&Project>,
    id: BreakGlassId,
    reason: &BreakGlassReason,
) -> Result<BreakGlass, ExplainError> {
    let (act, closes) = explainable(control, project, id).await?;
    let BreakGlassReason { actor, text } = reason.kept(control, &act.state).await;
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
    // Another client was faster.
    let now = explainable(control, project, id).await;
    Err(now.err().unwrap_or(ExplainError::Unknown { id }))
}

/// The record, if it can be explained, and whether that closes it.
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
        ClosedBy::Explanation => Ok((act, true)),
        ClosedBy::Run | ClosedBy::ReasonThenRun if is_elsewhere => {
            Err(ExplainError::OfOthers { id })
        }
        ClosedBy::ReasonThenRun => Ok((act, false)),
        ClosedBy::Run => Err(ExplainError::HasReason {
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

    fn closing(&self, act: &BreakGlass, project: Option<&Project>) -> ClosedBy {
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
            _ if !has_stack => ClosedBy::Explanation,
            Some(_) => ClosedBy::Run,
            None => ClosedBy::ReasonThenRun,
        }
    }
}
