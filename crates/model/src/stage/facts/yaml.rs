//! YAML that every parser reads in the same way. Strings are always quoted, so that `no`, `1e3` or `::1` keep their
//! meaning in every YAML version. Equal values give equal bytes.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::base::exact_number;

pub(super) fn document(fields: &Map<String, Value>) -> String {
    if fields.is_empty() {
        return "{}\n".to_owned();
    }
    let mut text = String::new();
    write_fields(&mut text, fields, 0);
    text
}

fn write_fields(text: &mut String, fields: &Map<String, Value>, depth: usize) {
    for (key, value) in fields {
        text.push_str(&"  ".repeat(depth));
        text.push_str(&key_text(key));
        text.push(':');
        write_value(text, value, depth + 1);
    }
}

/// Writes what follows a `key:` or a `-`, up to the end of its last line.
fn write_value(text: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(fields) if exact_number::digits(value).is_none() && !fields.is_empty() => {
            text.push('\n');
            write_fields(text, fields, depth);
        }
        Value::Array(items) if !items.is_empty() => {
            text.push('\n');
            for item in items {
                text.push_str(&"  ".repeat(depth));
                text.push('-');
                write_value(text, item, depth + 1);
            }
        }
        Value::String(string) => {
            text.push(' ');
            text.push_str(&quoted(string));
            text.push('\n');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            text.push(' ');
            text.push_str(&exact_number::write(value));
            text.push('\n');
        }
    }
}

/// Unambiguous keys stay unquoted.
fn key_text(key: &str) -> String {
    let starts = key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let is_word = key
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/'));
    let lower = key.to_ascii_lowercase();
    let means_more = matches!(
        lower.as_str(),
        "y" | "n" | "yes" | "no" | "on" | "off" | "true" | "false" | "null"
    );
    if starts && is_word && !means_more {
        key.to_owned()
    } else {
        quoted(key)
    }
}

fn quoted(string: &str) -> String {
    let mut text = String::with_capacity(string.len() + 2);
    text.push('"');
    for c in string.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            c if c.is_control()
                || matches!(
                    c,
                    '\u{feff}' | '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}'
                ) =>
            {
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text.push('"');
    text
}
