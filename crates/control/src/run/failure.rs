//! Why a stage of a run failed, while it travels up to the event that records it.
//!
//! Not here: what is stored of it (`model::run::Problem`).

use std::fmt;

use model::error::{Explain, causes};
use model::import_proposal::Left;
use model::masking::Mask;
use model::policy::Verdict;
use model::run::{EngineDiagnostic, Problem, Stage};

/// Why a stage did not come to its end; becomes the run's problem.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) message: String,
    /// What of its stage it was, if that has a word of its own.
    pub(crate) during: Option<&'static str>,
    pub(crate) hint: Option<String>,
    pub(crate) diagnostics: Vec<EngineDiagnostic>,
    pub(crate) refused: bool,
    pub(crate) interrupted: bool,
    pub(crate) policy: Box<Verdict>,
    pub(crate) left: Option<Box<Left>>,
    /// What a stage after the apply had seen and done.
    pub(crate) report: Option<Box<serde_json::Value>>,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            during: None,
            hint: None,
            diagnostics: Vec::new(),
            refused: false,
            interrupted: false,
            policy: Box::default(),
            left: None,
            report: None,
        }
    }

    /// The action that failed, and the whole chain of causes.
    pub(crate) fn because(action: &str, cause: &dyn std::error::Error) -> Self {
        let text = format!("{action}: {cause}");
        Self::new(causes(cause).fold(text, |text, cause| format!("{text}: {cause}")))
    }

    /// Like `because`, with the next steps of the cause; refused if the cause is a refusal.
    pub(crate) fn explained(action: &str, cause: &dyn Explain) -> Self {
        Self::because(action, cause).explain(cause)
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn interrupted() -> Self {
        let mut failure = Self::new("interrupted");
        failure.interrupted = true;
        failure
    }

    pub(crate) fn during(mut self, what: &'static str) -> Self {
        self.during = Some(what);
        self
    }

    /// Nothing is begun that would be ended at once.
    pub(crate) fn too_late(limit: impl fmt::Display, who: &str) -> Self {
        Self::new(format!(
            "the time limit `{limit}` was reached before {who} began"
        ))
    }

    pub(crate) fn refused(mut self) -> Self {
        self.refused = true;
        self
    }

    /// Takes the kind and the next steps of its cause.
    pub(crate) fn explain(mut self, cause: &dyn Explain) -> Self {
        self.hint = cause.hint();
        self.refused = cause.is_refused();
        self
    }

    /// With the name of what it is about.
    pub(crate) fn named(mut self, what: &str) -> Self {
        self.message = format!("`{what}`: {}", self.message);
        self
    }

    /// What went wrong and what to do about it, for those who have no run.
    pub(crate) fn into_words(self) -> (String, Option<String>) {
        (self.message, self.hint)
    }

    /// Without what must not be shown.
    pub(crate) fn masked(mut self, mask: &Mask) -> Self {
        self.message = mask.mask_text(&self.message);
        for diagnostic in &mut self.diagnostics {
            diagnostic.summary = mask.mask_text(&diagnostic.summary);
            diagnostic.detail = mask.mask_text(&diagnostic.detail);
        }
        self
    }

    pub(crate) fn into_problem(self, stage: Stage, serial: Option<i64>, mask: &Mask) -> Problem {
        let clean = |text: &str| mask.mask_text(text);
        let diagnostics = self
            .diagnostics
            .into_iter()
            .map(|d| EngineDiagnostic {
                summary: clean(&d.summary),
                detail: clean(&d.detail),
                ..d
            })
            .collect();
        Problem {
            stage,
            during: self.during.map(str::to_owned),
            message: clean(&self.message),
            diagnostics,
            serial,
            hint: self.hint.as_deref().map(clean),
            refused: self.refused,
            interrupted: self.interrupted,
            policy: *self.policy,
            left: self.left,
            report: self.report.map(|mut report| {
                mask.mask_value(&mut report);
                report
            }),
        }
    }
}
