//! A small table with aligned columns. The last column takes the remaining room, or is below the others if
//! that is too little.

use super::style::{TextRole, ViewOptions};
use super::text;

const GAP: usize = 3;

/// The minimum width of the last column beside the others, if it has that much text.
const LAST: usize = 24;
/// The minimum width to which other columns are cut for it.
const NARROWEST: usize = 16;
/// The indentation of the last column if it is below the others.
const BELOW: usize = 4;
/// The minimum width of the other columns then, in a very narrow terminal.
const LEAST: usize = 4;

#[derive(Clone, Debug)]
pub struct Table {
    headings: Vec<String>,
    numbers: Vec<usize>,
    rows: Vec<Row>,
}

#[derive(Clone, Debug)]
enum Row {
    Cells(Vec<String>),
    /// A line of text above the rows that it describes.
    Line(String),
}

impl Table {
    pub fn new<H: Into<String>>(headings: impl IntoIterator<Item = H>) -> Self {
        Self {
            headings: headings.into_iter().map(Into::into).collect(),
            numbers: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Aligns a column to the right, counted from 0.
    #[must_use]
    pub fn right(mut self, column: usize) -> Self {
        self.numbers.push(column);
        self
    }

    /// Adds a row; cells that are missing at its end stay empty.
    pub fn row<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) {
        let cells = cells.into_iter().map(Into::into);
        self.rows.push(Row::Cells(cells.collect()));
    }

    /// Adds a line that has no columns.
    pub fn line(&mut self, words: impl Into<String>) {
        self.rows.push(Row::Line(words.into()));
    }

    fn cells(&self) -> impl Iterator<Item = &Vec<String>> {
        self.rows.iter().filter_map(|row| match row {
            Row::Cells(cells) => Some(cells),
            Row::Line(_) => None,
        })
    }

    /// The heading and the rows; empty without rows.
    pub fn render(&self, look: ViewOptions) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let widths = (0..self.headings.len())
            .map(|column| {
                let cells = self.cells().filter_map(|row| row.get(column));
                let widest = cells.map(|cell| text::width(&text::clean(cell))).max();
                widest.unwrap_or(0).max(text::width(&self.headings[column]))
            })
            .collect();
        let (widths, is_below) = self.fitted(widths, look);
        let mut out = String::new();
        for line in self.lines(&self.headings, &widths, is_below, look) {
            out.push_str(&look.paint(TextRole::Strong, &line));
            out.push('\n');
        }
        for row in &self.rows {
            let lines = match row {
                Row::Cells(cells) => self.lines(cells, &widths, is_below, look),
                Row::Line(words) if look.piped => vec![text::clean(words).into_owned()],
                Row::Line(words) => text::wrap(words, look.width),
            };
            for line in lines {
                out.push_str(&line);
                out.push('\n');
            }
        }
        out
    }

    /// Cuts the widest columns, because a terminal breaks long lines anywhere. Cuts them less if that keeps
    /// the last column beside the others; returns whether it goes below.
    fn fitted(&self, widths: Vec<usize>, look: ViewOptions) -> (Vec<usize>, bool) {
        let last = widths.len().saturating_sub(1);
        let wanted = widths.get(last).copied().unwrap_or_default().min(LAST);
        let room = look.width.saturating_sub(wanted);
        if look.piped {
            return (widths, false);
        }
        if let Some(beside) = self.narrowed(widths.clone(), room, NARROWEST) {
            return (beside, false);
        }
        // The gap after the last of them needs no room.
        let below = self.narrowed(widths.clone(), look.width + GAP, LEAST);
        (below.unwrap_or(widths), true)
    }

    /// Fits all but the last column into `room`, with no text column narrower than `least`; none if that is
    /// impossible.
    fn narrowed(&self, mut widths: Vec<usize>, room: usize, least: usize) -> Option<Vec<usize>> {
        let last = widths.len().saturating_sub(1);
        let is_text = |column: &usize| !self.numbers.contains(column);
        loop {
            let taken: usize = widths[..last].iter().map(|width| width + GAP).sum();
            if taken <= room {
                return Some(widths);
            }
            let texts = (0..last).filter(is_text);
            let widest = texts.max_by_key(|column| widths[*column])?;
            widths[widest] = widths[widest].checked_sub(1).filter(|it| *it >= least)?;
        }
    }

    /// One row; more than one line if its last cell has to be wrapped.
    fn lines(
        &self,
        row: &[String],
        widths: &[usize],
        is_below: bool,
        look: ViewOptions,
    ) -> Vec<String> {
        let last = widths.len().saturating_sub(1);
        let mut line = String::new();
        for (column, columns) in widths[..last].iter().enumerate() {
            let cell = text::clean(row.get(column).map_or("", String::as_str));
            let cell = text::cut_middle(&cell, *columns, look);
            line.push_str(&if self.numbers.contains(&column) {
                text::pad_left(&cell, *columns)
            } else {
                text::pad(&cell, *columns)
            });
            line.push_str(&" ".repeat(GAP));
        }
        let indent = if is_below { BELOW } else { text::width(&line) };
        let room = if look.piped {
            usize::MAX
        } else {
            look.room(indent)
        };
        let mut wrapped = text::wrap(row.get(last).map_or("", String::as_str), room);
        if is_below {
            let words = wrapped.iter().filter(|words| !words.is_empty());
            let below = words.map(|words| format!("{}{words}", " ".repeat(BELOW)));
            let line = line.trim_end().to_owned();
            return std::iter::once(line).chain(below).collect();
        }
        if wrapped.is_empty() {
            wrapped.push(String::new());
        }
        if self.numbers.contains(&last) {
            wrapped[0] = text::pad_left(&wrapped[0], widths[last]);
        }
        wrapped
            .into_iter()
            .enumerate()
            .map(|(n, words)| {
                let before = if n == 0 {
                    line.clone()
                } else {
                    " ".repeat(indent)
                };
                format!("{before}{words}").trim_end().to_owned()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs() -> Table {
        let mut table = Table::new(["RUN", "STACK", "STATE", "FOR", "WHY"]).right(3);
        table.row([
            "r44",
            "k8s-prod",
            "queued",
            "02:10",
            "lane `azure` is held by change set c42 (2 of 4 done)",
        ]);
        table.row([
            "r43",
            "network",
            "superseded",
            "–",
            "by change set c45 (newer commit on the same branch)",
        ]);
        table.row(["r39", "dns", "unknown", "1 d"]);
        table
    }

    #[test]
    fn columns_line_up() {
        insta::assert_snapshot!(runs().render(ViewOptions::plain(100)), @"
        RUN   STACK      STATE          FOR   WHY
        r44   k8s-prod   queued       02:10   lane `azure` is held by change set c42 (2 of 4 done)
        r43   network    superseded       –   by change set c45 (newer commit on the same branch)
        r39   dns        unknown        1 d
        ");
    }

    #[test]
    fn the_last_column_wraps() {
        insta::assert_snapshot!(runs().render(ViewOptions::plain(72)), @"
        RUN   STACK      STATE          FOR   WHY
        r44   k8s-prod   queued       02:10   lane `azure` is held by change set
                                              c42 (2 of 4 done)
        r43   network    superseded       –   by change set c45 (newer commit on
                                              the same branch)
        r39   dns        unknown        1 d
        ");
    }

    #[test]
    fn a_narrow_terminal_cuts_the_widest_words() {
        let mut table = Table::new(["STATE", "HELD BY", "HOLDER"]);
        table.row([
            "a-project-with-a-long-name/and-a-state",
            "somebody@a-machine-with-a-long-name",
            "run r7, alive",
        ]);
        insta::assert_snapshot!(table.render(ViewOptions::plain(60)), @"
        STATE                   HELD BY                HOLDER
        a-project-wi…-a-state   somebody@a-m…ng-name   run r7, alive
        ");
        let piped = ViewOptions {
            piped: true,
            ..ViewOptions::plain(60)
        };
        insta::assert_snapshot!(table.render(piped), @"
        STATE                                    HELD BY                               HOLDER
        a-project-with-a-long-name/and-a-state   somebody@a-machine-with-a-long-name   run r7, alive
        ");
    }

    #[test]
    fn a_last_column_without_room_stands_below() {
        insta::assert_snapshot!(runs().render(ViewOptions::plain(50)), @"
        RUN   STACK      STATE          FOR
            WHY
        r44   k8s-prod   queued       02:10
            lane `azure` is held by change set c42 (2 of 4
            done)
        r43   network    superseded       –
            by change set c45 (newer commit on the same
            branch)
        r39   dns        unknown        1 d
        ");
        let narrow = runs().render(ViewOptions::plain(30));
        let widest = narrow.lines().map(text::width).max();
        assert!(widest <= Some(30), "{narrow}");
    }

    #[test]
    fn no_rows_no_heading() {
        assert_eq!(
            Table::new(["RUN", "STACK"]).render(ViewOptions::plain(80)),
            ""
        );
    }
}
