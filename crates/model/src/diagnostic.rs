//! What is wrong with what somebody wrote, and where: the same data for people and for `--json`.
//!
//! Not here: drawing it (`cli::view::findings`).

use serde::{Deserialize, Serialize};

/// One problem in a file that a person wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// A stable word for scripts, such as `unknown-attribute`.
    pub code: &'static str,
    /// What is wrong, literals in backticks, no final period.
    pub message: String,
    /// Where; the first is the main place. Empty for problems of the project as a whole.
    pub places: Vec<Place>,
    /// The next step, if there is one.
    pub hint: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Error,
    Warning,
    /// Worth knowing, nothing to mend: a block whose stage is not built yet.
    Note,
}

/// A place in a file, with what is to be said about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    #[serde(flatten)]
    pub at: Location,
    /// Said beside the caret, or beside the position when there are several places.
    pub label: String,
}

/// A span of bytes in a file of the project, with the line and column people count from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Location {
    /// Relative to the project's root, with `/`.
    pub file: String,
    pub line: usize,
    /// In characters, not bytes.
    pub column: usize,
    /// Byte offsets into the file.
    pub start: usize,
    pub end: usize,
}

impl Finding {
    pub fn error(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, code, message)
    }

    pub fn warning(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, code, message)
    }

    pub fn note(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Note, code, message)
    }

    fn new(severity: Severity, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            severity,
            code,
            message: message.into(),
            places: Vec::new(),
            hint: None,
        }
    }

    /// Adds a place; the first one added is the main one.
    #[must_use]
    pub fn at(mut self, at: Location, label: impl Into<String>) -> Self {
        self.places.push(Place {
            at,
            label: label.into(),
        });
        self
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
