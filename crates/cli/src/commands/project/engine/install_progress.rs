//! Progress of an install: each step once, and the elapsed time of a long step. A terminal shows it on one
//! line that is overwritten; other outputs get a new line now and then.

use std::io::Write;
use std::time::{Duration, Instant};

use control::project::engines::InstallProgress;
use model::project::engine::Flavor;

use crate::view::ViewOptions;
use crate::view::duration::human;
use crate::view::text;

/// How long nothing is printed without a terminal.
const QUIET: Duration = Duration::from_secs(30);
const CLEAR_LINE: &str = "\r\x1b[K";

pub(super) struct InstallPrinter<W> {
    out: W,
    flavor: Flavor,
    look: ViewOptions,
    is_live: bool,
    quarter: u64,
    /// The current step, and when it started.
    step: Option<(&'static str, Instant)>,
    /// When something was last printed.
    said: Instant,
    /// Whether the current line will be overwritten.
    is_open: bool,
}

impl<W: Write> InstallPrinter<W> {
    pub(super) fn new(out: W, flavor: Flavor, look: ViewOptions, is_live: bool) -> Self {
        Self {
            out,
            flavor,
            look,
            is_live,
            quarter: 0,
            step: None,
            said: Instant::now(),
            is_open: false,
        }
    }

    pub(super) fn tell(&mut self, progress: &InstallProgress) {
        let line = match progress {
            InstallProgress::Waiting => "waiting for another install to end".to_owned(),
            InstallProgress::Chosen { version } => format!("installing {} {version}", self.flavor),
            InstallProgress::Downloading {
                done,
                total: Some(total),
            } if *total > 0 => {
                let quarter = done * 4 / total;
                if quarter <= self.quarter {
                    return;
                }
                self.quarter = quarter;
                format!("downloading, {} %", quarter * 25)
            }
            InstallProgress::Downloading { .. } => return,
            InstallProgress::Verifying => "verifying checksum and signature".to_owned(),
            InstallProgress::Unpacking => "unpacking".to_owned(),
        };
        let step = match progress {
            InstallProgress::Waiting => Some("waiting"),
            InstallProgress::Downloading { .. } => Some("downloading"),
            InstallProgress::Chosen { .. }
            | InstallProgress::Verifying
            | InstallProgress::Unpacking => None,
        };
        let before = self.step.filter(|(word, _)| Some(*word) == step);
        self.step = before.or_else(|| Some((step?, Instant::now())));
        self.line(&line);
    }

    /// Called every second.
    pub(super) fn tick(&mut self, now: Instant) {
        let Some((word, since)) = self.step else {
            return;
        };
        let words = format!(
            "{word}, {} so far",
            human(now.saturating_duration_since(since))
        );
        if self.is_live {
            let room = self.look.width.saturating_sub(3);
            let words = text::cut(&words, room, self.look);
            self.say(&format!("{CLEAR_LINE}  {words}"));
            self.is_open = true;
        } else if now.saturating_duration_since(self.said) >= QUIET {
            self.line(&words);
            self.said = now;
        }
    }

    /// Clears the line that would be overwritten.
    pub(super) fn end(&mut self) {
        if std::mem::take(&mut self.is_open) {
            self.say(CLEAR_LINE);
        }
    }

    fn line(&mut self, words: &str) {
        self.end();
        let lines = text::wrap(words, self.look.room(2));
        let lines: Vec<String> = lines.iter().map(|line| format!("  {line}\n")).collect();
        self.say(&lines.concat());
        self.said = Instant::now();
    }

    /// Ignores errors: progress that cannot be printed is no reason to stop.
    fn say(&mut self, words: &str) {
        let written = self.out.write_all(words.as_bytes());
        drop(written.and_then(|()| self.out.flush()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of a download that takes 65 seconds.
    fn seen(is_live: bool) -> String {
        let mut out = Vec::new();
        let mut teller =
            InstallPrinter::new(&mut out, Flavor::Tofu, ViewOptions::plain(50), is_live);
        teller.tell(&InstallProgress::Chosen {
            version: "1.11.14".parse().unwrap(),
        });
        teller.tell(&InstallProgress::Downloading {
            done: 25,
            total: Some(100),
        });
        let begun = Instant::now();
        for second in (5..=65).step_by(20) {
            teller.tick(begun + Duration::from_secs(second));
        }
        teller.end();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_log_gets_a_line_now_and_then() {
        insta::assert_snapshot!(seen(false), @"
        installing tofu 1.11.14
        downloading, 25 %
        downloading, 45 s so far
        ");
    }

    #[test]
    fn a_terminal_gets_a_line_that_is_written_over() {
        insta::assert_snapshot!(seen(true).replace(CLEAR_LINE, "<over>"), @"
          installing tofu 1.11.14
          downloading, 25 %
        <over>  downloading, 5 s so far<over>  downloading, 25 s so far<over>  downloading, 45 s so far<over>  downloading, 1 m 05 s so far<over>
        ");
    }
}
