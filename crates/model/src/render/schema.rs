//! Data held against the JSON Schema that a project names.

use std::fmt::Write as _;

use jsonschema::{Draft, Validator};
use serde_json::Value;

use super::checks::{Net, is_mac};
use super::data::{Data, Node};
use crate::diagnostic::Finding;
use crate::masking::MASKED;

/// A schema that was understood. No reference in it is followed out of it.
pub struct Schema {
    validator: Validator,
}

#[derive(Debug, thiserror::Error)]
pub enum ReadSchemaError {
    #[error("it is not JSON")]
    NotJson(#[from] serde_json::Error),
    #[error("it is no JSON Schema: {0}")]
    NotSchema(String),
}

impl Schema {
    /// Reads a schema. Beside the formats of the standard there are `mac`, `cidr` and `ip`.
    pub fn read(text: &str) -> Result<Self, ReadSchemaError> {
        let schema: Value = serde_json::from_str(text)?;
        let built = jsonschema::options()
            .with_draft(Draft::Draft202012)
            .should_validate_formats(true)
            .with_format("mac", is_mac)
            .with_format("cidr", |text: &str| {
                text.contains('/') && Net::of(text).is_some()
            })
            .with_format("ip", |text: &str| text.parse::<std::net::IpAddr>().is_ok())
            .build(&schema);
        match built {
            Ok(validator) => Ok(Self { validator }),
            Err(err) => Err(ReadSchemaError::NotSchema(err.to_string())),
        }
    }

    /// Everything that does not fit, at its place. No secret is part of what is said. A secret that is not known
    /// yet fits.
    pub fn check(&self, data: &Node) -> Vec<Finding> {
        let mut unknown = Vec::new();
        let instance = Self::instance(data, &mut Vec::new(), &mut unknown);
        let mut findings = Vec::new();
        for error in self.validator.iter_errors(&instance) {
            let path = error.instance_path().as_str();
            let pointer: Vec<String> = path
                .split('/')
                .skip(1)
                .map(|part| part.replace("~1", "/").replace("~0", "~"))
                .collect();
            if unknown.contains(&pointer) {
                continue;
            }
            let node = data.nearest(&pointer);
            let message = if node.secrets().is_empty() {
                error.to_string()
            } else {
                error.masked_with(MASKED).to_string()
            };
            let shown = shown(&pointer);
            let message = if pointer.is_empty() {
                lower_first(&message)
            } else {
                format!("`{shown}`: {}", lower_first(&message))
            };
            findings.push(
                Finding::error("schema", message.replace('"', "`"))
                    .at(node.at.clone(), "as the schema has it"),
            );
        }
        findings
    }

    fn instance(node: &Node, path: &mut Vec<String>, unknown: &mut Vec<Vec<String>>) -> Value {
        match &node.data {
            Data::Secret(secret) if secret.value.is_none() => {
                unknown.push(path.clone());
                Value::Null
            }
            Data::List(items) => items
                .iter()
                .enumerate()
                .map(|(index, item)| {
                    path.push(index.to_string());
                    let value = Self::instance(item, path, unknown);
                    path.pop();
                    value
                })
                .collect(),
            Data::Map(entries) => entries
                .iter()
                .map(|entry| {
                    path.push(entry.key.to_string());
                    let value = Self::instance(&entry.node, path, unknown);
                    let key = path.pop().unwrap_or_default();
                    (key, value)
                })
                .collect(),
            _ => node.to_json(),
        }
    }
}

fn shown(pointer: &[String]) -> String {
    let mut shown = String::new();
    for part in pointer {
        if part.bytes().all(|byte| byte.is_ascii_digit()) && !shown.is_empty() {
            _ = write!(shown, "[{part}]");
        } else {
            if !shown.is_empty() {
                shown.push('.');
            }
            shown.push_str(part);
        }
    }
    shown
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => String::new(),
    }
}
