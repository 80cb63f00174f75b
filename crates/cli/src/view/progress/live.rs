//! A frame that is redrawn in place. For a terminal only.

use std::io::{self, Write};

use super::ProgressFrame;
use crate::view::style::ViewOptions;
use crate::view::text;

const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";
const CLEAR_LINE_END: &str = "\x1b[K";

/// The current size of the terminal; it may differ for the next frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    pub width: usize,
    pub height: usize,
}

/// Draws frames in place, below earlier output. Hides the cursor, and shows it again when dropped, also by a
/// panic.
#[derive(Debug)]
pub struct LiveProgress<W: Write> {
    out: W,
    look: ViewOptions,
    drawn: Vec<String>,
    hidden: bool,
}

impl<W: Write> LiveProgress<W> {
    pub fn new(out: W, look: ViewOptions) -> Self {
        Self {
            out,
            look,
            drawn: Vec::new(),
            hidden: false,
        }
    }

    /// Draws a frame over the last one; writes nothing if it looks the same.
    pub fn draw(&mut self, frame: &ProgressFrame, size: TerminalSize) -> io::Result<()> {
        // The cursor is below the last line and needs a line, too. The last column stays free: some terminals
        // wrap the line there.
        let look = ViewOptions {
            width: size.width.saturating_sub(1),
            ..self.look
        };
        let lines = frame.lines(look, size.height.saturating_sub(1));
        if lines == self.drawn && self.hidden {
            return Ok(());
        }
        let mut screen = String::new();
        if !self.hidden {
            screen.push_str(HIDE_CURSOR);
            self.hidden = true;
        }
        self.write_over(screen, &lines, size)?;
        self.drawn = lines;
        Ok(())
    }

    /// Prints permanent lines above the frame, wrapped between words. The next `draw` shows the frame again.
    pub fn print(&mut self, words: &str, size: TerminalSize) -> io::Result<()> {
        let lines = text::wrap(words, size.width);
        self.write_over(String::new(), &lines, size)?;
        self.drawn.clear();
        Ok(())
    }

    /// Removes the frame.
    pub fn clear(&mut self, size: TerminalSize) -> io::Result<()> {
        self.print("", size)
    }

    /// Keeps the last frame and shows the cursor; a later `draw` starts below it.
    pub fn finish(&mut self) -> io::Result<()> {
        self.drawn.clear();
        self.show_cursor()
    }

    /// Replaces the last frame with these lines and clears its rest. Clears line by line: some terminals keep
    /// a screen that is cleared as a whole in their history.
    fn write_over(
        &mut self,
        mut screen: String,
        lines: &[String],
        size: TerminalSize,
    ) -> io::Result<()> {
        // A terminal that became narrower has wrapped the lines of the last frame.
        let broken = |line: &String| text::width(line).div_ceil(size.width.max(1)).max(1);
        let rows: usize = self.drawn.iter().map(broken).sum();
        let rows = rows.min(size.height.saturating_sub(1));
        screen.push('\r');
        push_up(&mut screen, rows);
        for line in lines {
            screen.extend([line, CLEAR_LINE_END, "\n"]);
        }
        let left = rows.saturating_sub(lines.len());
        for _ in 0..left {
            screen.extend([CLEAR_LINE_END, "\n"]);
        }
        push_up(&mut screen, left);
        // One write, so that no frame is ever half drawn.
        self.out.write_all(screen.as_bytes())?;
        self.out.flush()
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        if !self.hidden {
            return Ok(());
        }
        self.hidden = false;
        self.out.write_all(SHOW_CURSOR.as_bytes())?;
        self.out.flush()
    }
}

impl<W: Write> Drop for LiveProgress<W> {
    fn drop(&mut self) {
        // Errors are ignored: the terminal may be gone.
        drop(self.show_cursor());
    }
}

fn push_up(screen: &mut String, rows: usize) {
    if rows > 0 {
        screen.extend(["\x1b[", &rows.to_string(), "A"]);
    }
}
