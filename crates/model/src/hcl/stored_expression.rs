//! Evaluates a stored input once outputs, environment and secrets are available.
//!
//! Not here: where they come from (`control`), reading the file (`config`).

use std::cell::Cell;

use hcl_edit::expr::TraversalOperator;
use serde_json::Value;

use crate::base::ids::StackName;
use crate::base::secret::Secret;
use crate::hcl::evaluator::{AllowedRefs, Bindings, Evaluator, Fetched, Host, MAX_STEPS};
use crate::hcl::expression::ExternalQuery;
use crate::hcl::expression::{Expression, Input};
use crate::hcl::value::Val;

/// Provides the values that a stored expression needs.
pub trait Values {
    /// An output of a stack as last applied, and whether it is sensitive.
    fn output(&self, stack: &StackName, key: &str) -> Option<(Value, bool)>;
    /// The requester's environment.
    fn env(&self, name: &str) -> Option<String>;
    fn secret(&self, reference: &str) -> Option<Secret>;
}

/// Whether an expression is only a reference with a path: `stack.a.output.b[0].c`.
pub fn is_plain_reference(expression: &Expression) -> bool {
    let Ok(parsed) = hcl_edit::parser::parse_expr(&expression.text) else {
        return false;
    };
    let hcl_edit::expr::Expression::Traversal(traversal) = parsed else {
        return false;
    };
    let is_step = |operator: &TraversalOperator| match operator {
        TraversalOperator::GetAttr(_) | TraversalOperator::LegacyIndex(_) => true,
        TraversalOperator::Index(at) => at.as_str().is_some() || at.as_number().is_some(),
        TraversalOperator::AttrSplat(_) | TraversalOperator::FullSplat(_) => false,
    };
    let is_named = matches!(traversal.expr, hcl_edit::expr::Expression::Variable(_));
    let mut operators = traversal.operators.iter();
    is_named && operators.all(|operator| is_step(operator.value()))
}

/// A value, and whether it is sensitive.
#[derive(Clone, PartialEq)]
pub struct Evaluated {
    pub value: Value,
    pub sensitive: bool,
}

impl std::fmt::Debug for Evaluated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.sensitive {
            return f.write_str("[sensitive]");
        }
        write!(f, "{}", self.value)
    }
}

/// Why an expression has no value. It names what is missing and never contains a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvaluateError {
    #[error("{0}")]
    Missing(String),
    #[error("could not evaluate `{text}`: {why}")]
    Invalid { text: String, why: String },
}

/// Evaluates an input with the values that its `needs` list.
pub fn evaluate(input: &Input, values: &dyn Values) -> Result<Evaluated, EvaluateError> {
    evaluate_within(input, values, &Cell::new(0))
}

/// As `evaluate`, within a budget that many evaluations share.
pub(crate) fn evaluate_within(
    input: &Input,
    values: &dyn Values,
    steps: &Cell<usize>,
) -> Result<Evaluated, EvaluateError> {
    let expression = match input {
        Input::Known(value) => {
            return Ok(Evaluated {
                value: value.clone(),
                sensitive: false,
            });
        }
        Input::Expression(expression) => expression,
    };
    let host = ValuesHost {
        values,
        names: &expression.names,
    };
    // Which references are allowed was checked when the file was loaded.
    let refs = if expression.needs.secrets.is_empty() {
        AllowedRefs::Inputs
    } else {
        AllowedRefs::OwnSecrets
    };
    evaluate_as(expression, refs, &host, steps)
}

/// Evaluates a stored expression for a host.
pub(crate) fn evaluate_as(
    expression: &Expression,
    refs: AllowedRefs,
    host: &dyn Host,
    steps: &Cell<usize>,
) -> Result<Evaluated, EvaluateError> {
    let invalid = |why: String| EvaluateError::Invalid {
        text: expression.text.clone(),
        why,
    };
    steps.set(steps.get().saturating_add(expression.text.len() / 16));
    if steps.get() > MAX_STEPS {
        return Err(invalid("it costs too much to evaluate".to_owned()));
    }
    let parsed = hcl_edit::parser::parse_expr(&expression.text)
        .map_err(|err| invalid(err.message().to_owned()))?;
    let mut evaluator = Evaluator::new(&expression.names, refs, host, steps);
    let value = evaluator.eval(&parsed).map_err(|problem| {
        if problem.missing {
            EvaluateError::Missing(problem.message)
        } else if evaluator.seen.sensitive {
            invalid("it does not fit the values that were given".to_owned())
        } else {
            invalid(problem.message)
        }
    })?;
    let value = value
        .to_json()
        .ok_or_else(|| invalid("a part of it is not known".to_owned()))?;
    Ok(Evaluated {
        value,
        sensitive: evaluator.seen.sensitive,
    })
}

/// The strings of a list, each as far as it is known without external values.
pub fn known_words(input: &Input) -> Vec<Option<String>> {
    let expression = match input {
        Input::Known(Value::Array(items)) => {
            let text = |item: &Value| item.as_str().map(str::to_owned);
            return items.iter().map(text).collect();
        }
        Input::Known(_) => return Vec::new(),
        Input::Expression(expression) => expression,
    };
    let Ok(parsed) = hcl_edit::parser::parse_expr(&expression.text) else {
        return Vec::new();
    };
    let (steps, names) = (Cell::new(0), &expression.names);
    let host = EmptyHost { names };
    // Which references are allowed was checked when the file was loaded.
    let eval = |expr| Evaluator::new(names, AllowedRefs::Stage, &host, &steps).eval(expr);
    // An unknown element does not affect the others.
    let values: Vec<Val> = match &parsed {
        hcl_edit::expr::Expression::Array(items) => {
            let items = items.iter().map(eval);
            items.map(|item| item.unwrap_or(Val::Unknown)).collect()
        }
        whole => match eval(whole) {
            Ok(Val::List(items)) => items,
            Ok(_) | Err(_) => Vec::new(),
        },
    };
    let text = |value| match value {
        Val::Text(text) => Some(text),
        _ => None,
    };
    values.into_iter().map(text).collect()
}

struct ValuesHost<'a> {
    values: &'a dyn Values,
    names: &'a Bindings,
}

impl Host for ValuesHost<'_> {
    fn env(&self, name: &str) -> Fetched {
        match self.values.env(name) {
            Some(value) => Fetched::Given {
                value: Value::String(value),
                sensitive: false,
            },
            None => Fetched::Missing(format!("`{name}` is not set in the environment")),
        }
    }

    fn output(&self, stack: &str, key: &str) -> Fetched {
        let name: Option<StackName> = stack.parse().ok();
        match name.and_then(|name| self.values.output(&name, key)) {
            Some((value, sensitive)) => Fetched::Given { value, sensitive },
            None => Fetched::Missing(format!("output `{key}` of stack `{stack}` is not known")),
        }
    }

    fn secret(&self, reference: &str) -> Fetched {
        match self.values.secret(reference) {
            Some(secret) => Fetched::Given {
                value: Value::String(secret.expose().to_owned()),
                sensitive: true,
            },
            None => Fetched::Missing(format!("secret `{reference}` could not be had")),
        }
    }

    fn own_output(&self, key: &str) -> Fetched {
        Fetched::Missing(format!("output `{key}` is known only after the apply"))
    }

    fn resource(&self, address: &str) -> Fetched {
        Fetched::Missing(format!(
            "resource `{address}` is known only after the apply"
        ))
    }

    fn ask(&self, ask: ExternalQuery) -> Fetched {
        Fetched::Missing(format!("`{ask}` is known only after the apply"))
    }

    fn file(&self, path: &str) -> Result<Option<String>, String> {
        kept_file(self.names, path)
    }
}

/// A host without any external values.
struct EmptyHost<'a> {
    names: &'a Bindings,
}

impl Host for EmptyHost<'_> {
    fn env(&self, _: &str) -> Fetched {
        Fetched::Later
    }

    fn output(&self, _: &str, _: &str) -> Fetched {
        Fetched::Later
    }

    fn secret(&self, _: &str) -> Fetched {
        Fetched::Later
    }

    fn own_output(&self, _: &str) -> Fetched {
        Fetched::Later
    }

    fn resource(&self, _: &str) -> Fetched {
        Fetched::Later
    }

    fn ask(&self, _: ExternalQuery) -> Fetched {
        Fetched::Later
    }

    fn file(&self, path: &str) -> Result<Option<String>, String> {
        kept_file(self.names, path)
    }
}

/// Files were read with the project file and are stored with the expression.
pub(crate) fn kept_file(names: &Bindings, path: &str) -> Result<Option<String>, String> {
    match names.get("file").and_then(|files| files.get(path)) {
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Ok(None),
        None => Err("it was not read with the project file".to_owned()),
    }
}
