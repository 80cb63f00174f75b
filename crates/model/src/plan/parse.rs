//! Converts an engine's plan JSON (`show -json PLANFILE`) to a [`Plan`] that may be shown.
//!
//! Sensitive values are removed here: where the engine marks them, and wherever else the same value occurs. Marks get
//! lost inside resources: `terraform_data.output` does not carry those of its `input`.
//!
//! Not here: comparing two values leaf by leaf (`diff`).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::coverage::{Change, Difference};
use super::diff::{MarkedValue, PathSegment, ValueDigestFn, compare, render_path};
use super::{ChangeAction, Mode, OutputChange, Plan, ResourceChange};
use crate::base::exact_number;
use crate::base::masking::Mask;
use crate::base::secret::Secret;

/// Reads plan JSON of any engine version with a format version of 1.
pub fn parse(json: &[u8]) -> Result<Plan, ParsePlanError> {
    let json = exact_number::kept(json);
    let raw: RawPlan<'_> = serde_json::from_slice(&json).map_err(ParsePlanError::NotPlanJson)?;
    if raw.format_version.split('.').next() != Some("1") {
        return Err(ParsePlanError::UnknownFormat {
            version: raw.format_version.into_owned(),
        });
    }
    let mut plan = Plan {
        engine_version: raw.terraform_version.clone().unwrap_or_default(),
        errored: raw.errored,
        ..Plan::default()
    };
    for change in &raw.resource_changes {
        let Some(change) = resource_change(change)? else {
            continue;
        };
        let worth_showing = change.moved_from.is_some() || change.importing.is_some();
        match change.action {
            ChangeAction::NoOp if !worth_showing => {}
            ChangeAction::Read => {}
            _ => plan.changes.push(change),
        }
    }
    for change in &raw.resource_drift {
        plan.drift
            .extend(resource_change(change)?.filter(|it| it.action != ChangeAction::NoOp));
    }
    for (name, delta) in &raw.output_changes {
        let action = action(&delta.actions, name)?;
        if action != ChangeAction::NoOp {
            plan.outputs
                .insert(name.clone(), output_change(action, delta));
        }
    }
    sensitive_values(&raw).mask_plan(&mut plan);
    Ok(plan)
}

/// The part of a plan that is compared with other plans. For a refresh-only plan this includes the drift. Every value
/// goes through `digest`, which must be keyed.
pub fn difference(
    json: &[u8],
    refresh_only: bool,
    digest: &dyn Fn(&Value) -> String,
) -> Result<Difference, ParsePlanError> {
    let json = exact_number::kept(json);
    let raw: RawPlan<'_> = serde_json::from_slice(&json).map_err(ParsePlanError::NotPlanJson)?;
    let mut difference = Difference::default();
    let drift = raw.resource_drift.iter().filter(|_| refresh_only);
    for change in raw.resource_changes.iter().chain(drift) {
        let Some(shown) = resource_change(change)? else {
            continue;
        };
        let is_nothing = shown.moved_from.is_none() && shown.importing.is_none();
        let counts = match shown.action {
            ChangeAction::NoOp => !is_nothing,
            ChangeAction::Read => false,
            ChangeAction::Create
            | ChangeAction::Update
            | ChangeAction::DeleteCreate
            | ChangeAction::CreateDelete
            | ChangeAction::Delete
            | ChangeAction::Forget => true,
        };
        if !counts {
            continue;
        }
        let address = match &change.deposed {
            Some(key) => format!("{} (deposed {key})", shown.address),
            None => shown.address,
        };
        let change = Change {
            moved_from: shown.moved_from,
            importing: shown.importing,
            replace_paths: shown.replace_because.into_iter().collect(),
            ..change.change.difference(shown.action, digest)
        };
        difference.add_resource(address, change);
    }
    for (name, delta) in &raw.output_changes {
        let action = action(&delta.actions, name)?;
        if action != ChangeAction::NoOp {
            difference.add_output(name.clone(), delta.difference(action, digest));
        }
    }
    Ok(difference)
}

#[derive(Debug, thiserror::Error)]
pub enum ParsePlanError {
    #[error("cannot parse the engine's plan as plan JSON")]
    NotPlanJson(#[source] serde_json::Error),
    #[error("the engine's plan has format version `{version}`: this terrane reads version 1")]
    UnknownFormat { version: String },
    #[error(
        "cannot read the engine's plan: the action `{action}` for `{address}` is unknown to this terrane"
    )]
    UnknownAction { action: String, address: String },
}

#[derive(Deserialize)]
struct RawPlan<'a> {
    #[serde(borrow)]
    format_version: std::borrow::Cow<'a, str>,
    terraform_version: Option<String>,
    #[serde(default)]
    resource_changes: Vec<RawChange>,
    #[serde(default)]
    resource_drift: Vec<RawChange>,
    #[serde(default)]
    output_changes: BTreeMap<String, Delta>,
    #[serde(default)]
    errored: bool,
    #[serde(default)]
    variables: BTreeMap<String, RawVariable>,
    #[serde(default)]
    configuration: RawConfiguration,
}

#[derive(Deserialize)]
struct RawVariable {
    #[serde(default)]
    value: Value,
}

#[derive(Default, Deserialize)]
struct RawConfiguration {
    #[serde(default)]
    root_module: RawRootModule,
}

#[derive(Default, Deserialize)]
struct RawRootModule {
    #[serde(default)]
    variables: BTreeMap<String, RawDeclaration>,
}

#[derive(Deserialize)]
struct RawDeclaration {
    #[serde(default)]
    sensitive: bool,
}

#[derive(Deserialize)]
struct RawChange {
    address: String,
    #[serde(default)]
    module_address: String,
    #[serde(default)]
    mode: String,
    #[serde(rename = "type", default)]
    resource_type: String,
    previous_address: Option<String>,
    action_reason: Option<String>,
    /// Set for a deposed object, which a failed replacement left behind.
    deposed: Option<String>,
    change: Delta,
}

#[derive(Deserialize)]
struct Delta {
    actions: Vec<String>,
    #[serde(default)]
    before: Value,
    #[serde(default)]
    after: Value,
    #[serde(default)]
    after_unknown: Value,
    #[serde(default)]
    before_sensitive: Value,
    #[serde(default)]
    after_sensitive: Value,
    #[serde(default)]
    replace_paths: Vec<Vec<Value>>,
    importing: Option<RawImport>,
}

#[derive(Deserialize)]
struct RawImport {
    id: Option<String>,
}

impl Delta {
    fn before(&self) -> MarkedValue<'_> {
        MarkedValue::new(&self.before, &Value::Null, &self.before_sensitive)
    }

    fn after(&self) -> MarkedValue<'_> {
        MarkedValue::new(&self.after, &self.after_unknown, &self.after_sensitive)
    }

    fn difference(&self, action: ChangeAction, digest: ValueDigestFn<'_>) -> Change {
        Change::new(
            action,
            &self.before,
            &self.after,
            &self.after_unknown,
            digest,
        )
    }
}

/// `None` for ephemeral resources, which are neither managed nor read.
fn resource_change(raw: &RawChange) -> Result<Option<ResourceChange>, ParsePlanError> {
    let mode = match raw.mode.as_str() {
        "managed" => Mode::Managed,
        "data" => Mode::Data,
        _ => return Ok(None),
    };
    let delta = &raw.change;
    let action = action(&delta.actions, &raw.address)?;
    let replace_paths: Vec<Vec<PathSegment>> = delta
        .replace_paths
        .iter()
        .map(|path| path.iter().map(PathSegment::from_json).collect())
        .collect();
    let mut difference = compare(delta.before(), delta.after(), &replace_paths);
    if action == ChangeAction::Forget {
        // The real object does not change.
        difference.unchanged += difference.changes.len();
        difference.changes.clear();
    }
    let deposed = raw.deposed.as_ref().map(|key| format!("deposed {key}"));
    Ok(Some(ResourceChange {
        address: raw.address.clone(),
        module: raw.module_address.clone(),
        resource_type: raw.resource_type.clone(),
        mode,
        action,
        moved_from: raw
            .previous_address
            .clone()
            .filter(|previous| *previous != raw.address),
        importing: delta
            .importing
            .as_ref()
            .map(|import| import.id.clone().unwrap_or_default()),
        replace_because: replace_paths.iter().map(|path| render_path(path)).collect(),
        reason: deposed.or_else(|| raw.action_reason.clone()),
        attributes: difference.changes,
        unchanged: difference.unchanged,
    }))
}

fn output_change(action: ChangeAction, delta: &Delta) -> OutputChange {
    let (before, after) = (delta.before(), delta.after());
    // If one side is sensitive, both are hidden, as they may be equal.
    let hide = before.is_sensitive() || after.is_sensitive();
    OutputChange {
        action,
        before: before.shown(hide),
        after: after.shown(hide),
    }
}

fn action(actions: &[String], address: &str) -> Result<ChangeAction, ParsePlanError> {
    let words: Vec<&str> = actions.iter().map(String::as_str).collect();
    Ok(match words.as_slice() {
        ["no-op"] => ChangeAction::NoOp,
        // The old object leaves the state but is not destroyed.
        ["create"] | ["create", "forget"] | ["forget", "create"] => ChangeAction::Create,
        ["read"] => ChangeAction::Read,
        ["update"] => ChangeAction::Update,
        ["delete", "create"] => ChangeAction::DeleteCreate,
        ["create", "delete"] => ChangeAction::CreateDelete,
        ["delete"] => ChangeAction::Delete,
        ["forget"] => ChangeAction::Forget,
        _ => {
            return Err(ParsePlanError::UnknownAction {
                action: words.join(", "),
                address: address.to_owned(),
            });
        }
    })
}

/// All values that plan JSON marks as sensitive, so that they are also found where the mark is missing.
pub(crate) fn sensitive_in(plan: &Value) -> Result<Mask, ParsePlanError> {
    let raw = RawPlan::deserialize(plan).map_err(ParsePlanError::NotPlanJson)?;
    Ok(sensitive_values(&raw))
}

fn sensitive_values(raw: &RawPlan<'_>) -> Mask {
    let mut found = Vec::new();
    for (name, variable) in &raw.variables {
        let declared = raw.configuration.root_module.variables.get(name);
        if declared.is_some_and(|it| it.sensitive) {
            collect(&variable.value, &Value::Bool(true), &mut found);
        }
    }
    let resources = raw.resource_changes.iter().chain(&raw.resource_drift);
    let deltas = resources
        .map(|it| &it.change)
        .chain(raw.output_changes.values());
    for delta in deltas {
        collect(&delta.before, &delta.before_sensitive, &mut found);
        collect(&delta.after, &delta.after_sensitive, &mut found);
    }
    Mask::new(&found)
}

fn collect(value: &Value, sensitive: &Value, found: &mut Vec<Secret>) {
    match (value, sensitive) {
        (Value::String(text), Value::Bool(true)) => found.push(Secret::new(text)),
        (Value::Number(number), Value::Bool(true)) => found.push(Secret::new(number.to_string())),
        (Value::Array(items), marks) => {
            for (index, item) in items.iter().enumerate() {
                collect(item, mark_at(marks, marks.get(index)), found);
            }
        }
        (Value::Object(fields), marks) => {
            for (key, field) in fields {
                collect(field, mark_at(marks, marks.get(key)), found);
            }
        }
        _ => {}
    }
}

fn mark_at<'a>(marks: &'a Value, inner: Option<&'a Value>) -> &'a Value {
    if marks == &Value::Bool(true) {
        marks
    } else {
        inner.unwrap_or(&Value::Null)
    }
}
