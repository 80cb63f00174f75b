//! Reads the outer blocks: the project, its layers and targets.
//!
//! Not here: contexts (`contexts`), stacks (`stack`), rules between blocks (`check`).

use std::collections::BTreeMap;

use hcl_edit::structure::Block as HclBlock;

use crate::base::diagnostic::{Finding, Location};
use crate::base::duration;
use crate::hcl::expression::Input;
use crate::hcl::syntax::SourceFile;
use crate::hcl::value::Val;
use crate::project::config::reader::{Field, Reader, Scope};
use crate::project::config::schema::{self, BACKEND, ENGINE};
use crate::project::config::shape::{head, label_span};
use crate::project::engine::EngineRequirement;
use crate::project::providers;
use crate::project::{ApprovalBlock, ApprovalScope};
use crate::project::{Backend, LaneScope, Project, Target};

/// An outer block with its location.
#[derive(Clone, Copy)]
pub(crate) struct OuterBlock<'f> {
    pub(crate) source: &'f SourceFile,
    pub(crate) block: &'f HclBlock,
    pub(crate) spec: &'static schema::Block,
}

impl OuterBlock<'_> {
    pub(crate) fn name(&self) -> &str {
        self.block.labels.first().map_or("", |label| label.as_str())
    }

    pub(crate) fn at(&self) -> Location {
        let span = self
            .block
            .labels
            .first()
            .map_or_else(|| head(self.block), label_span);
        self.source.location(span)
    }
}

/// A target with its location.
pub(crate) struct TargetDraft {
    pub(crate) target: Target,
    pub(crate) writers_at: Location,
    pub(crate) backend_at: Option<Location>,
}

/// A home is a directory with this name, and states are named `ID/NAME`.
fn is_id(text: &str) -> bool {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.len() <= 64
        && text.chars().all(is_fit)
}

/// The project's name and id in a file that cannot be parsed. During a merge, active runs must still be visible and
/// stoppable. None if the merge conflict is in that block.
pub fn read_by_line(text: &str) -> Option<(String, Option<String>)> {
    let quoted = |rest: &str| Some(rest.trim().split('"').nth(1)?.to_owned());
    let (mut project, mut depth, mut is_contested) = (None, 0, false);
    for line in text.lines().map(str::trim) {
        let is_marker = ["<<<<<<<", "|||||||", "=======", ">>>>>>>"]
            .iter()
            .any(|it| line.starts_with(it));
        if is_marker {
            is_contested = !line.starts_with('>');
            if project.is_some() {
                return None;
            }
            continue;
        }
        let Some((_, id)) = &mut project else {
            if let Some(head) = line.strip_prefix("project ") {
                if is_contested {
                    return None;
                }
                project = Some((quoted(head)?, None));
                depth = braces(line);
            }
            continue;
        };
        let value = line.strip_prefix("id").map(str::trim_start);
        let value = value.and_then(|rest| rest.strip_prefix('='));
        if let Some(value) = value.filter(|_| depth == 1) {
            *id = Some(quoted(value).filter(|id| is_id(id))?);
        }
        depth += braces(line);
        if depth <= 0 {
            break;
        }
    }
    project
}

/// The number of blocks that a line opens, minus those that it closes.
fn braces(line: &str) -> i32 {
    let (mut depth, mut is_text) = (0, false);
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' if is_text => drop(chars.next()),
            '"' => is_text = !is_text,
            '#' if !is_text => break,
            '{' if !is_text => depth += 1,
            '}' if !is_text => depth -= 1,
            _ => {}
        }
    }
    depth
}

#[cfg(test)]
#[test]
fn what_a_broken_file_calls_its_project_is_read_by_line() {
    let check = |text: &str, expected: Option<(&str, Option<&str>)>| {
        let read = read_by_line(text);
        let read = read.as_ref();
        let read = read.map(|(name, id)| (name.as_str(), id.as_deref()));
        assert_eq!(read, expected, "{text}");
    };
    let whole = "project \"lab\" {\n  id = \"lab-1\"\n}\n<<<<<<< HEAD\n";
    check(whole, Some(("lab", Some("lab-1"))));
    check("project \"lab\" {\n}\nid = \"x\"\n", Some(("lab", None)));
    check("project \"lab\" {\n<<<<<<< HEAD\n  id = \"x\"\n}\n", None);
    let nested = "project \"lab\" {\n  engine \"tofu\" { # {\n    id = \"no\"\n  }\n  id = \"lab-1\"\n}\nstack {\n";
    check(nested, Some(("lab", Some("lab-1"))));
    let around = "<<<<<<< HEAD\nproject \"lab\" {\n  id = \"a\"\n}\n=======\nproject \"lab\" {\n}\n>>>>>>> x\n";
    check(around, None);
    let before = "<<<<<<< HEAD\n=======\n>>>>>>> x\nproject \"lab\" {\n  id = \"a\"\n}\n";
    check(before, Some(("lab", Some("a"))));
    check("project \"lab\" {\n  id = \"../x\"\n}\n", None);
    check("stack \"a\" {\n  id = \"x\"\n}\n", None);
}

pub(crate) fn read_project(
    reader: &mut Reader<'_>,
    item: OuterBlock<'_>,
    scope: &Scope,
) -> Project {
    let fields = reader.fields(item.source, item.block, item.spec, scope);
    reader.deep_fields(item.source, item.block, item.spec, scope, &mut |_| {});
    let id = fields.text("id").filter(|id| is_id(id)).map(str::to_owned);
    if id.is_none()
        && fields.text("id").is_some()
        && let Some(field) = fields.get("id")
    {
        let at = item.source.location(field.at.clone());
        let finding = Finding::error("invalid-value", "`id` cannot be the name of a home");
        let hint = "letters, digits, `-`, `_` and `.`, a letter or digit first, at most 64";
        reader.findings.push(finding.at(at, "here").hint(hint));
    }
    Project {
        name: item.name().to_owned(),
        id,
        engine: engine(reader, item.source, item.block, scope).unwrap_or_default(),
        parallelism: fields
            .integer("parallelism")
            .and_then(|count| usize::try_from(count).ok()),
        platforms: fields.texts("platforms"),
        strict_secrets: fields.bool("strict_secrets").unwrap_or(false),
        layers: BTreeMap::new(),
        targets: BTreeMap::new(),
        contexts: BTreeMap::new(),
        policies: BTreeMap::new(),
        writers: BTreeMap::new(),
        facts: BTreeMap::new(),
        renders: BTreeMap::new(),
        gitops: gitops(reader, item, scope),
        stacks: BTreeMap::new(),
    }
}

/// The globs of the `gitops` block.
fn gitops(reader: &mut Reader<'_>, item: OuterBlock<'_>, scope: &Scope) -> Vec<String> {
    let blocks = item.block.body.get_blocks("gitops");
    blocks
        .flat_map(|block| {
            let fields = reader.fields(item.source, block, &schema::GITOPS, scope);
            fields.texts("paths")
        })
        .collect()
}

/// The `engine` block of a project or a stack.
pub(crate) fn engine(
    reader: &mut Reader<'_>,
    source: &SourceFile,
    block: &HclBlock,
    scope: &Scope,
) -> Option<EngineRequirement> {
    let inner = block.body.get_blocks("engine").next()?;
    let flavor = inner.labels.first()?.as_str().parse().ok()?;
    let fields = reader.fields(source, inner, &ENGINE, scope);
    Some(EngineRequirement {
        flavor,
        constraint: fields.text("version").and_then(|raw| raw.parse().ok()),
    })
}

/// The `approval` block of a target or a stack.
pub(crate) fn approval(
    reader: &mut Reader<'_>,
    item: OuterBlock<'_>,
    scope: &Scope,
) -> Option<ApprovalBlock> {
    let block = item.block.body.get_blocks("approval").next()?;
    let fields = reader.fields(item.source, block, &schema::APPROVAL, scope);
    Some(ApprovalBlock {
        count: fields
            .integer("count")
            .and_then(|count| count.try_into().ok()),
        role: fields.text("role").map(str::to_owned),
        author: fields.bool("author"),
        expires: fields.text("expires").and_then(duration::parse),
        scope: match fields.text("scope") {
            Some("stack") => Some(ApprovalScope::Stack),
            Some(_) => Some(ApprovalScope::ChangeSet),
            None => None,
        },
    })
}

pub(crate) fn read_target(
    reader: &mut Reader<'_>,
    item: OuterBlock<'_>,
    scope: &Scope,
) -> TargetDraft {
    let mut scope = scope.with("target", serde_json::json!({ "name": item.name() }));
    let fields = reader.fields(item.source, item.block, item.spec, &scope);
    let approval = approval(reader, item, &scope);
    scope.late_names = true;
    let block = item.block.body.get_blocks("backend").next();
    let backend_at = block.map(|block| item.source.location(head(block)));
    let backend = match block {
        Some(block) => Backend::Engine {
            kind: block
                .labels
                .first()
                .map_or_else(String::new, |label| label.as_str().to_owned()),
            settings: reader.open_attributes(item.source, block, &scope),
        },
        None => Backend::Terrane,
    };
    for entry in fields.texts("providers") {
        if !providers::is_address(&entry) {
            let finding =
                Finding::error("provider-address", format!("`{entry}` names no provider"));
            let at = fields
                .get("providers")
                .map_or_else(|| item.at(), |field| item.source.location(field.at.clone()));
            reader.findings.push(
                finding
                    .at(at, "in this list")
                    .hint("write `namespace/type`, such as `hashicorp/random`"),
            );
        }
    }
    TargetDraft {
        target: Target {
            name: item.name().to_owned(),
            writers: fields.texts("writers"),
            lane: match fields.text("lane") {
                Some("stack") => LaneScope::Stack,
                _ => LaneScope::Target,
            },
            no_providers: is_empty_list(fields.get("providers")),
            providers: fields.texts("providers"),
            backend,
            approval,
        },
        writers_at: fields
            .get("writers")
            .map_or_else(|| item.at(), |field| item.source.location(field.at.clone())),
        backend_at,
    }
}

/// Whether a list was set and is empty.
fn is_empty_list(field: Option<&Field>) -> bool {
    field.is_some_and(|field| matches!(&field.val, Val::List(items) if items.is_empty()))
}

impl Reader<'_> {
    /// The attributes of a block that accepts any attribute.
    fn open_attributes(
        &mut self,
        source: &SourceFile,
        block: &HclBlock,
        scope: &Scope,
    ) -> BTreeMap<String, Input> {
        debug_assert!(BACKEND.open, "only such blocks come here");
        let mut settings = BTreeMap::new();
        for attribute in block.body.attributes() {
            if let Some(item) = self.open_item(source, attribute, scope) {
                settings.insert(item.key.clone(), item.input(&scope.names));
            }
        }
        settings
    }
}
