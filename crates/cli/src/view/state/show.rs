//! The content of a version, value by value.

use control::state::queries::version::VersionDocument;
use jiff::Timestamp;
use model::base::masking::Mask;
use model::plan::{Mode, PlanValue};
use model::state::diff::{SensitiveDisplay, leaf_values};
use model::state::leaves::leaves;
use model::state::resources::ResourceInstance;
use model::state::secret_paths::distinct_names;
use serde_json::{Map, Value, json};

use super::json::{value, version};
use super::{ellipsis, version_words};
use crate::view::plan;
use crate::view::style::{TextRole, ViewOptions};
use crate::view::text::clean;

/// How many attributes of a resource are shown among others before the rest is folded.
const MOST: usize = 10;

pub(crate) struct StateView<'a> {
    pub(crate) asked: &'a VersionDocument,
    /// The whole version is shown, not only one address.
    pub(crate) is_whole: bool,
    /// The mask of the whole version, also if only a part of it is shown.
    pub(crate) mask: Mask,
    pub(crate) full: bool,
    pub(crate) showing: SensitiveDisplay<'a>,
}

pub(crate) fn text(sheet: &StateView<'_>, now: Timestamp, look: ViewOptions) -> String {
    let mut out = String::new();
    if sheet.is_whole {
        let version = &sheet.asked.version;
        let words = version_words(version, now);
        let copy = if version.is_copy() {
            ", a copy: the state lives in a backend of the engine"
        } else {
            ""
        };
        out = format!("state `{}`, {words}{copy}\n\n", clean(&version.state.name));
    }
    let mask = &sheet.mask;
    let mut blocks: Vec<String> = Vec::new();
    for instance in &sheet.asked.document.instances {
        let mut lines = vec![heading(instance, look)];
        let values = leaf_values(&instance.entry().leaves, mask, sheet.showing);
        lines.extend(value_lines(&values, sheet.full, look));
        blocks.push(lines.join("\n") + "\n");
    }
    if !sheet.asked.document.outputs.is_empty() {
        let outputs = outputs(sheet, mask);
        let mut lines = vec![look.paint(TextRole::Strong, "outputs")];
        lines.extend(value_lines(&outputs, true, look));
        blocks.push(lines.join("\n") + "\n");
    }
    if blocks.is_empty() {
        blocks.push("nothing: no resources, no outputs\n".to_owned());
    }
    out + &blocks.join("\n")
}

fn heading(instance: &ResourceInstance, look: ViewOptions) -> String {
    let address = look.paint(TextRole::Strong, &clean(&instance.address));
    let tainted = if instance.is_tainted {
        format!("   {}", look.paint(TextRole::Warning, "tainted"))
    } else {
        String::new()
    };
    format!("{address}{tainted}")
}

fn value_lines(values: &[(String, PlanValue)], full: bool, look: ViewOptions) -> Vec<String> {
    // Folding a single line would not save one.
    let folded = if full || values.len() <= MOST + 1 {
        0
    } else {
        values.len() - MOST
    };
    let kept = &values[..values.len() - folded];
    let mut lines = plan::values(kept, 4, full, look);
    if folded > 0 {
        let words = format!("{} {folded} more, `--full` shows all", ellipsis(look));
        lines.push(format!("    {}", look.paint(TextRole::Faint, &words)));
    }
    lines
}

/// Each output as a whole, unless a part is sensitive.
fn outputs(sheet: &StateView<'_>, mask: &Mask) -> Vec<(String, PlanValue)> {
    let mut all = Vec::new();
    for (name, output) in &sheet.asked.document.outputs {
        let is_plain =
            output.sensitive.is_null() || matches!(sheet.showing, SensitiveDisplay::Revealed);
        if is_plain {
            let mut known = PlanValue::Known(output.value.clone());
            if let SensitiveDisplay::Masked(_) = sheet.showing {
                mask.mask_plan_value(&mut known);
            }
            all.push((name.clone(), known));
            continue;
        }
        let leaves = leaves(&output.value, &output.sensitive);
        for (path, value) in leaf_values(&leaves, mask, sheet.showing) {
            let dot = if path.is_empty() || path.starts_with('[') {
                ""
            } else {
                "."
            };
            all.push((format!("{name}{dot}{path}"), value));
        }
    }
    all
}

pub(crate) fn json(sheet: &StateView<'_>) -> Value {
    let document = &sheet.asked.document;
    let mask = &sheet.mask;
    let values = |values: Vec<(String, PlanValue)>| -> Map<String, Value> {
        let values = distinct_names(values);
        values.map(|(path, shown)| (path, value(&shown))).collect()
    };
    let resources: Vec<Value> = document
        .instances
        .iter()
        .map(|instance| {
            let leaves = instance.entry().leaves;
            json!({
                "address": instance.address,
                "mode": match instance.mode {
                    Mode::Managed => "managed",
                    Mode::Data => "data",
                },
                "type": instance.resource_type,
                "provider": instance.provider,
                "tainted": instance.is_tainted,
                "deposed": instance.deposed,
                "dependencies": instance.dependencies,
                "attributes": values(leaf_values(&leaves, mask, sheet.showing)),
            })
        })
        .collect();
    let mut answer = json!({ "version": version(&sheet.asked.version), "resources": resources });
    if sheet.is_whole {
        answer["engine_version"] = document.engine_version.as_str().into();
    }
    if sheet.is_whole || !document.outputs.is_empty() {
        answer["outputs"] = Value::Object(values(outputs(sheet, mask)));
    }
    answer
}
