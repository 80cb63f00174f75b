//! Expands blocks to stacks: `for_each`, `discover`, `stack.hcl`, `enabled`.
//!
//! Not here: what a stack's attributes mean (`stack`).

use std::collections::{BTreeMap, BTreeSet};

use hcl_edit::expr::Expression;
use hcl_edit::template::Element;
use serde_json::{Value, json};

use crate::base::diagnostic::{Finding, Location};
use crate::base::ids::StackName;
use crate::hcl::paths;
use crate::hcl::value::Val;
use crate::project::config::project::OuterBlock;
use crate::project::config::reader::{Reader, Scope};
use crate::project::config::schema;
use crate::project::config::shape::head;
use crate::project::config::stack_schema::{DISCOVER, STACK};
use crate::project::config::walk::Dirs;

const MAX_STACKS: usize = 10_000;

/// A stack to be created: its block, the names bound in it, and its own name.
pub(crate) struct StackInstance<'f> {
    pub(crate) item: OuterBlock<'f>,
    /// The `discover` block whose attributes are its defaults.
    pub(crate) defaults: Option<OuterBlock<'f>>,
    pub(crate) scope: Scope,
    pub(crate) name: StackName,
    /// Its directory, if the block does not set it.
    pub(crate) dir: Option<String>,
    pub(crate) at: Location,
}

/// The stacks that the blocks define.
#[derive(Default)]
pub(crate) struct Expanded<'f> {
    pub(crate) instances: Vec<StackInstance<'f>>,
    /// Disabled stacks, for hints.
    pub(crate) disabled: BTreeSet<String>,
    /// Name prefixes of stacks that could not be created.
    pub(crate) unmade: Vec<String>,
}

impl Expanded<'_> {
    /// Records a block whose stacks could not be created: by the literal part of its `name`, or else by its label.
    fn is_missing(&mut self, item: OuterBlock<'_>) {
        let name = item.block.body.get_attribute("name");
        let begin = match name.map(|name| &name.value) {
            Some(Expression::String(name)) => name.as_str(),
            Some(Expression::StringTemplate(template)) => match template.iter().next() {
                Some(Element::Literal(text)) => text.as_str(),
                _ => "",
            },
            Some(_) => "",
            None if item.spec.word == DISCOVER.word => "",
            None => item.name(),
        };
        self.unmade.push(begin.to_owned());
    }
}

pub(crate) struct Blocks<'f> {
    pub(crate) stacks: Vec<OuterBlock<'f>>,
    pub(crate) discovers: Vec<OuterBlock<'f>>,
    /// The block of each `stack.hcl`, by its directory.
    pub(crate) beside: BTreeMap<String, OuterBlock<'f>>,
}

pub(crate) fn expand<'f>(
    reader: &mut Reader<'_>,
    blocks: &Blocks<'f>,
    scope: &Scope,
    dirs: &Dirs,
) -> Expanded<'f> {
    let mut out = Expanded::default();
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for item in &blocks.stacks {
        reader.deep_shape(item.source, item.block, item.spec, &[]);
        if let Some(path) = item
            .block
            .body
            .get_attribute("path")
            .and_then(|path| path.value.as_str())
            && let Ok(path) = paths::normalize(path)
        {
            taken.insert(path);
        }
        let origin = Origin {
            item: *item,
            defaults: None,
            dir: None,
        };
        for_each(reader, origin, scope, &mut out);
    }
    let mut found: BTreeSet<&str> = BTreeSet::new();
    for item in &blocks.discovers {
        reader.deep_shape(item.source, item.block, item.spec, &[]);
        let here = discover(reader, *item, scope, dirs, &mut out);
        let is_new = |dir: &str| !taken.contains(dir) && !found.contains(dir);
        if !here.is_empty() && !here.iter().any(|(dir, _)| is_new(dir)) {
            reader.findings.push(nothing_new(*item));
        }
        for (dir, scope) in here {
            if taken.contains(dir) || !found.insert(dir) {
                continue; // has a block, or was found by an earlier one
            }
            match blocks.beside.get(dir) {
                Some(beside) => {
                    let implied: Vec<&str> = item
                        .block
                        .body
                        .attributes()
                        .map(|attribute| attribute.key.as_str())
                        .chain(["path"])
                        .collect();
                    reader.deep_shape(beside.source, beside.block, beside.spec, &implied);
                    let origin = Origin {
                        item: *beside,
                        defaults: Some(*item),
                        dir: Some(dir),
                    };
                    for_each(reader, origin, &scope, &mut out);
                }
                None => named(reader, Origin::found(*item, dir), scope, None, &mut out),
            }
        }
    }
    for (dir, item) in &blocks.beside {
        if !found.contains(dir.as_str()) {
            reader.deep_shape(item.source, item.block, item.spec, &["path"]);
            for_each(reader, Origin::found(*item, dir), scope, &mut out);
        }
    }
    out
}

/// Where a stack comes from.
#[derive(Clone, Copy)]
struct Origin<'f, 'd> {
    item: OuterBlock<'f>,
    /// The `discover` block that found it, for what its own block does not set.
    defaults: Option<OuterBlock<'f>>,
    dir: Option<&'d str>,
}

impl<'f, 'd> Origin<'f, 'd> {
    /// A block that describes the stack in this directory alone.
    fn found(item: OuterBlock<'f>, dir: &'d str) -> Self {
        Self {
            item,
            defaults: None,
            dir: Some(dir),
        }
    }
}

/// One stack, or one per entry of `for_each`.
fn for_each<'f>(
    reader: &mut Reader<'_>,
    origin: Origin<'f, '_>,
    scope: &Scope,
    out: &mut Expanded<'f>,
) {
    let item = origin.item;
    if item.block.labels.len() != item.spec.labels.len() {
        out.is_missing(item);
        return;
    }
    if !item.block.body.has_attribute("for_each") {
        named(reader, origin, scope.clone(), None, out);
        return;
    }
    let Some(field) = reader.single(item.source, &item.block.body, &STACK, "for_each", scope)
    else {
        out.is_missing(item);
        return;
    };
    let entries: Vec<(String, Value)> = match &field.val {
        Val::Object(entries) => entries
            .iter()
            .filter_map(|(key, value)| Some((key.clone(), value.to_json()?)))
            .collect(),
        Val::List(items) => items
            .iter()
            .filter_map(|item| Some((item.as_text()?.to_owned(), item.to_json()?)))
            .collect(),
        _ => Vec::new(),
    };
    let mut seen = BTreeSet::new();
    for (key, value) in entries {
        if !seen.insert(key.clone()) {
            let at = item.source.location(field.at.clone());
            reader.findings.push(
                Finding::error("duplicate-name", format!("`for_each` holds `{key}` twice"))
                    .at(at, "in this list"),
            );
            continue;
        }
        let scope = scope.with("each", json!({ "key": key, "value": value }));
        named(reader, origin, scope, Some(&key), out);
    }
}

/// Names an instance, unless it is disabled.
fn named<'f>(
    reader: &mut Reader<'_>,
    origin: Origin<'f, '_>,
    scope: Scope,
    key: Option<&str>,
    out: &mut Expanded<'f>,
) {
    let Origin {
        item,
        defaults,
        dir,
    } = origin;
    if out.instances.len() >= MAX_STACKS {
        reader.findings.push(
            Finding::error(
                "too-many-stacks",
                format!("there are more than {MAX_STACKS} stacks"),
            )
            .at(item.at(), "here"),
        );
        out.unmade.push(String::new());
        return;
    }
    let (source, body) = (item.source, &item.block.body);
    let mut at = item.at();
    let mut given = None;
    if body.has_attribute("name") {
        let Some(field) = reader.single(source, body, item.spec, "name", &scope) else {
            out.is_missing(item);
            return;
        };
        at = source.location(field.at.clone());
        given = field.val.as_text().map(str::to_owned);
    }
    let raw = match (given, key) {
        (Some(name), _) => name,
        (None, Some(key)) => format!("{}-{key}", item.name()),
        (None, None) => item.name().to_owned(),
    };
    let name: StackName = match raw.parse() {
        Ok(name) => name,
        Err(err) => {
            reader.findings.push(
                Finding::error("invalid-name", err.to_string()).at(at, "the name of this stack"),
            );
            out.is_missing(item);
            return;
        }
    };
    let enabled = [Some(item), defaults]
        .into_iter()
        .flatten()
        .find_map(|item| {
            reader.single(item.source, &item.block.body, item.spec, "enabled", &scope)
        });
    if enabled.is_some_and(|field| field.val == Val::Bool(false)) {
        out.disabled.insert(raw);
        return;
    }
    out.instances.push(StackInstance {
        item,
        defaults,
        scope,
        name,
        dir: dir.map(str::to_owned),
        at,
    });
}

/// The directories that a `discover` block finds, each with its bound names.
fn discover<'d>(
    reader: &mut Reader<'_>,
    item: OuterBlock<'_>,
    scope: &Scope,
    dirs: &'d Dirs,
    out: &mut Expanded<'_>,
) -> Vec<(&'d str, Scope)> {
    let Some(field) = reader.single(item.source, &item.block.body, &DISCOVER, "glob", scope) else {
        out.is_missing(item);
        return Vec::new();
    };
    let at = item.source.location(field.at.clone());
    let pattern = field.val.as_text().unwrap_or_default();
    let matcher = match paths::normalize(pattern) {
        Ok(pattern) => paths::compile_glob(&pattern),
        Err(leaves) => Err(leaves.to_string()),
    };
    let matcher = match matcher {
        Ok(matcher) => matcher,
        Err(message) => {
            reader
                .findings
                .push(Finding::error("invalid-value", message).at(at, "this glob"));
            out.is_missing(item);
            return Vec::new();
        }
    };
    let found: Vec<(&str, Scope)> = dirs
        .engine_dirs(reader.tree)
        .into_iter()
        .filter(|dir| matcher.is_match(dir))
        .map(|dir| (dir, scope.with("dir", dir_names(dir))))
        .collect();
    if found.is_empty() {
        let finding = Finding::warning(
            "nothing-discovered",
            format!("discover `{}` finds nothing", item.name()),
        )
        .at(at, "no directory with files of the engine matches")
        .hint("the glob counts from the project's root and matches directories");
        reader.findings.push(finding);
    }
    found
}

fn nothing_new(item: OuterBlock<'_>) -> Finding {
    Finding::warning(
        "nothing-discovered",
        format!("discover `{}` finds nothing of its own", item.name()),
    )
    .at(item.at(), "all of it is a stack by other blocks")
    .hint("of several `discover` blocks the first takes a directory, and a `stack` block comes before all of them")
}

/// `dir.path` and `dir[N]`.
fn dir_names(dir: &str) -> Value {
    let mut names = serde_json::Map::new();
    names.insert("path".to_owned(), json!(dir));
    for (at, part) in dir.split('/').enumerate() {
        names.insert(at.to_string(), json!(part));
    }
    Value::Object(names)
}

/// A `stack.hcl` contains one `stack` block that does not set its directory.
pub(crate) fn beside<'f>(
    reader: &mut Reader<'_>,
    file: &'f crate::hcl::syntax::ParsedFile,
) -> Option<OuterBlock<'f>> {
    let source = &file.source;
    let mut stack = None;
    for structure in &file.body {
        match structure {
            hcl_edit::structure::Structure::Block(block)
                if block.ident.as_str() == "stack" && stack.is_none() =>
            {
                stack = Some(OuterBlock {
                    source,
                    block,
                    spec: &STACK as &'static schema::Block,
                });
            }
            hcl_edit::structure::Structure::Block(block) => {
                let finding = Finding::error(
                    "unknown-block",
                    "a `stack.hcl` holds one `stack` block and nothing else",
                )
                .at(source.location(head(block)), "this is more")
                .hint("other blocks belong into `terrane.hcl`");
                reader.findings.push(finding);
            }
            hcl_edit::structure::Structure::Attribute(attribute) => {
                let at = hcl_edit::Span::span(&attribute.key).unwrap_or(0..0);
                let finding = Finding::error(
                    "unknown-attribute",
                    "a `stack.hcl` holds one `stack` block and nothing else",
                )
                .at(source.location(at), "this is an attribute");
                reader.findings.push(finding);
            }
        }
    }
    let item = stack;
    if let Some(item) = item
        && let Some(path) = item.block.body.get_attribute("path")
    {
        let at = hcl_edit::Span::span(&path.key).unwrap_or(0..0);
        let finding = Finding::error(
            "unknown-attribute",
            "a `stack.hcl` lies in its stack's directory, so it has no `path`",
        )
        .at(source.location(at), "remove this");
        reader.findings.push(finding);
    }
    item
}
