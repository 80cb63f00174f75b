//! Masks engine events by the content of their strings, not by their JSON encoding. Also masks across events, since
//! provisioner output arrives line by line.
//!
//! If an output line ends with the beginning of a secret, it waits for the next line of its resource. Later events wait
//! with it, so the order stays. A line that waits too long is released; the rest of the secret is still masked when it
//! arrives.

use std::collections::{BTreeMap, VecDeque};

use serde_json::Value;

use super::{MASKED, Mask};

/// The shortest beginning of a secret to wait for. Shorter ones end many lines by chance.
const WORTH: usize = 6;

/// The maximum number of waiting lines.
const MOST: usize = 256;

/// The number of bytes of a resource's output that are remembered: longer than most secrets.
const REMEMBERED: usize = 16 * 1024;

#[derive(Debug, Default)]
pub(super) struct Events {
    /// Lines that are not released yet, numbered from `first` on.
    waiting: VecDeque<Line>,
    first: u64,
    said: BTreeMap<String, ProvisionerOutput>,
}

#[derive(Debug)]
enum Line {
    Done(Vec<u8>),
    Output {
        event: Value,
        output: String,
        /// The masked ranges of the output.
        hidden: Vec<(usize, usize)>,
        holds: bool,
    },
}

/// The last lines of a resource's provisioner output.
#[derive(Debug, Default)]
struct ProvisionerOutput {
    text: String,
    /// The number of each line's event, and its range in the text.
    lines: VecDeque<(u64, usize, usize)>,
}

impl Events {
    /// Adds a line that is not an event and is already masked.
    pub(super) fn pass(&mut self, mask: &Mask, line: Vec<u8>, out: &mut Vec<u8>) {
        self.waiting.push_back(Line::Done(line));
        self.give(mask, out);
    }

    /// Adds an event. Returns false if the line is not an event.
    pub(super) fn take(&mut self, mask: &Mask, line: &[u8], out: &mut Vec<u8>) -> bool {
        let Ok(event) = serde_json::from_slice::<Value>(line) else {
            return false;
        };
        let output = event.pointer("/hook/output").and_then(Value::as_str);
        let place = event.pointer("/hook/resource/addr").and_then(Value::as_str);
        let (Some(output), Some(place)) = (output, place) else {
            self.pass(mask, written(mask, event, line), out);
            return true;
        };
        let (output, place) = (output.to_owned(), place.to_owned());
        let number = self.first + self.waiting.len() as u64;
        self.said
            .entry(place.clone())
            .or_default()
            .hear(number, &output);
        self.waiting.push_back(Line::Output {
            event,
            output,
            hidden: Vec::new(),
            holds: false,
        });
        self.judge(mask, &place);
        self.give(mask, out);
        true
    }

    /// Releases everything at the end of the input.
    pub(super) fn finish(self, mask: &Mask, out: &mut Vec<u8>) {
        for line in self.waiting {
            out.extend(line.written(mask));
        }
    }

    /// Marks the masked parts of a resource's waiting lines, and which lines must keep waiting.
    fn judge(&mut self, mask: &Mask, place: &str) {
        let (Some(finder), Some(said)) = (&mask.finder, self.said.get(place)) else {
            return;
        };
        let spans = finder.spans(said.text.as_bytes());
        let open = finder.open_at_end(said.text.as_bytes(), WORTH);
        for (number, start, end) in &said.lines {
            let index = number.checked_sub(self.first);
            let index = index.and_then(|index| usize::try_from(index).ok());
            let line = index.and_then(|index| self.waiting.get_mut(index));
            let Some(Line::Output { hidden, holds, .. }) = line else {
                continue;
            };
            let within = spans.iter().filter(|(from, to)| from < end && to > start);
            let own = within.map(|(from, to)| (from.max(start) - start, to.min(end) - start));
            *hidden = own.collect();
            *holds = open.is_some_and(|open| open < *end);
        }
    }

    fn give(&mut self, mask: &Mask, out: &mut Vec<u8>) {
        while let Some(line) = self.waiting.front() {
            let holds = matches!(line, Line::Output { holds: true, .. });
            if holds && self.waiting.len() <= MOST {
                return;
            }
            if let Some(line) = self.waiting.pop_front() {
                self.first += 1;
                out.extend(line.written(mask));
            }
        }
    }
}

impl ProvisionerOutput {
    fn hear(&mut self, number: u64, output: &str) {
        while self.text.len() > REMEMBERED
            && let Some((_, _, end)) = self.lines.pop_front()
        {
            self.text.drain(..=end);
            for (_, start, stop) in &mut self.lines {
                (*start, *stop) = (*start - end - 1, *stop - end - 1);
            }
        }
        let start = self.text.len();
        self.text.push_str(output);
        self.lines.push_back((number, start, self.text.len()));
        self.text.push('\n');
    }
}

impl Line {
    fn written(self, mask: &Mask) -> Vec<u8> {
        let (mut event, output, hidden) = match self {
            Self::Done(line) => return line,
            Self::Output {
                event,
                output,
                hidden,
                ..
            } => (event, output, hidden),
        };
        if !hidden.is_empty() {
            let clean = cut(&output, &hidden);
            if let Some(Value::String(message)) = event.get_mut("@message")
                && let Some(before) = message.strip_suffix(&output)
            {
                *message = format!("{before}{clean}");
            }
            if let Some(said) = event.pointer_mut("/hook/output") {
                *said = Value::String(clean);
            }
        }
        mask_strings(mask, &mut event);
        in_a_line(&event)
    }
}

/// Returns the line unchanged, unless it contains something to mask.
fn written(mask: &Mask, mut event: Value, line: &[u8]) -> Vec<u8> {
    if mask_strings(mask, &mut event) {
        in_a_line(&event)
    } else {
        line.to_vec()
    }
}

fn in_a_line(event: &Value) -> Vec<u8> {
    let mut line = event.to_string().into_bytes();
    line.push(b'\n');
    line
}

/// Returns whether anything was masked. Numbers stay, because the engine counts with them.
fn mask_strings(mask: &Mask, value: &mut Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => {
            if !mask.touches(text) {
                return false;
            }
            let masked = mask.mask_text(text);
            let is_found = masked != *text;
            *text = masked;
            is_found
        }
        Value::Array(items) => {
            let found = items.iter_mut().map(|item| mask_strings(mask, item));
            found.fold(false, |any, one| any | one)
        }
        Value::Object(fields) => {
            let mut is_found = false;
            if fields.keys().any(|key| mask.finds_in(key)) {
                is_found = true;
                let own = std::mem::take(fields).into_iter();
                *fields = own
                    .map(|(key, field)| (mask.mask_text(&key), field))
                    .collect();
            }
            let found = fields.values_mut().map(|field| mask_strings(mask, field));
            found.fold(is_found, |any, one| any | one)
        }
    }
}

fn cut(text: &str, hidden: &[(usize, usize)]) -> String {
    let mut clean = String::new();
    let mut rest = 0;
    for (from, to) in hidden {
        clean.push_str(text.get(rest..*from).unwrap_or_default());
        clean.push_str(MASKED);
        rest = *to;
    }
    clean.push_str(text.get(rest..).unwrap_or_default());
    clean
}

#[cfg(test)]
mod tests {
    use super::super::MaskStream;
    use super::*;
    use crate::base::secret::Secret;

    const SECRET: &str = "Correct-Horse&Battery\"Staple";

    fn event(place: &str, output: &str) -> String {
        let event = serde_json::json!({
            "@level": "info", "@message": format!("{place}: (local-exec): {output}"),
            "hook": {"resource": {"addr": place}, "provisioner": "local-exec", "output": output},
            "type": "provision_progress",
        });
        format!("{event}\n")
    }

    fn masked(lines: &[String]) -> String {
        let mut stream = MaskStream::new(Mask::new(&[Secret::new(SECRET)]));
        let mut out = stream.push(lines.concat().as_bytes());
        out.extend(stream.finish());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_secret_that_comes_in_lines_is_hidden_in_each() {
        for at in WORTH..SECRET.len() {
            let (one, other) = SECRET.split_at(at);
            let lines = [
                event("a", "before"),
                event("a", &format!("it is {one}")),
                event("b", "of another"),
                event("a", &format!("{other} indeed")),
            ];
            let said = masked(&lines);
            assert!(said.contains("(local-exec): it is (secret)\""), "{said}");
            assert!(said.contains("(local-exec): (secret) indeed\""), "{said}");
            let order: Vec<_> = said
                .lines()
                .map(|line| line.contains("of another"))
                .collect();
            assert_eq!(order, [false, false, true, false]);
        }
    }

    #[test]
    fn what_only_looks_like_one_is_given_on_as_it_was() {
        let lines = [
            event("a", "Correct-Hor"),
            event("a", "net"),
            event("a", "C"),
        ];
        assert_eq!(masked(&lines), lines.concat());
    }

    #[test]
    fn a_line_waits_only_for_its_own_resource_and_not_for_ever() {
        let mut stream = MaskStream::new(Mask::new(&[Secret::new(SECRET)]));
        assert_eq!(stream.push(event("a", "Correct-Hor").as_bytes()), b"");
        let mut out = Vec::new();
        for _ in 0..MOST {
            out.extend(stream.push(event("b", "goes on").as_bytes()));
        }
        assert!(out.starts_with(event("a", "Correct-Hor").as_bytes()));
        // The rest of a secret is masked even if its beginning was released.
        let rest = event("a", SECRET.strip_prefix("Correct-Hor").unwrap());
        let rest = stream.push(rest.as_bytes());
        assert!(
            String::from_utf8(rest)
                .unwrap()
                .contains("(local-exec): (secret)\"")
        );
    }

    #[test]
    fn strings_are_looked_at_as_they_are_meant() {
        let go = serde_json::to_string(SECRET)
            .unwrap()
            .replace('&', "\\u0026");
        let said = masked(&[event("a", &format!("{{\"password\":{go}}}"))]);
        assert!(
            said.contains("(secret)") && !said.contains("Horse"),
            "{said}"
        );
    }
}
