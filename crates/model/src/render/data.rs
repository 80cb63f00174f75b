//! The data for templates: a tree with the location of each value, in which secrets are marked.
//!
//! Not here: reading files (`render::data`).

use std::fmt::{self, Write as _};

use serde_json::Value;

use super::select::{Select, SelectSegment};
use crate::base::diagnostic::Location;
use crate::base::secret::Secret;

/// A value with its location.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub data: Data,
    pub at: Location,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    /// A date, with or without a time, as written.
    Moment(String),
    List(Vec<Node>),
    /// In the order in which it was written.
    Map(Vec<MapEntry>),
    Secret(SecretData),
}

#[derive(Clone, Debug, PartialEq)]
pub struct MapEntry {
    /// Usually text; YAML allows other types.
    pub key: MapKey,
    pub at: Location,
    pub node: Node,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapKey {
    Text(String),
    Int(i128),
    Bool(bool),
    Null,
}

impl fmt::Display for MapKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Int(number) => write!(f, "{number}"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Null => f.write_str("null"),
        }
    }
}

/// A scalar that must not be shown. `value` is missing until it is needed.
#[derive(Clone, PartialEq)]
pub struct SecretData {
    pub value: Option<(Scalar, Secret)>,
}

/// The type of a secret's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    Text,
    Int,
    Float,
    Bool,
}

impl fmt::Debug for SecretData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl SecretData {
    pub fn text(secret: Secret) -> Self {
        Self {
            value: Some((Scalar::Text, secret)),
        }
    }

    /// The plain value; null if it is not known.
    fn reveal(&self) -> Data {
        let Some((kind, secret)) = &self.value else {
            return Data::Null;
        };
        let text = secret.expose();
        let parsed = match kind {
            Scalar::Text => None,
            Scalar::Int => text.parse().ok().map(Data::Int),
            Scalar::Float => text.parse().ok().map(Data::Float),
            Scalar::Bool => text.parse().ok().map(Data::Bool),
        };
        parsed.unwrap_or_else(|| Data::Text(text.to_owned()))
    }
}

impl Node {
    pub fn new(data: Data, at: Location) -> Self {
        Self { data, at }
    }

    pub fn map(at: Location) -> Self {
        Self::new(Data::Map(Vec::new()), at)
    }

    pub fn entries(&self) -> &[MapEntry] {
        match &self.data {
            Data::Map(entries) => entries,
            _ => &[],
        }
    }

    pub fn get(&self, key: &str) -> Option<&Self> {
        let mut entries = self.entries().iter();
        let found =
            entries.find(|entry| matches!(&entry.key, MapKey::Text(text) if text == key))?;
        Some(&found.node)
    }

    /// Sets a key of a map and replaces the previous value.
    pub fn put(&mut self, key: &str, node: Self) {
        let Data::Map(entries) = &mut self.data else {
            return;
        };
        let is_it = |entry: &&mut MapEntry| matches!(&entry.key, MapKey::Text(text) if text == key);
        match entries.iter_mut().find(is_it) {
            Some(entry) => {
                entry.at = node.at.clone();
                entry.node = node;
            }
            None => entries.push(MapEntry {
                key: MapKey::Text(key.to_owned()),
                at: node.at.clone(),
                node,
            }),
        }
    }

    /// Adds another file's data. Its top-level keys replace existing ones as a whole.
    pub fn overlay(&mut self, other: Self) {
        let Data::Map(others) = other.data else {
            return;
        };
        for entry in others {
            match &entry.key {
                MapKey::Text(key) => {
                    let key = key.clone();
                    self.put(&key, entry.node);
                }
                MapKey::Int(_) | MapKey::Bool(_) | MapKey::Null => {
                    if let Data::Map(entries) = &mut self.data {
                        entries.retain(|own| own.key != entry.key);
                        entries.push(entry);
                    }
                }
            }
        }
    }

    /// Adds missing values, also in nested maps.
    pub fn fill(&mut self, defaults: &Value, at: &Location) {
        let (Data::Map(_), Value::Object(defaults)) = (&self.data, defaults) else {
            return;
        };
        for (key, default) in defaults {
            match &mut self.data {
                Data::Map(entries) => {
                    let is_it = |entry: &&mut MapEntry| matches!(&entry.key, MapKey::Text(text) if text == key);
                    match entries.iter_mut().find(is_it) {
                        Some(entry) => entry.node.fill(default, at),
                        None => entries.push(MapEntry {
                            key: MapKey::Text(key.clone()),
                            at: at.clone(),
                            node: of_json(default, at),
                        }),
                    }
                }
                _ => return,
            }
        }
    }

    /// Marks every scalar at a path as secret.
    pub fn hide(&mut self, path: &Select) {
        self.hide_steps(path.steps());
    }

    fn hide_steps(&mut self, steps: &[SelectSegment]) {
        let Some((step, rest)) = steps.split_first() else {
            return self.hide_all();
        };
        match &mut self.data {
            Data::Map(entries) => {
                for entry in entries {
                    if step.takes_key(&entry.key) {
                        entry.node.hide_steps(rest);
                    }
                }
            }
            Data::List(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    if step.takes_index(index) {
                        item.hide_steps(rest);
                    }
                }
            }
            _ => {}
        }
    }

    fn hide_all(&mut self) {
        let (kind, text) = match &mut self.data {
            Data::List(items) => return items.iter_mut().for_each(Self::hide_all),
            Data::Map(entries) => {
                return entries.iter_mut().for_each(|entry| entry.node.hide_all());
            }
            Data::Null | Data::Secret(_) => return,
            Data::Bool(value) => (Scalar::Bool, value.to_string()),
            Data::Int(value) => (Scalar::Int, value.to_string()),
            Data::Float(value) => (Scalar::Float, value.to_string()),
            Data::Text(value) | Data::Moment(value) => (Scalar::Text, std::mem::take(value)),
        };
        self.data = Data::Secret(SecretData {
            value: Some((kind, Secret::new(text))),
        });
    }

    /// Every secret, with its path in the data.
    pub fn secrets(&self) -> Vec<(String, &SecretData)> {
        let mut found = Vec::new();
        self.collect_secrets(&mut String::new(), &mut found);
        found
    }

    fn collect_secrets<'n>(&'n self, path: &mut String, found: &mut Vec<(String, &'n SecretData)>) {
        let before = path.len();
        match &self.data {
            Data::Secret(secret) => found.push((path.clone(), secret)),
            Data::Map(entries) => {
                for entry in entries {
                    if before > 0 {
                        path.push('.');
                    }
                    path.push_str(&entry.key.to_string());
                    entry.node.collect_secrets(path, found);
                    path.truncate(before);
                }
            }
            Data::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    _ = write!(path, "[{index}]");
                    item.collect_secrets(path, found);
                    path.truncate(before);
                }
            }
            Data::Null
            | Data::Bool(_)
            | Data::Int(_)
            | Data::Float(_)
            | Data::Text(_)
            | Data::Moment(_) => {}
        }
    }

    /// The value at a JSON pointer, or the nearest existing one above it.
    pub fn nearest(&self, pointer: &[String]) -> &Self {
        let Some((first, rest)) = pointer.split_first() else {
            return self;
        };
        let child = match &self.data {
            Data::Map(entries) => entries
                .iter()
                .find(|entry| entry.key.to_string() == *first)
                .map(|entry| &entry.node),
            Data::List(items) => first.parse().ok().and_then(|at: usize| items.get(at)),
            _ => None,
        };
        child.map_or(self, |child| child.nearest(rest))
    }

    /// As JSON for schemas, including the secrets.
    pub(super) fn to_json(&self) -> Value {
        match &self.data {
            Data::Secret(secret) => Self::new(secret.reveal(), self.at.clone()).to_json(),
            _ => self.json_with(&|_| Value::Null),
        }
    }

    /// As JSON without secrets: each is `null`.
    pub fn public_json(&self) -> Value {
        self.json_with(&|_| Value::Null)
    }

    /// As text without secrets, in which every difference is visible, including the order of keys.
    pub fn outline(&self) -> String {
        let mut out = String::new();
        self.write_outline(&mut out);
        out
    }

    fn write_outline(&self, out: &mut String) {
        match &self.data {
            Data::List(items) => {
                out.push('[');
                for item in items {
                    item.write_outline(out);
                    out.push(',');
                }
                out.push(']');
            }
            Data::Map(entries) => {
                out.push('{');
                for entry in entries {
                    _ = write!(out, "{:?}:", entry.key);
                    entry.node.write_outline(out);
                    out.push(',');
                }
                out.push('}');
            }
            scalar => _ = write!(out, "{scalar:?}"),
        }
    }

    /// As JSON for a schema.
    pub(super) fn json_with(&self, secret: &dyn Fn(&SecretData) -> Value) -> Value {
        match &self.data {
            Data::Null => Value::Null,
            Data::Bool(value) => Value::Bool(*value),
            Data::Int(value) => i64::try_from(*value)
                .map(Value::from)
                .or_else(|_| u64::try_from(*value).map(Value::from))
                .unwrap_or_else(|_| Value::String(value.to_string())),
            Data::Float(value) => Value::from(*value),
            Data::Text(text) | Data::Moment(text) => Value::String(text.clone()),
            Data::List(items) => items.iter().map(|item| item.json_with(secret)).collect(),
            Data::Map(entries) => entries
                .iter()
                .map(|entry| (entry.key.to_string(), entry.node.json_with(secret)))
                .collect(),
            Data::Secret(data) => secret(data),
        }
    }

    /// The plain value of the secret.
    pub fn revealed(secret: &SecretData) -> Data {
        secret.reveal()
    }
}

/// Data from the project file. All of it has one location.
pub fn of_json(value: &Value, at: &Location) -> Node {
    let data = match value {
        Value::Null => Data::Null,
        Value::Bool(value) => Data::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(int) => Data::Int(int.into()),
            None => Data::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => Data::Text(text.clone()),
        Value::Array(items) => Data::List(items.iter().map(|item| of_json(item, at)).collect()),
        Value::Object(entries) => Data::Map(
            entries
                .iter()
                .map(|(key, value)| MapEntry {
                    key: MapKey::Text(key.clone()),
                    at: at.clone(),
                    node: of_json(value, at),
                })
                .collect(),
        ),
    };
    Node::new(data, at.clone())
}
