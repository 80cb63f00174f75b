//! Facts: values of a stack for readers of Git instead of states. Converts outputs and `publish` blocks to files,
//! computes the changes of a commit, and detects changes of others. All of it is pure.
//!
//! Not here: Git (`drivers::git::publish`), SOPS (`drivers::sops`), publishing (`control::stage::facts`).

mod branch;
mod commit;
mod difference;
mod locations;
mod manifest;
mod paths;
mod publish;
mod records;
mod secrets;
#[cfg(test)]
mod tests;
mod yaml;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::base::error::{ErrorKind, Explain, NextStep, advice};
use crate::stage::contract::{Contract, ContractName};

pub use branch::{BranchOwnership, FactsBranch, SensitiveFacts};
pub use commit::{CommitMessage, StateMark, TRAILER_PROJECT, trailer};
pub use difference::{FieldDifference, FieldValue, field_differences};
pub use locations::{FactLocation, SinkObject, shape};
pub use manifest::{
    BREAK_GLASS, CommitChanges, DesiredFiles, FactsManifest, FileOwner, MANIFEST,
    ReadFactsManifestError, TakenPath, changes, foreign_files,
};
pub use paths::{PathClash, PathMap, path_problem};
pub use publish::{Publish, ReadPublishError};
pub use records::records;
pub use secrets::looks_secret;

/// The project's file with the recipients of encrypted facts.
pub const SOPS_RULES: &str = ".sops.yaml";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FactsFormat {
    Yaml,
    Json,
}

impl FactsFormat {
    /// By file name.
    pub fn of(path: &str) -> Option<Self> {
        match path.rsplit_once('.')?.1 {
            "yaml" | "yml" => Some(Self::Yaml),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}

/// A stack's outputs, and which of them are sensitive.
#[derive(Clone, Copy)]
pub struct Outputs<'a> {
    pub values: &'a Map<String, Value>,
    pub sensitive: &'a BTreeSet<String>,
}

/// Which values of a file are encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Encrypt {
    Nothing,
    /// JSON pointers of leaves.
    Leaves(BTreeSet<String>),
    All,
}

/// A file that is ready to be rendered. `encrypt` covers all its sensitive values.
#[derive(Clone, PartialEq)]
pub struct FactFile {
    pub path: String,
    pub format: FactsFormat,
    pub contract: Option<ContractName>,
    /// In canonical order.
    pub values: Map<String, Value>,
    pub encrypt: Encrypt,
}

impl FactFile {
    /// Its sensitive values, by path.
    pub fn sensitive_paths(&self) -> BTreeSet<String> {
        match &self.encrypt {
            Encrypt::Nothing => BTreeSet::new(),
            Encrypt::Leaves(paths) => paths.iter().map(|path| field_name(path)).collect(),
            Encrypt::All => self.values.keys().cloned().collect(),
        }
    }
}

const HEADER: &str = "Written by terrane: stack ";

/// The comment at the top of a published file.
pub fn file_header(stack: &str, project: &str) -> String {
    format!("{HEADER}`{stack}` of project `{project}`. An edit stops the next publication.")
}

/// Whether a text has that comment. JSON cannot.
pub fn is_published(text: &str) -> bool {
    let header = text.strip_prefix("# ");
    header.is_some_and(|header| header.starts_with(HEADER))
}

/// The values of a published file, unless it is encrypted.
pub fn read_values(bytes: &[u8]) -> Option<Value> {
    let value: Value = yaml_serde::from_slice(bytes).ok()?;
    value.get("sops").is_none().then_some(value)
}

/// Whether a published file is an object, encrypted or not.
pub fn holds_fields(bytes: &[u8]) -> bool {
    yaml_serde::from_slice::<Value>(bytes).is_ok_and(|value| value.is_object())
}

/// The fields of a file that SOPS encrypted, still encrypted.
pub fn encrypted_fields(bytes: &[u8]) -> Option<Value> {
    let value: Value = yaml_serde::from_slice(bytes).ok()?;
    value.get("sops").is_some().then_some(value)
}

impl fmt::Debug for FactFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FactFile")
            .field("path", &self.path)
            .field("encrypt", &self.encrypt)
            .finish_non_exhaustive()
    }
}

/// The result of a publication at one place. Contains no values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// The name of the `facts` block.
    pub place: String,
    pub repository: String,
    pub branch: String,
    /// The tip of the branch; none if nothing was ever published there.
    pub commit: Option<String>,
    /// Whether this publication created that commit.
    pub is_new: bool,
    pub files: Vec<PublishedFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedFile {
    pub path: String,
    pub what: FileChange,
    #[serde(default)]
    pub encrypted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileChange {
    Written,
    Unchanged,
    Withdrawn,
    /// Not withdrawn, because others changed it.
    Left,
}

/// What an apply would do to a published file, as far as the plan shows. Contains no values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forecast {
    /// The name of the `facts` block.
    pub place: String,
    /// The path of a file, or `NAMESPACE/NAME` of a cluster object.
    pub path: String,
    pub change: ForecastChange,
    /// The kind of `sink`; none for a file on the branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sink: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForecastChange {
    New,
    Changed,
    Withdrawn,
    /// The project no longer names the branch or the object, so it is left unchanged.
    Left,
}

/// Why a file cannot be published. Names all fields, but no values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrepareFactsError {
    #[error("`{path}` is neither `.yaml` nor `.json`")]
    Format { path: String },
    #[error("`{}` is not a valid path for facts: {why}", .path.escape_debug())]
    Path { path: String, why: &'static str },
    #[error("the `path` of `publish \"{place}\"` would reveal a sensitive output")]
    SecretPath { place: String },
    #[error("`publish` of `{path}` has neither `values` nor `contract`")]
    Nothing { path: String },
    #[error(
        "`publish` of `{path}` has no `values`, and the contract `{contract}` names no outputs"
    )]
    NoFields {
        path: String,
        contract: ContractName,
    },
    #[error("`{path}` would reveal a secret as a field name{}", below(.fields))]
    SecretKeys { path: String, fields: Vec<String> },
    #[error("`{path}` would contain sensitive values in plain text: {}", list(.fields))]
    Sensitive { path: String, fields: Vec<String> },
    #[error("`{path}` would contain values that look like secrets: {}", list(.fields))]
    LooksSecret { path: String, fields: Vec<String> },
    #[error("cannot write a reference for {} of `{path}`: its value is derived from a sensitive output, not one itself", list(.fields))]
    Composed { path: String, fields: Vec<String> },
}

impl Explain for PrepareFactsError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Refused
    }

    fn next_steps(&self) -> Vec<NextStep> {
        vec![advice(match self {
            Self::Path { .. } => return Vec::new(),
            Self::Format { .. } => "choose a name that ends in `.yaml` or `.json`",
            Self::SecretPath { .. } => {
                "derive the file name and the keys of `for_each` from values that are not secret"
            }
            Self::Nothing { .. } => {
                "set `values = { … }`, or name a contract whose outputs are published"
            }
            Self::NoFields { .. } => {
                "set `values = { … }`, or list the outputs under `properties` of the contract"
            }
            Self::SecretKeys { .. } => {
                "names of fields are never encrypted: publish it as a value instead"
            }
            Self::Sensitive { .. } => {
                "remove them from `values`, or set `sensitive = \"encrypt\"` or `\"reference\"` in the `facts` block"
            }
            Self::LooksSecret { .. } => {
                "mark the output `sensitive`, encrypt the whole destination with `encrypt = \"all\"`, or list the field in `plain` of the `publish` block if it is not secret"
            }
            Self::Composed { .. } => {
                "publish the output on its own, or set `sensitive = \"encrypt\"`"
            }
        })]
    }
}

/// The locations, without the names themselves.
fn below(fields: &[String]) -> String {
    if fields.iter().all(String::is_empty) {
        return String::new();
    }
    format!(" below {}", list(fields))
}

fn list(fields: &[String]) -> String {
    let fields: Vec<String> = fields.iter().map(|field| format!("`{field}`")).collect();
    fields.join(", ")
}

/// Creates the file that a block publishes. `contract` is the one that it names.
pub fn prepare(
    publish: &Publish,
    stack: &str,
    contract: Option<&Contract>,
    outputs: Outputs<'_>,
    on_sensitive: SensitiveFacts,
    encrypt_all: bool,
) -> Result<FactFile, PrepareFactsError> {
    let path = publish.path.clone();
    if secrets::shows(&path, outputs) {
        let place = publish.place.clone();
        return Err(PrepareFactsError::SecretPath { place });
    }
    check_path(&path)?;
    let Some(format) = FactsFormat::of(&path) else {
        return Err(PrepareFactsError::Format { path });
    };
    let (mut values, hidden) = match (&publish.values, contract) {
        (Some(values), _) => {
            let hidden = secrets::sensitive_leaves(values, outputs, publish.holds_sensitive);
            (values.clone(), hidden)
        }
        (None, Some(contract)) => {
            let fields = contract.fields();
            if fields.is_empty() {
                let contract = contract.name.clone();
                return Err(PrepareFactsError::NoFields { path, contract });
            }
            let picked: Map<String, Value> = fields
                .into_iter()
                .filter_map(|name| Some((name.to_owned(), outputs.values.get(name)?.clone())))
                .collect();
            let hidden = secrets::leaves_of(&picked, outputs.sensitive);
            (picked, hidden)
        }
        (None, None) => return Err(PrepareFactsError::Nothing { path }),
    };
    let fields = secrets::secret_keys(&values, outputs, &publish.plain);
    if !fields.is_empty() {
        return Err(PrepareFactsError::SecretKeys { path, fields });
    }
    if !encrypt_all {
        let fields = secrets::look_secret(&values, &hidden, &publish.plain);
        if !fields.is_empty() {
            return Err(PrepareFactsError::LooksSecret { path, fields });
        }
    }
    let encrypt = if encrypt_all {
        Encrypt::All
    } else if hidden.is_empty() {
        Encrypt::Nothing
    } else {
        match on_sensitive {
            SensitiveFacts::Encrypt => Encrypt::Leaves(hidden.into_keys().collect()),
            SensitiveFacts::Refuse => {
                let fields = hidden.keys().map(|pointer| field_name(pointer)).collect();
                return Err(PrepareFactsError::Sensitive { path, fields });
            }
            SensitiveFacts::Reference => {
                let composed = hidden.iter().filter(|(_, origin)| origin.is_none());
                let fields: Vec<String> = composed.map(|(at, _)| field_name(at)).collect();
                if !fields.is_empty() {
                    return Err(PrepareFactsError::Composed { path, fields });
                }
                refer(&mut values, stack, &hidden);
                Encrypt::Nothing
            }
        }
    };
    Ok(FactFile {
        path,
        format,
        contract: publish.contract.clone(),
        values: canonical(values),
        encrypt,
    })
}

/// Replaces sensitive values with references, for readers with access to the state.
fn refer(values: &mut Map<String, Value>, stack: &str, hidden: &BTreeMap<String, Option<String>>) {
    let mut whole = Value::Object(std::mem::take(values));
    for (pointer, origin) in hidden {
        if let (Some(leaf), Some(origin)) = (whole.pointer_mut(pointer), origin) {
            *leaf = Value::String(format!("ref+terrane://{stack}/{origin}"));
        }
    }
    if let Value::Object(fields) = whole {
        *values = fields;
    }
}

fn check_path(path: &str) -> Result<(), PrepareFactsError> {
    match path_problem(path) {
        None => Ok(()),
        Some(why) => Err(PrepareFactsError::Path {
            path: path.to_owned(),
            why,
        }),
    }
}

/// Sorts keys at every depth. Nulls stay: a reader may distinguish them from missing keys.
pub fn canonical(fields: Map<String, Value>) -> Map<String, Value> {
    let sorted: BTreeMap<String, Value> = fields.into_iter().collect();
    sorted
        .into_iter()
        .map(|(key, value)| (key, canonical_value(value)))
        .collect()
}

fn canonical_value(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(canonical(fields)),
        Value::Array(items) => Value::Array(items.into_iter().map(canonical_value).collect()),
        other => other,
    }
}

/// The bytes of a file in clear text. YAML gets `header` as a comment.
pub fn render(format: FactsFormat, values: &Map<String, Value>, header: Option<&str>) -> Vec<u8> {
    let text = match format {
        FactsFormat::Yaml => {
            let header = header.map(|line| format!("# {line}\n")).unwrap_or_default();
            format!("{header}{}", yaml::document(values))
        }
        FactsFormat::Json => {
            let mut text = String::new();
            json(&mut text, &Value::Object(values.clone()), 0);
            text.push('\n');
            text
        }
    };
    text.into_bytes()
}

/// Like `serde_json` with two spaces, but numbers keep their digits.
fn json(text: &mut String, value: &Value, depth: usize) {
    let pad = |depth: usize| "  ".repeat(depth);
    match value {
        Value::Object(fields)
            if crate::base::exact_number::digits(value).is_none() && !fields.is_empty() =>
        {
            text.push('{');
            for (index, (key, value)) in fields.iter().enumerate() {
                text.push_str(if index == 0 { "\n" } else { ",\n" });
                text.push_str(&pad(depth + 1));
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push_str(": ");
                json(text, value, depth + 1);
            }
            text.push('\n');
            text.push_str(&pad(depth));
            text.push('}');
        }
        Value::Array(items) if !items.is_empty() => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                text.push_str(if index == 0 { "\n" } else { ",\n" });
                text.push_str(&pad(depth + 1));
                json(text, item, depth + 1);
            }
            text.push('\n');
            text.push_str(&pad(depth));
            text.push(']');
        }
        _ => text.push_str(&crate::base::exact_number::write(value)),
    }
}

/// `/a/b/0` in the usual notation.
fn field_name(pointer: &str) -> String {
    crate::stage::contract::field_name(pointer)
}
