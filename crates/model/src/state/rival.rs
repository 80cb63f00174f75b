//! Two acknowledged versions with the same number.
//!
//! Not here: finding them (`store::state::check`).

use super::StateVersion;

/// An acknowledged version whose number the database has for another one: two databases were written in parallel, or
/// one was restored from an older copy unnoticed.
#[derive(Debug, thiserror::Error)]
#[error(
    "another version {} of state `{}` (serial {}, from {}) was acknowledged too, but the database does not contain it",
    .version.version, .version.state, .version.serial, .version.created_at.strftime("%Y-%m-%d %H:%M:%S UTC")
)]
pub struct RivalVersion {
    pub version: StateVersion,
    /// The newest version in the database.
    pub newest: StateVersion,
}
