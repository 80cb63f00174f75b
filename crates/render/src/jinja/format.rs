//! `"{!r} {0.name!s:>8} {:%Y}".format(…)`: conversions and dates, which the engine's own formatting lacks. A
//! converted value is passed as an additional argument.

use std::fmt::Write as _;

use minijinja::value::{Kwargs, Rest, from_args};
use minijinja::{Error, Value};

use super::templates::open_error;
use super::{dates, repr};

/// The format string and arguments with all conversions done.
pub(super) fn converted(text: &str, args: &[Value]) -> Result<(String, Vec<Value>), Error> {
    if !text.contains('!') && !text.contains('%') {
        return Ok((text.to_owned(), args.to_vec()));
    }
    let (places, named): (Rest<Value>, Kwargs) = from_args(args)?;
    let mut all: Vec<(String, Value)> = Vec::new();
    for name in named.args() {
        all.push((name.to_owned(), named.get(name)?));
    }
    let (mut out, mut rest, mut count) = (String::new(), text, 0);
    while let Some(at) = rest.find(['{', '}']) {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        if after.starts_with("{{") || after.starts_with("}}") {
            out.push_str(&after[..2]);
            rest = &after[2..];
            continue;
        }
        let Some(end) = field_end(after) else {
            out.push_str(after); // the engine reports the error
            rest = "";
            break;
        };
        let field = &after[1..end];
        rest = &after[end + 1..];
        let (head, spec) = match field.split_once(':') {
            Some((head, spec)) => (head, format!(":{spec}")),
            None => (field, String::new()),
        };
        let (name, conversion) = match head.split_once('!') {
            Some((name, conversion)) => (name, Some(conversion)),
            None => (head, None),
        };
        let mut name = name.to_owned();
        if name.is_empty() || name.starts_with(['.', '[']) {
            name.insert_str(0, &count.to_string());
            count += 1;
        }
        let mut spec = spec;
        while spec.contains("{}") {
            spec = spec.replacen("{}", &format!("{{{count}}}"), 1);
            count += 1;
        }
        let text = match conversion {
            None if spec.contains('%') => {
                let value = find(&name, &places, &all)?;
                let text = match dates::written(&value, &spec[1..]) {
                    Some(written) => Some(written?),
                    None => in_hundreds(&value, &spec[1..]),
                };
                text.inspect(|_| spec.clear())
            }
            None => None,
            Some("r") => Some(repr::repr(&find(&name, &places, &all)?)?),
            Some("s") => Some(repr::str(&find(&name, &places, &all)?)?),
            Some(_) => return Err(open_error("of the conversions `!r` and `!s` are known")),
        };
        if let Some(text) = text {
            name = format!("__converted_{}", all.len());
            all.push((name.clone(), Value::from(text)));
        }
        let _ = write!(out, "{{{name}{spec}}}");
    }
    out.push_str(rest);
    let mut args = places.to_vec();
    args.push(Value::from(all.into_iter().collect::<Kwargs>()));
    Ok((out, args))
}

/// A ratio formatted by `.1%`.
fn in_hundreds(value: &Value, spec: &str) -> Option<String> {
    let digits = spec.strip_suffix('%')?;
    let digits = match digits.strip_prefix('.') {
        Some(digits) => digits.parse().ok()?,
        None if digits.is_empty() => 6,
        None => return None,
    };
    let share = f64::try_from(value.clone()).ok()?;
    Some(format!("{:.digits$}%", share * 100.0))
}

/// The end of a field, which may contain others.
fn field_end(text: &str) -> Option<usize> {
    let mut depth = 0;
    text.char_indices().find_map(|(at, c)| {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at)
    })
}

/// `0`, `name`, `0.name`, `name[key]`.
fn find(path: &str, places: &[Value], named: &[(String, Value)]) -> Result<Value, Error> {
    let nothing = || open_error("`format` finds no value for a place in the text");
    let first = path.find(['.', '[']).unwrap_or(path.len());
    let (name, mut rest) = path.split_at(first);
    let by_name = || named.iter().find(|(own, _)| own == name);
    let value = match name.parse::<usize>() {
        Ok(at) => places.get(at).cloned(),
        Err(_) => by_name().map(|(_, value)| value.clone()),
    };
    let mut value = value.ok_or_else(nothing)?;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            value = value.get_attr(&after[..end])?;
            rest = &after[end..];
            continue;
        }
        let inner = rest.strip_prefix('[').and_then(|it| it.split_once(']'));
        let (key, after) = inner.ok_or_else(nothing)?;
        value = match key.parse::<usize>() {
            Ok(at) => value.get_item_by_index(at)?,
            Err(_) => value.get_item(&Value::from(key))?,
        };
        rest = after;
    }
    if value.is_undefined() {
        return Err(nothing());
    }
    Ok(value)
}
