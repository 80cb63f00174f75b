//! Taking in what an engine could not deliver.

use std::sync::Arc;

use model::ids::RunId;
use model::state::{Adoption, KeepAside, Mark, StateName, StateVersion, adoption};

use super::append::{AppendError, Appended, StateWriter, Write};
use crate::{Store, StoreError};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Adopted {
    New(StateVersion),
    /// The head says the same already.
    Nothing,
    /// A person has to look; `kept` is where its sealed bytes are in the home.
    KeptAside {
        why: KeepAside,
        kept: Option<String>,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    #[error("could not compare what run {run} left behind with state `{state}`")]
    Compare {
        state: StateName,
        run: RunId,
        source: StoreError,
    },
    #[error("could not adopt what run {run} left behind")]
    Append { run: RunId, source: AppendError },
}

impl AdoptError {
    /// Whether the same call may work later: the home did not answer.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Compare { source, .. } => source.is_outage(),
            Self::Append { source, .. } => source.is_outage(),
        }
    }
}

impl Store {
    /// Takes in the `errored.tfstate` of a run that is over. Doing it twice is doing it once.
    pub async fn state_adopt(
        &self,
        state: &StateName,
        run: RunId,
        file: Vec<u8>,
        may_empty: bool,
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
                let kept = self.kept_aside_record(state, run, why.to_string(), file);
                let kept = kept.await.map_err(failed)?.kept;
                Ok(Adopted::KeptAside { why, kept })
            }
            Adoption::Adopt(body) => {
                // Under the run's lock if it still has it; else only while nobody has.
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
                    ..StateWriter::default()
                };
                let (mark, body) = (Some(Mark::Adopted), Arc::new(body));
                let write = Write {
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
                    // Somebody else holds the state now. Left as a file it would be seen by this machine only.
                    Err(AppendError::Refused { source, .. }) => {
                        let why = KeepAside::Refused(source.to_string());
                        let kept = self.kept_aside_record(state, run, why.to_string(), file);
                        let kept = kept.await.map_err(failed)?.kept;
                        Ok(Adopted::KeptAside { why, kept })
                    }
                    Err(source) => Err(AdoptError::Append { run, source }),
                }
            }
        }
    }
}
