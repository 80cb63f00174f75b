//! Break-glass: an emergency act past the usual rules. It has an actor and a reason, and stays open in
//! every listing until the normal way has caught up with it.

use serde::{Deserialize, Serialize};

use crate::state::StateName;

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// A lock was taken away from its holder.
    LockBroken,
    /// A state was pushed by hand, over the rules for runs.
    StatePushed,
    StateRolledBack,
    /// Resources were removed from a state by hand.
    StateEdited,
    /// A client of the server deleted it; its versions stay.
    StateDeleted,
    /// Sensitive values were shown.
    Revealed,
    /// The engine of a run was killed.
    EngineKilled,
    /// A run was given up whose machine is gone.
    MachineGivenUp,
    /// What a policy denies was applied all the same.
    PolicyOverridden,
    /// Facts were published over what others wrote there.
    FactsTakenOver,
    /// Facts were withdrawn that others are known to use.
    FactsWithdrawn,
    /// A stack counted as done without this gate.
    GateSkipped,
    /// A bootstrap took back what others held.
    Reinstalled,
}

impl Act {
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

    /// What people read.
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

/// One act, as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakGlass {
    pub id: i64,
    pub act: Act,
    pub state: StateName,
    /// Who did it: a person of the operating system, or a token's name.
    pub actor: String,
    /// Nothing if the client could not say one: it is still owed.
    pub reason: Option<String>,
    /// What exactly: the broken lock, the version that was made.
    pub detail: String,
    pub at: jiff::Timestamp,
    pub closed_at: Option<jiff::Timestamp>,
}
