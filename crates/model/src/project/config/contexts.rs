//! Reads `context` blocks, with the checks that need no other block.
//!
//! Not here: which stacks get which context, and whether contexts conflict (`attach`).

use std::collections::BTreeMap;

use hcl_edit::structure::{Block as HclBlock, BlockLabel};

use crate::base::diagnostic::{Finding, Location};
use crate::base::duration;
use crate::base::tree::ReadFailure;
use crate::hcl::expression::Input;
use crate::hcl::paths;
use crate::hcl::value::Val;
use crate::project::config::project::OuterBlock;
use crate::project::config::reader::{Field, Fields, ObjectItem as Entry, Reader, Scope};
use crate::project::config::schema::{CONTEXT, CONTEXT_SECRET, HOOK};
use crate::project::config::shape::head;
use crate::project::context::{
    ClusterSecret, Context, ContextDefinition, ContextEntryKind, Hook, HookStage, HookTiming,
    refused_variable,
};

/// A context, with additional data for the checks.
pub(crate) struct ContextDraft {
    pub(crate) context: Context,
    pub(crate) autoattach_at: Location,
    /// The patterns of `pass_env`.
    pub(crate) passed: Vec<globset::GlobMatcher>,
}

pub(crate) fn read_context(
    reader: &mut Reader<'_>,
    item: OuterBlock<'_>,
    scope: &Scope,
) -> ContextDraft {
    let secrets = secrets(reader, item, scope);
    let mut scope = scope.clone();
    scope.late_names = true;
    let fields = reader.fields(item.source, item.block, &CONTEXT, &scope);
    let mut written = ContextDefinition {
        at: item.at(),
        autoattach: fields.texts("autoattach"),
        ..ContextDefinition::default()
    };
    let mut bundle = |reader: &mut Reader<'_>, kind: ContextEntryKind| -> BTreeMap<String, Input> {
        let items = fields
            .get(kind.word())
            .map_or(&[][..], |field| &field.items);
        let mut bundle = BTreeMap::new();
        for entry in items {
            let at = item.source.location(entry.key_at.clone());
            let Some(name) = name_of(reader, kind, entry, &at, &bundle) else {
                continue;
            };
            written.entries.insert((kind, name.clone()), at);
            bundle.insert(name, entry.input(&scope.names));
        }
        bundle
    };
    let env = bundle(reader, ContextEntryKind::Env);
    let vars = bundle(reader, ContextEntryKind::Vars);
    let files = bundle(reader, ContextEntryKind::Files);
    let place = |field: Option<&Field>| {
        field.map_or_else(|| item.at(), |field| item.source.location(field.at.clone()))
    };
    let pass_env_at = place(fields.get("pass_env"));
    pass_env(reader, &fields, &pass_env_at);
    written.pass_env_at = pass_env_at;
    let hooks = item.block.body.get_blocks(HOOK.word);
    ContextDraft {
        passed: fields
            .texts("pass_env")
            .iter()
            .filter_map(|glob| paths::compile_glob(glob).ok())
            .collect(),
        autoattach_at: place(fields.get("autoattach")),
        context: Context {
            name: item.name().to_owned(),
            priority: fields.integer("priority").unwrap_or(0),
            env,
            pass_env: fields.texts("pass_env"),
            vars,
            files,
            hooks: hooks
                .filter_map(|block| hook(reader, item, block, &scope))
                .collect(),
            secrets,
            written,
        },
    }
}

/// Secrets for clusters, without duplicate objects.
fn secrets(reader: &mut Reader<'_>, item: OuterBlock<'_>, scope: &Scope) -> Vec<ClusterSecret> {
    let mut secrets: Vec<ClusterSecret> = Vec::new();
    for written in item.block.body.get_blocks(CONTEXT_SECRET.word) {
        let fields = reader.fields(item.source, written, &CONTEXT_SECRET, scope);
        let entries = fields.get("data").map_or(&[][..], |field| &field.items);
        let secret = ClusterSecret {
            keys: entries.iter().map(|entry| entry.key.clone()).collect(),
            block: reader.stage_block(item.source, written, &CONTEXT_SECRET, scope),
        };
        let first = secrets
            .iter()
            .find(|first| first.is_same_object(&secret.block));
        if let Some(first) = first {
            let message = format!("secret `{}` is defined twice", secret.title());
            let finding = Finding::error("duplicate-name", message)
                .at(secret.block.at.clone(), "again here")
                .at(first.block.at.clone(), "first here");
            reader.findings.push(finding);
            continue;
        }
        secrets.push(secret);
    }
    secrets
}

/// The normalised name of an entry, if it is valid.
fn name_of(
    reader: &mut Reader<'_>,
    kind: ContextEntryKind,
    entry: &Entry,
    at: &Location,
    others: &BTreeMap<String, Input>,
) -> Option<String> {
    match kind {
        ContextEntryKind::Vars => {}
        ContextEntryKind::Env => {
            variable(reader, entry, at);
            refuse(reader, &entry.key, at);
        }
        ContextEntryKind::Files => return file(reader, entry, at, others),
    }
    Some(entry.key.clone())
}

/// Refuses variables that would interfere with how terrane runs the engine.
fn refuse(reader: &mut Reader<'_>, name: &str, at: &Location) {
    if let Some((why, hint)) = refused_variable(name) {
        let message = format!("a context cannot give `{name}` to the engine: {why}");
        let finding = Finding::error("reserved-variable", message);
        let finding = finding.at(at.clone(), "this name").hint(hint);
        reader.findings.push(finding);
    }
}

/// Environment variables must be strings with names that a shell accepts.
fn variable(reader: &mut Reader<'_>, entry: &Entry, at: &Location) {
    let key = &entry.key;
    let is_letter = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    if key.is_empty() || !key.bytes().all(is_letter) {
        let message = format!("`{key}` is not the name of an environment variable");
        let finding = Finding::error("invalid-name", message);
        reader.findings.push(finding.at(at.clone(), "this name"));
    }
    if matches!(entry.val, Val::List(_) | Val::Object(_) | Val::Null) {
        let what = entry.val.what();
        let message = format!("the environment holds strings, `{key}` is {what}");
        let finding = Finding::error("wrong-type", message);
        reader.findings.push(finding.at(at.clone(), "this entry"));
    }
}

/// A file must be below the stack's directory, and must be neither the engine's own nor part of the module.
fn file(
    reader: &mut Reader<'_>,
    entry: &Entry,
    at: &Location,
    others: &BTreeMap<String, Input>,
) -> Option<String> {
    let key = &entry.key;
    let mut refuse = |code, message: String, hint: Option<&str>| {
        let mut finding = Finding::error(code, message).at(at.clone(), "this file");
        finding.hint = hint.map(str::to_owned);
        reader.findings.push(finding);
        None
    };
    if key.split(['/', '\\']).any(|part| part == "..") {
        let message = format!("`{key}` leaves the stack's directory");
        let hint = "files of a context count from the directory of the stack that gets it";
        return refuse("path-leaves-project", message, Some(hint));
    }
    let path = match paths::normalize(key) {
        Ok(path) if path.is_empty() => {
            return refuse("invalid-name", format!("`{key}` names no file"), None);
        }
        Ok(path) => path,
        Err(_) => {
            let message =
                format!("`{key}` is an absolute path: files count from the stack's directory");
            return refuse("path-leaves-project", message, None);
        }
    };
    if let Some(whose) = reserved(&path) {
        let message = format!("a context cannot give the file `{key}`: {whose}");
        return refuse("reserved-file", message, None);
    }
    if others.contains_key(&path) {
        return refuse("duplicate-name", format!("`{key}` is given twice"), None);
    }
    if !matches!(entry.val, Val::Text(_) | Val::Unknown) {
        let what = entry.val.what();
        return refuse(
            "wrong-type",
            format!("a file holds text, `{key}` is {what}"),
            None,
        );
    }
    Some(path)
}

/// What owns a file that contexts must not provide.
fn reserved(path: &str) -> Option<&'static str> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let is_engines = path.split('/').any(|part| part == ".terraform")
        || name == ".terraform.lock.hcl"
        || name == ".terraform.initialised"
        || name.contains(".tfstate");
    let module = [".tf", ".tofu", ".tf.json", ".tofu.json"];
    if is_engines {
        Some("it is the engine's own")
    } else if module.iter().any(|end| name.ends_with(end)) {
        Some("it would be a part of the module, which comes from the source alone")
    } else {
        None
    }
}

fn pass_env(reader: &mut Reader<'_>, fields: &Fields, at: &Location) {
    for pattern in fields.texts("pass_env") {
        if let Err(message) = paths::compile_glob(&pattern) {
            let finding = Finding::error("invalid-value", message);
            reader.findings.push(finding.at(at.clone(), "in this list"));
        }
        refuse(reader, &pattern, at);
    }
}

fn hook(
    reader: &mut Reader<'_>,
    item: OuterBlock<'_>,
    block: &HclBlock,
    scope: &Scope,
) -> Option<Hook> {
    let mut labels = block.labels.iter().map(BlockLabel::as_str);
    let when = HookTiming::from_word(labels.next()?)?;
    let stage = HookStage::from_word(labels.next()?)?;
    let fields = reader.fields(item.source, block, &HOOK, scope);
    let run = fields.get("run")?;
    program(reader, item, run);
    let mut env = BTreeMap::new();
    for entry in fields.get("env").map_or(&[][..], |field| &field.items) {
        variable(reader, entry, &item.source.location(entry.key_at.clone()));
        env.insert(entry.key.clone(), entry.input(&scope.names));
    }
    Some(Hook {
        when,
        stage,
        run: run.input(item.source, &scope.names),
        env,
        timeout: fields.text("timeout").and_then(duration::parse),
        at: item.source.location(head(block)),
    })
}

/// A program inside the project must exist. A program in `PATH` is looked up when it runs.
fn program(reader: &mut Reader<'_>, item: OuterBlock<'_>, run: &Field) {
    let at = item.source.location(run.at.clone());
    let Val::List(words) = &run.val else {
        return;
    };
    let Some(first) = words.first() else {
        let finding = Finding::error("invalid-value", "`run` names no program");
        reader.findings.push(finding.at(at, "an empty list"));
        return;
    };
    let Some(name) = first.as_text().filter(|name| name.contains('/')) else {
        return;
    };
    if name.starts_with('/') {
        return;
    }
    let finding = match paths::normalize(name) {
        Err(leaves) => Finding::error("path-leaves-project", leaves.to_string()),
        Ok(path) if matches!(reader.tree.read(&path), Err(ReadFailure::Missing)) => {
            let message = format!("there is no program `{name}`");
            let hint = "a path counts from the project's root: write the program there, and make it executable";
            Finding::error("missing-file", message).hint(hint)
        }
        Ok(_) => return,
    };
    reader.findings.push(finding.at(at, "run here"));
}
