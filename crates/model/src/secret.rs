//! What must not be shown has a type that cannot be shown.

use std::fmt;

/// A value that may not reach a log, an error, a fact or a screen. No `Display`, no `Serialize`:
/// leaking one does not compile.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The only way out: `rg 'expose\(\)'` is the audit.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}
