//! A value of the project file during loading: known, or not known yet.

use std::collections::BTreeMap;

use serde_json::{Number, Value};

use crate::base::exact_number;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Val {
    Null,
    Bool(bool),
    Number(Number),
    /// A number that exceeds our number type: it can be passed on and shown, but not used in arithmetic.
    Digits(String),
    Text(String),
    List(Vec<Val>),
    Object(BTreeMap<String, Val>),
    /// `stack.NAME`, as `after` takes it.
    Stack(String),
    /// Only known later: an output, a secret, the requester's environment.
    Unknown,
}

impl Val {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// The type for messages, never the value itself.
    pub(crate) fn what(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a bool",
            Self::Number(_) => "a number",
            Self::Digits(_) => "a number too long to compute with",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
            Self::Stack(_) => "a reference to a stack",
            Self::Unknown => "a value known only later",
        }
    }

    pub(crate) fn is_known(&self) -> bool {
        match self {
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Digits(_) | Self::Text(_) => true,
            Self::List(items) => items.iter().all(Self::is_known),
            Self::Object(entries) => entries.values().all(Self::is_known),
            Self::Stack(_) | Self::Unknown => false,
        }
    }

    /// The cost of copying it.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Text(text) | Self::Digits(text) | Self::Stack(text) => 1 + text.len() / 16,
            Self::List(items) => 1 + items.iter().map(Self::size).sum::<usize>(),
            Self::Object(entries) => 1 + entries.values().map(Self::size).sum::<usize>(),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Unknown => 1,
        }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value as JSON, if all of it is known.
    pub(crate) fn to_json(&self) -> Option<Value> {
        Some(match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Number(number) => Value::Number(number.clone()),
            Self::Digits(digits) => exact_number::of_digits(digits),
            Self::Text(text) => Value::String(text.clone()),
            Self::List(items) => {
                Value::Array(items.iter().map(Self::to_json).collect::<Option<_>>()?)
            }
            Self::Object(entries) => Value::Object(
                entries
                    .iter()
                    .map(|(key, value)| Some((key.clone(), value.to_json()?)))
                    .collect::<Option<_>>()?,
            ),
            Self::Stack(_) | Self::Unknown => return None,
        })
    }

    /// The text inside a template.
    pub(crate) fn in_template(&self) -> Option<String> {
        match self {
            Self::Text(text) | Self::Digits(text) => Some(text.clone()),
            Self::Bool(value) => Some(value.to_string()),
            Self::Number(number) => Some(number.to_string()),
            Self::Null | Self::List(_) | Self::Object(_) | Self::Stack(_) | Self::Unknown => None,
        }
    }
}

impl From<&Value> for Val {
    fn from(value: &Value) -> Self {
        if let Some(digits) = exact_number::digits(value) {
            return Self::Digits(digits.to_owned());
        }
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) => Self::Number(number.clone()),
            Value::String(text) => Self::Text(text.clone()),
            Value::Array(items) => Self::List(items.iter().map(Self::from).collect()),
            Value::Object(entries) => Self::Object(
                entries
                    .iter()
                    .map(|(key, value)| (key.clone(), Self::from(value)))
                    .collect(),
            ),
        }
    }
}
