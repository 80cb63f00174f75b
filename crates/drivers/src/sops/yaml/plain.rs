//! The type of a plain YAML scalar: text, number, bool, null or time.
//!
//! Follows the official tool's reader, which accepts more spellings than the standard.

use jiff::civil::Date;

use super::super::tree::{Kind, Node, Scalar};

/// An integer that is too large for the format.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

pub(super) fn resolve(text: &str) -> Result<Node, TooLarge> {
    let scalar = match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Node::Null),
        "true" | "True" | "TRUE" => Scalar::bool(true),
        "false" | "False" | "FALSE" => Scalar::bool(false),
        ".nan" | ".NaN" | ".NAN" => Scalar::float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Scalar::float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Scalar::float(f64::NEG_INFINITY),
        _ => match text.as_bytes()[0] {
            b'.' => float(text).unwrap_or_else(|| Scalar::text(text)),
            b'0'..=b'9' | b'+' | b'-' => number(text)?,
            _ => Scalar::text(text),
        },
    };
    Ok(Node::Scalar(scalar))
}

/// Whether a text stays the same text without quotes, also for readers of older YAML.
pub(super) fn is_text(text: &str) -> bool {
    let is_same = matches!(resolve(text), Ok(Node::Scalar(scalar)) if scalar.kind == Kind::Text);
    is_same && text != "<<" && !is_old_bool(text) && !is_base_60(text)
}

fn number(text: &str) -> Result<Scalar, TooLarge> {
    if let Some(time) = time(text) {
        return Ok(Scalar::new(Kind::Time, time));
    }
    let plain = text.replace('_', "");
    if let Some(value) = integer(&plain) {
        return match i64::try_from(value) {
            Ok(value) => Ok(Scalar::int(value)),
            Err(_) if u64::try_from(value).is_ok() => Err(TooLarge),
            Err(_) => Ok(float(&plain).unwrap_or_else(|| Scalar::text(text))),
        };
    }
    Ok(float(&plain).unwrap_or_else(|| Scalar::text(text)))
}

/// `12`, `0x1f`, `0o17`, `017`, `0b11`, each with a sign or without.
fn integer(text: &str) -> Option<i128> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = if let Some(rest) = lower.strip_prefix("0x") {
        (16, rest)
    } else if let Some(rest) = lower.strip_prefix("0o") {
        (8, rest)
    } else if let Some(rest) = lower.strip_prefix("0b") {
        (2, rest)
    } else if lower.len() > 1 && lower.starts_with('0') {
        (8, &lower[1..])
    } else {
        (10, lower.as_str())
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let value = i128::from_str_radix(digits, radix).ok()?;
    Some(if negative { -value } else { value })
}

fn float(text: &str) -> Option<Scalar> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_mantissa = match mantissa.split_once('.') {
        Some(("", after)) => !after.is_empty() && digits(after),
        Some((before, after)) => digits(before) && digits(after),
        None => !mantissa.is_empty() && digits(mantissa),
    };
    let is_exponent = exponent.is_none_or(|exponent| {
        let unsigned = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !unsigned.is_empty() && digits(unsigned)
    });
    if !is_mantissa || !is_exponent {
        return None;
    }
    let value: f64 = text.parse().ok()?;
    value.is_finite().then(|| Scalar::float(value))
}

/// A time in the canonical spelling: `2006-01-02T15:04:05Z`.
fn time(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let has_year = bytes.len() > 5 && bytes[..4].iter().all(u8::is_ascii_digit) && bytes[4] == b'-';
    if !has_year {
        return None;
    }
    let split = text.find(['T', 't', ' ']);
    let (date, rest) = match split {
        Some(at) => (&text[..at], Some((text.as_bytes()[at], &text[at + 1..]))),
        None => (text, None),
    };
    let mut parts = date.split('-');
    let year: i16 = parts.next()?.parse().ok()?;
    let month = short(parts.next()?)?;
    let day = short(parts.next()?)?;
    if parts.next().is_some() {
        return None;
    }
    let month = i8::try_from(month).ok()?;
    let date = Date::new(year, month, i8::try_from(day).ok()?).ok()?;
    let date = format!("{:04}-{:02}-{:02}", date.year(), date.month(), date.day());
    let Some((separator, rest)) = rest else {
        return Some(format!("{date}T00:00:00Z"));
    };
    let (clock, zone) = match separator {
        b' ' => (rest, "Z".to_owned()),
        _ => zone(rest)?,
    };
    let (clock, fraction) = match clock.split_once('.') {
        Some((clock, fraction)) => (clock, Some(fraction)),
        None => (clock, None),
    };
    let mut parts = clock.split(':');
    let (hour, minute, second) = (
        short(parts.next()?)?,
        short(parts.next()?)?,
        short(parts.next()?)?,
    );
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let fraction = match fraction {
        None => String::new(),
        Some(digits) => {
            let is_sound =
                (1..=9).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
            if !is_sound {
                return None;
            }
            match digits.trim_end_matches('0') {
                "" => String::new(),
                digits => format!(".{digits}"),
            }
        }
    };
    Some(format!(
        "{date}T{hour:02}:{minute:02}:{second:02}{fraction}{zone}"
    ))
}

/// Splits off the zone, in its canonical spelling.
fn zone(text: &str) -> Option<(&str, String)> {
    if let Some(clock) = text.strip_suffix('Z') {
        return Some((clock, "Z".to_owned()));
    }
    let at = text.rfind(['+', '-'])?;
    let offset = &text[at + 1..];
    let (hours, minutes) = offset.split_once(':')?;
    let (hours, minutes) = match (hours.len(), minutes.len()) {
        (2, 2) => (short(hours)?, short(minutes)?),
        _ => return None,
    };
    if hours > 23 || minutes > 59 {
        return None;
    }
    let zone = match (hours, minutes) {
        (0, 0) => "Z".to_owned(),
        _ => text[at..].to_owned(),
    };
    Some((&text[..at], zone))
}

fn short(text: &str) -> Option<u8> {
    let is_sound = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_sound { text.parse().ok() } else { None }
}

fn is_old_bool(text: &str) -> bool {
    matches!(
        text,
        "y" | "Y"
            | "yes"
            | "Yes"
            | "YES"
            | "on"
            | "On"
            | "ON"
            | "n"
            | "N"
            | "no"
            | "No"
            | "NO"
            | "off"
            | "Off"
            | "OFF"
    )
}

/// `190:20:30`, which YAML 1.1 reads as a number.
fn is_base_60(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let mut parts = unsigned.split(':');
    let Some(first) = parts.next() else {
        return false;
    };
    let is_first = first.starts_with(|c: char| c.is_ascii_digit())
        && first
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'_');
    let rest: Vec<&str> = parts.collect();
    let Some((last, middle)) = rest.split_last() else {
        return false;
    };
    let last = last.split_once('.').map_or(*last, |(whole, fraction)| {
        let is_fraction = fraction
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'_');
        if is_fraction { whole } else { "" }
    });
    let is_part = |part: &str| short(part).is_some_and(|value| value < 60);
    is_first && middle.iter().all(|part| is_part(part)) && is_part(last)
}
