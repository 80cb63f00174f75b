//! Contracts where they are: those that come with terrane, and a project's own in `contracts/NAME/vN.json`.
//!
//! Not here: what they say (`model::contract`).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use model::contract::{Contract, ContractName, ReadContractError};

#[derive(Debug, thiserror::Error)]
pub enum FindContractError {
    #[error("there is no contract `{name}`")]
    Missing { name: ContractName },
    #[error("could not read the contract `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("`{}` has the name of a contract that comes with terrane", path.display())]
    Shadowed { path: PathBuf },
    #[error(transparent)]
    Wrong(#[from] ReadContractError),
}

impl FindContractError {
    /// The next step.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Missing { name } => Some(format!(
                "write it as a JSON Schema in `{}`; `cluster/v1` comes with terrane",
                name.path()
            )),
            Self::Shadowed { .. } => Some("call your own one otherwise".to_owned()),
            Self::Read { .. } | Self::Wrong(_) => None,
        }
    }
}

/// The contract of a name, as the project at `root` sees it.
pub fn find(root: &Path, name: &ContractName) -> Result<Contract, FindContractError> {
    let path = root.join(name.path());
    let own = match std::fs::read_to_string(&path) {
        Ok(text) => Some(text),
        Err(err) if err.kind() == io::ErrorKind::NotFound => None,
        Err(source) => return Err(FindContractError::Read { path, source }),
    };
    match (Contract::shipped(name), own) {
        (Some(_), Some(_)) => Err(FindContractError::Shadowed {
            path: name.path().into(),
        }),
        (Some(shipped), None) => Ok(shipped),
        (None, Some(text)) => Ok(Contract::read(name.clone(), &text)?),
        (None, None) => Err(FindContractError::Missing { name: name.clone() }),
    }
}

/// Several at once.
pub fn find_all(
    root: &Path,
    names: &BTreeSet<ContractName>,
) -> Result<BTreeMap<ContractName, Contract>, FindContractError> {
    let find = |name: &ContractName| Ok((name.clone(), find(root, name)?));
    names.iter().map(find).collect()
}
