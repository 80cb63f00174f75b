//! Validates data with the JSON Schema that a project names.

use std::fmt::Write as _;

use jsonschema::{Draft, Validator};
use serde_json::Value;

use super::checks::{Net, is_mac};
use super::data::{Data, Node};
use super::select::{Select, SelectSegment, is_match};
use crate::base::diagnostic::Finding;
use crate::base::masking::MASKED;

/// A parsed schema. References to other documents are not followed.
pub struct Schema {
    validator: Validator,
    text: Value,
}

/// The maximum number of schema parts to search for one name.
const MOST_PARTS: usize = 1000;

#[derive(Debug, thiserror::Error)]
pub enum ReadSchemaError {
    #[error("it is not JSON")]
    NotJson(#[from] serde_json::Error),
    #[error("it is not a JSON Schema: {0}")]
    NotSchema(String),
}

impl Schema {
    /// Parses a schema. Supports the formats `mac`, `cidr` and `ip` in addition to the standard ones.
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
            Ok(validator) => Ok(Self {
                validator,
                text: schema,
            }),
            Err(err) => Err(ReadSchemaError::NotSchema(err.to_string())),
        }
    }

    /// All violations with their locations, without secret values. A secret that is not known yet counts as valid.
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
            let message = in_words(&message);
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

    /// Whether the schema defines a path, even if it is optional.
    pub fn knows(&self, path: &Select) -> bool {
        let mut here = vec![&self.text];
        for step in path.steps() {
            let parts = self.parts(here);
            here = parts.iter().flat_map(|part| children(part, step)).collect();
        }
        !here.is_empty()
    }

    /// Some parts of the schema with everything that they refer to or are composed of.
    fn parts<'s>(&'s self, mut left: Vec<&'s Value>) -> Vec<&'s Value> {
        let mut all: Vec<&Value> = Vec::new();
        while let Some(part) = left.pop() {
            if all.len() >= MOST_PARTS {
                break;
            }
            all.push(part);
            let refers = part["$ref"].as_str().and_then(|to| to.strip_prefix('#'));
            left.extend(refers.and_then(|to| self.text.pointer(to)));
            for word in ["allOf", "anyOf", "oneOf"] {
                left.extend(part[word].as_array().into_iter().flatten());
            }
            left.extend(["then", "else"].iter().filter_map(|word| part.get(word)));
        }
        all
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

/// The schemas of the children of a part.
fn children<'s>(part: &'s Value, step: &SelectSegment) -> Vec<&'s Value> {
    let mut found = Vec::new();
    match step {
        SelectSegment::Key(pattern) => {
            let named = part["properties"].as_object().into_iter().flatten();
            let named = named.filter(|(name, _)| is_match(pattern, name));
            found.extend(named.map(|(_, child)| child));
            let others = part["patternProperties"].as_object().into_iter().flatten();
            found.extend(others.map(|(_, child)| child));
            found.extend(
                part["additionalProperties"]
                    .is_object()
                    .then(|| &part["additionalProperties"]),
            );
        }
        SelectSegment::Index(_) | SelectSegment::Every => {
            found.extend(part.get("items"));
            found.extend(part["prefixItems"].as_array().into_iter().flatten());
        }
    }
    found
}

/// Replaces the names of our own formats with readable ones.
fn in_words(message: &str) -> String {
    message
        .replace("is not a \"ip\"", "is not an IP address")
        .replace(
            "is not a \"cidr\"",
            "is not a network such as `10.0.0.0/16`",
        )
        .replace("is not a \"mac\"", "is not a MAC address")
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
