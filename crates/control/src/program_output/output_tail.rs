//! The last output of a program, for people: without secrets, and without fragments of secrets where it was
//! cut.

use model::base::masking::{MASKED, Mask};

/// The stored output of a program.
pub(crate) struct OutputTail<'a> {
    pub(crate) output: &'a [u8],
    /// Maximum size of the stored output; longer output lost its beginning.
    pub(crate) limit: usize,
    /// Whether the program was stopped while it printed.
    pub(crate) was_stopped: bool,
}

impl OutputTail<'_> {
    /// Masks the text before it is cut further: half a secret cannot be recognised.
    pub(crate) fn masked(&self, masks: &[&Mask]) -> String {
        let mut text = String::from_utf8_lossy(self.output).into_owned();
        if self.was_stopped && !text.is_empty() && !text.ends_with('\n') {
            text.push('…');
        }
        for mask in masks {
            text = mask.mask_text(&text);
        }
        if self.output.len() < self.limit {
            return text;
        }
        // The text may begin with the end of a secret. Drop everything up to the first whole line or masked
        // value.
        let line = text.find('\n').map(|at| at + 1);
        let first = [line, text.find(MASKED)].into_iter().flatten().min();
        first.map_or_else(String::new, |first| format!("…{}", &text[first..]))
    }
}

#[cfg(test)]
mod tests {
    use model::base::secret::Secret;

    use super::*;

    #[track_caller]
    fn check(output: &str, limit: usize, was_stopped: bool, shown: &str) {
        let mask = Mask::new(&[Secret::new("hunter2-and-more")]);
        let words = OutputTail {
            output: output.as_bytes(),
            limit,
            was_stopped,
        };
        assert_eq!(words.masked(&[&Mask::default(), &mask]), shown);
    }

    #[test]
    fn no_piece_of_a_secret_is_shown() {
        check("a hunter2-and-more b\n", 99, true, "a (secret) b\n");
        check("hunter2-and-morehunter2-a", 99, true, "(secret)…");
        check("nd-morehunter2-and-more", 23, false, "…(secret)");
        check("d-more x\nnext\n", 14, false, "…next\n");
        check("no line and no secret", 21, false, "");
    }
}
