//! Finds secrets in text, also across line breaks.

use std::sync::Arc;

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, MatchKind};

use super::CUT;

/// All encodings of all secrets, as one automaton. Clones share it.
#[derive(Clone)]
pub(super) struct Finder {
    forms: Arc<NFA>,
    start: StateID,
    /// The bytes with which an encoding begins: a quick filter for most of the text.
    begins: Arc<[bool; 256]>,
}

/// A byte range.
type Span = (usize, usize);

/// How many bytes before a truncation marker are searched for the beginning of a secret.
const CUT_WITHIN: usize = 4096;
/// Fewer characters of a secret reveal nothing useful.
const CUT_WORTH: usize = 3;

impl Finder {
    pub(super) fn new(forms: &[String]) -> Option<Self> {
        if forms.is_empty() {
            return None;
        }
        let mut builder = NFA::builder();
        builder.match_kind(MatchKind::Standard);
        let forms = Arc::new(builder.build(forms).ok()?);
        let start = forms.start_state(Anchored::No).ok()?;
        let mut begins = [false; 256];
        for byte in 0..=u8::MAX {
            begins[usize::from(byte)] = forms.next_state(Anchored::No, start, byte) != start;
        }
        let begins = Arc::new(begins);
        Some(Self {
            forms,
            start,
            begins,
        })
    }

    /// Whether there are any `spans`. In a document, matches across its parts count too.
    pub(super) fn is_in(&self, text: &[u8]) -> bool {
        let mut found = false;
        self.scan(text.iter().copied().enumerate(), &mut |_| found = true);
        if !found && has_breaks(text) {
            self.scan(joined(text), &mut |_| found = true);
        }
        found
    }

    /// The ranges of secrets, in order. Overlapping ranges are merged, so that no tail of a secret remains.
    pub(super) fn spans(&self, text: &[u8]) -> Vec<Span> {
        let mut found = Vec::new();
        let plain = text.iter().copied().enumerate();
        self.scan(plain, &mut |span| found.push(span));
        if has_breaks(text) {
            let places: Vec<usize> = joined(text).map(|(at, _)| at).collect();
            let mut count = 0;
            let bytes = joined(text).map(|(_, byte)| {
                count += 1;
                (count - 1, byte)
            });
            self.scan(bytes, &mut |(from, to)| {
                if let (Some(from), Some(last)) = (places.get(from), places.get(to - 1)) {
                    found.push((*from, last + 1));
                }
            });
        }
        merged(found)
    }

    /// The ranges in a text for people, in which `…` marks truncation, possibly inside a secret.
    pub(super) fn spans_in_cut(&self, text: &str) -> Vec<Span> {
        let mut found = self.spans(text.as_bytes());
        for (at, _) in text.match_indices(CUT) {
            let from = at.saturating_sub(CUT_WITHIN);
            let before = &text.as_bytes()[from..at];
            let begins = self.open_at_end(before, CUT_WORTH);
            found.extend(begins.map(|begins| (from + begins, at)));
        }
        merged(found)
    }

    /// The position from which a text must be held back, because more input could complete a secret. Positions are line
    /// starts, in order. The text ends with a line end.
    pub(super) fn holds_from(&self, text: &[u8], lines: &[usize]) -> usize {
        let plain: Vec<(usize, u8)> = text.iter().copied().enumerate().collect();
        let joined: Vec<(usize, u8)> = joined(text).collect();
        let mut from = text.len();
        for bytes in [plain, joined] {
            if let Some(line) = self.open_from(&bytes, lines) {
                from = from.min(line);
            }
        }
        // A complete match is not split.
        for (start, stop) in self.spans(text).into_iter().rev() {
            if start < from && from < stop {
                let line = lines.iter().rev().find(|line| **line <= start);
                from = line.copied().unwrap_or(0);
            }
        }
        from
    }

    /// The start of a secret's beginning at the end of a text, if at least `worth` bytes long. Line ends do not count.
    pub(super) fn open_at_end(&self, text: &[u8], worth: usize) -> Option<usize> {
        let bytes: Vec<(usize, u8)> = joined(text).collect();
        let (open, part) = self.open_end(&bytes)?;
        // Start positions that lead to the same end state come before all others, so a binary search works.
        let places: Vec<usize> = (0..part.len()).collect();
        let ends_so = places.partition_point(|from| self.end_of(&part[*from..]) == open);
        let begin = ends_so.checked_sub(1)?;
        (part.len() - begin >= worth).then_some(part[begin].0)
    }

    /// The last line from which a scan ends in the same automaton state as a scan of the whole text. Text before it
    /// does not affect later matches. None if no later input can complete a secret.
    fn open_from(&self, bytes: &[(usize, u8)], lines: &[usize]) -> Option<usize> {
        let (open, part) = self.open_end(bytes)?;
        let after = |line: &usize| {
            let first = bytes.partition_point(|(at, _)| at < line);
            &bytes[first..]
        };
        let before = lines.partition_point(|line| after(line).len() > part.len());
        let within = &lines[before..];
        // As within one text: matching start positions come before the others.
        let ends_so = within.partition_point(|line| self.end_of(after(line)) == open);
        Some(within[..ends_so].last().copied().unwrap_or(0))
    }

    /// The end state of a scan that ends inside an encoding, and the matching part of the text. The end of one encoding
    /// is inside another if that continues from there, or if a suffix begins one.
    fn open_end<'a>(&self, bytes: &'a [(usize, u8)]) -> Option<(StateID, &'a [(usize, u8)])> {
        let mut part = bytes;
        loop {
            let end = self.end_of(part);
            if end == self.start {
                return None;
            }
            let Some(length) = self.longest_match(end) else {
                return Some((end, part));
            };
            let own = part.get(part.len().checked_sub(length)?..)?;
            let rest = own.get(1..)?;
            let fallback = self.end_of(rest);
            let next = |state, byte| self.forms.next_state(Anchored::No, state, byte);
            let goes_on = (0..=u8::MAX).any(|byte| next(end, byte) != next(fallback, byte));
            if goes_on || self.end_of(own) != end {
                return Some((end, part));
            }
            part = rest;
        }
    }

    fn longest_match(&self, state: StateID) -> Option<usize> {
        if !self.forms.is_match(state) {
            return None;
        }
        let all = 0..self.forms.match_len(state);
        all.map(|index| {
            let form = self.forms.match_pattern(state, index);
            self.forms.pattern_len(form)
        })
        .max()
    }

    fn end_of(&self, bytes: &[(usize, u8)]) -> StateID {
        self.scan(bytes.iter().copied(), &mut |_| {})
    }

    fn scan(
        &self,
        bytes: impl Iterator<Item = (usize, u8)>,
        found: &mut dyn FnMut(Span),
    ) -> StateID {
        let mut state = self.start;
        for (at, byte) in bytes {
            if state == self.start && !self.begins[usize::from(byte)] {
                continue;
            }
            state = self.forms.next_state(Anchored::No, state, byte);
            if self.forms.is_special(state) && self.forms.is_match(state) {
                for index in 0..self.forms.match_len(state) {
                    let form = self.forms.match_pattern(state, index);
                    let length = self.forms.pattern_len(form);
                    found(((at + 1).saturating_sub(length), at + 1));
                }
            }
        }
        state
    }
}

fn merged(mut found: Vec<Span>) -> Vec<Span> {
    found.sort_unstable();
    let mut spans: Vec<Span> = Vec::new();
    for (from, to) in found {
        match spans.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => spans.push((from, to)),
        }
    }
    spans
}

/// Whether text follows a line end, or colour codes may occur.
fn has_breaks(text: &[u8]) -> bool {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    text.contains(&b'\n')
        || text.contains(&ESCAPE)
        || text.contains(&b'\\') && text.windows(2).any(|two| matches!(two, b"\\n" | b"\\u"))
}

/// The bytes of a text without its line breaks: without line ends (also JSON's `\n`), and without the indentation and
/// frame bars of the next line. Also without colour codes, which readers do not see.
fn joined(text: &[u8]) -> impl Iterator<Item = (usize, u8)> {
    const BAR: &[u8] = "│".as_bytes();
    let mut at = 0;
    let mut begins = false;
    std::iter::from_fn(move || {
        loop {
            let rest = text.get(at..)?;
            let length = break_at(rest);
            if length > 0 {
                begins = true;
                at += length;
                continue;
            }
            let length = colour_at(rest);
            if length > 0 {
                at += length;
                continue;
            }
            let byte = *rest.first()?;
            if begins && matches!(byte, b' ' | b'\t') {
                at += 1;
                continue;
            }
            if begins && rest.starts_with(BAR) {
                at += BAR.len();
                continue;
            }
            begins = false;
            at += 1;
            return Some((at - 1, byte));
        }
    })
}

/// Starts a terminal escape sequence, as a byte and in JSON.
const ESCAPE: u8 = 0x1b;
const ESCAPES: [&[u8]; 3] = [b"\x1b[", br"\u001b[", br"\u001B["];

/// The length of the escape sequence at the start of a text; 0 if there is none.
fn colour_at(text: &[u8]) -> usize {
    let Some(escape) = ESCAPES.iter().find(|escape| text.starts_with(escape)) else {
        return 0;
    };
    let rest = &text[escape.len()..];
    let end = rest.iter().position(|byte| (b'@'..=b'~').contains(byte));
    escape.len() + end.map_or(rest.len(), |end| end + 1)
}

/// The length of the line end at the start of a text; 0 if there is none.
fn break_at(text: &[u8]) -> usize {
    match text {
        [b'\n', ..] => 1,
        [b'\r', b'\n', ..] => 2,
        [b'\\', ..] => {
            // Escaped once or twice.
            let slashes = text.iter().take_while(|byte| **byte == b'\\').count();
            match text.get(slashes) {
                Some(b'n') => slashes + 1,
                Some(b'r') if text.get(slashes + 1) == Some(&b'\\') => slashes + 1,
                _ => 0,
            }
        }
        _ => 0,
    }
}
