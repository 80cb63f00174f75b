//! The lines of a file that a finding refers to, with carets below.

use std::ops::Range;

use model::base::diagnostic::Location;

use crate::view::style::{Symbol, TextRole, ViewOptions};
use crate::view::text;

const TAB: usize = 4;
/// Bytes kept on each side of a caret: a line may be a whole minified file.
const NEAR: usize = 1000;
/// The maximum width of an excerpt, also on a wide terminal.
const WIDEST: usize = 160;

/// A file and where its lines begin.
pub(super) struct Source<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

/// Lines to show, and what is marked in them.
pub(super) struct Excerpt<'a> {
    /// The number of the first line, counted from 1.
    first: usize,
    lines: Vec<&'a str>,
    /// Bytes marked in the first line. If none, all lines are marked as a whole.
    marked: Option<Range<usize>>,
}

/// The text about the marked part.
pub(super) struct Label<'a> {
    pub(super) words: &'a str,
    pub(super) ink: TextRole,
}

impl<'a> Source<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let after = |(at, _)| at + 1;
        let starts = std::iter::once(0)
            .chain(text.match_indices('\n').map(after))
            .collect();
        Self { text, starts }
    }

    /// The lines of a span; `None` if it is not in this file at all.
    pub(super) fn excerpt(&self, at: &Location) -> Option<Excerpt<'a>> {
        let span = self.span(at)?;
        let first = self.line_of(span.start);
        // A span that ends with its line break belongs to its line alone.
        let last = self.line_of(span.end.saturating_sub(1).max(span.start));
        let lines: Vec<&str> = (first..=last).filter_map(|line| self.line(line)).collect();
        let start = span.start - self.starts[first];
        let marked = (first == last).then(|| {
            let end = (span.end - self.starts[first]).min(lines[0].len());
            start.min(lines[0].len())..end.max(start.min(lines[0].len()))
        });
        Some(Excerpt {
            first: first + 1,
            lines,
            marked,
        })
    }

    /// The bytes of a location. If its offsets do not match its line (the file changed since, or began with a
    /// byte order mark), the line is used.
    fn span(&self, at: &Location) -> Option<Range<usize>> {
        let whole = at.start <= at.end
            && self.text.is_char_boundary(at.start)
            && self.text.is_char_boundary(at.end);
        if whole && self.line_of(at.start) + 1 == at.line {
            return Some(at.start..at.end);
        }
        let line = at.line.checked_sub(1)?;
        let words = self.line(line)?;
        let column = at.column.saturating_sub(1);
        let offset = words
            .char_indices()
            .nth(column)
            .map_or(words.len(), |(at, _)| at);
        let start = self.starts[line] + offset;
        Some(start..start)
    }

    /// The line of an offset, counted from 0.
    fn line_of(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset) - 1
    }

    fn line(&self, line: usize) -> Option<&'a str> {
        let start = *self.starts.get(line)?;
        let end = self
            .starts
            .get(line + 1)
            .copied()
            .unwrap_or(self.text.len());
        Some(self.text[start..end].trim_end_matches(['\r', '\n']))
    }
}

impl Excerpt<'_> {
    /// The column of `|`.
    pub(super) fn edge(&self) -> usize {
        self.digits() + 1
    }

    pub(super) fn render(&self, position: &str, label: &Label<'_>, look: ViewOptions) -> String {
        let arrow = look.paint(TextRole::Faint, "-->");
        let mut rows = vec![format!("{}{arrow} {position}", " ".repeat(self.digits()))];
        rows.push(self.row("", "", look));
        match &self.marked {
            Some(marked) => self.one_line(marked, label, look, &mut rows),
            None => self.several_lines(label, look, &mut rows),
        }
        rows.push(String::new());
        rows.join("\n")
    }

    fn one_line(
        &self,
        marked: &Range<usize>,
        label: &Label<'_>,
        look: ViewOptions,
        rows: &mut Vec<String>,
    ) {
        let room = look.room(self.edge() + 2).min(WIDEST);
        let (line, carets) = window(self.lines[0], marked, room, look);
        rows.push(self.row(&self.first.to_string(), &line, look));
        let marks = format!(
            "{}{}",
            " ".repeat(carets.start),
            look.paint(label.ink, &"^".repeat(carets.len())),
        );
        let label_width = text::width(&text::clean(label.words));
        if carets.end + 1 + label_width <= room || label.words.is_empty() {
            rows.push(self.row(
                "",
                format!("{marks} {}", text::clean(label.words)).trim_end(),
                look,
            ));
            return;
        }
        rows.push(self.row("", &marks, look));
        // The label is below its caret if that leaves enough room, else at the left.
        let indent = if carets.start + 32 <= room {
            carets.start
        } else {
            2
        };
        for words in text::wrap(label.words, room - indent) {
            rows.push(self.row("", &format!("{}{words}", " ".repeat(indent)), look));
        }
    }

    fn several_lines(&self, label: &Label<'_>, look: ViewOptions, rows: &mut Vec<String>) {
        let room = look.room(self.edge() + 4).min(WIDEST);
        let folded = self.lines.len() > 5;
        for (n, line) in self.lines.iter().enumerate() {
            if folded && n == 3 {
                rows.push(self.row("", look.sign(Symbol::Ellipsis), look));
            }
            if folded && n >= 3 && n + 1 < self.lines.len() {
                continue;
            }
            let (line, _) = window(line, &(0..0), room, look);
            let line = format!("{} {line}", look.paint(label.ink, ">"));
            rows.push(self.row(&(self.first + n).to_string(), line.trim_end(), look));
        }
        for words in text::wrap(label.words, room) {
            rows.push(self.row("", &format!("  {words}"), look));
        }
    }

    fn row(&self, number: &str, words: &str, look: ViewOptions) -> String {
        let gutter = format!("{} |", text::pad_left(number, self.digits()));
        let space = if words.is_empty() { "" } else { " " };
        format!("{}{space}{words}", look.paint(TextRole::Faint, &gutter))
    }

    fn digits(&self) -> usize {
        // At least two, so that most findings of a small file are aligned.
        (self.first + self.lines.len() - 1).to_string().len().max(2)
    }
}

/// The part of a line that fits in `room` columns, and the columns of its carets.
fn window(
    line: &str,
    marked: &Range<usize>,
    room: usize,
    look: ViewOptions,
) -> (String, Range<usize>) {
    let from = line.floor_char_boundary(marked.start.saturating_sub(NEAR));
    let to = line.ceil_char_boundary((marked.start + NEAR).min(line.len()));
    let near = &line[from..to];
    let shown = on_screen(near);
    let until = |offset: usize| text::width(&on_screen(&near[..offset.clamp(from, to) - from]));
    let carets = until(marked.start)..until(marked.end).max(until(marked.start) + 1);

    let whole = from == 0 && to == line.len();
    if whole && text::width(&shown) <= room {
        return (shown, carets);
    }
    let ellipsis = look.sign(Symbol::Ellipsis);
    let margin = text::width(ellipsis);
    // The caret is in the first third, so that the text after it can be read.
    let skipped = if carets.end + margin < room && from == 0 {
        0
    } else {
        let last_screen = (text::width(&shown) + margin).saturating_sub(room);
        let at_end = if to == line.len() {
            last_screen
        } else {
            usize::MAX
        };
        carets.start.saturating_sub(room / 3).min(at_end)
    };
    let (before, skipped) = if skipped == 0 && from == 0 {
        (String::new(), 0)
    } else {
        // `tail` counts from the end; a wide character at the cut is dropped.
        let kept = text::tail(&shown, text::width(&shown).saturating_sub(skipped + margin));
        (
            ellipsis.to_owned(),
            text::width(&shown) - text::width(kept) - margin,
        )
    };
    let rest = text::tail(&shown, text::width(&shown) - skipped - text::width(&before));
    let view_room = room - text::width(&before);
    let mut view = text::cut(rest, view_room, look);
    if to < line.len() && !view.ends_with(ellipsis) {
        view = format!("{}{ellipsis}", text::head(&view, view_room - margin));
    }
    let start = carets.start.saturating_sub(skipped);
    let end = carets.end.saturating_sub(skipped).min(room).max(start + 1);
    (format!("{before}{view}"), start..end)
}

/// A line of a file with tabs as spaces and harmful characters escaped.
fn on_screen(line: &str) -> String {
    let mut shown = String::new();
    let mut column = 0;
    for part in line.split_inclusive('\t') {
        let words = text::clean(part.trim_end_matches('\t'));
        column += text::width(&words);
        shown.push_str(&words);
        if part.ends_with('\t') {
            let spaces = TAB - column % TAB;
            shown.push_str(&" ".repeat(spaces));
            column += spaces;
        }
    }
    shown
}
