//! Why a stage of a run failed, until an event records it.
//!
//! Not here: the stored form (`model::run::Problem`).

use std::fmt;

use model::base::error::{Explain, causes};
use model::base::masking::Mask;
use model::policy::Verdict;
use model::run::import_proposal::UnrecordedResources;
use model::run::{EngineDiagnostic, RunProblem, Stage};

/// Why a stage did not complete; becomes the run's problem.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) message: String,
    /// The part of the stage that failed, if it has a name.
    pub(crate) during: Option<&'static str>,
    pub(crate) hint: Option<String>,
    pub(crate) diagnostics: Vec<EngineDiagnostic>,
    pub(crate) refused: bool,
    pub(crate) interrupted: bool,
    pub(crate) policy: Box<Verdict>,
    pub(crate) left: Option<Box<UnrecordedResources>>,
    /// What a stage after the apply had found and done.
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

    /// The time limit was reached before the step began, so the step was not started.
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

    /// Adds the name of the affected object.
    pub(crate) fn named(mut self, what: &str) -> Self {
        self.message = format!("`{what}`: {}", self.message);
        self
    }

    /// The message and the hint, for callers without a run.
    pub(crate) fn into_words(self) -> (String, Option<String>) {
        (self.message, self.hint)
    }

    /// Masks secrets in the message and the diagnostics.
    pub(crate) fn masked(mut self, mask: &Mask) -> Self {
        self.message = mask.mask_text(&self.message);
        for diagnostic in &mut self.diagnostics {
            diagnostic.summary = mask.mask_text(&diagnostic.summary);
            diagnostic.detail = mask.mask_text(&diagnostic.detail);
        }
        self
    }

    pub(crate) fn into_problem(self, stage: Stage, serial: Option<i64>, mask: &Mask) -> RunProblem {
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
        RunProblem {
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
