//! The state machine of one stack's run: its states and the events that change them.
//!
//! Beside it: change sets (`changeset`), seals, previews, approvals, holds, bundles, and what the engine reports.
//! Not here: storing and executing runs (`store`, `control`).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::base::actor::Actor;
use crate::base::ids::{ChangeSetId, RunId, StackName};
use crate::plan::PlanCounts;
use crate::policy::{PolicyPhase, Remark, RequiredApproval, Verdict};
use crate::project::WaitFor;
use crate::run::import_proposal::UnrecordedResources;

use confirmation::ConfirmationReason;

mod advance;
pub mod approval;
pub mod bundle;
pub mod changeset;
pub mod confirmation;
pub mod engine_event;
pub mod exception;
pub mod exec;
pub mod hold;
pub mod import_proposal;
mod order_deps;
mod pending_hooks;
mod plan_record;
pub mod preview;
pub mod reference;
pub mod seal;
mod spec;

pub use crate::stage::Stage;
pub use advance::{InvalidRunEvent, advance};
pub use order_deps::came_after;
pub use pending_hooks::owes_hooks;
pub use plan_record::PlanRecord;
pub use spec::{DeclaredVariable, EnginePin, OutputState, RunSpec, Upstream};

#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub id: RunId,
    pub change_set: ChangeSetId,
    pub stack: StackName,
    pub state: RunState,
    pub upstreams: Vec<Upstream>,
    /// Nothing of the stack's own changed since its last successful run. It runs only if an upstream changes something
    /// that it consumes.
    pub is_settled: bool,
    /// The stages that follow the apply, in order.
    pub stages: Vec<Stage>,
}

/// The current state of a run. States carry their data; match on them without `_`.
///
/// Stored in `run.state`. Rows outlive the code that wrote them, so variants and fields are only added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "snake_case")]
pub enum RunState {
    /// Waits for its upstreams or for a free slot (`-j`).
    Queued,
    Planning {
        since: Timestamp,
        /// Not empty: some required values do not exist yet, so this plan is only a preview.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        awaits: Vec<AwaitedOutputs>,
    },
    /// Previewed as far as possible. The real plan is made after its upstreams are applied.
    Deferred {
        on: Vec<AwaitedOutputs>,
        preview: Preview,
    },
    /// The plan is ready. `confirmed`: a person confirmed it, or it needs no confirmation.
    Planned {
        plan: PlanRecord,
        confirmed: bool,
    },
    Applying {
        plan: PlanRecord,
        since: Timestamp,
    },
    /// The engine is done, and `next` is the following stage. `outcome` is the run's outcome once all stages have
    /// passed.
    Applied {
        outcome: Box<Outcome>,
        next: Stage,
        /// How often a runner was lost in this stage.
        #[serde(default)]
        lost: u8,
        /// Whether publishing changed anything. None if publishing is not over, or in older records.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        published: Option<bool>,
    },
    /// Executing a stage after the apply: publishing, bootstrapping or verifying.
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
    /// Only a plan was requested, and it has changes.
    Planned {
        plan: PlanRecord,
    },
    /// Only a plan was requested, and it needs values that do not exist yet.
    Deferred {
        on: Vec<AwaitedOutputs>,
        #[serde(default)]
        preview: Preview,
    },
    Unchanged,
    /// Neither the stack nor anything that it consumes changed, so it was not planned.
    Untouched,
    Applied {
        counts: PlanCounts,
        serial: Option<i64>,
        /// The outputs that changed.
        #[serde(default)]
        outputs: BTreeSet<String>,
        /// The warnings of policies.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<Remark>,
    },
    Failed {
        problem: RunProblem,
    },
    /// The apply succeeded, but a later stage failed. A retry continues with that stage.
    NotDone {
        done: Box<Outcome>,
        problem: RunProblem,
    },
    Skipped {
        because: SkipReason,
    },
    /// The runner was lost during the apply, so the result is unknown.
    Unknown {
        kept: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        left: Option<Box<UnrecordedResources>>,
    },
}

/// An upstream value that is known only after the upstream is applied.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AwaitedOutputs {
    pub stack: StackName,
    /// The outputs that will change. Empty if the stack only has to come first.
    pub outputs: Vec<String>,
}

/// The preview of a plan that has to wait. It is never applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "preview", rename_all = "snake_case")]
pub enum Preview {
    /// There is no preview.
    #[default]
    None,
    Planned {
        plan: Box<PlanRecord>,
    },
    /// Nothing changes, whatever the values are.
    Unchanged,
    /// The engine cannot plan without the values.
    Impossible {
        why: String,
    },
}

impl Preview {
    /// Those of the given outputs that will or may change.
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
pub enum SkipReason {
    /// An upstream failed. `through` is the nearest upstream, if that is not the failed one.
    #[serde(rename = "poisoned")]
    UpstreamFailed {
        by: StackName,
        through: Option<StackName>,
    },
    /// The plan was not confirmed.
    NotConfirmed,
    /// The change set was interrupted before this run started.
    Interrupted,
    /// The change set was abandoned before this run started.
    Abandoned,
    /// The stack was to be destroyed, but a dependent was applied in the meantime.
    StillNeeded { by: StackName },
    /// The stack was to be applied, but a dependency is being destroyed.
    Undermined { on: StackName, by: ChangeSetId },
}

/// Why a stage failed, with the details that a person needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunProblem {
    pub stage: Stage,
    /// The part of the stage that failed, if it has a name of its own: `draining`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub during: Option<String>,
    pub message: String,
    /// What the engine reported.
    #[serde(default)]
    pub diagnostics: Vec<EngineDiagnostic>,
    /// The serial of the stored state, which includes the changes made before the failure.
    #[serde(default)]
    pub serial: Option<i64>,
    #[serde(default)]
    pub hint: Option<String>,
    /// A rule refused the run (exit 4), as opposed to a failure.
    #[serde(default)]
    pub refused: bool,
    #[serde(default)]
    pub interrupted: bool,
    /// The policy verdict, if a policy is the reason.
    #[serde(default)]
    pub policy: Verdict,
    /// Resources that a dead engine changed and that no state records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Box<UnrecordedResources>>,
    /// What a stage after the apply had checked and done before it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<Box<Value>>,
}

impl RunProblem {
    /// The reason in one line: the engine's first diagnostic, or else terrane's message.
    pub fn brief(&self) -> &str {
        let is_ours = self.interrupted || self.was_stopped();
        let first = self.diagnostics.first().filter(|_| !is_ours);
        let words = first.map_or(&self.message, |first| &first.summary);
        words.lines().next().unwrap_or_default()
    }

    /// Whether the message states who or what stopped the run, which the engine cannot know.
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

impl RunProblem {
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

impl RunProblem {
    /// The name of what was in progress.
    pub fn word(&self) -> &str {
        self.during.as_deref().unwrap_or_else(|| self.stage.word())
    }

    /// Whether the stage can be retried without a new plan.
    pub fn can_go_on(&self) -> bool {
        !self.refused
    }
}

/// An event of a run. Stored in `run_event.body`: variants are only added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RunEvent {
    PlanStarted,
    /// A preview started, because some required values do not exist yet.
    PreviewStarted {
        on: Vec<AwaitedOutputs>,
    },
    /// The preview ended. `on` lists the unknown values.
    Previewed {
        on: Vec<AwaitedOutputs>,
        preview: Preview,
        /// Only a plan was requested.
        review: bool,
        /// What is new compared with the plan that people agreed to.
        #[serde(rename = "novelties", default, skip_serializing_if = "Vec::is_empty")]
        new: Vec<String>,
    },
    NothingToChange {
        /// Keyed digest of the values that the plan takes from other stacks.
        #[serde(default)]
        consumed: Option<String>,
        /// As in [`PlanRecord`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        came_after: Option<BTreeMap<String, String>>,
        /// The serial of the state that the plan was made from.
        #[serde(default)]
        serial: Option<i64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lineage: Option<String>,
        /// The next stage, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        then: Option<Stage>,
    },
    NothingConsumed {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        then: Option<Stage>,
    },
    PlanFinished {
        plan: PlanRecord,
        /// Whether the plan may be applied without another confirmation.
        confirmed: bool,
        /// Only a plan was requested.
        review: bool,
        /// Why a person has to confirm, if one has to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<ConfirmationReason>,
        /// Whether the plan equals the one that people agreed to. None if they agreed to none.
        #[serde(rename = "fits", default)]
        is_equal: Option<bool>,
        /// What is new compared with the plan that people agreed to.
        #[serde(rename = "novelties", default)]
        new: Vec<String>,
    },
    Deferred {
        on: Vec<AwaitedOutputs>,
    },
    /// The policies were evaluated again for the plan, and the verdict is new.
    PolicyAsked {
        at: PolicyPhase,
        /// The person who approved or confirmed the plan.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Actor>,
        said: Verdict,
    },
    Confirmed,
    ApplyStarted,
    /// The plan is no longer valid and is made again.
    PlanVoided {
        why: String,
    },
    /// Policies require approvals that were unknown at confirmation. Nothing was started; the run waits for them.
    ApplyPutOff {
        said: Verdict,
    },
    ApplyFinished {
        counts: PlanCounts,
        /// The serial of the resulting state.
        serial: Option<i64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lineage: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        then: Option<Stage>,
    },
    /// A stage after the apply started.
    StageStarted {
        part: Stage,
    },
    /// The stage passed. The report is stored for people.
    StageFinished {
        part: Stage,
        report: Value,
        /// Whether the stage changed anything, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        changed: Option<bool>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        then: Option<Stage>,
    },
    Failed {
        problem: RunProblem,
    },
    Skipped {
        because: SkipReason,
    },
    /// The runner process is gone. A plan simply starts again.
    RunnerLost {
        kept: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        left: Option<Box<UnrecordedResources>>,
    },
    /// A person requested cancellation. The result is a separate event.
    CancelAsked {
        by: Actor,
        #[serde(default)]
        reason: Option<String>,
        /// The engine was killed.
        #[serde(default)]
        kill: bool,
    },
    /// The run was retried or resumed after a failure, or because something it was planned from changed.
    Reopened {
        /// The source, the state or a dependency changed since, so the run is planned again from the start.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        moved: bool,
    },
}

impl RunState {
    /// Whether publishing changed anything. None if it is not over or was not recorded.
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

    /// Whether the resources match the source. A stage after the apply may still have failed.
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

    /// Whether only stages after the apply are left because one of them failed.
    pub fn is_not_done(&self) -> bool {
        matches!(
            self.outcome_for(WaitFor::Verified),
            Some(Outcome::NotDone { .. })
        )
    }

    /// Whether the run was left out because neither the stack nor anything that it consumes changed.
    pub fn is_untouched(&self) -> bool {
        matches!(
            self.outcome_for(WaitFor::Verified),
            Some(Outcome::Untouched)
        )
    }

    /// Whether the engine has finished, whatever happened to later stages.
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

    /// Whether a process is working on the run now, or should be.
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

    /// Whether that process is an engine or starts one.
    pub fn uses_engine(&self) -> bool {
        matches!(self, Self::Planning { .. } | Self::Applying { .. })
    }

    /// The outcome as dependents see it. Dependents that only wait for the apply see its outcome while later stages are
    /// pending, and after one of them failed.
    pub fn outcome_for(&self, wait: WaitFor) -> Option<&Outcome> {
        match (self, wait) {
            (
                Self::Finished {
                    outcome: Outcome::NotDone { done, .. },
                    ..
                },
                WaitFor::Applied,
            ) => Some(done),
            (Self::Finished { outcome, .. }, _) => Some(outcome),
            (
                Self::Applied { outcome, .. } | Self::Completing { outcome, .. },
                WaitFor::Applied,
            ) => Some(outcome),
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

    /// The policy verdict on the plan, or on a plan that was denied.
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

    /// The policy verdict on the preview of a plan that has to wait.
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

    /// The policy warnings so far.
    pub fn warnings(&self) -> Vec<Remark> {
        match self {
            Self::Planned { plan, .. } | Self::Applying { plan, .. } => plan.warnings(),
            Self::Applied { outcome, .. } | Self::Completing { outcome, .. } => outcome.warnings(),
            Self::Finished { outcome, .. } => outcome.warnings(),
            Self::Queued | Self::Planning { .. } | Self::Deferred { .. } => Vec::new(),
        }
    }

    /// The approvals that policies require for the plan that is ready.
    pub fn wanted(&self) -> Vec<&RequiredApproval> {
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

    /// What policies denied at the last attempt to confirm the plan.
    pub fn denied_yes(&self) -> Option<&Remark> {
        match self {
            Self::Planned { plan, .. } => {
                let said = plan.policy_since.get(&PolicyPhase::Approval)?;
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

    /// The approvals that policies required when they refused the apply.
    pub fn refused_for(&self) -> &[RequiredApproval] {
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

    /// The word shown to people.
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

impl SkipReason {
    pub fn words(&self) -> String {
        match self {
            Self::UpstreamFailed { by, through: None } => format!("`{by}` did not succeed"),
            Self::UpstreamFailed {
                by,
                through: Some(through),
            } => format!("`{by}` did not succeed (through `{through}`)"),
            Self::NotConfirmed => "not confirmed".to_owned(),
            Self::Interrupted => "interrupted before it began".to_owned(),
            Self::Abandoned => "abandoned".to_owned(),
            Self::StillNeeded { by } => {
                format!("`{by}` depends on it and was applied meanwhile")
            }
            Self::Undermined { on, by } => {
                format!("it depends on `{on}`, which change set {by} is destroying")
            }
        }
    }
}

impl Outcome {
    /// The policy warnings.
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

    /// Whether dependents may continue.
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
                // A hook after the apply failed.
                Stage::Applying => "not done",
                Stage::Preparing | Stage::Planning | Stage::Verifying => "not verified",
            },
            Self::Skipped { .. } => "skipped",
            Self::Unknown { .. } => "unknown",
        }
    }
}
