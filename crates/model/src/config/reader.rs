//! Reads blocks by the tables of `schema`: their shape, and what their attributes are worth.
//!
//! Not here: kinds of values (`kinds`), what blocks become (`project`, `stack`), rules between them
//! (`check`).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use hcl_edit::Span;
use hcl_edit::expr::{Expression, ObjectKey};
use hcl_edit::structure::{Attribute, Block as HclBlock, BlockLabel, Body, Structure};
use serde_json::Value;

use super::Surroundings;
use super::evaluator::{Evaluator, Fetched, Host, Names, Problem, Refs, Seen, span};
use super::kinds;
use super::schema::{Attr, Block, Kind, Variant};
use super::suggest;
use super::syntax::{MAX_FILE_BYTES, Source};
use super::value::Val;
use crate::diagnostic::{Finding, Location};
use crate::ids::check_name;
use crate::project::{Expression as Stored, Input, Needs};
use crate::tree::{ReadFailure, Tree};

/// More are not shown: nobody reads them.
const MAX_FINDINGS: usize = 1000;

/// Findings, each said once.
#[derive(Default)]
pub(crate) struct Findings {
    list: Vec<Finding>,
    said: HashSet<(&'static str, String, Location)>,
}

impl Findings {
    pub(crate) fn push(&mut self, finding: Finding) {
        let at = finding.places.first().map(|place| place.at.clone());
        let key = (
            finding.code,
            finding.message.clone(),
            at.unwrap_or_default(),
        );
        if self.list.len() < MAX_FINDINGS && self.said.insert(key) {
            self.list.push(finding);
        }
    }

    /// Adds one that is kept however many there are.
    pub(crate) fn push_always(&mut self, finding: Finding) {
        self.list.push(finding);
    }

    /// Whether more would not be kept, so that they need not be worked out.
    pub(crate) fn is_full(&self) -> bool {
        self.list.len() >= MAX_FINDINGS
    }

    pub(crate) fn into_list(self) -> Vec<Finding> {
        self.list
    }
}

pub(crate) struct Reader<'a> {
    pub(crate) tree: &'a dyn Tree,
    pub(crate) around: &'a Surroundings<'a>,
    pub(crate) findings: Findings,
    pub(crate) steps: Cell<usize>,
    /// First use of each kind of thing whose stage is not built yet.
    pub(crate) later: BTreeMap<String, Location>,
    /// Whether a file could not be parsed, so that what seems missing may be there.
    pub(crate) is_partial: bool,
    files: RefCell<BTreeMap<String, Option<String>>>,
}

/// Where an expression stands: the names it may use.
#[derive(Clone, Default)]
pub(crate) struct Scope {
    pub(crate) names: Names,
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

/// An attribute that was written, could be evaluated, and is of its kind.
pub(crate) struct Field {
    pub(crate) attr: &'static Attr,
    pub(crate) at: Range<usize>,
    pub(crate) val: Val,
    pub(crate) seen: Seen,
    /// The entries, if it is an object.
    pub(crate) items: Vec<Item>,
}

/// One entry of an object.
pub(crate) struct Item {
    pub(crate) key: String,
    pub(crate) key_at: Range<usize>,
    pub(crate) text: String,
    pub(crate) val: Val,
    pub(crate) seen: Seen,
}

impl Item {
    /// The value as it is kept: known if it needs nothing from elsewhere.
    pub(crate) fn input(&self, names: &Names) -> Input {
        let asks = !self.seen.env.is_empty() || !self.seen.secrets.is_empty();
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

/// Only the names that are used: what is kept must not change when something else does.
fn kept_names(names: &Names, seen: &Seen) -> Names {
    let mut kept = Names::new();
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
    pub(crate) fn new(tree: &'a dyn Tree, around: &'a Surroundings<'a>) -> Self {
        Self {
            tree,
            around,
            findings: Findings::default(),
            steps: Cell::new(0),
            later: BTreeMap::new(),
            is_partial: false,
            files: RefCell::new(BTreeMap::new()),
        }
    }

    pub(crate) fn note_later(&mut self, what: String, at: Location) {
        self.later.entry(what).or_insert(at);
    }

    /// What can be said of a block without evaluating anything: labels, unknown and missing words.
    pub(crate) fn shape(
        &mut self,
        source: &Source,
        block: &HclBlock,
        spec: &'static Block,
        implied: &[&str],
    ) {
        let head = head(block);
        if spec.later {
            self.note_later(
                format!("`{}` blocks", spec.word),
                source.location(head.clone()),
            );
        }
        self.labels(source, block, spec);
        let attrs = attrs(block, spec);
        for structure in &block.body {
            match structure {
                Structure::Attribute(attribute) => {
                    self.attribute_shape(source, attribute, spec, &attrs)
                }
                Structure::Block(inner) => self.inner_shape(source, inner, spec, &attrs),
            }
        }
        for inner in spec.blocks.iter().filter(|inner| !inner.many) {
            let word = inner.block.word;
            if let Some(second) = block.body.get_blocks(word).nth(1) {
                let finding = Finding::error(
                    "duplicate-block",
                    format!("`{word}` stands twice in one `{}`", spec.word),
                )
                .at(source.location(self::head(second)), "the second one");
                self.findings.push(finding);
            }
        }
        for attr in attrs
            .iter()
            .filter(|attr| attr.required && !implied.contains(&attr.name))
        {
            if !block.body.has_attribute(attr.name) {
                let finding = Finding::error(
                    "missing-attribute",
                    format!("{} has no `{}`", title(block), attr.name),
                )
                .at(
                    source.location(head.clone()),
                    format!("`{}` is required", attr.name),
                )
                .hint(format!("add `{} = …`: {}", attr.name, attr.doc));
                self.findings.push(finding);
            }
        }
    }

    /// The same for a block and all blocks inside it.
    pub(crate) fn deep_shape(
        &mut self,
        source: &Source,
        block: &HclBlock,
        spec: &'static Block,
        implied: &[&str],
    ) {
        self.shape(source, block, spec, implied);
        for (inner, spec) in inner_blocks(block, spec) {
            self.deep_shape(source, inner, spec, &[]);
        }
    }

    /// The attributes of all blocks inside a block: their kinds are checked, and what they refer to
    /// is handed to `each`.
    pub(crate) fn deep_fields(
        &mut self,
        source: &Source,
        block: &HclBlock,
        spec: &'static Block,
        scope: &Scope,
        each: &mut dyn FnMut(&Seen),
    ) {
        for (inner, spec) in inner_blocks(block, spec) {
            let mut scope = scope.clone();
            if inner.body.has_attribute("for_each") {
                scope.names.remove("each");
                scope.locals.push(("each".to_owned(), Val::Unknown));
            }
            for field in self.fields(source, inner, spec, &scope).iter() {
                each(&field.seen);
                field.items.iter().for_each(|item| each(&item.seen));
            }
            self.deep_fields(source, inner, spec, &scope, each);
        }
    }

    fn labels(&mut self, source: &Source, block: &HclBlock, spec: &'static Block) {
        if block.labels.len() != spec.labels.len() {
            let mut usage = spec.word.to_owned();
            for label in spec.labels {
                usage.push_str(&format!(" \"{}\"", label.name));
            }
            let finding = Finding::error(
                "wrong-labels",
                format!("`{}` is written as `{usage} {{ … }}`", spec.word),
            )
            .at(
                source.location(head(block)),
                format!("{} labels here", block.labels.len()),
            );
            self.findings.push(finding);
            return;
        }
        for (label, seen) in spec.labels.iter().zip(&block.labels) {
            let at = || source.location(label_span(seen));
            if label.words.is_empty() {
                if let Err(err) = check_name(seen.as_str()) {
                    let finding =
                        Finding::error("invalid-name", err.to_string()).at(at(), "this name");
                    self.findings.push(finding);
                }
            } else if !label.words.contains(&seen.as_str()) {
                let mut finding = Finding::error(
                    "unknown-kind",
                    format!("there is no {} `{}`", spec.word, seen.as_str()),
                )
                .at(at(), "unknown");
                finding.hint = suggest::hint(seen.as_str(), label.words.iter().copied());
                self.findings.push(finding);
            }
        }
    }

    fn attribute_shape(
        &mut self,
        source: &Source,
        attribute: &Attribute,
        spec: &'static Block,
        attrs: &[&'static Attr],
    ) {
        let name = attribute.key.as_str();
        if spec.open || self.findings.is_full() {
            return;
        }
        let at = source.location(attribute.key.span().unwrap_or(0..0));
        if let Some(attr) = attrs.iter().find(|attr| attr.name == name) {
            if attr.later {
                self.note_later(format!("`{name}` of `{}` blocks", spec.word), at);
            }
            return;
        }
        if spec.blocks.iter().any(|inner| inner.block.word == name) {
            let finding = Finding::error(
                "wrong-shape",
                format!("`{name}` is a block, not an attribute"),
            )
            .at(at, "written as an attribute")
            .hint(format!("write `{name} {{ … }}`"));
            self.findings.push(finding);
            return;
        }
        let variant = spec
            .variants
            .iter()
            .find(|variant| variant.attrs.iter().any(|attr| attr.name == name));
        let mut finding = Finding::error(
            "unknown-attribute",
            format!("`{}` has no attribute `{name}`", spec.word),
        )
        .at(at, "unknown attribute");
        finding.hint = match variant {
            Some(variant) => Some(format!(
                "it belongs to `{} \"{}\"`",
                spec.word, variant.label
            )),
            None => suggest::hint(name, attrs.iter().map(|attr| attr.name)),
        };
        self.findings.push(finding);
    }

    fn inner_shape(
        &mut self,
        source: &Source,
        inner: &HclBlock,
        spec: &'static Block,
        attrs: &[&'static Attr],
    ) {
        let word = inner.ident.as_str();
        if self.findings.is_full() || spec.blocks.iter().any(|known| known.block.word == word) {
            return;
        }
        let at = source.location(head(inner));
        let finding = if attrs.iter().any(|attr| attr.name == word) {
            Finding::error(
                "wrong-shape",
                format!("`{word}` is an attribute, not a block"),
            )
            .at(at, "written as a block")
            .hint(format!("write `{word} = …`"))
        } else if spec.open {
            Finding::error(
                "wrong-shape",
                format!("`{}` holds attributes only", spec.word),
            )
            .at(at, "this is a block")
            .hint(format!("write `{word} = {{ … }}`"))
        } else {
            let mut finding = Finding::error(
                "unknown-block",
                format!("`{}` has no block `{word}`", spec.word),
            )
            .at(at, "unknown block");
            let words = spec.blocks.iter().map(|known| known.block.word);
            finding.hint = suggest::hint(word, words.chain(attrs.iter().map(|attr| attr.name)));
            finding
        };
        self.findings.push(finding);
    }

    /// What the attributes of a block are worth, those that could not be read left out.
    pub(crate) fn fields(
        &mut self,
        source: &Source,
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
                self.field(source, attribute, attr, scope)
            })
            .collect();
        Fields { list }
    }

    /// One attribute of a block by its name.
    pub(crate) fn single(
        &mut self,
        source: &Source,
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
        source: &Source,
        attribute: &Attribute,
        attr: &'static Attr,
        scope: &Scope,
    ) -> Option<Field> {
        let expr = &attribute.value;
        let at = span(expr);
        let (val, seen, items) = match (attr.kind, expr) {
            (Kind::Map, Expression::Object(object)) => {
                let items: Vec<Item> = object
                    .iter()
                    .filter_map(|(key, value)| {
                        self.item(source, key, value.expr(), attr.refs, scope)
                    })
                    .collect();
                let val = items
                    .iter()
                    .map(|item| (item.key.clone(), item.val.clone()))
                    .collect();
                (Val::Object(val), Seen::default(), items)
            }
            _ => {
                let (val, seen) = self.evaluate(source, expr, attr.refs, scope)?;
                let items = if attr.kind == Kind::Map {
                    whole_items(source.slice(at.clone()), &val, &seen, &at)
                } else {
                    Vec::new()
                };
                (val, seen, items)
            }
        };
        if val == Val::Null {
            return None; // as if it were not written
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
        if attr.kind == Kind::Map
            && val == Val::Unknown
            && attr.refs != Refs::Own
            && attr.refs != Refs::Gate
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
        source: &Source,
        key: &ObjectKey,
        value: &Expression,
        refs: Refs,
        scope: &Scope,
    ) -> Option<Item> {
        let key_at = key.span().unwrap_or(0..0);
        let name = match key {
            ObjectKey::Ident(name) => name.as_str().to_owned(),
            ObjectKey::Expression(expr) => {
                let (val, _) = self.evaluate(source, expr, Refs::Load, scope)?;
                match val.in_template() {
                    Some(name) => name,
                    None => {
                        let problem = Problem::new(
                            span(expr),
                            format!("a key must be a string, this is {}", val.what()),
                        );
                        self.problem(source, problem);
                        return None;
                    }
                }
            }
        };
        let (val, seen) = self.evaluate(source, value, refs, scope)?;
        Some(Item {
            key: name,
            key_at,
            text: source.slice(span(value)).to_owned(),
            val,
            seen,
        })
    }

    /// An attribute that no table knows, as an entry.
    pub(crate) fn open_item(
        &mut self,
        source: &Source,
        attribute: &Attribute,
        scope: &Scope,
    ) -> Option<Item> {
        let (val, seen) = self.evaluate(source, &attribute.value, Refs::Later, scope)?;
        Some(Item {
            key: attribute.key.as_str().to_owned(),
            key_at: attribute.key.span().unwrap_or(0..0),
            text: source.slice(span(&attribute.value)).to_owned(),
            val,
            seen,
        })
    }

    pub(crate) fn evaluate(
        &mut self,
        source: &Source,
        expr: &Expression,
        refs: Refs,
        scope: &Scope,
    ) -> Option<(Val, Seen)> {
        let host = Loading {
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

    pub(crate) fn problem(&mut self, source: &Source, problem: Problem) {
        let mut finding = Finding::error(problem.code, problem.message)
            .at(source.location(problem.span), problem.label);
        finding.hint = problem.hint;
        self.findings.push(finding);
    }

    fn secrets(&mut self, source: &Source, seen: &Seen) {
        for (reference, at) in &seen.secrets {
            let at = source.location(at.clone());
            match kinds::secret_source(reference) {
                Ok(scheme) if matches!(scheme, "env" | "file" | "command") => {}
                Ok(scheme) => self.note_later(format!("`{scheme}:` secrets"), at),
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

/// The entries of an object that is not written out: each is a part of the whole expression.
fn whole_items(text: &str, val: &Val, seen: &Seen, at: &Range<usize>) -> Vec<Item> {
    let Val::Object(entries) = val else {
        return Vec::new();
    };
    entries
        .iter()
        .map(|(key, val)| {
            let known = val.is_known();
            Item {
                key: key.clone(),
                key_at: at.clone(),
                text: format!("({text})[{}]", quoted(key)),
                val: val.clone(),
                seen: if known { Seen::default() } else { seen.clone() },
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

/// The blocks inside a block that the table knows.
pub(crate) fn inner_blocks<'b>(
    block: &'b HclBlock,
    spec: &'static Block,
) -> impl Iterator<Item = (&'b HclBlock, &'static Block)> {
    block.body.blocks().filter_map(|inner| {
        let known = spec
            .blocks
            .iter()
            .find(|known| known.block.word == inner.ident.as_str())?;
        Some((inner, known.block))
    })
}

/// All attributes a block may have: its own and those of its variant.
pub(crate) fn attrs(block: &HclBlock, spec: &'static Block) -> Vec<&'static Attr> {
    let variant = variant(block, spec).map_or(&[][..], |variant| variant.attrs);
    spec.attrs.iter().chain(variant).collect()
}

fn variant(block: &HclBlock, spec: &'static Block) -> Option<&'static Variant> {
    let label = block.labels.first()?.as_str();
    spec.variants.iter().find(|variant| variant.label == label)
}

/// `stack "dns"` of `stack "dns" {`.
pub(crate) fn head(block: &HclBlock) -> Range<usize> {
    let start = block.ident.span().unwrap_or(0..0);
    let end = block
        .labels
        .last()
        .map_or(start.end, |label| label_span(label).end);
    start.start..end.max(start.end)
}

pub(crate) fn label_span(label: &BlockLabel) -> Range<usize> {
    match label {
        BlockLabel::Ident(ident) => ident.span(),
        BlockLabel::String(text) => text.span(),
    }
    .unwrap_or(0..0)
}

/// How a block is called in a message.
pub(crate) fn title(block: &HclBlock) -> String {
    match block.labels.last() {
        Some(label) => format!("{} `{}`", block.ident.as_str(), label.as_str()),
        None => format!("`{}`", block.ident.as_str()),
    }
}

/// The world while the file is read: the tree, the loader's environment, and nothing that runs.
struct Loading<'r, 'a> {
    reader: &'r Reader<'a>,
    later: bool,
}

impl Host for Loading<'_, '_> {
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
