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

/// What held it is overwritten: memory that is given back may be shown to the next who gets it.
impl Drop for Secret {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.0).into_bytes();
        bytes.fill(0);
        // What nobody reads again need not be written: so somebody reads it.
        std::hint::black_box(&bytes);
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}
