//! Determines which values of a preview are unknown only because an upstream stack has not been applied.
//!
//! A plan shows that a value is unknown, but not why. Its configuration section lists the references of each argument.
//! If all of them lead to unknown inputs, and none to results of the apply itself, the reason is certain. Everything
//! else stays `known after apply`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use crate::base::exact_number;
use crate::base::ids::StackName;
use crate::plan::{Plan, PlanValue};

/// What a rewritten module records about its own names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnknownOrigins {
    /// The address of the added resource.
    resource: String,
    locals: BTreeMap<String, Sources>,
}

/// Where an unknown value may come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sources {
    pub(super) stacks: BTreeSet<StackName>,
    /// Determined by this stack's own apply, or by something that could not be followed.
    pub(super) others: bool,
}

impl Sources {
    pub(super) fn of(stacks: BTreeSet<StackName>) -> Self {
        Self {
            stacks,
            others: false,
        }
    }

    pub(super) fn other() -> Self {
        Self {
            stacks: BTreeSet::new(),
            others: true,
        }
    }

    pub(super) fn add(&mut self, more: Self) {
        self.stacks.extend(more.stacks);
        self.others |= more.others;
    }

    /// The stacks after which it is known, if nothing else is needed.
    fn only_stacks(self) -> Option<PlanValue> {
        let certain = !self.others && !self.stacks.is_empty();
        certain.then(|| PlanValue::KnownAfter {
            stacks: self.stacks.into_iter().collect(),
        })
    }
}

impl UnknownOrigins {
    pub(super) fn new(resource: String, locals: BTreeMap<String, Sources>) -> Self {
        Self { resource, locals }
    }

    /// Converts the plan of a rewritten module to a plan of the original. The added resource is removed, and values
    /// that are unknown because of it name the stacks after which they are known. `json` is the plan's source.
    pub fn explain(&self, plan: &mut Plan, json: &[u8]) -> Result<(), serde_json::Error> {
        let raw: RawPlan = serde_json::from_slice(&exact_number::kept(json))?;
        let root = Scope {
            module: &raw.configuration.root_module,
            locals: Some(&self.locals),
            arguments: BTreeMap::new(),
        };
        plan.changes
            .retain(|change| change.address != self.resource);
        for change in &mut plan.changes {
            let modules = names(&change.module);
            let modules: Vec<&str> = modules
                .chunks(2)
                .filter_map(|pair| pair.get(1).copied())
                .collect();
            let own = change.address.strip_prefix(&change.module);
            let own = names(own.unwrap_or(&change.address).trim_start_matches('.'));
            for attribute in &mut change.attributes {
                if attribute.after == PlanValue::Unknown {
                    let steps = steps(&attribute.path);
                    let sources = root.attribute(&modules, &own, &steps);
                    attribute.after = sources.only_stacks().unwrap_or(PlanValue::Unknown);
                }
            }
        }
        for (name, output) in &mut plan.outputs {
            if output.after == PlanValue::Unknown {
                let sources = root.output(name);
                output.after = sources.only_stacks().unwrap_or(PlanValue::Unknown);
            }
        }
        Ok(())
    }
}

#[derive(Default, Deserialize)]
struct RawPlan {
    #[serde(default)]
    configuration: RawConfiguration,
}

#[derive(Default, Deserialize)]
struct RawConfiguration {
    #[serde(default)]
    root_module: RawModule,
}

#[derive(Default, Deserialize)]
struct RawModule {
    #[serde(default)]
    outputs: BTreeMap<String, RawOutput>,
    #[serde(default)]
    resources: Vec<RawResource>,
    #[serde(default)]
    module_calls: BTreeMap<String, RawCall>,
}

#[derive(Deserialize)]
struct RawOutput {
    #[serde(default)]
    expression: Value,
}

#[derive(Deserialize)]
struct RawResource {
    address: String,
    #[serde(default)]
    expressions: Value,
    #[serde(default)]
    for_each_expression: Value,
}

#[derive(Deserialize)]
struct RawCall {
    #[serde(default)]
    expressions: Value,
    #[serde(default)]
    for_each_expression: Value,
    #[serde(default)]
    module: RawModule,
}

/// A module, and what its names refer to.
struct Scope<'a> {
    module: &'a RawModule,
    /// Only available for the root module, since a plan does not describe locals.
    locals: Option<&'a BTreeMap<String, Sources>>,
    arguments: BTreeMap<&'a str, Sources>,
}

impl<'a> Scope<'a> {
    /// The sources of one attribute of a resource, in this module or in one that it calls.
    fn attribute(&self, modules: &[&str], resource: &[&str], path: &[AttributeSegment]) -> Sources {
        if let [first, rest @ ..] = modules {
            let inner = self.call(first);
            return inner.map_or_else(Sources::other, |inner| {
                inner.attribute(rest, resource, path)
            });
        }
        let address = resource.join(".");
        let found = self.module.resources.iter();
        let Some(found) = found.clone().find(|it| it.address == address) else {
            return Sources::other();
        };
        let each = self.expression(&found.for_each_expression, &Sources::default());
        let Some(AttributeSegment::Key(name)) = path.first() else {
            return Sources::other();
        };
        match found.expressions.get(name) {
            Some(written) => self.expression(descend(written, &path[1..]), &each),
            None => Sources::other(), // the provider sets it
        }
    }

    fn output(&self, name: &str) -> Sources {
        match self.module.outputs.get(name) {
            Some(output) => self.expression(&output.expression, &Sources::default()),
            None => Sources::other(),
        }
    }

    /// A called module, with its arguments.
    fn call(&self, name: &str) -> Option<Scope<'a>> {
        let call = self.module.module_calls.get(name)?;
        let each = self.expression(&call.for_each_expression, &Sources::default());
        let given = call.expressions.as_object().into_iter().flatten();
        Some(Scope {
            module: &call.module,
            locals: None,
            arguments: given
                .map(|(name, value)| (name.as_str(), self.expression(value, &each)))
                .collect(),
        })
    }

    /// All references in an expression or below it. `each` are the sources of `each`.
    fn expression(&self, value: &Value, each: &Sources) -> Sources {
        let mut sources = Sources::default();
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    match (name.as_str(), field) {
                        ("references", Value::Array(references)) => {
                            let references: Vec<&str> =
                                references.iter().filter_map(Value::as_str).collect();
                            // `module.net.id` is followed by `module.net`, which adds nothing.
                            let is_part = |whole: &str| {
                                let part = format!("{whole}.");
                                references.iter().any(|other| other.starts_with(&part))
                            };
                            for reference in references.iter().filter(|it| !is_part(it)) {
                                sources.add(self.reference(reference, each));
                            }
                        }
                        ("constant_value", _) => {}
                        _ => sources.add(self.expression(field, each)),
                    }
                }
            }
            Value::Array(items) => {
                for item in items {
                    sources.add(self.expression(item, each));
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        sources
    }

    fn reference(&self, reference: &str, each: &Sources) -> Sources {
        let parts = names(reference);
        match parts.as_slice() {
            ["var", name, ..] => self.arguments.get(name).cloned().unwrap_or_default(),
            ["local", name, ..] => match self.locals {
                Some(locals) => locals.get(*name).cloned().unwrap_or_else(Sources::other),
                None => Sources::other(),
            },
            ["each", ..] => each.clone(),
            ["path" | "terraform" | "tofu" | "count", ..] => Sources::default(),
            ["module", name, output, ..] => match self.call(name) {
                Some(inner) => inner.output(output),
                None => Sources::other(),
            },
            _ => Sources::other(),
        }
    }
}

/// A step into an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
enum AttributeSegment {
    Key(String),
    Index(usize),
}

/// Splits `rules[0].port` into steps: the inverse of a plan's path notation.
fn steps(path: &str) -> Vec<AttributeSegment> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let mut values = serde_json::Deserializer::from_str(inner).into_iter::<Value>();
            let step = values.next().and_then(Result::ok);
            let end = values.byte_offset();
            steps.push(match step {
                Some(Value::String(key)) => AttributeSegment::Key(key),
                Some(index) => {
                    let index = index.as_u64().and_then(|index| usize::try_from(index).ok());
                    AttributeSegment::Index(index.unwrap_or(usize::MAX))
                }
                None => return steps,
            });
            rest = inner.get(end..).unwrap_or_default();
            rest = rest.strip_prefix(']').unwrap_or_default();
        } else {
            let word = rest.strip_prefix('.').unwrap_or(rest);
            let end = word.find(['.', '[']).unwrap_or(word.len());
            steps.push(AttributeSegment::Key(word[..end].to_owned()));
            rest = &word[end..];
        }
    }
    steps
}

/// Descends into nested blocks as far as the configuration lists them. The rest is taken as a whole.
fn descend<'a>(written: &'a Value, path: &[AttributeSegment]) -> &'a Value {
    let mut at = written;
    for step in path {
        let inner = match (at, step) {
            (Value::Object(fields), AttributeSegment::Key(key))
                if !fields.contains_key("references") =>
            {
                fields.get(key)
            }
            (Value::Array(items), AttributeSegment::Index(index)) => items.get(*index),
            _ => None,
        };
        match inner {
            Some(inner) => at = inner,
            None => break,
        }
    }
    at
}

/// The names in an address or reference, without instance keys.
fn names(address: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = address;
    while !rest.is_empty() {
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        if end > 0 {
            words.push(&rest[..end]);
        }
        rest = &rest[end..];
        if let Some(inner) = rest.strip_prefix('[') {
            let mut values = serde_json::Deserializer::from_str(inner).into_iter::<Value>();
            values.next();
            let after = inner.get(values.byte_offset()..).unwrap_or_default();
            rest = after.strip_prefix(']').unwrap_or_default();
        }
        rest = rest.strip_prefix('.').unwrap_or(rest);
    }
    words
}
