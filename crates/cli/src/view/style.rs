//! How text is displayed: with or without colour, Unicode or ASCII symbols, and its width.
//!
//! Not here: detecting what the terminal supports; that is done once, at the start.

use anstyle::{AnsiColor, Effects, Style};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewOptions {
    pub color: bool,
    pub unicode: bool,
    /// Columns of the terminal, or a default without one.
    pub width: usize,
    /// For another program: lines are not wrapped.
    pub piped: bool,
}

/// The meaning of a piece of text, not its colour. Nothing depends on the colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextRole {
    Plain,
    Error,
    Warning,
    Hint,
    Strong,
    Faint,
    Add,
    Change,
    Replace,
    Remove,
    Move,
    Good,
}

/// A symbol with an ASCII replacement for locales that are not UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbol {
    Arrow,
    Import,
    Forget,
    Ellipsis,
    Check,
    Dot,
    Ring,
    Cross,
    BarFull,
    BarTip,
    BarRest,
    Rule,
}

impl ViewOptions {
    /// No colour, only ASCII symbols: for logs and unknown outputs.
    pub fn ascii(width: usize) -> Self {
        Self {
            color: false,
            unicode: false,
            width,
            piped: false,
        }
    }

    /// Symbols, but no colour.
    pub fn plain(width: usize) -> Self {
        Self {
            color: false,
            unicode: true,
            width,
            piped: false,
        }
    }

    /// The text in its colour. The text must be clean already: escape sequences in it are not removed.
    pub fn paint(self, ink: TextRole, text: &str) -> String {
        if !self.color || ink == TextRole::Plain || text.trim().is_empty() {
            return text.to_owned();
        }
        let style = ink.style();
        format!("{style}{text}{style:#}")
    }

    pub fn sign(self, sign: Symbol) -> &'static str {
        let (symbol, stand_in) = sign.forms();
        if self.unicode { symbol } else { stand_in }
    }

    /// Columns left after `used`, with a minimum that is still readable.
    pub(crate) fn room(self, used: usize) -> usize {
        self.width.saturating_sub(used).max(24)
    }
}

impl TextRole {
    fn style(self) -> Style {
        let color = |color: AnsiColor| Style::new().fg_color(Some(color.into()));
        match self {
            Self::Plain => Style::new(),
            Self::Error => color(AnsiColor::Red).effects(Effects::BOLD),
            Self::Warning => color(AnsiColor::Yellow).effects(Effects::BOLD),
            Self::Hint => color(AnsiColor::Cyan).effects(Effects::BOLD),
            Self::Strong => Style::new().effects(Effects::BOLD),
            Self::Faint => Style::new().effects(Effects::DIMMED),
            Self::Add | Self::Good => color(AnsiColor::Green),
            Self::Change => color(AnsiColor::Yellow),
            Self::Replace => color(AnsiColor::Magenta),
            Self::Remove => color(AnsiColor::Red),
            Self::Move => color(AnsiColor::Cyan),
        }
    }
}

impl Symbol {
    fn forms(self) -> (&'static str, &'static str) {
        match self {
            Self::Arrow => ("→", "->"),
            Self::Import => ("←", "<-"),
            Self::Forget => ("⌫", "x"),
            Self::Ellipsis => ("…", "..."),
            Self::Check => ("✓", "*"),
            Self::Dot => ("●", ">"),
            Self::Ring => ("○", "."),
            Self::Cross => ("✗", "x"),
            Self::BarFull => ("━", "="),
            Self::BarTip => ("╸", ">"),
            Self::BarRest => ("─", "-"),
            Self::Rule => ("│", "|"),
        }
    }
}
