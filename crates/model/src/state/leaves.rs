//! A state as a flat list of every value that can change on its own, with its path.
//!
//! List elements are identified by their index, so that "since when" has one answer. A sensitive branch is one leaf,
//! whatever it contains. Null counts as absent.

use serde_json::Value;

use super::resources::{ResourceInstance, StateDocument};
use super::sensitivity::mark_below;
use crate::plan::Mode;
use crate::plan::diff::{PathSegment, render_path};

/// The version of how leaves are split and named. Data derived from leaves is stored with it and rebuilt when it
/// differs.
pub const FORMAT: u32 = 2;

/// The pseudo-attribute that records that an object is tainted.
pub const TAINTED: &str = "(tainted)";

/// An object or output of a state.
#[derive(Clone, Debug)]
pub struct StateEntry<'a> {
    /// A resource's address, or `output.NAME`.
    pub address: String,
    pub kind: EntryKind,
    /// The resource's type; `output` for outputs.
    pub type_name: &'a str,
    pub leaves: Vec<Leaf<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    Resource,
    Data,
    Output,
}

impl EntryKind {
    pub const ALL: [Self; 3] = [Self::Resource, Self::Data, Self::Output];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Resource => "resource",
            Self::Data => "data",
            Self::Output => "output",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Leaf<'a> {
    /// `tags.env`, `rules[0].port`; empty for an output that is not a collection.
    pub path: String,
    pub value: &'a Value,
    pub is_sensitive: bool,
}

impl StateDocument {
    /// All entries, resources first.
    pub fn entries(&self) -> Vec<StateEntry<'_>> {
        let resources = self.instances.iter().map(ResourceInstance::entry);
        let outputs = self.outputs.iter().map(|(name, output)| StateEntry {
            address: format!("output.{name}"),
            kind: EntryKind::Output,
            type_name: "output",
            leaves: leaves(&output.value, &output.sensitive),
        });
        resources.chain(outputs).collect()
    }
}

impl ResourceInstance {
    pub fn entry(&self) -> StateEntry<'_> {
        let mut leaves = leaves(&self.attributes, &self.sensitive);
        if self.is_tainted {
            leaves.push(Leaf {
                path: TAINTED.to_owned(),
                value: &Value::Bool(true),
                is_sensitive: false,
            });
        }
        StateEntry {
            address: self.address.clone(),
            kind: match self.mode {
                Mode::Managed => EntryKind::Resource,
                Mode::Data => EntryKind::Data,
            },
            type_name: &self.resource_type,
            leaves,
        }
    }
}

/// The leaves of a value with its marks.
pub fn leaves<'a>(value: &'a Value, marks: &Value) -> Vec<Leaf<'a>> {
    let mut found = Vec::new();
    walk(value, marks, &mut Vec::new(), &mut found);
    found
}

fn walk<'a>(
    value: &'a Value,
    marks: &Value,
    path: &mut Vec<PathSegment>,
    found: &mut Vec<Leaf<'a>>,
) {
    let is_sensitive = marks == &Value::Bool(true);
    match value {
        Value::Null => {}
        Value::Array(items) if !items.is_empty() && !is_sensitive => {
            for (index, item) in items.iter().enumerate() {
                path.push(PathSegment::Index(index));
                walk(item, mark_below(marks, marks.get(index)), path, found);
                path.pop();
            }
        }
        Value::Object(fields) if !fields.is_empty() && !is_sensitive => {
            for (key, field) in fields {
                path.push(PathSegment::Key(key.clone()));
                walk(field, mark_below(marks, marks.get(key)), path, found);
                path.pop();
            }
        }
        Value::Array(_)
        | Value::Object(_)
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_) => found.push(Leaf {
            path: render_path(path),
            value,
            is_sensitive,
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_laid_flat() {
        let value = json!({
            "id": "a", "none": null, "tags": {"env": "prod", "a.b": 1}, "rules": [{"port": 80}, {}],
            "secret": {"x": 1, "y": 2},
        });
        let marks = json!({"secret": true});
        let seen: Vec<String> = leaves(&value, &marks)
            .iter()
            .map(|leaf| format!("{} {} {}", leaf.path, leaf.value, leaf.is_sensitive))
            .collect();
        assert_eq!(
            seen,
            [
                r#"id "a" false"#,
                r#"tags.env "prod" false"#,
                r#"tags["a.b"] 1 false"#,
                "rules[0].port 80 false",
                "rules[1] {} false",
                r#"secret {"x":1,"y":2} true"#,
            ]
        );
        assert_eq!(leaves(&json!("x"), &Value::Null)[0].path, "");
        assert_eq!(leaves(&json!(null), &Value::Bool(true)), []);
    }
}
