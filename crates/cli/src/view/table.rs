//! A small table: columns line up, the last one takes what room is left.

use super::look::{Ink, Look};
use super::text;

const GAP: usize = 3;

#[derive(Clone, Debug)]
pub struct Table {
    headings: Vec<String>,
    numbers: Vec<usize>,
    rows: Vec<Vec<String>>,
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
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The heading and the rows, or nothing at all without rows.
    pub fn render(&self, look: Look) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let widths: Vec<usize> = (0..self.headings.len())
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                let widest = cells.map(|cell| text::width(&text::clean(cell))).max();
                widest.unwrap_or(0).max(text::width(&self.headings[column]))
            })
            .collect();
        let mut out = String::new();
        for line in self.lines(&self.headings, &widths, look) {
            out.push_str(&look.paint(Ink::Strong, &line));
            out.push('\n');
        }
        for row in &self.rows {
            for line in self.lines(row, &widths, look) {
                out.push_str(&line);
                out.push('\n');
            }
        }
        out
    }

    /// One row; more than one line if its last cell has to be wrapped.
    fn lines(&self, row: &[String], widths: &[usize], look: Look) -> Vec<String> {
        let last = widths.len().saturating_sub(1);
        let mut line = String::new();
        for (column, columns) in widths[..last].iter().enumerate() {
            let cell = text::clean(row.get(column).map_or("", String::as_str));
            line.push_str(&if self.numbers.contains(&column) {
                text::pad_left(&cell, *columns)
            } else {
                text::pad(&cell, *columns)
            });
            line.push_str(&" ".repeat(GAP));
        }
        let indent = text::width(&line);
        let mut wrapped = text::wrap(row.get(last).map_or("", String::as_str), look.room(indent));
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
        insta::assert_snapshot!(runs().render(Look::plain(100)), @"
        RUN   STACK      STATE          FOR   WHY
        r44   k8s-prod   queued       02:10   lane `azure` is held by change set c42 (2 of 4 done)
        r43   network    superseded       –   by change set c45 (newer commit on the same branch)
        r39   dns        unknown        1 d
        ");
    }

    #[test]
    fn the_last_column_wraps() {
        insta::assert_snapshot!(runs().render(Look::plain(72)), @"
        RUN   STACK      STATE          FOR   WHY
        r44   k8s-prod   queued       02:10   lane `azure` is held by change set
                                              c42 (2 of 4 done)
        r43   network    superseded       –   by change set c45 (newer commit on
                                              the same branch)
        r39   dns        unknown        1 d
        ");
    }

    #[test]
    fn no_rows_no_heading() {
        assert_eq!(Table::new(["RUN", "STACK"]).render(Look::plain(80)), "");
    }
}
