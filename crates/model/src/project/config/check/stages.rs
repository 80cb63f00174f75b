//! Finds mistakes in stage blocks before anything is applied.
//!
//! Not here: names and kinds of attributes (`shape`, `kinds`), files (`control::project::stage_files`), values that are only
//! known after the apply (`gate::Gate::read_all`).

use std::collections::BTreeMap;

use hcl_edit::structure::Block as HclBlock;
use serde_json::Value;

use crate::base::diagnostic::{Finding, Location};
use crate::base::duration;
use crate::hcl::evaluator::span;
use crate::hcl::expression::Input;
use crate::hcl::suggest;
use crate::hcl::syntax::SourceFile;
use crate::project::config::project::OuterBlock;
use crate::project::config::reader::{Fields, Reader, Scope, each_unknown};
use crate::project::config::schema::Block;
use crate::project::config::shape::{head, label_span};
use crate::project::config::stack_schema::GATE;
use crate::stage::StageBlock;
use crate::stage::gate::Gate;
use crate::stage::kubernetes::{is_key, is_label};

/// Values that can never work, each with its location.
pub(crate) fn settings(
    reader: &mut Reader<'_>,
    source: &SourceFile,
    written: &HclBlock,
    spec: &'static Block,
    block: &StageBlock,
) {
    let place = |attribute: &str| {
        let attribute = written.body.get_attribute(attribute);
        let at = attribute.map_or_else(|| head(written), |found| span(&found.value));
        source.location(at)
    };
    if spec.word == "gate" {
        for error in Gate::check_known(block) {
            let at = place(error.attribute.as_deref().unwrap_or_default());
            let mut finding = Finding::error("gate-settings", error.to_string()).at(at, "here");
            finding.hint = error.hint;
            reader.findings.push(finding);
        }
    }
    if spec.word == "bootstrap"
        && let Some(Input::Known(Value::String(timeout))) = block.attrs.get("timeout")
        && duration::parse(timeout).is_some_and(|limit| limit.is_zero())
    {
        let finding = Finding::error("bootstrap-settings", "a step without time cannot end well")
            .at(place("timeout"), "here")
            .hint("leave it out for the usual limits, or write one such as `15m`");
        reader.findings.push(finding);
    }
}

/// Checks a Secret's namespace and entry names by the rules of Kubernetes.
pub(crate) fn secret(
    reader: &mut Reader<'_>,
    source: &SourceFile,
    written: &HclBlock,
    fields: &Fields,
) {
    let mut wrong = |at: Location, message: String, hint: &str| {
        let finding = Finding::error("invalid-name", message).at(at, "here");
        reader.findings.push(finding.hint(hint));
    };
    let place = |name: &str| {
        let field = fields.get(name);
        field.map_or_else(|| head(written), |field| field.at.clone())
    };
    if let Some(namespace) = fields.text("namespace")
        && !is_label(namespace)
    {
        let message = format!("a namespace cannot be called `{namespace}`");
        let at = source.location(place("namespace"));
        wrong(at, message, "small letters, digits and `-`: `flux-system`");
    }
    let entries = fields.get("data").map_or(&[][..], |field| &field.items);
    for entry in entries.iter().filter(|entry| !is_key(&entry.key)) {
        let message = format!("an entry of a Secret cannot be called `{}`", entry.key);
        let at = source.location(place("data"));
        wrong(
            at,
            message,
            "letters, digits, `-`, `_` and `.`: `age.agekey`",
        );
    }
}

/// Gates must have unique names, must not wait in cycles, and need something to compare with.
pub(crate) fn gates(reader: &mut Reader<'_>, item: &OuterBlock<'_>, scope: &Scope) {
    let mut known: BTreeMap<&str, Location> = BTreeMap::new();
    let blocks: Vec<&HclBlock> = item
        .block
        .body
        .get_blocks("gate")
        .filter(|block| block.labels.len() == 2)
        .collect();
    for block in &blocks {
        let at = item.source.location(label_span(&block.labels[1]));
        let name = block.labels[1].as_str();
        if let Some(first) = known.get(name) {
            let finding = Finding::error(
                "duplicate-name",
                format!(
                    "gate `{name}` is defined twice in {} `{}`",
                    item.spec.word,
                    item.name()
                ),
            )
            .at(at, "again here")
            .at(first.clone(), "first here");
            reader.findings.push(finding);
        } else {
            known.insert(name, at);
        }
    }
    for block in &blocks {
        let has = |name: &str| block.body.has_attribute(name);
        let wanting = match block.labels[0].as_str() {
            "dns" if !has("expect") && !has("absent") => Some("`expect` or `absent`"),
            "kubernetes" if !has("condition") && !has("field") => {
                Some("`condition`, or `field` with `expect`")
            }
            "kubernetes" if has("field") && !has("expect") => Some("`expect` beside `field`"),
            "oidc" if has("login_url") && !has("client_id") => {
                Some("`client_id` beside `login_url`")
            }
            _ => None,
        };
        if let Some(wanting) = wanting {
            let finding = Finding::error(
                "missing-attribute",
                format!(
                    "gate `{}` has nothing to compare with",
                    block.labels[1].as_str()
                ),
            )
            .at(
                item.source.location(head(block)),
                format!("it requires {wanting}"),
            );
            reader.findings.push(finding);
        }
        let fields = reader.fields(item.source, block, &GATE, &each_unknown(block, scope));
        let time_of = |name: &str| {
            let other = blocks.iter().find(|other| other.labels[1].as_str() == name);
            other.map(|other| when(other))
        };
        for after in fields.texts("after") {
            let other = time_of(&after);
            if other.is_some_and(|other| Some(other) != time_of(block.labels[1].as_str())) {
                let at = fields
                    .get("after")
                    .map(|field| item.source.location(field.at.clone()));
                let finding = Finding::error(
                    "unknown-gate",
                    format!("gate `{after}` is checked at another time: its `when` differs"),
                )
                .at(at.unwrap_or_default(), "in this list");
                reader.findings.push(finding);
            }
            if !known.contains_key(after.as_str()) {
                let at = fields
                    .get("after")
                    .map(|field| item.source.location(field.at.clone()));
                let mut finding = Finding::error(
                    "unknown-gate",
                    format!(
                        "there is no gate `{after}` in {} `{}`",
                        item.spec.word,
                        item.name()
                    ),
                )
                .at(at.unwrap_or_default(), "in this list");
                finding.hint = suggest::hint(&after, known.keys().copied());
                reader.findings.push(finding);
            }
        }
    }
    cycles(reader, item, &blocks, scope);
}

/// `applied` or `destroyed`, if it is a literal.
fn when(block: &HclBlock) -> &str {
    let written = block.body.get_attribute("when");
    written
        .and_then(|written| written.value.as_str())
        .unwrap_or("applied")
}

/// Gates that wait for themselves.
fn cycles(reader: &mut Reader<'_>, item: &OuterBlock<'_>, blocks: &[&HclBlock], scope: &Scope) {
    let mut after: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut places = BTreeMap::new();
    for block in blocks {
        let fields = reader.fields(item.source, block, &GATE, &each_unknown(block, scope));
        let name = block.labels[1].as_str();
        after.insert(name, fields.texts("after"));
        if let Some(field) = fields.get("after") {
            places.insert(name, item.source.location(field.at.clone()));
        }
    }
    // Gates that wait for nothing are removed, until nothing changes.
    loop {
        let free = after.iter().find(|(_, names)| {
            let mut names = names.iter();
            names.all(|name| !after.contains_key(name.as_str()))
        });
        let Some(free) = free.map(|(name, _)| *name) else {
            break;
        };
        after.remove(free);
    }
    let Some(first) = after.keys().next().copied() else {
        return;
    };
    // Every remaining gate waits for another remaining one.
    let mut way = vec![first];
    loop {
        let last = way[way.len() - 1];
        let names = after.get(last).into_iter().flatten();
        let next = names.filter_map(|name| after.get_key_value(name.as_str()));
        let Some((&next, _)) = next.into_iter().next() else {
            return;
        };
        if let Some(start) = way.iter().position(|name| *name == next) {
            way.drain(..start);
            break;
        }
        way.push(next);
    }
    let mut names: Vec<String> = way.iter().map(|name| format!("`{name}`")).collect();
    names.extend(names.first().cloned());
    let message = format!("gates wait for each other: {}", names.join(" after "));
    let mut finding = Finding::error("gate-cycle", message);
    for name in &way {
        if let Some(at) = places.get(name) {
            finding = finding.at(at.clone(), format!("`{name}` waits here"));
        }
    }
    reader
        .findings
        .push(finding.hint("leave one of them out of `after`"));
}
