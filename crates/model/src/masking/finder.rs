//! Finds secrets in text, also where lines were broken in the middle of one.

use std::sync::Arc;

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, MatchKind};

use super::CUT;

/// All forms of all secrets, as one automaton. Clones share it.
#[derive(Clone)]
pub(super) struct Finder {
    forms: Arc<NFA>,
    start: StateID,
    /// Whether a form begins with a byte: most of a text is passed over by looking here.
    begins: Arc<[bool; 256]>,
}

/// From where to where, in bytes.
type Span = (usize, usize);

/// No cut text is longer that could end within a secret.
const CUT_WITHIN: usize = 4096;
/// Fewer characters of a secret tell nobody anything.
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

    /// Whether there are any `spans`. Of a document, what is found across its parts counts, too.
    pub(super) fn is_in(&self, text: &[u8]) -> bool {
        let mut found = false;
        self.scan(text.iter().copied().enumerate(), &mut |_| found = true);
        if !found && has_breaks(text) {
            self.scan(joined(text), &mut |_| found = true);
        }
        found
    }

    /// Where secrets stand, in order. Those that overlap are one: no tail of a second stays behind the first.
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

    /// The same in a text for people, where `…` stands for what was cut off: in the middle of a secret, maybe.
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

    /// From which of these places on a text has to be held back, because more of it could complete a secret. The places
    /// begin lines, in order; the text ends with a line.
    pub(super) fn holds_from(&self, text: &[u8], lines: &[usize]) -> usize {
        let plain: Vec<(usize, u8)> = text.iter().copied().enumerate().collect();
        let joined: Vec<(usize, u8)> = joined(text).collect();
        let mut from = text.len();
        for bytes in [plain, joined] {
            if let Some(line) = self.open_from(&bytes, lines) {
                from = from.min(line);
            }
        }
        // What was found whole is not cut in two.
        for (start, stop) in self.spans(text).into_iter().rev() {
            if start < from && from < stop {
                let line = lines.iter().rev().find(|line| **line <= start);
                from = line.copied().unwrap_or(0);
            }
        }
        from
    }

    /// Where the beginning of a secret begins that a text ends with, if that is so long; line ends do not count.
    pub(super) fn open_at_end(&self, text: &[u8], worth: usize) -> Option<usize> {
        let bytes: Vec<(usize, u8)> = joined(text).collect();
        let (open, part) = self.open_end(&bytes)?;
        // The more of it is looked at, the less it matters where that begins: all or none from some place on.
        let places: Vec<usize> = (0..part.len()).collect();
        let ends_so = places.partition_point(|from| self.end_of(&part[*from..]) == open);
        let begin = ends_so.checked_sub(1)?;
        (part.len() - begin >= worth).then_some(part[begin].0)
    }

    /// The last line from which on a scan ends as that of the whole text does: nothing before it matters to what may
    /// follow. None if nothing that may follow completes a secret.
    fn open_from(&self, bytes: &[(usize, u8)], lines: &[usize]) -> Option<usize> {
        let (open, part) = self.open_end(bytes)?;
        let after = |line: &usize| {
            let first = bytes.partition_point(|(at, _)| at < line);
            &bytes[first..]
        };
        let before = lines.partition_point(|line| after(line).len() > part.len());
        let within = &lines[before..];
        // As with one text: those from which it ends so come before those from which it does not.
        let ends_so = within.partition_point(|line| self.end_of(after(line)) == open);
        Some(within[..ends_so].last().copied().unwrap_or(0))
    }

    /// Where a scan ends if that is in the middle of a form, and the part of the text that it is the end of. The end of a
    /// form is in the middle of another if that goes on from there, or if what it ends with begins one.
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

/// Whether anything stands behind the end of a line, or may be coloured.
fn has_breaks(text: &[u8]) -> bool {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    text.contains(&b'\n')
        || text.contains(&ESCAPE)
        || text.contains(&b'\\') && text.windows(2).any(|two| matches!(two, b"\\n" | b"\\u"))
}

/// The bytes of a text as if its lines had never been broken: without line ends, also those that JSON writes as `\n`,
/// and without what stands before the next line: spaces and the bars of a frame. And without colours: who reads it sees
/// what stands between them as one.
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

/// Begins what a terminal does not show, as a byte and as JSON writes it.
const ESCAPE: u8 = 0x1b;
const ESCAPES: [&[u8]; 3] = [b"\x1b[", br"\u001b[", br"\u001B["];

/// How long the colour is that a text begins with, or another order to a terminal; 0 if it does not begin with one.
fn colour_at(text: &[u8]) -> usize {
    let Some(escape) = ESCAPES.iter().find(|escape| text.starts_with(escape)) else {
        return 0;
    };
    let rest = &text[escape.len()..];
    let end = rest.iter().position(|byte| (b'@'..=b'~').contains(byte));
    escape.len() + end.map_or(rest.len(), |end| end + 1)
}

/// How long the line end is that a text begins with; 0 if it does not begin with one.
fn break_at(text: &[u8]) -> usize {
    match text {
        [b'\n', ..] => 1,
        [b'\r', b'\n', ..] => 2,
        [b'\\', ..] => {
            // Escaped once, or once more.
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
