//! The plan for policies: the engine's plan JSON in its original form, without sensitive values.
//!
//! Not here: the plan for people (`plan`).

use std::borrow::Cow;

use serde_json::Value;

use crate::base::exact_number;
use crate::base::masking::Mask;
use crate::plan::{ParsePlanError, sensitive_in};

/// The replacement text for a sensitive value.
const SENSITIVE: &str = "(sensitive)";

/// Plan JSON without sensitive values: removed by their marks, and by content wherever else they occur. `mask` contains
/// the run's secrets.
pub fn redact(json: &[u8], mask: &Mask) -> Result<Value, ParsePlanError> {
    let kept = exact_number::kept(json);
    let mut plan: Value = serde_json::from_slice(&kept).map_err(ParsePlanError::NotPlanJson)?;
    if let Cow::Owned(_) = kept {
        exact_number::round(&mut plan);
    }
    let marked = sensitive_in(&plan)?;
    for list in ["/resource_changes", "/resource_drift"] {
        for change in items(plan.pointer_mut(list)) {
            if let Some(change) = change.get_mut("change") {
                sides(change);
            }
        }
    }
    for change in fields(plan.pointer_mut("/output_changes")) {
        sides(change);
    }
    for place in ["/planned_values", "/prior_state/values"] {
        for output in fields(plan.pointer_mut(&format!("{place}/outputs"))) {
            if output["sensitive"] == true {
                hide_all(output.get_mut("value"));
            }
        }
        resources(plan.pointer_mut(&format!("{place}/root_module")));
    }
    variables(&mut plan);
    for mask in [&marked, mask] {
        if mask.may_be_in(json) {
            mask.mask_value(&mut plan);
        }
    }
    Ok(plan)
}

fn sides(change: &mut Value) {
    let Value::Object(change) = change else {
        return;
    };
    for (side, marks) in [("before", "before_sensitive"), ("after", "after_sensitive")] {
        if let Some(marks) = change.get(marks).cloned() {
            hide(change.get_mut(side), &marks);
        }
    }
}

/// The resources of a module and its child modules.
fn resources(module: Option<&mut Value>) {
    let mut modules: Vec<&mut Value> = module.into_iter().collect();
    while let Some(Value::Object(module)) = modules.pop() {
        for (key, part) in module {
            match key.as_str() {
                "resources" => {
                    for resource in items(Some(part)) {
                        if let Some(marks) = resource.get("sensitive_values").cloned() {
                            hide(resource.get_mut("values"), &marks);
                        }
                    }
                }
                "child_modules" => modules.extend(items(Some(part))),
                _ => {}
            }
        }
    }
}

/// The sensitive mark of a variable is at its declaration, not at its value.
fn variables(plan: &mut Value) {
    const DECLARED: &str = "/configuration/root_module/variables";
    let declared = plan.pointer(DECLARED).cloned().unwrap_or_default();
    if let Some(Value::Object(given)) = plan.pointer_mut("/variables") {
        for (name, variable) in given {
            if declared[name]["sensitive"] == true {
                hide_all(variable.get_mut("value"));
            }
        }
    }
    for variable in fields(plan.pointer_mut(DECLARED)) {
        if variable["sensitive"] == true {
            hide_all(variable.get_mut("default"));
        }
    }
}

fn hide_all(value: Option<&mut Value>) {
    hide(value, &Value::Bool(true));
}

fn hide(value: Option<&mut Value>, marks: &Value) {
    match (value, marks) {
        (None | Some(Value::Null), _) => {}
        (Some(value), Value::Bool(true)) => *value = Value::String(SENSITIVE.to_owned()),
        (Some(Value::Array(items)), Value::Array(marks)) => {
            for (item, marks) in items.iter_mut().zip(marks) {
                hide(Some(item), marks);
            }
        }
        (Some(Value::Object(fields)), Value::Object(marks)) => {
            for (key, marks) in marks {
                hide(fields.get_mut(key), marks);
            }
        }
        _ => {}
    }
}

fn items(value: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    value.and_then(Value::as_array_mut).into_iter().flatten()
}

fn fields(value: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    let map = value.and_then(Value::as_object_mut).into_iter();
    map.flat_map(serde_json::Map::values_mut)
}
