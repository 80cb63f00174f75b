//! The message of a commit that publishes facts: a summary for people, trailers for programs.

use std::fmt::Write as _;

use crate::stage::contract::ContractName;

/// The state that the facts were read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateMark {
    pub serial: u64,
    pub lineage: String,
}

/// What a commit records about the origin of its facts.
#[derive(Clone, Debug)]
pub struct CommitMessage<'a> {
    pub project: &'a str,
    /// None for break-glass records.
    pub stack: Option<&'a str>,
    /// `r44`; none if it was published manually.
    pub run: Option<String>,
    pub state: Option<&'a StateMark>,
    pub contracts: Vec<&'a ContractName>,
    pub source: Option<&'a str>,
    pub written: Vec<&'a str>,
    pub withdrawn: Vec<&'a str>,
    /// Whether it changes break-glass records.
    pub records: bool,
    /// The person who overwrote changes of others, and the reason.
    pub taken_over: Option<(&'a str, &'a str)>,
}

/// The project that the commit belongs to.
pub const TRAILER_PROJECT: &str = "Terrane-Project";

impl CommitMessage<'_> {
    pub fn render(&self) -> String {
        let of = self.stack.map(|stack| format!(" of {}", line(stack)));
        let of = of.unwrap_or_default();
        let subject = match (self.written.is_empty(), self.withdrawn.is_empty()) {
            _ if self.taken_over.is_some() => format!("take over facts{of}"),
            (false, _) => format!("publish facts{of}"),
            (true, false) => format!("withdraw facts{of}"),
            (true, true) if self.records => "record break-glass acts".to_owned(),
            (true, true) => format!("note whose facts{of} are"),
        };
        let mut text = format!("{subject}\n\n");
        for (mark, paths) in [("+", &self.written), ("-", &self.withdrawn)] {
            for path in paths {
                let _ = writeln!(text, "{mark} {}", line(path));
            }
        }
        if !(self.written.is_empty() && self.withdrawn.is_empty()) {
            text.push('\n');
        }
        let mut trailer = |name: &str, value: &str| {
            let _ = writeln!(text, "{name}: {}", line(value));
        };
        trailer(TRAILER_PROJECT, self.project);
        if let Some(stack) = self.stack {
            trailer("Terrane-Stack", stack);
        }
        if let Some(run) = &self.run {
            trailer("Terrane-Run", run);
        }
        if let Some(state) = self.state {
            trailer("Terrane-Serial", &state.serial.to_string());
            trailer("Terrane-Lineage", &state.lineage);
        }
        for contract in &self.contracts {
            trailer("Terrane-Contract", &contract.to_string());
        }
        if let Some(source) = self.source {
            trailer("Terrane-Source", source);
        }
        if let Some((person, reason)) = self.taken_over {
            trailer("Terrane-Taken-Over-By", person);
            trailer("Terrane-Reason", reason);
        }
        text
    }
}

/// A value on one line, so that it cannot add a trailer.
fn line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// The last value of a trailer in a message.
pub fn trailer<'a>(message: &'a str, name: &str) -> Option<&'a str> {
    let last = message.trim_end().rsplit("\n\n").next()?;
    last.lines()
        .rev()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}
