//! Verifies everything that is stored, and reports damage as data that every layer above can show.
//!
//! Not here: reading and checking frames (`store`), what a person does about damage (`cli`).

use std::collections::BTreeMap;

use model::base::error::{Explain, chain_texts};
use model::state::{RefusedRequest, RivalVersion, StateName};
use store::{Damage, KeyError, StoreError, VerifyReport};

use crate::Control;

/// The result of checking the states of a home.
#[derive(Debug)]
pub struct IntegrityReport {
    pub states: usize,
    pub versions: usize,
    /// Size of all versions, uncompressed.
    pub plain_bytes: u64,
    /// Size of all versions as stored.
    pub stored_bytes: u64,
    /// Number of artifact files.
    pub artifacts: u64,
    pub damages: Vec<StateDamage>,
    /// Refused writes whose bodies are stored.
    pub refused: Vec<RefusedRequest>,
    /// How many refused writes of each state were deleted.
    pub let_go: BTreeMap<StateName, usize>,
}

/// One thing that is not as it was stored.
#[derive(Debug)]
pub struct StateDamage {
    pub state: StateName,
    /// `None` for artifacts.
    pub version: Option<i64>,
    /// How many versions it concerns: all of the state if the key is damaged.
    pub versions: usize,
    /// Whether it is the state's newest version.
    pub is_head: bool,
    /// The newest version before it that can be read.
    pub readable: Option<i64>,
    pub kind: DamageKind,
    /// The error, then its causes, outermost first.
    pub causes: Vec<String>,
}

/// What is wrong; a person's next step depends on it.
#[derive(Debug)]
pub enum DamageKind {
    /// The stored data is intact, but needs another master key.
    OtherKey,
    /// The version was acknowledged, is not in the database, and cannot be read.
    Lost,
    /// A second acknowledged version has a number that the database has for another one.
    Rival(Box<RivalVersion>),
    /// The version is intact and in the database, but only the database records that it was acknowledged.
    Unmarked,
    /// The version is intact, but the database is older and does not contain it.
    Stale,
    /// The head is older than the newest version.
    OldHead,
    /// The state has versions but no head, and was not deleted.
    WithoutHead,
    /// What is stored cannot be read, or is not what was stored.
    Unreadable,
}

#[derive(Debug, thiserror::Error)]
pub enum VerifyStateError {
    #[error("there is no state `{state}`")]
    NoState { state: StateName },
    #[error("cannot verify the stored data")]
    Store(#[from] StoreError),
}

impl Explain for VerifyStateError {}

/// Reads every version of one state, or of all states in the home, and quarantined states.
pub async fn verify(
    control: &Control,
    only: Option<&StateName>,
) -> Result<IntegrityReport, VerifyStateError> {
    let verified = control.store.state_verify(only).await?;
    match only {
        Some(state) if verified.states == 0 && verified.damages.is_empty() => {
            Err(VerifyStateError::NoState {
                state: state.clone(),
            })
        }
        _ => Ok(verified.into()),
    }
}

impl From<VerifyReport> for IntegrityReport {
    fn from(verified: VerifyReport) -> Self {
        Self {
            states: verified.states,
            versions: verified.versions,
            plain_bytes: verified.plain_bytes,
            stored_bytes: verified.stored_bytes,
            artifacts: verified.artifacts,
            damages: verified.damages.into_iter().map(Into::into).collect(),
            refused: verified.refused,
            let_go: verified.let_go,
        }
    }
}

impl From<Damage> for StateDamage {
    fn from(damage: Damage) -> Self {
        Self {
            state: damage.state,
            version: damage.version,
            versions: damage.versions,
            is_head: damage.is_head,
            readable: damage.readable,
            causes: chain_texts(&damage.error),
            kind: damage.error.into(),
        }
    }
}

impl From<StoreError> for DamageKind {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Key(KeyError::OtherMaster { .. }) => Self::OtherKey,
            StoreError::Lost(lost) if lost.is_of_the_key() => Self::OtherKey,
            StoreError::Lost(_) => Self::Lost,
            StoreError::Rival(rival) => Self::Rival(rival),
            StoreError::Unmarked { .. } => Self::Unmarked,
            StoreError::Stale { .. } => Self::Stale,
            StoreError::OldHead { .. } => Self::OldHead,
            StoreError::NoHead { .. } => Self::WithoutHead,
            StoreError::Db(_)
            | StoreError::File { .. }
            | StoreError::Object { .. }
            | StoreError::Key(_)
            | StoreError::Unseal { .. }
            | StoreError::Row { .. }
            | StoreError::Interrupted => Self::Unreadable,
        }
    }
}
