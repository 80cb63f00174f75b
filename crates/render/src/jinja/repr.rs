//! Values as Python shows them: alone (`str`), inside a list or a map (`repr`), and over several lines (`pprint`).

use std::fmt::Write as _;

use minijinja::value::ValueKind;
use minijinja::{Error, Value};

use super::python::float;
use super::templates::open_error;
use super::{dates, views};

/// Deeper nesting comes from a loop and is not readable.
const DEEPEST: usize = 500;

const NAMESPACE: &str = "Namespace";

/// `pprint` breaks longer lines.
const WIDTH: usize = 80;

/// A value as it is printed.
pub(super) fn str(value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::Number if !value.is_integer() => Ok(float(f64::try_from(value.clone())?)),
        ValueKind::Seq | ValueKind::Map | ValueKind::Bytes => repr(value),
        _ => Ok(value.to_string()),
    }
}

/// A value as shown inside a list.
pub(super) fn repr(value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    write(&mut out, value, false, 0)?;
    Ok(out)
}

fn write(out: &mut String, value: &Value, is_sorted: bool, depth: usize) -> Result<(), Error> {
    if depth > DEEPEST {
        return Err(open_error("this is nested too deep to be printed"));
    }
    if let Some(text) = dates::repr(value).or_else(|| views::shown(value)) {
        out.push_str(&text);
        return Ok(());
    }
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::Number if !value.is_integer() => {
            out.push_str(&float(f64::try_from(value.clone())?));
        }
        ValueKind::String => write_text(out, value.as_str().unwrap_or_default()),
        ValueKind::Bytes => write_bytes(out, value.as_bytes().unwrap_or_default()),
        ValueKind::Seq | ValueKind::Iterable if value.len().is_some() => {
            let (open, close) = brackets(value);
            out.push(open);
            for (at, item) in value.try_iter()?.enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                write(out, &item, is_sorted, depth + 1)?;
            }
            out.push_str(close);
        }
        ValueKind::Map => {
            let is_namespace = is_called(value, NAMESPACE);
            out.push_str(if is_namespace { "<Namespace {" } else { "{" });
            for (at, (key, item)) in pairs(value, is_sorted)?.iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                write(out, key, is_sorted, depth + 1)?;
                out.push_str(": ");
                write(out, item, is_sorted, depth + 1)?;
            }
            out.push_str(if is_namespace { "}>" } else { "}" });
        }
        // An error value raises its error when it is formatted.
        ValueKind::Invalid => out.push_str(&value.to_string()),
        _ => _ = write!(out, "{value:?}"),
    }
    Ok(())
}

fn brackets(list: &Value) -> (char, &'static str) {
    // The groups of `groupby` are tuples, too.
    let is_tuple = list.is_tuple() || is_called(list, "GroupTuple");
    match (is_tuple, list.len()) {
        (true, Some(1)) => ('(', ",)"),
        (true, _) => ('(', ")"),
        (false, _) => ('[', "]"),
    }
}

fn pairs(map: &Value, is_sorted: bool) -> Result<Vec<(Value, Value)>, Error> {
    let mut keys: Vec<Value> = map.try_iter()?.collect();
    if is_sorted {
        keys.sort();
    }
    let pair = |key: Value| Ok((key.clone(), map.get_item(&key)?));
    keys.into_iter().map(pair).collect()
}

/// Whether it is one of the engine's private object types.
fn is_called(value: &Value, name: &str) -> bool {
    let object = value.as_object();
    let of_type = object.and_then(|object| object.type_name().rsplit("::").next());
    of_type == Some(name)
}

fn write_bytes(out: &mut String, bytes: &[u8]) {
    let quote = quote(bytes.contains(&b'\''), bytes.contains(&b'"'));
    out.extend(['b', quote]);
    for byte in bytes {
        match char::from(*byte) {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote || c == '\\' => out.extend(['\\', c]),
            c @ ' '..='~' => out.push(c),
            _ => _ = write!(out, "\\x{byte:02x}"),
        }
    }
    out.push(quote);
}

fn quote(has_single: bool, has_double: bool) -> char {
    if has_single && !has_double { '"' } else { '\'' }
}

fn write_text(out: &mut String, text: &str) {
    let quote = quote(text.contains('\''), text.contains('"'));
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote || c == '\\' => out.extend(['\\', c]),
            c if is_printable(c) => out.push(c),
            c => {
                _ = match u32::from(c) {
                    code @ ..=0xff => write!(out, "\\x{code:02x}"),
                    code @ ..=0xffff => write!(out, "\\u{code:04x}"),
                    code => write!(out, "\\U{code:08x}"),
                }
            }
        }
    }
    out.push(quote);
}

/// Spaces other than the common one, and control and format characters, are not printable.
fn is_printable(c: char) -> bool {
    let is_space = c.is_whitespace() && c != ' ';
    let steers = matches!(c,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{180e}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{e000}'..='\u{f8ff}' | '\u{e0001}'..='\u{e007f}');
    !(is_space || steers || c.is_control())
}

/// Python's `pprint`: keys sorted, and long lines broken.
pub(super) fn pprint(value: &Value) -> Result<String, Error> {
    let mut printer = Printer { out: String::new() };
    printer.value(value, 0, 0, 1)?;
    Ok(printer.out)
}

struct Printer {
    out: String,
}

impl Printer {
    /// `after` is the width that must still fit after it.
    fn value(
        &mut self,
        value: &Value,
        indent: usize,
        after: usize,
        level: usize,
    ) -> Result<(), Error> {
        let whole = sorted_repr(value)?;
        let room = WIDTH.saturating_sub(indent + after);
        if whole.chars().count() <= room || level > DEEPEST {
            self.out.push_str(&whole);
            return Ok(());
        }
        match value.kind() {
            ValueKind::Map if !is_called(value, NAMESPACE) => self.map(value, indent, after, level),
            ValueKind::Seq => self.list(value, indent, after, level),
            ValueKind::String => {
                self.text(value.as_str().unwrap_or_default(), indent, after, level);
                Ok(())
            }
            _ => {
                self.out.push_str(&whole);
                Ok(())
            }
        }
    }

    fn map(&mut self, map: &Value, indent: usize, after: usize, level: usize) -> Result<(), Error> {
        let indent = indent + 1;
        self.out.push('{');
        let pairs = pairs(map, true)?;
        for (at, (key, value)) in pairs.iter().enumerate() {
            if at > 0 {
                self.line(",", indent);
            }
            let key = sorted_repr(key)?;
            let after = if at + 1 == pairs.len() { after + 1 } else { 1 };
            let inner = indent + key.chars().count() + 2;
            self.out.push_str(&key);
            self.out.push_str(": ");
            self.value(value, inner, after, level + 1)?;
        }
        self.out.push('}');
        Ok(())
    }

    fn list(
        &mut self,
        list: &Value,
        indent: usize,
        after: usize,
        level: usize,
    ) -> Result<(), Error> {
        let (open, close) = brackets(list);
        let indent = indent + 1;
        self.out.push(open);
        let items: Vec<Value> = list.try_iter()?.collect();
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.line(",", indent);
            }
            let after = if at + 1 == items.len() {
                after + close.len()
            } else {
                1
            };
            self.value(item, indent, after, level + 1)?;
        }
        self.out.push_str(close);
        Ok(())
    }

    /// Splits a text at its line ends, or between words where a line is too long.
    fn text(&mut self, text: &str, mut indent: usize, mut after: usize, level: usize) {
        if level == 1 {
            indent += 1;
            after += 1;
        }
        let room = WIDTH.saturating_sub(indent);
        let mut pieces = Vec::new();
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        for (at, line) in lines.iter().enumerate() {
            let is_last = at + 1 == lines.len();
            let last_room = if is_last {
                room.saturating_sub(after)
            } else {
                room
            };
            if text_length(line) <= last_room {
                pieces.push((*line).to_owned());
                continue;
            }
            let words = words(line);
            let mut now = String::new();
            for (at, word) in words.iter().enumerate() {
                let is_last = is_last && at + 1 == words.len();
                let room = if is_last {
                    room.saturating_sub(after)
                } else {
                    room
                };
                if text_length(&format!("{now}{word}")) > room && !now.is_empty() {
                    pieces.push(std::mem::take(&mut now));
                }
                now.push_str(word);
            }
            if !now.is_empty() {
                pieces.push(now);
            }
        }
        let has_brackets = level == 1 && pieces.len() > 1;
        if has_brackets {
            self.out.push('(');
        }
        for (at, piece) in pieces.iter().enumerate() {
            if at > 0 {
                self.line("", indent);
            }
            write_text(&mut self.out, piece);
        }
        if has_brackets {
            self.out.push(')');
        }
    }

    fn line(&mut self, end: &str, indent: usize) {
        self.out.push_str(end);
        self.out.push('\n');
        self.out.extend(std::iter::repeat_n(' ', indent));
    }
}

fn sorted_repr(value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    write(&mut out, value, true, 0)?;
    Ok(out)
}

fn text_length(text: &str) -> usize {
    let mut out = String::new();
    write_text(&mut out, text);
    out.chars().count()
}

/// Words, each with the spaces after it.
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        let blank = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let tail = &rest[blank..];
        let next = tail.find(|c: char| !c.is_whitespace());
        let (word, after) = rest.split_at(blank + next.unwrap_or(tail.len()));
        words.push(word);
        rest = after;
    }
    words
}
