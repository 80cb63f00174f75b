//! Reads blocks by the tables of `schema` and evaluates their attributes.
//!
//! Not here: their shape (`shape`), kinds of values (`kinds`), what blocks become (`project`, `stack`), rules between
//! them (`check`).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;

use hcl_edit::Span;
use hcl_edit::expr::{Expression, ObjectKey};
use hcl_edit::structure::{Attribute, Block as HclBlock, Body};
use serde_json::Value;

use crate::base::diagnostic::{Finding, Location};
use crate::base::tree::{ReadFailure, Tree};
use crate::hcl::evaluator::{
    AllowedRefs, Bindings, CollectedRefs, Evaluator, ExpressionError, Fetched, Host, MAX_STEPS,
    span,
};
use crate::hcl::expression::ExternalQuery;
use crate::hcl::expression::{Expression as Stored, Input, Needs};
use crate::hcl::syntax::{MAX_FILE_BYTES, SourceFile};
use crate::hcl::value::Val;
use crate::project::config::LoadEnvironment;
use crate::project::config::check::stages;
use crate::project::config::findings::Findings;
use crate::project::config::kinds;
use crate::project::config::schema::{Attr, Block, CONTEXT_SECRET, ValueKind};
use crate::project::config::shape::{attrs, head, inner_blocks};
use crate::stage::StageBlock;

pub(crate) struct Reader<'a> {
    pub(crate) tree: &'a dyn Tree,
    pub(crate) around: &'a LoadEnvironment<'a>,
    pub(crate) findings: Findings,
    pub(crate) steps: Cell<usize>,
    /// The first use of each feature that is not implemented yet.
    pub(crate) later: BTreeMap<String, Location>,
    /// References to secrets, with the first location of each.
    pub(crate) secrets: BTreeMap<String, Location>,
    /// Whether a file could not be parsed, so that seemingly missing blocks may exist.
    pub(crate) is_partial: bool,
    files: RefCell<BTreeMap<String, Option<String>>>,
}

/// The names that an expression may use.
#[derive(Clone, Default)]
pub(crate) struct Scope {
    pub(crate) names: Bindings,
    pub(crate) locals: Vec<(String, Val)>,
    /// Whether `stack.name` and `target.name` are bound later.
    pub(crate) late_names: bool,
}

impl Scope {
    pub(crate) fn with(&self, root: &str, value: Value) -> Self {
        let mut scope = self.clone();
        scope.names.insert(root.to_owned(), value);
        scope
    }
}

/// An attribute that was set, evaluated, and is of the right kind.
pub(crate) struct Field {
    pub(crate) attr: &'static Attr,
    pub(crate) at: Range<usize>,
    pub(crate) val: Val,
    pub(crate) seen: CollectedRefs,
    /// The entries, if it is an object.
    pub(crate) items: Vec<ObjectItem>,
}

impl Field {
    /// The whole value in its stored form.
    pub(crate) fn input(&self, source: &SourceFile, names: &Bindings) -> Input {
        let mut seen = self.seen.clone();
        for item in &self.items {
            seen.extend(&item.seen);
        }
        let whole = ObjectItem {
            key: self.attr.name.to_owned(),
            key_at: self.at.clone(),
            text: source.slice(self.at.clone()).to_owned(),
            val: self.val.clone(),
            seen,
        };
        whole.input(names)
    }
}

/// One entry of an object.
pub(crate) struct ObjectItem {
    pub(crate) key: String,
    pub(crate) key_at: Range<usize>,
    pub(crate) text: String,
    pub(crate) val: Val,
    pub(crate) seen: CollectedRefs,
}

impl ObjectItem {
    /// The stored form: a known value if it needs nothing external.
    pub(crate) fn input(&self, names: &Bindings) -> Input {
        let asks = !self.seen.env.is_empty()
            || !self.seen.env_if_set.is_empty()
            || !self.seen.secrets.is_empty();
        if let (false, Some(value)) = (asks, self.val.to_json()) {
            return Input::Known(value);
        }
        Input::Expression(Stored {
            text: self.text.clone(),
            names: kept_names(names, &self.seen),
            needs: Needs {
                outputs: self
                    .seen
                    .outputs
                    .iter()
                    .filter_map(|(stack, key, _)| Some((stack.parse().ok()?, key.clone())))
                    .collect(),
                env: self.seen.env.clone(),
                env_if_set: self.seen.env_if_set.clone(),
                secrets: self
                    .seen
                    .secrets
                    .iter()
                    .map(|(reference, _)| reference.clone())
                    .collect(),
            },
        })
    }
}

/// In a block with `for_each`, `each` is unknown until the entries are known.
pub(crate) fn each_unknown(block: &HclBlock, scope: &Scope) -> Scope {
    let mut scope = scope.clone();
    if block.body.has_attribute("for_each") {
        scope.names.remove("each");
        scope.locals.push(("each".to_owned(), Val::Unknown));
    }
    scope
}

/// Only the names in use: the stored form must not change when something else does.
fn kept_names(names: &Bindings, seen: &CollectedRefs) -> Bindings {
    let mut kept = Bindings::new();
    for (root, attribute) in &seen.names {
        let Some(value) = names.get(root) else {
            continue;
        };
        match (attribute, value) {
            (Some(attribute), Value::Object(entries)) if root != "each" => {
                let part = entries.get(attribute).cloned().unwrap_or(Value::Null);
                let slot = kept
                    .entry(root.clone())
                    .or_insert_with(|| Value::Object(serde_json::Map::new()));
                if let Value::Object(slot) = slot {
                    slot.insert(attribute.clone(), part);
                }
            }
            _ => {
                kept.insert(root.clone(), value.clone());
            }
        }
    }
    if !seen.files.is_empty() {
        let files = seen.files.iter().map(|(path, text)| {
            (
                path.clone(),
                text.clone().map_or(Value::Null, Value::String),
            )
        });
        kept.insert("file".to_owned(), Value::Object(files.collect()));
    }
    kept
}

/// The attributes of one block.
#[derive(Default)]
pub(crate) struct Fields {
    list: Vec<Field>,
}

impl Fields {
    pub(crate) fn get(&self, name: &str) -> Option<&Field> {
        self.list.iter().find(|field| field.attr.name == name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Field> {
        self.list.iter()
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(|field| field.val.as_text())
    }

    pub(crate) fn bool(&self, name: &str) -> Option<bool> {
        match self.get(name)?.val {
            Val::Bool(value) => Some(value),
            _ => None,
        }
    }

    pub(crate) fn integer(&self, name: &str) -> Option<i64> {
        match &self.get(name)?.val {
            Val::Number(number) => number.as_i64(),
            _ => None,
        }
    }

    pub(crate) fn texts(&self, name: &str) -> Vec<String> {
        match self.get(name).map(|field| &field.val) {
            Some(Val::List(items)) => items
                .iter()
                .filter_map(|item| item.as_text().map(str::to_owned))
                .collect(),
            _ => Vec::new(),
        }
    }
}

impl<'a> Reader<'a> {
    pub(crate) fn new(tree: &'a dyn Tree, around: &'a LoadEnvironment<'a>) -> Self {
        Self {
            tree,
            around,
            findings: Findings::default(),
            steps: Cell::new(0),
            later: BTreeMap::new(),
            secrets: BTreeMap::new(),
            is_partial: false,
            files: RefCell::new(BTreeMap::new()),
        }
    }

    pub(crate) fn note_later(&mut self, what: String, at: Location) {
        self.later.entry(what).or_insert(at);
    }

    /// Checks the attributes of all nested blocks, and passes their references to `each`.
    pub(crate) fn deep_fields(
        &mut self,
        source: &SourceFile,
        block: &HclBlock,
        spec: &'static Block,
        scope: &Scope,
        each: &mut dyn FnMut(&CollectedRefs),
    ) {
        for (inner, spec) in inner_blocks(block, spec) {
            let scope = each_unknown(inner, scope);
            for field in self.fields(source, inner, spec, &scope).iter() {
                each(&field.seen);
                field.items.iter().for_each(|item| each(&item.seen));
            }
            self.deep_fields(source, inner, spec, &scope, each);
        }
    }

    /// A block of a post-apply stage and its nested blocks, in their stored form.
    pub(crate) fn stage_block(
        &mut self,
        source: &SourceFile,
        block: &HclBlock,
        spec: &'static Block,
        scope: &Scope,
    ) -> StageBlock {
        let scope = each_unknown(block, scope);
        let mut labels = block.labels.iter().map(|label| label.as_str().to_owned());
        let kind = match spec.labels.first() {
            Some(label) if !label.words.is_empty() => labels.next(),
            _ => None,
        };
        let fields = self.fields(source, block, spec, &scope);
        if spec.word == CONTEXT_SECRET.word {
            stages::secret(self, source, block, &fields);
        }
        let mut attrs: BTreeMap<String, Input> = fields
            .iter()
            .map(|field| {
                let input = field.input(source, &scope.names);
                (field.attr.name.to_owned(), input)
            })
            .collect();
        StageBlock {
            kind: kind.unwrap_or_else(|| spec.word.to_owned()),
            name: labels.next().unwrap_or_default(),
            for_each: attrs.remove("for_each"),
            attrs,
            blocks: inner_blocks(block, spec)
                .map(|(inner, spec)| self.stage_block(source, inner, spec, &scope))
                .collect(),
            at: source.location(head(block)),
        }
    }

    /// The values of a block's attributes, without those that could not be read.
    pub(crate) fn fields(
        &mut self,
        source: &SourceFile,
        block: &HclBlock,
        spec: &'static Block,
        scope: &Scope,
    ) -> Fields {
        let attrs = attrs(block, spec);
        let list = block
            .body
            .attributes()
            .filter_map(|attribute| {
                let attr = attrs
                    .iter()
                    .find(|attr| attr.name == attribute.key.as_str())?;
                // Already expanded. Repeating this for each stack would take quadratic time.
                if spec.word == "stack" && attr.name == "for_each" {
                    return None;
                }
                self.field(source, attribute, attr, scope)
            })
            .collect();
        Fields { list }
    }

    /// One attribute of a block, by name.
    pub(crate) fn single(
        &mut self,
        source: &SourceFile,
        body: &Body,
        spec: &'static Block,
        name: &str,
        scope: &Scope,
    ) -> Option<Field> {
        let attribute = body.get_attribute(name)?;
        let attr = spec.attrs.iter().find(|attr| attr.name == name)?;
        self.field(source, attribute, attr, scope)
    }

    fn field(
        &mut self,
        source: &SourceFile,
        attribute: &Attribute,
        attr: &'static Attr,
        scope: &Scope,
    ) -> Option<Field> {
        let expr = &attribute.value;
        let at = span(expr);
        let (val, seen, items) = if let (ValueKind::Map, Expression::Object(object)) =
            (attr.kind, expr)
        {
            let items: Vec<ObjectItem> = object
                .iter()
                .filter_map(|(key, value)| self.item(source, key, value.expr(), attr.refs, scope))
                .collect();
            let val = items
                .iter()
                .map(|item| (item.key.clone(), item.val.clone()));
            (Val::Object(val.collect()), CollectedRefs::default(), items)
        } else if let (AllowedRefs::After, Expression::Array(list)) = (attr.refs, expr) {
            // Each one separately, so that an invalid one does not hide the others.
            let mut seen = CollectedRefs::default();
            let mut items = Vec::new();
            for item in list {
                if let Some((val, also)) = self.evaluate(source, item, attr.refs, scope) {
                    seen.extend(&also);
                    items.push(val);
                }
            }
            (Val::List(items), seen, Vec::new())
        } else {
            let (val, seen) = self.evaluate(source, expr, attr.refs, scope)?;
            let items = if attr.kind == ValueKind::Map {
                whole_items(source.slice(at.clone()), &val, &seen, &at)
            } else {
                Vec::new()
            };
            (val, seen, items)
        };
        if val == Val::Null {
            return None; // as if it were not set
        }
        // Each one is compiled, which costs more than a plain value.
        if let (ValueKind::Globs | ValueKind::AnyGlobs | ValueKind::Texts, Val::List(list)) =
            (attr.kind, &val)
        {
            let cost = if attr.kind == ValueKind::Texts {
                10
            } else {
                100
            };
            let total = self
                .steps
                .get()
                .saturating_add(list.len().saturating_mul(cost));
            self.steps.set(total);
            if total > MAX_STEPS {
                self.problem(source, ExpressionError::new(at, "this list is too long"));
                return None;
            }
        }
        for item in &items {
            self.secrets(source, &item.seen);
        }
        self.secrets(source, &seen);
        if let Err(wrong) = kinds::check(attr.kind, &val, &seen) {
            self.findings
                .push(wrong.finding(attr, source.location(at.clone())));
            return None;
        }
        if attr.kind == ValueKind::Map
            && val == Val::Unknown
            && attr.refs != AllowedRefs::Own
            && attr.refs != AllowedRefs::Gate
        {
            let finding = Finding::error(
                "unknown-keys",
                format!(
                    "the names in `{}` must be known from the file alone",
                    attr.name
                ),
            )
            .at(source.location(at.clone()), "known only later");
            self.findings.push(finding);
        }
        Some(Field {
            attr,
            at,
            val,
            seen,
            items,
        })
    }

    fn item(
        &mut self,
        source: &SourceFile,
        key: &ObjectKey,
        value: &Expression,
        refs: AllowedRefs,
        scope: &Scope,
    ) -> Option<ObjectItem> {
        let key_at = key.span().unwrap_or(0..0);
        let name = match key {
            ObjectKey::Ident(name) => name.as_str().to_owned(),
            ObjectKey::Expression(expr) => {
                let (val, _) = self.evaluate(source, expr, AllowedRefs::Key, scope)?;
                let Some(name) = val.in_template() else {
                    let message = format!("a key must be a string, this is {}", val.what());
                    self.problem(source, ExpressionError::new(span(expr), message));
                    return None;
                };
                name
            }
        };
        let (val, seen) = self.evaluate(source, value, refs, scope)?;
        Some(ObjectItem {
            key: name,
            key_at,
            text: source.slice(span(value)).to_owned(),
            val,
            seen,
        })
    }

    /// An attribute that is in no table, as an entry.
    pub(crate) fn open_item(
        &mut self,
        source: &SourceFile,
        attribute: &Attribute,
        scope: &Scope,
    ) -> Option<ObjectItem> {
        let (val, seen) = self.evaluate(source, &attribute.value, AllowedRefs::Later, scope)?;
        Some(ObjectItem {
            key: attribute.key.as_str().to_owned(),
            key_at: attribute.key.span().unwrap_or(0..0),
            text: source.slice(span(&attribute.value)).to_owned(),
            val,
            seen,
        })
    }

    pub(crate) fn evaluate(
        &mut self,
        source: &SourceFile,
        expr: &Expression,
        refs: AllowedRefs,
        scope: &Scope,
    ) -> Option<(Val, CollectedRefs)> {
        let length = span(expr).len();
        self.steps.set(self.steps.get().saturating_add(length / 16));
        let host = LoadingHost {
            reader: self,
            later: refs.is_later(),
        };
        let mut evaluator = Evaluator::new(&scope.names, refs, &host, &self.steps);
        evaluator.late_names = scope.late_names;
        evaluator.locals.clone_from(&scope.locals);
        let result = evaluator.eval(expr);
        let seen = std::mem::take(&mut evaluator.seen);
        match result {
            Ok(val) => Some((val, seen)),
            Err(problem) => {
                self.problem(source, problem);
                None
            }
        }
    }

    pub(crate) fn problem(&mut self, source: &SourceFile, problem: ExpressionError) {
        let mut finding = Finding::error(problem.code, problem.message)
            .at(source.location(problem.span), problem.label);
        finding.hint = problem.hint;
        self.findings.push(finding);
    }

    fn secrets(&mut self, source: &SourceFile, seen: &CollectedRefs) {
        for (reference, at) in &seen.secrets {
            let at = source.location(at.clone());
            match kinds::secret_source(reference) {
                Ok(_) => {
                    self.secrets.entry(reference.clone()).or_insert(at);
                }
                Err((message, hint)) => {
                    let mut finding =
                        Finding::error("invalid-secret", message).at(at, "this reference");
                    finding.hint = hint;
                    self.findings.push(finding);
                }
            }
        }
    }
}

/// The entries of an object that is not a literal: each is a part of the whole expression.
fn whole_items(text: &str, val: &Val, seen: &CollectedRefs, at: &Range<usize>) -> Vec<ObjectItem> {
    let Val::Object(entries) = val else {
        return Vec::new();
    };
    entries
        .iter()
        .map(|(key, val)| {
            let known = val.is_known();
            ObjectItem {
                key: key.clone(),
                key_at: at.clone(),
                text: format!("({text})[{}]", quoted(key)),
                val: val.clone(),
                seen: if known {
                    CollectedRefs::default()
                } else {
                    seen.clone()
                },
            }
        })
        .collect()
}

fn quoted(key: &str) -> String {
    let escaped = key
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("\"{}\"", escaped.replace("${", "$${").replace("%{", "%%{"))
}

/// The host during loading: the tree and the loader's environment, without running anything.
struct LoadingHost<'r, 'a> {
    reader: &'r Reader<'a>,
    later: bool,
}

impl Host for LoadingHost<'_, '_> {
    fn env(&self, name: &str) -> Fetched {
        if self.later {
            return Fetched::Later;
        }
        match (self.reader.around.env)(name) {
            Some(value) => Fetched::Given {
                value: Value::String(value),
                sensitive: false,
            },
            None => Fetched::Missing(format!("`{name}` is not set in the environment")),
        }
    }

    fn output(&self, _stack: &str, _key: &str) -> Fetched {
        Fetched::Later
    }

    fn secret(&self, _reference: &str) -> Fetched {
        Fetched::Later
    }

    fn own_output(&self, _key: &str) -> Fetched {
        Fetched::Later
    }

    fn resource(&self, _address: &str) -> Fetched {
        Fetched::Later
    }

    fn ask(&self, _ask: ExternalQuery) -> Fetched {
        Fetched::Later
    }

    fn file(&self, path: &str) -> Result<Option<String>, String> {
        if let Some(text) = self.reader.files.borrow().get(path) {
            return Ok(text.clone());
        }
        let text = match self.reader.tree.read(path) {
            Ok(bytes) if bytes.len() > MAX_FILE_BYTES => return Err("it is too large".to_owned()),
            Ok(bytes) => {
                Some(String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())?)
            }
            Err(ReadFailure::Missing) => None,
            Err(failure) => return Err(failure.to_string()),
        };
        self.reader
            .files
            .borrow_mut()
            .insert(path.to_owned(), text.clone());
        Ok(text)
    }
}
