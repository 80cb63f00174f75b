//! Masks an engine's output as a stream. The result does not depend on where reads split the input.

use super::events::Events;
use super::{Mask, holds};

/// The beginning of every engine event. No secret extends beyond such a line.
const EVENT: &[u8] = b"{\"@";

/// Takes bytes as they arrive and returns them masked. A possible beginning of a secret is held back: for the rest of
/// its line, and for as many further lines as the secret could span.
#[derive(Debug)]
pub struct MaskStream {
    mask: Mask,
    rest: Vec<u8>,
    /// The start positions of the held-back lines.
    lines: Vec<usize>,
    events: Events,
}

impl MaskStream {
    pub fn new(mask: Mask) -> Self {
        Self {
            mask,
            rest: Vec::new(),
            lines: Vec::new(),
            events: Events::default(),
        }
    }

    /// Returns the output that these bytes complete, masked.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        // The bytes that are already here contain no line end.
        let mut seen = self.rest.len();
        self.rest.extend_from_slice(bytes);
        let mut out = Vec::new();
        while let Some(length) = self.rest[seen..].iter().position(|byte| *byte == b'\n') {
            let end = seen + length + 1;
            let before = &self.rest[..end - 1];
            let line = before.iter().rposition(|byte| *byte == b'\n');
            let line = line.map_or(0, |at| at + 1);
            let given = if self.rest[line..end].starts_with(EVENT) {
                self.give(0, line, &mut out);
                self.give_event(line, end, &mut out);
                end
            } else {
                self.lines.push(line);
                let from = self.holds_from(end);
                self.give(0, from, &mut out);
                from
            };
            self.rest.drain(..given);
            self.lines.retain(|line| *line >= given);
            self.lines.iter_mut().for_each(|line| *line -= given);
            seen = end - given;
        }
        out
    }

    fn holds_from(&self, end: usize) -> usize {
        let finder = self.mask.finder.as_ref();
        finder.map_or(end, |finder| {
            finder.holds_from(&self.rest[..end], &self.lines)
        })
    }

    /// Returns what was held back, at the end of the input.
    pub fn finish(mut self) -> Vec<u8> {
        let mut out = Vec::new();
        let last = self.rest.iter().rposition(|byte| *byte == b'\n');
        let line = last.map_or(0, |at| at + 1);
        if self.rest[line..].starts_with(EVENT) {
            self.give(0, line, &mut out);
            self.give(line, self.rest.len(), &mut out);
        } else {
            self.give(0, self.rest.len(), &mut out);
        }
        self.events.finish(&self.mask, &mut out);
        out
    }

    /// Masks an event by its decoded strings, independent of JSON escapes and line breaks.
    fn give_event(&mut self, from: usize, to: usize, out: &mut Vec<u8>) {
        let line = &self.rest[from..to];
        let is_plain = !line.contains(&b'\\') && !holds(line, b"\"output\"");
        if self.mask.is_empty() || is_plain || !self.events.take(&self.mask, line, out) {
            self.give(from, to, out);
        }
    }

    fn give(&mut self, from: usize, to: usize, out: &mut Vec<u8>) {
        let bytes = &self.rest[from..to];
        if bytes.is_empty() {
            return;
        }
        let text = String::from_utf8_lossy(bytes);
        let masked = if self.mask.touches(&text) {
            self.mask.mask_text(&text).into_bytes()
        } else {
            bytes.to_vec()
        };
        self.events.pass(&self.mask, masked, out);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::secret::Secret;

    const KEY: &str = "-----BEGIN KEY-----\nab\ncd\n-----END KEY-----";

    fn masked(secret: &str, portions: &[&[u8]]) -> String {
        let mut stream = MaskStream::new(Mask::new(&[Secret::new(secret)]));
        let mut out = Vec::new();
        for portion in portions {
            out.extend(stream.push(portion));
        }
        out.extend(stream.finish());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_secret_is_found_wherever_a_read_ended() {
        let text = b"pw is hunter2!now\nand hunter2!";
        for at in 0..text.len() {
            let (one, other) = text.split_at(at);
            assert_eq!(
                masked("hunter2!", &[one, other]),
                "pw is (secret)now\nand (secret)"
            );
        }
    }

    #[test]
    fn a_line_is_given_on_as_soon_as_it_is_whole() {
        let mut stream = MaskStream::new(Mask::new(&[Secret::new("hunter2!")]));
        assert_eq!(stream.push(b"one.\ntw"), b"one.\n");
        assert_eq!(stream.push(b"o.\n"), b"two.\n");
        assert_eq!(stream.finish(), b"");
    }

    #[test]
    fn a_line_that_could_begin_a_secret_waits_for_the_next() {
        let mut stream = MaskStream::new(Mask::new(&[Secret::new("hunter2!")]));
        assert_eq!(stream.push(b"one.\nis it hunt\n"), b"one.\n");
        assert_eq!(stream.push(b"  ing?\n"), b"is it hunt\n  ing?\n");
        assert_eq!(stream.push(b"it is hunt\n"), b"");
        assert_eq!(
            stream.push(b"  er2!, no less.\n"),
            b"it is (secret), no less.\n"
        );
        assert_eq!(stream.finish(), b"");
    }

    #[test]
    fn a_secret_of_several_lines_is_held_back_until_it_is_over() {
        let mut stream = MaskStream::new(Mask::new(&[Secret::new(KEY)]));
        assert_eq!(
            stream.push(b"{\"@level\":\"info\"}\nkey:\n"),
            b"{\"@level\":\"info\"}\nkey:\n"
        );
        assert_eq!(stream.push(KEY.as_bytes()), b"");
        assert_eq!(
            stream.push(b"\n{\"@level\":\"warn\"}\n"),
            b"(secret)\n{\"@level\":\"warn\"}\n"
        );
    }

    /// Each line could be inside the secret. The held-back text is not searched again for each line.
    #[test]
    fn a_secret_of_many_lines_is_held_back_line_by_line() {
        let line = |at: usize| format!("{:060x}", at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let key: String = (1..=150).map(|at| line(at) + "\n").collect();
        let mut stream = MaskStream::new(Mask::new(&[Secret::new(&key)]));
        let mut out = Vec::new();
        for one in key.lines() {
            out.extend(stream.push(format!("{one}\n").as_bytes()));
        }
        out.extend(stream.finish());
        assert_eq!(String::from_utf8(out).unwrap(), "(secret)\n");
    }

    /// Encodes a text as other programs do, with independent implementations.
    fn coated(secret: &str, before: &str, coat: usize) -> String {
        let hex = |byte: u8| format!("{byte:02x}");
        let percent = |byte: u8| {
            let is_plain = byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
            let code = format!("%{byte:02X}");
            if is_plain {
                char::from(byte).to_string()
            } else {
                code
            }
        };
        let hex: String = secret.bytes().map(hex).collect();
        let percent: String = secret.bytes().map(percent).collect();
        let quoted = serde_json::to_string(secret).unwrap();
        let coat = match coat {
            0 => secret.to_owned(),
            1 => quoted,
            2 => serde_json::to_string(&quoted).unwrap(),
            3 => percent,
            4 => percent.replace("%20", "+"),
            5 => hex.to_uppercase(),
            6 => hex,
            _ => return base64(format!("{before}{secret}").as_bytes()),
        };
        format!("{before}{coat}")
    }

    fn base64(bytes: &[u8]) -> String {
        const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let bits = |byte: &u8| format!("{byte:08b}");
        let bits: String = bytes.iter().map(bits).collect();
        let bits: Vec<char> = bits.chars().collect();
        let six = |six: &[char]| {
            let text: String = six.iter().collect();
            let number = usize::from_str_radix(&format!("{text:0<6}"), 2).unwrap();
            char::from(ALPHABET[number])
        };
        bits.chunks(6).map(six).collect()
    }

    proptest! {
        #[test]
        fn the_same_bytes_however_they_were_cut(
            words in proptest::collection::vec(
                prop_oneof!["[a-z\n]{0,6}", Just(KEY.to_owned()), Just("{\"@message\":\"x\"}\n".to_owned()), Just("é\n".to_owned())],
                0..12,
            ),
            cuts in proptest::collection::vec(0usize..200, 0..6),
        ) {
            let text = words.concat().into_bytes();
            let mut ends: Vec<usize> = cuts.into_iter().map(|at| at.min(text.len())).collect();
            ends.sort_unstable();
            let mut portions = Vec::new();
            let mut begin = 0;
            for end in ends {
                portions.push(&text[begin..end]);
                begin = end;
            }
            portions.push(&text[begin..]);
            let whole = masked(KEY, &[&text]);
            prop_assert_eq!(&masked(KEY, &portions), &whole);
            prop_assert!(!whole.contains("BEGIN KEY"));
        }

        /// For every encoding, every split of the input and every line break.
        #[test]
        fn no_coat_hides_a_secret(
            secret in "[a-zA-Z0-9/+&<>\"' é%=_.-]{12,80}",
            coat in 0usize..8,
            before in "[a-z ]{0,5}",
            width in 8usize..90,
            indent in 0usize..4,
            cuts in proptest::collection::vec(0usize..300, 0..6),
        ) {
            prop_assume!(secret.trim().len() >= 12);
            let secret = secret.trim();
            let coated = coated(secret, &before, coat);
            let indent = " ".repeat(indent);
            let characters: Vec<char> = coated.chars().collect();
            let lines: Vec<String> = characters
                .chunks(width)
                .map(|line| line.iter().collect())
                .collect();
            // A line that starts like indentation would be joined differently.
            prop_assume!(!lines.iter().any(|line| line.starts_with(' ')));
            let text = lines.join(&format!("\n{indent}")).into_bytes();
            let mut ends: Vec<usize> = cuts.into_iter().map(|at| at.min(text.len())).collect();
            ends.sort_unstable();
            let mut stream = MaskStream::new(Mask::new(&[Secret::new(secret)]));
            let mut out = Vec::new();
            let mut begin = 0;
            for end in ends.into_iter().chain([text.len()]) {
                out.extend(stream.push(&text[begin..end]));
                begin = end;
            }
            out.extend(stream.finish());
            let out = String::from_utf8_lossy(&out).into_owned();
            prop_assert!(out.contains(crate::base::masking::MASKED), "{coated:?} became {out:?}");
            let joined: String = out.lines().map(str::trim_start).collect();
            let core: String = coated.chars().skip(before.len() + 2).collect();
            prop_assert!(!joined.contains(&core), "{coated:?} became {out:?}");
        }
    }
}
