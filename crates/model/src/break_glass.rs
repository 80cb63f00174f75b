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
    /// Sensitive values were shown.
    Revealed,
    /// The engine of a run was killed.
    EngineKilled,
}

impl Act {
    pub const ALL: [Self; 6] = [
        Self::LockBroken,
        Self::StatePushed,
        Self::StateRolledBack,
        Self::StateEdited,
        Self::Revealed,
        Self::EngineKilled,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::LockBroken => "lock_broken",
            Self::StatePushed => "state_pushed",
            Self::StateRolledBack => "state_rolled_back",
            Self::StateEdited => "state_edited",
            Self::Revealed => "revealed",
            Self::EngineKilled => "engine_killed",
        }
    }

    /// What people read.
    pub fn words(self) -> &'static str {
        match self {
            Self::LockBroken => "lock broken",
            Self::StatePushed => "state pushed",
            Self::StateRolledBack => "state rolled back",
            Self::StateEdited => "state edited",
            Self::Revealed => "secrets shown",
            Self::EngineKilled => "engine killed",
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
