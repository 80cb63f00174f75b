//! Reads a stack's block.
//!
//! Not here: which stacks there are (`expand`), whether their references exist (`check`).

use std::collections::{BTreeMap, BTreeSet};

use hcl_edit::expr::{Expression, ObjectKey};
use serde_json::json;

use crate::base::diagnostic::{Finding, Location};
use crate::base::duration;
use crate::base::ids::StackName;
use crate::hcl::paths;
use crate::hcl::value::Val;
use crate::project::config::check::stages;
use crate::project::config::expand::StackInstance;
use crate::project::config::project::{OuterBlock, approval, engine};
use crate::project::config::reader::{Field, Fields, Reader, Scope, each_unknown};
use crate::project::config::shape::{attrs, inner_blocks, is_misspelt, label_span};
use crate::project::config::stack_schema::PUBLISH;
use crate::project::engine::EngineRequirement;
use crate::project::{ConfirmMode, EdgeKind, Stack, WaitFor};
use crate::stage::Stages;

/// A stack with the locations of its parts, for the checks.
pub(crate) struct StackDraft {
    pub(crate) stack: Stack,
    pub(crate) has_path: bool,
    pub(crate) path_at: Location,
    pub(crate) target_at: Location,
    pub(crate) layer_at: Location,
    pub(crate) state_at: Location,
    pub(crate) contexts_at: Location,
    pub(crate) named_contexts: Vec<String>,
    /// References to other stacks, whether they exist or not.
    pub(crate) references: Vec<UpstreamReference>,
    pub(crate) own_outputs: Vec<(String, Location)>,
    pub(crate) facts: Vec<(String, Location)>,
    /// Files that it publishes: the facts' name, the path, the location.
    pub(crate) published: Vec<(String, String, Location)>,
    /// Places to which it publishes files whose paths are only known later.
    pub(crate) published_later: BTreeSet<String>,
    /// Fact files that its gates read: place and path.
    pub(crate) fact_files: Vec<(String, String, Location)>,
    pub(crate) var_files: Vec<(String, Location)>,
    pub(crate) render: Option<(String, Location)>,
    /// Inputs that are set, but invalid.
    pub(crate) flawed: UnreadableInputs,
}

/// Inputs that are set to something that could not be read.
#[derive(Default)]
pub(crate) struct UnreadableInputs {
    inputs: BTreeSet<String>,
    /// The names are not known either.
    any: bool,
}

impl UnreadableInputs {
    pub(crate) fn may_set(&self, input: &str) -> bool {
        self.any || self.inputs.contains(input)
    }

    /// Adds the inputs that a block sets and that could not be read.
    fn add(&mut self, item: &OuterBlock<'_>, fields: &Fields) {
        let Some(written) = item.block.body.get_attribute("inputs") else {
            self.any |= is_misspelt("inputs", item.block, &attrs(item.block, item.spec));
            return;
        };
        let (Expression::Object(object), Some(read)) = (&written.value, fields.get("inputs"))
        else {
            self.any |= fields.get("inputs").is_none();
            return;
        };
        if object.len() == read.items.len() {
            return;
        }
        for (key, _) in object {
            let name = match key {
                ObjectKey::Ident(name) => Some(name.as_str()),
                ObjectKey::Expression(expr) => expr.as_str(),
            };
            match name {
                Some(name) => _ = self.inputs.insert(name.to_owned()),
                None => self.any = true,
            }
        }
    }
}

pub(crate) struct UpstreamReference {
    pub(crate) upstream: String,
    pub(crate) kind: EdgeKind,
    pub(crate) at: Location,
}

/// Attributes of the stack itself, then of its `discover` block.
struct Layers<'f> {
    fields: Vec<(OuterBlock<'f>, Fields)>,
}

impl<'f> Layers<'f> {
    fn get(&self, name: &str) -> Option<(&OuterBlock<'f>, &Field)> {
        self.fields
            .iter()
            .find_map(|(item, fields)| Some((item, fields.get(name)?)))
    }

    fn text(&self, name: &str) -> Option<String> {
        self.get(name)
            .and_then(|(_, field)| field.val.as_text().map(str::to_owned))
    }

    fn texts(&self, name: &str) -> Vec<String> {
        match self.get(name).map(|(_, field)| &field.val) {
            Some(Val::List(items)) => items
                .iter()
                .filter_map(|item| item.as_text().map(str::to_owned))
                .collect(),
            _ => Vec::new(),
        }
    }

    fn at(&self, name: &str) -> Option<Location> {
        self.get(name)
            .map(|(item, field)| item.source.location(field.at.clone()))
    }
}

pub(crate) fn read(
    reader: &mut Reader<'_>,
    instance: &StackInstance<'_>,
    project_engine: &EngineRequirement,
) -> StackDraft {
    let name = &instance.name;
    let items: Vec<OuterBlock<'_>> = [Some(instance.item), instance.defaults]
        .into_iter()
        .flatten()
        .collect();
    let scope = names(reader, instance, &items);
    let layers = Layers {
        fields: items
            .iter()
            .map(|item| {
                (
                    *item,
                    reader.fields(item.source, item.block, item.spec, &scope),
                )
            })
            .collect(),
    };
    let mut draft = StackDraft {
        stack: plain(&layers, instance, &scope),
        has_path: instance.dir.is_some() || layers.get("path").is_some(),
        path_at: layers.at("path").unwrap_or_else(|| instance.at.clone()),
        target_at: layers.at("target").unwrap_or_else(|| instance.at.clone()),
        layer_at: layers.at("layer").unwrap_or_else(|| instance.at.clone()),
        state_at: layers.at("state").unwrap_or_else(|| instance.at.clone()),
        contexts_at: layers.at("contexts").unwrap_or_else(|| instance.at.clone()),
        named_contexts: layers.texts("contexts"),
        references: Vec::new(),
        own_outputs: Vec::new(),
        facts: Vec::new(),
        published: Vec::new(),
        published_later: BTreeSet::new(),
        fact_files: Vec::new(),
        var_files: Vec::new(),
        render: None,
        flawed: UnreadableInputs::default(),
    };
    for (item, fields) in &layers.fields {
        draft.flawed.add(item, fields);
    }
    let state = &draft.stack.state;
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    if state.is_empty()
        || state.len() > 128
        || !state.chars().all(good)
        || state.split('/').any(|part| part.is_empty() || part == "..")
    {
        let finding = Finding::error("invalid-name", format!("`{state}` is not the name of a state: letters, digits and `-`, `_`, `.`, `/`, at most 128"))
            .at(draft.state_at.clone(), "this name");
        reader.findings.push(finding);
    }
    references(&layers, &scope, &mut draft);
    draft.stack.engine = items
        .iter()
        .find_map(|item| engine(reader, item.source, item.block, &scope))
        .unwrap_or_else(|| project_engine.clone());
    for item in &items {
        inner(reader, item, &scope, &mut draft);
    }
    draft.var_files = layers
        .get("var_files")
        .map(|(item, field)| {
            let at = item.source.location(field.at.clone());
            layers
                .texts("var_files")
                .into_iter()
                .map(|file| (file, at.clone()))
                .collect()
        })
        .unwrap_or_default();
    draft.render = layers.text("render").zip(layers.at("render"));
    debug_assert_eq!(draft.stack.name, *name, "a draft keeps its name");
    draft
}

/// The names bound in a stack. `target` and `state` may use those before them.
fn names(reader: &mut Reader<'_>, instance: &StackInstance<'_>, items: &[OuterBlock<'_>]) -> Scope {
    let name = instance.name.as_str();
    let mut scope = instance.scope.with("stack", json!({ "name": name }));
    let mut early = |attribute: &str, scope: &Scope| {
        items
            .iter()
            .find_map(|item| {
                reader.single(item.source, &item.block.body, item.spec, attribute, scope)
            })
            .and_then(|field| field.val.as_text().map(str::to_owned))
    };
    let target = early("target", &scope).unwrap_or_default();
    scope = scope.with("target", json!({ "name": target }));
    let state = early("state", &scope).unwrap_or_else(|| name.to_owned());
    scope.with("stack", json!({ "name": name, "state": state }))
}

/// The attributes that need no further processing.
fn plain(layers: &Layers<'_>, instance: &StackInstance<'_>, scope: &Scope) -> Stack {
    let path = match &instance.dir {
        Some(dir) => dir.clone(),
        None => layers
            .text("path")
            .and_then(|raw| paths::normalize(&raw).ok())
            .unwrap_or_default(),
    };
    let state = scope
        .names
        .get("stack")
        .and_then(|names| names.get("state"))
        .and_then(|state| state.as_str());
    let flag = |name: &str| {
        matches!(
            layers.get(name).map(|(_, field)| &field.val),
            Some(Val::Bool(true))
        )
    };
    Stack {
        name: instance.name.clone(),
        path,
        target: layers.text("target").unwrap_or_default(),
        layer: layers.text("layer").unwrap_or_default(),
        labels: layers.texts("labels").into_iter().collect(),
        state: state.unwrap_or_default().to_owned(),
        engine: EngineRequirement::default(),
        inputs: BTreeMap::new(),
        var_files: Vec::new(),
        edges: Vec::new(),
        contexts: Vec::new(),
        wait: match layers.text("wait").as_deref() {
            Some("applied") => WaitFor::Applied,
            _ => WaitFor::Verified,
        },
        confirm: match layers.text("apply").as_deref() {
            Some("auto") => ConfirmMode::Auto,
            _ => ConfirmMode::Manual,
        },
        protected: flag("protected"),
        watch: layers.texts("watch"),
        include: layers.texts("include"),
        artifacts: layers.texts("artifacts"),
        render: layers.text("render"),
        timeout_plan: None,
        timeout_apply: None,
        approval: None,
        stages: Stages::default(),
        declared_at: instance.at.clone(),
        inputs_at: BTreeMap::new(),
    }
}

/// Inputs and edges. Each input of a `discover` block is a default of its own.
fn references(layers: &Layers<'_>, scope: &Scope, draft: &mut StackDraft) {
    for (item, fields) in layers.fields.iter().rev() {
        for entry in fields.get("inputs").map_or(&[][..], |field| &field.items) {
            draft
                .stack
                .inputs
                .insert(entry.key.clone(), entry.input(&scope.names));
            draft.stack.inputs_at.insert(
                entry.key.clone(),
                item.source.location(entry.key_at.clone()),
            );
            draft.references.retain(|known| !matches!(&known.kind, EdgeKind::Output { input, .. } if *input == entry.key));
            let mut said = BTreeSet::new();
            for (upstream, output, at) in &entry.seen.outputs {
                if said.insert((upstream, output)) {
                    draft.references.push(UpstreamReference {
                        upstream: upstream.clone(),
                        kind: EdgeKind::Output {
                            output: output.clone(),
                            input: entry.key.clone(),
                        },
                        at: item.source.location(at.clone()),
                    });
                }
            }
        }
    }
    if let Some((item, field)) = layers.get("after") {
        let mut said = BTreeSet::new();
        for (upstream, at) in &field.seen.stacks {
            if said.insert(upstream) {
                draft.references.push(UpstreamReference {
                    upstream: upstream.clone(),
                    kind: EdgeKind::Order,
                    at: item.source.location(at.clone()),
                });
            }
        }
    }
}

/// The nested blocks of a stack.
fn inner(reader: &mut Reader<'_>, item: &OuterBlock<'_>, scope: &Scope, draft: &mut StackDraft) {
    let source = item.source;
    for block in item.block.body.get_blocks("timeout") {
        let spec = item
            .spec
            .blocks
            .iter()
            .find(|inner| inner.block.word == "timeout");
        let Some(spec) = spec else { continue };
        let fields = reader.fields(source, block, spec.block, scope);
        draft.stack.timeout_plan = draft
            .stack
            .timeout_plan
            .or(fields.text("plan").and_then(duration::parse));
        draft.stack.timeout_apply = draft
            .stack
            .timeout_apply
            .or(fields.text("apply").and_then(duration::parse));
    }
    // The approval of a `discover` block is inherited as a whole or not at all.
    if draft.stack.approval.is_none() {
        draft.stack.approval = approval(reader, *item, scope);
    }
    let StackDraft {
        own_outputs,
        facts,
        fact_files,
        ..
    } = draft;
    reader.deep_fields(source, item.block, item.spec, scope, &mut |seen| {
        own_outputs.extend(
            seen.own_outputs
                .iter()
                .map(|(key, at)| (key.clone(), source.location(at.clone()))),
        );
        facts.extend(
            seen.facts
                .iter()
                .map(|(name, at)| (name.clone(), source.location(at.clone()))),
        );
        fact_files.extend(seen.fact_files.iter().map(|(name, path, at)| {
            let at = source.location(at.clone());
            (name.clone(), path.clone(), at)
        }));
    });
    for block in item.block.body.get_blocks("publish") {
        let Some(label) = block.labels.first() else {
            continue;
        };
        draft.facts.push((
            label.as_str().to_owned(),
            source.location(label_span(label)),
        ));
        let scope = each_unknown(block, scope);
        let fields = reader.fields(source, block, &PUBLISH, &scope);
        if let (Some(path), Some(field)) = (fields.text("path"), fields.get("path")) {
            let at = source.location(field.at.clone());
            let ending = path.rsplit_once('.').map(|(_, ending)| ending);
            if !matches!(ending, Some("yaml" | "json")) {
                reader.findings.push(
                    Finding::error(
                        "invalid-value",
                        format!("`{path}` ends neither in `.yaml` nor in `.json`"),
                    )
                    .at(at.clone(), "facts are YAML or JSON"),
                );
            }
            draft
                .published
                .push((label.as_str().to_owned(), path.to_owned(), at));
        } else {
            draft.published_later.insert(label.as_str().to_owned());
        }
    }
    stages::gates(reader, item, scope);
    stages(reader, item, scope, &mut draft.stack.stages);
}

/// The blocks of post-apply stages. A stack's own gate replaces the `discover` block's gate of the same name.
fn stages(reader: &mut Reader<'_>, item: &OuterBlock<'_>, scope: &Scope, stages: &mut Stages) {
    let own = stages.clone();
    for (block, spec) in inner_blocks(item.block, item.spec) {
        let (list, own) = match spec.word {
            "publish" => (&mut stages.publish, &own.publish),
            "bootstrap" => (&mut stages.bootstrap, &own.bootstrap),
            "gate" => (&mut stages.gates, &own.gates),
            _ => continue,
        };
        let written = block;
        let block = reader.stage_block(item.source, block, spec, scope);
        stages::settings(reader, item.source, written, spec, &block);
        let is_replaced = spec.word == "gate" && own.iter().any(|gate| gate.name == block.name);
        if !is_replaced {
            list.push(block);
        }
    }
}

/// The stack name in a reference, if it is valid.
pub(crate) fn upstream(raw: &str) -> Option<StackName> {
    raw.parse().ok()
}
