//! The encodings in which a value is known to occur.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use super::is_maskable;

/// Longer values, mostly files, are only searched in the usual encodings.
const LONG: usize = 4096;

/// The shortest piece of base64 that does not occur by chance.
const SHORTEST_BASE64: usize = 7;

/// The shortest line of a file that is searched on its own, and the shortest if it is one word.
const SHORTEST_LINE: usize = 16;
const SHORTEST_WORD: usize = 8;

/// The characters that URL encoders leave unchanged, besides letters, digits and `-_.~`.
const KEPT: [&[u8]; 5] = [b"", b"/", b"!*'()", b"$&+=:@", b"$&+,;=/:@"];

pub(super) fn coats(value: &str) -> Vec<String> {
    let mut forms = vec![value.to_owned()];
    forms.extend(in_json(value));
    forms.extend(in_base64(value));
    // A key file is logged line by line, or as a whole.
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
        forms.push(value.replace('\\', "\\\\"));
        forms.extend(in_quotes(value));
        forms.extend(in_markup(value));
        forms.extend(in_base64_of_others(value));
    }
    forms.retain(|form| !form.is_empty());
    forms
}

/// Whether a line is specific to its file: long, or one word such as a password or the end of a key. `metadata:` and
/// `},` occur in every file.
fn is_telling(line: &str) -> bool {
    let is_word = !line.contains(char::is_whitespace) && !line.ends_with([':', ',', '{', '[', '(']);
    let shortest = if is_word {
        SHORTEST_WORD
    } else {
        SHORTEST_LINE
    };
    line.len() >= shortest && !line.starts_with("-----") && is_maskable(line)
}

/// The encodings of a token that terrane created from letters and digits: as it is, and in a request header.
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
        // At the end of a text, the last character is determined too. `echo` adds a line end.
        let ends = ["", "\n"].map(|end| base64_end(&format!("{value}{end}"), offset));
        for form in ends.into_iter().flatten().chain([plain]) {
            forms.push(form.replace('+', "-").replace('/', "_"));
            forms.push(form);
        }
    }
    forms
}

/// A password in the data of a Kubernetes Secret is often already JSON or base64.
fn in_base64_of_others(value: &str) -> Vec<String> {
    let quoted = [PLAIN, GO].map(|writer| writer.escaped(value));
    let quoted = quoted.into_iter().filter(|text| text != value);
    let coded = (0..3).map(|offset| base64_core(value.as_bytes(), offset));
    let coded = coded.filter(|text| text.len() >= SHORTEST_BASE64);
    let mut forms = Vec::new();
    for text in quoted.chain(coded) {
        let cores = (0..3).map(|offset| base64_core(text.as_bytes(), offset));
        forms.extend(cores.filter(|core| core.len() >= SHORTEST_BASE64));
    }
    forms
}

/// The characters that a JSON writer escapes, besides quotes, backslashes and control characters.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is a habit of its own")]
struct JsonWriter {
    /// `&`, `<`, `>` and JavaScript's line separators as code points.
    markup: bool,
    /// All non-ASCII characters as code points.
    ascii: bool,
    /// `/` with a backslash.
    slashes: bool,
    /// Quotes and `+` as code points, all in capitals.
    wary: bool,
}

const PLAIN: JsonWriter = JsonWriter {
    markup: false,
    ascii: false,
    slashes: false,
    wary: false,
};

/// The engines and other Go programs.
const GO: JsonWriter = JsonWriter {
    markup: true,
    ..PLAIN
};

/// Python and others; PHP; writers that escape `</script>`; .NET.
const OTHERS: [JsonWriter; 4] = [
    JsonWriter {
        ascii: true,
        ..PLAIN
    },
    JsonWriter {
        ascii: true,
        slashes: true,
        ..PLAIN
    },
    JsonWriter {
        slashes: true,
        ..PLAIN
    },
    JsonWriter {
        markup: true,
        ascii: true,
        wary: true,
        ..PLAIN
    },
];

/// Inside a JSON string, and inside a string that is quoted in another one, as in engine messages.
fn in_json(value: &str) -> BTreeSet<String> {
    let mut outer = vec![PLAIN, GO];
    let mut inner = outer.clone();
    if value.len() <= LONG {
        inner.extend(OTHERS);
        outer.extend(&OTHERS[..1]);
    }
    let once = inner.iter().map(|writer| writer.escaped(value));
    let once: BTreeSet<String> = once.collect();
    let twice = outer.iter().flat_map(|writer| {
        let writer = *writer;
        once.iter().map(move |text| writer.escaped(text))
    });
    let twice: BTreeSet<String> = twice.collect();
    &once | &twice
}

impl JsonWriter {
    fn escaped(self, value: &str) -> String {
        let mut text = String::with_capacity(value.len());
        for c in value.chars() {
            let by_number = match c {
                '&' | '<' | '>' | '\u{2028}' | '\u{2029}' => self.markup,
                '"' | '\'' | '+' | '`' => self.wary,
                _ => false,
            };
            if by_number || (self.ascii && !c.is_ascii()) {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a string cannot fail.
                    let _ = if self.wary {
                        write!(text, "\\u{unit:04X}")
                    } else {
                        write!(text, "\\u{unit:04x}")
                    };
                }
            } else if c == '/' && self.slashes {
                text.push_str("\\/");
            } else if c == '"' || c == '\\' || c.is_control() {
                text.push_str(&escape(c));
            } else {
                text.push(c);
            }
        }
        text
    }
}

fn escape(c: char) -> String {
    let quoted = Value::from(c.to_string()).to_string();
    let inner = quoted
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    inner.unwrap_or_default().to_owned()
}

/// Every byte in hex, with this prefix.
fn in_hex(value: &str, before: &str) -> String {
    let mut text = String::new();
    for byte in value.bytes() {
        let _ = write!(text, "{before}{byte:02x}");
    }
    text
}

/// Inside single quotes (shells, Python's `shlex`, YAML, SQL), and as `printf %q` writes it: plain, or between `$'` and
/// `'` if it has control characters. Python's `repr` leaves single quotes unescaped if it can.
fn in_quotes(value: &str) -> [String; 6] {
    let quotes = [r"'\''", r#"'"'"'"#, "''"].map(|inside| value.replace('\'', inside));
    let mut escaped = String::new();
    for c in value.chars() {
        if c.is_ascii_punctuation() && !"%+-./:=@_#~".contains(c) || c == ' ' {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    let repr = PLAIN.escaped(value).replace("\\\"", "\"");
    let dollar = repr.replace('\'', "\\'");
    let [shell, python, yaml] = quotes;
    [shell, python, yaml, escaped, repr, dollar]
}

/// In XML and HTML, with and without escaped quotes.
fn in_markup(value: &str) -> [String; 4] {
    let text = value
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    let quoted = text.replace('"', "&quot;").replace('\'', "&#39;");
    let numbered = text.replace('"', "&#34;").replace('\'', "&#39;");
    let python = text.replace('"', "&quot;").replace('\'', "&#x27;");
    [text, quoted, numbered, python]
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

/// The end of a base64 text that ends with these bytes, with and without padding.
fn base64_end(value: &str, offset: usize) -> [String; 2] {
    let rest = (offset + value.len()) % 3;
    let zeros = (3 - rest) % 3;
    let filled = format!("{value}{}", "\0".repeat(zeros));
    let mut bare = base64_core(filled.as_bytes(), offset);
    bare.truncate(bare.len().saturating_sub(zeros));
    [format!("{bare}{}", "=".repeat(zeros)), bare]
}

/// The base64 characters that these bytes alone determine, after `offset` bytes (modulo 3).
fn base64_core(bytes: &[u8], offset: usize) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let byte = |at: usize| {
        let byte = at.checked_sub(offset).and_then(|at| bytes.get(at));
        byte.map_or(0, |byte| usize::from(*byte))
    };
    let six_from = |bit: usize| {
        let two = byte(bit / 8) << 8 | byte(bit / 8 + 1);
        two >> (10 - bit % 8) & 0b11_1111
    };
    let first = (offset * 8).div_ceil(6);
    let end = (offset + bytes.len()) * 8 / 6;
    (first..end)
        .filter_map(|index| ALPHABET.get(six_from(index * 6)).copied().map(char::from))
        .collect()
}
