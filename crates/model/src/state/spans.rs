//! The resources of a state: their addresses and their byte ranges.
//!
//! Nothing is serialised from this data: callers cut at the ranges.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Contents, InvalidState, StateFacts, TopLevel};

/// One resource and its instances.
#[derive(Clone, Debug)]
pub struct ResourceSpan<'a> {
    /// `module.net[0]`; empty in the root module.
    pub module: String,
    /// `module.net[0].aws_subnet.nodes`, without an instance's key.
    pub address: String,
    pub instances: Vec<InstanceSpan<'a>>,
    pub(super) text: &'a str,
    /// The whole list, including the brackets.
    pub(super) list: &'a str,
}

#[derive(Clone, Debug)]
pub struct InstanceSpan<'a> {
    /// The resource's address, with the instance's key if it has one.
    pub address: String,
    /// Set for a deposed object: replaced, but not destroyed yet.
    pub deposed: Option<String>,
    pub text: &'a str,
}

#[derive(Deserialize)]
struct RawResource<'a> {
    #[serde(default)]
    module: Option<String>,
    #[serde(default)]
    mode: String,
    #[serde(rename = "type")]
    kind: String,
    name: String,
    #[serde(borrow)]
    instances: &'a RawValue,
}

#[derive(Deserialize)]
struct RawInstance<'a> {
    #[serde(borrow, default)]
    index_key: Option<&'a RawValue>,
    #[serde(default)]
    deposed: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ReadResourcesError {
    #[error("the state is encrypted by the engine, so its resources cannot be read")]
    Encrypted,
    #[error("this is not a state")]
    Invalid(#[from] InvalidState),
    #[error("cannot read resource {number} of the state")]
    Resource {
        number: usize,
        source: serde_json::Error,
    },
}

/// All resources, in the order of the state, as slices of `body`.
pub fn resources(body: &[u8]) -> Result<Vec<ResourceSpan<'_>>, ReadResourcesError> {
    let text = list(body)?;
    let raw: Vec<&RawValue> = elements(text).map_err(|_| InvalidState::Resources)?;
    let mut found = Vec::with_capacity(raw.len());
    for (number, raw) in (1..).zip(raw) {
        let read = read(raw.get());
        found.push(read.map_err(|source| ReadResourcesError::Resource { number, source })?);
    }
    Ok(found)
}

/// The list of resources as text; `[]` if there is none.
pub(super) fn list(body: &[u8]) -> Result<&str, ReadResourcesError> {
    if StateFacts::read(body)?.contents == Contents::Encrypted {
        return Err(ReadResourcesError::Encrypted);
    }
    Ok(match TopLevel::read(body)?.resources.map(RawValue::get) {
        None | Some("null") => "[]",
        Some(text) => text,
    })
}

fn elements(list: &str) -> Result<Vec<&RawValue>, serde_json::Error> {
    serde_json::from_str(list)
}

fn read(text: &str) -> Result<ResourceSpan<'_>, serde_json::Error> {
    let raw: RawResource<'_> = serde_json::from_str(text)?;
    let module = raw.module.unwrap_or_default();
    let mut address = String::new();
    if !module.is_empty() {
        address.extend([module.as_str(), "."]);
    }
    if raw.mode == "data" {
        address.push_str("data.");
    }
    address.extend([raw.kind.as_str(), ".", &raw.name]);
    let list = raw.instances.get();
    let instances = if list == "null" {
        Vec::new()
    } else {
        elements(list)?
    };
    let instances = instances
        .into_iter()
        .map(|raw| {
            let text = raw.get();
            let known: RawInstance<'_> = serde_json::from_str(text)?;
            let key = known.index_key.map(RawValue::get);
            Ok(InstanceSpan {
                address: match key.filter(|key| *key != "null") {
                    // JSON and the engines write numbers and quoted strings in the same way.
                    Some(key) => format!("{address}[{key}]"),
                    None => address.clone(),
                },
                deposed: known.deposed.filter(|deposed| !deposed.is_empty()),
                text,
            })
        })
        .collect::<Result<_, serde_json::Error>>()?;
    Ok(ResourceSpan {
        module,
        address,
        instances,
        text,
        list,
    })
}
