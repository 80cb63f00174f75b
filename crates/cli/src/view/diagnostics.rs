//! An engine's diagnostic: summary, position, source line, and explanation.
//!
//! Not here: reading it from the engine's events.

use super::style::{Symbol, TextRole, ViewOptions};
use super::text::{self, clean};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiagnosticView {
    pub is_warning: bool,
    pub summary: String,
    /// May have several paragraphs, or be empty.
    pub detail: String,
    /// The resource, such as `azurerm_subnet.nodes`.
    pub address: Option<String>,
    pub source: Option<DiagnosticSource>,
}

/// Where in the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiagnosticSource {
    /// Relative to the project's root.
    pub file: String,
    pub line: usize,
    /// The source from that line on, if the engine gave it.
    pub code: Option<String>,
}

/// The diagnostic, every line indented by `indent` spaces.
pub fn render(diagnostic: &DiagnosticView, indent: usize, look: ViewOptions) -> String {
    let margin = " ".repeat(indent);
    let (ink, word) = if diagnostic.is_warning {
        (TextRole::Warning, "Warning:")
    } else {
        (TextRole::Error, "Error:")
    };
    let summary = clean(diagnostic.summary.trim());
    let mut out = format!(
        "{margin}{} {}\n",
        look.paint(ink, word),
        look.paint(TextRole::Strong, &summary)
    );
    if let Some(place) = place(diagnostic) {
        for line in text::wrap(&place, look.room(indent + 2)) {
            push(&mut out, &format!("{margin}  {line}"));
        }
    }
    let source = diagnostic.source.as_ref();
    if let Some((source, code)) = source.and_then(|source| Some((source, source.code.as_ref()?))) {
        for (n, line) in code.lines().take(3).enumerate() {
            let number = text::pad_left(&(source.line + n).to_string(), 4);
            let gutter = look.paint(
                TextRole::Faint,
                &format!("{number} {}", look.sign(Symbol::Rule)),
            );
            let line = text::cut(
                &clean(&line.replace('\t', "    ")),
                look.room(indent + 9),
                look,
            );
            push(&mut out, &format!("{margin}  {gutter} {line}"));
        }
    }
    // The engine's own line breaks are for its own width; a paragraph ends at an empty line.
    for line in text::wrap(
        &joined(diagnostic.detail.trim()),
        look.room(indent + 2).min(100),
    ) {
        push(&mut out, &format!("{margin}  {line}"));
    }
    out
}

/// `with azurerm_subnet.nodes, on infra/azure/network/main.tf line 12`.
fn place(diagnostic: &DiagnosticView) -> Option<String> {
    let with = diagnostic
        .address
        .as_ref()
        .map(|address| format!("with {}", clean(address)));
    let on = diagnostic
        .source
        .as_ref()
        .map(|source| format!("on {} line {}", clean(&source.file), source.line));
    let parts: Vec<String> = with.into_iter().chain(on).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Joins lines that were only broken to fit; lists and indented lines stay as they are.
fn joined(detail: &str) -> String {
    let mut all = String::new();
    let mut flowing = false;
    for line in detail.lines() {
        let flows = line.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '"' | '`' | '('));
        if flowing && flows {
            all.push(' ');
        } else if !all.is_empty() {
            all.push('\n');
        }
        all.push_str(line.trim_end());
        flowing = flows && line.len() >= 50;
    }
    all
}

fn push(out: &mut String, line: &str) {
    out.push_str(line.trim_end());
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::color_tags::tagged;

    fn in_use() -> DiagnosticView {
        DiagnosticView {
            is_warning: false,
            summary: "subnet is in use".to_owned(),
            detail: "The subnet \"nodes\" cannot be deleted while network interfaces\nare attached to it, and two of them are:\n\n  - nic-1\n  - nic-2\n\nDetach them first.\n".to_owned(),
            address: Some("azurerm_subnet.nodes".to_owned()),
            source: Some(DiagnosticSource {
                file: "infra/azure/network/main.tf".to_owned(),
                line: 12,
                code: Some("resource \"azurerm_subnet\" \"nodes\" {".to_owned()),
            }),
        }
    }

    #[test]
    fn everything_an_engine_says() {
        insta::assert_snapshot!(render(&in_use(), 4, ViewOptions::plain(80)), @r#"
        Error: subnet is in use
          with azurerm_subnet.nodes, on infra/azure/network/main.tf line 12
            12 │ resource "azurerm_subnet" "nodes" {
          The subnet "nodes" cannot be deleted while network interfaces are attached
          to it, and two of them are:

            - nic-1
            - nic-2

          Detach them first.
        "#);
    }

    #[test]
    fn a_summary_alone() {
        let warning = DiagnosticView {
            is_warning: true,
            summary: "Value for\x1b[2J undeclared variable".to_owned(),
            ..DiagnosticView::default()
        };
        let look = ViewOptions {
            color: true,
            ..ViewOptions::plain(80)
        };
        insta::assert_snapshot!(tagged(&render(&warning, 0, look)), @r"<bold yellow>Warning:</> <bold>Value for\u001b[2J undeclared variable</>");
    }
}
