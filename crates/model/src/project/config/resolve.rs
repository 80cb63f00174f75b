//! Evaluates a block of a post-apply stage once the stack's outputs, its state and secrets are available.
//!
//! Not here: where they come from (`control`), what the block then does (`facts`, `bootstrap`, `gate`).

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::base::diagnostic::Location;
use crate::base::secret::Secret;
use crate::hcl::evaluator::{AllowedRefs, Bindings, Fetched, Host};
use crate::hcl::expression::ExternalQuery;
use crate::hcl::expression::{Expression, Input};
use crate::hcl::stored_expression::{EvaluateError, evaluate_as};
use crate::stage::{ResolvedBlock, StageBlock};

/// Provides the values.
pub trait StageValues {
    /// An output of the stack as just applied, and whether it is sensitive.
    fn output(&self, key: &str) -> Option<(Value, bool)>;
    /// The attributes of a resource in the stack's state, and whether any of them is sensitive.
    fn resource(&self, address: &str) -> Option<(Value, bool)>;
    /// The requester's environment.
    fn env(&self, name: &str) -> Option<String>;
    fn secret(&self, reference: &str) -> Option<Secret>;
    /// The result of an external query, if it was already made.
    fn answer(&self, ask: &ExternalQuery) -> Option<Value>;
}

/// Why a block has no values yet. It names what is missing and never contains a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// External queries to make before resolving again.
    #[error("{} must be queried first", asks.iter().map(ExternalQuery::to_string).collect::<Vec<_>>().join(", "))]
    Asks { asks: Vec<ExternalQuery> },
    #[error("`{attribute}` of `{block}` ({}:{}) has no value", at.file, at.line)]
    Value {
        block: String,
        attribute: String,
        at: Box<Location>,
        source: EvaluateError,
    },
    #[error("`for_each` of `{block}` ({}:{}) is neither an object nor a list of strings", at.file, at.line)]
    Each { block: String, at: Box<Location> },
    #[error(
        "`for_each` of `{block}` ({}:{}) uses a sensitive output or a secret, but its keys are visible to everyone", at.file, at.line
    )]
    SecretEach { block: String, at: Box<Location> },
}

/// The blocks that a block expands to: itself, or one per entry of its `for_each`.
pub fn resolve(
    block: &StageBlock,
    values: &dyn StageValues,
) -> Result<Vec<ResolvedBlock>, ResolveError> {
    let resolving = StageResolver {
        values,
        asks: RefCell::new(BTreeSet::new()),
    };
    let resolved = resolving.each(block);
    let asks = resolving.asks.into_inner();
    if asks.is_empty() {
        return resolved;
    }
    Err(ResolveError::Asks {
        asks: asks.into_iter().collect(),
    })
}

struct StageResolver<'a> {
    values: &'a dyn StageValues,
    asks: RefCell<BTreeSet<ExternalQuery>>,
}

impl StageResolver<'_> {
    fn each(&self, block: &StageBlock) -> Result<Vec<ResolvedBlock>, ResolveError> {
        let Some(each) = &block.for_each else {
            return Ok(vec![self.one(block, None)?]);
        };
        let (entries, is_sensitive) = self.value(block, "for_each", each, None)?;
        if is_sensitive {
            return Err(ResolveError::SecretEach {
                block: title(block),
                at: Box::new(block.at.clone()),
            });
        }
        let entries: Vec<(String, Value)> = match entries {
            Value::Object(entries) => entries.into_iter().collect(),
            Value::Array(items) => items
                .into_iter()
                .filter_map(|item| Some((item.as_str()?.to_owned(), item)))
                .collect(),
            _ => {
                return Err(ResolveError::Each {
                    block: title(block),
                    at: Box::new(block.at.clone()),
                });
            }
        };
        let mut resolved = Vec::new();
        for (key, value) in entries {
            let mut one = self.one(block, Some((&key, &value)))?;
            one.name = format!("{}-{key}", block.name);
            one.each = Some(key);
            resolved.push(one);
        }
        Ok(resolved)
    }

    fn one(
        &self,
        block: &StageBlock,
        each: Option<(&str, &Value)>,
    ) -> Result<ResolvedBlock, ResolveError> {
        let mut attrs = Map::new();
        let mut sensitive = BTreeSet::new();
        for (name, input) in &block.attrs {
            let (value, is_sensitive) = self.value(block, name, input, each)?;
            if is_sensitive {
                sensitive.insert(name.clone());
            }
            if !value.is_null() {
                attrs.insert(name.clone(), value);
            }
        }
        let blocks: Result<Vec<_>, _> = block
            .blocks
            .iter()
            .map(|inner| self.one(inner, each))
            .collect();
        Ok(ResolvedBlock {
            kind: block.kind.clone(),
            name: block.name.clone(),
            each: None,
            attrs,
            blocks: blocks?,
            sensitive,
            at: block.at.clone(),
        })
    }

    fn value(
        &self,
        block: &StageBlock,
        attribute: &str,
        input: &Input,
        each: Option<(&str, &Value)>,
    ) -> Result<(Value, bool), ResolveError> {
        let expression = match input {
            Input::Known(value) => return Ok((value.clone(), false)),
            Input::Expression(expression) => expression,
        };
        let mut names = expression.names.clone();
        if let Some((key, value)) = each {
            names.insert("each".to_owned(), json!({ "key": key, "value": value }));
        }
        let expression = Expression {
            names,
            ..expression.clone()
        };
        let host = StageHost {
            resolving: self,
            names: &expression.names,
        };
        match evaluate_as(&expression, AllowedRefs::Stage, &host, &Cell::new(0)) {
            Ok(evaluated) => Ok((evaluated.value, evaluated.sensitive)),
            // A query is needed first. The rest is evaluated to find further queries.
            Err(_) if !self.asks.borrow().is_empty() => Ok((Value::Null, false)),
            Err(source) => Err(ResolveError::Value {
                block: title(block),
                attribute: attribute.to_owned(),
                at: Box::new(block.at.clone()),
                source,
            }),
        }
    }
}

/// `dns wildcard`, or `publish runtime-facts`.
fn title(block: &StageBlock) -> String {
    format!("{} {}", block.kind, block.name).trim().to_owned()
}

struct StageHost<'a> {
    resolving: &'a StageResolver<'a>,
    names: &'a Bindings,
}

impl StageHost<'_> {
    fn given(found: Option<(Value, bool)>, missing: impl FnOnce() -> String) -> Fetched {
        match found {
            Some((value, sensitive)) => Fetched::Given { value, sensitive },
            None => Fetched::Missing(missing()),
        }
    }
}

impl Host for StageHost<'_> {
    fn env(&self, name: &str) -> Fetched {
        let found = self.resolving.values.env(name);
        Self::given(found.map(|value| (Value::String(value), false)), || {
            format!("`{name}` is not set in the environment")
        })
    }

    fn output(&self, stack: &str, key: &str) -> Fetched {
        Fetched::Missing(format!(
            "output `{key}` of stack `{stack}` cannot stand here"
        ))
    }

    fn secret(&self, reference: &str) -> Fetched {
        let found = self.resolving.values.secret(reference);
        let value = found.map(|secret| Value::String(secret.expose().to_owned()));
        Self::given(value.map(|value| (value, true)), || {
            format!("secret `{reference}` could not be had")
        })
    }

    fn own_output(&self, key: &str) -> Fetched {
        Self::given(self.resolving.values.output(key), || {
            // Engines do not store null outputs.
            format!("the stack has no output `{key}`, or it is null")
        })
    }

    fn resource(&self, address: &str) -> Fetched {
        Self::given(self.resolving.values.resource(address), || {
            format!("there is no resource `{address}` in the stack's state")
        })
    }

    fn ask(&self, ask: ExternalQuery) -> Fetched {
        if let Some(value) = self.resolving.values.answer(&ask) {
            Fetched::Given {
                value,
                sensitive: false,
            }
        } else {
            self.resolving.asks.borrow_mut().insert(ask);
            Fetched::Later
        }
    }

    fn file(&self, path: &str) -> Result<Option<String>, String> {
        crate::hcl::stored_expression::kept_file(self.names, path)
    }
}

#[cfg(test)]
mod tests;
