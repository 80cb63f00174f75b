//! The text of one file: bounded, checked, parsed, with the positions people count.
//!
//! Not here: what blocks mean (`schema`, `fields`), what expressions are worth (`evaluator`).

use std::ops::Range;

use hcl_edit::structure::Body;

use super::prescan::{self, Excess};
use super::twice::{self, Twice};
use crate::diagnostic::{Finding, Location};
use crate::tree::{ReadFailure, Tree};

/// Larger files are refused: nobody writes them by hand.
pub(crate) const MAX_FILE_BYTES: usize = 5 * 1024 * 1024;

/// A file's text and where its lines begin.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
    lines: Vec<usize>,
    /// Length of a byte order mark, which is no part of what is parsed.
    skip: usize,
}

impl Source {
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

    /// What is parsed: spans count from here.
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

/// A file that could be parsed.
#[derive(Debug)]
pub(crate) struct ParsedFile {
    pub(crate) source: Source,
    pub(crate) body: Body,
    /// Names that stand twice: the body holds only the first of each.
    pub(crate) findings: Vec<Finding>,
}

pub(crate) fn parse(tree: &dyn Tree, path: &str) -> Result<ParsedFile, Finding> {
    let source = open(tree, path)?;
    let code = source.code();
    let excess = |excess| Flaw::Excess(excess).finding(&source);
    prescan::check(code).map_err(excess)?;
    let parsed = twice::parse(code);
    let (body, twice) = parsed.map_err(|err| Flaw::Syntax(err).finding(&source))?;
    let findings = twice.iter().map(|twice| stands_twice(twice, &source));
    Ok(ParsedFile {
        findings: findings.collect(),
        body,
        source,
    })
}

/// The text as it is: what stands twice is an error.
pub(crate) fn parse_source(source: &Source) -> Result<Body, Finding> {
    parse_text(source.code()).map_err(|flaw| flaw.finding(source))
}

/// Reads a file as text, or says why it is none.
pub(crate) fn open(tree: &dyn Tree, path: &str) -> Result<Source, Finding> {
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
            let source = Source::new(path, String::from_utf8_lossy(err.as_bytes()).into_owned());
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
    let source = Source::new(path, text);
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

/// What keeps a text from being HCL.
enum Flaw {
    Excess(Excess),
    Syntax(hcl_edit::parser::Error),
}

fn parse_text(code: &str) -> Result<Body, Flaw> {
    prescan::check(code).map_err(Flaw::Excess)?;
    hcl_edit::parser::parse_body(code).map_err(Flaw::Syntax)
}

impl Flaw {
    fn finding(&self, source: &Source) -> Finding {
        match self {
            Self::Excess(excess) => Finding::error("too-complex", excess.message())
                .at(source.location(excess.at..excess.at + 1), "here")
                .hint("split it"),
            Self::Syntax(err) => syntax_error(err, source),
        }
    }
}

fn stands_twice(twice: &Twice, source: &Source) -> Finding {
    Finding::error("duplicate-name", twice_words(twice))
        .at(source.location(twice.at.clone()), "again here")
        .at(source.location(twice.first.clone()), "first here")
        .hint("remove one of them")
}

fn twice_words(twice: &Twice) -> String {
    let place = if twice.in_object { "object" } else { "block" };
    format!("`{}` stands twice in one {place}", twice.name)
}

/// The parser's words where it knows the place; else what was left open.
fn syntax_error(err: &hcl_edit::parser::Error, source: &Source) -> Finding {
    let code = source.code();
    let message = err.message();
    let said = |what: &str| Finding::error("syntax", format!("syntax error: {what}"));
    let vague = ["block body", "unexpected token", "eof", "heredoc end"];
    let open = prescan::left_open(code);
    if let (true, Some((at, what))) = (vague.iter().any(|word| message.contains(word)), &open) {
        return said(what).at(source.location(*at..at + 1), "opened here");
    }
    // At the end of the file the parser points at the last byte.
    let offset = err.location().offset().min(code.len());
    let at = (0..=offset).rev().find(|at| code.is_char_boundary(*at));
    let at = at.unwrap_or(0);
    if let Some(doubled) = twice::doubled(code, err) {
        let finding = Finding::error("duplicate-name", twice_words(&doubled));
        return finding.at(source.location(doubled.at), "again here");
    }
    let finding = if message.starts_with("invalid expression") {
        said("expected a value")
    } else if message.contains("redefined object key") {
        said("this key stands twice in one object")
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
