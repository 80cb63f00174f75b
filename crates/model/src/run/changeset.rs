//! One request, with the part of the graph that it affects.
//!
//! Not here: a single stack's run (`run`), storage (`store::run::change_sets`), starting runners (`control`).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::base::actor::Actor;
use crate::base::ids::{ChangeSetId, StackName};
use crate::project::identity::Identity;
use crate::run::approval::{Approval, ApprovalRequirement};
use crate::run::exception::Exceptions;
use crate::run::exec::Exec;
use crate::run::hold::Hold;

mod advance;
mod command;
mod destroy_conflicts;
mod next;
mod reopen;
mod supersede;
mod wait_reason;

pub use advance::{InvalidSetEvent, SetEvent, advance};
pub use command::{UserCommand, UserCommandError, apply_command};
pub use destroy_conflicts::{Dependent, can_be_undermined, still_needed, undermined};
pub use next::{Transition, is_said, next, stage_held};
pub use reopen::{Reopen, ReopenError, ReopenedRun, reopen};
pub use supersede::superseded;
pub use wait_reason::{LaneBlocker, why, why_set};

#[derive(Clone, Debug, PartialEq)]
pub struct ChangeSet {
    pub id: ChangeSetId,
    pub request: Request,
    pub status: Status,
    pub created_at: jiff::Timestamp,
}

/// What was requested. It is stored as one document, so a group of fields would change the stored form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The project's id: several projects may share a home.
    pub project: String,
    /// The machine whose processes execute it. Empty if the home is used by one machine only. Only that
    /// machine can check whether the processes are alive.
    #[serde(default)]
    pub machine: String,
    pub action: Action,
    pub stacks: Vec<StackName>,
    /// The requester confirmed all plans in advance (`--auto-approve`).
    pub auto_approve: bool,
    /// The number of engines that may run in parallel.
    pub parallelism: usize,
    /// The lanes that it needs before it changes anything.
    pub lanes: Vec<String>,
    /// Digest of the snapshot, and its commit, if it has one.
    pub source: String,
    pub commit: Option<String>,
    /// The first line of the commit message.
    #[serde(default)]
    pub subject: Option<String>,
    pub dirty: bool,
    /// The requester's name.
    #[serde(default)]
    pub asker: Option<Actor>,
    /// Keyed digest of what its runs take from the requester: environment values, files, secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_with: Option<String>,
    /// Its plans are kept afterwards, so that they can be written into a bundle.
    #[serde(default)]
    pub keeps_plans: bool,
    /// The bundle whose plans it applies.
    #[serde(default)]
    pub bundle: Option<BundleOrigin>,
    /// Why the change set is applied in spite of policy denials.
    #[serde(default)]
    pub policy_override: Option<String>,
    /// Exceptions to the usual rules after the apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exceptions: Option<Exceptions>,
    /// Earlier requesters, from before a resume, and people who confirmed it with values of their own. They all count
    /// as authors.
    #[serde(default)]
    pub earlier_askers: Vec<Actor>,
    /// Reopened to continue with facts and gates of applied stacks. No plan has been confirmed.
    #[serde(default)]
    pub goes_on_with_stages: bool,
    /// Stacks that need no confirmation, according to the project (`apply = "auto"`).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unasked: BTreeSet<StackName>,
    #[serde(default)]
    pub origin: Trigger,
    /// The required approvals, as configured when the change set was requested.
    #[serde(default)]
    pub approvals: Vec<ApprovalRequirement>,
    /// What is known about the requester's identity.
    #[serde(default)]
    pub identity: Option<Identity>,
    /// The engine command to run, and the reason for it.
    #[serde(default)]
    pub exec: Option<Exec>,
    /// For a destroy: dependents of its stacks outside the change set.
    #[serde(default)]
    pub dependents: Vec<Dependent>,
}

impl Request {
    /// One run more than engines: while one run ends, the next one prepares, so that only its engine has to start. With
    /// one engine, only one run at a time.
    pub fn runs_at_once(&self) -> usize {
        match self.parallelism {
            alone @ 0..=1 => alone,
            several => several + 1,
        }
    }
}

/// The origin of the plans, if the change set did not make them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleOrigin {
    /// The bundle's id: a bundle is applied only once.
    pub id: String,
    /// The change set that made the plans, in its original home.
    pub planned_as: String,
    pub planned_by: Option<Actor>,
    pub planned_at: jiff::Timestamp,
}

/// What triggered a change set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum Trigger {
    /// A person requested it. It is never superseded.
    #[default]
    Person,
    Push {
        branch: String,
    },
}

/// The other inputs of a decision about a change set.
#[derive(Clone, Copy, Debug)]
pub struct DecisionContext<'a> {
    /// The active holds.
    pub holds: &'a [Hold],
    /// The approvals given for this change set or one of its runs.
    pub approvals: &'a [Approval],
    pub now: jiff::Timestamp,
}

impl Request {
    /// Whether the person requested the change set, now or before a resume, or started the job that did.
    pub fn is_author(&self, person: &str) -> bool {
        self.authors().any(|author| author == person)
    }

    pub fn authors(&self) -> impl Iterator<Item = &str> {
        let identity = self.identity.as_ref().map(Identity::author);
        let askers = self.asker.iter().chain(&self.earlier_askers);
        askers.map(|asker| asker.name.as_str()).chain(identity)
    }

    /// The requester.
    pub fn actor(&self) -> Actor {
        self.asker.clone().unwrap_or_default()
    }

    /// Like [`Self::authors`], with what is known about them.
    pub fn author_actors(&self) -> Vec<Actor> {
        let identity = self.identity.as_ref().map(Identity::author);
        let askers = self.asker.iter().chain(&self.earlier_askers);
        askers.cloned().chain(identity.map(Actor::named)).collect()
    }

    /// Whether it needs this lane or one that excludes it. A target's lane and its stacks' lanes (`target/stack`)
    /// exclude each other, because the project's configuration may have changed between change sets.
    pub fn contends_for(&self, lane: &str) -> bool {
        let is_within = |inner: &str, outer: &str| {
            let rest = inner.strip_prefix(outer);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let mut lanes = self.lanes.iter();
        lanes.any(|own| is_within(own, lane) || is_within(lane, own))
    }

    /// The lane's name, unique among all projects of a home.
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
    /// An engine command.
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

    /// The text for a run of which a post-apply stage failed.
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
    /// Plans are being made. No lane is held.
    Planning,
    /// Plans are ready and wait for a confirmation. No lane is held.
    AwaitingConfirm,
    /// Confirmed; waits for its lanes.
    Waiting,
    /// Its lanes are held, and its runs continue without a person.
    Confirmed,
    /// No new run starts. Active runs were interrupted.
    Interrupting,
    Finished,
    /// It does not continue on its own, but can be resumed.
    Stopped {
        why: String,
    },
    /// A newer push replaced it before it changed anything.
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

    /// The word shown to people.
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
