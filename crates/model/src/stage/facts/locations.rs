//! Where a stack's facts were published. From this a plan determines which facts change, which readers would lose a
//! field, and which files and objects outside Git belong to terrane. Contains no values.
//!
//! Not here: how to reach a place that the project no longer names. This is not recorded.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::FactsBranch;

/// A place that contains facts of a stack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FactLocation {
    /// Files on a branch.
    Branch {
        /// The repository and its branch, as the home identifies them.
        key: String,
        place: Box<FactsBranch>,
        /// By path: the fields of a file, each with an empty value of its type.
        files: BTreeMap<String, Map<String, Value>>,
    },
    /// A file of the project.
    File {
        path: String,
        /// Keyed digest of its bytes.
        digest: String,
    },
    /// An object in a cluster.
    Object { object: SinkObject },
}

/// Identifies an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SinkObject {
    /// The name of the `sink` block: `configmap`, `secret`, `argocd-cluster`.
    pub sink: String,
    pub namespace: String,
    pub name: String,
    pub server: String,
}

impl fmt::Display for SinkObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} `{}/{}` at {}",
            self.sink, self.namespace, self.name, self.server
        )
    }
}

impl fmt::Display for FactLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Branch { key, .. } => {
                let (url, branch) = key.rsplit_once('#').unwrap_or((key, ""));
                write!(f, "branch `{branch}` of {url}")
            }
            Self::File { path, .. } => write!(f, "file `{path}`"),
            Self::Object { object } => object.fmt(f),
        }
    }
}

impl FactLocation {
    /// The key of its row in the store.
    pub fn identity(&self) -> String {
        match self {
            Self::Branch { key, .. } => format!("branch {key}"),
            Self::File { path, .. } => format!("file {path}"),
            Self::Object { object } => format!("object {object}"),
        }
    }
}

/// The fields of facts, each with an empty value of its type: enough to determine which fields a change removes.
pub fn shape(values: &Map<String, Value>) -> Map<String, Value> {
    let fields = values.iter();
    fields
        .map(|(name, value)| (name.clone(), empty(value)))
        .collect()
}

fn empty(value: &Value) -> Value {
    match value {
        _ if crate::base::exact_number::digits(value).is_some() => json!(0),
        Value::Null => Value::Null,
        Value::Bool(_) => json!(false),
        Value::Number(_) => json!(0),
        Value::String(_) => json!(""),
        Value::Array(_) => json!([]),
        Value::Object(fields) => Value::Object(shape(fields)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_has_fields_and_kinds_and_no_value() {
        let values =
            json!({"a": {"word": "hunter2", "port": 5432, "list": ["x"]}, "on": true, "no": null});
        let Value::Object(values) = values else {
            panic!("an object");
        };
        let expected = json!({"a": {"word": "", "port": 0, "list": []}, "on": false, "no": null});
        assert_eq!(Value::Object(shape(&values)), expected);
    }
}
