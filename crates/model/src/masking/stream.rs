//! Masks what an engine writes while it writes it: in portions that end wherever a read ended, and with the
//! same bytes as a result however they were cut.

use super::Mask;

/// How every event of an engine's stream begins. No secret goes on beyond such a line.
const EVENT: &[u8] = b"{\"@";

/// Takes bytes as they come, gives them on masked. What could be the beginning of a secret waits for the rest
/// of its line; a secret of several lines, for the next event.
#[derive(Debug)]
pub struct MaskStream {
    mask: Mask,
    rest: Vec<u8>,
}

impl MaskStream {
    pub fn new(mask: Mask) -> Self {
        Self {
            mask,
            rest: Vec::new(),
        }
    }

    /// What these bytes complete, masked.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.rest.extend_from_slice(bytes);
        let mut out = Vec::new();
        let mut begin = 0;
        let mut line = 0;
        while let Some(length) = self.rest[line..].iter().position(|byte| *byte == b'\n') {
            let end = line + length + 1;
            if self.rest[line..end].starts_with(EVENT) {
                self.give(begin, line, &mut out);
                self.give(line, end, &mut out);
                begin = end;
            } else if !self.mask.has_lines {
                self.give(line, end, &mut out);
                begin = end;
            }
            line = end;
        }
        self.rest.drain(..begin);
        out
    }

    /// What was held back, when nothing more will come.
    pub fn finish(self) -> Vec<u8> {
        let mut out = Vec::new();
        let last = self.rest.iter().rposition(|byte| *byte == b'\n');
        let line = last.map_or(0, |at| at + 1);
        if self.rest[line..].starts_with(EVENT) {
            self.give(0, line, &mut out);
            self.give(line, self.rest.len(), &mut out);
        } else {
            self.give(0, self.rest.len(), &mut out);
        }
        out
    }

    fn give(&self, from: usize, to: usize, out: &mut Vec<u8>) {
        let bytes = &self.rest[from..to];
        if bytes.is_empty() {
            return;
        }
        let text = String::from_utf8_lossy(bytes);
        if self.mask.finds_in(&text) {
            out.extend_from_slice(self.mask.mask_text(&text).as_bytes());
        } else {
            out.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::secret::Secret;

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
        assert_eq!(stream.push(b"one\ntw"), b"one\n");
        assert_eq!(stream.push(b"o\n"), b"two\n");
        assert_eq!(stream.finish(), b"");
    }

    #[test]
    fn a_secret_of_several_lines_is_held_back_until_it_is_over() {
        let mut stream = MaskStream::new(Mask::new(&[Secret::new(KEY)]));
        assert_eq!(
            stream.push(b"{\"@level\":\"info\"}\nkey:\n"),
            b"{\"@level\":\"info\"}\n"
        );
        assert_eq!(stream.push(KEY.as_bytes()), b"");
        assert_eq!(
            stream.push(b"\n{\"@level\":\"warn\"}\n"),
            b"key:\n(secret)\n{\"@level\":\"warn\"}\n"
        );
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
    }
}
