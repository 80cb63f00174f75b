//! The keys of the digests in seals and plan differences. Each home has its own keys. A run whose plan came
//! from another home in a bundle uses that home's keys, which came with the plan.

use std::fs;
use std::io;
use std::path::PathBuf;

use model::base::ids::RunId;
use model::base::secret::Secret;
use model::run::RunSpec;
use serde::{Deserialize, Serialize};
use store::{KeyScope, KeyedDigester, Store, StoreError};

use crate::Control;
use crate::home::write_private;

/// Stored only in sealed form.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct DigestKeys {
    inputs: String,
    values: String,
}

/// What is digested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DigestPurpose {
    /// All inputs of a run, for its seal.
    Inputs,
    /// One value in a plan, for its difference.
    PlanValue,
}

impl DigestPurpose {
    fn name(self) -> &'static str {
        match self {
            Self::Inputs => "inputs",
            Self::PlanValue => "plan value",
        }
    }
}

impl DigestKeys {
    pub(crate) async fn of_home(store: &Store) -> Result<Self, StoreError> {
        let text = async |purpose: DigestPurpose| {
            let digester = store.keyed_digester(purpose.name()).await?;
            Ok::<_, StoreError>(digester.to_secret().expose().to_owned())
        };
        Ok(Self {
            inputs: text(DigestPurpose::Inputs).await?,
            values: text(DigestPurpose::PlanValue).await?,
        })
    }

    fn of(&self, purpose: DigestPurpose) -> &str {
        match purpose {
            DigestPurpose::Inputs => &self.inputs,
            DigestPurpose::PlanValue => &self.values,
        }
    }
}

/// The digester for this run, with the key of its own home or of the home where its plan was made.
pub(crate) async fn digester(
    control: &Control,
    run: RunId,
    spec: &RunSpec,
    purpose: DigestPurpose,
) -> Result<KeyedDigester, StoreError> {
    match fs::read(path(control, run)) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => {
            control.store.keyed_digester(purpose.name()).await
        }
        sealed => {
            let failed = |source| StoreError::File {
                action: "read",
                path: path(control, run),
                source,
            };
            let sealed = sealed.map_err(failed)?;
            let scope = KeyScope::State(control.state_name(&spec.stack.state));
            let plain = control.store.unseal(scope, &name(run), sealed).await?;
            let wrong = || failed(io::ErrorKind::InvalidData.into());
            let digests: DigestKeys = serde_json::from_slice(&plain).map_err(|_| wrong())?;
            KeyedDigester::from_secret(&Secret::new(digests.of(purpose))).ok_or_else(wrong)
        }
    }
}

pub(crate) async fn keep(
    control: &Control,
    run: RunId,
    spec: &RunSpec,
    digests: &DigestKeys,
) -> Result<(), StoreError> {
    let failed = |source| StoreError::File {
        action: "write",
        path: path(control, run),
        source,
    };
    let plain = serde_json::to_vec(digests).map_err(|err| failed(err.into()))?;
    let scope = KeyScope::State(control.state_name(&spec.stack.state));
    let sealed = control.store.seal(scope, &name(run), plain).await?;
    write_private(&path(control, run), &sealed).map_err(failed)
}

fn path(control: &Control, run: RunId) -> PathBuf {
    control.home.run_dir(run).join("digests")
}

fn name(run: RunId) -> String {
    format!("digests {run}")
}
