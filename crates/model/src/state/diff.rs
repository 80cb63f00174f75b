//! Compares two versions of a state, with the terms of a plan: added, changed, replaced, removed.
//!
//! Not here: since when a value is as it is (`leaves` and the index built from it).

use std::collections::BTreeMap;

use serde_json::Value;

use super::leaves::Leaf;
use super::resources::{ResourceInstance, StateDocument};
use super::secret_paths::distinct_names;
use crate::base::masking::Mask;
use crate::plan::diff::{MarkedValue, compare};
use crate::plan::{AttributeChange, ChangeAction, OutputChange, PlanValue, ResourceChange};

/// How sensitive values are shown.
#[derive(Clone, Copy)]
pub enum SensitiveDisplay<'a> {
    /// In clear text: a person requested it, and the request was recorded.
    Revealed,
    /// As a keyed digest.
    Masked(&'a dyn Fn(&Value) -> String),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct StateDiff {
    pub changes: Vec<ResourceChange>,
    pub outputs: BTreeMap<String, OutputChange>,
}

impl StateDiff {
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.outputs.is_empty()
    }
}

/// The differences, in the order of `after`, followed by removed objects.
pub fn diff(
    before: &StateDocument,
    after: &StateDocument,
    showing: SensitiveDisplay<'_>,
) -> StateDiff {
    let old: BTreeMap<&str, &ResourceInstance> = by_address(before);
    let new: BTreeMap<&str, &ResourceInstance> = by_address(after);
    let mut changes: Vec<ResourceChange> = after
        .instances
        .iter()
        .filter_map(|instance| {
            let before = old.get(instance.address.as_str()).copied();
            change(before, Some(instance), showing)
        })
        .collect();
    let gone = before
        .instances
        .iter()
        .filter(|instance| !new.contains_key(instance.address.as_str()));
    changes.extend(gone.filter_map(|instance| change(Some(instance), None, showing)));

    let names = before.outputs.keys().chain(after.outputs.keys());
    let mut outputs: BTreeMap<String, OutputChange> = names
        .filter_map(|name| {
            let change = output_change(before, after, name, showing)?;
            Some((name.clone(), change))
        })
        .collect();
    if let SensitiveDisplay::Masked(_) = showing {
        for document in [before, after] {
            mask(&document.mask(), &mut changes, &mut outputs);
        }
    }
    StateDiff { changes, outputs }
}

/// The leaves as they may be shown, with their paths. A map key may be secret too.
pub fn leaf_values(
    leaves: &[Leaf<'_>],
    mask: &Mask,
    showing: SensitiveDisplay<'_>,
) -> Vec<(String, PlanValue)> {
    let shown = leaves.iter().map(|leaf| {
        let mut known = PlanValue::Known(leaf.value.clone());
        let value = match showing {
            SensitiveDisplay::Revealed => known,
            SensitiveDisplay::Masked(digest) if leaf.is_sensitive => PlanValue::Masked {
                digest: digest(leaf.value),
            },
            SensitiveDisplay::Masked(_) => {
                mask.mask_plan_value(&mut known);
                known
            }
        };
        let path = match showing {
            SensitiveDisplay::Revealed => leaf.path.clone(),
            SensitiveDisplay::Masked(_) => mask.mask_text(&leaf.path),
        };
        (path, value)
    });
    shown.collect()
}

fn by_address(document: &StateDocument) -> BTreeMap<&str, &ResourceInstance> {
    let instances = document.instances.iter();
    instances
        .map(|instance| (instance.address.as_str(), instance))
        .collect()
}

fn change(
    before: Option<&ResourceInstance>,
    after: Option<&ResourceInstance>,
    showing: SensitiveDisplay<'_>,
) -> Option<ResourceChange> {
    let instance = after.or(before)?;
    let mut difference = compare(side(before, showing), side(after, showing), &[]);
    let tainted = |instance: Option<&ResourceInstance>| match instance {
        Some(instance) if instance.is_tainted => PlanValue::Known(Value::Bool(true)),
        Some(_) | None => PlanValue::Absent,
    };
    if tainted(before) != tainted(after) {
        difference.changes.push(AttributeChange {
            path: super::leaves::TAINTED.to_owned(),
            before: tainted(before),
            after: tainted(after),
            forces_replacement: false,
        });
    }
    let is_replaced = has_other_id(before, after);
    let action = match (before, after) {
        (None, _) => ChangeAction::Create,
        (_, None) => ChangeAction::Delete,
        (Some(_), Some(_)) if is_replaced => ChangeAction::DeleteCreate,
        (Some(_), Some(_)) if difference.changes.is_empty() => return None,
        (Some(_), Some(_)) => ChangeAction::Update,
    };
    Some(ResourceChange {
        address: instance.address.clone(),
        module: instance.module.clone(),
        resource_type: instance.resource_type.clone(),
        mode: instance.mode,
        action,
        moved_from: None,
        importing: None,
        replace_because: Vec::new(),
        reason: is_replaced.then(|| "it has another id".to_owned()),
        attributes: difference.changes,
        unchanged: difference.unchanged,
    })
}

/// A state does not record replacements; a different `id` indicates one.
fn has_other_id(before: Option<&ResourceInstance>, after: Option<&ResourceInstance>) -> bool {
    let id = |instance: Option<&ResourceInstance>| -> Option<String> {
        let id = instance?.attributes.get("id")?.as_str()?;
        Some(id.to_owned())
    };
    match (id(before), id(after)) {
        (Some(before), Some(after)) => before != after,
        (Some(_) | None, _) => false,
    }
}

fn side<'a>(
    instance: Option<&'a ResourceInstance>,
    showing: SensitiveDisplay<'a>,
) -> MarkedValue<'a> {
    match instance {
        None => marks(&Value::Null, &Value::Null, showing),
        Some(instance) => marks(&instance.attributes, &instance.sensitive, showing),
    }
}

fn marks<'a>(
    value: &'a Value,
    sensitive: &'a Value,
    showing: SensitiveDisplay<'a>,
) -> MarkedValue<'a> {
    match showing {
        SensitiveDisplay::Revealed => MarkedValue::new(value, &Value::Null, &Value::Null),
        SensitiveDisplay::Masked(digest) => MarkedValue::stored(value, sensitive, digest),
    }
}

fn output_change(
    before: &StateDocument,
    after: &StateDocument,
    name: &str,
    showing: SensitiveDisplay<'_>,
) -> Option<OutputChange> {
    let (old, new) = (before.outputs.get(name), after.outputs.get(name));
    if old.map(|output| &output.value) == new.map(|output| &output.value) {
        return None;
    }
    let side = |output: Option<&super::resources::DocumentOutput>| {
        let Some(output) = output else {
            return PlanValue::Absent;
        };
        marks(&output.value, &output.sensitive, showing).shown(false)
    };
    Some(OutputChange {
        action: match (old, new) {
            (None, _) => ChangeAction::Create,
            (_, None) => ChangeAction::Delete,
            (Some(_), Some(_)) => ChangeAction::Update,
        },
        before: side(old),
        after: side(new),
    })
}

fn mask(mask: &Mask, changes: &mut [ResourceChange], outputs: &mut BTreeMap<String, OutputChange>) {
    for change in &mut *changes {
        change.address = mask.mask_text(&change.address);
        change.module = mask.mask_text(&change.module);
    }
    for attribute in changes.iter_mut().flat_map(|change| &mut change.attributes) {
        attribute.path = mask.mask_text(&attribute.path);
        mask.mask_plan_value(&mut attribute.before);
        mask.mask_plan_value(&mut attribute.after);
    }
    let named = std::mem::take(outputs).into_iter();
    let named = named.map(|(name, output)| (mask.mask_text(&name), output));
    outputs.extend(distinct_names(named));
    for output in outputs.values_mut() {
        mask.mask_plan_value(&mut output.before);
        mask.mask_plan_value(&mut output.after);
    }
}

#[cfg(test)]
mod tests;
