//! Break-glass: an emergency action that bypasses the usual rules. It has an actor and a reason, and is listed as open
//! until the next normal run has caught up with it.

use serde::{Deserialize, Serialize};

use crate::base::actor::Actor;
use crate::state::StateName;

/// The kind of action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakGlassAction {
    /// A lock was taken away from its holder.
    LockBroken,
    /// A state was pushed manually, bypassing the rules for runs.
    StatePushed,
    StateRolledBack,
    /// Resources were removed from a state manually.
    StateEdited,
    /// A client of the server deleted the state. Its versions are kept.
    StateDeleted,
    /// Sensitive values were shown.
    Revealed,
    /// The engine of a run was killed.
    EngineKilled,
    /// A run was given up because its machine is gone.
    MachineGivenUp,
    /// A change was applied in spite of a policy denial.
    PolicyOverridden,
    /// Facts were published over changes of others.
    FactsTakenOver,
    /// Facts with known readers were withdrawn.
    FactsWithdrawn,
    /// A stack counted as done without this gate.
    GateSkipped,
    /// A bootstrap took back objects that others managed.
    Reinstalled,
}

impl BreakGlassAction {
    pub const ALL: [Self; 13] = [
        Self::LockBroken,
        Self::StatePushed,
        Self::StateRolledBack,
        Self::StateEdited,
        Self::StateDeleted,
        Self::Revealed,
        Self::EngineKilled,
        Self::MachineGivenUp,
        Self::PolicyOverridden,
        Self::FactsTakenOver,
        Self::FactsWithdrawn,
        Self::GateSkipped,
        Self::Reinstalled,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::LockBroken => "lock_broken",
            Self::StatePushed => "state_pushed",
            Self::StateRolledBack => "state_rolled_back",
            Self::StateEdited => "state_edited",
            Self::StateDeleted => "state_deleted",
            Self::Revealed => "revealed",
            Self::EngineKilled => "engine_killed",
            Self::MachineGivenUp => "machine_given_up",
            Self::PolicyOverridden => "policy_overridden",
            Self::FactsTakenOver => "facts_taken_over",
            Self::FactsWithdrawn => "facts_withdrawn",
            Self::GateSkipped => "gate_skipped",
            Self::Reinstalled => "reinstalled",
        }
    }

    /// The text shown to people.
    pub fn words(self) -> &'static str {
        match self {
            Self::LockBroken => "lock broken",
            Self::StatePushed => "state pushed",
            Self::StateRolledBack => "state rolled back",
            Self::StateEdited => "state edited",
            Self::StateDeleted => "state deleted",
            Self::Revealed => "secrets shown",
            Self::EngineKilled => "engine killed",
            Self::MachineGivenUp => "machine given up",
            Self::PolicyOverridden => "policy overridden",
            Self::FactsTakenOver => "facts taken over",
            Self::FactsWithdrawn => "facts withdrawn",
            Self::GateSkipped => "gate skipped",
            Self::Reinstalled => "bootstrap reinstalled",
        }
    }
}

/// A recorded action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakGlass {
    pub id: i64,
    pub act: BreakGlassAction,
    pub state: StateName,
    /// The actor: a user of the operating system, or a token's name.
    pub actor: Actor,
    /// None if the client could not provide one; it is still missing.
    pub reason: Option<String>,
    /// The details: the broken lock, the new version.
    pub detail: String,
    pub at: jiff::Timestamp,
    pub closed_at: Option<jiff::Timestamp>,
}
