//! One stack's way through the pipeline: its states, and what an event does to them.
//!
//! Not here: which run may start when (`changeset`), storing and carrying out (`store`, `control`).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{ChangeSetId, RunId, StackName};
use crate::import_proposal::Left;
use crate::plan::PlanCounts;
use crate::policy::{Point, Remark, Requirement, Verdict};
use crate::project::Wait;

use confirmation::Reason;

mod advance;
mod came_after;
pub mod confirmation;
mod owed;
mod plan_record;
mod spec;

pub use advance::{Refusal, advance};
pub use came_after::came_after;
pub use owed::owes_hooks;
pub use plan_record::PlanRecord;
pub use spec::{DeclaredVariable, EnginePin, OutputState, RunSpec, Upstream};

#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub id: RunId,
    pub change_set: ChangeSetId,
    pub stack: StackName,
    pub state: RunState,
    pub upstreams: Vec<Upstream>,
    /// Nothing of its own differs from when its stack last ended well: it runs only if an upstream changes
    /// something that it consumes.
    pub is_settled: bool,
    /// The stages that follow its apply, in their order.
    pub stages: Vec<Stage>,
}

/// Where a run is. States carry their data; readers match without `_`.
///
/// Stored in `run.state`; old rows outlive old code, so variants and fields are only added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "snake_case")]
pub enum RunState {
    /// Waits for its upstreams or for a place among `-j`.
    Queued,
    Planning {
        since: Timestamp,
        /// Not empty: values it needs do not exist yet, so the plan is one to look at.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        awaits: Vec<Awaited>,
    },
    /// It was looked at as far as that goes, and is planned when its upstreams are applied.
    Deferred {
        on: Vec<Awaited>,
        preview: Preview,
    },
    /// A plan lies ready. `confirmed`: somebody who saw it, or said so beforehand, wants it applied.
    Planned {
        plan: PlanRecord,
        confirmed: bool,
    },
    Applying {
        plan: PlanRecord,
        since: Timestamp,
    },
    /// What its engine is there for is done; this stage after it is to begin. `outcome` is what the run ends
    /// with once all of them passed.
    Applied {
        outcome: Box<Outcome>,
        next: Stage,
        /// How often a runner was lost in it.
        #[serde(default)]
        lost: u8,
        /// Whether publishing changed anything, once it is over; not said in older records.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        published: Option<bool>,
    },
    /// In a stage after the apply: publishing, bootstrapping or verifying.
    Completing {
        part: Stage,
        outcome: Box<Outcome>,
        since: Timestamp,
        #[serde(default)]
        lost: u8,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        published: Option<bool>,
    },
    Finished {
        outcome: Outcome,
        at: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        published: Option<bool>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Outcome {
    /// Only a plan was asked for, and it has changes.
    Planned {
        plan: PlanRecord,
    },
    /// Only a plan was asked for, and it needs values that do not exist yet.
    Deferred {
        on: Vec<Awaited>,
        #[serde(default)]
        preview: Preview,
    },
    Unchanged,
    /// Nothing that it consumes changed, and nothing of its own: it was not even planned.
    Untouched,
    Applied {
        counts: PlanCounts,
        serial: Option<i64>,
        /// The outputs that differ from before.
        #[serde(default)]
        outputs: BTreeSet<String>,
        /// What policies warned of on the way.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<Remark>,
    },
    Failed {
        problem: Problem,
    },
    /// Applied is not done: a stage after it did not pass. A retry goes on there.
    NotDone {
        done: Box<Outcome>,
        problem: Problem,
    },
    Skipped {
        because: Skip,
    },
    /// The runner was lost while the engine was applying: what happened is not known.
    Unknown {
        kept: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        left: Option<Box<Left>>,
    },
}

/// An upstream value that is known only after the upstream was applied.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Awaited {
    pub stack: StackName,
    /// The outputs that will differ; none: the stack merely comes first.
    pub outputs: Vec<String>,
}

/// What could be seen of a plan that must wait. It is never applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "preview", rename_all = "snake_case")]
pub enum Preview {
    /// Nobody looked.
    #[default]
    None,
    Planned {
        plan: Box<PlanRecord>,
    },
    /// Whatever the values will be, nothing changes.
    Unchanged,
    /// The engine cannot plan without the values.
    Impossible {
        why: String,
    },
}

impl Preview {
    /// Those of its outputs that will, or may, differ.
    pub fn changing<'a>(&self, outputs: &'a BTreeSet<String>) -> Vec<&'a String> {
        let may = |name: &&String| match self {
            Self::Planned { plan } => plan.outputs.contains(*name),
            Self::Unchanged => false,
            Self::None | Self::Impossible { .. } => true,
        };
        outputs.iter().filter(may).collect()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Skip {
    /// An upstream did not end well. `through` is the nearest one, if it is another.
    Poisoned {
        by: StackName,
        through: Option<StackName>,
    },
    /// Nobody said yes.
    NotConfirmed,
    /// The change set was interrupted before this run began.
    Interrupted,
    /// The change set was stopped before this run began: nobody went on with it.
    Abandoned,
    /// It was to be destroyed, and something that stands on it was applied meanwhile.
    StillNeeded { by: StackName },
    /// It was to be applied, and what it stands on is being destroyed.
    Undermined { on: StackName, by: ChangeSetId },
}

/// Why a stage failed, as far as a person needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    pub stage: Stage,
    /// What of the stage it was, if that has a word of its own: `draining`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub during: Option<String>,
    pub message: String,
    /// What the engine reported.
    #[serde(default)]
    pub diagnostics: Vec<EngineDiagnostic>,
    /// The state that was kept, with the changes made before the failure.
    #[serde(default)]
    pub serial: Option<i64>,
    #[serde(default)]
    pub hint: Option<String>,
    /// Whether a rule refused it, rather than something breaking: exit 4.
    #[serde(default)]
    pub refused: bool,
    #[serde(default)]
    pub interrupted: bool,
    /// What policies said, if that is why.
    #[serde(default)]
    pub policy: Verdict,
    /// What an engine that died had done, and no state knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Box<Left>>,
    /// What a stage after the apply had seen and done until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<Box<Value>>,
}

impl Problem {
    /// Why, on one line: what the engine reported first, else what we say.
    pub fn brief(&self) -> &str {
        let is_ours = self.interrupted || self.was_stopped();
        let first = self.diagnostics.first().filter(|_| !is_ours);
        let words = first.map_or(&self.message, |first| &first.summary);
        words.lines().next().unwrap_or_default()
    }

    /// Whether our words say who or what stopped it, which the engine cannot know.
    pub fn was_stopped(&self) -> bool {
        let who = ["the time limit", "cancelled by", "killed by"];
        who.iter().any(|words| self.message.contains(words))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineDiagnostic {
    pub severity: String,
    pub summary: String,
    #[serde(default)]
    pub detail: String,
    #[serde(default)]
    pub address: Option<String>,
    #[serde(default)]
    pub file: Option<String>,
    #[serde(default)]
    pub line: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    Preparing,
    Planning,
    Applying,
    Publishing,
    Bootstrapping,
    Verifying,
}

impl Stage {
    pub const ALL: [Self; 6] = [
        Self::Preparing,
        Self::Planning,
        Self::Applying,
        Self::Publishing,
        Self::Bootstrapping,
        Self::Verifying,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Self::Preparing => "preparing",
            Self::Planning => "planning",
            Self::Applying => "applying",
            Self::Publishing => "publishing",
            Self::Bootstrapping => "bootstrapping",
            Self::Verifying => "verifying",
        }
    }

    /// What is done in it once the engine has done its part.
    pub fn part_word(self) -> &'static str {
        match self {
            Self::Applying => "hooks after applying",
            Self::Preparing
            | Self::Planning
            | Self::Publishing
            | Self::Bootstrapping
            | Self::Verifying => self.word(),
        }
    }
}

impl Problem {
    pub fn new(stage: Stage, message: impl Into<String>) -> Self {
        Self {
            stage,
            during: None,
            message: message.into(),
            diagnostics: Vec::new(),
            serial: None,
            hint: None,
            refused: false,
            interrupted: false,
            policy: Verdict::default(),
            left: None,
            report: None,
        }
    }
}

impl Problem {
    /// What was going on, in a word.
    pub fn word(&self) -> &str {
        self.during.as_deref().unwrap_or_else(|| self.stage.word())
    }

    /// Whether its stage may be tried again as it is, rather than after a fresh plan.
    pub fn can_go_on(&self) -> bool {
        !self.refused
    }
}

/// What happened to a run. Stored in `run_event.body`: variants are only added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RunEvent {
    PlanStarted,
    /// A plan to look at, since values it needs do not exist yet.
    PreviewStarted {
        on: Vec<Awaited>,
    },
    /// How far that went. `on` is what was not known.
    Previewed {
        on: Vec<Awaited>,
        preview: Preview,
        /// Only a plan was asked for.
        review: bool,
        /// What is new since people agreed to an earlier plan.
        #[serde(rename = "novelties", default, skip_serializing_if = "Vec::is_empty")]
        new: Vec<String>,
    },
    NothingToChange {
        /// Keyed digest of the values it takes from other stacks.
        #[serde(default)]
        consumed: Option<String>,
        /// As in [`PlanRecord`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        came_after: Option<BTreeMap<String, String>>,
        /// The state it was planned from.
        #[serde(default)]
        serial: Option<i64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lineage: Option<String>,
        /// The stage that comes now, if one does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        then: Option<Stage>,
    },
    NothingConsumed {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        then: Option<Stage>,
    },
    PlanFinished {
        plan: PlanRecord,
        /// Whether it may be applied without another look.
        confirmed: bool,
        /// Only a plan was asked for.
        review: bool,
        /// Why a person is asked, if one is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Reason>,
        /// Whether it is equal to the plan that people agreed to; none if they agreed to none.
        #[serde(rename = "fits", default)]
        is_equal: Option<bool>,
        /// What is new since they agreed to an earlier plan.
        #[serde(rename = "novelties", default)]
        new: Vec<String>,
    },
    Deferred {
        on: Vec<Awaited>,
    },
    /// Policies were asked about its plan again, and said something, or something else than before.
    PolicyAsked {
        at: Point,
        /// Who approved or confirmed it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        said: Verdict,
    },
    Confirmed,
    ApplyStarted,
    /// The plan may no longer be applied and is made afresh.
    PlanVoided {
        why: String,
    },
    /// Policies want approvals of a yes that nobody knew of: nothing was begun, and it waits for them.
    ApplyPutOff {
        said: Verdict,
    },
    ApplyFinished {
        counts: PlanCounts,
        /// The state that it left.
        serial: Option<i64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lineage: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        then: Option<Stage>,
    },
    /// A stage after the apply began.
    StageStarted {
        part: Stage,
    },
    /// And passed: what was seen and done is kept for people.
    StageFinished {
        part: Stage,
        report: Value,
        /// Whether it changed anything, where that can be told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        changed: Option<bool>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        then: Option<Stage>,
    },
    Failed {
        problem: Problem,
    },
    Skipped {
        because: Skip,
    },
    /// Its process is known to be gone; a plan simply starts again.
    RunnerLost {
        kept: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        left: Option<Box<Left>>,
    },
    /// Somebody wants it to end; what comes of that is another event.
    CancelAsked {
        by: String,
        #[serde(default)]
        reason: Option<String>,
        /// Its engine was killed.
        #[serde(default)]
        kill: bool,
    },
    /// Tried again, or resumed, after it did not end well; or because it moved since.
    Reopened {
        /// Its source or its state, or what it stands on, moved since: it is planned afresh, however far it had come.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        moved: bool,
    },
}

impl RunState {
    /// Whether publishing changed anything; none if it is not over, or was never said.
    pub fn published(&self) -> Option<bool> {
        match self {
            Self::Applied { published, .. }
            | Self::Completing { published, .. }
            | Self::Finished { published, .. } => *published,
            Self::Queued
            | Self::Planning { .. }
            | Self::Deferred { .. }
            | Self::Planned { .. }
            | Self::Applying { .. } => None,
        }
    }

    /// Whether it ended with everything as its source says; what follows an apply may have failed.
    pub fn is_reached(&self) -> bool {
        match self {
            Self::Finished { outcome, .. } => match outcome {
                Outcome::Applied { .. }
                | Outcome::Unchanged
                | Outcome::Untouched
                | Outcome::NotDone { .. } => true,
                Outcome::Planned { .. }
                | Outcome::Deferred { .. }
                | Outcome::Failed { .. }
                | Outcome::Skipped { .. }
                | Outcome::Unknown { .. } => false,
            },
            Self::Queued
            | Self::Planning { .. }
            | Self::Deferred { .. }
            | Self::Planned { .. }
            | Self::Applying { .. }
            | Self::Applied { .. }
            | Self::Completing { .. } => false,
        }
    }

    pub fn is_finished(&self) -> bool {
        match self {
            Self::Finished { .. } => true,
            Self::Queued
            | Self::Planning { .. }
            | Self::Deferred { .. }
            | Self::Planned { .. }
            | Self::Applying { .. }
            | Self::Applied { .. }
            | Self::Completing { .. } => false,
        }
    }

    /// Whether only stages after its apply are left: one of them did not pass.
    pub fn is_not_done(&self) -> bool {
        matches!(
            self.outcome_for(Wait::Verified),
            Some(Outcome::NotDone { .. })
        )
    }

    /// Whether it was left alone: nothing of it changed, nor anything that it consumes.
    pub fn is_untouched(&self) -> bool {
        matches!(self.outcome_for(Wait::Verified), Some(Outcome::Untouched))
    }

    /// Whether its engine has done its part, whatever became of the stages after it.
    pub fn is_applied(&self) -> bool {
        match self {
            Self::Applied { .. } | Self::Completing { .. } => true,
            Self::Finished { outcome, .. } => match outcome {
                Outcome::Applied { .. } | Outcome::NotDone { .. } => true,
                Outcome::Planned { .. }
                | Outcome::Deferred { .. }
                | Outcome::Unchanged
                | Outcome::Untouched
                | Outcome::Failed { .. }
                | Outcome::Skipped { .. }
                | Outcome::Unknown { .. } => false,
            },
            Self::Queued
            | Self::Planning { .. }
            | Self::Deferred { .. }
            | Self::Planned { .. }
            | Self::Applying { .. } => false,
        }
    }

    /// Whether a process is at work for it right now, or should be.
    pub fn is_running(&self) -> bool {
        match self {
            Self::Planning { .. } | Self::Applying { .. } | Self::Completing { .. } => true,
            Self::Queued
            | Self::Deferred { .. }
            | Self::Planned { .. }
            | Self::Applied { .. }
            | Self::Finished { .. } => false,
        }
    }

    /// Whether that process is an engine, or calls one.
    pub fn uses_engine(&self) -> bool {
        matches!(self, Self::Planning { .. } | Self::Applying { .. })
    }

    /// The outcome that dependents go by. While stages after an apply are to come, or if one did not
    /// pass, only those have one that do not wait for them.
    pub fn outcome_for(&self, wait: Wait) -> Option<&Outcome> {
        match (self, wait) {
            (
                Self::Finished {
                    outcome: Outcome::NotDone { done, .. },
                    ..
                },
                Wait::Applied,
            ) => Some(done),
            (Self::Finished { outcome, .. }, _) => Some(outcome),
            (Self::Applied { outcome, .. } | Self::Completing { outcome, .. }, Wait::Applied) => {
                Some(outcome)
            }
            (
                Self::Queued
                | Self::Planning { .. }
                | Self::Deferred { .. }
                | Self::Planned { .. }
                | Self::Applying { .. }
                | Self::Applied { .. }
                | Self::Completing { .. },
                _,
            ) => None,
        }
    }

    /// What policies said of its plan, or of one that they denied.
    pub fn policy(&self) -> Option<Verdict> {
        match self {
            Self::Planned { plan, .. } | Self::Applying { plan, .. } => Some(plan.verdict()),
            Self::Finished { outcome, .. } => match outcome {
                Outcome::Planned { plan } => Some(plan.verdict()),
                Outcome::Failed { problem } => Some(problem.policy.clone()),
                Outcome::NotDone { .. }
                | Outcome::Deferred { .. }
                | Outcome::Unchanged
                | Outcome::Untouched
                | Outcome::Applied { .. }
                | Outcome::Skipped { .. }
                | Outcome::Unknown { .. } => None,
            },
            Self::Queued
            | Self::Planning { .. }
            | Self::Deferred { .. }
            | Self::Applied { .. }
            | Self::Completing { .. } => None,
        }
    }

    /// What policies said of what could be seen of its plan, while that has to wait.
    pub fn foreseen(&self) -> Option<&Verdict> {
        match self {
            Self::Deferred { preview, .. }
            | Self::Finished {
                outcome: Outcome::Deferred { preview, .. },
                ..
            } => match preview {
                Preview::Planned { plan } => Some(&plan.policy),
                Preview::None | Preview::Unchanged | Preview::Impossible { .. } => None,
            },
            Self::Queued
            | Self::Planning { .. }
            | Self::Planned { .. }
            | Self::Applying { .. }
            | Self::Applied { .. }
            | Self::Completing { .. }
            | Self::Finished { .. } => None,
        }
    }

    /// What policies warned of, as far as it came.
    pub fn warnings(&self) -> Vec<Remark> {
        match self {
            Self::Planned { plan, .. } | Self::Applying { plan, .. } => plan.warnings(),
            Self::Applied { outcome, .. } | Self::Completing { outcome, .. } => outcome.warnings(),
            Self::Finished { outcome, .. } => outcome.warnings(),
            Self::Queued | Self::Planning { .. } | Self::Deferred { .. } => Vec::new(),
        }
    }

    /// The approvals that policies want for the plan that lies ready.
    pub fn wanted(&self) -> Vec<&Requirement> {
        match self {
            Self::Planned { plan, .. } => plan.wanted().collect(),
            Self::Queued
            | Self::Planning { .. }
            | Self::Deferred { .. }
            | Self::Applying { .. }
            | Self::Applied { .. }
            | Self::Completing { .. }
            | Self::Finished { .. } => Vec::new(),
        }
    }

    /// What policies denied when somebody last said yes to its plan.
    pub fn denied_yes(&self) -> Option<&Remark> {
        match self {
            Self::Planned { plan, .. } => {
                let said = plan.policy_since.get(&Point::Approval)?;
                said.denials.first()
            }
            Self::Queued
            | Self::Planning { .. }
            | Self::Deferred { .. }
            | Self::Applying { .. }
            | Self::Applied { .. }
            | Self::Completing { .. }
            | Self::Finished { .. } => None,
        }
    }

    /// The approvals that policies wanted when they refused its apply.
    pub fn refused_for(&self) -> &[Requirement] {
        match self {
            Self::Finished {
                outcome: Outcome::Failed { problem },
                ..
            } if problem.refused && problem.stage == Stage::Applying => &problem.policy.approvals,
            Self::Finished { .. }
            | Self::Queued
            | Self::Planning { .. }
            | Self::Planned { .. }
            | Self::Applying { .. }
            | Self::Deferred { .. }
            | Self::Applied { .. }
            | Self::Completing { .. } => &[],
        }
    }

    /// The word people see.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Planning { .. } => "planning",
            Self::Deferred { .. } => "deferred",
            Self::Planned { .. } => "planned",
            Self::Applying { .. } => "applying",
            Self::Applied { outcome, .. } => outcome.word(),
            Self::Completing { part, .. } => part.word(),
            Self::Finished { outcome, .. } => outcome.word(),
        }
    }
}

impl Skip {
    pub fn words(&self) -> String {
        match self {
            Self::Poisoned { by, through: None } => format!("poisoned by `{by}`"),
            Self::Poisoned {
                by,
                through: Some(through),
            } => format!("poisoned by `{by}` through `{through}`"),
            Self::NotConfirmed => "nobody said yes".to_owned(),
            Self::Interrupted => "interrupted before it began".to_owned(),
            Self::Abandoned => "nobody went on with it".to_owned(),
            Self::StillNeeded { by } => {
                format!("`{by}` stands on it, and was applied meanwhile")
            }
            Self::Undermined { on, by } => {
                format!("it stands on `{on}`, which change set {by} is destroying")
            }
        }
    }
}

impl Outcome {
    /// What policies warned of.
    fn warnings(&self) -> Vec<Remark> {
        match self {
            Self::Planned { plan } => plan.warnings(),
            Self::Applied { warnings, .. } => warnings.clone(),
            Self::Failed { problem } => problem.policy.warnings.clone(),
            Self::NotDone { done, .. } => done.warnings(),
            Self::Deferred { .. }
            | Self::Unchanged
            | Self::Untouched
            | Self::Skipped { .. }
            | Self::Unknown { .. } => Vec::new(),
        }
    }

    /// Whether dependents may go on.
    pub fn is_good(&self) -> bool {
        match self {
            Self::Planned { .. }
            | Self::Deferred { .. }
            | Self::Unchanged
            | Self::Untouched
            | Self::Applied { .. } => true,
            Self::Failed { .. }
            | Self::NotDone { .. }
            | Self::Skipped { .. }
            | Self::Unknown { .. } => false,
        }
    }

    pub fn word(&self) -> &'static str {
        match self {
            Self::Planned { .. } => "planned",
            Self::Deferred { .. } => "deferred",
            Self::Unchanged => "unchanged",
            Self::Untouched => "untouched",
            Self::Applied { .. } => "applied",
            Self::Failed { .. } => "failed",
            Self::NotDone { problem, .. } => match problem.stage {
                Stage::Publishing => "not published",
                Stage::Bootstrapping => "not bootstrapped",
                // A hook after the apply did not end well.
                Stage::Applying => "not done",
                Stage::Preparing | Stage::Planning | Stage::Verifying => "not verified",
            },
            Self::Skipped { .. } => "skipped",
            Self::Unknown { .. } => "unknown",
        }
    }
}
