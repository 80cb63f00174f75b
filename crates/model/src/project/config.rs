//! Loads a project: `terrane.hcl` and the files beside it, checked as a whole, with positions.
//!
//! All findings are reported at once. Not here: reading files (`tree`), the graph (`graph`), running anything.

mod attach;
pub(crate) mod check;
mod contexts;
mod expand;
mod facts;
mod findings;
pub(crate) mod kinds;
mod policies;
mod project;
mod reader;
pub mod reference;
mod renders;
pub mod resolve;
mod schema;
pub(crate) mod shape;
mod stack;
mod stack_schema;
#[cfg(test)]
mod tests;
pub(crate) mod walk;
mod writer;

use std::collections::{BTreeMap, BTreeSet};

use hcl_edit::Span;
use hcl_edit::structure::Structure;
use serde_json::{Value, json};

use attach::Contexts;
use check::modules::Modules;
use check::{Drafts, KnownNames};
use expand::{Blocks, StackInstance};
use findings::Findings;
use policies::PolicyDraft;
use project::{OuterBlock, TargetDraft};
use reader::{Reader, Scope};
use shape::head;
use stack::StackDraft;
use stack_schema::{DISCOVER, STACK};
use walk::{Dirs, join};

pub use project::read_by_line;

use crate::base::diagnostic::{Finding, Location, Severity};
use crate::base::tree::Tree;
use crate::hcl::suggest;
use crate::hcl::syntax::{self, ParsedFile};
use crate::project::engine::EngineRequirement;
use crate::project::module::Module;
use crate::project::{Project, Writer};
use crate::render::Render;
use crate::stage::facts::FactsBranch;

/// What a project file may query from the environment in which it is loaded.
pub struct LoadEnvironment<'a> {
    pub env: &'a dyn Fn(&str) -> Option<String>,
    pub git_commit: Option<String>,
    pub git_branch: Option<String>,
}

/// A project as far as it could be read, with all findings.
#[derive(Clone, Debug, Default)]
pub struct LoadedProject {
    /// May be missing or incomplete if the findings contain errors.
    pub project: Option<Project>,
    /// Errors first, then by file and line.
    pub findings: Vec<Finding>,
    /// Every root module and every local module in use, by directory.
    pub modules: BTreeMap<String, Module>,
    /// References to secrets, with the first location of each.
    pub secrets: BTreeMap<String, Location>,
    /// The text of every file that a finding points to.
    pub texts: BTreeMap<String, String>,
}

impl LoadedProject {
    pub fn has_errors(&self) -> bool {
        self.findings
            .iter()
            .any(|finding| finding.severity == Severity::Error)
    }

    /// Adds findings of other checks, in files with these texts.
    pub fn add(&mut self, findings: Vec<Finding>, texts: &BTreeMap<String, String>) {
        for place in findings.iter().flat_map(|finding| &finding.places) {
            if let Some(text) = texts.get(&place.at.file) {
                self.texts.insert(place.at.file.clone(), text.clone());
            }
        }
        self.findings.extend(findings);
        sort(&mut self.findings);
    }
}

/// Loads the project at the root of a tree.
pub fn load(tree: &dyn Tree, around: &LoadEnvironment<'_>) -> LoadedProject {
    let mut reader = Reader::new(tree, around);
    let dirs = Dirs::walk(tree);
    let files = project_files(&mut reader);
    let beside_files: Vec<(String, ParsedFile)> = dirs
        .stack_dirs(tree)
        .into_iter()
        .filter_map(|dir| {
            Some((
                dir.to_owned(),
                parsed(&mut reader, &join(dir, "stack.hcl"))?,
            ))
        })
        .collect();
    let outer = OuterBlocks::collect(&mut reader, &files);
    let mut blocks = outer.blocks();
    for (dir, file) in &beside_files {
        if let Some(item) = expand::beside(&mut reader, file) {
            blocks.beside.insert(dir.clone(), item);
        }
    }
    let found_files = !files.is_empty() || !beside_files.is_empty();
    let (project, modules) = read(&mut reader, &outer, &blocks, dirs, found_files);
    finish(reader, project, modules, tree)
}

/// The outer blocks in the order in which they were written.
struct OuterBlocks<'f> {
    items: Vec<OuterBlock<'f>>,
    /// Blocks whose names are already in use.
    again: Vec<OuterBlock<'f>>,
}

impl<'f> OuterBlocks<'f> {
    fn collect(reader: &mut Reader<'_>, files: &'f [ParsedFile]) -> Self {
        let (mut items, mut again) = (Vec::new(), Vec::new());
        let mut names: BTreeMap<(&str, &str), Location> = BTreeMap::new();
        for file in files {
            for structure in &file.body {
                let Some(item) = outer_block(reader, file, structure) else {
                    continue;
                };
                let at = item.at();
                let label = item.block.labels.first().map_or("", |label| label.as_str());
                let key = if item.spec.word == "project" {
                    ""
                } else {
                    label
                };
                let word = item.spec.word;
                if let Some(first) = names.get(&(word, key)) {
                    let message = match word {
                        "project" => "there are two `project` blocks".to_owned(),
                        _ => format!("{word} `{key}` is defined twice"),
                    };
                    let finding = Finding::error("duplicate-name", message)
                        .at(at, "again here")
                        .at(first.clone(), "first here");
                    reader.findings.push(finding);
                    again.push(item);
                } else {
                    names.insert((word, key), at);
                    items.push(item);
                }
            }
        }
        Self { items, again }
    }

    fn all(&self, word: &str) -> impl Iterator<Item = OuterBlock<'f>> {
        self.items
            .iter()
            .copied()
            .filter(move |item| item.spec.word == word)
    }

    fn names(&self, word: &str) -> BTreeSet<&str> {
        self.items
            .iter()
            .filter(|item| item.spec.word == word)
            .map(OuterBlock::name)
            .collect()
    }

    fn blocks(&self) -> Blocks<'f> {
        Blocks {
            stacks: self.all(STACK.word).collect(),
            discovers: self.all(DISCOVER.word).collect(),
            beside: BTreeMap::new(),
        }
    }
}

/// `terrane.hcl`, then the `*.terrane.hcl` beside it.
fn project_files(reader: &mut Reader<'_>) -> Vec<ParsedFile> {
    let entries = reader.tree.list("").unwrap_or_default();
    let mut names: Vec<String> = entries
        .into_iter()
        .filter(|entry| {
            !entry.is_dir && (entry.name == "terrane.hcl" || entry.name.ends_with(".terrane.hcl"))
        })
        .map(|entry| entry.name)
        .collect();
    names.sort_by_key(|name| (name != "terrane.hcl", name.clone()));
    if names.first().is_none_or(|name| name != "terrane.hcl") {
        let finding = Finding::error("missing-project", "there is no `terrane.hcl` here")
            .hint("`terrane init` proposes one");
        reader.findings.push(finding);
    }
    names
        .iter()
        .filter_map(|name| parsed(reader, name))
        .collect()
}

fn parsed(reader: &mut Reader<'_>, path: &str) -> Option<ParsedFile> {
    match syntax::parse(reader.tree, path) {
        Ok(file) => Some(file),
        Err(finding) => {
            reader.findings.push(finding);
            reader.is_partial = true;
            None
        }
    }
}

fn outer_block<'f>(
    reader: &mut Reader<'_>,
    file: &'f ParsedFile,
    structure: &'f Structure,
) -> Option<OuterBlock<'f>> {
    let source = &file.source;
    let words = || schema::TOP.iter().map(|block| block.word);
    match structure {
        Structure::Attribute(attribute) => {
            let at = source.location(attribute.key.span().unwrap_or(0..0));
            let finding = Finding::error(
                "unknown-attribute",
                format!("`{}` is outside of any block", attribute.key.as_str()),
            )
            .at(at, "attributes belong into blocks");
            reader.findings.push(finding);
            None
        }
        Structure::Block(block) => {
            let word = block.ident.as_str();
            let spec = schema::TOP.iter().find(|spec| spec.word == word);
            if spec.is_none() && !reader.findings.is_full() {
                let mut finding =
                    Finding::error("unknown-block", format!("there is no block `{word}`"))
                        .at(source.location(head(block)), "unknown block");
                finding.hint = suggest::hint(word, words());
                reader.findings.push(finding);
            }
            spec.map(|spec| OuterBlock {
                source,
                block,
                spec,
            })
        }
    }
}

fn read(
    reader: &mut Reader<'_>,
    outer: &OuterBlocks<'_>,
    blocks: &Blocks<'_>,
    dirs: Dirs,
    found_files: bool,
) -> (Option<Project>, BTreeMap<String, Module>) {
    let scope = project_scope(reader, outer);
    for item in outer
        .items
        .iter()
        .filter(|item| !matches!(item.spec.word, "stack" | "discover"))
    {
        reader.deep_shape(item.source, item.block, item.spec, &[]);
    }
    let mut project = outer
        .all("project")
        .next()
        .map(|item| project::read_project(reader, item, &scope));
    if project.is_none() && found_files && !reader.is_partial {
        let finding = Finding::error("missing-project", "there is no `project` block")
            .hint("add `project \"NAME\" { … }` to `terrane.hcl`");
        reader.findings.push(finding);
    }
    let mut parts = ProjectParts::read(reader, outer, &scope, &dirs);
    let engine = project
        .as_ref()
        .map(|project| project.engine.clone())
        .unwrap_or_default();
    let expanded = expand::expand(reader, blocks, &scope, &dirs);
    let mut drafts = Drafts::new();
    let mut again = read_again(reader, outer, &scope, &engine, &dirs);
    for instance in &expanded.instances {
        let draft = stack::read(reader, instance, &engine);
        if let Some(first) = drafts.get(&instance.name) {
            let first = &first.stack.declared_at;
            reader.findings.push(defined_twice(instance, first));
            again.push(draft);
        } else {
            drafts.insert(instance.name.clone(), draft);
        }
    }
    let is_empty = drafts.is_empty() && parts.renders.is_empty();
    if is_empty && found_files && expanded.unmade.is_empty() && !reader.is_partial {
        reader.findings.push(empty(outer, &expanded.disabled));
    }
    let known = KnownNames {
        writers: outer.names("writer"),
        facts: outer.names("facts"),
        renders: outer.names("render"),
        layers: &parts.layers,
        targets: &parts.targets,
        disabled: &expanded.disabled,
        unmade: &expanded.unmade,
        is_partial: reader.is_partial,
    };
    let findings = &mut reader.findings;
    check::check(findings, &known, &mut drafts, &mut again);
    check::cycle::check(findings, &drafts);
    let contexts = &mut parts.contexts;
    attach::attach(findings, &known, contexts, &mut drafts);
    let places = &reader.secrets;
    check::secrets::check(findings, &known, &drafts, contexts, &parts.facts, places);
    let policies = policies::attach(findings, &known, parts.policies, &drafts);
    let mut modules = Modules::new(reader.tree, dirs);
    modules.read_all(findings, &drafts);
    check::states::check(findings, &known, &drafts, &modules.read);
    check::backends::check(findings, &known, &drafts, contexts);
    modules.check(findings, contexts, &mut drafts);
    check::reads::check(findings, &drafts, &modules.read);
    check::remote_states::check(findings, &known, &drafts, &modules.read);
    if let Some(project) = &mut project {
        project.layers = parts.layers;
        let targets = parts.targets.into_iter();
        project.targets = targets.map(|(name, it)| (name, it.target)).collect();
        let contexts = parts.contexts.into_iter();
        project.contexts = contexts.map(|(name, it)| (name, it.context)).collect();
        project.policies = policies;
        project.writers = parts.writers;
        project.facts = parts.facts;
        project.renders = parts.renders;
        let stacks = drafts.into_iter();
        project.stacks = stacks.map(|(name, it)| (name, it.stack)).collect();
    }
    (project, modules.read)
}

/// The results of the outer blocks, except the project's own and those of stacks.
struct ProjectParts {
    layers: BTreeMap<String, i64>,
    targets: BTreeMap<String, TargetDraft>,
    contexts: Contexts,
    policies: Vec<PolicyDraft>,
    writers: BTreeMap<String, Writer>,
    facts: BTreeMap<String, FactsBranch>,
    renders: BTreeMap<String, Render>,
}

impl ProjectParts {
    fn read(reader: &mut Reader<'_>, outer: &OuterBlocks<'_>, scope: &Scope, dirs: &Dirs) -> Self {
        let layers = outer.all("layer").map(|item| {
            let fields = reader.fields(item.source, item.block, item.spec, scope);
            (item.name().to_owned(), fields.integer("order").unwrap_or(0))
        });
        let layers = layers.collect();
        let targets = outer.all("target").map(|item| {
            let target = project::read_target(reader, item, scope);
            (item.name().to_owned(), target)
        });
        let targets = targets.collect();
        let contexts = outer.all("context").map(|item| {
            let context = contexts::read_context(reader, item, scope);
            (item.name().to_owned(), context)
        });
        let contexts = contexts.collect();
        let policies = outer.all("policy");
        let policies = policies.map(|item| policies::read(reader, item, scope, dirs));
        let policies = policies.collect();
        let writers = outer.all("writer").map(|item| {
            let writer = writer::read_writer(reader, item, scope);
            (writer.name.clone(), writer)
        });
        let writers = writers.collect();
        let facts = outer.all("facts").map(|item| {
            let place = facts::read_facts(reader, item, scope);
            (place.name.clone(), place)
        });
        let facts = facts.collect();
        let renders = outer.all("render").map(|item| {
            let render = renders::read_render(reader, item, scope);
            (render.name.clone(), render)
        });
        let renders = renders.collect();
        Self {
            layers,
            targets,
            contexts,
            policies,
            writers,
            facts,
            renders,
        }
    }
}

/// Checks blocks whose names are already in use. Their results are discarded.
fn read_again(
    reader: &mut Reader<'_>,
    outer: &OuterBlocks<'_>,
    scope: &Scope,
    engine: &EngineRequirement,
    dirs: &Dirs,
) -> Vec<StackDraft> {
    let of = |word: &str| {
        let items = outer.again.iter().copied();
        items.filter(|item| item.spec.word == word).collect()
    };
    let blocks = Blocks {
        stacks: of(STACK.word),
        discovers: of(DISCOVER.word),
        beside: BTreeMap::new(),
    };
    for item in &outer.again {
        if !matches!(item.spec.word, "stack" | "discover") {
            reader.deep_shape(item.source, item.block, item.spec, &[]);
            reader.fields(item.source, item.block, item.spec, scope);
        }
    }
    let expanded = expand::expand(reader, &blocks, scope, dirs);
    let instances = expanded.instances.iter();
    instances
        .map(|instance| stack::read(reader, instance, engine))
        .collect()
}

fn defined_twice(instance: &StackInstance<'_>, first: &Location) -> Finding {
    let message = format!("stack `{}` is defined twice", instance.name);
    let finding = Finding::error("duplicate-name", message);
    if *first == instance.at {
        return finding
            .at(first.clone(), "several stacks of this block get this name")
            .hint("use `${each.key}` in it, or `${dir[N]}` in a `discover` block");
    }
    finding
        .at(instance.at.clone(), "again here")
        .at(first.clone(), "first here")
}

fn project_scope(reader: &Reader<'_>, outer: &OuterBlocks<'_>) -> Scope {
    let mut scope = Scope::default();
    let name = outer
        .all("project")
        .next()
        .map(|item| item.name().to_owned());
    scope.names.insert(
        "project".to_owned(),
        json!({ "name": name.unwrap_or_default() }),
    );
    let mut git = serde_json::Map::new();
    for (key, value) in [
        ("commit", &reader.around.git_commit),
        ("branch", &reader.around.git_branch),
    ] {
        if let Some(value) = value {
            git.insert(key.to_owned(), json!(value));
        }
    }
    if !git.is_empty() {
        scope.names.insert("git".to_owned(), Value::Object(git));
    }
    scope
}

fn empty(outer: &OuterBlocks<'_>, disabled: &BTreeSet<String>) -> Finding {
    let finding = match outer.all("project").next() {
        Some(item) => Finding::error("empty-project", "this project has no stacks")
            .at(item.at(), "nothing to do here"),
        None => Finding::error("empty-project", "this project has no stacks"),
    };
    if disabled.is_empty() {
        finding.hint("add a `stack` or a `discover` block")
    } else {
        let names: Vec<&str> = disabled.iter().map(String::as_str).take(8).collect();
        finding.hint(format!(
            "switched off by `enabled = false`: {}",
            suggest::list(&names)
        ))
    }
}

/// Errors first, then by location.
fn sort(findings: &mut [Finding]) {
    let place = |finding: &Finding| {
        let first = finding.places.first();
        first.map(|place| (place.at.file.clone(), place.at.line, place.at.column))
    };
    findings.sort_by_key(|finding| (finding.severity, place(finding)));
}

/// Sorts the findings and keeps the texts that they point to.
fn finish(
    mut reader: Reader<'_>,
    project: Option<Project>,
    modules: BTreeMap<String, Module>,
    tree: &dyn Tree,
) -> LoadedProject {
    for (what, at) in std::mem::take(&mut reader.later) {
        let finding = Finding::note("not-yet-effective", format!("not yet effective: {what}"))
            .at(at, "checked, but it does nothing so far");
        reader.findings.push_always(finding);
    }
    if reader.findings.is_full() {
        let finding = Finding::note(
            "too-many-findings",
            "there are more findings than are shown",
        );
        reader.findings.push_always(finding);
    }
    let mut findings = Findings::into_list(reader.findings);
    sort(&mut findings);
    let mut texts = BTreeMap::new();
    for place in findings.iter().flat_map(|finding| &finding.places) {
        let path = &place.at.file;
        if !texts.contains_key(path)
            && let Ok(bytes) = tree.read(path)
            && bytes.len() <= syntax::MAX_FILE_BYTES
        {
            texts.insert(path.clone(), String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    LoadedProject {
        project,
        findings,
        modules,
        secrets: reader.secrets,
        texts,
    }
}
