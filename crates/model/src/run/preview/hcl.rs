//! Finds and replaces `var.NAME` in the expressions of a `.tf` or `.tofu` file.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use hcl_edit::expr::{Expression, ForExpr, ObjectKey, Traversal, TraversalOperator};
use hcl_edit::structure::{Attribute, Block, Structure};
use hcl_edit::template::ForTemplateExpr;
use hcl_edit::visit::{self, Visit};
use hcl_edit::{Decorated, Span};

use super::origins::{Sources, UnknownOrigins};
use super::{RewriteError, UnknownVariables, unreadable};
use crate::hcl::syntax::{self, SourceFile};

/// One pass over a module: the replacements, and what its locals refer to.
pub(super) struct Splice<'a> {
    unknowns: &'a UnknownVariables,
    prefix: &'a str,
    /// Names that a `for` binds to something else.
    shadows: Vec<String>,
    edits: Vec<Edit>,
    seen: Refs,
    locals: BTreeMap<String, Refs>,
}

type Edit = (Range<usize>, String);

/// What an expression refers to.
#[derive(Clone, Debug, Default)]
struct Refs {
    unknowns: BTreeSet<String>,
    locals: BTreeSet<String>,
    /// Something whose value may only be known after the apply.
    others: bool,
}

/// The text with `var.NAME` replaced, if it occurs.
pub(super) fn rewrite(
    source: &SourceFile,
    splice: &mut Splice<'_>,
) -> Result<Option<String>, RewriteError> {
    let body = syntax::parse_source(source).map_err(unreadable)?;
    for structure in &body {
        match structure {
            Structure::Block(block) => splice.block(source, block)?,
            Structure::Attribute(attribute) => splice.visit_attr(attribute),
        }
    }
    Ok(splice.apply(source.code()))
}

impl<'a> Splice<'a> {
    pub(super) fn new(unknowns: &'a UnknownVariables, prefix: &'a str) -> Self {
        Self {
            unknowns,
            prefix,
            shadows: Vec::new(),
            edits: Vec::new(),
            seen: Refs::default(),
            locals: BTreeMap::new(),
        }
    }

    pub(super) fn is_unknown(&self, variable: &str) -> bool {
        self.unknowns.contains_key(variable)
    }

    /// The text of a JSON template with `var.NAME` replaced.
    pub(super) fn template(&mut self, text: &str) -> Option<String> {
        if !text.contains("${") && !text.contains("%{") {
            return None;
        }
        self.visit_template(&hcl_edit::parser::parse_template(text).ok()?);
        self.apply(text)
    }

    /// The same for a text that is an expression by itself.
    pub(super) fn bare(&mut self, text: &str) -> Option<String> {
        self.visit_expr(&hcl_edit::parser::parse_expr(text).ok()?);
        self.apply(text)
    }

    /// Attributes the references that `action` finds to one of the module's locals.
    pub(super) fn local<T>(&mut self, name: &str, action: impl FnOnce(&mut Self) -> T) -> T {
        self.seen = Refs::default();
        let done = action(self);
        let seen = std::mem::take(&mut self.seen);
        self.locals.insert(name.to_owned(), seen);
        done
    }

    /// The first unknown variable that `action` finds; has no other effect.
    pub(super) fn mention(&mut self, action: impl FnOnce(&mut Self)) -> Option<String> {
        let before = self.edits.len();
        self.seen = Refs::default();
        action(self);
        self.edits.truncate(before);
        std::mem::take(&mut self.seen).unknowns.pop_first()
    }

    pub(super) fn into_origins(self) -> UnknownOrigins {
        let own = self.unknowns.iter().map(|(name, stacks)| {
            let sources = Sources::of(stacks.clone());
            (format!("{}_{name}", self.prefix), sources)
        });
        let mut locals: BTreeMap<String, Sources> = own.collect();
        let names = self.locals.keys().cloned();
        let traced: Vec<(String, Sources)> = names
            .map(|name| {
                let sources = self.trace(&name, &mut BTreeSet::new());
                (name, sources)
            })
            .collect();
        locals.extend(traced);
        UnknownOrigins::new(format!("terraform_data.{}", self.prefix), locals)
    }

    fn trace(&self, local: &str, on_the_way: &mut BTreeSet<String>) -> Sources {
        let Some(refs) = self.locals.get(local) else {
            return Sources::other();
        };
        if !on_the_way.insert(local.to_owned()) {
            return Sources::default();
        }
        let mut sources = Sources {
            stacks: BTreeSet::new(),
            others: refs.others,
        };
        for name in &refs.unknowns {
            sources.stacks.extend(self.unknowns[name].iter().cloned());
        }
        for name in &refs.locals {
            sources.add(self.trace(name, on_the_way));
        }
        sources
    }

    fn block(&mut self, source: &SourceFile, block: &Block) -> Result<(), RewriteError> {
        let label = block.labels.first().map_or("", |label| label.as_str());
        match block.ident.as_str() {
            "variable" if self.is_unknown(label) => {
                self.put_aside(source, block, &stub(label));
            }
            "variable" => self.variable(source, block),
            "terraform" => {
                if let Some(variable) = self.mention(|splice| splice.visit_body(&block.body)) {
                    return Err(early(&variable, "a setting of the engine"));
                }
            }
            "module" => {
                for attribute in block.body.attributes() {
                    self.argument_of_module(label, attribute)?;
                }
                for inner in block.body.blocks() {
                    self.visit_block(inner);
                }
            }
            "locals" => {
                for attribute in block.body.attributes() {
                    let name = attribute.key.as_str().to_owned();
                    self.local(&name, |splice| splice.visit_attr(attribute));
                }
            }
            _ => self.visit_block(block),
        }
        Ok(())
    }

    /// A condition of another variable cannot refer to a resource.
    fn variable(&mut self, source: &SourceFile, block: &Block) {
        for inner in block.body.blocks() {
            if self.mention(|splice| splice.visit_block(inner)).is_some() {
                self.put_aside(source, inner, "");
            }
        }
    }

    fn argument_of_module(
        &mut self,
        module: &str,
        attribute: &Attribute,
    ) -> Result<(), RewriteError> {
        let name = attribute.key.as_str();
        if !matches!(name, "source" | "version") {
            self.visit_attr(attribute);
            return Ok(());
        }
        match self.mention(|splice| splice.visit_attr(attribute)) {
            Some(variable) => Err(early(
                &variable,
                &format!("the {name} of module `{module}`"),
            )),
            None => Ok(()),
        }
    }

    /// Replaces a whole block. Later lines keep their numbers.
    fn put_aside(&mut self, source: &SourceFile, block: &Block, stub: &str) {
        let Some(span) = block.span() else { return };
        let breaks = source.slice(span.clone()).matches('\n').count();
        self.edits
            .push((span, format!("{stub}{}", "\n".repeat(breaks))));
    }

    fn is_shadowed(&self, name: &str) -> bool {
        self.shadows.iter().any(|shadow| shadow == name)
    }

    fn within_for(&mut self, names: [Option<&str>; 2], action: impl FnOnce(&mut Self)) {
        let before = self.shadows.len();
        self.shadows
            .extend(names.into_iter().flatten().map(str::to_owned));
        action(self);
        self.shadows.truncate(before);
    }

    /// Applies and clears the edits.
    fn apply(&mut self, text: &str) -> Option<String> {
        let mut edits = std::mem::take(&mut self.edits);
        edits.sort_by_key(|(span, _)| span.start);
        let mut out = String::with_capacity(text.len());
        let mut at = 0;
        for (span, new) in &edits {
            out.push_str(text.get(at..span.start).unwrap_or_default());
            out.push_str(new);
            at = span.end;
        }
        out.push_str(text.get(at..).unwrap_or_default());
        (!edits.is_empty()).then_some(out)
    }
}

pub(super) fn early(variable: &str, what: &str) -> RewriteError {
    RewriteError::Early {
        variable: variable.to_owned(),
        what: what.to_owned(),
    }
}

/// Keeps the variable declared, but not required.
fn stub(name: &str) -> String {
    format!("variable \"{name}\" {{ default = null }}")
}

impl Visit for Splice<'_> {
    fn visit_traversal(&mut self, traversal: &Traversal) {
        if let Expression::Variable(root) = &traversal.expr
            && !self.is_shadowed(root.as_str())
        {
            let first = traversal.operators.first().map(Decorated::value);
            match (root.as_str(), first) {
                ("var", Some(TraversalOperator::GetAttr(name))) => {
                    if self.is_unknown(name.as_str()) {
                        self.seen.unknowns.insert(name.as_str().to_owned());
                        if let (Some(start), Some(end)) = (root.span(), name.span()) {
                            let new = format!("local.{}_{}", self.prefix, name.as_str());
                            self.edits.push((start.start..end.end, new));
                        }
                    }
                }
                ("local", Some(TraversalOperator::GetAttr(name))) => {
                    self.seen.locals.insert(name.as_str().to_owned());
                }
                ("path" | "terraform" | "tofu" | "count" | "each", _) => {}
                _ => self.seen.others = true,
            }
            for operator in &traversal.operators {
                self.visit_traversal_operator(operator);
            }
            return;
        }
        visit::visit_traversal(self, traversal);
    }

    fn visit_expr(&mut self, expr: &Expression) {
        if let Expression::Variable(name) = expr {
            self.seen.others |= !self.is_shadowed(name.as_str());
        }
        visit::visit_expr(self, expr);
    }

    fn visit_object_key(&mut self, key: &ObjectKey) {
        // A word before `=` is a name, not a value.
        if !matches!(key, ObjectKey::Expression(Expression::Variable(_))) {
            visit::visit_object_key(self, key);
        }
    }

    fn visit_for_expr(&mut self, node: &ForExpr) {
        self.visit_expr(&node.intro.collection_expr);
        let key = node.intro.key_var.as_ref().map(|key| key.as_str());
        self.within_for([key, Some(node.intro.value_var.as_str())], |splice| {
            if let Some(key) = &node.key_expr {
                splice.visit_expr(key);
            }
            splice.visit_expr(&node.value_expr);
            if let Some(cond) = &node.cond {
                splice.visit_for_cond(cond);
            }
        });
    }

    fn visit_for_template_expr(&mut self, node: &ForTemplateExpr) {
        self.visit_expr(&node.collection_expr);
        let key = node.key_var.as_ref().map(|key| key.as_str());
        self.within_for([key, Some(node.value_var.as_str())], |splice| {
            splice.visit_template(&node.template);
        });
    }
}
