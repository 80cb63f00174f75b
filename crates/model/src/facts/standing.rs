//! Where a stack's facts stand: remembered so that they can be withdrawn when nothing names the place any more, and
//! so that whoever relies on a field is asked before it goes. Says how to get there again; holds no value.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::project::{FactsPlace, Input};
use crate::stage::{StageBlock, inputs};

/// One place of a stack's facts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Standing {
    /// Files on a branch.
    Branch {
        /// What the home calls the repository and its branch.
        key: String,
        place: Box<FactsPlace>,
        /// By path: the fields of a file, each with an empty value of its kind.
        files: BTreeMap<String, Map<String, Value>>,
    },
    /// A file of the project.
    File {
        path: String,
        /// Keyed digest of its bytes.
        digest: String,
    },
    /// An object in a cluster.
    Object {
        object: StandingObject,
        /// The `publish` block with nothing in it but this sink: where its kubeconfig came from.
        block: Box<StageBlock>,
        /// The stack's state, and the version of it that the values came from.
        state: String,
        version: Option<i64>,
    },
}

/// Which object it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StandingObject {
    /// As the `sink` block says it: `configmap`, `secret`, `argocd-cluster`.
    pub sink: String,
    pub namespace: String,
    pub name: String,
    pub server: String,
}

impl std::fmt::Display for StandingObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} `{}/{}` at {}",
            self.sink, self.namespace, self.name, self.server
        )
    }
}

impl Standing {
    /// One row for each of these.
    pub fn identity(&self) -> String {
        match self {
            Self::Branch { key, .. } => format!("branch {key}"),
            Self::File { path, .. } => format!("file {path}"),
            Self::Object { object, .. } => format!("object {object}"),
        }
    }

    /// The values that lead there.
    pub fn inputs(&self) -> Vec<&Input> {
        match self {
            Self::Branch { place, .. } => {
                let inputs = [&place.repository, &place.branch, &place.credential];
                inputs.into_iter().flatten().collect()
            }
            Self::File { .. } => Vec::new(),
            Self::Object { block, .. } => inputs(std::slice::from_ref(block)),
        }
    }
}

/// The fields of facts, each with an empty value of its kind: enough to see what is taken away.
pub fn shape(values: &Map<String, Value>) -> Map<String, Value> {
    let fields = values.iter();
    fields
        .map(|(name, value)| (name.clone(), empty(value)))
        .collect()
}

fn empty(value: &Value) -> Value {
    match value {
        _ if crate::digits::digits(value).is_some() => json!(0),
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
    fn a_shape_tells_fields_and_kinds_and_no_value() {
        let values =
            json!({"a": {"word": "hunter2", "port": 5432, "list": ["x"]}, "on": true, "no": null});
        let Value::Object(values) = values else {
            panic!("an object");
        };
        let expected = json!({"a": {"word": "", "port": 0, "list": []}, "on": false, "no": null});
        assert_eq!(Value::Object(shape(&values)), expected);
    }
}
