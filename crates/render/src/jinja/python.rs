//! Features of Jinja2 and Python that the template engine lacks: filters, tests, string methods, and number
//! formatting.
//!
//! Left out on purpose: `random`, `lipsum` (different output each time) and `urlize` (for web pages).

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use minijinja::value::{Kwargs, Object, ObjectRepr, Rest, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::{filters, globals, pycompat};

use super::templates::open_error;
use super::{format, mutable, repr, views};

pub(super) fn add_to(env: &mut Environment<'static>) {
    env.add_function("cycler", |items: Rest<Value>| {
        if items.is_empty() {
            return Err(open_error("`cycler` takes at least one value"));
        }
        let (items, at) = (items.to_vec(), AtomicUsize::new(0));
        Ok(Value::from_object(Cycler { items, at }))
    });
    env.add_filter("default", default);
    env.add_filter("d", default);
    env.add_filter("round", round);
    env.add_function("joiner", globals::joiner);
    env.add_filter("striptags", filters::striptags);
    env.add_filter("filesizeformat", filters::filesizeformat);
    env.add_filter("center", |text: &str, width: Option<usize>| {
        center(text, width.unwrap_or(80), " ")
    });
    env.add_filter("wordcount", wordcount);
    env.add_filter("wordwrap", wordwrap);
    env.add_filter("truncate", truncate);
    env.add_filter("forceescape", escape);
    env.add_filter("escape", escape_value);
    env.add_filter("e", escape_value);
    env.add_filter("indent", indent);
    env.add_filter("replace", replace);
    env.add_filter("urlencode", urlencode);
    env.add_filter("xmlattr", xmlattr);
    env.add_filter("tojson", tojson);
    env.add_filter("pprint", |value: &Value| repr::pprint(value));
    env.add_filter("string", |value: &Value| match value.as_str() {
        Some(_) => Ok(value.clone()),
        None => repr::str(value).map(Value::from),
    });
    env.add_function("dict", |from: Option<Value>, named: Kwargs| {
        mutable::given(from, &named).map(Value::from_pairs)
    });
    env.add_test("callable", |value: &Value| value.kind() == ValueKind::Plain);
}

/// Methods of values, as in Python.
pub(super) fn method(
    state: &mut State<'_, '_>,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    if let (ValueKind::Bytes, Some(bytes)) = (value.kind(), value.as_bytes()) {
        return of_bytes(bytes, name);
    }
    match value.as_str().map(|text| own_method(text, name, args)) {
        Some(Ok(Some(made))) => Ok(made),
        Some(Err(err)) => Err(err),
        Some(Ok(None)) if name == "format" => {
            let (text, args) = format::converted(value.as_str().unwrap_or_default(), args)?;
            pycompat::unknown_method_callback(state, &Value::from(text), name, &args)
        }
        Some(Ok(None)) => pycompat::unknown_method_callback(state, value, name, args),
        None => match (name, value.kind()) {
            ("index", ValueKind::Seq) => index(value, args),
            ("keys" | "values" | "items", ValueKind::Map) => {
                let found = pycompat::unknown_method_callback(state, value, name, args)?;
                views::of_map(name, &found)
            }
            ("copy", ValueKind::Seq | ValueKind::Map) => {
                let () = from_args(args)?;
                mutable::copy(value)
            }
            _ => match mutable::refusal(value, name) {
                Some(refusal) => Err(refusal),
                None => pycompat::unknown_method_callback(state, value, name, args),
            },
        },
    }
}

fn of_bytes(bytes: &[u8], name: &str) -> Result<Value, Error> {
    match name {
        "decode" => {
            let text = std::str::from_utf8(bytes).ok().map(Value::from);
            text.ok_or_else(|| open_error("`decode` finds what is no UTF-8"))
        }
        "hex" => {
            let mut text = String::new();
            for byte in bytes {
                _ = write!(text, "{byte:02x}");
            }
            Ok(Value::from(text))
        }
        _ => Err(open_error(&format!("bytes have no method `{name}` here"))),
    }
}

fn index(list: &Value, args: &[Value]) -> Result<Value, Error> {
    let (wanted,): (Value,) = from_args(args)?;
    match list.try_iter()?.position(|item| item == wanted) {
        Some(at) => Ok(Value::from(at)),
        None => Err(open_error("`index` finds no such value in the list")),
    }
}

/// Cycles through some values.
#[derive(Debug)]
struct Cycler {
    items: Vec<Value>,
    at: AtomicUsize,
}

impl Object for Cycler {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let at = self.at.load(Ordering::Relaxed);
        (key.as_str()? == "current").then(|| self.items[at].clone())
    }

    fn call_method(
        self: &Arc<Self>,
        _state: &mut State<'_, '_>,
        name: &str,
        args: &[Value],
    ) -> Result<Value, Error> {
        let () = from_args(args)?;
        match name {
            "next" => {
                let at = self.at.load(Ordering::Relaxed);
                let next = (at + 1) % self.items.len();
                self.at.store(next, Ordering::Relaxed);
                Ok(self.items[at].clone())
            }
            "reset" => {
                self.at.store(0, Ordering::Relaxed);
                Ok(Value::from(()))
            }
            _ => Err(Error::from(ErrorKind::UnknownMethod)),
        }
    }
}

/// `default_value` and `boolean`, by position or by name, as in Jinja2.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the engine hands arguments over so"
)]
fn default(
    state: &State<'_, '_>,
    value: &Value,
    by_place: Rest<Value>,
    named: Kwargs,
) -> Result<Value, Error> {
    let at = |index: usize| by_place.get(index).cloned();
    let other = named.get::<Option<Value>>("default_value")?.or(at(0));
    let boolean = named.get::<Option<Value>>("boolean")?.or(at(1));
    named.assert_all_used()?;
    let other = other.unwrap_or_else(|| Value::from(""));
    let args = [other].into_iter().chain(boolean);
    minijinja::filters::default(state, value, Rest(args.collect()))
}

/// Only `common` keeps an integer an integer.
fn round(
    value: Value,
    precision: Option<i32>,
    method: Option<&str>,
    named: Kwargs,
) -> Result<Value, Error> {
    let by_name: Option<&str> = named.get("method")?;
    let is_common = matches!(method.or(by_name), None | Some("common"));
    let rounded = minijinja::filters::round(value, precision, method, named)?;
    if is_common || !rounded.is_integer() {
        return Ok(rounded);
    }
    Ok(Value::from(f64::try_from(rounded)?))
}

fn texts(parts: &[&str]) -> Value {
    parts
        .iter()
        .map(|part| Value::from(*part))
        .collect::<Vec<_>>()
        .into()
}

#[expect(
    clippy::too_many_lines,
    reason = "a table: one arm for each method of Python"
)]
fn own_method(text: &str, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let word = || {
        args.first().and_then(Value::as_str).ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidOperation,
                format!("`{name}` takes a string"),
            )
        })
    };
    let width = || {
        let arg = args.first().and_then(Value::as_usize);
        arg.ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidOperation,
                format!("`{name}` takes a width"),
            )
        })
    };
    let fill = || match args.get(1).and_then(Value::as_str) {
        Some(fill) => fill.to_owned(),
        None => " ".to_owned(),
    };
    let missing = |width: usize| width.saturating_sub(text.chars().count());
    Ok(Some(match name {
        "zfill" => {
            let zeros = "0".repeat(missing(width()?));
            match text.strip_prefix(['-', '+']) {
                Some(rest) => Value::from(format!("{}{zeros}{rest}", &text[..1])),
                None => Value::from(format!("{zeros}{text}")),
            }
        }
        "ljust" => Value::from(format!("{text}{}", fill().repeat(missing(width()?)))),
        "rjust" => Value::from(format!("{}{text}", fill().repeat(missing(width()?)))),
        "center" => Value::from(center(text, width()?, &fill())),
        "title" => Value::from(title(text)),
        "translate" => {
            let (table,): (Value,) = from_args(args)?;
            Value::from(translate(text, &table)?)
        }
        "removeprefix" => Value::from(text.strip_prefix(word()?).unwrap_or(text)),
        "removesuffix" => Value::from(text.strip_suffix(word()?).unwrap_or(text)),
        "partition" => {
            let by = word()?;
            let (before, by, after) = match text.split_once(by) {
                Some((before, after)) => (before, by, after),
                None => (text, "", ""),
            };
            Value::from((before, by, after))
        }
        "rpartition" => {
            let by = word()?;
            let (before, by, after) = match text.rsplit_once(by) {
                Some((before, after)) => (before, by, after),
                None => ("", "", text),
            };
            Value::from((before, by, after))
        }
        "rsplit" if !args.is_empty() => {
            let by = word()?;
            let most = args.get(1).and_then(Value::as_usize);
            let mut parts: Vec<&str> = match most {
                Some(most) => text.rsplitn(most + 1, by).collect(),
                None => text.rsplit(by).collect(),
            };
            parts.reverse();
            texts(&parts)
        }
        "expandtabs" => {
            let (size,): (Option<usize>,) = from_args(args)?;
            Value::from(expandtabs(text, size.unwrap_or(8)))
        }
        "encode" => {
            let coding = args.first().and_then(Value::as_str).unwrap_or("utf-8");
            let coding = coding.to_ascii_lowercase().replace('_', "-");
            let is_known = match coding.as_str() {
                "utf-8" | "utf8" => true,
                "ascii" => text.is_ascii(),
                _ => false,
            };
            if !is_known {
                return Err(open_error("`encode` writes UTF-8 and nothing else"));
            }
            Value::from_bytes(text.as_bytes().to_vec())
        }
        "index" | "rindex" => {
            let word = word()?;
            let found = match name {
                "index" => text.find(word),
                _ => text.rfind(word),
            };
            let found = found.ok_or_else(|| open_error(&format!("`{name}` finds no such text")))?;
            Value::from(text[..found].chars().count())
        }
        "isdecimal" => Value::from(all(text, |c| c.is_ascii_digit())),
        "isnumeric" => Value::from(all(text, char::is_numeric)),
        "isidentifier" => {
            let is_begun = text.starts_with(|c: char| c.is_alphabetic() || c == '_');
            Value::from(is_begun && all(text, |c| c.is_alphanumeric() || c == '_'))
        }
        "istitle" => Value::from(is_title(text)),
        "casefold" => Value::from(text.to_lowercase()),
        "swapcase" => {
            let turned = text.chars().flat_map(|c| {
                let other: Vec<char> = if c.is_uppercase() {
                    c.to_lowercase().collect()
                } else {
                    c.to_uppercase().collect()
                };
                other
            });
            Value::from(turned.collect::<String>())
        }
        _ => return Ok(None),
    }))
}

fn all(text: &str, is_one: impl Fn(char) -> bool) -> bool {
    !text.is_empty() && text.chars().all(is_one)
}

/// Whether every word begins with its only capital.
fn is_title(text: &str) -> bool {
    let (mut in_word, mut has_capital) = (false, false);
    for c in text.chars() {
        if c.is_uppercase() == in_word && (c.is_uppercase() || c.is_lowercase()) {
            return false;
        }
        has_capital |= c.is_uppercase();
        in_word = c.is_uppercase() || c.is_lowercase();
    }
    has_capital
}

fn expandtabs(text: &str, size: usize) -> String {
    let (mut out, mut column) = (String::new(), 0_usize);
    for c in text.chars() {
        match c {
            '\t' => {
                let spaces = size - column.checked_rem(size).unwrap_or(size);
                out.extend(std::iter::repeat_n(' ', spaces));
                column += spaces;
            }
            '\n' | '\r' => {
                out.push(c);
                column = 0;
            }
            c => {
                out.push(c);
                column += 1;
            }
        }
    }
    out
}

/// A number as Python writes it.
pub(super) fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let size = number.abs();
    if size != 0.0 && !(1e-4..1e16).contains(&size) {
        let written = format!("{number:e}");
        let (digits, exponent) = written.split_once('e').unwrap_or((&written, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    let written = number.to_string();
    if written.contains('.') {
        written
    } else {
        format!("{written}.0")
    }
}

/// An odd space goes to the same side as in Python.
fn center(text: &str, width: usize, fill: &str) -> String {
    let length = text.chars().count();
    if length >= width {
        return text.to_owned();
    }
    let all = width - length;
    let left = all / 2 + (all & width & 1);
    format!("{}{text}{}", fill.repeat(left), fill.repeat(all - left))
}

/// A letter after a non-letter, including an apostrophe, becomes a capital.
fn title(text: &str) -> String {
    let (mut out, mut in_word) = (String::new(), false);
    for c in text.chars() {
        if in_word {
            out.extend(c.to_lowercase());
        } else {
            let mut capital = c.to_uppercase();
            out.extend(capital.next());
            out.extend(capital.flat_map(char::to_lowercase));
        }
        in_word = c.is_uppercase() || c.is_lowercase();
    }
    out
}

/// Maps characters by code; a replacement is a text, a code or nothing.
fn translate(text: &str, table: &Value) -> Result<String, Error> {
    let mut out = String::new();
    for c in text.chars() {
        let other = table.get_item(&Value::from(u32::from(c)))?;
        match (other.kind(), other.as_str()) {
            (ValueKind::Undefined, _) => out.push(c),
            (ValueKind::None, _) => {}
            (_, Some(text)) => out.push_str(text),
            _ => {
                let number = u32::try_from(other).ok().and_then(char::from_u32);
                out.push(number.ok_or_else(|| {
                    open_error("`translate` takes texts and numbers of characters")
                })?);
            }
        }
    }
    Ok(out)
}

fn wordcount(text: &str) -> usize {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
        .count()
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the engine hands arguments over so"
)]
fn truncate(text: &str, by_place: Rest<Value>, named: Kwargs) -> Result<String, Error> {
    let at = |index: usize| by_place.get(index).cloned();
    let number = |index: usize| at(index).and_then(|value| value.as_usize());
    let length = named.get::<Option<usize>>("length")?.or(number(0));
    let killwords = named.get::<Option<bool>>("killwords")?;
    let killwords = killwords.or(at(1).map(|value| value.is_true()));
    let end = at(2).and_then(|value| value.as_str().map(str::to_owned));
    let end_named = named.get::<Option<String>>("end")?;
    let leeway = named.get::<Option<usize>>("leeway")?.or(number(3));
    named.assert_all_used()?;
    let length = length.unwrap_or(255);
    let end = end_named.or(end).unwrap_or_else(|| "...".to_owned());
    if text.chars().count() <= length + leeway.unwrap_or(5) {
        return Ok(text.to_owned());
    }
    let kept: String = text
        .chars()
        .take(length.saturating_sub(end.chars().count()))
        .collect();
    if killwords.unwrap_or(false) {
        return Ok(format!("{kept}{end}"));
    }
    let whole = kept
        .rsplit_once(' ')
        .map_or(kept.as_str(), |(before, _)| before);
    Ok(format!("{whole}{end}"))
}

/// Wraps each line separately; a word that is too long is cut.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the engine hands arguments over so"
)]
fn wordwrap(text: &str, width: Option<usize>, named: Kwargs) -> Result<String, Error> {
    let width = named.get::<Option<usize>>("width")?.or(width).unwrap_or(79);
    let cuts = named
        .get::<Option<bool>>("break_long_words")?
        .unwrap_or(true);
    let between = named.get::<Option<String>>("wrapstring")?;
    named.assert_all_used()?;
    let between = between.as_deref().unwrap_or("\n");
    let lines = text
        .lines()
        .map(|line| wrap(line, width.max(1), cuts).join(between));
    Ok(lines.collect::<Vec<_>>().join(between))
}

fn wrap(line: &str, width: usize, cuts: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let mut now = String::new();
    for word in line.split(' ') {
        let mut word = word.to_owned();
        let has = now.chars().count();
        if !now.is_empty() && has + 1 + word.chars().count() <= width {
            now.push(' ');
            now.push_str(&word);
            continue;
        }
        if !now.is_empty() {
            lines.push(std::mem::take(&mut now));
        }
        while cuts && word.chars().count() > width {
            let rest = word.chars().skip(width).collect();
            lines.push(word.chars().take(width).collect());
            word = rest;
        }
        now = word;
    }
    if !now.is_empty() {
        lines.push(now);
    }
    lines
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('\'', "&#39;")
        .replace('"', "&#34;")
}

fn escape_value(value: &Value) -> Value {
    if value.is_safe() {
        return value.clone();
    }
    Value::from_safe_string(escape(&value.to_string()))
}

/// Indents lines, all but the first unless `first` is true; a final line break stays.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the engine hands arguments over so"
)]
fn indent(text: &str, by_place: Rest<Value>, named: Kwargs) -> Result<String, Error> {
    let width = named.get::<Option<Value>>("width")?;
    let width = width.or_else(|| by_place.first().cloned());
    let by = match &width {
        None => " ".repeat(4),
        Some(width) => match width.as_str() {
            Some(by) => by.to_owned(),
            None => " ".repeat(width.as_usize().unwrap_or(4)),
        },
    };
    let is_true = |index: usize| by_place.get(index).is_some_and(Value::is_true);
    let first = named.get::<Option<bool>>("first")?;
    let first = first.unwrap_or_else(|| is_true(1));
    let blank = named.get::<Option<bool>>("blank")?;
    let blank = blank.unwrap_or_else(|| is_true(2));
    named.assert_all_used()?;
    let mut out = String::new();
    for (at, line) in text.split('\n').enumerate() {
        if at > 0 {
            out.push('\n');
        }
        let is_set_in = match at {
            0 => first,
            _ => blank || !line.is_empty(),
        };
        if is_set_in {
            out.push_str(&by);
        }
        out.push_str(line.strip_suffix('\r').unwrap_or(line));
    }
    Ok(out)
}

fn replace(text: &Value, old: &Value, new: &Value, count: Option<usize>) -> Result<String, Error> {
    if text.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    let (text, old, new) = (text.to_string(), old.to_string(), new.to_string());
    Ok(match count {
        None => text.replace(&old, &new),
        Some(count) => text.replacen(&old, &new, count),
    })
}

/// A text as part of a path, a map or pairs as a query.
fn urlencode(value: &Value) -> Result<String, Error> {
    let pairs: Vec<(Value, Value)> = match value.kind() {
        ValueKind::Map => value
            .try_iter()?
            .map(|key| Ok((key.clone(), value.get_item(&key)?)))
            .collect::<Result<_, Error>>()?,
        ValueKind::Seq | ValueKind::Iterable => value
            .try_iter()?
            .map(|pair| Ok((pair.get_item_by_index(0)?, pair.get_item_by_index(1)?)))
            .collect::<Result<_, Error>>()?,
        _ => return Ok(quote(&value.to_string(), false)),
    };
    let pairs: Vec<String> = pairs
        .iter()
        .map(|(key, value)| {
            let (key, value) = (key.to_string(), value.to_string());
            format!("{}={}", quote(&key, true), quote(&value, true))
        })
        .collect();
    Ok(pairs.join("&"))
}

fn quote(text: &str, in_query: bool) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' | b'~' => {
                out.push(char::from(byte));
            }
            b'/' if !in_query => out.push('/'),
            b' ' if in_query => out.push('+'),
            byte => _ = write!(out, "%{byte:02X}"),
        }
    }
    out
}

fn xmlattr(map: &Value, space: Option<bool>) -> Result<String, Error> {
    let mut pairs = Vec::new();
    for key in map.try_iter()? {
        let value = map.get_item(&key)?;
        if !value.is_none() && !value.is_undefined() {
            let (key, value) = (escape(&key.to_string()), escape(&value.to_string()));
            pairs.push(format!("{key}=\"{value}\""));
        }
    }
    let joined = pairs.join(" ");
    let has_space = space.unwrap_or(true) && !joined.is_empty();
    Ok(if has_space {
        format!(" {joined}")
    } else {
        joined
    })
}

/// JSON as Jinja2 writes it: keys sorted, ASCII only, and safe inside HTML.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the engine hands arguments over so"
)]
fn tojson(value: &Value, indent: Option<usize>, named: Kwargs) -> Result<Value, Error> {
    let indent = named.get::<Option<usize>>("indent")?.or(indent);
    named.assert_all_used()?;
    let mut out = String::new();
    write_json(&mut out, value, indent, 0)?;
    Ok(Value::from_safe_string(out))
}

fn write_json(
    out: &mut String,
    value: &Value,
    indent: Option<usize>,
    depth: usize,
) -> Result<(), Error> {
    let line = |out: &mut String, depth: usize| {
        if let Some(indent) = indent {
            out.push('\n');
            out.push_str(&" ".repeat(indent * depth));
        }
    };
    let comma = if indent.is_some() { "," } else { ", " };
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number if value.is_integer() => out.push_str(&value.to_string()),
        ValueKind::Number => out.push_str(&float(f64::try_from(value.clone())?)),
        ValueKind::String => write_json_text(out, value.as_str().unwrap_or_default()),
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            let mut is_first = true;
            for item in value.try_iter()? {
                if !is_first {
                    out.push_str(comma);
                }
                is_first = false;
                line(out, depth + 1);
                write_json(out, &item, indent, depth + 1)?;
            }
            if !is_first {
                line(out, depth);
            }
            out.push(']');
        }
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter()?.collect();
            keys.sort();
            out.push('{');
            for (at, key) in keys.iter().enumerate() {
                if at > 0 {
                    out.push_str(comma);
                }
                line(out, depth + 1);
                let name = match key.kind() {
                    ValueKind::None => "null".to_owned(),
                    ValueKind::Bool => key.is_true().to_string(),
                    _ => key.to_string(),
                };
                write_json_text(out, &name);
                out.push_str(": ");
                write_json(out, &value.get_item(key)?, indent, depth + 1)?;
            }
            if !keys.is_empty() {
                line(out, depth);
            }
            out.push('}');
        }
        // An error value raises its error when it is formatted.
        ValueKind::Invalid => out.push_str(&value.to_string()),
        kind => {
            let problem = format!("{kind} cannot be written as JSON");
            return Err(Error::new(ErrorKind::InvalidOperation, problem));
        }
    }
    Ok(())
}

fn write_json_text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '<' | '>' | '&' | '\'' => _ = write!(out, "\\u{:04x}", u32::from(c)),
            ' '..='~' => out.push(c),
            c => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out.push('"');
}
