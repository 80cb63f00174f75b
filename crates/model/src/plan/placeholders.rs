//! Placeholders inside a shown value, such as `(known after apply)`. They are objects with one reserved key, so that
//! they cannot be confused with strings of the user.

use serde_json::{Map, Value};

use crate::base::exact_number::digits;

/// No field of an engine's value has this name.
const KEY: &str = "\u{0}words";

pub(crate) fn of(words: &str) -> Value {
    Value::Object(Map::from_iter([(KEY.to_owned(), words.into())]))
}

/// The placeholder text, if the value is a placeholder.
pub fn words(value: &Value) -> Option<&str> {
    let fields = value.as_object().filter(|fields| fields.len() == 1)?;
    fields.get(KEY)?.as_str()
}

/// Converts to JSON for other programs: placeholders become strings, and so do numbers that other parsers would round.
#[must_use]
pub fn as_text(value: Value) -> Value {
    if let Some(text) = words(&value).or_else(|| digits(&value)) {
        return text.into();
    }
    match value {
        Value::Array(items) => items.into_iter().map(as_text).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter();
            fields.map(|(name, field)| (name, as_text(field))).collect()
        }
        leaf @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => leaf,
    }
}
