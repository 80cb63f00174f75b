//! References: `stack.NAME.output.KEY`, `each.key`, `output.KEY` and similar.

use hcl_edit::Decorated;
use hcl_edit::expr::{Expression, Traversal, TraversalOperator};

use crate::hcl::evaluator::{
    AllowedRefs, Evaluation, Evaluator, ExpressionError, Fetched, ROOTS, span,
};
use crate::hcl::expression::ExternalQuery;
use crate::hcl::operators;
use crate::hcl::suggest;
use crate::hcl::value::Val;

/// A word of a reference.
enum Late {
    Known(String),
    Later,
}

impl Evaluator<'_> {
    pub(crate) fn traversal(&mut self, traversal: &Traversal, whole: &Expression) -> Evaluation {
        if let Expression::Variable(name) = &traversal.expr {
            return self.root(name.as_str(), &traversal.operators, whole);
        }
        let value = self.eval(&traversal.expr)?;
        self.walk(value, &traversal.operators, whole)
    }

    /// A reference that starts with an identifier.
    pub(crate) fn root(
        &mut self,
        name: &str,
        operators: &[Decorated<TraversalOperator>],
        whole: &Expression,
    ) -> Evaluation {
        if let Some((_, value)) = self.locals.iter().rev().find(|(local, _)| local == name) {
            let value = value.clone();
            self.step(value.size(), whole)?;
            return self.walk(value, operators, whole);
        }
        match name {
            "stack" => self.stack(operators, whole),
            "output" => {
                self.own(whole, "an output of this stack")?;
                let Some(key) = self.word(operators.first())? else {
                    return Err(ExpressionError::new(
                        span(whole),
                        "`output` requires the name of an output: `output.KEY`",
                    ));
                };
                let value = self.host.own_output(&key);
                self.seen.own_outputs.push((key, span(whole)));
                let value = self.fetched(value, whole)?;
                self.walk(value, operators.get(1..).unwrap_or_default(), whole)
            }
            "resource" => {
                self.own(whole, "a resource of this stack")?;
                let address = self.late_word(operators.first())?;
                let (Some(address), true) = (address, operators.len() >= 2) else {
                    return Err(ExpressionError::new(
                        span(whole),
                        "a resource is written as `resource[\"ADDRESS\"].ATTR`",
                    ));
                };
                let Late::Known(address) = address else {
                    return Ok(Val::Unknown);
                };
                let value = self.fetched(self.host.resource(&address), whole)?;
                self.walk(value, operators.get(1..).unwrap_or_default(), whole)
            }
            "fact" => {
                if !self.refs.allows_asking() {
                    return Err(ExpressionError::new(
                        span(whole),
                        "a published fact is allowed only in a `gate`",
                    ));
                }
                let Some(facts) = self.word(operators.first())? else {
                    return Err(ExpressionError::new(
                        span(whole),
                        "a fact is written as `fact.NAME[\"PATH\"].KEY`",
                    ));
                };
                let path = self.late_word(operators.get(1))?;
                self.seen.facts.push((facts.clone(), span(whole)));
                let Some(Late::Known(path)) = path else {
                    return Ok(Val::Unknown);
                };
                let file = (facts.clone(), path.clone(), span(whole));
                self.seen.fact_files.push(file);
                let value = self.host.ask(ExternalQuery::Fact { facts, path });
                let value = self.fetched(value, whole)?;
                self.walk(value, operators.get(2..).unwrap_or_default(), whole)
            }
            "each" | "dir" | "project" | "target" | "git" => self.name(name, operators, whole),
            other => {
                let locals = self.locals.iter().map(|(name, _)| name.as_str());
                let refs = self.refs;
                let roots = ROOTS.into_iter().filter(|root| match *root {
                    "output" | "resource" => refs.allows_own(),
                    "fact" => refs.allows_asking(),
                    _ => true,
                });
                let hint = suggest::hint(other, locals.chain(roots));
                Err(ExpressionError {
                    code: "unknown-reference",
                    ..ExpressionError::new(span(whole), format!("nothing is called `{other}` here"))
                }
                .hint(hint))
            }
        }
    }

    fn own(&self, whole: &Expression, what: &str) -> Result<(), ExpressionError> {
        if self.refs.allows_own() {
            return Ok(());
        }
        let message = if self.refs == AllowedRefs::Key {
            format!("a name must be known from the file alone: {what} is a value")
        } else {
            format!("{what} is allowed only in `publish`, `bootstrap` and `gate`")
        };
        Err(ExpressionError {
            code: "misplaced-reference",
            ..ExpressionError::new(span(whole), message)
        })
    }

    fn name(
        &mut self,
        root: &str,
        operators: &[Decorated<TraversalOperator>],
        whole: &Expression,
    ) -> Evaluation {
        let attribute = match operators.first().map(Decorated::value) {
            Some(TraversalOperator::GetAttr(name)) => Some(name.as_str().to_owned()),
            _ => None,
        };
        // A likely mistake: `target.NAME`, as the engines refer to other blocks.
        if let ("target", Some(word)) = (root, attribute.as_deref())
            && word != "name"
        {
            let message = "`target` is the stack's own, and has a `name` alone";
            let hint = format!("a target is named by a string: `\"{word}\"`");
            return Err(ExpressionError::new(span(whole), message).hint(Some(hint)));
        }
        let Some(value) = self.names.get(root) else {
            if self.late_names && matches!(root, "target" | "stack") {
                return Ok(Val::Unknown);
            }
            let message = match root {
                "each" => "`each` is known only beside `for_each`",
                "dir" => "`dir` is known only in `discover`",
                "git" => "this project is not in Git, so there is no `git` here",
                _ => "this name is not known here",
            };
            return Err(ExpressionError::new(span(whole), message));
        };
        let value = Val::from(value);
        self.step(value.size(), whole)?;
        self.seen.names.insert((root.to_owned(), attribute));
        self.walk(value, operators, whole)
    }

    /// `stack.name`, `stack.state`, `stack.NAME`, `stack["NAME"]`, `stack.NAME.output.KEY`.
    fn stack(
        &mut self,
        operators: &[Decorated<TraversalOperator>],
        whole: &Expression,
    ) -> Evaluation {
        let first = operators.first();
        if let Some(TraversalOperator::GetAttr(name)) = first.map(Decorated::value)
            && matches!(name.as_str(), "name" | "state")
        {
            return self.name("stack", operators, whole);
        }
        let Some(stack) = self.word(first)? else {
            return Err(ExpressionError::new(
                span(whole),
                "`stack` requires a name: `stack.NAME` or `stack[\"NAME\"]`",
            ));
        };
        if operators.len() == 1 {
            if self.refs != AllowedRefs::After {
                return Err(ExpressionError {
                    code: "misplaced-reference",
                    ..ExpressionError::new(span(whole), "a whole stack is allowed only in `after`")
                }
                .hint(Some(format!(
                    "an output is written as `stack.{stack}.output.KEY`"
                ))));
            }
            self.seen.stacks.push((stack.clone(), span(whole)));
            return Ok(Val::Stack(stack));
        }
        let output = self.word(operators.get(1))?;
        let key = self.word(operators.get(2))?;
        let (Some("output"), Some(key)) = (output.as_deref(), key) else {
            return Err(ExpressionError::new(
                span(whole),
                format!("of a stack only its outputs can be used: `stack.{stack}.output.KEY`"),
            ));
        };
        if self.refs != AllowedRefs::Inputs {
            return Err(ExpressionError {
                code: "misplaced-reference",
                ..ExpressionError::new(
                    span(whole),
                    "an output of another stack is allowed only in `inputs`",
                )
            });
        }
        self.seen
            .outputs
            .push((stack.clone(), key.clone(), span(whole)));
        let value = self.fetched(self.host.output(&stack, &key), whole)?;
        self.walk(value, operators.get(3..).unwrap_or_default(), whole)
    }

    pub(crate) fn fetched(&mut self, fetched: Fetched, whole: &Expression) -> Evaluation {
        match fetched {
            Fetched::Given { value, sensitive } => {
                self.seen.sensitive |= sensitive;
                Ok(Val::from(&value))
            }
            Fetched::Later => Ok(Val::Unknown),
            Fetched::Missing(message) => Err(ExpressionError::missing(span(whole), message)),
        }
    }

    /// As `word`, if the word itself may only be known later.
    fn late_word(
        &mut self,
        operator: Option<&Decorated<TraversalOperator>>,
    ) -> Result<Option<Late>, ExpressionError> {
        if let Some(TraversalOperator::Index(expr)) = operator.map(Decorated::value)
            && self.eval(expr)? == Val::Unknown
        {
            return Ok(Some(Late::Later));
        }
        Ok(self.word(operator)?.map(Late::Known))
    }

    /// The word in a step of a reference: `.word` or `["word"]`.
    fn word(
        &mut self,
        operator: Option<&Decorated<TraversalOperator>>,
    ) -> Result<Option<String>, ExpressionError> {
        match operator.map(Decorated::value) {
            Some(TraversalOperator::GetAttr(name)) => Ok(Some(name.as_str().to_owned())),
            Some(TraversalOperator::Index(expr)) => match self.eval(expr)? {
                Val::Text(text) => Ok(Some(text)),
                Val::Unknown => Err(ExpressionError::new(
                    span(expr),
                    "this name must be known from the file alone",
                )),
                other => Err(ExpressionError::new(
                    span(expr),
                    format!("a name must be a string, this is {}", other.what()),
                )),
            },
            _ => Ok(None),
        }
    }

    fn walk(
        &mut self,
        mut value: Val,
        operators: &[Decorated<TraversalOperator>],
        whole: &Expression,
    ) -> Evaluation {
        for (at, operator) in operators.iter().enumerate() {
            self.step(1, whole)?;
            let key = match operator.value() {
                TraversalOperator::GetAttr(name) => Val::text(name.as_str()),
                TraversalOperator::LegacyIndex(index) => Val::Number((*index.value()).into()),
                TraversalOperator::Index(expr) => self.eval(expr)?,
                TraversalOperator::AttrSplat(_) | TraversalOperator::FullSplat(_) => {
                    let rest = operators.get(at + 1..).unwrap_or_default();
                    return self.splat(value, rest, whole);
                }
            };
            value = operators::index(value, &key, span(whole))?;
        }
        Ok(value)
    }

    fn splat(
        &mut self,
        value: Val,
        rest: &[Decorated<TraversalOperator>],
        whole: &Expression,
    ) -> Evaluation {
        let items = match value {
            Val::Unknown => return Ok(Val::Unknown),
            Val::Null => Vec::new(),
            Val::List(items) => items,
            single => vec![single],
        };
        if rest.iter().any(|operator| {
            matches!(
                operator.value(),
                TraversalOperator::AttrSplat(_) | TraversalOperator::FullSplat(_)
            )
        }) {
            return Err(ExpressionError::new(
                span(whole),
                "one splat in a reference is the most",
            ));
        }
        let items: Result<Vec<Val>, ExpressionError> = items
            .into_iter()
            .map(|item| self.walk(item, rest, whole))
            .collect();
        Ok(Val::List(items?))
    }
}
