//! JSON whose numbers keep every digit. Engines compute with 512 bits; native numbers would be rounded.
//!
//! Such a number is represented as an object with one reserved key, so that all code that handles values can handle it.
//! Not here: arithmetic, which is refused.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// No field of an engine's value has this name.
const KEY: &str = "\u{0}digits";

/// A float may lose digits beyond these.
const EXACT: usize = 15;

/// Parses JSON. Numbers that native types would round are kept as text.
pub fn read(text: &str) -> Result<Value, serde_json::Error> {
    if !may_exceed(text.as_bytes()) {
        return serde_json::from_str(text);
    }
    let text = text.trim();
    Ok(match text.bytes().next() {
        Some(b'{') => Value::Object(fields(text)?),
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text)?;
            let items = items.into_iter().map(|item| read(item.get()));
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        Some(b'-' | b'0'..=b'9') if is_rounded(text) => of_digits(text),
        _ => serde_json::from_str(text)?,
    })
}

/// Writes JSON with all digits that [`read`] kept.
pub fn write(value: &Value) -> String {
    serde_json::to_string(&Exact(value)).unwrap_or_else(|_| value.to_string())
}

/// The same over several lines.
pub fn write_lines(value: &Value) -> String {
    serde_json::to_string_pretty(&Exact(value)).unwrap_or_else(|_| value.to_string())
}

struct Exact<'a>(&'a Value);

impl Serialize for Exact<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let kept = digits(self.0).and_then(|digits| RawValue::from_string(digits.to_owned()).ok());
        match (kept, self.0) {
            (Some(kept), _) => kept.serialize(serializer),
            (None, Value::Array(items)) => serializer.collect_seq(items.iter().map(Exact)),
            (None, Value::Object(fields)) => {
                serializer.collect_map(fields.iter().map(|(key, field)| (key, Exact(field))))
            }
            (None, leaf) => leaf.serialize(serializer),
        }
    }
}

/// Rewrites JSON for parsing into other types: numbers that native types would round become such objects.
pub(crate) fn kept(json: &[u8]) -> Cow<'_, [u8]> {
    if !may_exceed(json) {
        return Cow::Borrowed(json);
    }
    let mut written = Vec::with_capacity(json.len() + 64);
    let mut rest = json;
    while let Some(&first) = rest.first() {
        let length = match first {
            b'"' => string_length(rest),
            b'-' | b'0'..=b'9' => rest.iter().take_while(|byte| is_of_number(**byte)).count(),
            _ => 1,
        };
        let (token, after) = rest.split_at(length);
        let rounds = matches!(first, b'-' | b'0'..=b'9')
            && str::from_utf8(token).is_ok_and(|number| !survives(number));
        if rounds {
            written.extend_from_slice(br#"{"\u0000digits":""#);
        }
        written.extend_from_slice(token);
        if rounds {
            written.extend_from_slice(br#""}"#);
        }
        rest = after;
    }
    Cow::Owned(written)
}

/// The length including both quotes; up to the end if it is not closed.
fn string_length(text: &[u8]) -> usize {
    let mut escaped = false;
    let end = text.iter().skip(1).position(|byte| {
        let ends = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |end| end + 2)
}

fn is_of_number(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')
}

/// Whether a native number would not equal this one.
pub(crate) fn is_rounded(text: &str) -> bool {
    !survives(text) && serde_json::from_str::<&RawValue>(text).is_ok()
}

/// Converts to native numbers: rounded, or text if out of range.
pub(crate) fn round(value: &mut Value) {
    if let Some(digits) = digits(value) {
        let rounded = serde_json::from_str(digits);
        *value = rounded.unwrap_or_else(|_| digits.into());
        return;
    }
    match value {
        Value::Array(items) => items.iter_mut().for_each(round),
        Value::Object(fields) => fields.values_mut().for_each(round),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Whether a native number has the same digits.
pub(crate) fn survives(number: &str) -> bool {
    serde_json::from_str::<Value>(number)
        .is_ok_and(|read| significance(&read.to_string()) == significance(number))
}

/// The digits, if this is a number kept as text.
pub fn digits(value: &Value) -> Option<&str> {
    let fields = value.as_object().filter(|fields| fields.len() == 1)?;
    fields.get(KEY)?.as_str()
}

/// Whether it contains such a number anywhere.
pub fn holds_digits(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(holds_digits),
        Value::Object(fields) => digits(value).is_some() || fields.values().any(holds_digits),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

pub(crate) fn of_digits(digits: &str) -> Value {
    Value::Object(Map::from_iter([(KEY.to_owned(), digits.into())]))
}

fn fields(text: &str) -> Result<Map<String, Value>, serde_json::Error> {
    let fields: indexed::Fields = serde_json::from_str(text)?;
    let field = |(key, value): (String, Box<RawValue>)| Ok((key, read(value.get())?));
    fields.0.into_iter().map(field).collect()
}

/// Whether any number in a text could be too long or too large. A quick check that may return true too often.
fn may_exceed(text: &[u8]) -> bool {
    let mut run = 0;
    text.iter().enumerate().any(|(at, byte)| {
        run = match byte {
            b'0'..=b'9' => run + 1,
            _ if run > 0 && is_of_number(*byte) => run + 1,
            _ => 0,
        };
        let is_large = || {
            let exponent = text.get(at + 1..at + 5).unwrap_or_default();
            let exponent = exponent.strip_prefix(b"+").unwrap_or(exponent);
            exponent.len() >= 3 && exponent[..3].iter().all(u8::is_ascii_digit)
        };
        run > EXACT || run > 1 && matches!(byte, b'e' | b'E') && is_large()
    })
}

/// The significant digits and the exponent, independent of the notation.
fn significance(text: &str) -> (bool, String, i64) {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let negative = mantissa.starts_with('-');
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all: String = [whole.trim_start_matches('-'), fraction].concat();
    let kept = all.trim_end_matches('0');
    let zeros = i64::try_from(all.len() - kept.len()).unwrap_or(i64::MAX);
    let fraction = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
    let exponent: i64 = exponent
        .trim_start_matches('+')
        .parse()
        .unwrap_or(i64::MAX / 2);
    let kept = kept.trim_start_matches('0').to_owned();
    if kept.is_empty() {
        return (false, kept, 0);
    }
    let place = exponent.saturating_sub(fraction).saturating_add(zeros);
    (negative, kept, place)
}

/// Fields in the order in which they are written.
mod indexed {
    use std::fmt;

    use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
    use serde_json::value::RawValue;

    pub(super) struct Fields(pub(super) Vec<(String, Box<RawValue>)>);

    impl<'de> Deserialize<'de> for Fields {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_map(Read)
        }
    }

    struct Read;

    impl<'de> Visitor<'de> for Read {
        type Value = Fields;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
            let mut fields = Vec::new();
            while let Some(field) = map.next_entry()? {
                fields.push(field);
            }
            Ok(Fields(fields))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str) {
        assert_eq!(write(&read(text).unwrap()), text);
    }

    #[test]
    fn every_digit_survives() {
        check("123456789012345678901234567890");
        check("-0.1234567890123456789");
        check("18446744073709551615");
        check("1.5");
        check(r#"{"z":[1,{"b":99999999999999999999999}],"a":"12345678901234567890","n":null}"#);
        check(r#"{"plain":{"a":1,"b":[true,"x"]}}"#);
    }

    #[test]
    fn what_fits_is_a_number() {
        assert_eq!(read("18446744073709551615").unwrap(), Value::from(u64::MAX));
        assert_eq!(read("0.000000000000000001").unwrap(), Value::from(1e-18));
        assert_eq!(
            read("0.1234567890123456").unwrap(),
            Value::from(0.123_456_789_012_345_6)
        );
    }

    #[test]
    fn what_is_read_into_other_types_keeps_its_digits() {
        let json = r#"{"n":12345678901234567890123,"d":[0.30000000000000000001,-1.5,1e400],"s":"a \"12345678901234567890123"}"#;
        let kept = serde_json::from_slice(&kept(json.as_bytes())).unwrap();
        assert_eq!(write(&kept), json);
        assert!(matches!(super::kept(b"[18, 1.5]"), Cow::Borrowed(_)));
        for large in ["[1e+400]", "[1e400]", "[-2.5E308]"] {
            let kept = serde_json::from_slice(&super::kept(large.as_bytes())).unwrap();
            assert_eq!(
                write(&kept),
                large,
                "what an engine computed cannot be planned"
            );
            let mut rounded = kept;
            round(&mut rounded);
            assert!(rounded[0].is_string(), "{rounded}");
        }
    }

    #[test]
    fn what_is_no_json_is_refused() {
        assert!(read("1234567890123456789012 3").is_err());
        assert!(read("[1234567890123456789012").is_err());
    }
}
