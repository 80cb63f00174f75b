//! The contents of a state: resources, their attributes and outputs, read from the engine's bytes.
//!
//! Unknown fields are skipped, and numbers keep all their digits. An unreadable state gives an error with the
//! reason, so that it is not mistaken for an empty one.
//!
//! Not here: what may be shown (`sensitivity`), and what differs (`diff`).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::sensitivity;
use crate::base::exact_number::survives;
use crate::plan::Mode;

/// No provider nests deeper; hostile input may.
const DEEPEST: usize = 100;

/// A state that could be read.
#[derive(Clone, Debug, Default)]
pub struct StateDocument {
    /// The version of the engine that wrote it; OpenTofu writes its own version here.
    pub engine_version: String,
    pub serial: u64,
    pub lineage: String,
    /// In the engine's order.
    pub instances: Vec<ResourceInstance>,
    pub outputs: BTreeMap<String, DocumentOutput>,
}

/// One object of a resource.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceInstance {
    /// As the engine writes it: `module.cluster.azurerm_subnet.nodes["a"]`; a deposed object adds its key.
    pub address: String,
    pub module: String,
    pub mode: Mode,
    pub resource_type: String,
    pub provider: String,
    pub is_tainted: bool,
    /// The key of a deposed object, which only remains to be destroyed.
    pub deposed: Option<String>,
    /// An object, or null if the engine wrote none.
    pub attributes: Value,
    /// A tree of the same shape in which `true` marks a sensitive branch.
    pub sensitive: Value,
    pub dependencies: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct DocumentOutput {
    pub value: Value,
    pub sensitive: Value,
}

/// Why the contents of a state cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpaqueState {
    #[error("it is encrypted by the engine, and only the engine has the key")]
    Encrypted,
    #[error("it has the old format {version}, which engines read and never write")]
    Old { version: u64 },
    #[error("it has format {version}, which is newer than this terrane")]
    Newer { version: u64 },
    #[error("{0}")]
    Malformed(String),
}

#[derive(Deserialize)]
struct Top<'a> {
    #[serde(default)]
    version: Option<u64>,
    #[serde(default)]
    terraform_version: Option<String>,
    #[serde(default)]
    serial: u64,
    #[serde(default)]
    lineage: Option<String>,
    #[serde(borrow, default)]
    encryption_version: Option<&'a RawValue>,
    #[serde(borrow, default)]
    outputs: Option<&'a RawValue>,
    #[serde(borrow, default)]
    resources: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawOutput<'a> {
    #[serde(borrow, default)]
    value: Option<&'a RawValue>,
    #[serde(default)]
    sensitive: Option<bool>,
}

#[derive(Deserialize)]
struct RawResource<'a> {
    #[serde(default)]
    module: Option<String>,
    mode: String,
    #[serde(rename = "type")]
    resource_type: String,
    name: String,
    #[serde(default)]
    provider: Option<String>,
    #[serde(borrow, default)]
    instances: Vec<RawInstance<'a>>,
}

#[derive(Deserialize)]
struct RawInstance<'a> {
    #[serde(default)]
    index_key: Option<Value>,
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    deposed: Option<String>,
    #[serde(default)]
    provider: Option<String>,
    #[serde(borrow, default)]
    attributes: Option<&'a RawValue>,
    #[serde(borrow, default)]
    attributes_flat: Option<&'a RawValue>,
    #[serde(default)]
    sensitive_attributes: Option<Value>,
    #[serde(default)]
    dependencies: Option<Vec<String>>,
}

impl StateDocument {
    pub fn read(body: &[u8]) -> Result<Self, OpaqueState> {
        let top: Top<'_> = serde_json::from_slice(body).map_err(malformed("the state"))?;
        if top.encryption_version.is_some() {
            return Err(OpaqueState::Encrypted);
        }
        match top.version {
            Some(4) => {}
            Some(version @ 5..) => return Err(OpaqueState::Newer { version }),
            Some(version) => return Err(OpaqueState::Old { version }),
            None => {
                return Err(OpaqueState::Malformed(
                    "it has neither `version` nor `encryption_version`".to_owned(),
                ));
            }
        }
        let mut instances = Vec::new();
        let resources: Option<Vec<RawResource<'_>>> = parse(top.resources, "`resources`")?;
        for resource in resources.unwrap_or_default() {
            resource.read_into(&mut instances)?;
        }
        let outputs: Option<BTreeMap<String, RawOutput<'_>>> = parse(top.outputs, "`outputs`")?;
        let outputs = outputs.unwrap_or_default().into_iter();
        let outputs = outputs
            .map(|(name, output)| Ok((name.clone(), output.read(&name)?)))
            .collect::<Result<_, OpaqueState>>()?;
        Ok(Self {
            engine_version: top.terraform_version.unwrap_or_default(),
            serial: top.serial,
            lineage: top.lineage.unwrap_or_default(),
            instances,
            outputs,
        })
    }

    /// The number of objects that the engine manages, without those that it only reads.
    pub fn resource_count(&self) -> usize {
        let managed = self.instances.iter().filter(|it| it.mode == Mode::Managed);
        managed.count()
    }
}

impl RawOutput<'_> {
    fn read(&self, name: &str) -> Result<DocumentOutput, OpaqueState> {
        let value = exact(self.value)?;
        let sensitive = if self.sensitive == Some(true) {
            Value::Bool(true)
        } else {
            sensitivity::output_marks(name, &value)
        };
        Ok(DocumentOutput { value, sensitive })
    }
}

impl RawResource<'_> {
    fn read_into(self, all: &mut Vec<ResourceInstance>) -> Result<(), OpaqueState> {
        let module = self.module.unwrap_or_default();
        let mode = match self.mode.as_str() {
            "managed" => Mode::Managed,
            "data" => Mode::Data,
            other => {
                return Err(OpaqueState::Malformed(format!(
                    "a resource has the unknown mode `{other}`"
                )));
            }
        };
        let mut base = module.clone();
        for part in [mode_word(mode), &self.resource_type, &self.name] {
            if !base.is_empty() && !part.is_empty() {
                base.push('.');
            }
            base.push_str(part);
        }
        for instance in self.instances {
            let mut address = base.clone();
            if let Some(key) = &instance.index_key {
                // A number or a string, in the form the engines write.
                address.extend(["[", &key.to_string(), "]"]);
            }
            let deposed = instance.deposed.filter(|key| !key.is_empty());
            if let Some(key) = &deposed {
                address.extend([" (deposed ", key, ")"]);
            }
            let attributes = exact(instance.attributes.or(instance.attributes_flat))?;
            let attributes = bare(attributes, self.resource_type == "terraform_data");
            let paths = instance.sensitive_attributes.unwrap_or_default();
            all.push(ResourceInstance {
                address,
                module: module.clone(),
                mode,
                resource_type: self.resource_type.clone(),
                provider: instance
                    .provider
                    .or_else(|| self.provider.clone())
                    .unwrap_or_default(),
                is_tainted: instance.status.as_deref() == Some("tainted"),
                deposed,
                sensitive: sensitivity::marks(&self.resource_type, &attributes, &paths),
                attributes,
                dependencies: instance.dependencies.unwrap_or_default(),
            });
        }
        Ok(())
    }
}

fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Managed => "",
        Mode::Data => "data",
    }
}

fn malformed(what: &'static str) -> impl Fn(serde_json::Error) -> OpaqueState {
    move |err| OpaqueState::Malformed(format!("{what} cannot be read: {err}"))
}

fn parse<'a, T: Deserialize<'a>>(
    raw: Option<&'a RawValue>,
    what: &'static str,
) -> Result<Option<T>, OpaqueState> {
    let text = raw.map_or("null", RawValue::get);
    serde_json::from_str(text).map_err(malformed(what))
}

fn exact(raw: Option<&RawValue>) -> Result<Value, OpaqueState> {
    raw.map_or(Ok(Value::Null), |raw| exact_value(raw, 0))
}

/// A value without any loss: a number that JSON parsing would round becomes a string of its digits.
fn exact_value(raw: &RawValue, depth: usize) -> Result<Value, OpaqueState> {
    if depth > DEEPEST {
        return Err(OpaqueState::Malformed(format!(
            "a value is nested more than {DEEPEST} levels deep"
        )));
    }
    let text = raw.get();
    let wrong = malformed("a value");
    Ok(match text.as_bytes().first() {
        Some(b'{') => {
            let Fields(fields) = serde_json::from_str(text).map_err(wrong)?;
            let mut object = Map::new();
            for (key, field) in fields {
                object.insert(key, exact_value(field, depth + 1)?);
            }
            Value::Object(object)
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text).map_err(wrong)?;
            let items = items.into_iter().map(|item| exact_value(item, depth + 1));
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        Some(b'-' | b'0'..=b'9') if !survives(text) => Value::String(text.to_owned()),
        _ => serde_json::from_str(text).map_err(wrong)?,
    })
}

/// Unwraps values of dynamic type, which are stored as `{"value": …, "type": ["object", …]}`. The engine's
/// own paths do not contain that `value`. With `is_built_in`, the resource is known to have such attributes,
/// so that a plain `"type": "string"` counts too.
fn bare(value: Value, is_built_in: bool) -> Value {
    match value {
        Value::Object(mut fields) => {
            let is_dressed = fields.len() == 2
                && fields.contains_key("value")
                && fields
                    .get("type")
                    .is_some_and(|ty| is_type(ty, is_built_in));
            if is_dressed {
                let inner = fields.remove("value").unwrap_or_default();
                return bare(inner, is_built_in);
            }
            for field in fields.values_mut() {
                *field = bare(field.take(), is_built_in);
            }
            Value::Object(fields)
        }
        Value::Array(items) => {
            let items = items.into_iter().map(|item| bare(item, is_built_in));
            Value::Array(items.collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

fn is_type(ty: &Value, or_simple: bool) -> bool {
    match ty {
        Value::String(name) => or_simple && matches!(&**name, "string" | "number" | "bool"),
        Value::Array(parts) => match parts.as_slice() {
            [Value::String(kind), inner] => match &**kind {
                "object" => inner.is_object(),
                "tuple" => inner.is_array(),
                "list" | "set" | "map" => is_type(inner, true) || inner == "dynamic",
                _ => false,
            },
            _ => false,
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}

/// The fields of an object, in order, each still text.
struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

#[cfg(test)]
mod tests;
