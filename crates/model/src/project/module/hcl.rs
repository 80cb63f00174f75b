//! Reads one `.tf` or `.tofu` file.

use hcl_edit::Span;
use hcl_edit::expr::Expression;
use hcl_edit::structure::{Block, Body};

use super::read::Draft;
use super::scan::scan;
use super::{
    ModuleCall, ModuleOutput, RemoteState, RequiredProvider, UnknownRead, Variable, provider_of,
};
use crate::base::diagnostic::Finding;
use crate::hcl::syntax::ParsedFile;
use crate::hcl::syntax::SourceFile;
use crate::project::config::shape::{head, label_span};

pub(super) fn add(draft: &mut Draft, file: &ParsedFile) {
    let source = &file.source;
    for block in file.body.blocks() {
        match (block.ident.as_str(), block.labels.as_slice()) {
            ("variable", [name]) => {
                let at = source.location(label_span(name));
                draft.variable(
                    name.as_str(),
                    |variable| read_variable(variable, source, block),
                    at,
                );
            }
            ("output", [name]) => {
                let at = source.location(label_span(name));
                draft.output(name.as_str(), |output| read_output(output, block), at);
            }
            ("module", [name]) => read_call(draft, source, block, name.as_str()),
            ("data", [kind, name]) if kind.as_str() == "terraform_remote_state" => {
                draft.module.remote_states.push(RemoteState {
                    name: name.as_str().to_owned(),
                    backend: text(&block.body, "backend"),
                    config: block
                        .body
                        .get_attribute("config")
                        .map(|config| slice(source, &config.value))
                        .unwrap_or_default(),
                    at: source.location(head(block)),
                });
            }
            ("resource" | "data" | "ephemeral", [kind, _]) => {
                let named = block.body.get_attribute("provider");
                let named = named.and_then(|attribute| provider_name(&attribute.value));
                let name = named.unwrap_or_else(|| provider_of(kind.as_str()));
                draft
                    .module
                    .imply_provider(name, source.location(head(block)));
            }
            ("provider", [name]) => {
                let at = source.location(head(block));
                draft.module.imply_provider(name.as_str(), at);
            }
            ("terraform", _) => read_terraform(draft, source, block),
            _ => {}
        }
    }
    let found = scan(&draft.module.dir, &file.body);
    for (path, at) in found.files {
        let files = &mut draft.module.files;
        files.entry(path).or_insert_with(|| source.location(at));
    }
    for (name, outputs) in found.remote_outputs {
        let used = draft.module.remote_outputs.entry(name).or_default();
        used.extend(outputs);
    }
    for (function, whereabouts, at) in found.unknown {
        draft.module.unknown_reads.push(UnknownRead {
            function,
            whereabouts,
            at: source.location(at),
        });
    }
    draft.module.has_unstable_paths |= !found.unstable.is_empty();
    for (what, at) in found.unstable {
        draft.findings.push(
            Finding::warning(
                "unstable-path",
                format!("`{what}` gives another path in each run"),
            )
            .at(source.location(at), "the source is copied before it is run")
            .hint("use `path.module` or `path.root`"),
        );
    }
}

fn read_variable(variable: &mut Variable, source: &SourceFile, block: &Block) {
    let body = &block.body;
    if let Some(kind) = body.get_attribute("type") {
        let span = kind.value.span().unwrap_or(0..0);
        variable.type_text = Some(source.slice(span).to_owned());
    }
    if body.has_attribute("default") {
        variable.has_default = true;
    }
    if let Some(sensitive) = flag(body, "sensitive") {
        variable.sensitive = sensitive;
    }
    if let Some(description) = text(body, "description") {
        variable.description = Some(description);
    }
}

fn read_output(output: &mut ModuleOutput, block: &Block) {
    if let Some(sensitive) = flag(&block.body, "sensitive") {
        output.sensitive = sensitive;
    }
    if let Some(description) = text(&block.body, "description") {
        output.description = Some(description);
    }
}

fn read_call(draft: &mut Draft, source: &SourceFile, block: &Block, name: &str) {
    let at = block
        .body
        .get_attribute("source")
        .and_then(|attribute| attribute.value.span())
        .unwrap_or_else(|| head(block));
    draft.call(ModuleCall {
        name: name.to_owned(),
        source: text(&block.body, "source").unwrap_or_default(),
        version: text(&block.body, "version"),
        local: None,
        at: source.location(at),
    });
}

fn read_terraform(draft: &mut Draft, source: &SourceFile, block: &Block) {
    if let Some(version) = text(&block.body, "required_version") {
        draft.module.required_version.push(version);
    }
    for inner in block.body.blocks() {
        match (inner.ident.as_str(), inner.labels.first()) {
            ("required_providers", _) => {
                for attribute in inner.body.attributes() {
                    let mut provider = read_provider(&attribute.value);
                    let at = attribute.key.span().unwrap_or_else(|| head(inner));
                    provider.at = source.location(at);
                    draft
                        .module
                        .required_providers
                        .insert(attribute.key.as_str().to_owned(), provider);
                }
            }
            ("backend", Some(kind)) => {
                let kind = kind.as_str().to_owned();
                draft.backend(kind, body_text(source, inner), source.location(head(inner)));
            }
            ("cloud", _) => draft.backend(
                "cloud".to_owned(),
                body_text(source, inner),
                source.location(head(inner)),
            ),
            _ => {}
        }
    }
}

fn read_provider(value: &Expression) -> RequiredProvider {
    if let Some(version) = value.as_str() {
        return RequiredProvider {
            version: Some(version.to_owned()),
            ..RequiredProvider::default()
        };
    }
    let mut provider = RequiredProvider::default();
    for (key, value) in value
        .as_object()
        .into_iter()
        .flat_map(|object| object.iter())
    {
        let key = key
            .as_ident()
            .map(hcl_edit::Ident::as_str)
            .or_else(|| key.as_expr().and_then(Expression::as_str));
        let value = value.expr().as_str().map(str::to_owned);
        match key {
            Some("source") => provider.source = value,
            Some("version") => provider.version = value,
            _ => {}
        }
    }
    provider
}

/// The local name in `google-beta.eu`.
fn provider_name(value: &Expression) -> Option<&str> {
    match value {
        Expression::Variable(name) => Some(name.as_str()),
        Expression::Traversal(traversal) => provider_name(&traversal.expr),
        _ => None,
    }
}

fn text(body: &Body, name: &str) -> Option<String> {
    body.get_attribute(name)?.value.as_str().map(str::to_owned)
}

fn flag(body: &Body, name: &str) -> Option<bool> {
    body.get_attribute(name)?.value.as_bool()
}

/// Source text on one line.
fn slice(source: &SourceFile, expr: &Expression) -> String {
    one_line(source.slice(expr.span().unwrap_or(0..0)))
}

/// With its line breaks, which end comments.
fn body_text(source: &SourceFile, block: &Block) -> String {
    source.slice(block.span().unwrap_or(0..0)).to_owned()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
