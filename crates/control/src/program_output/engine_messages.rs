//! Engine messages for people: its error events if it printed any, else its text without colours and frames.
//!
//! Not here: reading the output of a run's own engine (`runner::engine`).

use drivers::process::Captured;
use model::run::engine_event::{Diagnostic, EngineEvent, EventReader};

/// The error message of an engine that failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct EngineError(String);

impl EngineError {
    pub(crate) fn of(said: &Captured) -> Self {
        let told = EventReader::read_all(&said.stdout);
        let told = told.iter().filter_map(EngineEvent::as_diagnostic);
        let reports: Vec<String> = told.filter(|it| it.is_error()).map(report).collect();
        if !reports.is_empty() {
            return Self(reports.join("\n"));
        }
        let texts = [said.stderr_text(), said.stdout_text()];
        let words = unframed(&strip_ansi(&texts.join("\n")));
        if words.is_empty() {
            return Self(format!("it ended with {}", said.exit));
        }
        Self(words)
    }
}

fn report(diagnostic: &Diagnostic) -> String {
    let place = match (diagnostic.file(), diagnostic.line()) {
        (Some(file), Some(line)) => format!(" ({file} line {line})"),
        (Some(file), None) => format!(" ({file})"),
        (None, _) => String::new(),
    };
    let detail = match diagnostic.detail.trim() {
        "" => String::new(),
        detail => format!("\n{detail}"),
    };
    format!("{}{place}{detail}", diagnostic.summary)
}

/// Removes terminal escape sequences from a text.
pub fn strip_ansi(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| ('@'..='~').contains(&c));
        plain.push_str(end.map_or("", |end| &part[end + 1..]));
    }
    plain
}

fn unframed(text: &str) -> String {
    let inside = |line: &str| {
        let line = line.trim_end();
        let line = line.strip_prefix(['╷', '│', '╵']).unwrap_or(line);
        line.strip_prefix(' ').unwrap_or(line).to_owned()
    };
    let lines: Vec<String> = text.lines().map(inside).collect();
    let lines: Vec<&str> = lines
        .iter()
        .map(String::as_str)
        .filter(|line| !line.is_empty())
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_no_words() {
        let text = "\u{1b}[31m\u{1b}[1mError: \u{1b}[0mno [brackets]\u{1b}[0m\n\u{1b}[38;5;1m";
        assert_eq!(strip_ansi(text), "Error: no [brackets]\n");
    }

    #[test]
    fn a_frame_is_no_words() {
        let text =
            "\n╷\n│ Error: Invalid expression\n│ \n│   on main.tf line 1:\n│    1: x = \"${\"\n╵\n";
        let expected = "Error: Invalid expression\n  on main.tf line 1:\n   1: x = \"${\"";
        assert_eq!(unframed(text), expected);
    }
}
