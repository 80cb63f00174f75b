//! How a published file differs from the file that would be published, field by field, without sensitive values.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use super::{Encrypt, FactFile, secrets::looks_secret};
use crate::base::exact_number;

/// A changed field.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FieldDifference {
    /// `azure.address`
    pub field: String,
    pub published: FieldValue,
    pub would: FieldValue,
}

/// A field on one side.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldValue {
    Absent,
    Value(Value),
    /// It exists and is sensitive.
    Hidden,
}

impl fmt::Display for FieldValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("nothing"),
            Self::Value(value) => f.write_str(&exact_number::write(value)),
            Self::Hidden => f.write_str("(sensitive)"),
        }
    }
}

impl fmt::Display for FieldDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} → {}", self.field, self.published, self.would)
    }
}

/// The fields in which a file on a branch differs from the new one. `published` are its bytes.
pub fn field_differences(published: &[u8], file: &FactFile) -> Vec<FieldDifference> {
    let read: Option<Value> = yaml_serde::from_slice(published).ok();
    let Some(Value::Object(mut fields)) = read else {
        return Vec::new();
    };
    fields.shift_remove("sops");
    let mut walk = Walk {
        hidden: match &file.encrypt {
            Encrypt::Nothing => Some(BTreeSet::new()),
            Encrypt::Leaves(pointers) => Some(pointers.iter().map(String::as_str).collect()),
            Encrypt::All => None,
        },
        found: Vec::new(),
    };
    walk.objects("", "", &fields, &file.values);
    walk.found
}

struct Walk<'a> {
    /// JSON pointers; none means everything.
    hidden: Option<BTreeSet<&'a str>>,
    found: Vec<FieldDifference>,
}

impl Walk<'_> {
    fn objects(
        &mut self,
        pointer: &str,
        field: &str,
        published: &Map<String, Value>,
        would: &Map<String, Value>,
    ) {
        let names: BTreeSet<&String> = published.keys().chain(would.keys()).collect();
        for name in names {
            let escaped = name.replace('~', "~0").replace('/', "~1");
            let pointer = format!("{pointer}/{escaped}");
            let field = if field.is_empty() {
                name.clone()
            } else {
                format!("{field}.{name}")
            };
            self.values(&pointer, field, published.get(name), would.get(name));
        }
    }

    fn values(
        &mut self,
        pointer: &str,
        field: String,
        published: Option<&Value>,
        would: Option<&Value>,
    ) {
        if let (Some(Value::Object(one)), Some(Value::Object(other))) = (published, would)
            && exact_number::digits(&Value::Object(other.clone())).is_none()
        {
            self.objects(pointer, &field, one, other);
            return;
        }
        // Encrypted values cannot be compared.
        let is_sealed = published.is_some_and(is_encrypted);
        if would.is_some() && is_sealed && self.is_hidden(pointer) {
            return;
        }
        if same(published, would) {
            return;
        }
        let hidden = self.is_hidden(pointer);
        let side = |value: Option<&Value>| match value {
            None => FieldValue::Absent,
            Some(value) if hidden || is_encrypted(value) || is_secret(&field, value) => {
                FieldValue::Hidden
            }
            Some(value) => FieldValue::Value(value.clone()),
        };
        let (published, would) = (side(published), side(would));
        self.found.push(FieldDifference {
            field,
            published,
            would,
        });
    }

    /// Whether it is sensitive, contains a sensitive value, or is part of one.
    fn is_hidden(&self, pointer: &str) -> bool {
        let Some(hidden) = &self.hidden else {
            return true;
        };
        let within = |outer: &str, inner: &str| {
            inner
                .strip_prefix(outer)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let mut hidden = hidden.iter();
        hidden.any(|one| within(one, pointer) || within(pointer, one))
    }
}

fn same(one: Option<&Value>, other: Option<&Value>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => {
            one == other || exact_number::write(one) == exact_number::write(other)
        }
        (None, Some(_)) | (Some(_), None) => false,
    }
}

/// The form in which SOPS writes a value.
fn is_encrypted(value: &Value) -> bool {
    match value {
        Value::String(text) => text.starts_with("ENC["),
        Value::Array(items) => items.iter().any(is_encrypted),
        Value::Object(fields) => fields.values().any(is_encrypted),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The value may have been written by others.
fn is_secret(field: &str, value: &Value) -> bool {
    match value {
        Value::String(text) => looks_secret(field, text),
        Value::Array(items) => items.iter().any(|item| is_secret(field, item)),
        Value::Object(fields) => fields.iter().any(|(name, value)| is_secret(name, value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::FactsFormat;
    use super::*;

    fn said(published: &str, values: Value, encrypt: Encrypt) -> Vec<String> {
        let Value::Object(values) = values else {
            panic!("an object");
        };
        let file = FactFile {
            path: "a.yaml".to_owned(),
            format: FactsFormat::Yaml,
            contract: None,
            values,
            encrypt,
        };
        let found = field_differences(published.as_bytes(), &file);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn fields_are_named_with_both_values() {
        let published = "azure:\n  address: \"20.1.2.3\"\n  zone: b\nold: 1\nsame: [1]\n";
        let would =
            json!({"azure": {"address": "20.1.2.4", "zone": "b"}, "new": {"x": true}, "same": [1]});
        assert_eq!(
            said(published, would, Encrypt::Nothing),
            [
                "azure.address: \"20.1.2.3\" → \"20.1.2.4\"",
                "new: nothing → {\"x\":true}",
                "old: 1 → nothing",
            ]
        );
    }

    #[test]
    fn what_is_sensitive_is_not_shown_on_either_side() {
        let hidden = Encrypt::Leaves(BTreeSet::from(["/db/word".to_owned()]));
        let would = json!({"db": {"word": "hunter2", "port": 1}});
        assert_eq!(
            said(
                "db:\n  word: hunter1\n  port: 1\n",
                would.clone(),
                hidden.clone()
            ),
            ["db.word: (sensitive) → (sensitive)"]
        );
        let sealed = "db:\n  word: ENC[AES256_GCM,data:x]\n  port: 2\nsops: {}\n";
        assert_eq!(
            said(sealed, would.clone(), hidden.clone()),
            ["db.port: 2 → 1"]
        );
        assert_eq!(
            said("{}", would.clone(), hidden),
            ["db: nothing → (sensitive)"]
        );
        assert_eq!(
            said("db: 5\n", would, Encrypt::All),
            ["db: (sensitive) → (sensitive)"]
        );
        let by_hand = "adminPassword: Xk29fLq0Zp8vT3mW\n";
        assert_eq!(
            said(by_hand, json!({}), Encrypt::Nothing),
            ["adminPassword: (sensitive) → nothing"]
        );
    }
}
