//! A version that a person makes: the version and its break-glass record are one commit.
//!
//! Not here: which command does it (`control::state::surgery`).

use std::sync::Arc;

use model::base::actor::Actor;
use model::state::break_glass::BreakGlassAction;
use model::state::secret_paths::SecretPaths;
use model::state::{StateName, VersionMark};

use super::append::{AppendError, Appended, StateWrite, StateWriter};
use crate::Store;

/// A manual write, under a lock that the person's command holds.
#[derive(Clone, Debug)]
pub struct ManualWrite {
    pub lock_id: String,
    pub mark: Option<VersionMark>,
    /// Bypasses the rules for serial and lineage, if the lock's operation allows it.
    pub surgery: bool,
    /// Versions up to this one are lost; 0 if none is.
    pub beyond: i64,
    /// The known paths of secrets in the body.
    pub secret_paths: SecretPaths,
    pub record: BreakGlassRecord,
}

/// The break-glass record that opens with the version.
#[derive(Clone, Debug)]
pub struct BreakGlassRecord {
    pub act: BreakGlassAction,
    pub actor: Actor,
    pub reason: String,
    pub detail: String,
}

impl Store {
    /// Makes `body` the newest version if it may follow. The same bytes again create neither a version nor a record.
    pub async fn state_version_append_manual(
        &self,
        state: &StateName,
        by_hand: ManualWrite,
        body: Vec<u8>,
    ) -> Result<Appended, AppendError> {
        let writer = StateWriter {
            lock_id: Some(by_hand.lock_id),
            surgery: by_hand.surgery,
            beyond: by_hand.beyond,
            actor: Some(by_hand.record.actor.clone()),
            secret_paths: Some(by_hand.secret_paths),
            ..StateWriter::default()
        };
        let write = StateWrite {
            state: state.clone(),
            writer,
            run: None,
            mark: by_hand.mark,
            record: Some(by_hand.record),
            body: Arc::new(body),
        };
        self.append(write).await
    }
}
