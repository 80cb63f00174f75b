//! A `publish` block whose values are known.

use std::fmt;

use serde_json::{Map, Value};

use crate::stage::ResolvedBlock;
use crate::stage::contract::{ContractName, InvalidContractName};

/// The contents of a `publish` block. May contain sensitive values.
#[derive(Clone, PartialEq)]
pub struct Publish {
    /// The name of the target `facts` block.
    pub place: String,
    pub path: String,
    pub contract: Option<ContractName>,
    /// Fields of the contract that may be missing.
    pub partial: Vec<String>,
    /// None: the outputs that the contract names.
    pub values: Option<Map<String, Value>>,
    /// Whether `values` contains a sensitive output or a secret.
    pub holds_sensitive: bool,
    /// Fields that look like a secret but are not.
    pub plain: Vec<String>,
    /// Files of the project that get the same facts.
    pub files: Vec<String>,
}

impl fmt::Debug for Publish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publish")
            .field("place", &self.place)
            .field("path", &self.path)
            .field("contract", &self.contract)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ReadPublishError {
    #[error("`{attribute}` of `publish \"{place}\"` is not {expected}")]
    Attribute {
        place: String,
        attribute: &'static str,
        expected: &'static str,
    },
    #[error(
        "the `path` of `publish \"{place}\"` uses a sensitive output or a secret, but names are visible to everyone"
    )]
    SecretPath { place: String },
    #[error(
        "the `{attribute}` of a sink of `publish \"{place}\"` uses a sensitive output or a secret, but names are visible to everyone"
    )]
    SecretSink {
        place: String,
        attribute: &'static str,
    },
    #[error(transparent)]
    Contract(#[from] InvalidContractName),
}

/// The attributes that identify a sink.
const NAMES: [&str; 3] = ["path", "name", "namespace"];

impl Publish {
    /// Reads a resolved block, without its cluster sinks.
    pub fn read(block: &ResolvedBlock) -> Result<Self, ReadPublishError> {
        // With `for_each`, the name ends with the key.
        let key = block.each.as_ref().map(|key| format!("-{key}"));
        let name = key.and_then(|key| block.name.strip_suffix(&key));
        let place = name.unwrap_or(&block.name).to_owned();
        let wrong = |attribute, expected| ReadPublishError::Attribute {
            place: place.clone(),
            attribute,
            expected,
        };
        if block.sensitive.contains("path") {
            return Err(ReadPublishError::SecretPath { place });
        }
        let named = |attribute: &&&str| {
            let mut sinks = block.blocks.iter();
            sinks.any(|sink| sink.sensitive.contains(**attribute))
        };
        if let Some(attribute) = NAMES.iter().find(named) {
            return Err(ReadPublishError::SecretSink { place, attribute });
        }
        let path = block.attrs.get("path").and_then(Value::as_str);
        let path = path.ok_or_else(|| wrong("path", "a path"))?.to_owned();
        let values = match block.attrs.get("values") {
            None => None,
            Some(Value::Object(values)) => Some(values.clone()),
            Some(_) => return Err(wrong("values", "an object")),
        };
        let contract = block.attrs.get("contract").and_then(Value::as_str);
        let files = block.blocks.iter().filter(|sink| sink.kind == "file");
        let files = files.map(|sink| {
            let path = sink.attrs.get("path").and_then(Value::as_str);
            path.filter(|path| super::path_problem(path).is_none())
                .map(str::to_owned)
                .ok_or_else(|| wrong("sink.path", "a path inside the project"))
        });
        Ok(Self {
            contract: contract.map(str::parse).transpose()?,
            partial: texts(block, "partial").ok_or_else(|| wrong("partial", "a list of texts"))?,
            plain: texts(block, "plain").ok_or_else(|| wrong("plain", "a list of texts"))?,
            files: files.collect::<Result<_, _>>()?,
            holds_sensitive: block.sensitive.contains("values"),
            path,
            values,
            place,
        })
    }
}

fn texts(block: &ResolvedBlock, name: &str) -> Option<Vec<String>> {
    match block.attrs.get(name) {
        None => Some(Vec::new()),
        Some(Value::Array(items)) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect(),
        Some(_) => None,
    }
}
