//! Templates inside strings: `${…}`, `%{ if … }`, `%{ for … }`.

use hcl_edit::expr::Expression;
use hcl_edit::template::{Directive, Element, ForDirective, IfDirective, Strip, Template};

use crate::hcl::evaluator::{Evaluation, Evaluator, ExpressionError, span};
use crate::hcl::value::Val;

/// The text so far; `None` once a part of it is unknown.
struct Output {
    text: Option<String>,
    /// The position up to which `~` may strip whitespace: only literals are stripped.
    fixed: usize,
    trim_next: bool,
}

impl Output {
    fn literal(&mut self, literal: &str) {
        let literal = if self.trim_next {
            literal.trim_start()
        } else {
            literal
        };
        if !literal.is_empty() {
            self.trim_next = false;
        }
        if let Some(text) = &mut self.text {
            text.push_str(literal);
        }
    }

    fn value(&mut self, value: Option<&str>) {
        match (value, &mut self.text) {
            (Some(value), Some(text)) => {
                text.push_str(value);
                self.fixed = text.len();
            }
            _ => self.text = None,
        }
        self.trim_next = false;
    }

    fn before(&mut self, strip: Strip) {
        if strip.strip_start()
            && let Some(text) = &mut self.text
        {
            let kept = text.trim_end().len().max(self.fixed);
            text.truncate(kept);
        }
    }

    fn after(&mut self, strip: Strip) {
        self.trim_next = strip.strip_end();
    }
}

impl Evaluator<'_> {
    pub(crate) fn template(&mut self, template: &Template, whole: &Expression) -> Evaluation {
        // `"${x}"` is x itself, whatever its type.
        if let Some(Element::Interpolation(only)) = template.as_single_element() {
            return self.eval(&only.expr);
        }
        let mut output = Output {
            text: Some(String::new()),
            fixed: 0,
            trim_next: false,
        };
        self.elements(template, &mut output, whole)?;
        Ok(output.text.map_or(Val::Unknown, Val::Text))
    }

    fn elements(
        &mut self,
        template: &Template,
        output: &mut Output,
        whole: &Expression,
    ) -> Result<(), ExpressionError> {
        for element in template {
            self.step(1, whole)?;
            match element {
                Element::Literal(literal) => {
                    self.step(literal.len() / 16, whole)?;
                    output.literal(literal);
                }
                Element::Interpolation(interpolation) => {
                    output.before(interpolation.strip);
                    let value = self.eval(&interpolation.expr)?;
                    self.interpolated(&value, &interpolation.expr, output)?;
                    output.after(interpolation.strip);
                }
                Element::Directive(directive) => match directive.as_ref() {
                    Directive::If(directive) => self.if_directive(directive, output, whole)?,
                    Directive::For(directive) => self.for_directive(directive, output, whole)?,
                },
            }
        }
        Ok(())
    }

    fn interpolated(
        &mut self,
        value: &Val,
        expr: &Expression,
        output: &mut Output,
    ) -> Result<(), ExpressionError> {
        match value {
            Val::Unknown => output.value(None),
            known => {
                let Some(text) = known.in_template() else {
                    return Err(ExpressionError::new(
                        span(expr),
                        format!("{} cannot stand inside a string", known.what()),
                    ));
                };
                self.step(text.len() / 16, expr)?;
                output.value(Some(&text));
            }
        }
        Ok(())
    }

    fn if_directive(
        &mut self,
        directive: &IfDirective,
        output: &mut Output,
        whole: &Expression,
    ) -> Result<(), ExpressionError> {
        output.before(directive.if_expr.strip);
        let condition = self.eval(&directive.if_expr.cond_expr)?;
        let (then, otherwise) = match condition {
            Val::Bool(value) => (value, !value),
            Val::Unknown => (true, true),
            other => {
                return Err(ExpressionError::new(
                    span(&directive.if_expr.cond_expr),
                    format!("a condition must be a bool, this is {}", other.what()),
                ));
            }
        };
        let unknown = condition == Val::Unknown;
        output.after(directive.if_expr.strip);
        if then {
            self.elements(&directive.if_expr.template, output, whole)?;
        }
        let mut last = directive.if_expr.strip;
        if let Some(else_expr) = &directive.else_expr {
            if then {
                output.before(else_expr.strip);
            }
            output.after(else_expr.strip);
            if otherwise {
                self.elements(&else_expr.template, output, whole)?;
            }
            last = else_expr.strip;
        }
        let _ = last;
        output.before(directive.endif_expr.strip);
        output.after(directive.endif_expr.strip);
        if unknown {
            output.value(None);
        }
        Ok(())
    }

    fn for_directive(
        &mut self,
        directive: &ForDirective,
        output: &mut Output,
        whole: &Expression,
    ) -> Result<(), ExpressionError> {
        let intro = &directive.for_expr;
        output.before(intro.strip);
        let entries = self.entries(&intro.collection_expr)?;
        let unknown = entries.is_none();
        for (key, value) in entries.unwrap_or_else(|| vec![(Val::Unknown, Val::Unknown)]) {
            let before = self.locals.len();
            if let Some(name) = &intro.key_var {
                self.locals.push((name.as_str().to_owned(), key));
            }
            self.locals
                .push((intro.value_var.as_str().to_owned(), value));
            output.after(intro.strip);
            let turn = self.elements(&intro.template, output, whole);
            self.locals.truncate(before);
            turn?;
            output.before(directive.endfor_expr.strip);
        }
        output.after(directive.endfor_expr.strip);
        if unknown {
            output.value(None);
        }
        Ok(())
    }
}
