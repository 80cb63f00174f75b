//! What rebuilding a database from a home's files restored and what it could not restore, as data that every layer above
//! can show.
//!
//! Not here: the rebuild itself (`store`), a person's decision about lost versions (`recover`).

use model::base::error::{cause_texts, chain_texts};
use model::state::{RivalVersion, StateName, StateVersion};
use store::{LostVersion, RebuildReport};

/// The result of a rebuild.
#[derive(Debug)]
pub struct RestoreReport {
    /// States that got versions which were missing in the database.
    pub states: Vec<StateName>,
    pub versions: usize,
    /// How many states got their newest version as head again.
    pub heads: u64,
    /// How many states got their artifacts back.
    pub artifacts: usize,
    /// Later versions without proof that they were acknowledged: they stay files.
    pub unproven: Vec<StateVersion>,
    /// Acknowledged versions that build on a missing one.
    pub broken: Vec<StateVersion>,
    /// States that cannot be served yet: newer versions were acknowledged and cannot be read.
    pub lost: Vec<LostState>,
    /// Acknowledged versions whose number the database has for another one.
    pub rivals: Vec<RivalVersion>,
    /// Earlier acknowledged versions that cannot be read; the state continues without them.
    pub unread: Vec<UnreadVersion>,
}

/// A state with an acknowledged version that is newer than all that can be restored, and cannot be read.
#[derive(Debug)]
pub struct LostState {
    pub state: StateName,
    pub acknowledged: i64,
    /// The newest version in the database; 0 if there is none.
    pub readable: i64,
    /// Nothing is lost: another master key is needed.
    pub needs_other_key: bool,
    /// What is lost, as a sentence.
    pub message: String,
    /// The causes of the loss, outermost first, without the message.
    pub causes: Vec<String>,
}

#[derive(Debug)]
pub struct UnreadVersion {
    pub state: StateName,
    pub version: i64,
    /// The error, then its causes, outermost first.
    pub causes: Vec<String>,
}

impl From<RebuildReport> for RestoreReport {
    fn from(rebuilt: RebuildReport) -> Self {
        let unread = rebuilt.unread.into_iter();
        let unread = unread.map(|(state, version, error)| UnreadVersion {
            state,
            version,
            causes: chain_texts(&error),
        });
        Self {
            states: rebuilt.states,
            versions: rebuilt.versions,
            heads: rebuilt.heads,
            artifacts: rebuilt.artifacts,
            unproven: rebuilt.unproven,
            broken: rebuilt.broken,
            lost: rebuilt.lost.into_iter().map(Into::into).collect(),
            rivals: rebuilt.rivals,
            unread: unread.collect(),
        }
    }
}

impl From<LostVersion> for LostState {
    fn from(lost: LostVersion) -> Self {
        Self {
            message: lost.to_string(),
            causes: cause_texts(&lost),
            needs_other_key: lost.is_of_the_key(),
            acknowledged: lost.acknowledged,
            readable: lost.readable,
            state: lost.state,
        }
    }
}
