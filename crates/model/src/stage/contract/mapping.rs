//! Which fields of published `values` are computed from which outputs, read from their expressions.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use hcl_edit::expr::{Expression as Hcl, ObjectKey};
use regex::Regex;
use serde_json::{Map, Value};

use super::planned::{PlannedFields, escape};
use crate::hcl::expression::Input;

/// A field path, and the outputs that its expression refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedField {
    pub field: Vec<String>,
    pub outputs: BTreeSet<String>,
}

static OUTPUT: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\boutput\.([A-Za-z_][A-Za-z0-9_-]*)").ok());

/// The fields of an object expression. A computed object is one field.
pub fn mapped(values: &Input) -> Vec<MappedField> {
    let Input::Expression(expression) = values else {
        return Vec::new();
    };
    let mut found = Vec::new();
    if let Ok(parsed) = hcl_edit::parser::parse_expr(&expression.text) {
        walk(&parsed, &mut Vec::new(), &mut found);
    }
    found
}

/// The fields of an object expression, all unknown; none if their names are computed.
pub fn declared_fields(values: &Input) -> Option<PlannedFields> {
    let expression = match values {
        Input::Known(Value::Object(fields)) => {
            return Some(PlannedFields {
                fields: fields.clone(),
                ..PlannedFields::default()
            });
        }
        Input::Known(_) => return None,
        Input::Expression(expression) => expression,
    };
    let parsed = hcl_edit::parser::parse_expr(&expression.text).ok()?;
    let mut planned = PlannedFields::default();
    planned.fields = declare(&parsed, "", &mut planned.unknown)?;
    Some(planned)
}

fn declare(
    expression: &Hcl,
    pointer: &str,
    unknown: &mut BTreeSet<String>,
) -> Option<Map<String, Value>> {
    let Hcl::Object(object) = expression else {
        return None;
    };
    let mut fields = Map::new();
    for (key, value) in object {
        let name = match key {
            ObjectKey::Ident(name) => name.as_str().to_owned(),
            ObjectKey::Expression(Hcl::String(name)) => name.as_str().to_owned(),
            ObjectKey::Expression(_) => return None,
        };
        let at = format!("{pointer}/{}", escape(&name));
        let inner = declare(value.expr(), &at, unknown).map_or_else(
            || {
                unknown.insert(at.clone());
                Value::Null
            },
            Value::Object,
        );
        fields.insert(name, inner);
    }
    Some(fields)
}

fn walk(expression: &Hcl, field: &mut Vec<String>, found: &mut Vec<MappedField>) {
    if let Hcl::Object(object) = expression {
        for (key, value) in object {
            let name = match key {
                ObjectKey::Ident(name) => name.as_str().to_owned(),
                ObjectKey::Expression(Hcl::String(name)) => name.as_str().to_owned(),
                ObjectKey::Expression(_) => continue,
            };
            field.push(name);
            walk(value.expr(), field, found);
            field.pop();
        }
        return;
    }
    let text = expression.to_string();
    let names = OUTPUT.iter().flat_map(|output| output.captures_iter(&text));
    let outputs: BTreeSet<String> = names
        .filter_map(|names| Some(names.get(1)?.as_str().to_owned()))
        .collect();
    if !outputs.is_empty() {
        found.push(MappedField {
            field: field.clone(),
            outputs,
        });
    }
}
