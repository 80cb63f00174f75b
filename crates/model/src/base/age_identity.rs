//! The age identity that decrypts a file of master keys.
//!
//! Not here: reading it and decrypting (`store`), which variable names it (`cli`).

use std::path::PathBuf;

use super::secret::Secret;

/// Decrypts a file of master keys.
#[derive(Clone, Debug)]
pub enum AgeIdentity {
    File(PathBuf),
    /// The identity itself.
    Text(Secret),
}
