//! One request and the affected part of the graph as one object.
//!
//! Not here: one stack's way (`run`), storing it (`store::changesets`), starting runners (`control`).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::approval::{Approval, Requirement};
use crate::exception::Exceptions;
use crate::exec::Exec;
use crate::hold::Hold;
use crate::identity::Identity;
use crate::ids::{ChangeSetId, StackName};

mod advance;
mod hear;
mod needed;
mod next;
mod reopen;
mod supersede;
mod why;

pub use advance::{Refusal, SetEvent, advance};
pub use hear::{HearError, Say, hear};
pub use needed::{Dependent, can_be_undermined, still_needed, undermined};
pub use next::{Step, is_said, next, stage_held};
pub use reopen::{Reopen, ReopenError, Reopened, reopen};
pub use supersede::superseded;
pub use why::{Front, why, why_set};

#[derive(Clone, Debug, PartialEq)]
pub struct ChangeSet {
    pub id: ChangeSetId,
    pub request: Request,
    pub status: Status,
    pub created_at: jiff::Timestamp,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The id of the project: several may share a home.
    pub project: String,
    /// The machine whose processes carry it out; empty where a home is on one machine only. Nobody else can
    /// tell whether they are alive.
    #[serde(default)]
    pub machine: String,
    pub action: Action,
    pub stacks: Vec<StackName>,
    /// Who asked wants the outcome and has said yes beforehand.
    pub auto_approve: bool,
    /// Engines at once.
    pub parallelism: usize,
    /// The lanes it needs before it changes anything.
    pub lanes: Vec<String>,
    /// Digest of the snapshot, and the commit if it came from one.
    pub source: String,
    pub commit: Option<String>,
    /// The first line of that commit's message.
    #[serde(default)]
    pub subject: Option<String>,
    pub dirty: bool,
    /// Who asked, by name.
    #[serde(default)]
    pub asker: Option<String>,
    /// Keyed digest of what its runs take from whoever asked: values of the environment, files, secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_with: Option<String>,
    /// Its plans are kept when it is over, to be written into a bundle.
    #[serde(default)]
    pub keeps_plans: bool,
    /// The bundle whose plans it applies.
    #[serde(default)]
    pub bundle: Option<BundleOrigin>,
    /// Why what policies deny is applied all the same.
    #[serde(default)]
    pub policy_override: Option<String>,
    /// What is done past the usual rules after the apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exceptions: Option<Exceptions>,
    /// Who asked for it before it was resumed, or said yes with values of their own: they stay its authors.
    #[serde(default)]
    pub earlier_askers: Vec<String>,
    /// Opened again to go on with facts and gates of what was applied: nobody has said yes to a plan.
    #[serde(default)]
    pub goes_on_with_stages: bool,
    /// Those of its stacks of which no person is asked, as the project says (`apply = "auto"`).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unasked: BTreeSet<StackName>,
    #[serde(default)]
    pub origin: Origin,
    /// Who must agree, as the project said when it was asked for.
    #[serde(default)]
    pub approvals: Vec<Requirement>,
    /// What is known about who asked.
    #[serde(default)]
    pub identity: Option<Identity>,
    /// Which command of the engine's own, and why.
    #[serde(default)]
    pub exec: Option<Exec>,
    /// Of a destroy: who stands on its stacks and is no part of it.
    #[serde(default)]
    pub dependents: Vec<Dependent>,
}

impl Request {
    /// One run more than engines: while one ends, the next has begun, and its engine needs only to be started. One
    /// engine at a time means one run at a time.
    pub fn runs_at_once(&self) -> usize {
        match self.parallelism {
            alone @ 0..=1 => alone,
            several => several + 1,
        }
    }
}

/// Where the plans of a change set were made, if not by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleOrigin {
    /// Of the bundle: it is applied once.
    pub id: String,
    /// The change set that made the plans, in the home where it was made.
    pub planned_as: String,
    pub planned_by: Option<String>,
    pub planned_at: jiff::Timestamp,
}

/// What started a change set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum Origin {
    /// Somebody asked for it: it is never superseded.
    #[default]
    Person,
    Push {
        branch: String,
    },
}

/// What else a decision about a change set looks at.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// Those that are in force.
    pub holds: &'a [Hold],
    /// Those given for this change set or one of its runs.
    pub approvals: &'a [Approval],
    pub now: jiff::Timestamp,
}

impl Request {
    /// Whether somebody asked for it, now or before it was resumed, or started the job that did.
    pub fn is_author(&self, person: &str) -> bool {
        self.authors().any(|author| author == person)
    }

    pub fn authors(&self) -> impl Iterator<Item = &str> {
        let identity = self.identity.as_ref().map(Identity::author);
        let askers = self.asker.iter().chain(&self.earlier_askers);
        askers.map(String::as_str).chain(identity)
    }

    /// Whether it needs this lane, or one that excludes it: a target's own and those of its stacks (`target/stack`) do, for
    /// the project may have said otherwise when another change set was asked for.
    pub fn contends_for(&self, lane: &str) -> bool {
        let is_within = |inner: &str, outer: &str| {
            let rest = inner.strip_prefix(outer);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let mut lanes = self.lanes.iter();
        lanes.any(|own| is_within(own, lane) || is_within(lane, own))
    }

    /// A lane's name among those of all projects of a home.
    pub fn lane_key(&self, lane: &str) -> String {
        format!("{}/{lane}", self.project)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    Plan,
    Apply,
    Destroy,
    /// A command of the engine's own.
    Exec,
}

impl Action {
    pub fn word(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Apply => "apply",
            Self::Destroy => "destroy",
            Self::Exec => "exec",
        }
    }

    /// What is said of a run whose stages after it did not pass.
    pub fn not_done(self) -> &'static str {
        match self {
            Self::Destroy => "destroyed, not done",
            Self::Plan | Self::Apply | Self::Exec => "applied, not done",
        }
    }
}

/// Stored in `change_set.status`: variants are only added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Status {
    /// Plans are being made; nothing is held.
    Planning,
    /// Plans lie ready, a person is asked; nothing is held.
    AwaitingConfirm,
    /// Confirmed, and waits for its lanes.
    Waiting,
    /// Its lanes are held and its runs go on without a person.
    Confirmed,
    /// No new run starts; those under way were interrupted.
    Interrupting,
    Finished,
    /// Nothing goes on by itself; it can be resumed.
    Stopped {
        why: String,
    },
    /// A newer push took its place before it changed anything.
    Superseded {
        by: ChangeSetId,
    },
}

impl Status {
    pub fn holds_lanes(&self) -> bool {
        match self {
            Self::Confirmed | Self::Interrupting => true,
            Self::Planning
            | Self::AwaitingConfirm
            | Self::Waiting
            | Self::Finished
            | Self::Stopped { .. }
            | Self::Superseded { .. } => false,
        }
    }

    pub fn is_over(&self) -> bool {
        match self {
            Self::Finished | Self::Stopped { .. } | Self::Superseded { .. } => true,
            Self::Planning
            | Self::AwaitingConfirm
            | Self::Waiting
            | Self::Confirmed
            | Self::Interrupting => false,
        }
    }

    /// The word people see.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Planning => "planning",
            Self::AwaitingConfirm => "awaiting confirmation",
            Self::Waiting => "queued",
            Self::Confirmed => "applying",
            Self::Interrupting => "interrupting",
            Self::Finished => "finished",
            Self::Stopped { .. } => "stopped",
            Self::Superseded { .. } => "superseded",
        }
    }
}
