//! Adopting a state that an engine could not deliver.
//!
//! Not here: what a person decides about a quarantined one (`refusals::decisions`).

use std::sync::Arc;

use model::base::error::{ErrorKind, Explain};
use model::base::ids::RunId;
use model::state::secret_paths::SecretPaths;
use model::state::{Adoption, QuarantineReason, StateName, StateVersion, VersionMark, adoption};

use super::append::{AppendError, Appended, StateWrite, StateWriter};
use crate::{Store, StoreError};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Adopted {
    New(StateVersion),
    /// The head already has these bytes.
    Nothing,
    /// A person must decide; `kept` is the path of the sealed bytes in the home.
    KeptAside {
        why: QuarantineReason,
        kept: Option<String>,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    #[error("cannot compare the state that run {run} left behind with state `{state}`")]
    Compare {
        state: StateName,
        run: RunId,
        source: StoreError,
    },
    #[error("cannot adopt the state that run {run} left behind")]
    Append { run: RunId, source: AppendError },
}

impl Explain for AdoptError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Compare { source, .. } => source.kind(),
            Self::Append { source, .. } => source.kind(),
        }
    }
}

impl Store {
    /// Adopts the `errored.tfstate` of a finished run. It can be repeated.
    pub async fn state_adopt(
        &self,
        state: &StateName,
        run: RunId,
        file: Vec<u8>,
        may_empty: bool,
        secret_paths: SecretPaths,
    ) -> Result<Adopted, AdoptError> {
        let failed = |source| AdoptError::Compare {
            state: state.clone(),
            run,
            source,
        };
        let head = match self.state_head(state).await.map_err(failed)? {
            Some(head) => Some(self.state_version_read(&head).await.map_err(failed)?),
            None => None,
        };
        let lineage = uuid::Uuid::new_v4().to_string();
        match adoption(head.as_deref(), &file, &lineage, may_empty) {
            Adoption::Nothing => Ok(Adopted::Nothing),
            Adoption::KeepAside(why) => {
                let kept = self.quarantine_record(state, run, why.to_string(), file);
                let kept = kept.await.map_err(failed)?.kept;
                Ok(Adopted::KeptAside { why, kept })
            }
            Adoption::Adopt(body) => {
                // Under the run's lock if it still holds it; otherwise only while the state is free.
                let lock = self
                    .state_get(state)
                    .await
                    .map_err(failed)?
                    .and_then(|row| row.lock);
                let lock = lock.filter(|lock| lock.run == Some(run));
                let writer = StateWriter {
                    run: lock.as_ref().and_then(|lock| lock.run),
                    lock_id: lock.map(|lock| lock.info.id),
                    may_empty,
                    secret_paths: Some(secret_paths),
                    ..StateWriter::default()
                };
                let (mark, body) = (Some(VersionMark::Adopted), Arc::new(body));
                let write = StateWrite {
                    state: state.clone(),
                    writer,
                    run: Some(run),
                    mark,
                    record: None,
                    body,
                };
                match Box::pin(self.append(write)).await {
                    Ok(Appended::New(version)) => Ok(Adopted::New(version)),
                    Ok(Appended::Same(_)) => Ok(Adopted::Nothing),
                    // Another holder has the state now. Left as a file, the state would be visible on this machine
                    // only.
                    Err(AppendError::Refused { source, .. }) => {
                        let why = QuarantineReason::Refused(source.to_string());
                        let kept = self.quarantine_record(state, run, why.to_string(), file);
                        let kept = kept.await.map_err(failed)?.kept;
                        Ok(Adopted::KeptAside { why, kept })
                    }
                    Err(source) => Err(AdoptError::Append { run, source }),
                }
            }
        }
    }
}
