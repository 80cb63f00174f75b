//! Masks the secrets of a run in a plan.

use serde_json::Value;

use super::{Plan, PlanValue};
use crate::base::masking::Mask;

impl Mask {
    pub fn mask_plan_value(&self, value: &mut PlanValue) {
        match value {
            PlanValue::Absent
            | PlanValue::Unknown
            | PlanValue::KnownAfter { .. }
            | PlanValue::Sensitive
            | PlanValue::Masked { .. } => {}
            PlanValue::Known(known @ (Value::Array(_) | Value::Object(_))) => {
                self.mask_value(known);
            }
            PlanValue::Known(known) => {
                let mut masked = known.clone();
                self.mask_value(&mut masked);
                if masked != *known {
                    *value = PlanValue::Sensitive;
                }
            }
        }
    }

    /// Masks all values of a plan, and the names that are made of them.
    pub fn mask_plan(&self, plan: &mut Plan) {
        if !self.looks_for_something() {
            return;
        }
        let names = |text: &mut String| {
            if self.touches(text) {
                *text = self.mask_text(text);
            }
        };
        for change in plan.changes.iter_mut().chain(&mut plan.drift) {
            names(&mut change.address);
            names(&mut change.module);
            change.moved_from.iter_mut().for_each(names);
            change.importing.iter_mut().for_each(names);
            change.replace_because.iter_mut().for_each(names);
            for attribute in &mut change.attributes {
                names(&mut attribute.path);
                self.mask_plan_value(&mut attribute.before);
                self.mask_plan_value(&mut attribute.after);
            }
        }
        for output in plan.outputs.values_mut() {
            self.mask_plan_value(&mut output.before);
            self.mask_plan_value(&mut output.after);
        }
    }
}
