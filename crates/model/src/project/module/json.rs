//! Reads one `.tf.json` or `.tofu.json` file.

use serde_json::{Map, Value};

use super::read::Draft;
use super::scan::READERS;
use super::{ModuleCall, PathScope, RemoteState, RequiredProvider, UnknownRead, provider_of};
use crate::base::diagnostic::{Finding, Location};
use crate::hcl::syntax::SourceFile;

pub(super) fn add(draft: &mut Draft, source: &SourceFile) {
    let root: Value = match serde_json::from_str(source.code()) {
        Ok(root) => root,
        Err(err) => {
            draft.module.is_complete = false;
            let at = source.line_column(err.line(), err.column());
            draft.findings.push(
                Finding::error("syntax", format!("`{}` is not JSON", source.path))
                    .at(source.location(at..at + 1), "here"),
            );
            return;
        }
    };
    note_reads(draft, source);
    for (word, body) in objects(&root) {
        match word.as_str() {
            "variable" => {
                for (name, body) in objects(body) {
                    let at = find(source, "variable", name);
                    draft.variable(
                        name,
                        |variable| {
                            if let Some(kind) = text(body, "type") {
                                variable.type_text = Some(kind);
                            }
                            variable.has_default |= has(body, "default");
                            if let Some(sensitive) = flag(body, "sensitive") {
                                variable.sensitive = sensitive;
                            }
                        },
                        at,
                    );
                }
            }
            "output" => {
                for (name, body) in objects(body) {
                    let at = find(source, "output", name);
                    draft.output(
                        name,
                        |output| {
                            if let Some(sensitive) = flag(body, "sensitive") {
                                output.sensitive = sensitive;
                            }
                        },
                        at,
                    );
                }
            }
            "module" => {
                for (name, body) in objects(body) {
                    draft.call(ModuleCall {
                        name: name.clone(),
                        source: text(body, "source").unwrap_or_default(),
                        version: text(body, "version"),
                        local: None,
                        at: find(source, "module", name),
                    });
                }
            }
            "data" => {
                imply_providers(draft, source, body);
                for (_, states) in
                    objects(body).filter(|(kind, _)| *kind == "terraform_remote_state")
                {
                    for (name, body) in objects(states) {
                        let config = objects(body).find(|(key, _)| *key == "config");
                        draft.module.remote_states.push(RemoteState {
                            name: name.clone(),
                            backend: text(body, "backend"),
                            config: config
                                .map(|(_, config)| config.to_string())
                                .unwrap_or_default(),
                            at: find(source, "terraform_remote_state", name),
                        });
                    }
                }
            }
            "resource" | "ephemeral" => imply_providers(draft, source, body),
            "provider" => {
                for (name, _) in objects(body) {
                    let at = find(source, "provider", name);
                    draft.module.imply_provider(name, at);
                }
            }
            "terraform" => add_terraform(draft, source, body),
            _ => {}
        }
    }
}

fn imply_providers(draft: &mut Draft, source: &SourceFile, body: &Value) {
    for (kind, resources) in objects(body) {
        for (_, resource) in objects(resources) {
            let named = text(resource, "provider");
            let named = named.as_deref().and_then(|name| name.split('.').next());
            let name = named.unwrap_or_else(|| provider_of(kind));
            draft
                .module
                .imply_provider(name, find(source, "resource", kind));
        }
    }
}

fn add_terraform(draft: &mut Draft, source: &SourceFile, body: &Value) {
    if let Some(version) = text(body, "required_version") {
        draft.module.required_version.push(version);
    }
    for (word, body) in objects(body) {
        match word.as_str() {
            "required_providers" => {
                for (name, body) in objects(body) {
                    let provider = RequiredProvider {
                        source: text(body, "source"),
                        version: text(body, "version"),
                        at: find(source, "required_providers", name),
                    };
                    draft
                        .module
                        .required_providers
                        .insert(name.clone(), provider);
                }
            }
            "backend" => {
                for (kind, body) in objects(body) {
                    draft.backend(
                        kind.clone(),
                        body.to_string(),
                        find(source, "backend", kind),
                    );
                }
            }
            "cloud" => draft.backend(
                "cloud".to_owned(),
                body.to_string(),
                find(source, "terraform", "cloud"),
            ),
            _ => {}
        }
    }
}

/// The entries of an object, or of all objects in a list: JSON allows both.
fn objects(value: &Value) -> Box<dyn Iterator<Item = (&String, &Value)> + '_> {
    match value {
        Value::Object(entries) => Box::new(entries.iter()),
        Value::Array(items) => Box::new(
            items
                .iter()
                .filter_map(Value::as_object)
                .flat_map(Map::iter),
        ),
        _ => Box::new(std::iter::empty()),
    }
}

fn entry<'a>(body: &'a Value, key: &str) -> Option<&'a Value> {
    objects(body)
        .find(|(name, _)| *name == key)
        .map(|(_, value)| value)
}

fn has(body: &Value, key: &str) -> bool {
    entry(body, key).is_some()
}

fn text(body: &Value, key: &str) -> Option<String> {
    entry(body, key)?.as_str().map(str::to_owned)
}

fn flag(body: &Value, key: &str) -> Option<bool> {
    entry(body, key)?.as_bool()
}

/// The location of a name: the first match after its block type.
fn find(source: &SourceFile, kind: &str, name: &str) -> Location {
    let code = source.code();
    if code.len() > 200_000 {
        return source.location(0..0); // searching for each name would be slow
    }
    let from = code.find(&format!("\"{kind}\"")).unwrap_or(0);
    let quoted = format!("\"{name}\"");
    let at = code
        .get(from..)
        .and_then(|rest| rest.find(&quoted))
        .map_or(from, |at| from + at);
    source.location(at..at + quoted.len())
}

/// Expressions are not analysed here: a call that reads a file may read any file.
fn note_reads(draft: &mut Draft, source: &SourceFile) {
    for function in READERS {
        let call = format!("${{{function}(");
        if let Some(at) = source.code().find(&call) {
            let at = at + 2;
            draft.module.unknown_reads.push(UnknownRead {
                function: (*function).to_owned(),
                whereabouts: PathScope::Anywhere,
                at: source.location(at..at + function.len()),
            });
        }
    }
}
