//! Findings in files that people write, with locations: the same data for people and for `--json`.
//!
//! Not here: displaying them (`cli::view::findings`).

use serde::{Deserialize, Serialize};

/// A problem in a file that a person wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// A stable identifier for scripts, such as `unknown-attribute`.
    pub code: &'static str,
    /// The problem, with literals in backticks and without a final period.
    pub message: String,
    /// The locations, with the main one first. Empty for problems of the project as a whole.
    pub places: Vec<LabelledLocation>,
    /// The next step, if there is one.
    pub hint: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Error,
    Warning,
    /// Information without anything to fix: a block whose feature is not implemented yet.
    Note,
}

/// A location with its label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LabelledLocation {
    #[serde(flatten)]
    pub at: Location,
    /// Shown beside the caret, or beside the position if there are several places.
    pub label: String,
}

/// A byte range in a project file, with line and column counted from 1.
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

    /// Adds a place. The first one is the main one.
    #[must_use]
    pub fn at(mut self, at: Location, label: impl Into<String>) -> Self {
        self.places.push(LabelledLocation {
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
