//! Why a command failed: the message, its causes, the next step, and the exit code.

use std::error::Error;

use control::home::{advice_about_place, is_away};
use model::base::error::{Explain, NextStep, cause_texts, chain_texts};
use serde_json::{Value, json};

use crate::ExitStatus;
use crate::global::Global;
use crate::global::at_home;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandError {
    pub(crate) message: String,
    pub(crate) causes: Vec<String>,
    pub(crate) hints: Vec<String>,
    pub(crate) status: ExitStatus,
    /// Everything is printed already; only the exit code is left.
    pub(crate) is_said: bool,
    /// What `--json` prints for it.
    pub(crate) document: Option<Box<Value>>,
    /// The stream of events already contains its outcome.
    is_told: bool,
    /// The home's database could not be reached: the command may work later.
    pub(crate) is_away: bool,
}

impl CommandError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            causes: Vec::new(),
            hints: Vec::new(),
            status: ExitStatus::Failed,
            is_said: false,
            document: None,
            is_told: false,
            is_away: false,
        }
    }

    /// An error whose message names the failed action, with its next steps and the exit code of its kind.
    pub(crate) fn from_error(error: &dyn Explain) -> Self {
        let shown = Self {
            causes: cause_texts(error),
            hints: hints(error),
            is_away: is_away(error),
            status: error.kind().into(),
            ..Self::new(error.to_string())
        };
        error.next_steps().into_iter().fold(shown, Self::step)
    }

    /// Names the failed action, and takes the whole error as its cause.
    pub(crate) fn because(action: impl Into<String>, error: &dyn Error) -> Self {
        Self {
            causes: chain_texts(error),
            hints: hints(error),
            is_away: is_away(error),
            ..Self::new(action)
        }
    }

    pub(crate) fn said(status: ExitStatus) -> Self {
        Self {
            status,
            is_said: true,
            ..Self::new("")
        }
    }

    /// An error that is printed as data.
    pub(crate) fn documented(status: ExitStatus, document: Value) -> Self {
        Self {
            document: Some(Box::new(document)),
            ..Self::said(status)
        }
    }

    /// Marks that the last event of the stream is printed.
    pub(crate) fn told(self) -> Self {
        Self {
            is_told: true,
            ..self
        }
    }

    /// The last events of a stream that ends with this error, unless they are printed already.
    pub(crate) fn events(&self) -> Vec<Value> {
        if self.is_told {
            return Vec::new();
        }
        let found = self.document.as_deref().cloned();
        let found = found.map(|mut document| {
            document["event"] = "findings".into();
            document
        });
        let mut outcome = json!({
            "event": "outcome", "change_set": null, "exit": self.status.code(), "stacks": {},
        });
        if !self.is_said {
            outcome["error"] = json!({
                "message": self.message, "causes": self.causes, "hints": self.hints,
            });
        }
        found.into_iter().chain([outcome]).collect()
    }

    pub(crate) fn cause(mut self, cause: impl Into<String>) -> Self {
        self.causes.push(cause.into());
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    #[expect(clippy::needless_pass_by_value, reason = "used with fold")]
    pub(crate) fn step(self, step: NextStep) -> Self {
        self.hint(step.to_string())
    }

    /// Adds the named home to commands in causes and hints, so that they can be copied.
    pub(crate) fn at_home(mut self, global: &Global) -> Self {
        for text in self.causes.iter_mut().chain(&mut self.hints) {
            *text = at_home(text, global);
        }
        self
    }

    pub(crate) fn status(mut self, status: ExitStatus) -> Self {
        self.status = status;
        self
    }
}

/// Hints that do not depend on the command.
fn hints(error: &dyn Error) -> Vec<String> {
    let step = advice_about_place(error);
    step.iter().map(ToString::to_string).collect()
}
