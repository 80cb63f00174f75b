//! What a program printed last, for people: without secrets, and without pieces of them where it was cut.

use model::masking::{MASKED, Mask};

/// What was kept of what a program printed.
pub(crate) struct LastWords<'a> {
    pub(crate) output: &'a [u8],
    /// More than this was not kept, and the beginning went.
    pub(crate) limit: usize,
    /// It was stopped while it printed.
    pub(crate) was_stopped: bool,
}

impl LastWords<'_> {
    /// Masked before anything more is cut off: half a secret is known to nobody.
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
        // It may begin with the end of a secret: what comes first goes, up to where something whole begins.
        let line = text.find('\n').map(|at| at + 1);
        let first = [line, text.find(MASKED)].into_iter().flatten().min();
        first.map_or_else(String::new, |first| format!("…{}", &text[first..]))
    }
}

#[cfg(test)]
mod tests {
    use model::secret::Secret;

    use super::*;

    #[track_caller]
    fn check(output: &str, limit: usize, was_stopped: bool, shown: &str) {
        let mask = Mask::new(&[Secret::new("hunter2-and-more")]);
        let words = LastWords {
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
