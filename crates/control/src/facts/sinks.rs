//! Facts as a file of the project, for who reads no Git.

use super::{Publication, PublishFactsError};

pub(super) fn write(_publication: &Publication<'_>) -> Result<(), PublishFactsError> {
    Ok(())
}
