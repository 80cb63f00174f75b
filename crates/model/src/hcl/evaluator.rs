//! Evaluates expressions of the project file and collects their references.
//!
//! Used twice: while the file is loaded, when outputs and secrets are unknown and only collected, and later for a run,
//! when they are available. Not here: references (`references`), templates (`templates`), functions (`functions`),
//! arithmetic (`operators`).

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use hcl_edit::Span;
use hcl_edit::expr::{
    BinaryOperator, Conditional, Expression, ForExpr, FuncCall, Object, ObjectKey, UnaryOperator,
};
use serde_json::Value;

use crate::hcl::expression::ExternalQuery;
use crate::hcl::operators;
use crate::hcl::value::Val;

/// Deeper expressions are refused. The parser's own limits are lower, except for chains of operators.
const MAX_DEPTH: usize = 200;
/// The budget for all expressions of one load.
pub(crate) const MAX_STEPS: usize = 4_000_000;

/// Names that are bound for an expression: `each`, `project`, `target`, `stack`, `git`, `dir`.
pub(crate) type Bindings = BTreeMap<String, Value>;

pub(crate) const ROOTS: [&str; 9] = [
    "each", "dir", "project", "target", "stack", "git", "output", "resource", "fact",
];

/// Provides values that are not in the text.
pub(crate) trait Host {
    fn env(&self, name: &str) -> Fetched;
    fn output(&self, stack: &str, key: &str) -> Fetched;
    fn secret(&self, reference: &str) -> Fetched;
    /// An output of the stack itself, after its apply.
    fn own_output(&self, key: &str) -> Fetched;
    /// The attributes of a resource in the stack's state.
    fn resource(&self, address: &str) -> Fetched;
    fn ask(&self, ask: ExternalQuery) -> Fetched;
    /// A file of the project, by its path relative to the root.
    fn file(&self, path: &str) -> Result<Option<String>, String>;
}

pub(crate) enum Fetched {
    Given {
        value: Value,
        sensitive: bool,
    },
    /// Not available yet.
    Later,
    /// Names what is missing and never contains a value.
    Missing(String),
}

/// What an expression may refer to, besides names and `env()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllowedRefs {
    /// Nothing else. Evaluated during loading.
    Load,
    /// Nothing else: an object key, evaluated during loading.
    Key,
    /// Nothing else. Evaluated later.
    Later,
    /// `stack.NAME.output.KEY`.
    Inputs,
    /// `stack.NAME`.
    After,
    /// `secret("REF")`.
    Secrets,
    /// `output.KEY`, `resource["ADDRESS"].ATTR`.
    Own,
    /// As `Own`, and `secret()`.
    OwnSecrets,
    /// As `OwnSecrets`, and `fact.NAME["PATH"].KEY`, `dns()`, `kubernetes()`.
    Gate,
    /// Everything that post-apply stages may use. Which references are allowed was checked during loading.
    Stage,
}

impl AllowedRefs {
    /// Whether `env()` is evaluated by the stage that needs it.
    pub(crate) fn is_later(self) -> bool {
        !matches!(self, Self::Load | Self::Key | Self::After)
    }

    pub(crate) fn allows_own(self) -> bool {
        matches!(
            self,
            Self::Own | Self::OwnSecrets | Self::Gate | Self::Stage
        )
    }

    pub(crate) fn allows_secrets(self) -> bool {
        matches!(
            self,
            Self::Secrets | Self::OwnSecrets | Self::Gate | Self::Stage
        )
    }

    pub(crate) fn allows_asking(self) -> bool {
        matches!(self, Self::Gate | Self::Stage)
    }
}

/// An error in an expression, and its position.
#[derive(Clone, Debug)]
pub(crate) struct ExpressionError {
    pub(crate) code: &'static str,
    pub(crate) span: Range<usize>,
    pub(crate) message: String,
    pub(crate) label: String,
    pub(crate) hint: Option<String>,
    /// Something is missing, as opposed to invalid.
    pub(crate) missing: bool,
}

impl ExpressionError {
    pub(crate) fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Self {
            code: "invalid-expression",
            span,
            message: message.into(),
            label: "here".to_owned(),
            hint: None,
            missing: false,
        }
    }

    pub(crate) fn missing(span: Range<usize>, message: impl Into<String>) -> Self {
        Self {
            code: "missing-value",
            missing: true,
            ..Self::new(span, message)
        }
    }

    pub(crate) fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    pub(crate) fn hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint;
        self
    }
}

/// The references that an evaluation found.
#[derive(Clone, Debug, Default)]
pub(crate) struct CollectedRefs {
    pub(crate) outputs: Vec<(String, String, Range<usize>)>,
    pub(crate) own_outputs: Vec<(String, Range<usize>)>,
    pub(crate) facts: Vec<(String, Range<usize>)>,
    /// Fact files that are read: place and path.
    pub(crate) fact_files: Vec<(String, String, Range<usize>)>,
    pub(crate) stacks: Vec<(String, Range<usize>)>,
    pub(crate) env: BTreeSet<String>,
    /// Variables that have a fallback.
    pub(crate) env_if_set: BTreeSet<String>,
    pub(crate) secrets: Vec<(String, Range<usize>)>,
    /// The root, and the attribute if a plain one follows.
    pub(crate) names: BTreeSet<(String, Option<String>)>,
    /// Files that were read, with their text; `None` for files that do not exist.
    pub(crate) files: BTreeMap<String, Option<String>>,
    pub(crate) sensitive: bool,
}

impl CollectedRefs {
    pub(crate) fn extend(&mut self, other: &Self) {
        self.outputs.extend_from_slice(&other.outputs);
        self.own_outputs.extend_from_slice(&other.own_outputs);
        self.facts.extend_from_slice(&other.facts);
        self.fact_files.extend_from_slice(&other.fact_files);
        self.stacks.extend_from_slice(&other.stacks);
        self.env.extend(other.env.iter().cloned());
        self.env_if_set.extend(other.env_if_set.iter().cloned());
        self.secrets.extend_from_slice(&other.secrets);
        self.names.extend(other.names.iter().cloned());
        let files = other.files.iter();
        self.files
            .extend(files.map(|(path, text)| (path.clone(), text.clone())));
        self.sensitive |= other.sensitive;
    }
}

pub(crate) struct Evaluator<'a> {
    pub(crate) names: &'a Bindings,
    pub(crate) refs: AllowedRefs,
    pub(crate) host: &'a dyn Host,
    /// Whether `stack.name` and `target.name` may be bound later.
    pub(crate) late_names: bool,
    pub(crate) steps: &'a Cell<usize>,
    pub(crate) seen: CollectedRefs,
    pub(crate) locals: Vec<(String, Val)>,
    depth: usize,
}

pub(crate) type Evaluation = Result<Val, ExpressionError>;

impl<'a> Evaluator<'a> {
    pub(crate) fn new(
        names: &'a Bindings,
        refs: AllowedRefs,
        host: &'a dyn Host,
        steps: &'a Cell<usize>,
    ) -> Self {
        Self {
            names,
            refs,
            host,
            late_names: false,
            steps,
            seen: CollectedRefs::default(),
            locals: Vec::new(),
            depth: 0,
        }
    }

    pub(crate) fn eval(&mut self, expr: &Expression) -> Evaluation {
        self.step(1, expr)?;
        if self.depth >= MAX_DEPTH {
            return Err(ExpressionError::new(
                span(expr),
                "this expression is nested too deeply",
            ));
        }
        self.depth += 1;
        let result = self.eval_inner(expr);
        self.depth -= 1;
        result
    }

    /// Adds the cost of the next operation.
    pub(crate) fn step(&self, cost: usize, expr: &Expression) -> Result<(), ExpressionError> {
        let total = self.steps.get().saturating_add(cost);
        self.steps.set(total);
        if total > MAX_STEPS {
            return Err(ExpressionError::new(
                span(expr),
                "the expressions of this project cost too much to evaluate",
            ));
        }
        Ok(())
    }

    fn eval_inner(&mut self, expr: &Expression) -> Evaluation {
        match expr {
            Expression::Null(_) => Ok(Val::Null),
            Expression::Bool(value) => Ok(Val::Bool(*value.value())),
            Expression::Number(number) => operators::number(number, span(expr)),
            Expression::String(text) => {
                self.step(text.len() / 16, expr)?;
                Ok(Val::text(text.as_str()))
            }
            Expression::Array(array) => {
                let items: Result<Vec<Val>, ExpressionError> =
                    array.iter().map(|item| self.eval(item)).collect();
                Ok(Val::List(items?))
            }
            Expression::Object(object) => self.object(object),
            Expression::StringTemplate(template) => self.template(template, expr),
            Expression::HeredocTemplate(heredoc) => self.template(&heredoc.template, expr),
            Expression::Parenthesis(inner) => self.eval(inner.inner()),
            Expression::Variable(name) => self.root(name.as_str(), &[], expr),
            Expression::Conditional(conditional) => self.conditional(conditional),
            Expression::FuncCall(call) => self.call(call, expr),
            Expression::Traversal(traversal) => self.traversal(traversal, expr),
            Expression::UnaryOp(op) => {
                let value = self.eval(&op.expr)?;
                match *op.operator.value() {
                    UnaryOperator::Neg => operators::negate(&value, span(expr)),
                    UnaryOperator::Not => operators::not(&value, span(expr)),
                }
            }
            Expression::BinaryOp(op) => {
                let left = self.eval(&op.lhs_expr)?;
                let operator = *op.operator.value();
                match (operator, &left) {
                    (BinaryOperator::And, Val::Bool(false)) => return Ok(Val::Bool(false)),
                    (BinaryOperator::Or, Val::Bool(true)) => return Ok(Val::Bool(true)),
                    _ => {}
                }
                let right = self.eval(&op.rhs_expr)?;
                operators::binary(operator, &left, &right, span(expr))
            }
            Expression::ForExpr(for_expr) => self.for_expr(for_expr),
        }
    }

    fn object(&mut self, object: &Object) -> Evaluation {
        let mut entries = BTreeMap::new();
        for (key, value) in object {
            let name = self.object_key(key)?;
            let value = self.eval(value.expr())?;
            if let Some(name) = name {
                entries.insert(name, value);
            } else {
                return Ok(Val::Unknown);
            }
        }
        Ok(Val::Object(entries))
    }

    /// The text of a key; `None` if it is not known yet.
    pub(crate) fn object_key(
        &mut self,
        key: &ObjectKey,
    ) -> Result<Option<String>, ExpressionError> {
        match key {
            ObjectKey::Ident(name) => Ok(Some(name.as_str().to_owned())),
            ObjectKey::Expression(expr) => match self.eval(expr)? {
                Val::Unknown => Ok(None),
                value => value.in_template().map(Some).ok_or_else(|| {
                    ExpressionError::new(
                        span(expr),
                        format!("a key must be a string, this is {}", value.what()),
                    )
                }),
            },
        }
    }

    fn conditional(&mut self, conditional: &Conditional) -> Evaluation {
        match self.eval(&conditional.cond_expr)? {
            Val::Bool(true) => self.eval(&conditional.true_expr),
            Val::Bool(false) => self.eval(&conditional.false_expr),
            Val::Unknown => {
                // Either branch may be needed later.
                self.eval(&conditional.true_expr)?;
                self.eval(&conditional.false_expr)?;
                Ok(Val::Unknown)
            }
            other => Err(ExpressionError::new(
                span(&conditional.cond_expr),
                format!("a condition must be a bool, this is {}", other.what()),
            )),
        }
    }

    /// The entries over which a `for` iterates; `None` if they are not known yet.
    pub(crate) fn entries(
        &mut self,
        collection: &Expression,
    ) -> Result<Option<Vec<(Val, Val)>>, ExpressionError> {
        match self.eval(collection)? {
            Val::Unknown => Ok(None),
            Val::List(items) => Ok(Some(
                items
                    .into_iter()
                    .enumerate()
                    .map(|(at, item)| (Val::Number(at.into()), item))
                    .collect(),
            )),
            Val::Object(entries) => Ok(Some(
                entries
                    .into_iter()
                    .map(|(key, value)| (Val::Text(key), value))
                    .collect(),
            )),
            other => Err(ExpressionError::new(
                span(collection),
                format!(
                    "`for` goes through a list or an object, this is {}",
                    other.what()
                ),
            )),
        }
    }

    fn for_expr(&mut self, for_expr: &ForExpr) -> Evaluation {
        let key_name = for_expr
            .intro
            .key_var
            .as_ref()
            .map(|name| name.as_str().to_owned());
        let value_name = for_expr.intro.value_var.as_str().to_owned();
        let entries = self.entries(&for_expr.intro.collection_expr)?;
        let unknown = entries.is_none();
        let entries = entries.unwrap_or_else(|| vec![(Val::Unknown, Val::Unknown)]);
        let mut items = Vec::new();
        let mut object: BTreeMap<String, Val> = BTreeMap::new();
        for (key, value) in entries {
            let before = self.locals.len();
            if let Some(name) = &key_name {
                self.locals.push((name.clone(), key));
            }
            self.locals.push((value_name.clone(), value));
            let turn = self.for_turn(for_expr);
            self.locals.truncate(before);
            match turn? {
                None => {}
                Some((None, value)) => items.push(value),
                Some((Some(Val::Unknown), _)) => return Ok(Val::Unknown),
                Some((Some(key), value)) => {
                    let at = for_expr.key_expr.as_ref().map_or(0..0, span);
                    let Some(name) = key.in_template() else {
                        return Err(ExpressionError::new(
                            at,
                            format!("a key must be a string, this is {}", key.what()),
                        ));
                    };
                    if for_expr.grouping {
                        match object.entry(name).or_insert_with(|| Val::List(Vec::new())) {
                            Val::List(group) => group.push(value),
                            other => *other = Val::List(vec![value]),
                        }
                    } else if object.insert(name.clone(), value).is_some() {
                        return Err(ExpressionError::new(
                            at,
                            format!("the key `{name}` comes twice"),
                        ));
                    }
                }
            }
        }
        if unknown {
            return Ok(Val::Unknown);
        }
        Ok(if for_expr.key_expr.is_some() {
            Val::Object(object)
        } else {
            Val::List(items)
        })
    }

    fn for_turn(
        &mut self,
        for_expr: &ForExpr,
    ) -> Result<Option<(Option<Val>, Val)>, ExpressionError> {
        if let Some(cond) = &for_expr.cond {
            match self.eval(&cond.expr)? {
                Val::Bool(true) | Val::Unknown => {}
                Val::Bool(false) => return Ok(None),
                other => {
                    return Err(ExpressionError::new(
                        span(&cond.expr),
                        format!("a condition must be a bool, this is {}", other.what()),
                    ));
                }
            }
        }
        let key = match &for_expr.key_expr {
            Some(expr) => Some(self.eval(expr)?),
            None => None,
        };
        Ok(Some((key, self.eval(&for_expr.value_expr)?)))
    }

    fn call(&mut self, call: &FuncCall, whole: &Expression) -> Evaluation {
        crate::hcl::functions::call(self, call, whole)
    }
}

pub(crate) fn span(expr: &Expression) -> Range<usize> {
    expr.span().unwrap_or(0..0)
}
