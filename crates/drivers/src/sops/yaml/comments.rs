//! Finds what is between the values of a YAML text: comments, and the dashes of lists.
//!
//! The parser skips comments. They are in the gaps between its events, which contain no quoted text.

/// A comment and its position.
pub(super) struct PlacedComment {
    pub(super) text: String,
    /// Counted from 0.
    pub(super) column: usize,
    pub(super) stands: CommentPosition,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommentPosition {
    /// On a line of its own.
    Alone,
    /// After a dash, with nothing else on the line.
    BehindDash,
    /// After the indicator of a block scalar, `|` or `>`, which follows in the events.
    BehindMark,
    /// After something else.
    Behind,
}

/// The contents of a gap.
#[derive(Default)]
pub(super) struct Gap {
    pub(super) comments: Vec<PlacedComment>,
    /// The column of the last dash.
    pub(super) dash: Option<usize>,
    /// Whether a dash follows the last comment, so the list continues.
    pub(super) dash_after: bool,
}

/// Reads `text[from..to]`.
pub(super) fn scan(text: &str, from: usize, to: usize) -> Gap {
    let mut gap = Gap::default();
    let mut at = from;
    while at < to {
        let line_start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = text[at..]
            .find('\n')
            .map_or(text.len(), |length| at + length);
        let end = line_end.min(to);
        scan_line(text, line_start, at, end, line_end, &mut gap);
        at = line_end + 1;
    }
    gap
}

/// The end of a quoted scalar that begins at `start`.
pub(super) fn end_of_quoted(text: &str, start: usize) -> usize {
    let mut chars = text[start..].char_indices().peekable();
    let quote = chars.next().map(|(_, quote)| quote);
    while let Some((at, c)) = chars.next() {
        let is_doubled = || c == '\'' && text[start + at + 1..].starts_with('\'');
        if c == '\\' && quote == Some('"') {
            chars.next();
        } else if Some(c) == quote {
            if !is_doubled() {
                return start + at + 1;
            }
            chars.next();
        }
    }
    text.len()
}

fn scan_line(text: &str, start: usize, from: usize, to: usize, line_end: usize, gap: &mut Gap) {
    let line = &text[start..line_end];
    // Directives and document markers are not lists.
    if start == from && (line.starts_with("---") || line.starts_with('%')) {
        if let Some(at) = line.find(" #") {
            gap.comments.push(PlacedComment {
                text: line[at + 2..].trim_end_matches('\r').to_owned(),
                column: at + 1,
                stands: CommentPosition::Behind,
            });
        }
        return;
    }
    let mut previous = text[..from].chars().next_back();
    for (offset, c) in text[from..to].char_indices() {
        let at = from + offset;
        let is_separated = previous.is_none_or(char::is_whitespace);
        match c {
            '#' if is_separated => {
                let before = &text[start..at];
                let stands = if before.trim().is_empty() {
                    CommentPosition::Alone
                } else if before.chars().all(|c| c == ' ' || c == '-') {
                    CommentPosition::BehindDash
                } else if is_mark(&text[from..at]) {
                    CommentPosition::BehindMark
                } else {
                    CommentPosition::Behind
                };
                gap.comments.push(PlacedComment {
                    text: text[at + 1..line_end].trim_end_matches('\r').to_owned(),
                    column: before.chars().count(),
                    stands,
                });
                gap.dash_after = false;
                return;
            }
            '-' if is_separated => {
                let next = text[at + 1..].chars().next();
                if next.is_none_or(char::is_whitespace) {
                    gap.dash = Some(text[start..at].chars().count());
                    gap.dash_after = true;
                }
            }
            _ => {}
        }
        previous = Some(c);
    }
}

/// Whether a part of a gap ends with the indicator of a block scalar: `|`, `>-`, `|2+`.
fn is_mark(text: &str) -> bool {
    let word = text.split_whitespace().next_back().unwrap_or_default();
    let indicators = word.strip_prefix(['|', '>']);
    indicators.is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || "+-".contains(c)))
}
