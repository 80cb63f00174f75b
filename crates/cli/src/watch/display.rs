//! Where frames go: redrawn in place on a terminal, as plain lines elsewhere, nowhere for `--json`.

use std::io;
use std::time::Duration;

use crate::global::Global;
use crate::view::ViewOptions;
use crate::view::progress::ProgressFrame;
use crate::view::progress::live::{LiveProgress, TerminalSize};
use crate::view::progress::plain::PlainProgress;
use crate::{CommandError, Process, report};

pub(crate) enum Display {
    Live {
        live: Box<LiveProgress<io::Stderr>>,
        size: TerminalSize,
    },
    Plain(PlainProgress),
    Silent,
}

impl Display {
    pub(crate) fn new(global: &Global, process: &Process) -> Self {
        let look: ViewOptions = process.look(global);
        if global.json {
            Self::Silent
        } else if process.can_draw() {
            let size = TerminalSize {
                width: look.width,
                height: process.height(),
            };
            Self::Live {
                live: Box::new(LiveProgress::new(io::stderr(), look)),
                size,
            }
        } else {
            Self::Plain(PlainProgress::new(look))
        }
    }

    /// Whether frames are redrawn in place.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self, Self::Live { .. })
    }

    pub(crate) fn draw(&mut self, frame: &ProgressFrame) -> Result<(), CommandError> {
        match self {
            Self::Live { live, size } => live.draw(frame, *size).map_err(|err| failed(&err)),
            Self::Plain(plain) => report::say(&plain.lines(frame)),
            Self::Silent => Ok(()),
        }
    }

    /// Prints text above the frame.
    pub(crate) fn print(&mut self, words: &str) -> Result<(), CommandError> {
        match self {
            Self::Live { live, size } => live.print(words, *size).map_err(|err| failed(&err)),
            Self::Plain(_) => report::say(words),
            Self::Silent => Ok(()),
        }
    }

    /// Prints to a log what running work still waits for.
    pub(crate) fn still(
        &mut self,
        elapsed: Duration,
        stack: &str,
        words: &str,
    ) -> Result<(), CommandError> {
        match self {
            Self::Plain(plain) => report::say(&plain.still(elapsed, stack, words)),
            Self::Live { .. } | Self::Silent => Ok(()),
        }
    }

    /// Removes the last frame.
    pub(crate) fn clear(&mut self) -> Result<(), CommandError> {
        if let Self::Live { live, size } = self {
            live.clear(*size).map_err(|err| failed(&err))?;
        }
        self.finish()
    }

    /// Keeps the last frame and continues below it.
    pub(crate) fn finish(&mut self) -> Result<(), CommandError> {
        match self {
            Self::Live { live, .. } => live.finish().map_err(|err| failed(&err)),
            Self::Plain(_) | Self::Silent => Ok(()),
        }
    }
}

fn failed(err: &io::Error) -> CommandError {
    CommandError::because("could not draw", err)
}
