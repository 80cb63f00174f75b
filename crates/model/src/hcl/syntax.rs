//! The text of one file: limited in size, checked, parsed, with line and column positions.
//!
//! Not here: what blocks mean (`schema`, `fields`), evaluating expressions (`evaluator`).

use std::ops::Range;

use hcl_edit::structure::Body;

use crate::base::diagnostic::{Finding, Location};
use crate::base::tree::{ReadFailure, Tree};
use crate::hcl::unclosed_delimiter;

/// Larger files are refused.
pub(crate) const MAX_FILE_BYTES: usize = 5 * 1024 * 1024;
/// The limit on `=` and `:` in a file: the parser compares each key of an object with all keys before it.
const MAX_ENTRIES: usize = 20_000;

/// A file's text and the starts of its lines.
#[derive(Debug)]
pub(crate) struct SourceFile {
    pub(crate) path: String,
    pub(crate) text: String,
    lines: Vec<usize>,
    /// Length of a byte order mark, which is not parsed.
    skip: usize,
}

impl SourceFile {
    pub(crate) fn new(path: &str, text: String) -> Self {
        let lines = std::iter::once(0)
            .chain(
                text.bytes()
                    .enumerate()
                    .filter(|(_, byte)| *byte == b'\n')
                    .map(|(at, _)| at + 1),
            )
            .collect();
        let skip = if text.starts_with('\u{feff}') { 3 } else { 0 };
        Self {
            path: path.to_owned(),
            text,
            lines,
            skip,
        }
    }

    /// The text that is parsed. Spans are relative to it.
    pub(crate) fn code(&self) -> &str {
        self.text.get(self.skip..).unwrap_or_default()
    }

    pub(crate) fn slice(&self, span: Range<usize>) -> &str {
        self.code().get(span).unwrap_or_default()
    }

    /// The offset of a line and column counted from 1, as other parsers report them.
    pub(crate) fn line_column(&self, line: usize, column: usize) -> usize {
        let begin = self.lines.get(line.saturating_sub(1)).copied().unwrap_or(0);
        let at = (begin + column.saturating_sub(1)).min(self.text.len());
        let at = (0..=at).rev().find(|at| self.text.is_char_boundary(*at));
        at.unwrap_or(0).saturating_sub(self.skip)
    }

    pub(crate) fn location(&self, span: Range<usize>) -> Location {
        let (start, end) = (span.start + self.skip, span.end + self.skip);
        let line = self
            .lines
            .partition_point(|begin| *begin <= start)
            .saturating_sub(1);
        let begin = self.lines.get(line).copied().unwrap_or(0);
        let begin = if line == 0 { self.skip } else { begin };
        let column = self
            .text
            .get(begin..start)
            .map_or(start.saturating_sub(begin), |before| before.chars().count());
        Location {
            file: self.path.clone(),
            line: line + 1,
            column: column + 1,
            start,
            end,
        }
    }
}

/// A parsed file.
#[derive(Debug)]
pub(crate) struct ParsedFile {
    pub(crate) source: SourceFile,
    pub(crate) body: Body,
}

pub(crate) fn parse(tree: &dyn Tree, path: &str) -> Result<ParsedFile, Finding> {
    let source = open(tree, path)?;
    let body = parse_source(&source)?;
    Ok(ParsedFile { source, body })
}

pub(crate) fn parse_source(source: &SourceFile) -> Result<Body, Finding> {
    let code = source.code();
    let entries = code.bytes().filter(|byte| matches!(byte, b'=' | b':'));
    if entries.count() > MAX_ENTRIES {
        let what = format!("the file has more than {MAX_ENTRIES} entries");
        return Err(too_complex(what, source.location(0..0)));
    }
    hcl_edit::parser::parse_body(code).map_err(|err| syntax_error(&err, source))
}

fn too_complex(what: impl Into<String>, at: Location) -> Finding {
    Finding::error("too-complex", what)
        .at(at, "here")
        .hint("split it")
}

/// Reads a file as text, or reports why it is not text.
pub(crate) fn open(tree: &dyn Tree, path: &str) -> Result<SourceFile, Finding> {
    let bytes = tree
        .read(path)
        .map_err(|failure| unreadable(path, &failure))?;
    if bytes.len() > MAX_FILE_BYTES {
        let limit = u64::try_from(MAX_FILE_BYTES).unwrap_or(u64::MAX);
        return Err(unreadable(path, &ReadFailure::TooLarge { limit }));
    }
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(err) => {
            let at = err.utf8_error().valid_up_to();
            let source =
                SourceFile::new(path, String::from_utf8_lossy(err.as_bytes()).into_owned());
            let place =
                source.location(at.saturating_sub(source.skip)..at.saturating_sub(source.skip) + 1);
            let finding = Finding::error("not-utf8", format!("`{path}` is not UTF-8 text"))
                .at(
                    place,
                    format!("the byte at offset {at} belongs to no character"),
                )
                .hint("save the file as UTF-8");
            return Err(finding);
        }
    };
    let source = SourceFile::new(path, text);
    if let Some(at) = source.code().find('\0') {
        let finding = Finding::error("nul-byte", format!("`{path}` holds a NUL byte"))
            .at(source.location(at..at + 1), "here")
            .hint("is this a text file?");
        return Err(finding);
    }
    Ok(source)
}

fn unreadable(path: &str, failure: &ReadFailure) -> Finding {
    Finding::error(
        "unreadable-file",
        format!("could not read `{path}`: {failure}"),
    )
    .at(
        Location {
            file: path.to_owned(),
            line: 1,
            column: 1,
            start: 0,
            end: 0,
        },
        "this file",
    )
}

/// The parser's message if it has a position, or else what was left open.
fn syntax_error(err: &hcl_edit::parser::Error, source: &SourceFile) -> Finding {
    let code = source.code();
    let message = err.message();
    // At the end of the file the parser points to the last byte.
    let offset = err.location().offset().min(code.len());
    let at = (0..=offset).rev().find(|at| code.is_char_boundary(*at));
    let at = at.unwrap_or(0);
    if message.contains("nesting depth") {
        return too_complex("nested deeper than 64 levels", source.location(at..at + 1));
    }
    if message.contains("redefined") {
        return duplicate_name(message, at, source);
    }
    let said = |what: &str| Finding::error("syntax", format!("syntax error: {what}"));
    let vague = ["block body", "unexpected token", "eof", "heredoc end"];
    let open = unclosed_delimiter::find(code);
    if let (true, Some((at, what))) = (vague.iter().any(|word| message.contains(word)), &open) {
        return said(what).at(source.location(*at..at + 1), "opened here");
    }
    let finding = if message.starts_with("invalid expression") {
        said("expected a value")
    } else {
        said(message)
    };
    let finding = finding.at(source.location(at..at + 1), "here");
    match open {
        Some((opener, what)) if opener < at => {
            finding.at(source.location(opener..opener + 1), what)
        }
        _ if message.contains("block body") => {
            finding.hint("a block on one line holds at most one argument")
        }
        _ => finding,
    }
}

/// The parser stops at the second of two equal names in a block or object.
fn duplicate_name(message: &str, at: usize, source: &SourceFile) -> Finding {
    let is_object = message.contains("object key");
    let place = if is_object { "object" } else { "block" };
    let is_part = |c: &char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let rest = source.code()[at..].trim_start_matches('"');
    let name: String = rest.chars().take_while(is_part).collect();
    let what = if name.is_empty() {
        format!("a key is set twice in one {place}")
    } else {
        format!("`{name}` is set twice in one {place}")
    };
    Finding::error("duplicate-name", what)
        .at(source.location(at..at + name.len().max(1)), "again here")
        .hint("remove one of them")
}
