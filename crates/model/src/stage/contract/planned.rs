//! Planned outputs: their known values, and where a value is unknown.

use std::collections::{BTreeMap, BTreeSet};

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::base::exact_number;
use crate::plan::ParsePlanError;

/// Fields by name. An unknown value is null, and its pointer is in `unknown`.
#[derive(Clone, Default, PartialEq)]
pub struct PlannedFields {
    pub fields: Map<String, Value>,
    /// JSON pointers.
    pub unknown: BTreeSet<String>,
    /// Outputs that are fully or partly sensitive.
    pub sensitive: BTreeSet<String>,
}

impl std::fmt::Debug for PlannedFields {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&String> = self.fields.keys().collect();
        f.debug_struct("Planned")
            .field("fields", &names)
            .field("unknown", &self.unknown)
            .finish_non_exhaustive()
    }
}

impl PlannedFields {
    /// Whether an output is fully or partly unknown.
    pub fn leaves_open(&self, name: &str) -> bool {
        let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
        let inside = format!("{pointer}/");
        let mut unknown = self.unknown.iter();
        unknown.any(|at| *at == pointer || at.starts_with(&inside))
    }

    /// Fully known outputs. A null output counts as missing.
    pub fn known(outputs: Map<String, Value>) -> Self {
        Self {
            fields: outputs
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .collect(),
            ..Self::default()
        }
    }

    /// Adds the fields of another file.
    pub fn add(&mut self, more: Self) {
        merge(&mut self.fields, more.fields);
        self.unknown.extend(more.unknown);
        self.sensitive.extend(more.sensitive);
    }

    /// Whether the value at a pointer is not known yet.
    pub fn is_unknown(&self, pointer: &str) -> bool {
        self.unknown.contains(pointer)
    }

    /// Whether an error depends on an unknown value.
    pub(super) fn decides(&self, at: &str, error: &ValidationError<'_>) -> bool {
        if self.is_unknown(at) {
            return true;
        }
        let looks_inside = matches!(
            error.kind(),
            ValidationErrorKind::AnyOf { .. }
                | ValidationErrorKind::OneOfNotValid { .. }
                | ValidationErrorKind::OneOfMultipleValid { .. }
                | ValidationErrorKind::Not { .. }
                | ValidationErrorKind::Enum { .. }
                | ValidationErrorKind::Constant { .. }
                | ValidationErrorKind::Contains
                | ValidationErrorKind::UniqueItems
        );
        let inside = format!("{at}/");
        looks_inside && self.unknown.iter().any(|one| one.starts_with(&inside))
            // Alternatives that only require fields do not depend on their values.
            && !asks_for_names_only(error.kind())
    }
}

fn merge(into: &mut Map<String, Value>, more: Map<String, Value>) {
    for (name, value) in more {
        match (into.get_mut(&name), value) {
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            (_, value) => {
                into.insert(name, value);
            }
        }
    }
}

fn asks_for_names_only(kind: &ValidationErrorKind) -> bool {
    let (ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context }) =
        kind
    else {
        return false;
    };
    context
        .iter()
        .flatten()
        .all(|error| matches!(error.kind(), ValidationErrorKind::Required { .. }))
}

/// The outputs of a plan's JSON, without those that it deletes.
pub fn planned(json: &[u8]) -> Result<PlannedFields, ParsePlanError> {
    let raw: RawPlan = serde_json::from_slice(json).map_err(ParsePlanError::NotPlanJson)?;
    let mut all = PlannedFields::default();
    for (name, change) in raw.output_changes {
        if change.actions.iter().any(|action| action == "delete") && change.actions.len() == 1 {
            continue;
        }
        let text = change.after.as_ref().map_or("null", |after| after.get());
        let known = exact_number::read(text).map_err(ParsePlanError::NotPlanJson)?;
        let pointer = format!("/{}", escape(&name));
        let value = mark(known, &change.after_unknown, pointer, &mut all.unknown);
        if crate::plan::diff::has_mark(&change.after_sensitive) {
            all.sensitive.insert(name.clone());
        }
        let is_unknown = all.unknown.iter().any(|one| one[1..] == escape(&name));
        if !value.is_null() || is_unknown {
            all.fields.insert(name, value);
        }
    }
    Ok(all)
}

/// Inserts null for unknown values (engines leave them out), and records their pointers.
fn mark(known: Value, unknown: &Value, pointer: String, places: &mut BTreeSet<String>) -> Value {
    match unknown {
        Value::Bool(true) => {
            places.insert(pointer);
            Value::Null
        }
        Value::Object(marks) => {
            let mut fields = match known {
                Value::Object(fields) => fields,
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_)
                | Value::Array(_) => Map::new(),
            };
            for (name, unknown) in marks {
                let inner = fields.remove(name).unwrap_or(Value::Null);
                let at = format!("{pointer}/{}", escape(name));
                let value = mark(inner, unknown, at, places);
                fields.insert(name.clone(), value);
            }
            Value::Object(fields)
        }
        Value::Array(marks) => {
            let mut items = match known {
                Value::Array(items) => items,
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_)
                | Value::Object(_) => Vec::new(),
            };
            items.resize(items.len().max(marks.len()), Value::Null);
            for (index, (item, unknown)) in items.iter_mut().zip(marks).enumerate() {
                *item = mark(item.take(), unknown, format!("{pointer}/{index}"), places);
            }
            Value::Array(items)
        }
        Value::Null | Value::Bool(false) | Value::Number(_) | Value::String(_) => known,
    }
}

pub(super) fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[derive(Deserialize)]
struct RawPlan {
    #[serde(default)]
    output_changes: BTreeMap<String, RawChange>,
}

#[derive(Deserialize)]
struct RawChange {
    #[serde(default)]
    actions: Vec<String>,
    after: Option<Box<RawValue>>,
    #[serde(default)]
    after_unknown: Value,
    #[serde(default)]
    after_sensitive: Value,
}
