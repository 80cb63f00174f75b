//! Decides what happens to an `errored.tfstate`, the state that an engine could not upload.

use super::{Contents, InvalidState, StateFacts, with_identity};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Adoption {
    /// These bytes become the next version.
    Adopt(Vec<u8>),
    /// The head already has the same content.
    Nothing,
    KeepAside(QuarantineReason),
}

/// Why the file is quarantined for a person to check.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuarantineReason {
    #[error("it is encrypted by the engine, so it cannot be compared with the head")]
    Encrypted,
    #[error("its lineage `{lineage}` is not the head's `{head}`")]
    OtherLineage { lineage: String, head: String },
    #[error("its serial {serial} is not after the head's {head}")]
    NotNewer { serial: u64, head: u64 },
    #[error("another writer changed the state to serial {head} during the run")]
    HeadMoved { head: u64 },
    #[error("it has no resources, but the plan does not remove them all")]
    Emptied,
    #[error("it is not a state: {0}")]
    Invalid(String),
    #[error("cannot write it: {0}")]
    Refused(String),
}

/// Decides from the bytes of the head and of the file. `new_lineage` is for a file without a lineage, which a first
/// apply leaves behind.
pub fn adoption(head: Option<&[u8]>, file: &[u8], new_lineage: &str, may_empty: bool) -> Adoption {
    decide(head, file, new_lineage, may_empty)
        .unwrap_or_else(|err| Adoption::KeepAside(QuarantineReason::Invalid(err.to_string())))
}

fn decide(
    head: Option<&[u8]>,
    file: &[u8],
    new_lineage: &str,
    may_empty: bool,
) -> Result<Adoption, InvalidState> {
    let found = StateFacts::read(file)?;
    if head == Some(file) {
        return Ok(Adoption::Nothing);
    }
    if found.contents == Contents::Encrypted {
        return Ok(Adoption::KeepAside(QuarantineReason::Encrypted));
    }
    let lineage = if found.lineage.is_empty() {
        new_lineage
    } else {
        &found.lineage
    };
    let Some(head) = head else {
        return Ok(Adoption::Adopt(with_identity(file, 1, lineage)?));
    };
    let known = StateFacts::read(head)?;
    // Already adopted: only the assigned serial and lineage differ.
    if with_identity(file, known.serial, &known.lineage)? == head {
        return Ok(Adoption::Nothing);
    }
    if known.contents == Contents::Nothing {
        return Ok(Adoption::Adopt(with_identity(
            file,
            known.serial + 1,
            lineage,
        )?));
    }
    Ok(if found.lineage != known.lineage {
        Adoption::KeepAside(QuarantineReason::OtherLineage {
            lineage: found.lineage,
            head: known.lineage,
        })
    } else if found.serial <= known.serial {
        Adoption::KeepAside(QuarantineReason::NotNewer {
            serial: found.serial,
            head: known.serial,
        })
    } else if known.contents.loses_all_resources(found.contents) && !may_empty {
        Adoption::KeepAside(QuarantineReason::Emptied)
    } else {
        Adoption::Adopt(file.to_vec())
    })
}

#[cfg(test)]
mod tests;
