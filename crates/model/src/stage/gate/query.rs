//! A value that an `equal` gate queries itself: `dns("NAME")` and `kubernetes("OBJECT", "FIELD")` before the query.
//!
//! It is represented as an object with one reserved key, so that all code that handles values can handle it.

use serde_json::{Value, json};

use super::RecordKind;

const KEY: &str = "\u{0}asked";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeQuery {
    /// The records of a name.
    Dns { name: String, record: RecordKind },
    /// A field of an object in the cluster of the gate's `kubeconfig`.
    Kubernetes {
        /// `KIND/NAMESPACE/NAME`, or `KIND/NAME` for objects without a namespace.
        object: String,
        field: String,
    },
}

/// Why a value could not be queried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeQueryError(pub String);

impl ProbeQuery {
    pub fn to_value(&self) -> Value {
        match self {
            Self::Dns { name, record } => json!({ KEY: { "dns": name, "record": record.word() } }),
            Self::Kubernetes { object, field } => {
                json!({ KEY: { "kubernetes": object, "field": field } })
            }
        }
    }

    /// None for an ordinary value.
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

    /// In the notation of the project file.
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
