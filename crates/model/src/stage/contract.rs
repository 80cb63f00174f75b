//! A contract: a versioned JSON Schema for a stack's outputs, on which their consumers rely.
//!
//! `cluster/v1` is built in; a project's own contracts are in `contracts/NAME/vN.json`. All problems are reported at
//! once, each with the field, its value and the expectation, but never with a sensitive value.
//!
//! Not here: readers of published facts (`fact_readers`), reading contract files (`control::project::contracts`).

mod mapping;
mod narrowing;
mod planned;
mod reference;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{Draft, ValidationError, Validator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::hcl::expression::Input;
use crate::stage::StageBlock;

pub use mapping::{MappedField, declared_fields, mapped};
pub use narrowing::{NarrowedField, is_manifest, narrowed, narrowed_manifest};
pub use planned::{PlannedFields, planned};

/// The directory of a project's own contracts, relative to its root.
pub const OWN_CONTRACTS: &str = "contracts";

/// The contract that a `publish` block names literally.
pub fn of_block(block: &StageBlock) -> Option<ContractName> {
    match block.attrs.get("contract")? {
        Input::Known(Value::String(name)) => name.parse().ok(),
        Input::Known(_) | Input::Expression(_) => None,
    }
}

/// `cluster/v1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContractName {
    name: String,
    version: u32,
}

#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not the name of a contract such as `cluster/v1`")]
pub struct InvalidContractName(String);

impl ContractName {
    /// The file of a project's own contract.
    pub fn path(&self) -> String {
        format!("{OWN_CONTRACTS}/{}/v{}.json", self.name, self.version)
    }
}

impl FromStr for ContractName {
    type Err = InvalidContractName;

    fn from_str(raw: &str) -> Result<Self, Self::Err> {
        let parts = raw.split_once("/v").filter(|(name, version)| {
            crate::base::ids::check_name(name).is_ok() && !version.starts_with('0')
        });
        let parsed = parts.and_then(|(name, version)| {
            Some(Self {
                name: name.to_owned(),
                version: version.parse().ok()?,
            })
        });
        parsed.ok_or_else(|| InvalidContractName(raw.to_owned()))
    }
}

impl fmt::Display for ContractName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/v{}", self.name, self.version)
    }
}

impl TryFrom<String> for ContractName {
    type Error = InvalidContractName;

    fn try_from(raw: String) -> Result<Self, Self::Error> {
        raw.parse()
    }
}

impl From<ContractName> for String {
    fn from(name: ContractName) -> Self {
        name.to_string()
    }
}

const CLUSTER_V1: &str = include_str!("contract/cluster_v1.json");

/// A compiled schema.
#[derive(Clone, Debug)]
pub struct Contract {
    pub name: ContractName,
    pub schema: Value,
    validator: Validator,
}

#[derive(Debug, thiserror::Error)]
pub enum ReadContractError {
    #[error("the contract `{name}` is not JSON: {source} of `{}`", .name.path())]
    NotJson {
        name: ContractName,
        source: serde_json::Error,
    },
    #[error("the contract `{name}` refers to `{target}`: a contract may only refer to itself")]
    LeadsOut { name: ContractName, target: String },
    #[error("the contract `{name}` is not a JSON Schema: {why}")]
    NotSchema { name: ContractName, why: String },
}

/// A violation of a contract.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContractViolation {
    /// `env_gateway_public_addresses.prod`
    pub field: String,
    /// The actual value; `missing` if there is none.
    pub found: String,
    pub expected: String,
}

impl fmt::Display for ContractViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            field,
            found,
            expected,
        } = self;
        write!(f, "`{field}` is {found}, expected {expected}")
    }
}

impl Contract {
    /// A contract that is built in.
    pub fn shipped(name: &ContractName) -> Option<Self> {
        let text = match (name.name.as_str(), name.version) {
            ("cluster", 1) => CLUSTER_V1,
            _ => return None,
        };
        Self::read(name.clone(), text).ok()
    }

    /// Reads a project's own contract. References to other documents are not followed.
    pub fn read(name: ContractName, text: &str) -> Result<Self, ReadContractError> {
        let schema: Value = match serde_json::from_str(text) {
            Ok(schema) => schema,
            Err(source) => return Err(ReadContractError::NotJson { name, source }),
        };
        let built = jsonschema::options()
            .with_draft(Draft::Draft202012)
            .should_validate_formats(true)
            .with_format("address", is_address)
            .build(&schema)
            .map_err(|err| err.to_string());
        match built {
            Ok(validator) if schema.is_object() => Ok(Self {
                name,
                schema,
                validator,
            }),
            Ok(_) => Err(ReadContractError::NotSchema {
                name,
                why: "it is not an object".to_owned(),
            }),
            Err(why) => Err(match leads_out(&schema) {
                Some(target) => ReadContractError::LeadsOut {
                    name,
                    target: target.to_owned(),
                },
                None => ReadContractError::NotSchema { name, why },
            }),
        }
    }

    /// The outputs that it mentions anywhere.
    pub fn fields(&self) -> Vec<&str> {
        let single = ["then", "else"];
        let parts = self.parts(&["allOf", "anyOf", "oneOf", "dependentSchemas"], &single);
        let named = parts.into_iter().flat_map(|part| {
            let properties = part.get("properties").and_then(Value::as_object);
            let properties = properties.into_iter().flat_map(Map::keys);
            let dependent = part.get("dependentRequired").and_then(Value::as_object);
            let dependent = dependent.into_iter().flat_map(Map::values);
            let dependent = dependent.filter_map(Value::as_array).flatten();
            properties
                .map(String::as_str)
                .chain(required(part))
                .chain(dependent.filter_map(Value::as_str))
        });
        once_each(named)
    }

    /// The required outputs.
    pub fn required(&self) -> Vec<&str> {
        let parts = self.parts(&["allOf"], &[]).into_iter();
        once_each(parts.flat_map(required))
    }

    /// The schema and the parts that it is composed of: under the given list and single keywords, and through
    /// references.
    fn parts(&self, lists: &[&str], single: &[&str]) -> Vec<&Value> {
        let mut parts: Vec<&Value> = Vec::new();
        let mut rest = vec![&self.schema];
        while let Some(part) = rest.pop() {
            if parts.iter().any(|known| std::ptr::eq(*known, part)) {
                continue;
            }
            parts.push(part);
            rest.push(self.resolve(part));
            for several in lists.iter().filter_map(|word| part.get(*word)) {
                rest.extend(several.as_array().into_iter().flatten());
                rest.extend(several.as_object().into_iter().flat_map(Map::values));
            }
            rest.extend(single.iter().filter_map(|word| part.get(*word)));
        }
        parts
    }

    /// Checks actual outputs. `partial` names fields that may be missing, `sensitive` names outputs whose values must
    /// not be shown. A null output counts as missing, since engines do not store it.
    pub fn check(
        &self,
        outputs: &Map<String, Value>,
        partial: &[String],
        sensitive: &BTreeSet<String>,
    ) -> Vec<ContractViolation> {
        let known = PlannedFields::known(outputs.clone());
        self.check_planned(&known, partial, sensitive)
    }

    /// Checks planned outputs. Unknown values are assumed to be valid.
    pub fn check_planned(
        &self,
        outputs: &PlannedFields,
        partial: &[String],
        sensitive: &BTreeSet<String>,
    ) -> Vec<ContractViolation> {
        let mut values = Value::Object(outputs.fields.clone());
        self.drop_nulls(&mut values, outputs);
        let mut problems = Vec::new();
        for error in self.validator.iter_errors(&values) {
            let at = error.instance_path().as_str();
            if outputs.decides(at, &error) {
                continue;
            }
            let problem = self.problem(&error, sensitive);
            let may_be_missing = problem.found == MISSING
                && partial
                    .iter()
                    .any(|name| covers(name.as_str(), &problem.field));
            if !may_be_missing && !problems.contains(&problem) {
                problems.push(problem);
            }
        }
        problems.sort_by(|a, b| a.field.cmp(&b.field));
        problems
    }

    /// A null field counts as missing, like a null output, since an engine's objects have all their fields. Except
    /// where the contract allows null.
    fn drop_nulls(&self, values: &mut Value, outputs: &PlannedFields) {
        loop {
            let mut nulls = BTreeSet::new();
            for error in self.validator.iter_errors(values) {
                let at = error.instance_path().as_str();
                if !outputs.decides(at, &error) {
                    let inside = values.pointer(at).unwrap_or(&Value::Null);
                    collect_nulls(inside, at, &mut nulls);
                }
            }
            let is_known = |at: &&String| !outputs.is_unknown(at);
            let nulls = nulls.iter().filter(is_known);
            let dropped = nulls.filter(|at| drop_field(values, at)).count();
            if dropped == 0 {
                return;
            }
        }
    }

    fn problem(
        &self,
        error: &ValidationError<'_>,
        sensitive: &BTreeSet<String>,
    ) -> ContractViolation {
        let pointer = error.instance_path().as_str();
        let is_secret = pointer
            .split('/')
            .nth(1)
            .is_some_and(|top| sensitive.contains(&unescape(top)));
        let field = if is_secret {
            field_name(&self.without_keys(pointer))
        } else {
            field_name(pointer)
        };
        let node = error.schema_path().as_str().rsplit_once('/');
        let node = node.and_then(|(node, _)| self.schema.pointer(node));
        if let ValidationErrorKind::Required { property } = error.kind() {
            let property = property.as_str().unwrap_or_default();
            let wanted = node.and_then(|node| self.property(node, property));
            return ContractViolation {
                field: join(&field, property),
                found: MISSING.to_owned(),
                expected: wanted.map_or_else(
                    || "a value".to_owned(),
                    |wanted| self.expected(wanted, None),
                ),
            };
        }
        if let ValidationErrorKind::AdditionalProperties { unexpected } = error.kind() {
            let name = unexpected.first();
            let name = name.map(|name| if is_secret { HIDDEN } else { name });
            let field = name.map_or(field.clone(), |name| join(&field, name));
            return ContractViolation {
                field,
                found: "there".to_owned(),
                expected: "no such field".to_owned(),
            };
        }
        let expected = node.map_or_else(
            || plain_words(error.kind()),
            |node| self.expected(node, Some(error.kind())),
        );
        ContractViolation {
            field: if field.is_empty() {
                "outputs".to_owned()
            } else {
                field
            },
            found: describe(error.instance(), is_secret),
            expected,
        }
    }

    /// The location of a sensitive value, without keys that the contract does not name.
    fn without_keys(&self, pointer: &str) -> String {
        let parts = pointer.split('/').enumerate().map(|(depth, part)| {
            let is_index = part.bytes().all(|byte| byte.is_ascii_digit());
            if depth < 2 || is_index || names_property(&self.schema, &unescape(part)) {
                part
            } else {
                HIDDEN
            }
        });
        parts.collect::<Vec<_>>().join("/")
    }

    /// The schema of one property of an object's schema.
    fn property<'a>(&'a self, node: &'a Value, name: &str) -> Option<&'a Value> {
        let own = node.get("properties").and_then(|them| them.get(name));
        let wanted = own.or_else(|| node.get("additionalProperties"))?;
        Some(self.resolve(wanted))
    }

    /// Follows a reference inside the schema.
    fn resolve<'a>(&'a self, node: &'a Value) -> &'a Value {
        reference::referred(&self.schema, node).unwrap_or(node)
    }

    /// What a part of the schema requires, as text.
    fn expected(&self, node: &Value, failed: Option<&ValidationErrorKind>) -> String {
        let node = self.resolve(node);
        if let Some(options) = node.get("enum").and_then(Value::as_array) {
            let options: Vec<String> = options.iter().map(shown).collect();
            return format!("one of {}", options.join(", "));
        }
        if let Some(words) = node.get("description").and_then(Value::as_str) {
            return words.to_owned();
        }
        if let Some(kind) = failed {
            return plain_words(kind);
        }
        match node.get("type") {
            Some(Value::String(kind)) => with_article(kind),
            Some(Value::Array(kinds)) => {
                let kinds: Vec<String> = kinds
                    .iter()
                    .filter_map(Value::as_str)
                    .map(with_article)
                    .collect();
                kinds.join(" or ")
            }
            Some(_) | None => "a value".to_owned(),
        }
    }
}

const MISSING: &str = "missing";
/// Replaces a key of a sensitive value.
const HIDDEN: &str = "(sensitive)";

fn once_each<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = BTreeSet::new();
    names.filter(|name| seen.insert(*name)).collect()
}

fn required(part: &Value) -> impl Iterator<Item = &str> {
    let names = part.get("required").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str)
}

/// Whether a schema contains a property of that name at any depth.
fn names_property(schema: &Value, name: &str) -> bool {
    match schema {
        Value::Object(fields) => {
            let properties = fields.get("properties");
            properties.is_some_and(|them| them.get(name).is_some())
                || fields.values().any(|field| names_property(field, name))
        }
        Value::Array(items) => items.iter().any(|item| names_property(item, name)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn collect_nulls(value: &Value, at: &str, nulls: &mut BTreeSet<String>) {
    match value {
        Value::Null => {
            nulls.insert(at.to_owned());
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                collect_nulls(value, &format!("{at}/{}", escape(name)), nulls);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                collect_nulls(value, &format!("{at}/{index}"), nulls);
            }
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Removes a field and returns whether it existed. List elements are not fields.
fn drop_field(values: &mut Value, at: &str) -> bool {
    let Some((above, name)) = at.rsplit_once('/') else {
        return false;
    };
    let above = values.pointer_mut(above).and_then(Value::as_object_mut);
    above.is_some_and(|fields| fields.shift_remove(&unescape(name)).is_some())
}

/// A reference to something outside the schema.
fn leads_out(schema: &Value) -> Option<&str> {
    match schema {
        Value::Object(fields) => {
            let target = fields.get("$ref").and_then(Value::as_str);
            let target = target.filter(|target| !target.starts_with('#'));
            target.or_else(|| fields.values().find_map(leads_out))
        }
        Value::Array(items) => items.iter().find_map(leads_out),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Whether `partial` allows `field` to be missing, directly or through a parent.
fn covers(partial: &str, field: &str) -> bool {
    field
        .strip_prefix(partial)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// An IP address or a host name. A name whose last part is a number is a mistyped address.
fn is_address(text: &str) -> bool {
    if text.parse::<IpAddr>().is_ok() {
        return true;
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    name.len() <= 253
        && name.split('.').all(is_label)
        && !last.bytes().all(|byte| byte.is_ascii_digit())
}

/// Describes a value, without the value itself if it is sensitive.
fn describe(value: &Value, is_secret: bool) -> String {
    let exact = crate::base::exact_number::digits(value);
    match value {
        Value::Null => "null".to_owned(),
        Value::Object(_) if exact.is_some() => "a number".to_owned(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) if is_secret => {
            format!("{} (sensitive)", with_article(kind_of(value)))
        }
        Value::Bool(_) | Value::Number(_) => {
            format!("{} ({})", with_article(kind_of(value)), shown(value))
        }
        Value::String(text) if text.is_empty() => "an empty text".to_owned(),
        Value::String(text) if text.len() > 80 => {
            format!("a text of {} characters", text.chars().count())
        }
        Value::String(_) => format!("the text {}", shown(value)),
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Object(fields) if fields.is_empty() => "an empty object".to_owned(),
        // Keys are part of a value and may be secret too.
        Value::Object(_) if is_secret => "an object (sensitive)".to_owned(),
        Value::Object(fields) => {
            let names: Vec<String> = fields.keys().map(|name| quoted(name)).collect();
            format!("an object with {}", names.join(", "))
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        other => format!("`{other}`"),
    }
}

/// Always on one line.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("`");
    for c in text.chars() {
        if c.is_control() {
            quoted.extend(c.escape_default());
        } else {
            quoted.push(c);
        }
    }
    quoted.push('`');
    quoted
}

/// JSON Schema's names for types.
pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) if crate::base::exact_number::digits(value).is_some() => "number",
        Value::Object(_) => "object",
    }
}

fn with_article(kind: &str) -> String {
    match kind {
        "string" => "a text".to_owned(),
        "array" => "a list".to_owned(),
        "object" => "an object".to_owned(),
        "integer" => "a whole number".to_owned(),
        "boolean" => "true or false".to_owned(),
        "null" => "null".to_owned(),
        other => format!("a {other}"),
    }
}

/// For schemas without descriptions.
fn plain_words(kind: &ValidationErrorKind) -> String {
    match kind {
        ValidationErrorKind::Type { kind } => match kind {
            TypeKind::Single(one) => with_article(&one.to_string()),
            TypeKind::Multiple(several) => {
                let several: Vec<String> = several
                    .iter()
                    .map(|one| with_article(&one.to_string()))
                    .collect();
                several.join(" or ")
            }
        },
        ValidationErrorKind::Format { format } => format!("the format `{format}`"),
        ValidationErrorKind::Pattern { pattern } => format!("a match of `{pattern}`"),
        ValidationErrorKind::MinLength { limit } => format!("at least {limit} characters"),
        ValidationErrorKind::MaxLength { limit } => format!("at most {limit} characters"),
        ValidationErrorKind::MinItems { limit } | ValidationErrorKind::MinProperties { limit } => {
            format!("at least {limit} entries")
        }
        ValidationErrorKind::MaxItems { limit } | ValidationErrorKind::MaxProperties { limit } => {
            format!("at most {limit} entries")
        }
        ValidationErrorKind::Minimum { limit } => format!("at least {limit}"),
        ValidationErrorKind::Maximum { limit } => format!("at most {limit}"),
        ValidationErrorKind::ExclusiveMinimum { limit } => format!("more than {limit}"),
        ValidationErrorKind::ExclusiveMaximum { limit } => format!("less than {limit}"),
        ValidationErrorKind::Constant { expected_value } => shown(expected_value),
        other => format!("what `{}` of the contract says", other.keyword()),
    }
}

fn join(field: &str, name: &str) -> String {
    if field.is_empty() {
        name.to_owned()
    } else {
        format!("{field}.{name}")
    }
}

/// `/a/b/0` in the usual notation: `a.b[0]`.
pub(crate) fn field_name(pointer: &str) -> String {
    let mut name = String::new();
    for part in pointer.split('/').skip(1) {
        let part = unescape(part);
        if !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) {
            name = format!("{name}[{part}]");
        } else {
            name = join(&name, &part);
        }
    }
    name
}

fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn unescape(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}
