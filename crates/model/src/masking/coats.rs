//! The forms in which a value is known to turn up.

use std::fmt::Write as _;

use serde_json::Value;

use super::is_maskable;

/// Of longer values, files mostly, only the usual ones are looked for.
const LONG: usize = 4096;

/// The shortest piece of base64 that does not turn up by chance.
const SHORTEST_BASE64: usize = 7;

/// The shortest line of a file that is looked for alone, and the shortest if it is one word.
const SHORTEST_LINE: usize = 16;
const SHORTEST_WORD: usize = 8;

/// What encoders of URLs leave as it is, beside letters, digits and `-_.~`.
const KEPT: [&[u8]; 5] = [b"", b"/", b"!*'()", b"$&+=:@", b"$&+,;=/:@"];

pub(super) fn coats(value: &str) -> Vec<String> {
    let escaped = json_escaped(value);
    let mut forms = vec![value.to_owned(), html_safe(value)];
    // Quoted once more, as engines do inside their messages.
    forms.push(json_escaped(&escaped));
    forms.push(html_safe(&escaped));
    forms.push(escaped);
    forms.extend(in_base64(value));
    // A key file is logged line by line, or as one.
    let lines = || value.lines().map(str::trim);
    forms.extend(
        lines()
            .filter(|line| line.len() < value.len() && is_telling(line))
            .map(str::to_owned),
    );
    if value.contains('\n') {
        forms.push(lines().collect());
    }
    for kept in KEPT {
        for lower in [false, true] {
            forms.push(url_encoded(value, kept, lower, "%20"));
            forms.push(url_encoded(value, kept, lower, "+"));
        }
    }
    if value.len() <= LONG {
        for before in ["", "%", ":", " ", "\\x"] {
            let bytes = in_hex(value, before);
            let bytes = bytes.strip_prefix([':', ' ']).unwrap_or(&bytes);
            forms.push(bytes.to_uppercase());
            forms.push(bytes.to_owned());
        }
        forms.push(value.to_lowercase());
        forms.push(value.to_uppercase());
        forms.push(in_ascii(value));
        forms.push(json_escaped(&in_ascii(value)));
        forms.push(value.replace('\\', "\\\\"));
        forms.push(json_escaped(value).replace('/', "\\/"));
        forms.push(value.replace('\'', r"'\''"));
        forms.extend(in_markup(value));
    }
    forms.retain(|form| !form.is_empty());
    forms
}

/// Whether a line says something that stands in no other file: long, or one word such as a password or the end of a key.
/// `metadata:` and `},` stand in every one.
fn is_telling(line: &str) -> bool {
    let is_word = !line.contains(char::is_whitespace) && !line.ends_with([':', ',', '{', '[', '(']);
    let shortest = if is_word {
        SHORTEST_WORD
    } else {
        SHORTEST_LINE
    };
    line.len() >= shortest && !line.starts_with("-----") && is_maskable(line)
}

/// Of what we made ourselves, letters and digits that nobody meets in any other way: as it stands, and in the header of a
/// request.
pub(super) fn coats_of_token(value: &str) -> Vec<String> {
    let mut forms = in_base64(value);
    forms.push(value.to_owned());
    forms
}

fn in_base64(value: &str) -> Vec<String> {
    let mut forms = Vec::new();
    for offset in 0..3 {
        let plain = base64_core(value.as_bytes(), offset);
        if plain.len() < SHORTEST_BASE64 {
            continue;
        }
        // Where it ends there, the last character is known, too; `echo` adds the end of a line.
        let ends = ["", "\n"].map(|end| base64_end(&format!("{value}{end}"), offset));
        for form in ends.into_iter().flatten().chain([plain]) {
            forms.push(form.replace('+', "-").replace('/', "_"));
            forms.push(form);
        }
    }
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

/// JSON as it is written by who trusts nothing but ASCII.
fn in_ascii(value: &str) -> String {
    let mut text = String::new();
    for c in json_escaped(value).chars() {
        if c.is_ascii() {
            text.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                // Writing to a string cannot fail.
                let _ = write!(text, "\\u{unit:04x}");
            }
        }
    }
    text
}

/// Every byte by its number, with this before each.
fn in_hex(value: &str, before: &str) -> String {
    let mut text = String::new();
    for byte in value.bytes() {
        let _ = write!(text, "{before}{byte:02x}");
    }
    text
}

/// As it stands in XML and HTML, with and without quotes escaped.
fn in_markup(value: &str) -> [String; 3] {
    let text = value
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    let quoted = text.replace('"', "&quot;").replace('\'', "&#39;");
    let numbered = text.replace('"', "&#34;").replace('\'', "&#39;");
    [text, quoted, numbered]
}

fn url_encoded(value: &str, kept: &[u8], lower: bool, space: &str) -> String {
    let mut encoded = String::new();
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte));
            }
            byte if kept.contains(&byte) => encoded.push(char::from(byte)),
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

/// The end of a base64 text that ends with these bytes: with the characters that fill it up, and without.
fn base64_end(value: &str, offset: usize) -> [String; 2] {
    let rest = (offset + value.len()) % 3;
    let zeros = (3 - rest) % 3;
    let filled = format!("{value}{}", "\0".repeat(zeros));
    let mut bare = base64_core(filled.as_bytes(), offset);
    bare.truncate(bare.len().saturating_sub(zeros));
    [format!("{bare}{}", "=".repeat(zeros)), bare]
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
