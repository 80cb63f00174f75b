//! The planned outputs, for dependents that are previewed before the apply.
//!
//! Unlike a [`Plan`](super::Plan), this contains values that must not be shown.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::ParsePlanError;
use super::diff::{MarkedValue, has_mark};
use crate::base::exact_number;

/// A planned output.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedOutput {
    /// None if it is fully or partly unknown before the apply.
    pub value: Option<Value>,
    /// Set if the value is partly known and not sensitive, with placeholders for the unknown parts.
    #[serde(default)]
    pub partly: Option<Value>,
    pub sensitive: bool,
}

impl std::fmt::Debug for PlannedOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known = if self.value.is_some() {
            "known"
        } else {
            "unknown"
        };
        f.debug_tuple("PlannedOutput").field(&known).finish()
    }
}

/// Outputs by name, from the engine's plan JSON.
pub fn planned_outputs(json: &[u8]) -> Result<BTreeMap<String, PlannedOutput>, ParsePlanError> {
    let raw: RawPlan = serde_json::from_slice(json).map_err(ParsePlanError::NotPlanJson)?;
    let outputs = raw.output_changes.into_iter();
    let planned = outputs.map(|(name, change)| {
        let is_known = !has_mark(&change.after_unknown);
        // Parsed like values of a state, so that numbers reach dependents without loss of digits.
        let text = change.after.as_ref().map_or("null", |after| after.get());
        let value = exact_number::read(text).map_err(ParsePlanError::NotPlanJson)?;
        let sensitive = has_mark(&change.after_sensitive);
        let is_split = !is_known && change.after_unknown != Value::Bool(true);
        let partly = (is_split && !sensitive).then(|| {
            let marks = MarkedValue::new(&value, &change.after_unknown, &Value::Null);
            marks.flattened()
        });
        let planned = PlannedOutput {
            partly,
            value: is_known.then_some(value),
            sensitive,
        };
        Ok((name, planned))
    });
    planned.collect()
}

#[derive(Deserialize)]
struct RawPlan {
    #[serde(default)]
    output_changes: BTreeMap<String, RawChange>,
}

#[derive(Deserialize)]
struct RawChange {
    after: Option<Box<RawValue>>,
    #[serde(default)]
    after_unknown: Value,
    #[serde(default)]
    after_sensitive: Value,
}
