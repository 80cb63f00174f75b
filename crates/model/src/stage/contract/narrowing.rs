//! What a change takes away from readers of a stack's outputs or facts: fields that are removed or change their type.
//! New fields and changed values take nothing away.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::planned::escape;
use super::{PlannedFields, kind_of, with_article};

/// A field that is removed or changes its type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NarrowedField {
    /// Its path, outermost name first.
    pub path: Vec<String>,
    pub was: String,
    /// None if it is removed.
    pub now: Option<String>,
    /// The paths of its values, if it was an object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Vec<String>>,
}

impl NarrowedField {
    /// `azure.envoyPublicIpAddress`
    pub fn field(&self) -> String {
        self.path.join(".")
    }
}

impl fmt::Display for NarrowedField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = self.field();
        match &self.now {
            None => write!(f, "`{field}` is gone, was {}", self.was),
            Some(now) => write!(f, "`{field}` is {now}, was {}", self.was),
        }
    }
}

/// Compares current with planned values. An unknown value counts as unchanged.
pub fn narrowed(before: &Map<String, Value>, after: &PlannedFields) -> Vec<NarrowedField> {
    let mut found = Vec::new();
    compare(
        before,
        &after.fields,
        "",
        after,
        &mut Vec::new(),
        &mut found,
    );
    found
}

/// The same for a file that is a Kubernetes object: only its data counts, each value separately.
pub fn narrowed_manifest(before: &Map<String, Value>, after: &PlannedFields) -> Vec<NarrowedField> {
    let is_data = |one: &NarrowedField| {
        let first = one.path.first().map(String::as_str);
        matches!(first, Some("data" | "stringData"))
    };
    let gone = narrowed(before, after).into_iter().filter(is_data);
    gone.flat_map(|one| match one.path.len() {
        1 => {
            let part = |path: Vec<String>| NarrowedField {
                path,
                was: with_article("text"),
                now: None,
                parts: Vec::new(),
            };
            one.parts.into_iter().map(part).collect()
        }
        _ => vec![one],
    })
    .collect()
}

/// Whether a published file is a Kubernetes object.
pub fn is_manifest(fields: &Map<String, Value>) -> bool {
    fields.contains_key("apiVersion") && fields.contains_key("kind")
}

fn less(path: &[String], was: &Value, now: Option<&Value>) -> NarrowedField {
    let mut parts = Vec::new();
    collect_parts(&mut path.to_vec(), was, &mut parts);
    NarrowedField {
        path: path.to_vec(),
        was: with_article(kind_of(was)),
        now: now.map(|now| with_article(kind_of(now))),
        parts,
    }
}

fn collect_parts(path: &mut Vec<String>, value: &Value, parts: &mut Vec<Vec<String>>) {
    let Value::Object(fields) = value else {
        return;
    };
    for (name, value) in fields {
        path.push(name.clone());
        if value.is_object() {
            collect_parts(path, value, parts);
        } else {
            parts.push(path.clone());
        }
        path.pop();
    }
}

fn compare(
    before: &Map<String, Value>,
    after: &Map<String, Value>,
    pointer: &str,
    planned: &PlannedFields,
    path: &mut Vec<String>,
    found: &mut Vec<NarrowedField>,
) {
    for (name, was) in before {
        let at = format!("{pointer}/{}", escape(name));
        if was.is_null() || planned.is_unknown(&at) {
            continue;
        }
        path.push(name.clone());
        let now = after.get(name).filter(|now| !now.is_null());
        match (was, now) {
            (was, None) => found.push(less(path, was, None)),
            (was, Some(now)) if kind_of(was) != kind_of(now) => {
                found.push(less(path, was, Some(now)));
            }
            (Value::Object(was), Some(Value::Object(now))) => {
                compare(was, now, &at, planned, path, found);
            }
            (_, Some(_)) => {}
        }
        path.pop();
    }
}
