//! Replaces secret values with `(secret)` wherever they occur, in any known encoding.
//!
//! Not here: values that an engine marks as sensitive; they never get into a plan (`plan::parse`).

use std::collections::BTreeSet;

use serde_json::Value;

use crate::base::secret::Secret;

mod encodings;
mod events;
mod finder;
mod stream;

use encodings::{coats, coats_of_token};
use finder::Finder;
pub use stream::MaskStream;

/// The text that replaces a secret.
pub const MASKED: &str = "(secret)";

/// Shorter values occur by chance; masking them would make text unreadable and reveal them.
const SHORTEST: usize = 6;

/// A number of at least this many digits is masked where it is a whole value, such as a port.
const SHORTEST_NUMBER: usize = 4;

/// Marks the end of a truncated text.
const CUT: char = '…';

/// Long enough for a secret, but common in logs.
const COMMON: [&str; 15] = [
    "changeme",
    "default",
    "development",
    "disabled",
    "enabled",
    "example",
    "localhost",
    "password",
    "postgres",
    "private",
    "production",
    "public",
    "secret",
    "staging",
    "terraform",
];

/// All secrets of a run, ready to be found in its output.
#[derive(Clone, Default)]
pub struct Mask {
    finder: Option<Finder>,
    /// Numbers that are too short to be masked in free text. They are masked where they are a whole value.
    numbers: BTreeSet<String>,
    short: Vec<usize>,
}

impl Mask {
    pub fn new(secrets: &[Secret]) -> Self {
        Self::of(secrets, Vec::new())
    }

    /// Also masks the token of one run. It is searched in fewer encodings, since every run has one.
    pub fn with_token(secrets: &[Secret], token: &Secret) -> Self {
        Self::of(secrets, coats_of_token(token.expose()))
    }

    fn of(secrets: &[Secret], mut forms: Vec<String>) -> Self {
        let mut short = Vec::new();
        let mut numbers = BTreeSet::new();
        for (index, secret) in secrets.iter().enumerate() {
            let value = secret.expose().trim();
            if value.is_empty() {
                continue;
            }
            if is_maskable(value) {
                forms.extend(coats(value));
            } else {
                short.push(index);
                if value.len() >= SHORTEST_NUMBER && value.bytes().all(|byte| byte.is_ascii_digit())
                {
                    numbers.insert(value.to_owned());
                }
            }
        }
        forms.sort_unstable();
        forms.dedup();
        Self {
            finder: Finder::new(&forms),
            numbers,
            short,
        }
    }

    /// Which of the given secrets are too short or too common to be masked in free text.
    pub fn short(&self) -> &[usize] {
        &self.short
    }

    /// Whether no secret can be masked in free text.
    pub fn is_empty(&self) -> bool {
        self.finder.is_none()
    }

    /// Whether any secret can be masked, even if only as a whole value.
    pub fn looks_for_something(&self) -> bool {
        self.finder.is_some() || !self.numbers.is_empty()
    }

    /// Whether the text holds a secret.
    pub fn finds_in(&self, text: &str) -> bool {
        self.finder
            .as_ref()
            .is_some_and(|finder| finder.is_in(text.as_bytes()))
    }

    /// Whether masking may change the text: it contains a secret, or was truncated, possibly inside one.
    pub(crate) fn touches(&self, text: &str) -> bool {
        self.finder.is_some() && (text.contains(CUT) || self.finds_in(text))
    }

    /// Whether any part of a value holds a secret.
    pub fn finds_in_value(&self, value: &Value) -> bool {
        let mut masked = value.clone();
        self.mask_value(&mut masked);
        masked != *value
    }

    /// False only if no part of a JSON document contains a secret. Cheaper than checking each part.
    pub fn may_be_in(&self, document: &[u8]) -> bool {
        let looks = |finder: &Finder| {
            finder.is_in(document)
                || match unescaped(document) {
                    None => is_cut(document),
                    // Texts that were escaped before are escaped once more in a document.
                    Some(meant) => {
                        holds(document, br"\\") || is_cut(&meant) || finder.is_in(&meant)
                    }
                }
        };
        !self.numbers.is_empty() || self.finder.as_ref().is_some_and(looks)
    }

    pub fn mask_text(&self, text: &str) -> String {
        let Some(finder) = &self.finder else {
            return text.to_owned();
        };
        let mut masked = String::with_capacity(text.len());
        let mut rest = 0;
        for (start, end) in finder.spans_in_cut(text) {
            masked.push_str(text.get(rest..start).unwrap_or_default());
            masked.push_str(MASKED);
            rest = end;
        }
        masked.push_str(text.get(rest..).unwrap_or_default());
        masked
    }

    /// Masks every string of a value, keys included, and numbers that are a secret as a whole.
    pub fn mask_value(&self, value: &mut Value) {
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::Number(number) => {
                let digits = number.to_string();
                if self.finds_in(&digits) || self.numbers.contains(&digits) {
                    *value = Value::String(MASKED.to_owned());
                }
            }
            Value::String(text) => {
                if self.numbers.contains(text.as_str()) {
                    MASKED.clone_into(text);
                } else if self.touches(text) {
                    *text = self.mask_text(text);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.mask_value(item)),
            Value::Object(fields) => {
                if fields.keys().any(|key| self.finds_in(key)) {
                    *fields = std::mem::take(fields)
                        .into_iter()
                        .map(|(key, field)| (self.mask_text(&key), field))
                        .collect();
                }
                fields.values_mut().for_each(|field| self.mask_value(field));
            }
        }
    }
}

/// Whether a text may have been truncated.
fn is_cut(text: &[u8]) -> bool {
    let mut cut = [0; CUT.len_utf8()];
    let cut = CUT.encode_utf8(&mut cut).as_bytes();
    text.contains(&cut[0]) && holds(text, cut)
}

fn holds(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|one| one == part)
}

/// A JSON document with its escapes decoded; `None` if it has none.
fn unescaped(document: &[u8]) -> Option<Vec<u8>> {
    let mut rest = document;
    let mut meant = Vec::new();
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        meant.extend_from_slice(&rest[..at]);
        let escaped = rest.get(at + 1).copied();
        rest = rest.get(at + 2..).unwrap_or_default();
        match escaped {
            Some(b'n') => meant.push(b'\n'),
            Some(b'r') => meant.push(b'\r'),
            Some(b't') => meant.push(b'\t'),
            Some(b'b') => meant.push(8),
            Some(b'f') => meant.push(12),
            Some(b'u') => rest = code_points(rest, &mut meant),
            Some(other) => meant.push(other),
            None => {}
        }
    }
    if meant.is_empty() && rest.len() == document.len() {
        return None;
    }
    meant.extend_from_slice(rest);
    Some(meant)
}

/// Decodes the digits after `\u`, or a surrogate pair of two such escapes. Returns the rest.
fn code_points<'a>(text: &'a [u8], meant: &mut Vec<u8>) -> &'a [u8] {
    let unit = |text: &[u8]| {
        let digits = std::str::from_utf8(text.get(..4)?).ok()?;
        u16::from_str_radix(digits, 16).ok()
    };
    let first = unit(text);
    let rest = text.get(4..).unwrap_or_default();
    let second = rest.strip_prefix(br"\u").and_then(unit);
    let pair = first.zip(second).map(|(first, second)| [first, second]);
    let both = pair.filter(|[first, _]| (0xd800..0xdc00).contains(first));
    let (units, rest) = match both {
        Some(both) => (both.to_vec(), rest.get(6..).unwrap_or_default()),
        None => (first.into_iter().collect(), rest),
    };
    meant.extend_from_slice(String::from_utf16_lossy(&units).as_bytes());
    rest
}

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mask").finish_non_exhaustive()
    }
}

/// Truncates a text to `most` characters. A mark at the end shows this, so that a mask also finds the
/// beginning of a secret there.
pub fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}{CUT}", &text[..at]),
        None => text.to_owned(),
    }
}

/// Whether a secret is too short or too common to be masked in free text.
pub fn is_short(secret: &Secret) -> bool {
    !Mask::new(std::slice::from_ref(secret)).short().is_empty()
}

/// Whether a value is long and rare enough to be masked in free text.
pub fn is_maskable(value: &str) -> bool {
    value.chars().count() >= SHORTEST && !COMMON.contains(&value.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests;
