//! Where in the bytes of a state a secret stands: positions, never values. What was sensitive in another version of it
//! is found by its value here, and goes with the bytes to a home that has never seen that version.
//!
//! Not here: places that have a name, and hold a secret whatever stands there (`hidden`).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::masking::Mask;
use crate::secret::Secret;

/// A part of a text or number. Stored: fields are only added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passage {
    /// Where the text or number begins, in bytes of the state.
    pub at: usize,
    /// From where to where it is a secret, in bytes of what the text says.
    pub from: usize,
    pub to: usize,
}

/// Where the secrets stand that a mask knows.
pub fn passages(body: &[u8], mask: &Mask) -> Vec<Passage> {
    let mut found = Vec::new();
    for at in starts(body) {
        let text = text_at(body, at);
        let spans = text.map(|text| mask.spans(text.expose()));
        let spans = spans.unwrap_or_default().into_iter();
        found.extend(spans.map(|(from, to)| Passage { at, from, to }));
    }
    found
}

/// What stands there.
pub fn standing_in(body: &[u8], passages: &[Passage]) -> Vec<Secret> {
    let mut found = Vec::new();
    for passage in passages {
        let text = text_at(body, passage.at);
        let part = text.as_ref().and_then(|text| {
            let part = text.expose().get(passage.from..passage.to)?;
            Some(Secret::new(part))
        });
        found.extend(part.filter(|part| !found.contains(part)));
    }
    found
}

/// Where texts (names of fields, too) and numbers begin.
fn starts(body: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(byte) = body.get(at) {
        let is_number = byte.is_ascii_digit() || *byte == b'-';
        if *byte == b'"' || is_number {
            found.push(at);
        }
        at += 1;
        if is_number {
            let rest = body[at..].iter();
            at += rest.take_while(|byte| is_in_number(**byte)).count();
        } else if *byte == b'"' {
            at += length_of_text(&body[at..]);
        }
    }
    found
}

fn is_in_number(byte: u8) -> bool {
    byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E')
}

/// Of what follows the first quotation mark, with the last one.
fn length_of_text(rest: &[u8]) -> usize {
    let mut is_escaped = false;
    for (at, byte) in rest.iter().enumerate() {
        match byte {
            b'"' if !is_escaped => return at + 1,
            b'\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    rest.len()
}

fn text_at(body: &[u8], at: usize) -> Option<Secret> {
    let rest = body.get(at..)?;
    if rest.first() == Some(&b'"') {
        let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<Value>();
        return match values.next()?.ok()? {
            Value::String(text) => Some(Secret::new(text)),
            _ => None,
        };
    }
    let length = rest.iter().take_while(|byte| is_in_number(**byte)).count();
    let digits = std::str::from_utf8(&rest[..length]).ok()?;
    Some(Secret::new(digits))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(state: &Value, secrets: &[&str], expected: &[&str]) {
        let secrets: Vec<Secret> = secrets.iter().map(|text| Secret::new(*text)).collect();
        let body = state.to_string().into_bytes();
        let found = passages(&body, &Mask::new(&secrets));
        let stored = serde_json::to_string(&found).unwrap();
        for secret in &secrets {
            assert!(!stored.contains(secret.expose()), "{stored}");
        }
        let found: Vec<Passage> = serde_json::from_str(&stored).unwrap();
        let standing = standing_in(&body, &found);
        let texts: Vec<&str> = standing.iter().map(Secret::expose).collect();
        assert_eq!(texts, expected);
    }

    #[test]
    fn a_secret_is_found_again_wherever_it_stands() {
        let secret = "first\"sec\\ret\u{e9}";
        let inside = format!("export TOKEN={secret}; \\\"");
        check(&json!({ "a": ["x", inside] }), &[secret], &[secret]);
        check(&json!({ inside: {"-": 1} }), &[secret], &[secret]);
        check(&json!([4711, "4711", 47110, -4711]), &["4711"], &["4711"]);
        check(
            &json!(["c2VjcmV0LWE=", "plain"]),
            &["secret-a"],
            &["c2VjcmV0LWE="],
        );
        check(&json!({ "a": "nothing" }), &[secret], &[]);
    }

    /// Whoever edits such a list learns nothing, and ends nothing.
    #[test]
    fn positions_that_are_nowhere() {
        let body = "{\"a\": \"\u{e9}\u{e9}\"".as_bytes();
        for (at, from, to) in [(99, 0, 1), (6, 1, 2), (6, 9, 1), (0, 0, 1), (1, 0, 9)] {
            let passage = Passage { at, from, to };
            assert_eq!(standing_in(body, &[passage]), []);
        }
    }
}
