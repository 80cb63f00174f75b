//! A value that an `equal` gate looks up itself: what `dns("NAME")` and `kubernetes("OBJECT", "FIELD")` are
//! worth before anybody has asked.
//!
//! It travels as an object with one key that no value has, so that whatever carries values carries it.

use serde_json::{Value, json};

use super::RecordKind;

const KEY: &str = "\u{0}asked";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// What a name resolves to.
    Dns { name: String, record: RecordKind },
    /// A field of an object of the cluster that the gate's `kubeconfig` reaches.
    Kubernetes {
        /// `KIND/NAMESPACE/NAME`, or `KIND/NAME` for what has no namespace.
        object: String,
        field: String,
    },
}

/// Why a value could not be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAsked(pub String);

impl Asked {
    pub fn to_value(&self) -> Value {
        match self {
            Self::Dns { name, record } => json!({ KEY: { "dns": name, "record": record.word() } }),
            Self::Kubernetes { object, field } => {
                json!({ KEY: { "kubernetes": object, "field": field } })
            }
        }
    }

    /// Nothing if this is an ordinary value.
    pub fn read(value: &Value) -> Option<Self> {
        let asked = value.as_object().filter(|map| map.len() == 1)?.get(KEY)?;
        let text = |name: &str| asked.get(name).and_then(Value::as_str).map(str::to_owned);
        if let Some(name) = text("dns") {
            let record = text("record").and_then(|word| RecordKind::read(&word));
            return Some(Self::Dns {
                name,
                record: record.unwrap_or(RecordKind::A),
            });
        }
        Some(Self::Kubernetes {
            object: text("kubernetes")?,
            field: text("field")?,
        })
    }

    /// As a person wrote it.
    pub fn label(&self) -> String {
        match self {
            Self::Dns {
                name,
                record: RecordKind::A,
            } => format!("dns(\"{name}\")"),
            Self::Dns { name, record } => format!("dns(\"{name}\", \"{}\")", record.word()),
            Self::Kubernetes { object, field } => format!("kubernetes(\"{object}\", \"{field}\")"),
        }
    }
}
