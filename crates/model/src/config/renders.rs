//! What a `render` block becomes.
//!
//! What is not there is only a warning: it may be made by somebody else. Not here: reading it (the crate `render`).

use std::collections::BTreeMap;
use std::str::FromStr as _;

use hcl_edit::structure::Block as HclBlock;
use serde_json::Value;

use super::paths;
use super::project::Item;
use super::reader::{Fields, Reader, Scope};
use super::schema::{CHECK, DELIMITERS, EACH};
use super::syntax::Source;
use crate::diagnostic::{Finding, Location};
use crate::project::Input;
use crate::render::checks::{Check, CheckKind};
use crate::render::{Delimiters, Render, Select, Spaces, Undefined};
use crate::tree::Tree;

pub(crate) fn read_render(reader: &mut Reader<'_>, item: Item<'_>, scope: &Scope) -> Render {
    let fields = reader.fields(item.source, item.block, item.spec, scope);
    let path = |name: &str| {
        let written = fields.text(name)?;
        paths::normalize(written).ok()
    };
    let secrets = secrets(reader, item, &fields, scope);
    let spaces = Spaces::default();
    let suffix = fields.text("suffix").unwrap_or(".j2").to_owned();
    if suffix.is_empty() || suffix.contains('/') {
        let message = "`suffix` must be an ending such as `.j2`";
        wrong(reader, item.source, &fields, "suffix", message);
    }
    let templates = templates(reader, item, &fields);
    let data = normal(&fields.texts("data"));
    warn_of_missing(reader, item, &fields, "templates", &templates);
    warn_of_missing(reader, item, &fields, "data", &data);
    let mut places = Places::new();
    for name in ["templates", "data", "schema", "exclude", "sensitive"] {
        if let Some(field) = fields.get(name) {
            places.insert(name.to_owned(), item.source.location(field.at.clone()));
        }
    }
    for name in ["secrets", "values", "when"] {
        note_entries(&mut places, item.source, &fields, name, name);
    }
    Render {
        name: item.name().to_owned(),
        templates,
        data,
        output: path("output").unwrap_or_default(),
        schema: path("schema"),
        suffix,
        undefined: fields
            .text("undefined")
            .map(Undefined::of)
            .unwrap_or_default(),
        exclude: fields.texts("exclude"),
        keep_empty: fields.bool("keep_empty").unwrap_or(false),
        spaces: Spaces {
            trim_blocks: fields.bool("trim_blocks").unwrap_or(spaces.trim_blocks),
            lstrip_blocks: fields.bool("lstrip_blocks").unwrap_or(spaces.lstrip_blocks),
            keep_trailing_newline: fields
                .bool("keep_trailing_newline")
                .unwrap_or(spaces.keep_trailing_newline),
        },
        delimiters: delimiters(reader, item, scope),
        defaults: fields
            .get("defaults")
            .and_then(|field| field.val.to_json())
            .unwrap_or(Value::Null),
        values: expressions(reader, item.source, &fields, "values"),
        when: expressions(reader, item.source, &fields, "when"),
        each: each(reader, item, scope, &mut places),
        secrets,
        sensitive: fields.texts("sensitive"),
        checks: checks(reader, item, scope, &mut places),
        declared_at: item.at(),
        places,
    }
}

/// Entries of `secrets`; one that is made of a secret is none.
fn secrets(
    reader: &mut Reader<'_>,
    item: Item<'_>,
    fields: &Fields,
    scope: &Scope,
) -> BTreeMap<String, Input> {
    let mut secrets = BTreeMap::new();
    for entry in fields.get("secrets").map_or(&[][..], |field| &field.items) {
        let input = entry.input(&scope.names);
        let is_one = matches!(&input, Input::Expression(it) if it.needs.secrets.len() == 1 && it.text.trim_start().starts_with("secret("));
        if is_one {
            secrets.insert(entry.key.clone(), input);
        } else {
            let at = item.source.location(entry.key_at.clone());
            let message = format!("`{}` of `secrets` is no secret", entry.key);
            reader.findings.push(
                Finding::error("wrong-type", message)
                    .at(at, "expected `secret(\"REF\")`")
                    .hint("what is made of it belongs into `values`"),
            );
        }
    }
    secrets
}

/// The directories of templates: one, or a list.
fn templates(reader: &mut Reader<'_>, item: Item<'_>, fields: &Fields) -> Vec<String> {
    let written = match fields.text("templates") {
        Some(one) => vec![one.to_owned()],
        None => fields.texts("templates"),
    };
    let templates = normal(&written);
    if templates.iter().any(String::is_empty) {
        let message = "`templates` must be a directory of its own, not the project's root";
        wrong(reader, item.source, fields, "templates", message);
    }
    if fields.get("templates").is_some() && written.is_empty() {
        let message = "`templates` must name a directory";
        wrong(reader, item.source, fields, "templates", message);
    }
    templates
}

fn normal(written: &[String]) -> Vec<String> {
    let paths = written.iter().map(|path| paths::normalize(path));
    paths.filter_map(Result::ok).collect()
}

fn warn_of_missing(
    reader: &mut Reader<'_>,
    item: Item<'_>,
    fields: &Fields,
    name: &str,
    paths: &[String],
) {
    let tree = reader.tree;
    for path in paths.iter().filter(|path| !is_there(tree, path)) {
        let at = fields.get(name).map_or(0..0, |field| field.at.clone());
        let message = format!(
            "render `{}` reads `{path}`, which is not there",
            item.name()
        );
        reader.findings.push(
            Finding::warning("missing-file", message)
                .at(item.source.location(at), "named here")
                .hint("paths count from the project's root"),
        );
    }
}

fn is_there(tree: &dyn Tree, path: &str) -> bool {
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    let entries = tree.list(dir).unwrap_or_default();
    path.is_empty() || entries.iter().any(|entry| entry.name == name)
}

type Places = BTreeMap<String, Location>;

/// Where the entries of an object stand.
fn note_entries(places: &mut Places, source: &Source, fields: &Fields, name: &str, part: &str) {
    for entry in fields.get(name).map_or(&[][..], |field| &field.items) {
        let part = format!("{part}.{}", entry.key);
        places.insert(part, source.location(entry.key_at.clone()));
    }
}

/// The entries of an object, each a text.
fn expressions(
    reader: &mut Reader<'_>,
    source: &Source,
    fields: &Fields,
    name: &str,
) -> BTreeMap<String, String> {
    let items = fields.get(name).map_or(&[][..], |field| &field.items);
    let mut all = BTreeMap::new();
    for entry in items {
        if let Some(text) = entry.val.as_text() {
            all.insert(entry.key.clone(), text.to_owned());
            continue;
        }
        let message = format!("`{}` of `{name}` is {}", entry.key, entry.val.what());
        let at = source.location(entry.key_at.clone());
        let finding = Finding::error("wrong-type", message)
            .at(at, "expected a Jinja expression in quotes")
            .hint("such as `\"proxmox_node is defined\"`; plain data go into `defaults`");
        reader.findings.push(finding);
    }
    all
}

fn delimiters(reader: &mut Reader<'_>, item: Item<'_>, scope: &Scope) -> Delimiters {
    let mut read = Delimiters::default();
    let Some(block) = item.block.body.get_blocks("delimiters").next() else {
        return read;
    };
    let fields = reader.fields(item.source, block, &DELIMITERS, scope);
    for (name, pair) in [
        ("block", &mut read.block),
        ("variable", &mut read.variable),
        ("comment", &mut read.comment),
    ] {
        if fields.get(name).is_none() {
            continue;
        }
        match <[String; 2]>::try_from(fields.texts(name)) {
            Ok([start, end]) if !start.is_empty() && !end.is_empty() => *pair = (start, end),
            _ => wrong(
                reader,
                item.source,
                &fields,
                name,
                "delimiters are a start and an end, such as `[\"#%\", \"%#\"]`",
            ),
        }
    }
    read
}

fn each(
    reader: &mut Reader<'_>,
    item: Item<'_>,
    scope: &Scope,
    places: &mut Places,
) -> BTreeMap<String, BTreeMap<String, String>> {
    let blocks: Vec<&HclBlock> = item.block.body.get_blocks("each").collect();
    let mut all: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for block in blocks {
        let fields = reader.fields(item.source, block, &EACH, scope);
        let values = expressions(reader, item.source, &fields, "values");
        if let Some(list) = fields.text("list") {
            let part = format!("each.{list}");
            note_entries(places, item.source, &fields, "values", &part);
            if let Some(field) = fields.get("list") {
                places.insert(part, item.source.location(field.at.clone()));
            }
            all.entry(list.to_owned()).or_default().extend(values);
        }
    }
    all
}

fn checks(
    reader: &mut Reader<'_>,
    item: Item<'_>,
    scope: &Scope,
    places: &mut Places,
) -> Vec<Check> {
    let blocks: Vec<&HclBlock> = item.block.body.get_blocks("check").collect();
    let mut all = Vec::new();
    for block in blocks {
        let fields = reader.fields(item.source, block, &CHECK, scope);
        let label = block.labels.first().map_or("", |label| label.as_str());
        let Some(kind) = CheckKind::of(label) else {
            continue; // said already
        };
        let check = Check {
            kind,
            paths: selects(reader, item.source, &fields, "paths"),
            of: selects(reader, item.source, &fields, "of"),
        };
        if kind.wants_of() && check.of.is_empty() {
            let message = format!("`check \"{label}\"` needs `of`");
            let at = fields
                .get("paths")
                .map_or_else(|| item.at(), |field| item.source.location(field.at.clone()));
            reader
                .findings
                .push(Finding::error("missing-attribute", message).at(at, "held against what?"));
        }
        if let Some(field) = fields.get("paths") {
            let at = item.source.location(field.at.clone());
            places.insert(format!("check.{}", all.len()), at);
        }
        all.push(check);
    }
    all
}

fn selects(
    reader: &mut Reader<'_>,
    source: &Source,
    fields: &Fields,
    name: &'static str,
) -> Vec<Select> {
    let mut all = Vec::new();
    for text in fields.texts(name) {
        match Select::from_str(&text) {
            Ok(select) => all.push(select),
            Err(err) => wrong(reader, source, fields, name, &err.to_string()),
        }
    }
    all
}

fn wrong(reader: &mut Reader<'_>, source: &Source, fields: &Fields, name: &str, message: &str) {
    let at = fields
        .get(name)
        .map_or_else(Location::default, |field| source.location(field.at.clone()));
    let finding = Finding::error("invalid-value", message).at(at, "here");
    reader.findings.push(finding);
}
