//! Words that stand inside of a shown value where the value itself cannot: `(known after apply)`. They travel as an
//! object with one secret key, so that nobody takes them for a string that somebody wrote.

use serde_json::{Map, Value};

use crate::digits::digits;

/// No field of an engine's value is called this.
const KEY: &str = "\u{0}words";

pub(crate) fn of(words: &str) -> Value {
    Value::Object(Map::from_iter([(KEY.to_owned(), words.into())]))
}

/// The words, if a value is some.
pub fn words(value: &Value) -> Option<&str> {
    let fields = value.as_object().filter(|fields| fields.len() == 1)?;
    fields.get(KEY)?.as_str()
}

/// The same as JSON for others, to whom words are text, and so is a number that theirs would round.
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
