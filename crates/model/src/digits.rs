//! JSON whose numbers keep every digit. Engines compute with 512 bits; ours would round what exceeds a
//! machine's numbers.
//!
//! Such a number travels as an object with one secret key, so that everything that carries values carries
//! it. Not here: computing with it; that is refused.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// No field of an engine's value is called this.
const KEY: &str = "\u{0}digits";

/// More of them may be lost in a float.
const EXACT: usize = 15;

/// Reads JSON; what a machine's number would round is kept as text.
pub fn read(text: &str) -> Result<Value, serde_json::Error> {
    if !may_exceed(text) {
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
        Some(b'-' | b'0'..=b'9') => {
            let rounded: Value = serde_json::from_str(text)?;
            if rounded.is_i64() || rounded.is_u64() || significant(text) <= EXACT {
                rounded
            } else {
                of_digits(text)
            }
        }
        _ => serde_json::from_str(text)?,
    })
}

/// Writes JSON with all digits that [`read`] kept.
pub fn write(value: &Value) -> String {
    if let Some(digits) = digits(value) {
        return digits.to_owned();
    }
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(write).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| {
                format!("{}:{}", Value::from(key.as_str()), write(value))
            };
            let fields: Vec<String> = fields.iter().map(field).collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

/// The digits, if this is a number kept as text.
pub fn digits(value: &Value) -> Option<&str> {
    let fields = value.as_object().filter(|fields| fields.len() == 1)?;
    fields.get(KEY)?.as_str()
}

/// Whether there is such a number anywhere in it.
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

/// Whether any number in a text could be too long: a quick look that may err to the safe side.
fn may_exceed(text: &str) -> bool {
    let mut run = 0;
    text.bytes().any(|byte| {
        run = match byte {
            b'0'..=b'9' => run + 1,
            b'.' | b'e' | b'E' | b'+' | b'-' if run > 0 => run + 1,
            _ => 0,
        };
        run > EXACT
    })
}

/// How many digits of a number carry its value; an exponent may take it anywhere.
fn significant(text: &str) -> usize {
    if text.contains(['e', 'E']) {
        return usize::MAX;
    }
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    digits.trim_start_matches('0').len()
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
        assert!(digits(&read("1e400000").unwrap_or_default()).is_none());
    }

    #[test]
    fn what_is_no_json_is_refused() {
        assert!(read("1234567890123456789012 3").is_err());
        assert!(read("[1234567890123456789012").is_err());
    }
}
