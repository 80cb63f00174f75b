//! Progress, as a frame that is shown repeatedly: live on a terminal, as plain lines elsewhere.
//!
//! Not here: when to show a frame; the caller has the clock.

pub mod live;
pub mod plain;
#[cfg(test)]
mod tests;

use std::time::Duration;

use super::duration::clock;
use super::style::{Symbol, TextRole, ViewOptions};
use super::text::{self, clean};

/// The maximum width: on a wider terminal the numbers stay near their rows.
const WIDEST: usize = 100;
const WIDEST_BAR: usize = 25;
/// How many waiting rows are shown before finished rows if there is no room for all.
const NEXT: usize = 3;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgressFrame {
    /// ``change set c42 on `azure` ``
    pub title: String,
    pub elapsed: Duration,
    pub done: usize,
    pub total: usize,
    pub rows: Vec<ProgressRow>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgressRow {
    pub stack: String,
    pub mark: ProgressStatus,
    /// What it does or did, without times: each new text is a new line in a log.
    pub text: String,
    pub elapsed: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProgressStatus {
    Waiting,
    Running,
    Done,
    Unchanged,
    Failed,
    Skipped,
    /// The runner was lost: the change may or may not have happened.
    Unknown,
}

impl ProgressStatus {
    /// The symbol, one column wide.
    pub fn sign(self, look: ViewOptions) -> &'static str {
        match self {
            Self::Waiting => look.sign(Symbol::Ring),
            Self::Running => look.sign(Symbol::Dot),
            Self::Done => look.sign(Symbol::Check),
            Self::Unchanged | Self::Skipped => " ",
            Self::Failed => look.sign(Symbol::Cross),
            Self::Unknown => "?",
        }
    }

    /// The symbol in its colour.
    pub(crate) fn painted(self, look: ViewOptions) -> String {
        let ink = match self {
            Self::Waiting | Self::Unchanged | Self::Skipped => TextRole::Faint,
            Self::Running => TextRole::Move,
            Self::Done => TextRole::Good,
            Self::Failed => TextRole::Error,
            Self::Unknown => TextRole::Warning,
        };
        look.paint(ink, self.sign(look))
    }

    fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Done => "done",
            Self::Unchanged => "unchanged",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Unknown => "unknown",
        }
    }
}

impl ProgressFrame {
    /// The frame in at most `height` lines of at most `look.width` columns.
    pub fn lines(&self, look: ViewOptions, height: usize) -> Vec<String> {
        let width = look.width.min(WIDEST);
        let mut lines = Vec::with_capacity(self.rows.len() + 1);
        if height == 0 {
            return lines;
        }
        lines.push(self.title_line(width, look));
        let names = self.rows.iter().map(|row| text::width(&clean(&row.stack)));
        let name_width = names.max().unwrap_or(0).min(width / 3);
        let (rows, rest) = self.fitting(height - 1);
        lines.extend(
            rows.iter()
                .map(|row| row_line(row, name_width, width, look)),
        );
        if let Some(words) = rest {
            let words = format!("  {} {words}", look.sign(Symbol::Ellipsis));
            lines.push(look.paint(TextRole::Faint, &text::cut(&words, width, look)));
        }
        lines
    }

    /// The rows that fit, in their order, and the rest as text.
    fn fitting(&self, room: usize) -> (Vec<&ProgressRow>, Option<String>) {
        if self.rows.len() <= room {
            return (self.rows.iter().collect(), None);
        }
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        let waiting = |at: &&usize| self.rows[**at].mark == ProgressStatus::Waiting;
        let next: Vec<usize> = order.iter().filter(waiting).take(NEXT).copied().collect();
        // Failed and running rows, a few that come next, then those that finished last.
        order.sort_by_key(|&at| match self.rows[at].mark {
            ProgressStatus::Failed | ProgressStatus::Unknown => (0, at),
            ProgressStatus::Running => (1, at),
            ProgressStatus::Waiting if next.contains(&at) => (2, at),
            ProgressStatus::Done => (3, usize::MAX - at),
            ProgressStatus::Waiting => (4, at),
            ProgressStatus::Skipped | ProgressStatus::Unchanged => (5, at),
        });
        let (kept, left) = order.split_at(room.saturating_sub(1).min(order.len()));
        let mut kept = kept.to_vec();
        kept.sort_unstable();
        let rows = kept.into_iter().map(|at| &self.rows[at]).collect();
        let words = [
            ProgressStatus::Failed,
            ProgressStatus::Unknown,
            ProgressStatus::Running,
            ProgressStatus::Done,
            ProgressStatus::Unchanged,
            ProgressStatus::Skipped,
            ProgressStatus::Waiting,
        ]
        .into_iter()
        .filter_map(|mark| {
            let number = left
                .iter()
                .filter(|at| self.rows[**at].mark == mark)
                .count();
            (number > 0).then(|| format!("{number} more {}", mark.word()))
        })
        .collect::<Vec<_>>();
        (
            rows,
            (room > 0).then(|| format!("and {}", words.join(", "))),
        )
    }

    /// The title, and at the right the time, the bar and the count, as far as there is room.
    fn title_line(&self, width: usize, look: ViewOptions) -> String {
        let title = clean(&self.title);
        let time = clock(self.elapsed);
        let count = format!("{} of {}", self.done, self.total);
        let fixed = text::width(&time) + 2 + count.len();
        let free = width.saturating_sub(text::width(&title).min(width / 2) + 2 + fixed);
        let bar_width = free.saturating_sub(2).min(WIDEST_BAR);
        let (right, right_width) = if bar_width >= 8 {
            (
                format!("{time}  {}  {count}", self.bar(bar_width, look)),
                fixed + bar_width + 2,
            )
        } else {
            (format!("{time}  {count}"), fixed)
        };
        let Some(left_width) = width.checked_sub(right_width + 2).filter(|left| *left >= 8) else {
            return look.paint(TextRole::Strong, &text::cut(&title, width, look));
        };
        let title = text::cut(&title, left_width, look);
        let gap = " ".repeat(width - right_width - text::width(&title));
        format!("{}{gap}{right}", look.paint(TextRole::Strong, &title))
    }

    fn bar(&self, width: usize, look: ViewOptions) -> String {
        let full = (self.done.min(self.total) * width)
            .checked_div(self.total)
            .unwrap_or(0);
        let tip = usize::from(full < width);
        let drawn = format!(
            "{}{}",
            look.sign(Symbol::BarFull).repeat(full),
            look.sign(Symbol::BarTip).repeat(tip),
        );
        let rest = look.sign(Symbol::BarRest).repeat(width - full - tip);
        format!(
            "{}{}",
            look.paint(TextRole::Good, &drawn),
            look.paint(TextRole::Faint, &rest)
        )
    }
}

fn row_line(row: &ProgressRow, name_width: usize, width: usize, look: ViewOptions) -> String {
    let name = text::pad(&text::cut(&clean(&row.stack), name_width, look), name_width);
    let time = row.elapsed.map(clock).unwrap_or_default();
    let start = 2 + name_width + 3;
    let time_width = if time.is_empty() {
        0
    } else {
        text::width(&time) + 3
    };
    let room = width.saturating_sub(start + time_width);
    let words = text::cut_middle(&clean(&row.text), room, look);
    let painted = match row.mark {
        ProgressStatus::Waiting | ProgressStatus::Unchanged | ProgressStatus::Skipped => {
            look.paint(TextRole::Faint, &words)
        }
        ProgressStatus::Running
        | ProgressStatus::Done
        | ProgressStatus::Failed
        | ProgressStatus::Unknown => words.clone(),
    };
    let mut line = format!("{} {name}   {painted}", row.mark.painted(look));
    if !time.is_empty() && start + time_width <= width {
        let gap = width - start - text::width(&words) - text::width(&time);
        line.push_str(&" ".repeat(gap));
        line.push_str(&look.paint(TextRole::Faint, &time));
    }
    if start > width {
        line = text::cut(&format!("{} {name}", row.mark.sign(look)), width, look);
    }
    line.trim_end().to_owned()
}
