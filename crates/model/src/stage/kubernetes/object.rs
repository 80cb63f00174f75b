//! Objects in manifests and clusters: their identity, the managers of their fields, and the cluster's bookkeeping data.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Identifies an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectRef {
    pub api_version: String,
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
}

impl ObjectRef {
    pub fn of(object: &Value) -> Option<Self> {
        let text = |pointer: &str| {
            let value = object.pointer(pointer).and_then(Value::as_str);
            value.filter(|text| !text.is_empty()).map(str::to_owned)
        };
        Some(Self {
            api_version: text("/apiVersion")?,
            kind: text("/kind")?,
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name")?,
        })
    }

    /// Empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version
            .split_once('/')
            .map_or("", |(group, _)| group)
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("document {number} is not YAML")]
    Yaml {
        number: usize,
        source: yaml_serde::Error,
    },
    #[error("document {number} is not a Kubernetes object: it has no `{attribute}`")]
    NoObject {
        number: usize,
        attribute: &'static str,
    },
}

/// The objects of a manifest: YAML or JSON documents, with the items of a `List` as single objects and without empty
/// documents.
pub fn documents(text: &str) -> Result<Vec<Value>, ManifestError> {
    let mut found = Vec::new();
    for (index, document) in yaml_serde::Deserializer::from_str(text).enumerate() {
        let number = index + 1;
        let object = Value::deserialize(document)
            .map_err(|source| ManifestError::Yaml { number, source })?;
        collect(object, number, &mut found)?;
    }
    Ok(found)
}

fn collect(object: Value, number: usize, found: &mut Vec<Value>) -> Result<(), ManifestError> {
    if object.is_null() {
        return Ok(());
    }
    let is_list = object
        .get("kind")
        .and_then(Value::as_str)
        .is_some_and(|kind| kind.ends_with("List"));
    if let (true, Some(Value::Array(items))) = (is_list, object.get("items")) {
        for item in items {
            collect(item.clone(), number, found)?;
        }
        return Ok(());
    }
    if ObjectRef::of(&object).is_none() {
        let missing = [
            ("/apiVersion", "apiVersion"),
            ("/kind", "kind"),
            ("/metadata/name", "metadata.name"),
        ];
        let missing = missing.iter().find(|(pointer, _)| {
            let there = object.pointer(pointer).and_then(Value::as_str);
            there.is_none_or(str::is_empty)
        });
        return Err(ManifestError::NoObject {
            number,
            attribute: missing.map_or("kind", |(_, name)| name),
        });
    }
    found.push(object);
    Ok(())
}

/// A field manager of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldManager {
    pub name: String,
    /// `Apply` or `Update`.
    pub operation: String,
    /// `status` if it only wrote that.
    pub subresource: Option<String>,
}

/// The field managers of an object, as the cluster records them.
pub fn managers(object: &Value) -> BTreeSet<FieldManager> {
    let entries = object
        .pointer("/metadata/managedFields")
        .and_then(Value::as_array);
    let entries = entries.into_iter().flatten();
    entries
        .filter_map(|entry| {
            let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
            Some(FieldManager {
                name: text("manager")?,
                operation: text("operation")?,
                subresource: text("subresource"),
            })
        })
        .collect()
}

/// An object without fields that change by themselves, so that two reads of an unchanged object are equal.
pub fn without_bookkeeping(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        remove(
            metadata,
            &[
                "managedFields",
                "resourceVersion",
                "generation",
                "creationTimestamp",
                "uid",
                "selfLink",
            ],
        );
    }
    if let Value::Object(object) = &mut object {
        remove(object, &["status"]);
    }
    object
}

fn remove(map: &mut Map<String, Value>, keys: &[&str]) {
    map.retain(|key, _| !keys.contains(&key.as_str()));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_and_lists_are_taken_apart() {
        let text = "# a\napiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n---\n\
                    apiVersion: v1\nkind: List\nitems:\n- {apiVersion: apps/v1, kind: Deployment, metadata: {name: b, namespace: a}}\n";
        let found = documents(text).unwrap();
        let names: Vec<String> = found
            .iter()
            .filter_map(ObjectRef::of)
            .map(|object| object.to_string())
            .collect();
        assert_eq!(names, ["Namespace a", "Deployment a/b"]);
        assert_eq!(ObjectRef::of(&found[1]).unwrap().group(), "apps");
    }

    #[test]
    fn what_is_no_object_is_named() {
        let err = |text: &str| documents(text).unwrap_err().to_string();
        assert_eq!(
            err("apiVersion: v1\nkind: A\n---\n"),
            "document 1 is not a Kubernetes object: it has no `metadata.name`"
        );
        assert_eq!(
            err("kind: A\nmetadata: {name: a}"),
            "document 1 is not a Kubernetes object: it has no `apiVersion`"
        );
        assert_eq!(err("a: [b"), "document 1 is not YAML");
    }

    #[test]
    fn bookkeeping_is_no_difference() {
        let at = |version: &str, ready: bool| {
            json!({"kind": "A", "metadata": {"name": "a", "resourceVersion": version, "managedFields": [
                {"manager": "m", "operation": "Apply"}]}, "spec": {"b": 1}, "status": {"ready": ready}})
        };
        assert_eq!(
            without_bookkeeping(&at("1", true)),
            without_bookkeeping(&at("2", false))
        );
        let found = managers(&at("1", true));
        assert_eq!(found.first().unwrap().name, "m");
    }
}
