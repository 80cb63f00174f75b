//! Frames as lines of a log: one for each change, no control characters.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{ProgressFrame, ProgressRow, ProgressStatus};
use crate::view::duration::clock;
use crate::view::style::ViewOptions;
use crate::view::text::{self, clean};

/// Remembers what was printed, so that a line is printed only when something changed.
#[derive(Clone, Debug)]
pub struct PlainProgress {
    look: ViewOptions,
    title: Option<String>,
    said: BTreeMap<String, (ProgressStatus, String)>,
}

impl PlainProgress {
    pub fn new(look: ViewOptions) -> Self {
        Self {
            look: ViewOptions {
                color: false,
                ..look
            },
            title: None,
            said: BTreeMap::new(),
        }
    }

    /// The lines for changes in this frame; empty if there are none.
    pub fn lines(&mut self, frame: &ProgressFrame) -> String {
        let mut out = String::new();
        if self.title.as_ref() != Some(&frame.title) {
            out.extend([&*clean(&frame.title), "\n"]);
            self.title = Some(frame.title.clone());
        }
        let names = frame.rows.iter().map(|row| text::width(&clean(&row.stack)));
        let name_width = names.max().unwrap_or(0);
        for row in &frame.rows {
            if self.is_new(row) {
                out.push_str(&self.line(frame, row, name_width));
            }
        }
        out
    }

    /// The line for what a running stack still waits for.
    pub fn still(&self, elapsed: Duration, stack: &str, words: &str) -> String {
        let line = format!(
            "{}  {} {}   {}",
            clock(elapsed),
            ProgressStatus::Running.sign(self.look),
            clean(stack),
            clean(words),
        );
        format!("{}\n", line.trim_end())
    }

    fn is_new(&mut self, row: &ProgressRow) -> bool {
        let now = (row.mark, row.text.clone());
        let before = self.said.insert(row.stack.clone(), now.clone());
        // Waiting rows are useful in the full view only; a log leaves them out.
        before.as_ref() != Some(&now) && row.mark != ProgressStatus::Waiting
    }

    fn line(&self, frame: &ProgressFrame, row: &ProgressRow, name_width: usize) -> String {
        let line = format!(
            "{}  {} {}   {}",
            clock(frame.elapsed),
            row.mark.sign(self.look),
            text::pad(&clean(&row.stack), name_width),
            clean(&row.text),
        );
        format!("{}\n", line.trim_end())
    }
}
