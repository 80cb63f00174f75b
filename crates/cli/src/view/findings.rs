//! Findings as text for people: the problem, an excerpt with a caret, the next step.
//!
//! Not here: detecting them (`model`).

mod excerpt;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use model::base::diagnostic::{Finding, Location, Severity};
use serde_json::{Value, json};

use self::excerpt::{Label, Source};
use super::style::{TextRole, ViewOptions};
use super::text::{self, clean, count};

/// All findings, worst first, and their number. `texts` contains the files by the names that the findings
/// use. Without its file, a finding is shown without an excerpt.
pub fn render(findings: &[Finding], texts: &BTreeMap<String, String>, look: ViewOptions) -> String {
    let page = FindingsView {
        sources: texts
            .iter()
            .map(|(file, text)| (file.as_str(), Source::new(text)))
            .collect(),
        look,
    };
    let (notes, problems): (Vec<&Finding>, Vec<&Finding>) = worst_first(findings)
        .into_iter()
        .partition(|finding| finding.severity == Severity::Note);
    let mut blocks: Vec<String> = problems.iter().map(|finding| page.block(finding)).collect();
    if !notes.is_empty() {
        blocks.push(page.notes(&notes));
    }
    blocks.extend(closing(&problems).map(|line| format!("{line}\n")));
    blocks.join("\n")
}

/// The same as data: `findings` in the order of the page, and how many of each kind.
pub fn findings_json(findings: &[Finding]) -> Value {
    let of = |severity| {
        findings
            .iter()
            .filter(|finding| finding.severity == severity)
            .count()
    };
    json!({
        "errors": of(Severity::Error),
        "warnings": of(Severity::Warning),
        "notes": of(Severity::Note),
        "findings": worst_first(findings),
    })
}

fn worst_first(findings: &[Finding]) -> Vec<&Finding> {
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    sorted.sort_by_key(|finding| finding.severity);
    sorted
}

/// `3 errors and 1 warning in 2 files`.
fn closing(problems: &[&Finding]) -> Option<String> {
    let of = |severity| {
        problems
            .iter()
            .filter(|finding| finding.severity == severity)
            .count()
    };
    let counts: Vec<String> = [
        (of(Severity::Error), "error"),
        (of(Severity::Warning), "warning"),
    ]
    .into_iter()
    .filter(|(number, _)| *number > 0)
    .map(|(number, noun)| count(number, noun))
    .collect();
    if counts.is_empty() {
        return None;
    }
    let main_places = problems.iter().filter_map(|finding| finding.places.first());
    let files: BTreeSet<&str> = main_places.map(|place| place.at.file.as_str()).collect();
    let place = match files.first() {
        None => String::new(),
        Some(file) if files.len() == 1 => format!(" in {}", clean(file)),
        Some(_) => format!(" in {}", count(files.len(), "file")),
    };
    Some(format!("{}{place}", text::list(&counts)))
}

struct FindingsView<'a> {
    sources: BTreeMap<&'a str, Source<'a>>,
    look: ViewOptions,
}

impl FindingsView<'_> {
    fn block(&self, finding: &Finding) -> String {
        let mut out = self.heading(finding);
        // The column of `|` and `=`: right of the line numbers.
        let mut edge = 2;
        match finding.places.as_slice() {
            [] => {}
            [place] => {
                let excerpt = self
                    .sources
                    .get(place.at.file.as_str())
                    .and_then(|source| source.excerpt(&place.at));
                if let Some(excerpt) = excerpt {
                    edge = excerpt.edge();
                    let (ink, _) = severity_words(finding.severity);
                    let label = Label {
                        words: &place.label,
                        ink,
                    };
                    out.push_str(&excerpt.render(&position(&place.at), &label, self.look));
                    if finding.hint.is_some() {
                        out.push_str(
                            &self
                                .look
                                .paint(TextRole::Faint, &format!("{}|", " ".repeat(edge))),
                        );
                        out.push('\n');
                    }
                } else {
                    out.push_str(&self.place_lines(&[(position(&place.at), &place.label)]));
                }
            }
            places => {
                let lines: Vec<(String, &str)> = places
                    .iter()
                    .map(|place| (position(&place.at), place.label.as_str()))
                    .collect();
                out.push_str(&self.place_lines(&lines));
            }
        }
        if let Some(hint) = &finding.hint {
            out.push_str(&self.hint(hint, edge));
        }
        out
    }

    fn heading(&self, finding: &Finding) -> String {
        let (ink, word) = severity_words(finding.severity);
        let indent = word.len() + 1;
        let lines: Vec<String> = text::wrap(&finding.message, self.look.room(indent))
            .iter()
            .map(|line| self.look.paint(TextRole::Strong, line))
            .collect();
        let message = lines.join(&format!("\n{}", " ".repeat(indent)));
        format!("{} {message}\n", self.look.paint(ink, word))
    }

    /// `  --> file:line:column   label`, with the labels aligned.
    fn place_lines(&self, places: &[(String, &str)]) -> String {
        let widest = places
            .iter()
            .map(|(position, _)| text::width(position))
            .max()
            .unwrap_or(0);
        let arrow = self.look.paint(TextRole::Faint, "-->");
        let mut out = String::new();
        for (position, label) in places {
            let line = format!(
                "  {arrow} {}   {}",
                text::pad(position, widest),
                clean(label)
            );
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }

    fn hint(&self, hint: &str, edge: usize) -> String {
        let indent = edge + "= hint: ".len();
        let lines = text::wrap(hint, self.look.room(indent));
        format!(
            "{}{} {} {}\n",
            " ".repeat(edge),
            self.look.paint(TextRole::Faint, "="),
            self.look.paint(TextRole::Hint, "hint:"),
            lines.join(&format!("\n{}", " ".repeat(indent))),
        )
    }

    /// One line for each note: nothing has to be fixed.
    fn notes(&self, notes: &[&Finding]) -> String {
        let mut out = String::new();
        for note in notes {
            out.push_str(self.heading(note).trim_end());
            if let Some(place) = note.places.first() {
                let words = position(&place.at);
                let used = "note: ".len() + text::width(&clean(&note.message));
                if used + 3 + text::width(&words) <= self.look.width {
                    out.push_str("   ");
                    out.push_str(&self.look.paint(TextRole::Faint, &words));
                } else {
                    out.push('\n');
                    out.push_str(self.place_lines(&[(words, "")]).trim_end());
                }
            }
            out.push('\n');
            if let Some(hint) = &note.hint {
                out.push_str(&self.hint(hint, 2));
            }
        }
        out
    }
}

fn severity_words(severity: Severity) -> (TextRole, &'static str) {
    match severity {
        Severity::Error => (TextRole::Error, "error:"),
        Severity::Warning => (TextRole::Warning, "warning:"),
        Severity::Note => (TextRole::Hint, "note:"),
    }
}

fn position(at: &Location) -> String {
    format!("{}:{}:{}", clean(&at.file), at.line, at.column)
}
