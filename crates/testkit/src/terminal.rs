//! The binary on a pseudo-terminal, which `script` of util-linux provides.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin};
use std::time::Duration;

use crate::CommandOutput;
use crate::wait::is_true_within;

/// A command on an interactive terminal.
pub struct Terminal {
    child: Child,
    keyboard: ChildStdin,
    screen: PathBuf,
}

impl Terminal {
    pub(crate) fn new(mut child: Child, screen: PathBuf) -> Self {
        let keyboard = child.stdin.take().expect("a pipe");
        Self {
            child,
            keyboard,
            screen,
        }
    }

    /// Everything drawn so far, without control sequences.
    pub fn screen(&self) -> String {
        let bytes = fs::read(&self.screen).unwrap_or_default();
        plain(&String::from_utf8_lossy(&bytes))
    }

    /// Waits until a text is on the screen.
    #[track_caller]
    pub fn wait_for(&self, words: &str) {
        let is_there = is_true_within(Duration::from_mins(1), || self.screen().contains(words));
        assert!(is_there, "never came: {words}\n{}", self.screen());
    }

    pub fn type_line(&mut self, line: &str) {
        self.keyboard
            .write_all(format!("{line}\n").as_bytes())
            .expect("somebody reads");
        self.keyboard.flush().expect("somebody reads");
    }

    /// Closes the terminal, like closing a window.
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Waits for the exit. A terminal has one screen: all of it counts as standard output.
    pub fn wait(mut self) -> CommandOutput {
        let status = self.child.wait().expect("it ends");
        CommandOutput {
            stdout: self.screen(),
            stderr: String::new(),
            code: status.code(),
        }
    }
}

/// Without escape sequences and carriage returns.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => {
                let is_sequence = chars.next() == Some('[');
                while is_sequence && chars.next().is_some_and(|c| !c.is_ascii_alphabetic()) {}
            }
            '\r' => {}
            c => out.push(c),
        }
    }
    out
}
