//! Hides secrets by content: wherever a value turns up, in whatever coat, `(secret)` stands instead.
//!
//! Not here: values that an engine marks as sensitive; they never get into a plan (`plan::parse`).

use std::collections::BTreeSet;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use serde_json::Value;

use crate::plan::{Plan, PlanValue};
use crate::secret::Secret;

mod stream;

pub use stream::MaskStream;

/// What stands where a secret was.
pub const MASKED: &str = "(secret)";

/// Shorter values turn up by chance; masking them would make text unreadable and give them away.
const SHORTEST: usize = 6;

/// A number this long is hidden where it stands alone, as a port does.
const SHORTEST_NUMBER: usize = 4;

/// As long as a secret, but words of any log.
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
    finder: Option<AhoCorasick>,
    /// Numbers that are too short for free text, and hidden where one is a whole value.
    numbers: BTreeSet<String>,
    short: Vec<usize>,
    /// Whether one of them goes over several lines.
    has_lines: bool,
}

impl Mask {
    pub fn new(secrets: &[Secret]) -> Self {
        let mut forms = Vec::new();
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
        let has_lines = forms.iter().any(|form| form.contains('\n'));
        let finder = (!forms.is_empty()).then(|| {
            AhoCorasick::builder()
                .match_kind(MatchKind::Standard)
                // Made for every run and used on a few kilobytes: the table of a DFA would cost more than it saves.
                .kind(Some(AhoCorasickKind::ContiguousNFA))
                .build(&forms)
                .ok()
        });
        Self {
            finder: finder.flatten(),
            numbers,
            short,
            has_lines,
        }
    }

    /// Which of the given secrets are too short or too common to be masked in free text.
    pub fn short(&self) -> &[usize] {
        &self.short
    }

    /// Whether there is nothing to look for in free text.
    pub fn is_empty(&self) -> bool {
        self.finder.is_none()
    }

    /// Whether the text holds a secret.
    pub fn finds_in(&self, text: &str) -> bool {
        self.finder.as_ref().is_some_and(|it| it.is_match(text))
    }

    pub fn mask_text(&self, text: &str) -> String {
        let Some(finder) = &self.finder else {
            return text.to_owned();
        };
        // Overlapping finds are merged, so that no tail of a second secret stays behind the first.
        let mut spans: Vec<(usize, usize)> = Vec::new();
        let mut found: Vec<_> = finder
            .find_overlapping_iter(text)
            .map(|hit| (hit.start(), hit.end()))
            .collect();
        found.sort_unstable();
        for (start, end) in found {
            match spans.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => spans.push((start, end)),
            }
        }
        let mut masked = String::with_capacity(text.len());
        let mut rest = 0;
        for (start, end) in spans {
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
                } else if self.finds_in(text) {
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

    pub fn mask_plan_value(&self, value: &mut PlanValue) {
        match value {
            PlanValue::Absent
            | PlanValue::Unknown
            | PlanValue::KnownAfter { .. }
            | PlanValue::Sensitive
            | PlanValue::Masked { .. } => {}
            PlanValue::Known(known @ (Value::Array(_) | Value::Object(_))) => {
                self.mask_value(known);
            }
            PlanValue::Known(known) => {
                let mut masked = known.clone();
                self.mask_value(&mut masked);
                if masked != *known {
                    *value = PlanValue::Sensitive;
                }
            }
        }
    }

    /// Masks all values of a plan.
    pub fn mask_plan(&self, plan: &mut Plan) {
        if self.is_empty() && self.numbers.is_empty() {
            return;
        }
        for change in plan.changes.iter_mut().chain(&mut plan.drift) {
            for attribute in &mut change.attributes {
                self.mask_plan_value(&mut attribute.before);
                self.mask_plan_value(&mut attribute.after);
            }
        }
        for output in plan.outputs.values_mut() {
            self.mask_plan_value(&mut output.before);
            self.mask_plan_value(&mut output.after);
        }
    }
}

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mask").finish_non_exhaustive()
    }
}

/// Whether a value is long and rare enough to be masked in free text.
pub fn is_maskable(value: &str) -> bool {
    value.chars().count() >= SHORTEST && !COMMON.contains(&value.to_ascii_lowercase().as_str())
}

/// The forms in which a value is known to turn up.
fn coats(value: &str) -> Vec<String> {
    let escaped = json_escaped(value);
    let mut forms = vec![value.to_owned(), html_safe(value)];
    // Quoted once more, as engines do inside their messages.
    forms.push(json_escaped(&escaped));
    forms.push(html_safe(&escaped));
    forms.push(escaped);
    forms.push(url_encoded(value, false, "%20"));
    forms.push(url_encoded(value, false, "+"));
    forms.push(url_encoded(value, true, "%20"));
    for offset in 0..3 {
        let plain = base64_core(value.as_bytes(), offset);
        if plain.len() >= 8 {
            forms.push(plain.replace('+', "-").replace('/', "_"));
            forms.push(plain);
        }
    }
    // A key file is logged line by line.
    forms.extend(
        value
            .lines()
            .map(str::trim)
            .filter(|line| {
                line.len() >= 16 && line.len() < value.len() && !line.starts_with("-----")
            })
            .map(str::to_owned),
    );
    forms
}

fn json_escaped(value: &str) -> String {
    let quoted = Value::from(value).to_string();
    quoted
        .get(1..quoted.len().saturating_sub(1))
        .unwrap_or_default()
        .to_owned()
}

/// As Go writes strings into JSON: the engines do.
fn html_safe(value: &str) -> String {
    json_escaped(value)
        .replace('&', "\\u0026")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
}

fn url_encoded(value: &str, lower: bool, space: &str) -> String {
    let mut encoded = String::new();
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte));
            }
            b' ' => encoded.push_str(space),
            _ => {
                let code = if lower {
                    format!("%{byte:02x}")
                } else {
                    format!("%{byte:02X}")
                };
                encoded.push_str(&code);
            }
        }
    }
    encoded
}

/// The characters of a base64 text that these bytes alone decide, when `offset` bytes (modulo 3)
/// stand before them.
fn base64_core(bytes: &[u8], offset: usize) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bit = |at: usize| -> usize {
        let byte = at / 8;
        byte.checked_sub(offset)
            .and_then(|byte| bytes.get(byte))
            .map_or(0, |byte| usize::from(byte >> (7 - at % 8) & 1))
    };
    let first = (offset * 8).div_ceil(6);
    let end = (offset + bytes.len()) * 8 / 6;
    (first..end)
        .map(|index| (0..6).fold(0, |six, place| six << 1 | bit(index * 6 + place)))
        .filter_map(|six| ALPHABET.get(six).copied().map(char::from))
        .collect()
}

#[cfg(test)]
mod tests;
