//! What a change takes away from those who consume a stack's outputs or facts: a field that is gone, or one that is
//! of another kind than before. A value that changes, and a field that is new, take nothing away.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::planned::escape;
use super::{Contract, Planned, kind_of, with_article};

/// One field that offers less than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Narrowed {
    /// Its names from the outside in.
    pub path: Vec<String>,
    pub was: String,
    /// None: it is gone.
    pub now: Option<String>,
}

impl Narrowed {
    /// `azure.envoyPublicIpAddress`
    pub fn field(&self) -> String {
        self.path.join(".")
    }
}

impl fmt::Display for Narrowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = self.field();
        match &self.now {
            None => write!(f, "`{field}` is gone, was {}", self.was),
            Some(now) => write!(f, "`{field}` is {now}, was {}", self.was),
        }
    }
}

/// Compares values as they are with values as they are planned. What is unknown takes nothing away.
pub fn narrowed(before: &Map<String, Value>, after: &Planned) -> Vec<Narrowed> {
    let mut found = Vec::new();
    compare(
        before,
        &after.fields,
        "",
        after,
        &mut Vec::new(),
        &mut found,
    );
    found
}

fn compare(
    before: &Map<String, Value>,
    after: &Map<String, Value>,
    pointer: &str,
    planned: &Planned,
    path: &mut Vec<String>,
    found: &mut Vec<Narrowed>,
) {
    for (name, was) in before {
        let at = format!("{pointer}/{}", escape(name));
        if was.is_null() || planned.is_unknown(&at) {
            continue;
        }
        path.push(name.clone());
        let now = after.get(name).filter(|now| !now.is_null());
        match (was, now) {
            (_, None) => found.push(Narrowed {
                path: path.clone(),
                was: with_article(kind_of(was)),
                now: None,
            }),
            (was, Some(now)) if kind_of(was) != kind_of(now) => found.push(Narrowed {
                path: path.clone(),
                was: with_article(kind_of(was)),
                now: Some(with_article(kind_of(now))),
            }),
            (Value::Object(was), Some(Value::Object(now))) => {
                compare(was, now, &at, planned, path, found);
            }
            (_, Some(_)) => {}
        }
        path.pop();
    }
}

/// Compares two texts of a contract: fields that it no longer promises, kinds and options it did not allow before.
pub fn narrowed_schema(before: &Contract, after: &Contract) -> Vec<Narrowed> {
    let (old, new) = (promises(before), promises(after));
    let mut found: Vec<Narrowed> = Vec::new();
    for (path, was) in &old {
        // What is in a field that is gone is gone with it.
        let is_inside = found
            .iter()
            .any(|gone| gone.now.is_none() && path.starts_with(&gone.path));
        let now = match new.get(path) {
            _ if is_inside => continue,
            None => None,
            Some(now) if was.required && !now.required => Some("optional".to_owned()),
            Some(now) if !now.kinds.is_subset(&was.kinds) => Some(words(&now.kinds)),
            Some(_) => continue,
        };
        found.push(Narrowed {
            path: path.clone(),
            was: if was.required && now.as_deref() == Some("optional") {
                "required".to_owned()
            } else {
                words(&was.kinds)
            },
            now,
        });
    }
    found
}

struct Promise {
    required: bool,
    /// Kinds, or the very values where they are listed.
    kinds: BTreeSet<String>,
}

fn words(kinds: &BTreeSet<String>) -> String {
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    kinds.join(" or ")
}

fn promises(contract: &Contract) -> BTreeMap<Vec<String>, Promise> {
    let mut all = BTreeMap::new();
    collect(contract, &contract.schema, &mut Vec::new(), &mut all);
    all
}

/// Deeper than this no contract goes; a schema may refer to itself.
const DEEPEST: usize = 16;

fn collect(
    contract: &Contract,
    node: &Value,
    path: &mut Vec<String>,
    all: &mut BTreeMap<Vec<String>, Promise>,
) {
    let node = contract.resolve(node);
    if path.len() > DEEPEST {
        return;
    }
    let required: BTreeSet<&str> = list(node, "required")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let listed = node.get("properties").and_then(Value::as_object);
    let others = node.get("additionalProperties").filter(|it| it.is_object());
    let named = listed.into_iter().flatten();
    let named = named.map(|(name, inner)| (name.as_str(), inner));
    // Names that are only required have the schema of all others.
    let unnamed = required
        .iter()
        .filter(|name| listed.is_none_or(|listed| !listed.contains_key(**name)))
        .filter_map(|name| Some((*name, others?)));
    for (name, inner) in named.chain(unnamed).collect::<Vec<_>>() {
        path.push(name.to_owned());
        let promise = Promise {
            required: required.contains(name),
            kinds: kinds(contract.resolve(inner)),
        };
        all.insert(path.clone(), promise);
        collect(contract, inner, path, all);
        path.pop();
    }
}

fn kinds(node: &Value) -> BTreeSet<String> {
    let options = list(node, "enum");
    if !options.is_empty() {
        return options
            .iter()
            .map(|one| {
                format!(
                    "`{}`",
                    one.as_str().map_or_else(|| one.to_string(), str::to_owned)
                )
            })
            .collect();
    }
    match node.get("type") {
        Some(Value::String(kind)) => BTreeSet::from([with_article(kind)]),
        Some(Value::Array(kinds)) => kinds
            .iter()
            .filter_map(Value::as_str)
            .map(with_article)
            .collect(),
        Some(_) | None => BTreeSet::from(["any value".to_owned()]),
    }
}

fn list<'a>(node: &'a Value, name: &str) -> &'a [Value] {
    node.get(name)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}
