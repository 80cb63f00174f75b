//! The bytes of a file of facts: in clear, or encrypted for whom `.sops.yaml` names.

use std::path::Path;

use model::facts::{Encrypt, FactFile, render};

use super::branch::Sealed;

#[derive(Debug, thiserror::Error)]
pub enum SealFactsError {
    #[error("encrypted facts are not built yet")]
    NotBuilt,
}

impl SealFactsError {
    /// The next step.
    pub fn hint(&self) -> Option<String> {
        None
    }
}

/// `reuse` gets what would be encrypted and for whom; it says its digest, and the bytes there are for it already.
pub(super) fn seal(
    _root: &Path,
    file: &FactFile,
    header: &str,
    _reuse: impl FnOnce(&[u8]) -> (String, Option<Vec<u8>>),
) -> Result<Sealed, SealFactsError> {
    match &file.encrypt {
        Encrypt::Nothing => Ok(Sealed {
            bytes: render(file.format, &file.values, Some(header)),
            plain: None,
        }),
        Encrypt::Leaves(_) | Encrypt::All => Err(SealFactsError::NotBuilt),
    }
}
